//! What an installation needs before its components start: namespace, accounts, the least rights, roles for people and agents, and
//! the policies inside the API server that protect records and their authors.
//!
//! Everything is made from the namespace alone, so that the same installation prints the same objects each time.

mod accounts;
mod people;
mod policies;
mod rights;

use std::collections::BTreeMap;

use kube::core::{DynamicObject, ObjectMeta, TypeMeta};
use serde_json::{Value, json};

pub use self::{
    accounts::{
        CANARY, CONTROLLER, GATEWAY, UNINSTALL, WEBHOOK, never_gated, own_accounts, username,
    },
    people::{AGENT, APPROVER, DECLARED, POLICY_AUTHOR, READER},
    policies::{AGENTS, AUTHORSHIP, AUTHORSHIP_OF_GRANTS, JANITORS, POLICIES, RECORDS, SELF},
    rights::{MORE_TARGETS_LABEL, READ_MORE_TARGETS, READ_TARGETS},
};

/// The namespace of an installation, where nothing else is said.
pub const NAMESPACE: &str = "grantgate-system";
/// The Service of the webhook replicas.
pub const SERVICE: &str = "grantgate-webhook";
/// The ValidatingWebhookConfiguration that sends agents' writes to the gate.
pub const GATE: &str = "grantgate-gate";
/// The ValidatingWebhookConfiguration that sends people's writes of our kinds to the guard.
pub const GUARD: &str = "grantgate-guard";
/// The MutatingWebhookConfiguration that fills in who decided.
pub const STAMP: &str = "grantgate-stamp";
/// Every ValidatingWebhookConfiguration of ours.
pub const VALIDATING_WEBHOOKS: [&str; 2] = [GATE, GUARD];
/// Every MutatingWebhookConfiguration of ours.
pub const MUTATING_WEBHOOKS: [&str; 1] = [STAMP];
/// The Secret with the serving certificate and its authority.
pub const SERVING_CERT: &str = "grantgate-serving-cert";
/// The Secret with the key of the fingerprints that stand for values of Secrets.
pub const FINGERPRINT_KEY: &str = "grantgate-fingerprint-key";

/// What an installation is made for.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Options {
    /// Namespace of the components; 1 to 63 characters, an RFC 1123 label.
    pub namespace: String,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            namespace: NAMESPACE.to_owned(),
        }
    }
}

/// Why nothing can be rendered.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
pub enum OptionsProblem {
    /// The namespace is no name of a namespace. It stands inside expressions, so nothing else may pass.
    #[error(
        "--namespace {0:?} is no name of a namespace: use lower case letters, digits and \"-\", at most 63"
    )]
    Namespace(String),
}

/// Every object, in an order in which they can be applied.
pub fn render(options: &Options) -> Result<Vec<DynamicObject>, OptionsProblem> {
    let namespace = options.namespace.as_str();
    if !is_label(namespace) {
        return Err(OptionsProblem::Namespace(options.namespace.clone()));
    }
    let mut objects = accounts::objects(namespace);
    objects.extend(rights::objects(namespace));
    objects.extend(people::objects());
    objects.extend(policies::objects(namespace));
    Ok(objects)
}

fn is_label(name: &str) -> bool {
    let inner = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';
    (1..=63).contains(&name.len())
        && name.bytes().all(inner)
        && !name.starts_with('-')
        && !name.ends_with('-')
}

/// The labels of everything that belongs to an installation.
pub fn labels() -> BTreeMap<String, String> {
    ["app.kubernetes.io/name", "app.kubernetes.io/part-of"]
        .map(|key| (key.to_owned(), "grantgate".to_owned()))
        .into()
}

/// One object: `body` holds what stands beside `metadata`.
fn object(
    api_version: &str,
    kind: &str,
    namespace: Option<&str>,
    name: &str,
    body: Value,
) -> DynamicObject {
    DynamicObject {
        types: Some(TypeMeta {
            api_version: api_version.to_owned(),
            kind: kind.to_owned(),
        }),
        metadata: ObjectMeta {
            name: Some(name.to_owned()),
            namespace: namespace.map(str::to_owned),
            labels: Some(labels()),
            ..ObjectMeta::default()
        },
        data: body,
    }
}

const RBAC: &str = "rbac.authorization.k8s.io";

/// A Role where there is a namespace, otherwise a ClusterRole.
fn role(namespace: Option<&str>, name: &str, rules: Value) -> DynamicObject {
    let kind = if namespace.is_some() {
        "Role"
    } else {
        "ClusterRole"
    };
    object(
        "rbac.authorization.k8s.io/v1",
        kind,
        namespace,
        name,
        json!({"rules": rules}),
    )
}

/// Binds the role of the same namespace and name, or the ClusterRole, to an account of ours.
fn binding(namespace: Option<&str>, role: &str, system: &str, account: &str) -> DynamicObject {
    let (kind, role_kind) = match namespace {
        Some(_) => ("RoleBinding", "Role"),
        None => ("ClusterRoleBinding", "ClusterRole"),
    };
    let name = if role == account {
        role.to_owned()
    } else {
        format!("{account}-{}", role.trim_start_matches("grantgate-"))
    };
    let body = json!({
        "roleRef": {"apiGroup": RBAC, "kind": role_kind, "name": role},
        "subjects": [{"kind": "ServiceAccount", "namespace": system, "name": account}],
    });
    object("rbac.authorization.k8s.io/v1", kind, namespace, &name, body)
}

/// One rule of RBAC.
fn rule(group: &str, resources: &[&str], verbs: &[&str]) -> Value {
    json!({"apiGroups": [group], "resources": resources, "verbs": verbs})
}

/// One rule of RBAC for these objects only.
fn rule_for(group: &str, resources: &[&str], names: &[&str], verbs: &[&str]) -> Value {
    json!({"apiGroups": [group], "resources": resources, "resourceNames": names, "verbs": verbs})
}

#[cfg(test)]
mod tests;
