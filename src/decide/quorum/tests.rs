#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "tests"
)]

use proptest::prelude::*;

use super::*;

const DIGEST: &str = "v1:sha256:0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef";
const P: &str = "ClusterApprovalPolicy/p";
const Q: &str = "ApprovalPolicy/web/q";

fn at(second: i64) -> Timestamp {
    Timestamp::from_second(1_700_000_000 + second).unwrap()
}

/// A policy of the snapshot, by its label.
fn policy(label: &str, approvers: &str) -> PolicyRef {
    let parts: Vec<&str> = label.split('/').collect();
    PolicyRef {
        kind: parts[0].to_owned(),
        namespace: (parts.len() == 3).then(|| parts[1].to_owned()),
        name: parts[parts.len() - 1].to_owned(),
        uid: "u".into(),
        generation: 1,
        hash: DIGEST.into(),
        approvers: Some(serde_saphyr::from_str(approvers).unwrap()),
    }
}

fn sre() -> Vec<PolicyRef> {
    vec![policy(P, "{required: [{count: 1, from: [{group: sre}]}]}")]
}

fn vote(name: &str, username: &str, groups: &[&str], verdict: Verdict) -> CastVote {
    CastVote {
        decision: DecisionRef {
            name: name.to_owned(),
            uid: format!("uid-{name}"),
        },
        approver: Some(Approver {
            username: username.to_owned(),
            uid: String::new(),
            groups: groups.iter().map(|group| (*group).to_owned()).collect(),
        }),
        verdict,
        reason: None,
        created_at: at(10),
        requests: vec![DecidedRequest {
            name: "ar-1".into(),
            uid: "r1".into(),
            digest: DIGEST[..20].to_owned(),
        }],
        validity: None,
        may_approve: [P, Q].map(str::to_owned).into(),
        gated: false,
    }
}

fn approve(name: &str, username: &str, groups: &[&str]) -> CastVote {
    vote(name, username, groups, Verdict::Approve)
}

fn deny(name: &str, username: &str, groups: &[&str]) -> CastVote {
    vote(name, username, groups, Verdict::Deny)
}

fn tally_at(policies: &[PolicyRef], votes: &[CastVote], now: Timestamp) -> Tally {
    let validity = Validity {
        uses: Some(3),
        duration_seconds: Some(600),
    };
    let ballot = Ballot {
        name: "ar-1",
        uid: "r1",
        digest: DIGEST,
        policies,
        validity: &validity,
        requester: "system:serviceaccount:agents:ops-bot",
        owner_user: Some("owner@example.com"),
        deadline: at(1000),
        guard_since: at(0),
        now,
    };
    tally(&ballot, votes)
}

fn count(policies: &[PolicyRef], votes: &[CastVote]) -> Tally {
    tally_at(policies, votes, at(20))
}

fn approved(tally: &Tally) -> bool {
    matches!(tally.outcome, Outcome::Approved { .. })
}

fn why_not(tally: &Tally) -> String {
    tally.votes[0].why_not.clone().unwrap_or_default()
}

#[test]
fn one_approver_of_the_row_is_enough_for_one() {
    let tally = count(&sre(), &[approve("d", "ana@example.com", &["sre"])]);
    assert_eq!(
        tally.outcome,
        Outcome::Approved {
            uses: Some(3),
            duration_seconds: Some(600)
        }
    );
    assert!(tally.votes[0].counted);
    assert_eq!(tally.votes[0].policies, [P]);
}

#[test]
fn without_votes_the_missing_rows_are_named() {
    let policies = [
        policy(
            P,
            "{required: [{count: 2, from: [{group: sre}, {user: ana@example.com}]}]}",
        ),
        policy(Q, "{required: [{count: 1}]}"),
    ];
    assert_eq!(
        count(&policies, &[]).outcome,
        Outcome::Waiting {
            missing: vec![
                "2 more of group sre or user ana@example.com (ClusterApprovalPolicy/p)".into(),
                "1 more of whoever holds verb approve on the policy (ApprovalPolicy/web/q)".into(),
            ]
        }
    );
}

