#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "tests"
)]
use std::collections::BTreeMap;

use cel::{Context, Program, Value, extractors::This};
use proptest::prelude::*;
use serde_json::json;

use super::*;

const CANARY: &str = "system:serviceaccount:grantgate-system:grantgate-canary";

fn identity(name: &str, usernames: &[&str], groups: &[&str]) -> (String, Subjects) {
    let set = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect();
    (
        name.to_owned(),
        Subjects {
            usernames: set(usernames),
            groups: set(groups),
        },
    )
}

/// The user of a request, and its options.
#[derive(Clone, Debug, Default)]
struct Caller {
    username: Option<String>,
    groups: Option<Vec<String>>,
    extra: Option<BTreeMap<String, Vec<String>>>,
    field_manager: Option<String>,
}

impl Caller {
    fn named(username: &str) -> Self {
        Self {
            username: Some(username.to_owned()),
            ..Self::default()
        }
    }

    fn request(&self) -> serde_json::Value {
        let mut user = serde_json::Map::new();
        if let Some(username) = &self.username {
            user.insert("username".to_owned(), json!(username));
        }
        if let Some(groups) = &self.groups {
            user.insert("groups".to_owned(), json!(groups));
        }
        if let Some(extra) = &self.extra {
            user.insert("extra".to_owned(), json!(extra));
        }
        match &self.field_manager {
            Some(manager) => json!({"userInfo": user, "options": {"fieldManager": manager}}),
            None => json!({"userInfo": user, "options": {}}),
        }
    }
}

/// Names of the entries that a caller's request is sent by. Panics where a condition errs: that would lock the caller out.
fn matching(entries: &Entries, caller: &Caller) -> Vec<String> {
    let mut context = Context::default();
    context.add_variable("request", caller.request()).unwrap();
    context
        .add_function("lowerAscii", |This(text): This<std::sync::Arc<String>>| {
            text.to_ascii_lowercase()
        })
        .unwrap();
    let holds = |expression: &String| {
        let program = Program::compile(expression).unwrap();
        match program.execute(&context) {
            Ok(Value::Bool(holds)) => holds,
            other => panic!("{other:?} for {caller:?}"),
        }
    };
    let is_sent = |entry: &&Entry| {
        entry
            .conditions
            .iter()
            .all(|(_, expression)| holds(expression))
    };
    let sent = entries.entries.iter().filter(is_sent);
    sent.map(|entry| entry.name.clone()).collect()
}

/// Enough long names to fill several entries.
fn many(prefix: &str, count: usize) -> Vec<String> {
    (0..count)
        .map(|number| format!("{prefix}-{number:04}-{}", "x".repeat(240)))
        .collect()
}

fn large() -> Entries {
    let (users, groups) = (many("user", 700), many("group", 500));
    let identities = [(
        "large".to_owned(),
        Subjects {
            usernames: users.into_iter().collect(),
            groups: groups.into_iter().collect(),
        },
    )];
    entries(&identities, &Subjects::default(), CANARY)
}

#[test]
fn declared_identities_are_sent_and_nobody_else() {
    let identities = [
        identity("ops-bot", &["oidc:ops-bot"], &["ai-agents"]),
        identity("ci", &["system:serviceaccount:agents:ci"], &[]),
    ];
    let all = entries(&identities, &Subjects::default(), CANARY);
    let sent = |caller: &Caller| matching(&all, caller) == ["gate.grantgate.dev"];
    for username in ["oidc:ops-bot", "system:serviceaccount:agents:ci", CANARY] {
        assert!(sent(&Caller::named(username)), "{username}");
    }
    let person = Caller::named("ana@example.com");
    assert!(!sent(&person));
    assert!(!sent(&Caller::default()), "no username at all");
    let with = |group: &str| Caller {
        groups: Some(vec!["sre-oncall".to_owned(), group.to_owned()]),
        ..person.clone()
    };
    assert!(sent(&with("ai-agents")));
    assert!(!sent(&with("ai-agents-2")));
}

#[test]
fn presence_of_the_extra_key_is_enough_in_any_case() {
    let all = entries(&[], &Subjects::default(), CANARY);
    let with = |key: &str, values: &[&str]| Caller {
        extra: Some(BTreeMap::from([(
            key.to_owned(),
            values.iter().map(|value| (*value).to_owned()).collect(),
        )])),
        ..Caller::named("ana@example.com")
    };
    for key in ["grantgate.dev/agent", "Grantgate.dev/AGENT"] {
        for values in [&["nobody"][..], &["a", "b"], &[]] {
            assert_eq!(matching(&all, &with(key, values)).len(), 1, "{key}");
        }
    }
    assert!(matching(&all, &with("grantgate.dev/agent2", &["x"])).is_empty());
}

#[test]
fn a_hostile_name_is_only_a_name() {
    let hostile = "x'] || true || 'a' in ['";
    let all = entries(
        &[identity(
            "bad",
            &[hostile, "back\\slash", "tab\tnew\nline"],
            &["é\u{1F600}"],
        )],
        &Subjects::default(),
        CANARY,
    );
    assert!(matching(&all, &Caller::named("ana@example.com")).is_empty());
    for name in [hostile, "back\\slash", "tab\tnew\nline"] {
        assert_eq!(matching(&all, &Caller::named(name)).len(), 1, "{name}");
    }
}

