#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "tests"
)]

use super::*;
use crate::{
    api::{
        Verdict,
        approval_policy::{RequesterMay, StateBinding},
    },
    decide::attempt_for_tests::{cluster, default_policy, delete, namespaced, scale, update},
};

pub const NAMED: &str = "rules: [{apiGroups: [apps], resources: [deployments, 'deployments/*'], operations: [UPDATE, DELETE]}]";
pub const DESTRUCTIVE: &str = "scope: Destructive";
pub const ALL: &str = "scope: All";

pub fn ask(target: &str, group: &str, more: &str) -> String {
    format!(
        "{{effect: RequireApproval, targets: [{{kubernetes: {{{target}}}}}], approvers: {{required: [{{count: 1, from: [{{group: {group}}}]}}]}}{more}}}"
    )
}

pub fn exempt(target: &str) -> String {
    format!("{{effect: Exempt, targets: [{{kubernetes: {{{target}}}}}]}}")
}

pub fn resolved(policies: Vec<Policy>, situation: &Situation<'_>) -> Resolved {
    resolve(
        &Policies::new(policies.into_iter().chain([default_policy()])),
        situation,
    )
}

pub fn rules(policies: Vec<Policy>, situation: &Situation<'_>) -> Rules {
    match resolved(policies, situation).outcome {
        Outcome::Approval(rules) => rules,
        other => panic!("{other:?}"),
    }
}

/// Names of the policies whose approvers are needed.
pub fn asked(rules: &Rules) -> Vec<&str> {
    rules
        .policies
        .iter()
        .filter(|policy| policy.approvers.is_some())
        .map(|policy| policy.name.as_str())
        .collect()
}

#[test]
fn where_no_policy_matches_the_default_one_decides() {
    let rules = rules(
        vec![cluster(
            "other",
            &ask("scope: All, names: [other]", "g", ""),
        )],
        &update(),
    );
    assert_eq!(asked(&rules), ["grantgate-default"]);
    assert_eq!(
        rules.validity,
        Validity {
            uses: Some(1),
            duration_seconds: Some(600)
        }
    );
    assert_eq!(
        (rules.deadline_seconds, rules.denial_cooldown_seconds),
        (1800, 60)
    );
}

#[test]
fn without_a_usable_default_policy_it_is_unready() {
    let missing = resolve(&Policies::new([]), &update());
    assert_eq!(
        missing.outcome,
        Outcome::Unready(vec![
            "ClusterApprovalPolicy/grantgate-default is missing".into()
        ])
    );
    let broken = cluster(
        "grantgate-default",
        "{effect: RequireApproval, targets: [{kubernetes: {scope: All}}]}",
    );
    assert!(matches!(
        resolve(&Policies::new([broken]), &update()).outcome,
        Outcome::Unready(_)
    ));
}

#[test]
fn the_default_policy_is_never_matched_by_its_selectors() {
    let rules = rules(
        vec![cluster("p", &ask(ALL, "g", ", validity: {uses: 3}"))],
        &update(),
    );
    assert_eq!(rules.policies.len(), 1);
    assert_eq!(
        rules.validity.uses,
        Some(3),
        "the default's limits do not apply where another matches"
    );
}

#[test]
fn an_invalid_policy_makes_what_it_matches_unready_and_nothing_else() {
    let broken = || {
        cluster(
            "broken",
            &ask("scope: All, names: [api], when: 'object.('", "g", ""),
        )
    };
    let at = resolved(vec![broken()], &update());
    let Outcome::Unready(reasons) = &at.outcome else {
        panic!("{:?}", at.outcome)
    };
    assert!(
        reasons[0].contains("ClusterApprovalPolicy/broken")
            && reasons[0].contains("spec.targets[0].kubernetes.when"),
        "{reasons:?}"
    );
    let elsewhere = Situation {
        name: "web",
        ..update()
    };
    assert!(matches!(
        resolved(vec![broken()], &elsewhere).outcome,
        Outcome::Approval(_)
    ));
    let unknown = cluster(
        "unknown",
        "{effect: Sometimes, targets: [{kubernetes: {scope: All}}]}",
    );
    assert!(matches!(
        resolved(vec![unknown, cluster("e", &exempt(NAMED))], &update()).outcome,
        Outcome::Unready(_)
    ));
}

