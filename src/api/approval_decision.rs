//! ApprovalDecision: one vote on one or several requests.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{
    reference::Validity,
    schema::{self, Validation},
};

/// One person's vote on one or several ApprovalRequests of the same namespace. Created once and never changed. The author is
/// filled in and proven by the API server.
#[derive(Clone, CustomResource, Debug, Deserialize, JsonSchema, PartialEq, Serialize)]
#[kube(
    group = "grantgate.dev",
    version = "v1alpha1",
    kind = "ApprovalDecision",
    namespaced,
    shortname = "ggad",
    category = "grantgate",
    status = "ApprovalDecisionStatus",
    printcolumn(
        name = "Verdict",
        type_ = "string",
        json_path = ".spec.verdict",
        description = "Approve or Deny"
    ),
    printcolumn(
        name = "Approver",
        type_ = "string",
        json_path = ".spec.approver.username",
        description = "Who decided, as the API server authenticated them"
    ),
    printcolumn(
        name = "Request",
        type_ = "string",
        json_path = ".spec.requests[0].name",
        description = "The first request that was decided"
    ),
    printcolumn(
        name = "Counted",
        type_ = "string",
        json_path = ".status.conditions[?(@.type==\"Counted\")].status",
        description = "Whether the vote counts; its message says why not"
    ),
    printcolumn(
        name = "Reason",
        type_ = "string",
        json_path = ".spec.reason",
        description = "Why, in the approver's words",
        priority = 1
    ),
    printcolumn(
        name = "Age",
        type_ = "date",
        json_path = ".metadata.creationTimestamp",
        description = "Time since the decision"
    )
)]
#[serde(rename_all = "camelCase")]
#[schemars(transform = schema::required("approver"))]
pub struct ApprovalDecisionSpec {
    /// The requests that were seen and are decided together, 1 to 64 of this namespace.
    #[schemars(transform = schema::keyed("name", 1, 64))]
    pub requests: Vec<DecidedRequest>,
    /// What is said.
    pub verdict: Verdict,
    /// Why, e.g. the number of a ticket. Some policies require it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(transform = schema::lines(1024))]
    pub reason: Option<String>,
    /// Narrows how often and how long the grant serves. It never widens what the policies allow; of several votes the strictest holds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub validity: Option<Validity>,
    /// The author. Leave it out: it is filled in from the authenticated user, and a value that is not the caller is refused.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub approver: Option<Approver>,
}

/// A request that was seen.
#[derive(Clone, Debug, Deserialize, Eq, JsonSchema, PartialEq, Serialize)]
pub struct DecidedRequest {
    /// Name of the ApprovalRequest.
    #[schemars(transform = schema::name())]
    pub name: String,
    /// metadata.uid of the ApprovalRequest.
    #[schemars(transform = schema::uid())]
    pub uid: String,
    /// `spec.digest` of the request as it was seen, or a prefix of it with at least 8 hex digits.
    #[schemars(transform = schema::digest_prefix())]
    pub digest: String,
}

/// What is said.
#[derive(Clone, Copy, Debug, Deserialize, Eq, Hash, JsonSchema, PartialEq, Serialize)]
#[schemars(transform = schema::words())]
pub enum Verdict {
    /// The change may be made, within the limits of the policies.
    Approve,
    /// The change is refused; the request ends.
    Deny,
    /// A word that this version does not know.
    #[serde(other)]
    #[schemars(skip)]
    Unknown,
}

/// The author of a decision as the API server authenticated them.
#[derive(Clone, Debug, Default, Deserialize, Eq, JsonSchema, PartialEq, Serialize)]
pub struct Approver {
    /// Username.
    #[schemars(transform = schema::filled(1024))]
    pub username: String,
    /// Uid; empty where the API server knows none.
    #[schemars(transform = schema::line(256))]
    pub uid: String,
    /// Groups, at most 256.
    #[schemars(transform = schema::atomic(0, 256, schema::line(1024)))]
    pub groups: Vec<String>,
}

/// What became of the vote. Written by the controller.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, PartialEq, Serialize)]
pub struct ApprovalDecisionStatus {
    /// `Counted`: whether the vote counts; when False, the message names the requests and why.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(transform = schema::conditions())]
    pub conditions: Vec<Condition>,
}

/// Rules at the root of the schema.
pub const RULES: &[Validation] = &[
    Validation {
        rule: "self.spec == oldSelf.spec",
        message: "a decision never changes: create another one",
    },
    schema::STATUS_STAYS,
];
