#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "tests"
)]

use super::*;
use crate::decide::permission_for_tests::{
    after, again, deletion, grant, proposal, set_change, set_options, set_state,
};

fn view(grant: &Grant) -> GrantView<'_> {
    GrantView {
        grant,
        backed_by_request: Some("g1"),
        approved_change: None,
    }
}

fn spend_at(grant: &Grant, proposal: &Proposal, second: i64) -> Spend {
    spend(&view(grant), proposal, after(second), "replica", &[])
}

/// The grant after the proposal consumed a use at second 1.
fn used(proposal: &Proposal, uses: i32) -> Grant {
    let mut grant = grant(proposal, Some(uses));
    let Spend::Consume { status, .. } = spend_at(&grant, proposal, 1) else {
        panic!("a fresh grant serves")
    };
    grant.status = Some(*status);
    grant
}

fn rule(spend: &Spend) -> Option<ReadmitRule> {
    match spend {
        Spend::Readmit { rule, .. } => Some(*rule),
        _ => None,
    }
}

#[test]
fn a_use_is_counted_and_records_what_it_was_for() {
    let proposal = proposal();
    let grant = used(&proposal, 1);
    let status = grant.status.unwrap();
    assert_eq!(status.used, Some(1));
    let open = &status.uses[&proposal.admission_uid];
    assert_eq!(open.effect, UseEffect::Pending);
    assert_eq!(open.content_digest, proposal.bound.content_digest);
    assert_eq!(
        (open.first.as_ref(), open.shown.as_ref()),
        (proposal.base.as_ref(), proposal.base.as_ref())
    );
}

#[test]
fn the_same_review_gets_the_same_answer() {
    let proposal = proposal();
    assert!(matches!(
        spend_at(&used(&proposal, 1), &proposal, 2),
        Spend::Already { .. }
    ));
}

#[test]
fn an_update_is_readmitted_on_its_own_revision_or_with_its_own_generation() {
    let first = proposal();
    let grant = used(&first, 1);
    assert_eq!(
        rule(&spend_at(&grant, &again(&first, 2, "100", 7), 2)),
        Some(ReadmitRule::SameRevision)
    );
    assert_eq!(
        rule(&spend_at(&grant, &again(&first, 2, "120", 7), 2)),
        Some(ReadmitRule::SameGeneration)
    );
    assert!(
        matches!(
            spend_at(&grant, &again(&first, 2, "120", 8), 2),
            Spend::AskWitness { .. }
        ),
        "a moved generation"
    );
}

#[test]
fn v6_v7_v8_without_a_raised_generation_only_the_revision_counts() {
    let mut first = proposal();
    first.raises_generation = false;
    let grant = used(&first, 1);
    assert_eq!(
        rule(&spend_at(&grant, &again(&first, 2, "100", 7), 2)),
        Some(ReadmitRule::SameRevision)
    );
    let moved = again(&first, 2, "120", 7);
    let Spend::AskWitness { from, to, .. } = spend_at(&grant, &moved, 2) else {
        panic!("only the witness can tell")
    };
    assert_eq!(
        (from.resource_version.as_str(), to.resource_version.as_str()),
        ("100", "120")
    );
    let older = again(&first, 2, "99", 7);
    assert_eq!(
        spend_at(&grant, &older, 2),
        Spend::Refused(Misfit::Spent),
        "an older revision is no later attempt"
    );
}

#[test]
fn nothing_is_readmitted_after_the_window() {
    let first = proposal();
    let grant = used(&first, 1);
    assert_eq!(
        spend_at(&grant, &again(&first, 2, "100", 7), 35),
        Spend::Refused(Misfit::Spent)
    );
    assert!(
        rule(&spend_at(&grant, &again(&first, 2, "100", 7), 34)).is_some(),
        "34 s after the use at second 1 it still is"
    );
}

