#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "tests"
)]

use super::*;
use crate::decide::{
    attempt_for_tests::{cluster, delete, namespaced, scale, update},
    json,
};

const ROW: &str = "approvers: {required: [{count: 1}]}";

fn matches(policy: &Policy, situation: &Situation<'_>) -> Match {
    policy.matches(situation, &mut Trace::default())
}

fn asks(target: &str) -> Policy {
    let policy = cluster(
        "p",
        &format!("{{effect: RequireApproval, targets: [{{kubernetes: {target}}}], {ROW}}}"),
    );
    assert_eq!(policy.problems, []);
    policy
}

#[test]
fn every_problem_is_reported_with_its_path() {
    let policy = namespaced(
        "web",
        "p",
        "
effect: Sometimes
targets:
- {}
- kubernetes: {}
- kubernetes: {scope: Some, namespaceSelector: {}, when: 'object.'}
- kubernetes: {scope: All, rules: [{apiGroups: [''], resources: [pods], operations: [UPDATE]}]}
- kubernetes: {rules: [{apiGroups: [''], resources: [pods], operations: [PATCH]}]}
agents: {selector: {matchExpressions: [{key: a, operator: Like}]}}
approvers:
  required: [{count: 0, from: [{}]}, {count: 2, from: [{user: ana@example.com}]}]
  requester: Perhaps
  requireReason: [Shrug]
validity: {}
onSilence: [{afterSeconds: 0, action: Approve}, {afterSeconds: 5, action: Expire}]
denialCooldownSeconds: -1
binding: {change: Rough, state: Some, stateFields: ['metadata', '/a~b'], volatile: [{path: '', shape: Any}]}
",
    );
    let mut paths: Vec<&str> = policy
        .problems
        .iter()
        .map(|problem| problem.path.as_str())
        .collect();
    paths.sort_unstable();
    assert_eq!(
        paths,
        [
            "spec.agents.selector.matchExpressions[0].operator",
            "spec.approvers.requester",
            "spec.approvers.requireReason[0]",
            "spec.approvers.required[0].count",
            "spec.approvers.required[0].from[0]",
            "spec.approvers.required[1].count",
            "spec.binding.change",
            "spec.binding.state",
            "spec.binding.stateFields[0]",
            "spec.binding.stateFields[1]",
            "spec.binding.volatile[0].path",
            "spec.binding.volatile[0].shape",
            "spec.denialCooldownSeconds",
            "spec.effect",
            "spec.onSilence[0].action",
            "spec.onSilence[0].afterSeconds",
            "spec.onSilence[1]",
            "spec.targets[0]",
            "spec.targets[1].kubernetes",
            "spec.targets[2].kubernetes.namespaceSelector",
            "spec.targets[2].kubernetes.scope",
            "spec.targets[2].kubernetes.when",
            "spec.targets[3].kubernetes",
            "spec.targets[4].kubernetes.rules[0].operations[0]",
            "spec.validity",
        ]
    );
}

#[test]
fn a_policy_that_asks_needs_a_row_of_approvers_and_one_that_exempts_does_not() {
    let asks = cluster(
        "p",
        "{effect: RequireApproval, targets: [{kubernetes: {scope: All}}]}",
    );
    assert_eq!(
        asks.problems.first().unwrap().path,
        "spec.approvers.required"
    );
    let exempts = cluster(
        "p",
        "{effect: Exempt, targets: [{kubernetes: {scope: All}}]}",
    );
    assert_eq!(exempts.problems, []);
}

