//! What a request or grant is about, in few words. Every string is made visible here.

use crate::{
    api::Action,
    decide::visible::{one_line, visible},
};

/// Longest name shown in a column or headline.
const NAME: usize = 80;

/// The target for a column, without spaces: `deployments/api`, with a subresource `deployments/api/scale`.
pub fn column(action: &Action) -> String {
    let mut text = format!("{}/{}", one_line(&action.resource, NAME), name(action));
    if let Some(subresource) = &action.subresource {
        text.push('/');
        text.push_str(&one_line(subresource, NAME));
    }
    text.replace(' ', "<U+0020>")
}

/// The target in one phrase: `deployments.apps/scale web/api`.
pub fn phrase(action: &Action) -> String {
    let mut text = one_line(&action.resource, NAME);
    if !action.group.is_empty() {
        text.push('.');
        text.push_str(&one_line(&action.group, NAME));
    }
    if let Some(subresource) = &action.subresource {
        text.push('/');
        text.push_str(&one_line(subresource, NAME));
    }
    text.push(' ');
    if let Some(namespace) = &action.namespace {
        text.push_str(&one_line(namespace, NAME));
        text.push('/');
    }
    text.push_str(&name(action));
    text
}

/// The name, or the prefix of a name that the server makes up.
pub fn name(action: &Action) -> String {
    match (&action.name, &action.generate_name) {
        (Some(name), _) => one_line(name, NAME),
        (None, Some(prefix)) => format!("{}*", one_line(prefix, NAME)),
        (None, None) => "*".to_owned(),
    }
}

/// What a person types to confirm an irreversible action: the whole name.
pub fn confirmation(action: &Action) -> String {
    visible(
        action
            .name
            .as_deref()
            .or(action.generate_name.as_deref())
            .unwrap_or(&action.resource),
    )
}

/// A username for a column: a ServiceAccount as `sa:namespace/name`.
pub fn person(username: &str) -> String {
    let short = match username
        .strip_prefix("system:serviceaccount:")
        .and_then(|rest| rest.split_once(':'))
    {
        Some((namespace, name)) => format!("sa:{namespace}/{name}"),
        None => username.to_owned(),
    };
    one_line(&short, NAME).replace(' ', "<U+0020>")
}

#[cfg(test)]
mod tests {
    #![allow(
        clippy::unwrap_used,
        clippy::expect_used,
        clippy::panic,
        reason = "tests"
    )]

    use super::*;

    fn action(name: &str) -> Action {
        serde_json::from_value(serde_json::json!({
            "operation": "UPDATE", "group": "apps", "version": "v1", "resource": "deployments", "subresource": "scale",
            "namespace": "web", "name": name, "options": "{}",
        }))
        .unwrap()
    }

    #[test]
    fn a_target_is_named_with_group_and_subresource() {
        assert_eq!(phrase(&action("api")), "deployments.apps/scale web/api");
        assert_eq!(column(&action("api")), "deployments/api/scale");
    }

    #[test]
    fn a_hostile_name_cannot_break_a_row() {
        assert_eq!(
            column(&action("a b\n\u{202e}c")),
            "deployments/a<U+0020>b<U+000A><U+202E>c/scale"
        );
    }

    #[test]
    fn service_accounts_are_short_in_columns() {
        assert_eq!(
            person("system:serviceaccount:agents:ops-bot"),
            "sa:agents/ops-bot"
        );
        assert_eq!(person("ana@example.com"), "ana@example.com");
    }
}
