//! ValidatingAdmissionPolicies: what holds inside the API server, also while none of our components runs.
//!
//! Each validation says `reason: Forbidden`, since clients read the default, 422, as "your object is wrong". Policies are not run for
//! policies and their bindings: RBAC protects those.

use kube::core::DynamicObject;
use serde_json::{Value, json};

use super::{
    CONTROLLER, GATEWAY, MUTATING_WEBHOOKS, UNINSTALL, VALIDATING_WEBHOOKS, WEBHOOK, object,
    username,
};
use crate::api::{GROUP, VERSION};

/// Policy and binding: a decision's author is its caller.
pub const AUTHORSHIP: &str = "grantgate-authorship";
/// Policy and binding: only the controller creates grants.
pub const AUTHORSHIP_OF_GRANTS: &str = "grantgate-authorship-grants";
/// Policy and binding: who files, changes and removes records, and who writes status.
pub const RECORDS: &str = "grantgate-records";
/// Policy and binding: who changes the installation.
pub const SELF: &str = "grantgate-self";
/// Policy and binding: agents write neither our kinds nor webhook configurations.
pub const AGENTS: &str = "grantgate-agents";
/// Every policy; its binding has the same name.
pub const POLICIES: [&str; 5] = [AUTHORSHIP, AUTHORSHIP_OF_GRANTS, RECORDS, SELF, AGENTS];

const ADMISSION: &str = "admissionregistration.k8s.io";
const RECORDED: [&str; 3] = ["approvalrequests", "approvaldecisions", "grants"];
/// Removal of namespaces, garbage collection, storage migration. Where kube-controller-manager runs with
/// `--use-service-account-credentials=false`, all of them are its one user.
pub const JANITORS: [&str; 4] = [
    "system:kube-controller-manager",
    "system:serviceaccount:kube-system:generic-garbage-collector",
    "system:serviceaccount:kube-system:namespace-controller",
    "system:serviceaccount:kube-system:storage-version-migrator-controller",
];

/// The policies and their bindings.
pub(super) fn objects(namespace: &str) -> Vec<DynamicObject> {
    [
        authorship(),
        authorship_of_grants(namespace),
        records(namespace),
        installation(namespace),
        agents(namespace),
    ]
    .into_iter()
    .flatten()
    .collect()
}

/// A list of texts as CEL. None of them holds a quote: they are our constants and a namespace.
fn listed<T: AsRef<str>>(texts: &[T]) -> String {
    let quoted: Vec<String> = texts
        .iter()
        .map(|text| format!("'{}'", text.as_ref()))
        .collect();
    format!("[{}]", quoted.join(", "))
}

fn resources(operations: &[&str], group: &str, resources: &[&str]) -> Value {
    json!({"operations": operations, "apiGroups": [group], "apiVersions": ["*"], "resources": resources})
}

fn forbidden(expression: &str, message: &str) -> Value {
    json!({"expression": expression, "message": message, "reason": "Forbidden"})
}

fn policy(name: &str, mut spec: Value, binding: Value) -> Vec<DynamicObject> {
    if let Some(spec) = spec.as_object_mut() {
        spec.insert("failurePolicy".to_owned(), json!("Fail"));
    }
    let mut bound = json!({"policyName": name, "validationActions": ["Deny"]});
    if let (Some(bound), Value::Object(binding)) = (bound.as_object_mut(), binding) {
        bound.extend(binding);
    }
    let version = "admissionregistration.k8s.io/v1";
    vec![
        object(
            version,
            "ValidatingAdmissionPolicy",
            None,
            name,
            json!({"spec": spec}),
        ),
        object(
            version,
            "ValidatingAdmissionPolicyBinding",
            None,
            name,
            json!({"spec": bound}),
        ),
    ]
}

