//! A condition that cannot be evaluated: an agent can bring that about, so it may neither open anything nor choose who decides.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "tests"
)]

use super::tests::{ALL, NAMED, ask, asked, exempt, rules};
use crate::decide::{
    attempt_for_tests::{cluster, update},
    policy::Policy,
};

/// A cluster policy whose condition errs on every attempt of these tests.
fn in_doubt(target: &str, group: &str) -> Policy {
    let target = format!("{target}, when: 'object.spec.replicas <= 3'");
    cluster("in-doubt", &ask(&target, group, ""))
}

#[test]
fn a_policy_in_doubt_asks_and_displaces_nobody() {
    let with = |others: Vec<Policy>| {
        let policies = [in_doubt(NAMED, "developers")].into_iter().chain(others);
        asked(&rules(policies.collect(), &update()))
            .into_iter()
            .map(str::to_owned)
            .collect::<Vec<_>>()
    };
    assert_eq!(
        with(vec![cluster("floor", &ask(ALL, "sre", ""))]),
        ["floor", "in-doubt"],
        "whoever makes the condition err does not choose the approvers by it"
    );
    assert_eq!(
        with(vec![]),
        ["grantgate-default", "in-doubt"],
        "without it the default policy would decide"
    );
    assert_eq!(
        with(vec![cluster("free", &exempt(ALL))]),
        ["in-doubt"],
        "if it holds, it comes before the exemption"
    );
}

#[test]
fn a_policy_in_doubt_that_would_lose_anyway_is_not_asked() {
    let named = cluster("named", &ask(NAMED, "sre", ""));
    let rules = rules(vec![in_doubt(ALL, "developers"), named], &update());
    assert_eq!(asked(&rules), ["named"]);
}

#[test]
fn a_target_that_matches_for_certain_ranks_below_one_in_doubt() {
    let both = format!(
        "{{effect: RequireApproval, targets: [{{kubernetes: {{{ALL}}}}}, {{kubernetes: {{{NAMED}, when: 'object.spec.replicas <= 3'}}}}], approvers: {{required: [{{count: 1, from: [{{group: developers}}]}}]}}}}"
    );
    let policies = vec![
        cluster("both", &both),
        cluster("floor", &ask(ALL, "sre", "")),
    ];
    assert_eq!(asked(&rules(policies, &update())), ["both", "floor"]);
}
