//! `grants`: permissions and their lives.

use std::cmp::Reverse;

use clap::Args;
use jiff::Timestamp;
use serde_json::Value;

use super::{
    exit::Failure,
    kinds::GRANTS,
    output::{Printed, between, list, table},
    server::Server,
    target,
};
use crate::{
    api::{Grant, grant::GrantPhase},
    decide::{ended::ended, visible::one_line},
};

/// Arguments of `grants`.
#[derive(Args, Debug)]
pub struct GrantsArgs {
    /// Grants of all namespaces.
    #[arg(short = 'A', long)]
    pub all_namespaces: bool,
    /// Only grants that serve now.
    #[arg(long)]
    pub active: bool,
}

/// Lists grants, the newest first.
pub async fn run(server: &Server, args: GrantsArgs) -> Result<Printed, Failure> {
    let namespace = (!args.all_namespaces).then_some(server.namespace.as_str());
    let items = server.list(GRANTS, namespace).await?;
    Ok(render(items, namespace, args.active, server.now()))
}

/// The phase at this moment: what is written, or what time and uses have made of it since.
pub fn phase(grant: &Grant, now: Timestamp) -> GrantPhase {
    ended(&grant.spec, grant.status.as_ref(), now)
        .map_or(GrantPhase::Active, |reason| reason.phase())
}

/// The list in every format. `namespace`: the one that was asked for, or all.
pub fn render(items: Vec<Value>, namespace: Option<&str>, active: bool, now: Timestamp) -> Printed {
    let mut notes = Vec::new();
    let mut grants = Vec::new();
    for item in items {
        match serde_json::from_value::<Grant>(item.clone()) {
            Ok(grant) if active && phase(&grant, now) != GrantPhase::Active => {}
            Ok(grant) => grants.push((grant, item)),
            Err(error) => {
                let name = one_line(
                    item.pointer("/metadata/name")
                        .and_then(Value::as_str)
                        .unwrap_or("?"),
                    80,
                );
                notes.push(format!(
                    "grant {name} cannot be read by this version ({})",
                    one_line(&error.to_string(), 120)
                ));
            }
        }
    }
    grants.sort_by_key(|(grant, _)| Reverse(grant.spec.not_before.0));
    if grants.is_empty() {
        let which = if active {
            "No grant serves now"
        } else {
            "There is no grant"
        };
        notes.push(match namespace {
            Some(namespace) => format!("{which} in namespace {namespace}."),
            None => format!("{which} in any namespace."),
        });
    }
    let columns = |wide: bool| {
        let mut header = vec![
            "NAME",
            "PHASE",
            "OPERATION",
            "TARGET",
            "REQUESTER",
            "USES",
            "LEFT",
        ];
        if namespace.is_none() {
            header.insert(0, "NAMESPACE");
        }
        if wide {
            header.extend(["REQUEST", "AGENT"]);
        }
        header.push("AGE");
        let rows: Vec<_> = grants
            .iter()
            .map(|(grant, _)| row(grant, namespace.is_none(), wide, now))
            .collect();
        table(&header, &rows)
    };
    Printed {
        table: columns(false),
        wide: columns(true),
        notes,
        names: grants
            .iter()
            .map(|(grant, _)| {
                format!(
                    "{}/{}",
                    GRANTS.singular,
                    one_line(grant.metadata.name.as_deref().unwrap_or("-"), 80)
                )
            })
            .collect(),
        document: list(
            "GrantList",
            grants.into_iter().map(|(_, item)| item).collect(),
        ),
        ..Printed::default()
    }
}

fn row(grant: &Grant, namespace: bool, wide: bool, now: Timestamp) -> Vec<String> {
    let cell = |text: &str| one_line(text, 80).replace(' ', "<U+0020>");
    let spec = &grant.spec;
    let phase = phase(grant, now);
    let used = grant
        .status
        .as_ref()
        .and_then(|status| status.used)
        .unwrap_or(0);
    let mut cells = Vec::new();
    if namespace {
        cells.push(cell(grant.metadata.namespace.as_deref().unwrap_or("-")));
    }
    cells.extend([
        cell(grant.metadata.name.as_deref().unwrap_or("-")),
        format!("{phase:?}"),
        spec.action.operation.as_str().to_owned(),
        target::column(&spec.action),
        target::person(&spec.requester.username),
        spec.uses
            .map_or(format!("{used}/any"), |uses| format!("{used}/{uses}")),
        if phase == GrantPhase::Active {
            between(now, spec.not_after.0)
        } else {
            "-".to_owned()
        },
    ]);
    if wide {
        cells.extend([cell(&spec.request_ref.name), cell(&spec.requester.agent)]);
    }
    cells.push(
        grant
            .metadata
            .creation_timestamp
            .as_ref()
            .map_or("-".to_owned(), |created| between(created.0, now)),
    );
    cells
}

#[cfg(test)]
mod tests {
    #![allow(
        clippy::unwrap_used,
        clippy::expect_used,
        clippy::panic,
        reason = "tests"
    )]

    use serde_json::json;

    use super::*;
    use crate::cli::{Format, fixtures::grant};

    fn now() -> Timestamp {
        "2026-01-01T10:04:00Z".parse().unwrap()
    }

    #[test]
    fn the_phase_is_what_holds_now_not_what_was_written_last() {
        let items = vec![
            grant("gr-open", json!({}), json!({})),
            grant("gr-spent", json!({}), json!({"used": 1})),
            grant(
                "gr-late",
                json!({"notAfter": "2026-01-01T10:04:00Z"}),
                json!({}),
            ),
            grant(
                "gr-taken",
                json!({"revoked": true, "uses": null}),
                json!({"used": 7}),
            ),
        ];
        let text = render(items.clone(), Some("web"), false, now()).stdout(Format::Table);
        assert_eq!(
            text,
            "NAME       PHASE       OPERATION   TARGET                  REQUESTER           USES    LEFT   AGE\n\
             gr-open    Active      UPDATE      deployments/api/scale   sa:agents/ops-bot   0/1     6m     4m\n\
             gr-spent   Exhausted   UPDATE      deployments/api/scale   sa:agents/ops-bot   1/1     -      4m\n\
             gr-late    Expired     UPDATE      deployments/api/scale   sa:agents/ops-bot   0/1     -      4m\n\
             gr-taken   Revoked     UPDATE      deployments/api/scale   sa:agents/ops-bot   7/any   -      4m\n"
        );
        let active = render(items, None, true, now());
        assert_eq!(active.stdout(Format::Name), "grant.grantgate.dev/gr-open\n");
    }

    #[test]
    fn an_empty_list_says_so_in_words() {
        let printed = render(Vec::new(), None, true, now());
        assert_eq!(
            printed.stderr(Format::Table),
            "No grant serves now in any namespace.\n"
        );
    }
}
