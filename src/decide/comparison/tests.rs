#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "tests"
)]

use super::super::recorded::{text, with};

const NO_OP: &str = "update-noop-is-called";

fn noop(text: &str) -> bool {
    with(text, |comparison| comparison.is_noop())
}

/// Replaces the last occurrence: `oldObject` follows `object`.
fn in_old(text: &str, from: &str, to: &str) -> String {
    let at = text
        .rfind(from)
        .unwrap_or_else(|| panic!("{from} in {text}"));
    format!("{}{to}{}", &text[..at], &text[at + from.len()..])
}

#[test]
fn a_write_of_what_is_stored_is_no_change() {
    assert!(noop(&text(NO_OP)));
    with(&text(NO_OP), |comparison| {
        assert!(comparison.changed().is_empty() && comparison.shifts().is_empty());
        assert!(!comparison.raises_generation() && !comparison.raises_generation_only());
    });
}

#[test]
fn revision_self_link_and_times_of_entries_do_not_count() {
    let text = text(NO_OP);
    let revision = text
        .find(r#""resourceVersion":""#)
        .map(|at| &text[at..at + 26])
        .unwrap();
    assert!(noop(&in_old(
        &text,
        revision,
        r#""resourceVersion":"1","selfLink":"/evil""#
    )));
    let time = text
        .rfind(r#""time":""#)
        .map(|at| &text[at..at + 30])
        .unwrap();
    assert!(noop(&in_old(
        &text,
        time,
        r#""time":"2001-01-01T00:00:00Z","#
    )));
    assert!(noop(&in_old(&text, time, "")));
}

#[test]
fn everything_else_counts() {
    let text = text(NO_OP);
    for (from, to) in [
        (r#""replicas":3"#, r#""replicas":3.0"#),
        (r#""replicas":3"#, r#""replicas":3,"paused":null"#),
        (r#""status":{}"#, r#""status":{"a":1}"#),
        (r#""generation":1"#, r#""generation":2"#),
        (r#""generation":1,"#, ""),
        (r#""manager":"owner""#, r#""manager":"argocd""#),
        (r#""f:replicas":{},"#, ""),
        (r#""kind":"Deployment","#, ""),
        (r#""creationTimestamp""#, r#""deletionTimestamp""#),
        (r#""uid":""#, r#""uid":"x"#),
        (r#""tier":"A""#, r#""tier":"B""#),
    ] {
        assert!(!noop(&in_old(&text, from, to)), "{to}");
    }
}

#[test]
fn spelling_and_order_of_members_do_not_count() {
    let text = text(NO_OP);
    assert!(noop(&in_old(
        &text,
        r#""labels":{"app":"api","tier":"A"}"#,
        r#""labels" : {"tier":"\u0041","app":"api"}"#
    )));
    assert!(noop(&in_old(&text, r#""status":{}"#, r#""status":{ }"#)));
}

#[test]
fn ownership_alone_is_no_no_op() {
    for name in ["update-managedfields-only", "update-clears-managedfields"] {
        with(&text(name), |comparison| {
            assert!(
                !comparison.is_noop()
                    && comparison.changed().is_empty()
                    && !comparison.shifts().is_empty(),
                "{name}"
            );
        });
    }
}

#[test]
fn a_generation_raised_by_nothing_that_is_shown_is_recognised() {
    let raised = text(NO_OP).replacen(r#""generation":1"#, r#""generation":2"#, 1);
    with(&raised, |comparison| {
        assert!(
            comparison.raises_generation()
                && comparison.raises_generation_only()
                && !comparison.is_noop()
        );
    });
    // Who owns what does not explain it either.
    let owned = raised.replacen(r#""manager":"owner""#, r#""manager":"bot""#, 1);
    assert!(with(&owned, |comparison| comparison.raises_generation_only()));
    with(&text("update-replicas-by-put"), |comparison| {
        assert!(comparison.raises_generation() && !comparison.raises_generation_only());
    });
    with(&text("label-a-to-b-first-use"), |comparison| {
        assert!(!comparison.raises_generation())
    });
}

#[test]
fn what_is_no_no_op_never_looks_like_one() {
    // Only what is otherwise left out differs: the order of entries, a port that the server allocated anew.
    let object = |entries: &str| format!(r#"{{"metadata":{{"managedFields":[{entries}]}}}}"#);
    let [a, b] = ["a", "b"]
        .map(|name| format!(r#"{{"manager":"{name}","fieldsType":"FieldsV1","fieldsV1":{{}}}}"#));
    let review = format!(
        r#"{{"request":{{"resource":{{"group":"example.com","resource":"widgets"}},"operation":"UPDATE","object":{},"oldObject":{}}}}}"#,
        object(&format!("{a},{b}")),
        object(&format!("{b},{a}"))
    );
    with(&review, |comparison| {
        let paths: Vec<&str> = comparison
            .changed()
            .iter()
            .map(|changed| changed.path.as_str())
            .collect();
        assert!(!comparison.is_noop());
        assert_eq!(paths, ["/metadata/managedFields"]);
    });
    let created = text("create-service-loadbalancer-1");
    let object = created
        .split(r#""object":"#)
        .nth(1)
        .unwrap()
        .split(r#","oldObject""#)
        .next()
        .unwrap();
    let reallocated = object.replace("32220", "32221");
    let update = created
        .replace(r#""operation":"CREATE""#, r#""operation":"UPDATE""#)
        .replace(
            r#""oldObject":null"#,
            &format!(r#""oldObject":{reallocated}"#),
        );
    with(&update, |comparison| {
        let paths: Vec<&str> = comparison
            .changed()
            .iter()
            .map(|changed| changed.path.as_str())
            .collect();
        assert_eq!(paths, ["/spec/ports"]);
    });
}

#[test]
fn finalizers_and_owners_are_found_wherever_the_change_stands() {
    let touches =
        |name: &str, prefix: &str| with(&text(name), |comparison| comparison.touches(prefix));
    assert!(touches(
        "update-removes-last-finalizer-and-thereby-deletes",
        "/metadata/finalizers"
    ));
    assert!(touches(
        "put-retry-removes-foreground-finalizer-call-2",
        "/metadata/finalizers"
    ));
    assert!(!touches(
        "put-retry-removes-foreground-finalizer-call-1",
        "/metadata/finalizers"
    ));
    assert!(touches(
        "update-service-status-sets-ownerreference",
        "/metadata/ownerReferences"
    ));
    assert!(touches(
        "update-deployment-status-changes-metadata",
        "/metadata"
    ));
    assert!(touches(
        "update-restartedat-by-kubectl-rollout-restart",
        "/spec/template/metadata/annotations/kubectl.kubernetes.io~1restartedAt"
    ));
    assert!(!touches(
        "update-restartedat-by-kubectl-rollout-restart",
        "/spec/template/metadata/annotations/other"
    ));
    assert!(touches(
        "create-deployment-by-kubectl-apply",
        "/metadata/annotations"
    ));
    assert!(!touches(
        "create-deployment-by-kubectl-create",
        "/metadata/annotations"
    ));
    assert!(!touches("delete-pod-all-options", "/metadata"));
}

#[test]
fn a_replacement_character_is_found_in_either_revision() {
    assert!(with(
        &text("create-custom-resource-odd-values"),
        |comparison| comparison.holds_replacement_char()
    ));
    let text = text(NO_OP);
    assert!(!with(&text, |comparison| comparison.holds_replacement_char()));
    assert!(with(
        &in_old(&text, r#""tier":"A""#, "\"tier\":\"\u{FFFD}\""),
        |comparison| comparison.holds_replacement_char()
    ));
    assert!(with(
        &text.replacen(r#""tier":"A""#, r#""\ud800":"A""#, 1),
        |comparison| comparison.holds_replacement_char()
    ));
}

#[test]
fn only_a_generation_that_no_server_makes_is_refused_at_creation() {
    let created = text("create-pod-1");
    assert!(!with(&created, |comparison| comparison
        .sets_generation_on_create()));
    for generation in [
        "5",
        "9223372036854775807",
        "99999999999999999999",
        "-1",
        "0",
        "1.0",
        "\"1\"",
    ] {
        let text = created.replace(
            r#""generation":1"#,
            &format!(r#""generation":{generation}"#),
        );
        assert!(
            with(&text, |comparison| comparison.sets_generation_on_create()),
            "{generation}"
        );
    }
    assert!(!with(
        &created.replace(r#""generation":1,"#, ""),
        |comparison| comparison.sets_generation_on_create()
    ));
    assert!(!with(&text("update-replicas-by-put"), |comparison| {
        comparison.sets_generation_on_create()
    }));
}

#[test]
fn recorded_creates_bring_no_generation_of_their_own() {
    for name in super::super::recorded::names() {
        assert!(
            !with(&text(&name), |comparison| comparison
                .sets_generation_on_create()),
            "{name}"
        );
    }
}
