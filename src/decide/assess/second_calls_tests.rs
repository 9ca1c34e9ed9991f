//! What the API server sent again, as it was recorded: the first call is approved and consumes its grant, the second one finds it so.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "tests"
)]

use std::{fs, path::Path};

use super::{tests::world, *};
use crate::{
    api::Grant,
    decide::{
        json,
        live::{GrantView, Misfit},
        permission_for_tests::{after, grant},
        spend::{Spend, spend},
    },
};

fn proposal(name: &str) -> Proposal {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("tests/reviews/{name}.json"));
    let text = fs::read_to_string(path).unwrap();
    let document = json::read(&text).unwrap();
    let review = Review::of(&document).unwrap();
    match assess(&world(), &document, &review).assessment {
        Assessment::Ask(proposal) => *proposal,
        other => panic!("{name}: {other:?}"),
    }
}

fn asked(grant: &Grant, proposal: &Proposal, second: i64) -> Spend {
    let view = GrantView {
        grant,
        backed_by_request: grant.metadata.uid.as_deref(),
        approved_change: None,
    };
    spend(&view, proposal, after(second), "replica", &[])
}

/// What the second call comes to, in words.
fn second_call(first: &str, second: &str) -> String {
    let (first, second) = (proposal(first), proposal(second));
    let mut grant = grant(&first, Some(1));
    let Spend::Consume { status, .. } = asked(&grant, &first, 1) else {
        panic!("the first call consumes")
    };
    grant.status = Some(*status);
    match asked(&grant, &second, 2) {
        Spend::Already { .. } => "the same answer".into(),
        Spend::Readmit { rule, .. } => format!("served again: {rule:?}"),
        Spend::AskWitness { .. } => "the witness tells".into(),
        Spend::Consume { .. } => "a second use".into(),
        Spend::Busy(why) => why.into(),
        Spend::Refused(Misfit::Stale { reason, fields, .. }) => {
            format!("{reason}: {}", fields.join(", "))
        }
        Spend::Refused(Misfit::Mismatch { fields }) => format!("differs: {}", fields.join(", ")),
        Spend::Refused(misfit) => format!("{misfit:?}"),
    }
}

#[test]
fn the_second_call_of_each_recorded_pair_is_served_or_refused_as_its_name_claims() {
    let pair = |name: &str| second_call(&format!("{name}-call-1"), &format!("{name}-call-2"));
    let expected = |got: String, wanted: &str| assert_eq!(got, wanted);
    // A status writer in between leaves the generation, which the write would have raised.
    expected(
        pair("conflict-retry-after-status-write"),
        "served again: SameGeneration",
    );
    // Whoever raises it in between may have done what was approved: only a look at each revision can tell.
    for unclear in [
        pair("conflict-retry-after-unrelated-spec-write"),
        pair("conflict-retry-of-scale-has-no-generation"),
        pair("patch-stale-first-oldobject"),
        second_call("label-a-to-b-first-use", "label-a-to-b-again-after-revert"),
    ] {
        expected(unclear, "the witness tells");
    }
    expected(
        pair("conflict-retry-after-same-field-write"),
        "StateMoved: /spec/replicas",
    );
    expected(
        pair("delete-conflict-after-status-write"),
        "served again: SameDeletion",
    );
    for call in [2, 3] {
        expected(
            second_call(
                "delete-pod-grace-0-call-1",
                &format!("delete-pod-grace-0-call-{call}"),
            ),
            "served again: SameDeletion",
        );
    }
    // Another object, another change or a second creation: the one use is gone.
    for another in [
        "create-generatename-collision",
        "apply-create-turns-into-update",
        "patch-object-recreated-meanwhile",
        "put-retry-removes-foreground-finalizer",
    ] {
        expected(pair(another), "Spent");
    }
    let twice = "sent-twice-with-one-uid-after-503-and-retry-after";
    expected(second_call(twice, twice), "the same answer");
}

#[test]
fn a_forced_deletion_goes_through_to_its_end_also_where_the_whole_object_is_bound() {
    let first = proposal("delete-pod-grace-0-call-1");
    let whole = |name: &str| {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("tests/reviews/{name}.json"));
        let text = fs::read_to_string(path).unwrap();
        let document = json::read(&text).unwrap();
        let review = Review::of(&document).unwrap();
        let mut binding = first.rules.binding.clone();
        binding.state = crate::api::approval_policy::StateBinding::WholeObject;
        Comparison::of(&compared(&review, false))
            .bind(&binding, &world().redactor)
            .unwrap()
            .state
    };
    let state = whole("delete-pod-grace-0-call-1");
    for call in [2, 3] {
        assert_eq!(
            crate::decide::mismatch::differing(
                &state,
                &whole(&format!("delete-pod-grace-0-call-{call}"))
            ),
            Vec::<String>::new()
        );
    }
}