/// Filled in by our mutating webhook, proven here, required by the schema: a vote without its true author cannot be stored.
fn authorship() -> Vec<DynamicObject> {
    let spec = json!({
        "matchConstraints": {"resourceRules": [resources(&["CREATE"], GROUP, &["approvaldecisions"])]},
        "validations": [
            forbidden(
                "object.spec.approver.username == request.userInfo.username",
                "spec.approver must be the caller: leave it out, it is filled in",
            ),
            forbidden(
                "object.spec.approver.uid == (has(request.userInfo.uid) ? request.userInfo.uid : '')",
                "spec.approver.uid must be the caller's: leave spec.approver out, it is filled in",
            ),
            forbidden(
                "object.spec.approver.groups == (has(request.userInfo.groups) ? request.userInfo.groups : [])",
                "spec.approver.groups must be the caller's: leave spec.approver out, it is filled in",
            ),
            forbidden(
                "!has(object.metadata.ownerReferences) && !has(object.metadata.finalizers)",
                "a decision is created without owner references and finalizers: the controller sets them",
            ),
        ],
    });
    policy(AUTHORSHIP, spec, json!({}))
}

fn authorship_of_grants(namespace: &str) -> Vec<DynamicObject> {
    let controller = username(namespace, CONTROLLER);
    let spec = json!({
        "matchConstraints": {"resourceRules": [resources(&["CREATE"], GROUP, &["grants"])]},
        "validations": [forbidden(
            &format!("request.userInfo.username == '{controller}'"),
            "grants are made by the controller, out of an approved request: decide with an ApprovalDecision",
        )],
    });
    policy(AUTHORSHIP_OF_GRANTS, spec, json!({}))
}

/// Nothing here looks at anything but our own kinds, so nothing else can be blocked by it.
fn records(namespace: &str) -> Vec<DynamicObject> {
    let own = [CONTROLLER, WEBHOOK, GATEWAY, UNINSTALL].map(|name| username(namespace, name));
    let filing = [WEBHOOK, GATEWAY].map(|name| username(namespace, name));
    let removing = [CONTROLLER, UNINSTALL].map(|name| username(namespace, name));
    let same = |member: &str| {
        format!(
            "has(object.metadata.{member}) == has(oldObject.metadata.{member}) \
             && (!has(object.metadata.{member}) || object.metadata.{member} == oldObject.metadata.{member})"
        )
    };
    let is_record = format!("request.resource.resource in {}", listed(&RECORDED));
    let is_main = "(!has(request.subResource) || request.subResource == '')";
    let spec = json!({
        "matchConstraints": {"resourceRules": [
            resources(&["CREATE", "UPDATE", "DELETE"], GROUP, &RECORDED),
            resources(&["UPDATE"], GROUP, &["*/status"]),
        ]},
        "variables": [
            {"name": "user", "expression": "request.userInfo.username"},
            {"name": "janitor", "expression": format!("variables.user in {}", listed(&JANITORS))},
            {"name": "own", "expression": format!("variables.user in {} || variables.janitor", listed(&own))},
        ],
        "validations": [
            forbidden(
                &format!(
                    "!(request.operation == 'CREATE' && request.resource.resource == 'approvalrequests') \
                     || variables.user in {}",
                    listed(&filing)
                ),
                "requests are filed by grantgate itself, when an agent tries something",
            ),
            forbidden(
                &format!("request.operation != 'DELETE' || variables.janitor || variables.user in {}", listed(&removing)),
                "records are not deleted by hand: retention removes them. \
                 To end a permission: kubectl patch grants.grantgate.dev NAME --type=merge -p '{\"spec\":{\"revoked\":true}}'",
            ),
            forbidden(
                "!(has(request.subResource) && request.subResource == 'status') || variables.own",
                "status is written by grantgate only",
            ),
            forbidden(
                &format!(
                    "!({is_record} && request.operation == 'UPDATE' && {is_main}) || variables.own \
                     || request.resource.resource == 'grants'"
                ),
                "this record does not change",
            ),
            forbidden(
                &format!(
                    "!(request.operation == 'UPDATE' && request.resource.resource == 'grants' && {is_main}) \
                     || variables.own || ({} && {} && {})",
                    same("ownerReferences"),
                    same("finalizers"),
                    same("labels")
                ),
                "only spec.revoked may be changed",
            ),
        ],
    });
    policy(RECORDS, spec, json!({}))
}

