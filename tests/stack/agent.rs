//! An agent in a namespace of its own, and what its calls come to.

use k8s_openapi::api::apps::v1::Deployment;
use kube::{
    Api,
    api::{DeleteParams, Patch, PatchParams, PostParams},
};
use serde_json::{Value, json};

use super::{SYSTEM, Stack};
use crate::cluster::{
    User,
    wait::{PATIENCE, eventually},
};
use grantgate::api::{AgentIdentity, ClusterApprovalPolicy};

/// An agent: a ServiceAccount with edit rights in a namespace, declared, and a policy that asks for every change there.
pub struct Agent {
    /// Name of the AgentIdentity, of the policy, and of the namespace.
    pub name: String,
    /// The namespace it works in.
    pub namespace: String,
    /// Its account.
    pub user: User,
}

/// What a raw call came to.
#[derive(Debug)]
pub struct Answer {
    /// HTTP status.
    pub status: u16,
    /// The body: the object, or a Status.
    pub body: Value,
}

impl Answer {
    /// `reason` of a Status.
    pub fn reason(&self) -> &str {
        self.body["reason"].as_str().unwrap_or_default()
    }

    /// `message` of a Status.
    pub fn message(&self) -> &str {
        self.body["message"].as_str().unwrap_or_default()
    }

    /// The detail words of a Status.
    pub fn causes(&self) -> Vec<(&str, &str)> {
        let causes = self.body["details"]["causes"]
            .as_array()
            .map(Vec::as_slice)
            .unwrap_or_default();
        causes
            .iter()
            .map(|cause| {
                (
                    cause["reason"].as_str().unwrap_or_default(),
                    cause["message"].as_str().unwrap_or_default(),
                )
            })
            .collect()
    }

    /// Whether a detail word is there.
    pub fn has_cause(&self, word: &str) -> bool {
        self.causes().iter().any(|(reason, _)| *reason == word)
    }

    /// Namespace and name of the request that a pending answer names.
    pub fn request(&self) -> Option<(String, String)> {
        let causes = self.causes();
        let (_, id) = causes.iter().find(|(reason, _)| {
            matches!(*reason, "ApprovalPending" | "Approved" | "ApprovalDenied")
        })?;
        let (namespace, name) = id.split_once('/')?;
        Some((namespace.to_owned(), name.to_owned()))
    }

    /// Whether it went through.
    pub fn ok(&self) -> bool {
        self.status < 300
    }

    /// # Panics
    ///
    /// When it did not go through.
    pub fn expect_ok(self) -> Value {
        assert!(self.ok(), "{self:?}");
        self.body
    }

    /// # Panics
    ///
    /// When it is not refused with that reason.
    pub fn expect_refused(self, reason: &str) -> Self {
        assert!(
            self.status == 403 && self.reason() == reason,
            "expected 403 {reason}: {self:?}"
        );
        self
    }
}

