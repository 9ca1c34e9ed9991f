//! What holds for any policies.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "tests"
)]

use proptest::prelude::*;

use super::{
    tests::{ALL, DESTRUCTIVE, NAMED, asked, resolved},
    *,
};
use crate::{
    api::approval_policy::RequesterMay,
    decide::attempt_for_tests::{cluster, delete, namespaced},
};

#[derive(Clone, Debug)]
struct Any {
    namespaced: bool,
    asks: bool,
    target: &'static str,
    may: bool,
    count: i32,
    uses: Option<i32>,
    seconds: i32,
    requester_allowed: bool,
}

impl Any {
    fn compile(&self, name: &str) -> Policy {
        let uses = self
            .uses
            .map_or(String::new(), |uses| format!("uses: {uses}, "));
        let requester = if self.requester_allowed {
            "Allowed"
        } else {
            "Forbidden"
        };
        let may = if self.may && !self.namespaced {
            ", namespaceMay: [Exempt]"
        } else {
            ""
        };
        let effect = if self.asks {
            "RequireApproval"
        } else {
            "Exempt"
        };
        let spec = format!(
            "{{effect: {effect}, targets: [{{kubernetes: {{{}}}}}], approvers: {{required: [{{count: {}}}], requester: {requester}}}, validity: {{{uses}durationSeconds: {}}}{may}}}",
            self.target, self.count, self.seconds
        );
        if self.namespaced {
            namespaced("web", name, &spec)
        } else {
            cluster(name, &spec)
        }
    }
}

fn any_policy() -> impl Strategy<Value = Any> {
    let target =
        proptest::sample::select(vec![NAMED, DESTRUCTIVE, ALL, "scope: All, names: [other]"]);
    (
        any::<bool>(),
        any::<bool>(),
        target,
        any::<bool>(),
        1..4,
        proptest::option::of(1..5),
        60..900,
        any::<bool>(),
    )
        .prop_map(
            |(namespaced, asks, target, may, count, uses, seconds, requester_allowed)| Any {
                namespaced,
                asks,
                target,
                may,
                count,
                uses,
                seconds,
                requester_allowed,
            },
        )
}

fn compiled(policies: &[Any]) -> Vec<Policy> {
    policies
        .iter()
        .enumerate()
        .map(|(n, any)| any.compile(&format!("p{n}")))
        .collect()
}

/// Uncounted is more than any count.
fn uses(rules: &Rules) -> i32 {
    rules.validity.uses.unwrap_or(i32::MAX)
}

fn people(rules: &Rules) -> i32 {
    let approvers = rules
        .policies
        .iter()
        .filter_map(|policy| policy.approvers.as_ref());
    approvers
        .flat_map(|approvers| &approvers.required)
        .map(|row| row.count)
        .max()
        .unwrap_or(0)
}

fn forbids(rules: &Rules) -> bool {
    let approvers = rules
        .policies
        .iter()
        .filter_map(|policy| policy.approvers.as_ref());
    approvers
        .into_iter()
        .all(|approvers| approvers.requester == Some(RequesterMay::Forbidden))
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 128, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn adding_a_policy_that_asks_never_allows_more(policies in proptest::collection::vec(any_policy(), 0..5), added in any_policy()) {
        let added = Any { asks: true, ..added };
        let before = resolved(compiled(&policies), &delete());
        let mut more = compiled(&policies);
        more.push(added.compile("added"));
        let after = resolved(more, &delete());
        match (&before.outcome, &after.outcome) {
            (Outcome::Approval(_), Outcome::Exempt(by)) => prop_assert!(false, "now exempt by {by}"),
            (Outcome::Approval(before), Outcome::Approval(after)) => {
                prop_assert!(after.policies.iter().any(|policy| policy.approvers.is_some()));
                // Over the default policy, the policy that matches decides instead.
                if asked(before).iter().all(|name| *name != DEFAULT_POLICY) {
                    prop_assert!(uses(after) <= uses(before));
                    prop_assert!(after.validity.duration_seconds <= before.validity.duration_seconds);
                    prop_assert!(people(after) >= people(before));
                    prop_assert!(forbids(after) || !forbids(before));
                }
            }
            _ => {}
        }
    }

    #[test]
    fn the_order_of_policies_does_not_matter(policies in proptest::collection::vec(any_policy(), 0..6)) {
        let forward = resolved(compiled(&policies), &delete());
        let mut reversed = compiled(&policies);
        reversed.reverse();
        let backward = resolved(reversed, &delete());
        prop_assert_eq!(forward.outcome, backward.outcome);
        prop_assert_eq!(forward.policy_set_hash, backward.policy_set_hash);
    }
}