/// Each row: a change to a good vote, and a word of why it no longer counts.
#[test]
fn each_thing_that_must_hold_of_a_vote_alone_keeps_it_from_counting() {
    type Change = fn(&mut CastVote);
    let rows: [(&str, Change); 17] = [
        ("no author", |vote| vote.approver = None),
        ("no author", |vote| {
            vote.approver.as_mut().unwrap().username.clear()
        }),
        ("other requests", |vote| {
            vote.requests[0].name = "ar-2".into()
        }),
        ("uid differs", |vote| vote.requests[0].uid = "r2".into()),
        ("digest differs", |vote| {
            vote.requests[0].digest = "v1:sha256:ffffffffff".into()
        }),
        ("digest differs", |vote| {
            vote.requests[0].digest = DIGEST[..17].into()
        }),
        ("digest differs", |vote| {
            vote.requests[0].digest = String::new()
        }),
        ("before its author could be proven", |vote| {
            vote.created_at = at(-1)
        }),
        ("deadline", |vote| vote.created_at = at(1000)),
        ("agents do not approve", |vote| vote.gated = true),
        ("does not know the verdict", |vote| {
            vote.verdict = Verdict::Unknown
        }),
        ("at least one use", |vote| {
            vote.validity = Some(Validity {
                uses: Some(0),
                duration_seconds: None,
            })
        }),
        ("not among the approvers", |vote| {
            vote.approver.as_mut().unwrap().groups.clear()
        }),
        ("verb approve", |vote| vote.may_approve.clear()),
        ("forbids", |vote| {
            vote.approver.as_mut().unwrap().username = "owner@example.com".into()
        }),
        ("forbids", |vote| {
            vote.approver.as_mut().unwrap().username = "system:serviceaccount:agents:ops-bot".into()
        }),
        ("not among the approvers", |vote| {
            vote.approver.as_mut().unwrap().username = "system:serviceaccount:ci:robot".into()
        }),
    ];
    assert!(approved(&count(
        &sre(),
        &[approve("d", "ana@example.com", &["sre"])]
    )));
    for (words, change) in rows {
        let mut vote = approve("d", "ana@example.com", &["sre"]);
        change(&mut vote);
        let tally = count(&sre(), &[vote]);
        assert!(
            !tally.votes[0].counted && why_not(&tally).contains(words),
            "{words}: {:?}",
            tally.votes[0]
        );
        assert!(matches!(tally.outcome, Outcome::Waiting { .. }), "{words}");
    }
}

#[test]
fn both_missing_halves_are_named() {
    let mut vote = approve("d", "ana@example.com", &[]);
    vote.may_approve.clear();
    let words = why_not(&count(&sre(), &[vote]));
    assert!(
        words.contains("group sre") && words.contains("RBAC"),
        "{words}"
    );
}

#[test]
fn an_empty_row_asks_for_the_verb_alone() {
    let policies = [policy(P, "{required: [{count: 1}]}")];
    assert!(approved(&count(
        &policies,
        &[approve("d", "ana@example.com", &[])]
    )));
    let mut without = approve("d", "ana@example.com", &[]);
    without.may_approve.clear();
    assert!(!approved(&count(&policies, &[without])));
    assert!(
        !approved(&count(
            &policies,
            &[approve("d", "system:serviceaccount:ci:robot", &[])]
        )),
        "no ServiceAccount by an empty row"
    );
}

#[test]
fn a_service_account_counts_only_where_it_is_named_as_one() {
    let robot = || {
        approve(
            "d",
            "system:serviceaccount:ci:robot",
            &["system:serviceaccounts", "sre"],
        )
    };
    for (from, expected) in [
        ("{serviceAccount: {namespace: ci, name: robot}}", true),
        ("{serviceAccount: {namespace: ci, name: other}}", false),
        ("{user: 'system:serviceaccount:ci:robot'}", false),
        ("{group: sre}", false),
        ("{group: 'system:serviceaccounts'}", false),
    ] {
        let policies = [policy(
            P,
            &format!("{{required: [{{count: 1, from: [{from}]}}]}}"),
        )];
        assert_eq!(approved(&count(&policies, &[robot()])), expected, "{from}");
    }
}

#[test]
fn the_requester_and_its_owner_may_where_every_policy_allows_it() {
    let owner = || approve("d", "owner@example.com", &["sre"]);
    let allowed = [policy(
        P,
        "{required: [{count: 1, from: [{group: sre}]}], requester: Allowed}",
    )];
    assert!(approved(&count(&allowed, &[owner()])));
    let unknown = [policy(
        P,
        "{required: [{count: 1, from: [{group: sre}]}], requester: Perhaps}",
    )];
    assert!(
        !approved(&count(&unknown, &[owner()])),
        "an unknown word forbids"
    );
}

