#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "tests"
)]

use super::*;

fn object(body: &str, entries: &[(&str, &str, &str)]) -> String {
    let entries: Vec<String> = entries
        .iter()
        .enumerate()
        .map(|(second, (manager, operation, fields))| {
            format!(
                r#"{{"manager":"{manager}","operation":"{operation}","apiVersion":"apps/v1","time":"2026-11-30T16:06:0{second}Z","fieldsType":"FieldsV1","fieldsV1":{fields}}}"#
            )
        })
        .collect();
    format!(
        r#"{{{body},"metadata":{{"managedFields":[{}]}}}}"#,
        entries.join(",")
    )
}

fn found(old: &str, new: &str, field_manager: Option<&str>) -> Vec<(String, String)> {
    let (old, new) = (json::read(old).unwrap(), json::read(new).unwrap());
    described(&shifts(Some(old.root()), new.root(), field_manager))
}

const OTHER: &str = r#"{"f:spec":{"f:paused":{}}}"#;
const REPLICAS: &str = r#"{"f:spec":{"f:replicas":{}}}"#;
const BOTH: &str = r#"{"f:spec":{"f:paused":{},"f:replicas":{}}}"#;

fn body(replicas: u8) -> String {
    format!(r#""spec":{{"replicas":{replicas},"paused":false}}"#)
}

#[test]
fn what_follows_from_the_change_is_not_repeated() {
    let old = object(&body(1), &[("owner", "Update", BOTH)]);
    for operation in ["Update", "Apply"] {
        let new = object(
            &body(2),
            &[("bot", operation, REPLICAS), ("owner", "Update", OTHER)],
        );
        assert_eq!(found(&old, &new, None), []);
        assert_eq!(found(&old, &new, Some("bot")), []);
    }
}

#[test]
fn a_path_given_to_another_manager_is_shown() {
    let old = object(
        &body(1),
        &[("argocd", "Apply", OTHER), ("hpa", "Update", REPLICAS)],
    );
    let new = object(
        &body(1),
        &[("argocd", "Apply", BOTH), ("hpa", "Update", REPLICAS)],
    );
    assert_eq!(
        found(&old, &new, None),
        [(
            "as argocd (Apply)".to_owned(),
            r#"{"gains":["/spec/replicas"]}"#.to_owned()
        )]
    );
    let new = object(&body(1), &[("argocd", "Apply", BOTH)]);
    assert_eq!(
        found(&old, &new, None),
        [
            (
                "as argocd (Apply)".to_owned(),
                r#"{"gains":["/spec/replicas"]}"#.to_owned()
            ),
            (
                "as hpa (Update)".to_owned(),
                r#"{"loses":["/spec/replicas"]}"#.to_owned()
            ),
        ]
    );
}

#[test]
fn a_change_does_not_excuse_what_another_manager_gains() {
    let old = object(&body(1), &[("owner", "Update", BOTH)]);
    let new = object(
        &body(2),
        &[
            ("argocd", "Apply", REPLICAS),
            ("bot", "Update", REPLICAS),
            ("owner", "Update", OTHER),
        ],
    );
    let gains = r#"{"gains":["/spec/replicas"]}"#.to_owned();
    // Who of the two wrote is not known, so both are shown; once it is, the other one is.
    assert_eq!(
        found(&old, &new, None),
        [
            ("as argocd (Apply)".to_owned(), gains.clone()),
            ("as bot (Update)".to_owned(), gains.clone())
        ]
    );
    assert_eq!(
        found(&old, &new, Some("bot")),
        [("as argocd (Apply)".to_owned(), gains.clone())]
    );
    // The field manager named is not the one that gains.
    let new = object(
        &body(2),
        &[("argocd", "Apply", REPLICAS), ("owner", "Update", OTHER)],
    );
    assert_eq!(
        found(&old, &new, Some("bot")),
        [("as argocd (Apply)".to_owned(), gains)]
    );
}

#[test]
fn parents_that_a_change_makes_or_ends_are_explained_by_it() {
    let fields =
        r#"{"f:spec":{"f:env":{".":{},"k:{\"name\":\"A\"}":{".":{},"f:name":{},"f:value":{}}}}}"#;
    let without = object(r#""spec":{}"#, &[]);
    let with = object(
        r#""spec":{"env":[{"name":"A","value":"1"}]}"#,
        &[("bot", "Update", fields)],
    );
    assert_eq!(found(&without, &with, None), []);
    assert_eq!(found(&with, &without, None), []);
    // The same parent taken over while it stays.
    let changed = object(
        r#""spec":{"env":[{"name":"A","value":"2"}]}"#,
        &[("bot", "Update", fields)],
    );
    let unowned = object(r#""spec":{"env":[{"name":"A","value":"1"}]}"#, &[]);
    assert_eq!(
        found(&unowned, &changed, None),
        [(
            "as bot (Update)".to_owned(),
            r#"{"gains":["/spec/env","/spec/env/[name=A]","/spec/env/[name=A]/name"]}"#.to_owned()
        )]
    );
}

#[test]
fn an_item_of_a_set_is_told_from_the_others() {
    let old = object(
        r#""f":["a"]"#,
        &[("one", "Update", r#"{"f:f":{".":{},"v:\"a\"":{}}}"#)],
    );
    let new = object(
        r#""f":["a","b/c"]"#,
        &[("two", "Update", r#"{"f:f":{"v:\"b/c\"":{}}}"#)],
    );
    assert_eq!(
        found(&old, &new, None),
        [(
            "as one (Update)".to_owned(),
            r#"{"loses":["/f","/f/[=\"a\"]"]}"#.to_owned()
        )]
    );
}

#[test]
fn a_field_that_is_not_there_can_be_owned_and_is_shown() {
    let old = object(&body(1), &[]);
    let new = object(
        &body(1),
        &[("bot", "Apply", r#"{"f:spec":{"f:ghost":{}}}"#)],
    );
    assert_eq!(
        found(&old, &new, Some("bot")),
        [(
            "as bot (Apply)".to_owned(),
            r#"{"gains":["/spec/ghost"]}"#.to_owned()
        )]
    );
}

#[test]
fn an_unreadable_entry_is_reported_whole_once_it_moves() {
    for fields in [
        "3",
        r#"{"x:spec":{}}"#,
        r#"{"f:spec":3}"#,
        r#"{"f:spec":{"k:name":{}}}"#,
        r#"{"f:spec":{"k:[1]":{}}}"#,
        r#"{"f:l":{"i:x":{}}}"#,
    ] {
        let old = object(&body(1), &[("a", "Update", REPLICAS)]);
        let new = object(&body(1), &[("a", "Update", fields)]);
        let found_now = found(&old, &new, None);
        assert_eq!(found_now.len(), 1, "{fields}");
        assert!(
            found_now[0].1.contains("gains") && found_now[0].1.contains("loses"),
            "{found_now:?}"
        );
        assert!(!found_now[0].1.contains("16:06"), "{found_now:?}");
        let later = new.replace("16:06", "17:00");
        assert_eq!(found(&new, &later, None), [], "{fields}");
    }
    let empty = object(&body(1), &[]);
    let bare = empty.replace("[]", "[{}]");
    assert_eq!(found(&empty, &bare, None).len(), 1);
}

#[test]
fn two_entries_of_one_manager_have_two_names() {
    let shift = |api_version: &str, subresource: &str| Shift {
        manager: "m".to_owned(),
        operation: "Update".to_owned(),
        api_version: api_version.to_owned(),
        subresource: subresource.to_owned(),
        gains: vec!["/a".to_owned()],
        loses: Vec::new(),
    };
    let names: Vec<String> = described(&[
        shift("v1", ""),
        shift("v2", ""),
        shift("v1", "status"),
        shift("v2", ""),
    ])
    .into_iter()
    .map(|(name, _)| name)
    .collect();
    assert_eq!(
        names,
        [
            "as m (Update) in v1",
            "as m (Update) in v2",
            "as m (Update of status)",
            "as m (Update) in v2 #2"
        ]
    );
}

#[test]
fn a_new_object_that_brings_entries_for_others_says_so() {
    let created = |entries: &[(&str, &str, &str)], field_manager| {
        let text = object(&body(1), entries);
        let document = json::read(&text).unwrap();
        described(&shifts(None, document.root(), field_manager))
    };
    assert_eq!(created(&[("bot", "Update", BOTH)], None), []);
    assert_eq!(created(&[("bot", "Update", BOTH)], Some("bot")), []);
    assert_eq!(created(&[], None), []);
    let gains = r#"{"gains":["/spec/replicas"]}"#.to_owned();
    assert_eq!(
        created(
            &[("argocd", "Apply", REPLICAS), ("bot", "Update", BOTH)],
            Some("bot")
        ),
        [("as argocd (Apply)".to_owned(), gains)]
    );
}
