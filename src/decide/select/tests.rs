#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "tests"
)]

use super::*;
use crate::decide::attempt_for_tests::{delete, scale, update};

fn rule(groups: &[&str], resources: &[&str], operations: &[OperationSelector]) -> RulePredicate {
    let own = |words: &[&str]| {
        words
            .iter()
            .map(|word| (*word).to_owned())
            .collect::<Vec<_>>()
    };
    let mut problems = Vec::new();
    let rule = RulePredicate::compile(
        &own(groups),
        &own(resources),
        operations,
        "r",
        &mut problems,
    );
    assert!(problems.is_empty(), "{problems:?}");
    rule
}

#[test]
fn resources_have_the_wildcards_of_webhook_rules() {
    let main = update();
    let sub = scale();
    for (pattern, covers_main, covers_scale) in [
        ("*", true, false),
        ("*/*", true, true),
        ("deployments", true, false),
        ("deployments/*", true, true),
        ("deployments/scale", false, true),
        ("deployments/status", false, false),
        ("*/scale", false, true),
        ("pods", false, false),
        ("pods/*", false, false),
    ] {
        let rule = rule(&["*"], &[pattern], &[OperationSelector::All]);
        assert_eq!(rule.matches(&main).is_some(), covers_main, "{pattern}");
        assert_eq!(rule.matches(&sub).is_some(), covers_scale, "{pattern}");
    }
}

#[test]
fn groups_and_operations_must_match_too() {
    use OperationSelector::{All, Create, Delete, Update};
    for (groups, operations, expected) in [
        (vec!["apps"], vec![Update], true),
        (vec!["", "apps"], vec![Delete, Update], true),
        (vec!["*"], vec![All], true),
        (vec![""], vec![Update], false),
        (vec!["apps"], vec![Create, Delete], false),
    ] {
        assert_eq!(
            rule(&groups, &["deployments"], &operations)
                .matches(&update())
                .is_some(),
            expected,
            "{groups:?} {operations:?}"
        );
    }
}

#[test]
fn named_is_what_names_group_resource_and_operation() {
    use OperationSelector::{All, Update};
    for (group, resource, operation, expected) in [
        ("apps", "deployments/scale", Update, Specificity::Named),
        ("apps", "deployments/*", Update, Specificity::Named),
        ("apps", "*/scale", Update, Specificity::All),
        ("*", "deployments/*", Update, Specificity::All),
        ("apps", "deployments/*", All, Specificity::All),
        ("*", "*/*", All, Specificity::All),
    ] {
        assert_eq!(
            rule(&[group], &[resource], &[operation]).matches(&scale()),
            Some(expected),
            "{group} {resource}"
        );
    }
    // The closest of several words counts.
    assert_eq!(
        rule(
            &["*", "apps"],
            &["*/*", "deployments/scale"],
            &[All, Update]
        )
        .matches(&scale()),
        Some(Specificity::Named)
    );
}

#[test]
fn what_cannot_be_read_widens_and_is_reported_by_path() {
    let mut problems = Vec::new();
    let rule = RulePredicate::compile(
        &[],
        &["a/b/c".into()],
        &[OperationSelector::Unknown],
        "spec.targets[0].kubernetes.rules[1]",
        &mut problems,
    );
    let paths: Vec<&str> = problems
        .iter()
        .map(|problem| problem.path.as_str())
        .collect();
    assert_eq!(
        paths,
        [
            "spec.targets[0].kubernetes.rules[1].apiGroups",
            "spec.targets[0].kubernetes.rules[1].resources[0]",
            "spec.targets[0].kubernetes.rules[1].operations[0]",
        ]
    );
    assert!(rule.matches(&scale()).is_some());
    assert!(rule.matches(&delete()).is_some());
}

#[test]
fn label_selectors_match_as_in_kubernetes() {
    let labels = BTreeMap::from([("env".to_owned(), "prod".to_owned())]);
    for (selector, expected) in [
        ("{}", true),
        ("{matchLabels: {env: prod}}", true),
        ("{matchLabels: {env: dev}}", false),
        ("{matchLabels: {env: prod, tier: x}}", false),
        (
            "{matchExpressions: [{key: env, operator: In, values: [dev, prod]}]}",
            true,
        ),
        (
            "{matchExpressions: [{key: env, operator: NotIn, values: [prod]}]}",
            false,
        ),
        (
            "{matchExpressions: [{key: tier, operator: NotIn, values: [prod]}]}",
            true,
        ),
        ("{matchExpressions: [{key: env, operator: Exists}]}", true),
        ("{matchExpressions: [{key: tier, operator: Exists}]}", false),
        (
            "{matchExpressions: [{key: tier, operator: DoesNotExist}]}",
            true,
        ),
        (
            "{matchLabels: {env: prod}, matchExpressions: [{key: env, operator: DoesNotExist}]}",
            false,
        ),
    ] {
        let mut problems = Vec::new();
        let selector: LabelSelector = serde_saphyr::from_str(selector).unwrap();
        let predicate = LabelPredicate::compile(&selector, "s", &mut problems);
        assert_eq!(predicate.matches(&labels), expected, "{selector:?}");
        assert!(problems.is_empty());
    }
}

#[test]
fn a_requirement_that_cannot_be_read_is_a_problem_and_excludes_nothing() {
    for requirement in [
        "{key: env, operator: Near, values: [x]}",
        "{key: env, operator: In}",
        "{key: env, operator: Exists, values: [x]}",
        "{key: '', operator: Exists}",
    ] {
        let mut problems = Vec::new();
        let selector: LabelSelector =
            serde_saphyr::from_str(&format!("{{matchExpressions: [{requirement}]}}")).unwrap();
        let predicate = LabelPredicate::compile(&selector, "s", &mut problems);
        assert_eq!(problems.len(), 1, "{requirement}");
        assert!(predicate.matches(&BTreeMap::new()));
    }
}

#[test]
fn agents_match_by_name_and_by_label_together() {
    let selector: LabelSelector = serde_saphyr::from_str("{matchLabels: {tier: ops}}").unwrap();
    let other: LabelSelector = serde_saphyr::from_str("{matchLabels: {tier: dev}}").unwrap();
    for (names, selector, expected) in [
        (vec![], None, true),
        (vec!["ops-bot".to_owned()], None, true),
        (vec!["other".to_owned()], None, false),
        (vec!["ops-bot".to_owned()], Some(&selector), true),
        (vec!["ops-bot".to_owned()], Some(&other), false),
        (vec!["other".to_owned()], Some(&selector), false),
    ] {
        let predicate = AgentPredicate::compile(&names, selector, "a", &mut Vec::new());
        assert_eq!(
            predicate.matches(&update()),
            expected,
            "{names:?} {selector:?}"
        );
    }
}

#[test]
fn a_namespace_object_lives_in_no_namespace() {
    let namespace = Situation {
        group: "",
        resource: "namespaces",
        namespace: Some("web"),
        name: "web",
        ..delete()
    };
    assert_eq!(namespace.target_namespace(), None);
    assert_eq!(update().target_namespace(), Some("web"));
}
