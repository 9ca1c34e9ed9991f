//! ApprovalDecision: one vote on one or several requests.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::reference::Validity;

/// One person's vote on one or several requests of this namespace. Created once, never changed.
#[derive(Clone, CustomResource, Debug, Deserialize, JsonSchema, PartialEq, Serialize)]
#[kube(group = "grantgate.dev", version = "v1alpha1", kind = "ApprovalDecision", namespaced, shortname = "ggad", category = "grantgate", status = "ApprovalDecisionStatus")]
#[serde(rename_all = "camelCase")]
pub struct ApprovalDecisionSpec {
    /// The requests that were seen.
    pub requests: Vec<DecidedRequest>,
    /// What is said.
    pub verdict: Verdict,
    /// Why.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// Narrows how often and how long the grant serves.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub validity: Option<Validity>,
    /// The author. Leave it out: it is filled in and proven.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub approver: Option<Approver>,
}

/// A request that was seen.
#[derive(Clone, Debug, Deserialize, Eq, JsonSchema, PartialEq, Serialize)]
pub struct DecidedRequest {
    /// Its name.
    pub name: String,
    /// Its uid.
    pub uid: String,
    /// Its digest or a prefix with at least 8 hex digits.
    pub digest: String,
}

/// What is said.
#[derive(Clone, Copy, Debug, Deserialize, Eq, Hash, JsonSchema, PartialEq, Serialize)]
pub enum Verdict {
    /// Yes.
    Approve,
    /// No.
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
    pub username: String,
    /// Uid; empty where the API server knows none.
    pub uid: String,
    /// Groups.
    pub groups: Vec<String>,
}

/// What became of a vote.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, PartialEq, Serialize)]
pub struct ApprovalDecisionStatus {
    /// `Counted`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub conditions: Vec<Condition>,
}