/// An administrator is whoever RBAC allows verb `administer` on `installations.grantgate.dev`; cluster-admin has it.
fn installation(namespace: &str) -> Vec<DynamicObject> {
    let all = &["CREATE", "UPDATE", "DELETE"];
    // The collection's removal names nothing: only the old object tells which one it is.
    let name = "(request.operation == 'DELETE' && oldObject != null ? oldObject.metadata.name : request.name)";
    let webhooks = [VALIDATING_WEBHOOKS.as_slice(), MUTATING_WEBHOOKS.as_slice()].concat();
    let ours = format!(
        "(request.resource.group == '{ADMISSION}' && {name} in {}) \
         || (request.resource.group in ['apiextensions.k8s.io', 'apiregistration.k8s.io'] && {name}.endsWith('.{GROUP}')) \
         || (request.resource.group == '' && {name} == '{namespace}')",
        listed(&webhooks)
    );
    let mut trusted: Vec<String> = JANITORS.map(str::to_owned).into();
    trusted.push("system:apiserver".to_owned());
    trusted.push("system:serviceaccount:kube-system:root-ca-cert-publisher".to_owned());
    trusted.extend([CONTROLLER, UNINSTALL].map(|name| username(namespace, name)));
    let spec = json!({
        "matchConstraints": {"resourceRules": [
            resources(all, ADMISSION, &["validatingwebhookconfigurations", "mutatingwebhookconfigurations"]),
            resources(all, "apiextensions.k8s.io", &["customresourcedefinitions", "customresourcedefinitions/status"]),
            resources(all, "apiregistration.k8s.io", &["apiservices", "apiservices/status"]),
            resources(&["UPDATE", "DELETE"], "", &["namespaces", "namespaces/finalize", "namespaces/status"]),
        ]},
        "matchConditions": [
            {"name": "ours", "expression": ours},
            {"name": "not-the-control-plane", "expression": format!("!(request.userInfo.username in {})", listed(&trusted))},
        ],
        "validations": [{
            "expression": format!("authorizer.group('{GROUP}').resource('installations').check('administer').allowed()"),
            "reason": "Forbidden",
            "messageExpression":
                "request.userInfo.username + ' may not change ' + request.resource.resource + ' of grantgate: needs verb administer on installations.grantgate.dev'",
        }],
    });
    policy(SELF, spec, json!({}))
}

/// AgentIdentity is the parameter, so no list has to be rendered. Webhooks are not called for webhook configurations, so the gate
/// cannot hold those.
fn agents(namespace: &str) -> Vec<DynamicObject> {
    let all = &["CREATE", "UPDATE", "DELETE"];
    let mut trusted: Vec<String> = JANITORS.map(str::to_owned).into();
    trusted.push("system:apiserver".to_owned());
    trusted.extend([CONTROLLER, WEBHOOK, GATEWAY, UNINSTALL].map(|name| username(namespace, name)));
    let spec = json!({
        "paramKind": {"apiVersion": format!("{GROUP}/{VERSION}"), "kind": "AgentIdentity"},
        "matchConstraints": {"resourceRules": [
            resources(all, ADMISSION, &["validatingwebhookconfigurations", "mutatingwebhookconfigurations"]),
            resources(all, GROUP, &["*/*"]),
        ]},
        "matchConditions": [
            {"name": "not-the-control-plane", "expression": format!("!(request.userInfo.username in {})", listed(&trusted))},
        ],
        "validations": [forbidden(
            "!params.spec.subjects.exists(subject, \
             (has(subject.user) && subject.user == request.userInfo.username) \
             || (has(subject.group) && has(request.userInfo.groups) && subject.group in request.userInfo.groups) \
             || (has(subject.serviceAccount) && request.userInfo.username \
             == 'system:serviceaccount:' + subject.serviceAccount.namespace + ':' + subject.serviceAccount.name)) \
             && !(has(request.userInfo.extra) \
             && request.userInfo.extra.exists(key, key.lowerAscii() == 'grantgate.dev/agent'))",
            "an agent writes neither grantgate's kinds nor admission webhooks",
        )],
    });
    policy(
        AGENTS,
        spec,
        json!({"paramRef": {"selector": {}, "parameterNotFoundAction": "Allow"}}),
    )
}