#[test]
fn another_write_is_never_readmitted() {
    let first = proposal();
    let grant = used(&first, 1);
    for change in [
        |p: &mut Proposal| set_change(p, r#"{"/spec/replicas":{"to":6}}"#),
        |p: &mut Proposal| p.action.version = "v2".into(),
        |p: &mut Proposal| p.action.subresource = Some("scale".into()),
        |p: &mut Proposal| p.object_uid = "t2".into(),
        |p: &mut Proposal| p.options.digest = "other".into(),
        |p: &mut Proposal| p.bound.content_digest = "other".into(),
    ] {
        let mut other = again(&first, 2, "100", 7);
        change(&mut other);
        assert!(matches!(spend_at(&grant, &other, 2), Spend::Refused(_)));
    }
}

#[test]
fn an_open_use_serves_nobody_but_whom_it_was_counted_for() {
    let first = proposal();
    let grant = used(&first, 1);
    let mut other = again(&first, 2, "100", 7);
    other.requester.on_behalf_of = Some("mallory".into());
    assert_eq!(spend_at(&grant, &other, 2), Spend::Refused(Misfit::Spent));
    let mut other = again(&first, 2, "100", 7);
    other.action_key = "another".into();
    assert_eq!(spend_at(&grant, &other, 2), Spend::Refused(Misfit::Spent));
    let mut other = again(&first, 2, "100", 7);
    other.requester.uid = Some("u2".into());
    assert!(matches!(
        spend_at(&grant, &other, 2),
        Spend::Refused(Misfit::Stale { .. })
    ));
}

#[test]
fn a_retry_whose_touched_field_moved_is_stale_and_not_readmitted() {
    let first = proposal();
    let grant = used(&first, 1);
    let mut moved = again(&first, 2, "120", 7);
    set_state(&mut moved, r#"{"/spec/replicas":{"is":9},"uid":"t1"}"#);
    let refused = spend_at(&grant, &moved, 2);
    assert!(
        matches!(
            refused,
            Spend::Refused(Misfit::Stale {
                reason: StaleReason::StateMoved,
                ..
            })
        ),
        "{refused:?}"
    );
}

#[test]
fn a_revoked_or_stale_grant_readmits_nothing_but_a_spent_or_expired_one_its_open_use() {
    let first = proposal();
    let retry = again(&first, 2, "100", 7);
    let mut revoked = used(&first, 1);
    revoked.spec.revoked = Some(true);
    assert_eq!(
        spend_at(&revoked, &retry, 2),
        Spend::Refused(Misfit::Revoked)
    );
    let mut ended = used(&first, 1);
    ended.status.as_mut().unwrap().phase = Some(GrantPhase::Stale);
    assert!(matches!(
        spend_at(&ended, &retry, 2),
        Spend::Refused(Misfit::Stale { .. })
    ));
    let mut expired = used(&first, 2);
    expired.spec.not_after = MicroTime(after(2));
    assert!(rule(&spend_at(&expired, &retry, 2)).is_some());
}

#[test]
fn a_deletion_is_readmitted_any_number_of_times_but_never_with_less_grace() {
    let first = deletion();
    let grant = used(&first, 1);
    for uid in 2..9 {
        assert_eq!(
            rule(&spend_at(&grant, &again(&first, uid, "130", 9), 2)),
            Some(ReadmitRule::SameDeletion)
        );
    }
    let mut longer = again(&first, 2, "100", 7);
    set_options(&mut longer, 90);
    assert_eq!(
        rule(&spend_at(&grant, &longer, 2)),
        Some(ReadmitRule::SameDeletion)
    );
    let mut shorter = again(&first, 2, "100", 7);
    set_options(&mut shorter, 5);
    assert!(matches!(spend_at(&grant, &shorter, 2), Spend::Refused(_)));
}

#[test]
fn a_creation_is_never_readmitted() {
    let mut first = proposal();
    first.action.operation = Operation::Create;
    first.base = None;
    first.action.target_uid = None;
    let grant = used(&first, 1);
    let mut retry = again(&first, 2, "100", 7);
    retry.base = None;
    assert_eq!(spend_at(&grant, &retry, 2), Spend::Refused(Misfit::Spent));
}

#[test]
fn w10_the_33rd_open_use_is_busy() {
    let first = proposal();
    let mut grant = grant(&first, Some(100));
    for n in 0..32_u8 {
        let mut other = again(&first, n + 1, &format!("{}", 100 + u32::from(n)), 7);
        // Another revision without a raised generation each time, as if every earlier use had gone elsewhere.
        other.object_uid = format!("t{n}");
        let Spend::Consume { status, .. } = spend_at(&grant, &other, 1) else {
            panic!("use {n} is free")
        };
        grant.status = Some(*status);
    }
    let mut next = again(&first, 90, "200", 7);
    next.object_uid = "elsewhere".into();
    assert!(matches!(spend_at(&grant, &next, 1), Spend::Busy(_)));
}

#[test]
fn the_witness_moves_a_use_ten_times_at_most() {
    let mut first = proposal();
    first.raises_generation = false;
    let mut grant = used(&first, 1);
    for move_number in 0..MAX_WITNESS_MOVES {
        let shown = again(&first, 2, &format!("{}", 200 + move_number), 7);
        let Spend::AskWitness { use_uid, to, .. } = spend_at(&grant, &shown, 2) else {
            panic!("move {move_number}")
        };
        grant.status = moved(&grant, &use_uid, &to);
    }
    let open = grant.status.as_ref().unwrap().uses.values().next().unwrap();
    assert_eq!(
        open.first, first.base,
        "what was shown first stays for the record"
    );
    assert!(matches!(
        spend_at(&grant, &again(&first, 2, "300", 7), 2),
        Spend::Busy(_)
    ));
}

#[test]
fn a_settled_use_is_not_open() {
    let first = proposal();
    let mut grant = used(&first, 1);
    let uses = &mut grant.status.as_mut().unwrap().uses;
    uses.values_mut()
        .for_each(|open| open.effect = UseEffect::NotObserved);
    assert_eq!(
        spend_at(&grant, &again(&first, 2, "100", 7), 2),
        Spend::Refused(Misfit::Spent)
    );
}

#[test]
fn a_use_that_may_be_committed_serves_nobody_again_but_leaves_the_rest_of_the_grant() {
    let mut first = proposal();
    first.raises_generation = false;
    let later = again(&first, 2, "120", 7);
    let gone = [first.admission_uid.clone()];
    let spend = |grant: &Grant| spend(&view(grant), &later, after(2), "replica", &gone);
    assert_eq!(spend(&used(&first, 1)), Spend::Refused(Misfit::Spent));
    let Spend::Consume { status, .. } = spend(&used(&first, 3)) else {
        panic!("two uses are left")
    };
    assert_eq!((status.used, status.uses.len()), (Some(2), 2));
}

#[test]
fn a_revocation_stops_the_retry_of_a_use_whatever_ended_the_grant_before() {
    use crate::api::grant::GrantPhase;
    let first = proposal();
    for phase in [
        GrantPhase::Active,
        GrantPhase::Expired,
        GrantPhase::Exhausted,
    ] {
        let mut grant = used(&first, 2);
        grant.status.as_mut().unwrap().phase = Some(phase);
        let retry = again(&first, 2, "100", 7);
        assert!(rule(&spend_at(&grant, &retry, 2)).is_some(), "{phase:?}");
        grant.spec.revoked = Some(true);
        assert!(
            matches!(spend_at(&grant, &retry, 2), Spend::Refused(_)),
            "{phase:?}"
        );
    }
}
