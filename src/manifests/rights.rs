//! The least rights of each component.

use kube::core::DynamicObject;
use serde_json::{Value, json};

use super::{
    CANARY, CONTROLLER, FINGERPRINT_KEY, MUTATING_WEBHOOKS, POLICIES, SERVING_CERT, UNINSTALL,
    VALIDATING_WEBHOOKS, WEBHOOK, binding, object, role, rule, rule_for,
};
use crate::api::GROUP;

const ADMISSION: &str = "admissionregistration.k8s.io";
const READ: &[&str] = &["get", "list", "watch"];
const WRITE: &[&str] = &["update", "patch"];

/// ClusterRole to read what agents may change: built-in kinds, all but Secrets. A witness and evidence come from it; what it
/// leaves out costs evidence, not safety.
pub const READ_TARGETS: &str = "grantgate-read-targets";
/// ClusterRole to read further kinds. It gathers every ClusterRole that carries [`MORE_TARGETS_LABEL`].
pub const READ_MORE_TARGETS: &str = "grantgate-read-more-targets";
/// Label, with value `"true"`, of a ClusterRole that lets grantgate read further kinds, e.g. of custom resources:
/// `get` and `watch` on them.
pub const MORE_TARGETS_LABEL: &str = "rbac.grantgate.dev/aggregate-to-read-targets";

/// Rights of all components.
pub(super) fn objects(namespace: &str) -> Vec<DynamicObject> {
    let mut objects = targets();
    for account in [WEBHOOK, CONTROLLER] {
        objects.push(binding(None, READ_TARGETS, namespace, account));
        objects.push(binding(None, READ_MORE_TARGETS, namespace, account));
    }
    let parts = [
        (None, WEBHOOK, webhook()),
        (Some(namespace), WEBHOOK, webhook_at_home()),
        (None, CONTROLLER, controller()),
        (Some(namespace), CONTROLLER, controller_at_home()),
        (None, UNINSTALL, uninstall()),
    ];
    for (scope, account, rules) in parts {
        objects.push(role(scope, account, rules));
        objects.push(binding(scope, account, namespace, account));
    }
    objects
}

fn events() -> Value {
    rule("events.k8s.io", &["events"], &["create"])
}

fn leases(verbs: &[&str]) -> Value {
    rule("coordination.k8s.io", &["leases"], verbs)
}

/// What both components read, from memory kept by watches.
fn looked_at() -> Vec<Value> {
    vec![
        rule(GROUP, &["*"], READ),
        rule("", &["namespaces"], READ),
        // Which version a custom resource is stored in.
        rule("apiextensions.k8s.io", &["customresourcedefinitions"], READ),
        rule(
            "authorization.k8s.io",
            &["subjectaccessreviews"],
            &["create"],
        ),
    ]
}

fn webhook() -> Value {
    let mut rules = looked_at();
    rules.extend([
        rule(GROUP, &["approvalrequests"], &["create"]),
        rule(GROUP, &["approvalrequests/status", "grants/status"], WRITE),
    ]);
    json!(rules)
}

fn webhook_at_home() -> Value {
    json!([
        // Its own, of which the name is not known beforehand.
        leases(&["get", "create", "update"]),
        rule_for("", &["secrets"], &[SERVING_CERT, FINGERPRINT_KEY], &["get"])
    ])
}

fn controller() -> Value {
    let mut rules = looked_at();
    rules.extend([
        events(),
        rule(GROUP, &["*/status"], WRITE),
        rule(GROUP, &["grants"], &["create", "update", "patch"]),
        // Owner references, so that decisions and grants go with their request.
        rule(GROUP, &["approvaldecisions"], WRITE),
        rule(GROUP, &["approvalrequests/finalizers"], &["update"]),
        // `grantgate-default`, when it is absent. A create cannot be limited to a name; to change one is not given.
        rule(GROUP, &["clusterapprovalpolicies"], &["create"]),
        // A create cannot be limited to a name.
        rule(
            ADMISSION,
            &[
                "validatingwebhookconfigurations",
                "mutatingwebhookconfigurations",
            ],
            &["create"],
        ),
        rule_for(
            ADMISSION,
            &["validatingwebhookconfigurations"],
            &VALIDATING_WEBHOOKS,
            &["get", "list", "watch", "update", "patch"],
        ),
        rule_for(
            ADMISSION,
            &["mutatingwebhookconfigurations"],
            &MUTATING_WEBHOOKS,
            &["get", "list", "watch", "update", "patch"],
        ),
        // Since when authorship is proven.
        rule_for(
            ADMISSION,
            &[
                "validatingadmissionpolicies",
                "validatingadmissionpolicybindings",
            ],
            &POLICIES,
            READ,
        ),
        // API servers to prove the gate through.
        rule("discovery.k8s.io", &["endpointslices"], &["get", "list"]),
    ]);
    json!(rules)
}

