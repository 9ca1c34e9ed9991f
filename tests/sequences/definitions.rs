//! Custom resource definitions that the sequences need, each in a group of its own.

use serde_json::{Value, json};

use crate::{
    cluster::{
        User,
        wait::{PATIENCE, eventually},
    },
    stack::{Agent, Stack},
};

/// One version of a definition.
pub struct Version {
    /// e.g. `v1`.
    pub name: &'static str,
    /// Whether objects are stored in it.
    pub storage: bool,
    /// Properties of `spec`.
    pub spec: Value,
    /// Whether it has a status subresource.
    pub status: bool,
}

impl Version {
    /// A stored version with `replicas`, `size` and `paused`.
    pub fn stored(name: &'static str) -> Self {
        Self {
            name,
            storage: true,
            spec: json!({"replicas": {"type": "integer"}, "size": {"type": "string"}, "paused": {"type": "boolean"}}),
            status: false,
        }
    }

    /// A served version that lacks `paused`.
    pub fn lacking(name: &'static str) -> Self {
        Self {
            name,
            storage: false,
            spec: json!({"replicas": {"type": "integer"}, "size": {"type": "string"}}),
            status: false,
        }
    }
}

/// Applies a definition of `widgets.GROUP` and waits until its versions are served.
pub async fn define(stack: &Stack<'_>, group: &str, versions: &[Version]) {
    let rendered: Vec<Value> = versions
        .iter()
        .map(|version| {
            let mut rendered = json!({
                "name": version.name, "served": true, "storage": version.storage,
                "schema": {"openAPIV3Schema": {"type": "object", "properties": {
                    "spec": {"type": "object", "properties": version.spec},
                    "status": {"type": "object", "properties": {"phase": {"type": "string"}}},
                }}},
            });
            if version.status {
                rendered["subresources"] = json!({"status": {}});
            }
            rendered
        })
        .collect();
    stack
        .kubectl_apply(&json!({
            "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition", "metadata": {"name": format!("widgets.{group}")},
            "spec": {"group": group, "scope": "Namespaced", "names": {"kind": "Widget", "plural": "widgets", "singular": "widget"},
                "versions": rendered},
        }))
        .await;
    for version in versions {
        let path = format!("/apis/{group}/{}/namespaces/default/widgets", version.name);
        eventually("the widgets are served", PATIENCE, async || {
            stack
                .call(
                    &User::admin(),
                    "GET",
                    &path,
                    "application/json",
                    &Value::Null,
                )
                .await
                .ok()
                .then_some(())
        })
        .await
        .unwrap();
    }
}

/// Lets an agent write widgets of a group.
pub async fn allow_widgets(stack: &Stack<'_>, agent: &Agent, group: &str) {
    let rules =
        json!([{"apiGroups": [group], "resources": ["widgets", "widgets/status"], "verbs": ["*"]}]);
    stack
        .cluster
        .allow(&agent.user, Some(&agent.namespace), rules)
        .await;
}

/// Makes a widget as admin through a version.
pub async fn make_widget(
    stack: &Stack<'_>,
    agent: &Agent,
    group: &str,
    version: &str,
    spec: Value,
) -> String {
    let path = format!(
        "/apis/{group}/{version}/namespaces/{}/widgets",
        agent.namespace
    );
    let body = json!({"apiVersion": format!("{group}/{version}"), "kind": "Widget", "metadata": {"name": "w"}, "spec": spec});
    stack
        .call(&User::admin(), "POST", &path, "application/json", &body)
        .await
        .expect_ok();
    format!("{path}/w")
}

/// Waits until the gate knows a kind: before that its answer is that it is not ready, never an allow.
pub async fn known(
    stack: &Stack<'_>,
    agent: &Agent,
    method: &str,
    path: &str,
    content_type: &str,
    body: &Value,
) -> crate::stack::Answer {
    eventually("the gate knows the kind", PATIENCE, async || {
        let answer = stack
            .call(&agent.user, method, path, content_type, body)
            .await;
        (!answer.has_cause("Unready")).then_some(answer)
    })
    .await
    .unwrap()
}
