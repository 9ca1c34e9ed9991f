//! The stage: a cluster with the kinds, an author who is filled in, and requests filed by the administrator.

use std::sync::{Arc, Weak};

use grantgate::{
    api::{ApprovalDecision, ApprovalRequest},
    cli::seen::{prefix, spec_digest},
    cluster::clock::Clock,
    crds,
    decide::canonical,
};
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::{
    Api,
    api::{Patch, PatchParams, PostParams},
};
use serde_json::{Value, json};
use tokio::sync::Mutex;

use crate::cluster::{
    Cluster, Options, User,
    tools::Output,
    wait::{PATIENCE, eventually},
};

/// Names a policy that asks for two people.
const POLICY: &str = "ClusterApprovalPolicy/production-changes";

/// One cluster for the tests of this file, as long as one of them runs.
pub async fn stage() -> Arc<Cluster> {
    static STAGE: Mutex<Weak<Cluster>> = Mutex::const_new(Weak::new());
    let mut held = STAGE.lock().await;
    if let Some(cluster) = held.upgrade() {
        return cluster;
    }
    let cluster = Arc::new(Cluster::start(Options::default()).await);
    install(&cluster).await;
    *held = Arc::downgrade(&cluster);
    cluster
}

async fn install(cluster: &Cluster) {
    let definitions: Api<CustomResourceDefinition> = Api::all(cluster.admin());
    for definition in crds::all() {
        let made = definitions
            .create(&PostParams::default(), &definition)
            .await
            .unwrap();
        let name = made.metadata.name.unwrap();
        eventually(&name, PATIENCE, async || {
            let status = definitions.get(&name).await.ok()?.status?;
            status
                .conditions?
                .iter()
                .any(|c| c.type_ == "Established" && c.status == "True")
                .then_some(())
        })
        .await
        .unwrap();
    }
    let admin = cluster.kubectl(&User::admin());
    admin.apply(ROLES).await.expect_ok();
    admin.apply(STAMP).await.expect_ok();
    let mut last = String::new();
    let stamped = eventually("the author is filled in", PATIENCE, async || {
        let probe = json!({
            "apiVersion": "grantgate.dev/v1alpha1", "kind": "ApprovalDecision", "metadata": {"generateName": "d-"},
            "spec": {
                "requests": [{"name": "ar-a", "uid": "u", "digest": format!("v1:sha256:{}", "0".repeat(8))}], "verdict": "Approve",
            },
        });
        let path = "/apis/grantgate.dev/v1alpha1/namespaces/default/approvaldecisions?dryRun=All";
        let answer = cluster.raw(&User::admin(), "POST", path, "application/json", probe.to_string()).await;
        last = answer.text();
        (answer.status == 201).then_some(())
    })
    .await;
    assert!(stamped.is_ok(), "{last}");
}

/// What `grantgate manifests` gives approvers, as far as the plugin needs it.
const ROLES: &str = r#"
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata: {name: grantgate-approver}
rules:
- {apiGroups: [grantgate.dev], resources: [approvalrequests], verbs: [get, list, watch]}
- {apiGroups: [grantgate.dev], resources: [approvaldecisions], verbs: [create, get, watch]}
- {apiGroups: [grantgate.dev], resources: [grants], verbs: [get, list, watch, patch]}
- {apiGroups: [grantgate.dev], resources: [clusterapprovalpolicies, approvalpolicies], verbs: [approve]}
"#;

/// Stands for the stamp: the username as the API server knows it.
const STAMP: &str = r#"
apiVersion: admissionregistration.k8s.io/v1
kind: MutatingAdmissionPolicy
metadata: {name: stamp}
spec:
  failurePolicy: Fail
  reinvocationPolicy: Never
  matchConstraints:
    resourceRules:
    - {apiGroups: [grantgate.dev], apiVersions: [v1alpha1], resources: [approvaldecisions], operations: [CREATE]}
  mutations:
  - patchType: JSONPatch
    jsonPatch:
      expression: >-
        [JSONPatch{op: "add", path: "/spec/approver", value: {"username": dyn(request.userInfo.username), "uid": dyn(""), "groups": dyn(["system:authenticated"])}}]
---
apiVersion: admissionregistration.k8s.io/v1
kind: MutatingAdmissionPolicyBinding
metadata: {name: stamp}
spec: {policyName: stamp}
"#;

/// A request in a namespace of its own.
pub struct Filed {
    /// Its namespace.
    pub namespace: String,
    /// Its name.
    pub name: String,
    /// Its digest.
    pub digest: String,
}

