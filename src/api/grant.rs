//! Grant: the permission and its life.

use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, MicroTime};
use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{
    approval_request::{Base, ResolvedBinding},
    reference::{Action, Operation, PolicyRef, Requester},
};

/// What one person's decision permits, and every use of it. Minted by the controller; `spec.revoked` is its one mutable field.
#[derive(Clone, CustomResource, Debug, Deserialize, JsonSchema, PartialEq, Serialize)]
#[kube(group = "grantgate.dev", version = "v1alpha1", kind = "Grant", namespaced, shortname = "gggr", category = "grantgate", status = "GrantStatus")]
#[serde(rename_all = "camelCase")]
pub struct GrantSpec {
    /// The request that it was minted from.
    pub request_ref: RequestRef,
    /// Digest of requester's username, agent and what of the action names its target.
    pub action_key: String,
    /// Who may use it.
    pub requester: Requester,
    /// What it permits.
    pub action: Action,
    /// The revision that the proposal was made on; absent for CREATE.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub base: Option<Base>,
    /// Digest of the change that it permits.
    pub change_digest: String,
    /// Canonical JSON of the bound state: path to value.
    pub state: String,
    /// Digest of the bound state.
    pub state_digest: String,
    /// What is bound.
    pub binding: ResolvedBinding,
    /// The policies that asked.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub policies: Vec<PolicyRef>,
    /// Digest of the policies that matched.
    pub policy_set_hash: String,
    /// Number of uses; absent: not counted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub uses: Option<i32>,
    /// From when it serves.
    pub not_before: MicroTime,
    /// Until when it serves.
    pub not_after: MicroTime,
    /// Ends it. Only ever turns true.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub revoked: Option<bool>,
}

/// The request that a grant was minted from.
#[derive(Clone, Debug, Deserialize, Eq, JsonSchema, PartialEq, Serialize)]
pub struct RequestRef {
    /// Its name.
    pub name: String,
    /// Its uid.
    pub uid: String,
}

/// The life of a grant.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct GrantStatus {
    /// Absent: Active.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub phase: Option<GrantPhase>,
    /// Uses consumed. Never falls.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub used: Option<i64>,
    /// Each use, by the uid of the admission review that consumed it.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub uses: BTreeMap<String, Use>,
    /// `Ended`, `Settled`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub conditions: Vec<Condition>,
}

/// The life of a grant.
#[derive(Clone, Copy, Debug, Default, Deserialize, Eq, JsonSchema, PartialEq, Serialize)]
pub enum GrantPhase {
    /// It serves.
    #[default]
    Active,
    /// Every use is consumed.
    Exhausted,
    /// Its time is over.
    Expired,
    /// A person ended it.
    Revoked,
    /// Something that it was bound to changed.
    Stale,
    /// A word that this version does not know.
    #[serde(other)]
    #[schemars(skip)]
    Unknown,
}

/// One use of a grant: one admission.
#[derive(Clone, Debug, Deserialize, Eq, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Use {
    /// CREATE, UPDATE or DELETE.
    pub operation: Operation,
    /// Operation id, `op-` and 26 characters.
    #[serde(rename = "operationID")]
    pub operation_id: String,
    /// Uid of the target; for CREATE the uid that the server chose.
    #[serde(rename = "targetUID")]
    pub target_uid: String,
    /// Requested API version.
    pub version: String,
    /// Subresource.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub subresource: Option<String>,
    /// Digest of the whole change, also of what the binding leaves out.
    pub content_digest: String,
    /// Digest of the options without the grace period.
    pub options_digest: String,
    /// Grace period shown, for deletions.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub grace_seconds: Option<i64>,
    /// The revision shown when the use was consumed; absent for CREATE.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub first: Option<Base>,
    /// The revision that the use stands at; only the witness moves it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub shown: Option<Base>,
    /// How often the witness moved it, at most 10.
    #[serde(default)]
    pub witness_moves: i32,
    /// The policies that let it run.
    pub policy_set_hash: String,
    /// When.
    pub at: MicroTime,
    /// Which webhook replica.
    pub replica: String,
    /// What became of it.
    pub effect: UseEffect,
    /// When that was found out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub settled_at: Option<MicroTime>,
    /// What was seen.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub evidence: Option<Evidence>,
}

/// What became of a use.
#[derive(Clone, Copy, Debug, Deserialize, Eq, JsonSchema, PartialEq, Serialize)]
pub enum UseEffect {
    /// Not known yet.
    Pending,
    /// The change was seen.
    Confirmed,
    /// The target still is what it was.
    NotObserved,
    /// Cannot be told.
    Unknown,
}

/// What was seen when a use was settled.
#[derive(Clone, Debug, Default, Deserialize, Eq, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Evidence {
    /// metadata.resourceVersion seen.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub resource_version: Option<String>,
    /// metadata.generation seen.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub generation: Option<i64>,
    /// metadata.uid seen.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub uid: Option<String>,
    /// Changed paths that hold the approved value.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub paths: Vec<String>,
    /// In words.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
}
