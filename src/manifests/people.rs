//! Roles to give to people and agents. Nothing is aggregated to `view`, `edit` or `admin`: whoever may change policies could
//! otherwise approve for themselves.

use kube::core::DynamicObject;
use serde_json::{Value, json};

use super::{role, rule};
use crate::api::GROUP;

/// ClusterRole of whoever decides: bind it in a namespace to make somebody an approver of just that.
pub const APPROVER: &str = "grantgate-approver";
/// ClusterRole of whoever writes policies, mounts, servers and identities.
pub const POLICY_AUTHOR: &str = "grantgate-policy-author";
/// ClusterRole of whoever reads.
pub const READER: &str = "grantgate-reader";
/// ClusterRole of agents: they look up the request that they were told to wait for.
pub const AGENT: &str = "grantgate-agent";

/// Resources that people write.
pub const DECLARED: [&str; 5] = [
    "agentidentities",
    "toolservers",
    "toolmounts",
    "approvalpolicies",
    "clusterapprovalpolicies",
];

fn read() -> Value {
    rule(GROUP, &["*"], &["get", "list", "watch"])
}

/// The roles.
pub(super) fn objects() -> Vec<DynamicObject> {
    let approver = json!([
        read(),
        // The right to decide on behalf of a policy. Membership in the policy is needed besides.
        rule(
            GROUP,
            &["approvalpolicies", "clusterapprovalpolicies"],
            &["approve"]
        ),
        rule(GROUP, &["approvaldecisions"], &["create"]),
        // To revoke: schema and policies let nothing but `spec.revoked` change.
        rule(GROUP, &["grants"], &["patch", "update"]),
    ]);
    let author = json!([
        read(),
        rule(GROUP, &DECLARED, &["create", "update", "patch", "delete"])
    ]);
    vec![
        role(None, APPROVER, approver),
        role(None, POLICY_AUTHOR, author),
        role(None, READER, json!([read()])),
        role(
            None,
            AGENT,
            json!([rule(GROUP, &["approvalrequests"], &["get"])]),
        ),
    ]
}