#[test]
fn a_reason_is_required_where_a_policy_says_so() {
    let policies = [policy(
        P,
        "{required: [{count: 1, from: [{group: sre}]}], requireReason: [Approve]}",
    )];
    assert!(
        why_not(&count(
            &policies,
            &[approve("d", "ana@example.com", &["sre"])]
        ))
        .contains("a reason is required")
    );
    let blank = CastVote {
        reason: Some("  ".into()),
        ..approve("d", "ana@example.com", &["sre"])
    };
    assert!(!approved(&count(&policies, &[blank])));
    let with = CastVote {
        reason: Some("CHG-881".into()),
        ..approve("d", "ana@example.com", &["sre"])
    };
    assert!(approved(&count(&policies, &[with])));
    assert!(matches!(
        count(&policies, &[deny("d", "ana@example.com", &["sre"])]).outcome,
        Outcome::Denied { .. }
    ));
}

#[test]
fn every_row_of_every_policy_must_be_met_and_a_person_counts_in_one_row_of_each() {
    let two = [policy(P, "{required: [{count: 2, from: [{group: sre}]}]}")];
    let twice = [
        approve("d1", "ana@example.com", &["sre"]),
        approve("d2", "ana@example.com", &["sre"]),
    ];
    let tally = count(&two, &twice);
    assert!(!approved(&tally));
    assert!(
        tally.votes[1]
            .why_not
            .as_deref()
            .unwrap()
            .contains("a person counts once")
    );
    assert!(approved(&count(
        &two,
        &[
            approve("d1", "ana@example.com", &["sre"]),
            approve("d2", "ben@example.com", &["sre"])
        ]
    )));

    let rows = [
        policy(
            P,
            "{required: [{count: 1, from: [{group: sre}]}, {count: 1, from: [{group: security}]}]}",
        ),
        policy(Q, "{required: [{count: 1, from: [{group: web}]}]}"),
    ];
    assert!(!approved(&count(
        &rows,
        &[approve("d", "ana@example.com", &["sre", "security"])]
    )));
    // Ana may be counted for another policy too, and for one row of the first only.
    let all = approve("d", "ana@example.com", &["sre", "security", "web"]);
    let Outcome::Waiting { missing } = count(&rows, std::slice::from_ref(&all)).outcome else {
        panic!("one person meets two rows");
    };
    assert_eq!(missing.len(), 1, "{missing:?}");
    assert!(approved(&count(
        &rows,
        &[all.clone(), approve("e", "ben@example.com", &["security"])]
    )));
    // Who stands in two rows gives way to whoever stands in one.
    assert!(approved(&count(
        &rows,
        &[all, approve("e", "ben@example.com", &["sre"])]
    )));
}

#[test]
fn a_vote_counts_only_for_the_policies_on_which_the_verb_is_held() {
    let rows = [
        policy(P, "{required: [{count: 1}]}"),
        policy(Q, "{required: [{count: 1}]}"),
    ];
    let mut only_p = approve("d", "ana@example.com", &[]);
    only_p.may_approve = [P.to_owned()].into();
    let tally = count(&rows, &[only_p]);
    assert_eq!(tally.votes[0].policies, [P]);
    assert_eq!(
        tally.outcome,
        Outcome::Waiting {
            missing: vec![
                "1 more of whoever holds verb approve on the policy (ApprovalPolicy/web/q)".into()
            ]
        }
    );
}

#[test]
fn one_denial_by_an_approver_ends_it_and_by_anybody_else_does_not() {
    let yes = || approve("a", "ana@example.com", &["sre"]);
    let no = CastVote {
        reason: Some("not now".into()),
        created_at: at(15),
        ..deny("b", "ben@example.com", &["sre"])
    };
    let denied = Outcome::Denied {
        by: "ben@example.com".into(),
        decision: "b".into(),
        reason: Some("not now".into()),
    };
    assert_eq!(count(&sre(), &[yes(), no.clone()]).outcome, denied);
    let own_mind = deny("b", "ana@example.com", &["sre"]);
    assert!(matches!(
        count(&sre(), &[yes(), own_mind]).outcome,
        Outcome::Denied { .. }
    ));
    assert!(approved(&count(
        &sre(),
        &[yes(), deny("b", "eve@example.com", &[])]
    )));
    let mut without_verb = deny("b", "ben@example.com", &["sre"]);
    without_verb.may_approve.clear();
    assert!(approved(&count(&sre(), &[yes(), without_verb])));
}