#[test]
fn unknown_labels_of_the_namespace_are_unready() {
    let policy = cluster(
        "p",
        &ask(
            "scope: All, namespaceSelector: {matchLabels: {env: prod}}",
            "g",
            "",
        ),
    );
    let unknown = Situation {
        namespace_labels: None,
        ..update()
    };
    assert!(matches!(
        resolved(vec![policy], &unknown).outcome,
        Outcome::Unready(_)
    ));
}

/// Each row: cluster policies, namespaced policies, and who is asked; `[]` means exempt.
#[test]
fn level_comes_first_and_specificity_within_it() {
    let may = ", namespaceMay: [Exempt]";
    let c = |name: &str, spec: String| cluster(name, &spec);
    let n = |name: &str, spec: String| namespaced("web", name, &spec);
    let named = |name: &str| c(name, ask(NAMED, "g", ""));
    let rows: Vec<(&str, Vec<Policy>, &[&str])> = vec![
        (
            "closest wins",
            vec![named("a"), c("b", ask(ALL, "g", ""))],
            &["a"],
        ),
        (
            "equal rank: both are needed",
            vec![named("a"), named("b")],
            &["a", "b"],
        ),
        (
            "equal rank: asking beats exempting",
            vec![named("a"), c("b", exempt(NAMED))],
            &["a"],
        ),
        (
            "a closer exemption wins",
            vec![c("a", ask(ALL, "g", "")), c("b", exempt(NAMED))],
            &[],
        ),
        (
            "a wider exemption loses",
            vec![named("a"), c("b", exempt(ALL))],
            &["a"],
        ),
        (
            "a namespace asks where the cluster does not",
            vec![n("x", ask(ALL, "g", ""))],
            &["x"],
        ),
        (
            "a namespace asks over the cluster's exemption",
            vec![c("a", exempt(NAMED)), n("x", ask(ALL, "g", ""))],
            &["x"],
        ),
        (
            "a namespace adds approvers",
            vec![c("a", ask(ALL, "g", "")), n("x", ask(NAMED, "g", ""))],
            &["x", "a"],
        ),
        (
            "a namespace exempts over the default",
            vec![n("x", exempt(ALL))],
            &[],
        ),
        (
            "a namespace cannot exempt below the floor",
            vec![c("a", ask(ALL, "g", "")), n("x", exempt(NAMED))],
            &["a"],
        ),
        (
            "unless the floor lets it",
            vec![c("a", ask(ALL, "g", may)), n("x", exempt(NAMED))],
            &[],
        ),
        (
            "every policy of the floor",
            vec![
                c("a", ask(ALL, "g", may)),
                c("b", ask(NAMED, "g", "")),
                n("x", exempt(NAMED)),
            ],
            &["b"],
        ),
        (
            "also one that does not win",
            vec![
                c("a", ask(ALL, "g", "")),
                c("b", ask(NAMED, "g", may)),
                n("x", exempt(NAMED)),
            ],
            &["b"],
        ),
        (
            "a closer question in the namespace beats its exemption",
            vec![
                c("a", ask(ALL, "g", may)),
                n("x", exempt(ALL)),
                n("y", ask(NAMED, "g", "")),
            ],
            &["y", "a"],
        ),
        (
            "another namespace does not matter",
            vec![namespaced("other", "x", &exempt(NAMED))],
            &["grantgate-default"],
        ),
    ];
    for (what, policies, expected) in rows {
        match resolved(policies, &update()).outcome {
            Outcome::Approval(rules) => {
                let asked: Vec<&str> = asked_sorted(&rules);
                let mut expected = expected.to_vec();
                expected.sort_unstable();
                assert_eq!(asked, expected, "{what}");
            }
            Outcome::Exempt(_) => assert!(expected.is_empty(), "{what}: exempt"),
            Outcome::Unready(reasons) => panic!("{what}: {reasons:?}"),
        }
    }
}

fn asked_sorted(rules: &Rules) -> Vec<&str> {
    let mut names: Vec<&str> = rules
        .policies
        .iter()
        .filter(|policy| policy.approvers.is_some())
        .map(|policy| policy.name.as_str())
        .collect();
    names.sort_unstable();
    names
}

