#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "tests"
)]

use super::*;
use crate::{
    api::{approval_policy::StateBinding, grant::GrantStatus},
    decide::permission_for_tests::{
        after, again, deletion, grant, now, policy, proposal, set_change, set_options, set_state,
    },
};

fn view(grant: &Grant) -> GrantView<'_> {
    GrantView {
        grant,
        backed_by_request: Some("g1"),
        approved_change: Some(r#"{"/spec/replicas":{"to":5}}"#),
    }
}

fn misfit(change: impl FnOnce(&mut Proposal)) -> Misfit {
    let approved = proposal();
    let grant = grant(&approved, Some(1));
    assert_eq!(fits(&view(&grant), &approved), Ok(()), "unchanged it fits");
    let mut attempted = approved;
    change(&mut attempted);
    fits(&view(&grant), &attempted).expect_err("the change alone must make the use fail")
}

fn stale(reason: StaleReason, fields: &[&str]) -> Misfit {
    Misfit::Stale {
        reason,
        fields: fields.iter().map(|field| (*field).to_owned()).collect(),
        recorded: false,
    }
}

fn mismatch(fields: &[&str]) -> Misfit {
    Misfit::Mismatch {
        fields: fields.iter().map(|field| (*field).to_owned()).collect(),
    }
}

#[test]
fn each_bound_field_alone_makes_the_use_fail_with_its_own_reason() {
    assert_eq!(
        misfit(|p| p.action_key = "v1:sha256:other".into()),
        mismatch(&["actionKey"])
    );
    assert_eq!(
        misfit(|p| p.requester.on_behalf_of = Some("ana".into())),
        mismatch(&["requester.onBehalfOf"])
    );
    assert_eq!(
        misfit(|p| p.action.version = "v1beta1".into()),
        mismatch(&["action.version"])
    );
    assert_eq!(
        misfit(|p| p.options.canonical = r#"{"fieldManager":"x"}"#.into()),
        mismatch(&["action.options"])
    );
    assert_eq!(
        misfit(|p| set_change(p, r#"{"/spec/replicas":{"to":6}}"#)),
        mismatch(&["/spec/replicas"])
    );
    assert_eq!(
        misfit(|p| p.requester.uid = Some("u2".into())),
        stale(StaleReason::RequesterReplaced, &["requester.uid"])
    );
    assert_eq!(
        misfit(|p| p.action.target_uid = Some("t2".into())),
        stale(StaleReason::TargetReplaced, &["action.targetUID"])
    );
    assert_eq!(
        misfit(|p| set_state(p, r#"{"/spec/replicas":{"is":4},"uid":"t1"}"#)),
        stale(StaleReason::StateMoved, &["/spec/replicas"])
    );
    assert_eq!(
        misfit(|p| {
            p.rules.policy_set_hash = "v1:sha256:o".into();
            p.rules.policies[0].hash = "v1:sha256:o".into();
        }),
        stale(
            StaleReason::PolicyChanged,
            &["ClusterApprovalPolicy/production"]
        )
    );
    assert_eq!(
        misfit(|p| {
            p.rules.policy_set_hash = "v1:sha256:o".into();
            p.rules.policies.push(policy("another", 1));
        }),
        stale(
            StaleReason::BoundaryCrossed,
            &["ClusterApprovalPolicy/another"]
        )
    );
    assert_eq!(
        misfit(|p| p.rules.binding.state = StateBinding::WholeObject),
        stale(StaleReason::PolicyChanged, &["binding"])
    );
}

#[test]
fn a_deletion_may_leave_more_time_but_not_less() {
    let approved = deletion();
    let grant = grant(&approved, Some(1));
    let mut attempted = deletion();
    set_options(&mut attempted, 60);
    assert_eq!(fits(&view(&grant), &attempted), Ok(()));
    set_options(&mut attempted, 29);
    assert_eq!(
        fits(&view(&grant), &attempted),
        Err(mismatch(&["action.options"]))
    );
}

fn dead(change: impl FnOnce(&mut Grant)) -> Misfit {
    let mut grant = grant(&proposal(), Some(1));
    change(&mut grant);
    alive(&view(&grant), after(1)).expect_err("it must not serve")
}

#[test]
fn whatever_ends_a_grant_ends_it_with_its_own_reason() {
    let status = |grant: &mut Grant, phase| {
        grant.status = Some(GrantStatus {
            phase: Some(phase),
            ..GrantStatus::default()
        })
    };
    assert_eq!(alive(&view(&grant(&proposal(), Some(1))), after(1)), Ok(()));
    assert_eq!(dead(|g| g.spec.revoked = Some(true)), Misfit::Revoked);
    assert_eq!(dead(|g| status(g, GrantPhase::Revoked)), Misfit::Revoked);
    assert_eq!(
        dead(|g| g.spec.not_after.0 = after(1)),
        Misfit::Expired { at: after(1) }
    );
    assert_eq!(
        dead(|g| g.spec.not_before.0 = after(2)),
        Misfit::NotYet { from: after(2) }
    );
    assert_eq!(
        dead(|g| g.status = Some(GrantStatus {
            used: Some(1),
            ..GrantStatus::default()
        })),
        Misfit::Spent
    );
    assert_eq!(dead(|g| status(g, GrantPhase::Unknown)), Misfit::Unreadable);
    assert!(matches!(
        dead(|g| status(g, GrantPhase::Stale)),
        Misfit::Stale { recorded: true, .. }
    ));
}

#[test]
fn a_copy_that_its_request_does_not_name_never_works() {
    let grant = grant(&proposal(), Some(1));
    for named in [None, Some("another")] {
        let view = GrantView {
            grant: &grant,
            backed_by_request: named,
            approved_change: None,
        };
        assert_eq!(alive(&view, after(1)), Err(Misfit::Unbacked));
    }
}

#[test]
fn stale_is_recorded_only_of_a_view_at_least_as_new_as_the_approved_one() {
    let approved = proposal();
    let grant = grant(&approved, Some(1));
    let of = |revision, reason| may_record(&grant, &again(&approved, 2, revision, 7), reason);
    for (revision, by_the_review, by_copies) in [
        ("101", MayRecord::Yes, MayRecord::IfPresent),
        ("100", MayRecord::Yes, MayRecord::IfPresent),
        ("99", MayRecord::No, MayRecord::No),
        ("opaque", MayRecord::No, MayRecord::No),
    ] {
        for reason in [
            StaleReason::StateMoved,
            StaleReason::TargetReplaced,
            StaleReason::RequesterReplaced,
        ] {
            assert_eq!(of(revision, reason), by_the_review, "{revision} {reason}");
        }
        for reason in [StaleReason::PolicyChanged, StaleReason::BoundaryCrossed] {
            assert_eq!(of(revision, reason), by_copies, "{revision} {reason}");
        }
    }
    assert_eq!(now(), grant.spec.not_before.0);
}