#[test]
fn votes_only_narrow_the_validity_and_the_strictest_holds() {
    let two = [policy(P, "{required: [{count: 2, from: [{group: sre}]}]}")];
    let narrow = |name: &str, user: &str, uses, seconds| CastVote {
        validity: Some(Validity {
            uses,
            duration_seconds: seconds,
        }),
        ..approve(name, user, &["sre"])
    };
    let tally = count(
        &two,
        &[
            narrow("a", "ana@example.com", Some(1), Some(900)),
            narrow("b", "ben@example.com", Some(50), Some(60)),
        ],
    );
    assert_eq!(
        tally.outcome,
        Outcome::Approved {
            uses: Some(1),
            duration_seconds: Some(60)
        }
    );
    let uncounted = narrow("c", "eve@example.com", Some(1), Some(1));
    let without = CastVote {
        gated: true,
        ..uncounted
    };
    let tally = count(
        &sre(),
        &[approve("a", "ana@example.com", &["sre"]), without],
    );
    assert_eq!(
        tally.outcome,
        Outcome::Approved {
            uses: Some(3),
            duration_seconds: Some(600)
        },
        "a vote that does not count narrows nothing"
    );
}

#[test]
fn nothing_is_approved_at_or_after_the_deadline() {
    let yes = [approve("a", "ana@example.com", &["sre"])];
    assert!(approved(&tally_at(&sre(), &yes, at(999))));
    assert_eq!(tally_at(&sre(), &yes, at(1000)).outcome, Outcome::Expired);
    assert!(matches!(
        tally_at(&sre(), &[deny("a", "ana@example.com", &["sre"])], at(1000)).outcome,
        Outcome::Denied { .. }
    ));
}

#[test]
fn a_request_whose_policies_name_nobody_is_never_approved() {
    let mut silent = sre();
    silent[0].approvers = None;
    let tally = count(&silent, &[approve("a", "ana@example.com", &["sre"])]);
    assert!(matches!(tally.outcome, Outcome::Waiting { .. }));
    assert!(!approved(&count(
        &[],
        &[approve("a", "ana@example.com", &["sre"])]
    )));
    let no_count = [policy(P, "{required: [{count: 0, from: [{group: sre}]}]}")];
    assert!(!approved(&count(
        &no_count,
        &[approve("a", "ana@example.com", &["sre"])]
    )));
}

fn any_vote() -> impl Strategy<Value = CastVote> {
    let name = "[a-f]{1,2}";
    let user = proptest::sample::select(vec![
        "ana@example.com",
        "ben@example.com",
        "owner@example.com",
        "system:serviceaccount:ci:robot",
    ]);
    let groups = proptest::sample::subsequence(vec!["sre", "security"], 0..=2);
    (
        name,
        user,
        groups,
        0..10_i64,
        proptest::bool::weighted(0.1),
        any::<bool>(),
        proptest::option::of(1..4),
    )
        .prop_map(|(name, user, groups, second, no, verb, uses)| {
            let mut vote = vote(
                &name,
                user,
                &groups,
                if no { Verdict::Deny } else { Verdict::Approve },
            );
            vote.created_at = at(second);
            vote.decision.uid = format!("{name}-{user}-{second}");
            vote.validity = uses.map(|uses| Validity {
                uses: Some(uses),
                duration_seconds: None,
            });
            if !verb {
                vote.may_approve.clear();
            }
            vote
        })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 256, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn any_order_of_votes_comes_to_the_same(votes in proptest::collection::vec(any_vote(), 0..8), by in any::<u64>()) {
        let policies = [policy(P, "{required: [{count: 2, from: [{group: sre}]}, {count: 1, from: [{group: security}]}]}")];
        let mut seen = std::collections::BTreeSet::new();
        let votes: Vec<CastVote> = votes.into_iter().filter(|vote| seen.insert(vote.decision.uid.clone())).collect();
        let mut shuffled = votes.clone();
        let turn = usize::try_from(by % 8).unwrap().min(shuffled.len());
        shuffled.rotate_left(turn);
        shuffled.reverse();
        prop_assert_eq!(count(&policies, &votes), count(&policies, &shuffled));
    }

    #[test]
    fn a_vote_more_never_undoes_a_denial(votes in proptest::collection::vec(any_vote(), 0..6), more in any_vote()) {
        let before = count(&sre(), &votes);
        let mut votes = votes;
        votes.push(more);
        if matches!(before.outcome, Outcome::Denied { .. }) {
            prop_assert!(matches!(count(&sre(), &votes).outcome, Outcome::Denied { .. }), "a denial stays");
        }
    }
}