#[test]
fn ft3_the_most_specific_policy_shapes_the_request_and_the_strictest_validity_holds() {
    let policies = || {
        vec![
            cluster(
                "all",
                &ask(
                    ALL,
                    "everybody",
                    ", validity: {durationSeconds: 60}, onSilence: [{afterSeconds: 300, action: Expire}]",
                ),
            ),
            cluster(
                "destructive",
                &ask(
                    DESTRUCTIVE,
                    "sre",
                    ", validity: {uses: 2, durationSeconds: 3600}, denialCooldownSeconds: 900",
                ),
            ),
            cluster("named", &ask(NAMED, "web-owners", ", validity: {uses: 5}")),
        ]
    };
    let rules = rules(policies(), &delete());
    assert_eq!(asked(&rules), ["named"]);
    let from = &rules
        .policies
        .iter()
        .find_map(|policy| policy.approvers.as_ref())
        .unwrap()
        .required;
    assert_eq!(from[0].from[0].group.as_deref(), Some("web-owners"));
    assert_eq!(
        rules.validity,
        Validity {
            uses: Some(2),
            duration_seconds: Some(60)
        }
    );
    assert_eq!(
        (rules.deadline_seconds, rules.denial_cooldown_seconds),
        (300, 900)
    );
    let all: Vec<&str> = rules
        .policies
        .iter()
        .map(|policy| policy.name.as_str())
        .collect();
    assert_eq!(
        all,
        ["all", "destructive", "named"],
        "all that matched are in the snapshot"
    );

    // Level, specificity and strictness are shown apart.
    let trace = resolved(policies(), &delete()).trace.to_string();
    for line in [
        "ClusterApprovalPolicy/named matches: cluster, Named, RequireApproval",
        "ClusterApprovalPolicy/all does not decide: a policy of its level names the action more closely (Named)",
        "ClusterApprovalPolicy/named decides: it asks, and nothing in its level names the action more closely",
        "uses 2, by ClusterApprovalPolicy/destructive",
        "durationSeconds 60, by ClusterApprovalPolicy/all",
    ] {
        assert!(
            trace.lines().any(|found| found == line),
            "{line}\nis not in\n{trace}"
        );
    }
}

#[test]
fn a_row_that_cannot_hold_so_many_is_joined_by_the_one_that_asks_for_them() {
    let wide = "{effect: RequireApproval, targets: [{kubernetes: {scope: All}}], approvers: {required: [{count: 2, from: [{group: sre}]}]}}";
    let close = format!(
        "{{effect: RequireApproval, targets: [{{kubernetes: {{{NAMED}}}}}], approvers: {{required: [{{count: 1, from: [{{user: ana@example.com}}]}}]}}}}"
    );
    let rules = rules(
        vec![cluster("wide", wide), cluster("close", &close)],
        &update(),
    );
    assert_eq!(asked(&rules), ["close"]);
    let approvers = rules
        .policies
        .iter()
        .find_map(|policy| policy.approvers.as_ref())
        .unwrap();
    let rows: Vec<(i32, String)> = approvers
        .required
        .iter()
        .map(|row| (row.count, crate::decide::policy::approver_words(&row.from)))
        .collect();
    assert_eq!(
        rows,
        [
            (1, "user ana@example.com".to_owned()),
            (2, "group sre".to_owned())
        ]
    );
}

#[test]
fn limits_of_all_that_match_are_combined_to_the_strictest() {
    let wide = "{effect: RequireApproval, targets: [{kubernetes: {scope: All}}], approvers: {required: [{count: 3}], requireReason: [Deny]}, binding: {state: WholeObject, stateFields: [/metadata/labels/env], volatile: [{path: /a, shape: Timestamp}]}}";
    let close = format!(
        "{{effect: RequireApproval, targets: [{{kubernetes: {{{NAMED}}}}}], approvers: {{required: [{{count: 1, from: [{{user: ana@example.com}}]}}, {{count: 1, from: [{{group: sre}}]}}], requester: Allowed, requireReason: [Approve]}}, validity: {{durationSeconds: 86400}}, binding: {{state: Identity, stateFields: [/spec/x], volatile: [{{path: /a, shape: Timestamp}}, {{path: /b, shape: Timestamp}}]}}}}"
    );
    let rules = rules(
        vec![cluster("wide", wide), cluster("close", &close)],
        &update(),
    );
    let approvers = rules
        .policies
        .iter()
        .find_map(|policy| policy.approvers.as_ref())
        .unwrap();
    assert_eq!(asked(&rules), ["close"]);
    let counts: Vec<i32> = approvers.required.iter().map(|row| row.count).collect();
    assert_eq!(
        counts,
        [1, 3],
        "the row that can hold three people is raised"
    );
    assert_eq!(approvers.requester, Some(RequesterMay::Forbidden));
    assert_eq!(approvers.require_reason, [Verdict::Approve, Verdict::Deny]);
    assert_eq!(rules.binding.state, StateBinding::WholeObject);
    assert_eq!(
        rules.binding.state_fields,
        ["/metadata/labels/env", "/spec/x"]
    );
    let volatile: Vec<&str> = rules
        .binding
        .volatile
        .iter()
        .map(|volatile| volatile.path.as_str())
        .collect();
    assert_eq!(
        volatile,
        ["/a"],
        "volatile loosens, so every policy must say it"
    );
    assert_eq!(
        rules.validity,
        Validity {
            uses: Some(1),
            duration_seconds: Some(600)
        }
    );
}