#[test]
fn subjects_beyond_one_condition_go_to_further_entries() {
    let all = large();
    assert!(all.left_out.is_empty());
    assert!(all.entries.len() > 3, "{}", all.entries.len());
    for entry in &all.entries {
        for (_, expression) in &entry.conditions {
            assert!(
                expression.chars().count() <= MAX_CONDITION,
                "{}",
                entry.name
            );
        }
    }
    let digests: BTreeSet<&String> = all.entries.iter().map(|entry| &entry.digest).collect();
    assert_eq!(digests.len(), all.entries.len());
}

#[test]
fn the_canary_reaches_each_entry_by_its_field_manager_and_only_that_one() {
    let all = large();
    for entry in &all.entries {
        let call = Caller {
            field_manager: Some(entry.canary_manager.clone()),
            ..Caller::named(CANARY)
        };
        assert_eq!(matching(&all, &call), std::slice::from_ref(&entry.name));
    }
    for field_manager in [None, Some("kubectl".to_owned())] {
        let other = Caller {
            field_manager,
            ..Caller::named(CANARY)
        };
        assert_eq!(matching(&all, &other), ["gate.grantgate.dev"]);
    }
}

#[test]
fn the_youngest_identities_are_left_out_when_room_ends() {
    let identities: Vec<(String, Subjects)> = (0..200)
        .map(|number| {
            let usernames = many(&format!("agent-{number}"), 64).into_iter().collect();
            let groups = BTreeSet::new();
            (format!("agent-{number}"), Subjects { usernames, groups })
        })
        .collect();
    let all = entries(&identities, &Subjects::default(), CANARY);
    let kept = identities.len() - all.left_out.len();
    assert!(kept > 10 && !all.left_out.is_empty(), "{kept} kept");
    assert_eq!(all.left_out, names(&identities[kept..]));
    let sent = subjects(&all);
    for (name, subjects) in &identities[..kept] {
        assert!(subjects.within(&sent), "{name}");
    }
}

fn names(identities: &[(String, Subjects)]) -> Vec<String> {
    identities.iter().map(|(name, _)| name.clone()).collect()
}

fn subjects(all: &Entries) -> Subjects {
    let mut sent = Subjects::default();
    for entry in &all.entries {
        sent.extend(&entry.subjects);
    }
    sent
}

#[test]
fn what_no_identity_declares_any_more_is_still_sent_while_it_leaves() {
    let (_, leaving) = identity("", &["oidc:gone"], &[]);
    let all = entries(&[], &leaving, CANARY);
    assert_eq!(matching(&all, &Caller::named("oidc:gone")).len(), 1);
}

#[test]
fn the_digest_moves_with_the_conditions_alone() {
    let one = entries(&[identity("a", &["x"], &[])], &Subjects::default(), CANARY);
    let renamed = entries(&[identity("b", &["x"], &[])], &Subjects::default(), CANARY);
    let other = entries(&[identity("a", &["y"], &[])], &Subjects::default(), CANARY);
    assert_eq!(one.entries[0].digest, renamed.entries[0].digest);
    assert_ne!(one.entries[0].digest, other.entries[0].digest);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    /// V13: whoever is declared, by whatever combination, is sent by exactly one entry; whoever is not, by none.
    #[test]
    fn exactly_one_entry_matches(
        user in prop_oneof![Just(None), (0..800_usize).prop_map(Some)],
        groups in proptest::collection::vec(0..600_usize, 0..4),
        extra in any::<bool>(),
    ) {
        let all = large();
        let (users, known) = (many("user", 700), many("group", 500));
        let name = |list: &[String], number: usize| list.get(number).cloned().unwrap_or_else(|| format!("other-{number}"));
        let caller = Caller {
            username: Some(user.map_or_else(|| "ana@example.com".to_owned(), |number| name(&users, number))),
            groups: Some(groups.iter().map(|number| name(&known, *number)).collect()),
            extra: extra.then(|| BTreeMap::from([("GrantGate.dev/agent".to_owned(), vec![])])),
            field_manager: None,
        };
        let declared = extra || user.is_some_and(|number| number < users.len()) || groups.iter().any(|number| *number < known.len());
        prop_assert_eq!(matching(&all, &caller).len(), usize::from(declared));
    }

    #[test]
    fn what_was_written_is_read_back(
        usernames in proptest::collection::btree_set(any::<String>(), 0..8),
        groups in proptest::collection::btree_set(any::<String>(), 0..8),
    ) {
        let subjects = Subjects { usernames, groups };
        let all = entries(&[("a".to_owned(), subjects.clone())], &Subjects::default(), CANARY);
        let conditions = all.entries.iter().flat_map(|entry| entry.conditions.iter().map(|(_, expression)| expression.as_str()));
        prop_assert_eq!(subjects_of(conditions), subjects);
    }
}
