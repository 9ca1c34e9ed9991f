//! The kinds of `grantgate.dev/v1alpha1`: data only, no behaviour beyond serialisation and schema.
//!
//! One file per kind. Field documentation becomes `kubectl explain`; CEL rules stand beside the fields that they guard and
//! transition rules at the schema root, since a rule on `status` is not evaluated when `status` itself is removed.

#![allow(
    clippy::duplicated_attributes,
    reason = "printer columns repeat the names of their members"
)]

pub mod agent_identity;
pub mod approval_decision;
pub mod approval_policy;
pub mod approval_request;
pub mod grant;
pub mod reference;
pub mod schema;
pub mod tool_mount;
pub mod tool_server;

pub use agent_identity::{
    AgentIdentity, AgentIdentitySpec, AgentIdentityStatus, Owner, Subject, Surface,
};
pub use approval_decision::{
    ApprovalDecision, ApprovalDecisionSpec, Approver, DecidedRequest, Verdict,
};
pub use approval_policy::{
    ApprovalPolicy, ApprovalPolicySpec, ClusterApprovalPolicy, ClusterApprovalPolicySpec,
    PolicyBody, PolicyStatus,
};
pub use approval_request::{ApprovalRequest, ApprovalRequestSpec, ApprovalRequestStatus};
pub use grant::{Grant, GrantSpec, GrantStatus, Use};
pub use reference::{Action, Operation, PolicyRef, Requester, ServiceAccountRef};
pub use tool_mount::{ToolMount, ToolMountSpec, ToolMountStatus};
pub use tool_server::{ToolServer, ToolServerSpec, ToolServerStatus};

/// API group of every kind.
pub const GROUP: &str = "grantgate.dev";
/// The one version served and stored.
pub const VERSION: &str = "v1alpha1";
