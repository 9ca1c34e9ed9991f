#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "tests"
)]
use std::collections::BTreeSet;

use super::*;

fn rendered() -> Vec<DynamicObject> {
    render(&Options {
        namespace: "gate-1".to_owned(),
    })
    .unwrap()
}

fn kind(object: &DynamicObject) -> String {
    object.types.as_ref().unwrap().kind.clone()
}

fn rules(object: &DynamicObject) -> Vec<Value> {
    object
        .data
        .get("rules")
        .and_then(Value::as_array)
        .cloned()
        .unwrap_or_default()
}

fn has(rule: &Value, member: &str, word: &str) -> bool {
    rule[member]
        .as_array()
        .is_some_and(|words| words.iter().any(|found| found == word))
}

#[test]
fn a_namespace_that_could_leave_an_expression_is_refused() {
    for namespace in ["", "a'b", "A", "-a", "a-", "a.b", "a b", &"a".repeat(64)] {
        let problem = render(&Options {
            namespace: namespace.to_owned(),
        });
        assert_eq!(
            problem,
            Err(OptionsProblem::Namespace(namespace.to_owned()))
        );
    }
}

#[test]
fn the_default_namespace_stands_nowhere_when_another_is_chosen() {
    for object in rendered() {
        let text = serde_json::to_string(&object).unwrap();
        assert!(!text.contains(NAMESPACE), "{text}");
    }
}

#[test]
fn every_object_is_rendered_once() {
    let names: Vec<_> = rendered()
        .iter()
        .map(|object| {
            (
                kind(object),
                object.metadata.namespace.clone(),
                object.metadata.name.clone(),
            )
        })
        .collect();
    assert_eq!(names.iter().collect::<BTreeSet<_>>().len(), names.len());
}

#[test]
fn every_binding_leads_to_a_role_and_an_account_that_are_rendered() {
    let objects = rendered();
    let there = |kind_wanted: &str, name: &Value| {
        objects.iter().any(|object| {
            kind(object) == kind_wanted && object.metadata.name.as_deref() == name.as_str()
        })
    };
    for object in objects
        .iter()
        .filter(|object| kind(object).ends_with("RoleBinding"))
    {
        let role = &object.data["roleRef"];
        assert!(
            there(role["kind"].as_str().unwrap(), &role["name"]),
            "{role}"
        );
        for subject in object.data["subjects"].as_array().unwrap() {
            assert!(there("ServiceAccount", &subject["name"]), "{subject}");
        }
    }
}

#[test]
fn no_component_reads_secrets_without_naming_them() {
    for object in rendered() {
        for rule in rules(&object) {
            let reads = ["get", "list", "watch", "*"]
                .iter()
                .any(|verb| has(&rule, "verbs", verb));
            let secrets = has(&rule, "resources", "secrets")
                || (has(&rule, "apiGroups", "") && has(&rule, "resources", "*"));
            assert!(
                !(reads && secrets) || rule.get("resourceNames").is_some(),
                "{rule}"
            );
            assert!(!has(&rule, "apiGroups", "*"), "{rule}");
        }
    }
}

#[test]
fn no_role_is_gathered_into_the_roles_of_the_cluster() {
    for object in rendered() {
        let labels = object.metadata.labels.unwrap_or_default();
        assert!(
            !labels.keys().any(|key| key.contains("aggregate-to-")),
            "{labels:?}"
        );
    }
}

#[test]
fn only_approvers_may_approve_and_only_they_create_decisions_everywhere() {
    for object in rendered() {
        let name = object.metadata.name.clone().unwrap();
        for rule in rules(&object) {
            assert!(
                !has(&rule, "verbs", "approve") || name == APPROVER,
                "{name}"
            );
            let decides =
                has(&rule, "resources", "approvaldecisions") && has(&rule, "verbs", "create");
            // The controller tries a forged one, in its own namespace, which must be refused.
            assert!(
                !decides || name == APPROVER || (name == CONTROLLER && kind(&object) == "Role"),
                "{name}"
            );
        }
    }
}

#[test]
fn each_refusal_of_a_policy_is_read_as_forbidden() {
    let objects = rendered();
    let policies: Vec<_> = objects
        .iter()
        .filter(|object| kind(object) == "ValidatingAdmissionPolicy")
        .collect();
    let names: Vec<_> = policies
        .iter()
        .map(|object| object.metadata.name.clone().unwrap())
        .collect();
    assert_eq!(names, POLICIES);
    for policy in policies {
        assert_eq!(policy.data["spec"]["failurePolicy"], "Fail");
        for validation in policy.data["spec"]["validations"].as_array().unwrap() {
            assert_eq!(validation["reason"], "Forbidden", "{validation}");
        }
        let name = policy.metadata.name.clone().unwrap();
        let binds = |object: &&DynamicObject| {
            kind(object) == "ValidatingAdmissionPolicyBinding"
                && object.data["spec"]["policyName"] == name.as_str()
        };
        assert_eq!(objects.iter().filter(binds).count(), 1, "{name}");
    }
}