fn controller_at_home() -> Value {
    json!([
        leases(&["get", "list", "watch", "create", "update", "delete"]),
        rule("", &["secrets"], &["create"]),
        rule_for(
            "",
            &["secrets"],
            &[SERVING_CERT, FINGERPRINT_KEY],
            &["get", "list", "watch", "update", "patch"]
        ),
        rule_for("", &["serviceaccounts/token"], &[CANARY], &["create"]),
        // A forged decision, as a dry run, must be refused before votes count.
        rule(GROUP, &["approvaldecisions"], &["create"]),
    ])
}

fn uninstall() -> Value {
    let away = &["get", "delete"];
    json!([
        rule_for(
            ADMISSION,
            &["validatingadmissionpolicybindings"],
            &POLICIES,
            away
        ),
        rule_for(
            ADMISSION,
            &["validatingwebhookconfigurations"],
            &VALIDATING_WEBHOOKS,
            away
        ),
        rule_for(
            ADMISSION,
            &["mutatingwebhookconfigurations"],
            &MUTATING_WEBHOOKS,
            away
        ),
    ])
}

/// RBAC cannot subtract, so everything is named; Secrets are not.
fn targets() -> Vec<DynamicObject> {
    let kinds: &[(&str, &[&str])] = &[
        (
            "",
            &[
                "configmaps",
                "endpoints",
                "limitranges",
                "namespaces",
                "nodes",
                "persistentvolumeclaims",
                "persistentvolumes",
                "pods",
                "podtemplates",
                "replicationcontrollers",
                "replicationcontrollers/scale",
                "resourcequotas",
                "serviceaccounts",
                "services",
            ],
        ),
        (
            "apps",
            &[
                "controllerrevisions",
                "daemonsets",
                "deployments",
                "deployments/scale",
                "replicasets",
                "replicasets/scale",
                "statefulsets",
                "statefulsets/scale",
            ],
        ),
        ("batch", &["cronjobs", "jobs"]),
        ("autoscaling", &["horizontalpodautoscalers"]),
        ("policy", &["poddisruptionbudgets"]),
        (
            "networking.k8s.io",
            &[
                "ingressclasses",
                "ingresses",
                "ipaddresses",
                "networkpolicies",
                "servicecidrs",
            ],
        ),
        ("discovery.k8s.io", &["endpointslices"]),
        (
            "storage.k8s.io",
            &[
                "csidrivers",
                "csinodes",
                "csistoragecapacities",
                "storageclasses",
                "volumeattachments",
                "volumeattributesclasses",
            ],
        ),
        ("scheduling.k8s.io", &["priorityclasses"]),
        ("node.k8s.io", &["runtimeclasses"]),
        ("coordination.k8s.io", &["leases"]),
        ("certificates.k8s.io", &["certificatesigningrequests"]),
        (
            "flowcontrol.apiserver.k8s.io",
            &["flowschemas", "prioritylevelconfigurations"],
        ),
        (
            "resource.k8s.io",
            &[
                "deviceclasses",
                "resourceclaims",
                "resourceclaimtemplates",
                "resourceslices",
            ],
        ),
        (
            "rbac.authorization.k8s.io",
            &[
                "clusterrolebindings",
                "clusterroles",
                "rolebindings",
                "roles",
            ],
        ),
        (
            ADMISSION,
            &[
                "mutatingwebhookconfigurations",
                "validatingadmissionpolicies",
                "validatingadmissionpolicybindings",
                "validatingwebhookconfigurations",
            ],
        ),
        ("apiextensions.k8s.io", &["customresourcedefinitions"]),
        ("apiregistration.k8s.io", &["apiservices"]),
    ];
    let rules: Vec<Value> = kinds
        .iter()
        .map(|(group, resources)| rule(group, resources, &["get", "watch"]))
        .collect();
    // The rules of the second are left out: the cluster fills them in, and an apply must not take them back.
    let gathered = json!({"aggregationRule": {"clusterRoleSelectors": [{"matchLabels": {MORE_TARGETS_LABEL: "true"}}]}});
    vec![
        role(None, READ_TARGETS, json!(rules)),
        object(
            "rbac.authorization.k8s.io/v1",
            "ClusterRole",
            None,
            READ_MORE_TARGETS,
            gathered,
        ),
    ]
}