#[test]
fn uses_are_uncounted_only_where_nobody_counts() {
    let windows = rules(
        vec![cluster(
            "a",
            &ask(ALL, "g", ", validity: {durationSeconds: 900}"),
        )],
        &update(),
    );
    assert_eq!(
        windows.validity,
        Validity {
            uses: None,
            duration_seconds: Some(900)
        }
    );
    let counted = rules(
        vec![cluster("a", &ask(ALL, "g", ", validity: {uses: 7}"))],
        &update(),
    );
    assert_eq!(
        counted.validity,
        Validity {
            uses: Some(7),
            duration_seconds: Some(86_400)
        }
    );
}

#[test]
fn the_state_is_bound_by_the_operation_unless_a_policy_says_otherwise() {
    let create = Situation {
        operation: Operation::Create,
        ..update()
    };
    for (situation, more, expected) in [
        (update(), "", StateBinding::TouchedFields),
        (delete(), "", StateBinding::Identity),
        (create, "", StateBinding::WholeObject),
        (
            update(),
            ", binding: {state: Identity}",
            StateBinding::Identity,
        ),
        (
            delete(),
            ", binding: {state: TouchedFields}",
            StateBinding::TouchedFields,
        ),
    ] {
        assert_eq!(
            rules(vec![cluster("a", &ask(ALL, "g", more))], &situation)
                .binding
                .state,
            expected
        );
    }
    assert!(
        StateBinding::Identity < StateBinding::TouchedFields
            && StateBinding::TouchedFields < StateBinding::WholeObject
    );
}

#[test]
fn the_set_hash_moves_when_the_set_or_what_it_resolves_to_does() {
    let hash = |policies| resolved(policies, &update()).policy_set_hash;
    let a = || cluster("a", &ask(ALL, "g", ""));
    let base = hash(vec![a()]);
    assert_eq!(
        base,
        hash(vec![
            cluster("a", &ask(ALL, "g", ", denialCooldownSeconds: 60")),
            cluster("far", &ask("scope: All, names: [x]", "g", ""))
        ])
    );
    assert_ne!(base, hash(vec![a(), cluster("b", &ask(ALL, "g", ""))]));
    assert_ne!(
        base,
        hash(vec![a(), namespaced("web", "b", &exempt(ALL))]),
        "an exemption that matched counts, also where it lost"
    );
    assert_ne!(base, hash(vec![cluster("a", &ask(ALL, "h", ""))]));
    assert_eq!(
        hash(vec![a(), cluster("b", &ask(ALL, "g", ""))]),
        hash(vec![cluster("b", &ask(ALL, "g", "")), a()])
    );
    assert!(base.starts_with("v1:sha256:"));
}

#[test]
fn a_condition_that_errs_asks_and_does_not_exempt() {
    let erring = "scope: All, when: 'object.spec.missing == 1'";
    assert_eq!(
        asked(&rules(vec![cluster("a", &ask(erring, "g", ""))], &update())),
        ["a", "grantgate-default"],
        "without it the default policy would decide"
    );
    assert_eq!(
        asked(&rules(vec![cluster("a", &exempt(erring))], &update())),
        ["grantgate-default"]
    );
}

#[test]
fn a_namespaced_policy_does_not_reach_a_namespace_object_or_a_cluster_scoped_one() {
    let policies = || vec![namespaced("web", "x", &exempt(ALL))];
    let namespace = Situation {
        group: "",
        resource: "namespaces",
        name: "web",
        ..delete()
    };
    assert_eq!(asked(&rules(policies(), &namespace)), ["grantgate-default"]);
    let node = Situation {
        group: "",
        resource: "nodes",
        namespace: None,
        name: "n1",
        ..delete()
    };
    assert_eq!(asked(&rules(policies(), &node)), ["grantgate-default"]);
    assert!(
        matches!(resolved(policies(), &scale()).outcome, Outcome::Exempt(by) if by == "ApprovalPolicy/web/x")
    );
}