impl Filed {
    pub async fn new(cluster: &Cluster, spec: Value) -> Filed {
        let namespace = cluster.namespace("web", &[]).await;
        Filed::in_namespace(cluster, &namespace, "ar-7f3k", spec).await
    }

    pub async fn in_namespace(
        cluster: &Cluster,
        namespace: &str,
        name: &str,
        spec: Value,
    ) -> Filed {
        let some = canonical::digest("{}");
        let deadline = Clock::local() + jiff::SignedDuration::from_mins(30);
        let mut whole = json!({
            "requester": {"username": "oidc:ops-bot", "agent": "ops-bot"},
            "action": {
                "operation": "UPDATE", "group": "apps", "version": "v1", "resource": "deployments", "subresource": "scale",
                "namespace": namespace, "name": "api", "targetUID": "t1", "options": "{}",
            },
            "actionKey": some, "changeDigest": some, "stateDigest": some,
            "change": "{\"/spec/replicas\":5}", "state": "{\"/spec/replicas\":2}",
            "diff": [{"path": "/spec/replicas", "from": "2", "to": "5"}],
            "base": {"resourceVersion": "881", "generation": 4},
            "binding": {"change": "Exact", "state": "TouchedFields"},
            "policies": [{
                "kind": "ClusterApprovalPolicy", "name": "production-changes", "uid": "p1", "generation": 4, "hash": some,
                "approvers": {"required": [{"count": 2, "from": [{"group": "sre-oncall"}, {"user": "ben@example.com"}]}]},
            }],
            "policySetHash": some, "validity": {"uses": 1, "durationSeconds": 600}, "denialCooldownSeconds": 60,
            "deadline": format!("{deadline:.6}"),
        });
        for (key, value) in spec.as_object().unwrap() {
            whole[key] = value.clone();
        }
        let digest = spec_digest(&json!({"spec": whole}).to_string()).unwrap();
        whole["digest"] = json!(digest);
        let body = json!({
            "apiVersion": "grantgate.dev/v1alpha1", "kind": "ApprovalRequest", "metadata": {"name": name}, "spec": whole,
        });
        let path = format!("/apis/grantgate.dev/v1alpha1/namespaces/{namespace}/approvalrequests");
        let answer = cluster
            .raw(
                &User::admin(),
                "POST",
                &path,
                "application/json",
                body.to_string(),
            )
            .await;
        assert_eq!(answer.status, 201, "{}", answer.text());
        Filed {
            namespace: namespace.to_owned(),
            name: name.to_owned(),
            digest,
        }
    }

    /// Writes what the controller would.
    pub async fn status(&self, cluster: &Cluster, status: Value) {
        let requests: Api<ApprovalRequest> = Api::namespaced(cluster.admin(), &self.namespace);
        let patch = Patch::Merge(json!({"status": status}));
        requests
            .patch_status(&self.name, &PatchParams::default(), &patch)
            .await
            .unwrap();
    }

    /// `kubectl grantgate …` in the request's namespace.
    pub async fn run(&self, cluster: &Cluster, user: &User, line: &str) -> Output {
        let args = line
            .split_whitespace()
            .map(|word| word.replace("DIGEST", &prefix(&self.digest)));
        let tail = ["-n".to_owned(), self.namespace.clone()];
        cluster
            .kubectl(user)
            .run(
                std::iter::once("grantgate".to_owned())
                    .chain(args)
                    .chain(tail),
            )
            .await
    }

    pub async fn decisions(&self, cluster: &Cluster) -> Vec<ApprovalDecision> {
        let decisions: Api<ApprovalDecision> = Api::namespaced(cluster.admin(), &self.namespace);
        decisions.list(&Default::default()).await.unwrap().items
    }

    /// Waits for one decision and writes down what the controller makes of it.
    pub async fn count(&self, cluster: &Cluster, counted: bool, status: Value) {
        let decision = eventually("a decision", PATIENCE, async || {
            self.decisions(cluster).await.into_iter().next()
        })
        .await
        .unwrap();
        let mut vote = json!({
            "decision": {"name": decision.metadata.name, "uid": decision.metadata.uid},
            "username": decision.spec.approver.unwrap().username, "verdict": decision.spec.verdict,
            "at": format!("{:.6}", Clock::local()), "counted": counted,
        });
        vote[if counted { "policies" } else { "whyNot" }] = if counted {
            json!([POLICY])
        } else {
            json!("it came too early")
        };
        let mut whole = json!({"votes": [vote]});
        for (key, value) in status.as_object().unwrap() {
            whole[key] = value.clone();
        }
        self.status(cluster, whole).await;
    }
}