impl Stack<'_> {
    /// Declares an agent with a namespace, a Deployment `api` of three replicas, a ConfigMap `settings`, and a policy under which
    /// `ana@example.com` (and she alone) decides about every change there.
    pub async fn agent(&self, prefix: &str) -> Agent {
        let namespace = self.cluster.namespace(prefix, &[]).await;
        let user = self.cluster.service_account(&namespace, "bot").await;
        let agent = Agent {
            name: namespace.clone(),
            namespace: namespace.clone(),
            user,
        };
        self.cluster
            .bind(&agent.user, "edit", Some(&namespace))
            .await;
        self.cluster
            .bind(&agent.user, "grantgate-agent", Some(&namespace))
            .await;
        self.cluster
            .bind(&User::ana(), "grantgate-approver", Some(&namespace))
            .await;
        self.admin_put_deployment(&namespace, "api", 3).await;
        self.kubectl_apply(&json!({
            "apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "settings", "namespace": namespace, "labels": {"tier": "A"}},
            "data": {"mode": "slow"},
        }))
        .await;
        self.put_policy(&agent.name, json!({})).await;
        self.declare(&agent, json!({})).await;
        agent
    }

    /// Declares the agent (surface Policies unless `over` says otherwise) and waits until the gate stops it on each API server.
    pub async fn declare(&self, agent: &Agent, over: Value) {
        let mut spec = json!({
            "owner": {"group": "team-platform"}, "surface": "Policies",
            "subjects": [{"serviceAccount": {"namespace": agent.namespace, "name": "bot"}}],
        });
        merge(&mut spec, &over);
        self.kubectl_apply(&json!({
            "apiVersion": "grantgate.dev/v1alpha1", "kind": "AgentIdentity", "metadata": {"name": agent.name}, "spec": spec,
        }))
        .await;
        self.wait_enforced(&agent.name).await;
    }

    /// Waits until `Enforced` was observed for an identity as it is now.
    pub async fn wait_enforced(&self, name: &str) {
        let api: Api<AgentIdentity> = Api::all(self.cluster.admin());
        eventually("the identity is Enforced", PATIENCE, async || {
            let identity = api.get(name).await.ok()?;
            let generation = identity.metadata.generation;
            identity.status?.conditions.into_iter().find(|condition| {
                condition.type_ == "Enforced"
                    && condition.status == "True"
                    && condition.observed_generation == generation
            })
        })
        .await
        .unwrap();
    }

    /// Creates or replaces the policy of a namespace: `over` is laid over a policy by which ana decides about everything there.
    pub async fn put_policy(&self, name: &str, over: Value) {
        let mut spec = json!({
            "effect": "RequireApproval",
            "targets": [{"kubernetes": {"scope": "All", "namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": name}}}}],
            "approvers": {"required": [{"count": 1, "from": [{"user": "ana@example.com"}]}]},
            "validity": {"uses": 1, "durationSeconds": 600},
            "denialCooldownSeconds": 0,
        });
        merge(&mut spec, &over);
        self.kubectl_apply(&json!({
            "apiVersion": "grantgate.dev/v1alpha1", "kind": "ClusterApprovalPolicy", "metadata": {"name": name}, "spec": spec,
        }))
        .await;
        self.wait_in_force(name).await;
    }

    /// Waits until a cluster policy as it is now is in force.
    pub async fn wait_in_force(&self, name: &str) {
        let api: Api<ClusterApprovalPolicy> = Api::all(self.cluster.admin());
        eventually("the policy is InForce", PATIENCE, async || {
            let policy = api.get(name).await.ok()?;
            let generation = policy.metadata.generation;
            policy.status?.conditions.into_iter().find(|condition| {
                condition.type_ == "InForce"
                    && condition.status == "True"
                    && condition.observed_generation == generation
            })
        })
        .await
        .unwrap();
    }

    /// Applies an object as admin. Server-side, so that one call creates or changes.
    pub async fn kubectl_apply(&self, object: &Value) {
        let kubectl = self.cluster.kubectl(&User::admin());
        kubectl
            .run_with_input(
                ["apply", "--server-side", "--force-conflicts", "-f", "-"],
                &object.to_string(),
            )
            .await
            .expect_ok();
    }

    /// A Deployment of no image that any node would need.
    pub async fn admin_put_deployment(&self, namespace: &str, name: &str, replicas: i32) {
        self.kubectl_apply(&deployment(namespace, name, replicas))
            .await;
    }

    /// One call as it is, through API server `number`.
    pub async fn call(
        &self,
        user: &User,
        method: &str,
        path: &str,
        content_type: &str,
        body: &Value,
    ) -> Answer {
        let answer = self
            .cluster
            .raw(
                user,
                method,
                path,
                content_type,
                body.to_string().into_bytes(),
            )
            .await;
        let status = answer.status;
        Answer {
            status,
            body: serde_json::from_slice(&answer.body).unwrap_or(Value::Null),
        }
    }

    /// A merge patch.
    pub async fn patch(&self, user: &User, path: &str, body: Value) -> Answer {
        self.call(user, "PATCH", path, "application/merge-patch+json", &body)
            .await
    }

    /// The agent scales its Deployment `api` through the scale subresource.
    pub async fn scale(&self, agent: &Agent, replicas: i32) -> Answer {
        let path = format!(
            "/apis/apps/v1/namespaces/{}/deployments/api/scale",
            agent.namespace
        );
        self.patch(&agent.user, &path, json!({"spec": {"replicas": replicas}}))
            .await
    }

    /// The agent labels its ConfigMap `settings`.
    pub async fn label(&self, agent: &Agent, tier: &str) -> Answer {
        let path = format!("/api/v1/namespaces/{}/configmaps/settings", agent.namespace);
        self.patch(
            &agent.user,
            &path,
            json!({"metadata": {"labels": {"tier": tier}}}),
        )
        .await
    }

    /// Replicas of the Deployment `api` as admin sees them.
    pub async fn replicas(&self, namespace: &str) -> i32 {
        let api: Api<Deployment> = Api::namespaced(self.cluster.admin(), namespace);
        api.get("api")
            .await
            .unwrap()
            .spec
            .unwrap()
            .replicas
            .unwrap()
    }

    /// Somebody who is no agent sets the replicas.
    pub async fn admin_scale(&self, namespace: &str, replicas: i32) {
        let api: Api<Deployment> = Api::namespaced(self.cluster.admin(), namespace);
        let patch = Patch::Merge(json!({"spec": {"replicas": replicas}}));
        api.patch("api", &PatchParams::default(), &patch)
            .await
            .unwrap();
    }

    /// Deletes the Deployment `api` and makes it anew.
    pub async fn admin_recreate(&self, namespace: &str, replicas: i32) {
        let api: Api<Deployment> = Api::namespaced(self.cluster.admin(), namespace);
        let uid = api.get("api").await.unwrap().metadata.uid;
        api.delete("api", &DeleteParams::background())
            .await
            .unwrap();
        let made = serde_json::from_value(deployment(namespace, "api", replicas)).unwrap();
        eventually("the Deployment is made anew", PATIENCE, async || {
            api.create(&PostParams::default(), &made).await.ok()
        })
        .await
        .unwrap();
        assert_ne!(api.get("api").await.unwrap().metadata.uid, uid);
        assert_ne!(namespace, SYSTEM);
    }
}

/// A Deployment object.
pub fn deployment(namespace: &str, name: &str, replicas: i32) -> Value {
    json!({
        "apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": name, "namespace": namespace},
        "spec": {
            "replicas": replicas, "selector": {"matchLabels": {"app": name}},
            "template": {"metadata": {"labels": {"app": name}},
                "spec": {"containers": [{"name": "app", "image": "registry.example/api:1"}]}},
        },
    })
}

/// Lays one object over another, member by member; lists and scalars replace.
fn merge(under: &mut Value, over: &Value) {
    match (under, over) {
        (Value::Object(under), Value::Object(over)) => {
            for (key, value) in over {
                merge(under.entry(key.clone()).or_insert(Value::Null), value);
            }
        }
        (under, over) => *under = over.clone(),
    }
}