#[test]
fn a_target_matches_by_scope_namespace_name_and_condition() {
    let dev = std::collections::BTreeMap::from([("env".to_owned(), "dev".to_owned())]);
    let document = json::read(r#"{"spec":{"replicas":5}}"#).unwrap();
    let five = Situation {
        object: Some(document.root()),
        ..update()
    };
    let cluster_scoped = Situation {
        namespace: None,
        namespace_labels: None,
        ..update()
    };
    let unnamed = Situation {
        name: "",
        ..update()
    };
    for (target, situation, expected) in [
        ("{scope: All}", update(), Match::Yes(Specificity::All)),
        ("{scope: Destructive}", update(), Match::No),
        (
            "{scope: Destructive}",
            delete(),
            Match::Yes(Specificity::Destructive),
        ),
        (
            "{scope: All, namespaceSelector: {matchLabels: {env: prod}}}",
            update(),
            Match::Yes(Specificity::All),
        ),
        (
            "{scope: All, namespaceSelector: {matchLabels: {env: prod}}}",
            Situation {
                namespace_labels: Some(&dev),
                ..update()
            },
            Match::No,
        ),
        (
            "{scope: All, namespaceSelector: {matchLabels: {env: prod}}}",
            Situation {
                namespace_labels: None,
                ..update()
            },
            Match::NamespaceUnknown,
        ),
        (
            "{scope: All, namespaceSelector: {}}",
            update(),
            Match::Yes(Specificity::All),
        ),
        (
            "{scope: All, namespaceSelector: {}}",
            cluster_scoped,
            Match::No,
        ),
        ("{scope: All}", cluster_scoped, Match::Yes(Specificity::All)),
        (
            "{scope: All, names: [api]}",
            update(),
            Match::Yes(Specificity::All),
        ),
        ("{scope: All, names: [other]}", update(), Match::No),
        (
            "{scope: All, names: [other]}",
            unnamed,
            Match::Yes(Specificity::All),
        ),
        (
            "{scope: All, when: 'object.spec.replicas > 4'}",
            five,
            Match::Yes(Specificity::All),
        ),
        (
            "{scope: All, when: 'object.spec.replicas > 5'}",
            five,
            Match::No,
        ),
        (
            "{scope: All, when: 'object.spec.missing > 5'}",
            five,
            Match::InDoubt {
                certain: None,
                possible: Specificity::All,
            },
        ),
    ] {
        assert_eq!(matches(&asks(target), &situation), expected, "{target}");
    }
}

#[test]
fn what_is_not_known_does_not_exempt() {
    let exempts = |target: &str| {
        cluster(
            "p",
            &format!("{{effect: Exempt, targets: [{{kubernetes: {target}}}]}}"),
        )
    };
    let unnamed = Situation {
        name: "",
        ..update()
    };
    assert_eq!(
        matches(&exempts("{scope: All, names: [other]}"), &unnamed),
        Match::No
    );
    assert_eq!(
        matches(
            &exempts("{scope: All, when: 'object.spec.missing > 5'}"),
            &update()
        ),
        Match::No
    );
}

#[test]
fn the_closest_target_counts() {
    let policy = cluster("p", &format!("
effect: RequireApproval
targets:
- kubernetes: {{scope: All}}
- kubernetes: {{rules: [{{apiGroups: [apps], resources: [deployments/scale], operations: [UPDATE]}}]}}
- kubernetes: {{scope: Destructive}}
{ROW}"));
    assert_eq!(matches(&policy, &scale()), Match::Yes(Specificity::Named));
    assert_eq!(
        matches(&policy, &delete()),
        Match::Yes(Specificity::Destructive)
    );
    assert_eq!(matches(&policy, &update()), Match::Yes(Specificity::All));
}

#[test]
fn a_selector_on_namespaces_that_can_never_match_is_a_problem() {
    let policy = cluster(
        "p",
        &format!(
            "{{effect: RequireApproval, targets: [{{kubernetes: {{rules: [{{apiGroups: [''], resources: [namespaces], operations: [DELETE]}}], namespaceSelector: {{matchLabels: {{env: prod}}}}}}}}], {ROW}}}"
        ),
    );
    assert_eq!(
        policy.problems.first().unwrap().path,
        "spec.targets[0].kubernetes.namespaceSelector"
    );
    let namespace = Situation {
        group: "",
        resource: "namespaces",
        name: "web",
        ..delete()
    };
    assert_eq!(
        matches(&policy, &namespace),
        Match::Yes(Specificity::Named),
        "what cannot be read widens"
    );
}

#[test]
fn the_hash_covers_what_a_policy_resolves_to_and_nothing_else() {
    let base = cluster(
        "p",
        "{effect: RequireApproval, targets: [{kubernetes: {scope: All}}], approvers: {required: [{count: 1, from: [{group: a}, {group: b}]}]}}",
    );
    let hash = |policy: &Policy| policy.hash(Operation::Update, Specificity::All);
    for (same, spec) in [
        (
            true,
            "{effect: RequireApproval, targets: [{kubernetes: {scope: All}}], approvers: {required: [{count: 1, from: [{group: b}, {group: a}]}], requester: Forbidden}, validity: {uses: 1, durationSeconds: 600}, onSilence: [{afterSeconds: 1800, action: Expire}], denialCooldownSeconds: 60, binding: {change: Exact, state: TouchedFields}}",
        ),
        (
            true,
            "{effect: RequireApproval, targets: [{kubernetes: {scope: All}}, {kubernetes: {scope: Destructive}}], approvers: {required: [{count: 1, from: [{group: a}, {group: b}]}]}}",
        ),
        (
            false,
            "{effect: RequireApproval, targets: [{kubernetes: {scope: All}}], approvers: {required: [{count: 2, from: [{group: a}, {group: b}]}]}}",
        ),
        (
            false,
            "{effect: RequireApproval, targets: [{kubernetes: {scope: All}}], approvers: {required: [{count: 1, from: [{group: a}]}]}}",
        ),
        (
            false,
            "{effect: RequireApproval, targets: [{kubernetes: {scope: All}}], approvers: {required: [{count: 1, from: [{user: a}, {group: b}]}]}}",
        ),
        (
            false,
            "{effect: RequireApproval, targets: [{kubernetes: {scope: All}}], approvers: {required: [{count: 1, from: [{group: a}, {group: b}]}], requester: Allowed}}",
        ),
        (
            false,
            "{effect: RequireApproval, targets: [{kubernetes: {scope: All}}], approvers: {required: [{count: 1, from: [{group: a}, {group: b}]}]}, validity: {durationSeconds: 600}}",
        ),
        (
            false,
            "{effect: RequireApproval, targets: [{kubernetes: {scope: All}}], approvers: {required: [{count: 1, from: [{group: a}, {group: b}]}]}, binding: {state: WholeObject}}",
        ),
        (
            false,
            "{effect: RequireApproval, targets: [{kubernetes: {scope: All}}], approvers: {required: [{count: 1, from: [{group: a}, {group: b}]}]}, namespaceMay: [Exempt]}",
        ),
        (
            false,
            "{effect: Exempt, targets: [{kubernetes: {scope: All}}], approvers: {required: [{count: 1, from: [{group: a}, {group: b}]}]}}",
        ),
    ] {
        let policy = cluster("p", spec);
        assert_eq!(policy.problems, [], "{spec}");
        assert_eq!(hash(&policy) == hash(&base), same, "{spec}");
    }
    assert_ne!(
        hash(&base),
        base.hash(Operation::Update, Specificity::Named)
    );
    let elsewhere = cluster(
        "q",
        "{effect: RequireApproval, targets: [{kubernetes: {scope: All}}], approvers: {required: [{count: 1, from: [{group: a}, {group: b}]}]}}",
    );
    assert_ne!(hash(&base), hash(&elsewhere));
}
