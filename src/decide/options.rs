//! The options of an API request, made comparable.

use super::{canonical, json::Value};

/// Members that never change what is done: whether to store, how to warn, and what must hold for the request to go on.
const NO_SUBSTANCE: [&str; 3] = ["dryRun", "fieldValidation", "preconditions"];
const GRACE: &str = "gracePeriodSeconds";
const PROPAGATION: &str = "propagationPolicy";
const ORPHAN: &str = "orphanDependents";

/// Options as they are compared: whole, less what never changes what is done, `orphanDependents` as a propagation policy.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Options {
    /// Canonical text.
    pub canonical: String,
    /// Seconds of grace shown; absent where none are.
    pub grace_seconds: Option<i64>,
    /// Canonical text without the grace.
    pub without_grace: String,
}

/// Normalises the options of a request of any operation; absent ones are those of an empty object.
pub fn normalised_options(options: Option<Value<'_>>) -> Options {
    let members = |grace: bool| {
        let mut members = Vec::new();
        let entries = options.into_iter().flat_map(Value::entries);
        for (key, value) in
            entries.filter(|(key, _)| !NO_SUBSTANCE.contains(key) && (grace || *key != GRACE))
        {
            match (key, value.as_bool()) {
                (ORPHAN, Some(orphan)) => {
                    let policy = if orphan {
                        "\"Orphan\""
                    } else {
                        "\"Background\""
                    };
                    if options
                        .and_then(|options| options.get(PROPAGATION))
                        .is_none_or(Value::is_null)
                    {
                        members.push((PROPAGATION, policy.to_owned()));
                    } else {
                        // The server refuses both at once; seen together, both are shown.
                        members.push((key, canonical::to_string(value)));
                    }
                }
                _ if value.is_null() => {}
                _ => members.push((key, canonical::to_string(value))),
            }
        }
        canonical::object(members)
    };
    let grace_seconds = options
        .and_then(|options| options.get(GRACE))
        .and_then(Value::as_i64);
    Options {
        canonical: members(true),
        grace_seconds,
        without_grace: members(false),
    }
}

#[cfg(test)]
mod tests {
    #![allow(
        clippy::unwrap_used,
        clippy::expect_used,
        clippy::panic,
        reason = "tests"
    )]

    use super::{super::json::read, *};

    fn options(text: &str) -> Options {
        normalised_options(Some(read(text).unwrap().root()))
    }

    #[test]
    fn what_changes_nothing_is_left_out_and_all_else_stays() {
        let found = options(
            r#"{"kind":"DeleteOptions","dryRun":["All"],"gracePeriodSeconds":10,"preconditions":{"uid":"u"},"propagationPolicy":"Orphan","fieldValidation":"Strict","new":[1]}"#,
        );
        assert_eq!(
            found.canonical,
            r#"{"gracePeriodSeconds":10,"kind":"DeleteOptions","new":[1],"propagationPolicy":"Orphan"}"#
        );
        assert_eq!(
            found.without_grace,
            r#"{"kind":"DeleteOptions","new":[1],"propagationPolicy":"Orphan"}"#
        );
        assert_eq!(found.grace_seconds, Some(10));
    }

    #[test]
    fn orphan_dependents_is_a_propagation_policy() {
        assert_eq!(
            options(r#"{"orphanDependents":true}"#),
            options(r#"{"propagationPolicy":"Orphan"}"#)
        );
        assert_eq!(
            options(r#"{"orphanDependents":false}"#),
            options(r#"{"propagationPolicy":"Background"}"#)
        );
        assert_ne!(
            options(r#"{"orphanDependents":true,"propagationPolicy":"Background"}"#),
            options(r#"{"propagationPolicy":"Background"}"#)
        );
    }

    #[test]
    fn a_field_manager_stays_bound() {
        assert_ne!(
            options(r#"{"fieldManager":"a"}"#),
            options(r#"{"fieldManager":"b"}"#)
        );
        assert_ne!(options(r#"{"fieldManager":"a"}"#), options("{}"));
    }

    #[test]
    fn absent_options_are_empty_ones() {
        assert_eq!(normalised_options(None), options("null"));
        assert_eq!(normalised_options(None), options("{}"));
        assert_eq!(normalised_options(None).canonical, "{}");
    }
}
