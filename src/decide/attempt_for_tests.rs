//! Attempts and policies for the tests of this module.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "tests"
)]

use std::{collections::BTreeMap, sync::LazyLock};

use super::{policy::Policy, select::Situation};
use crate::api::{ApprovalPolicy, ClusterApprovalPolicy, Operation};

static AGENT_LABELS: LazyLock<BTreeMap<String, String>> =
    LazyLock::new(|| BTreeMap::from([("tier".to_owned(), "ops".to_owned())]));
static PROD: LazyLock<BTreeMap<String, String>> =
    LazyLock::new(|| BTreeMap::from([("env".to_owned(), "prod".to_owned())]));

/// UPDATE of deployments/scale web/api by agent ops-bot.
pub fn scale() -> Situation<'static> {
    Situation {
        subresource: Some("scale"),
        ..update()
    }
}

/// UPDATE of deployment web/api by agent ops-bot.
pub fn update() -> Situation<'static> {
    Situation {
        agent_name: "ops-bot",
        agent_labels: &AGENT_LABELS,
        operation: Operation::Update,
        group: "apps",
        resource: "deployments",
        subresource: None,
        namespace: Some("web"),
        namespace_labels: Some(&PROD),
        name: "api",
        destructive: false,
        object: None,
        old_object: None,
        username: "system:serviceaccount:agents:ops-bot",
        groups: &["system:serviceaccounts", "system:authenticated"],
    }
}

/// DELETE of deployment web/api.
pub fn delete() -> Situation<'static> {
    Situation {
        operation: Operation::Delete,
        destructive: true,
        ..update()
    }
}

/// A cluster policy from its spec.
pub fn cluster(name: &str, spec: &str) -> Policy {
    Policy::compile_cluster(&cluster_object(name, spec))
}

/// A cluster policy object from its spec.
pub fn cluster_object(name: &str, spec: &str) -> ClusterApprovalPolicy {
    let mut policy = ClusterApprovalPolicy::new(name, serde_saphyr::from_str(spec).unwrap());
    policy.metadata.uid = Some(format!("uid-{name}"));
    policy.metadata.generation = Some(3);
    policy
}

/// A namespaced policy from its spec.
pub fn namespaced(namespace: &str, name: &str, spec: &str) -> Policy {
    let mut policy = ApprovalPolicy::new(name, serde_saphyr::from_str(spec).unwrap());
    policy.metadata.namespace = Some(namespace.to_owned());
    policy.metadata.uid = Some(format!("uid-{namespace}-{name}"));
    policy.metadata.generation = Some(1);
    Policy::compile(&policy)
}

/// The policy that decides where no other matches.
pub fn default_policy() -> Policy {
    cluster(
        "grantgate-default",
        "{effect: RequireApproval, targets: [{kubernetes: {scope: All}}], approvers: {required: [{count: 1}]}}",
    )
}
