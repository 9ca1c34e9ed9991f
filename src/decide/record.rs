//! The stored form of a proposal: the request's spec and its digest.

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::MicroTime;

use crate::{
    api::{
        ApprovalRequestSpec,
        approval_request::{FieldDiff, Previous},
    },
    decide::{canonical, json, proposal::Proposal},
};

/// Why no digest can be made of a spec.
#[derive(Debug, thiserror::Error)]
pub enum RecordError {
    /// The text is no JSON object.
    #[error("the spec is not a JSON object: {0}")]
    Malformed(String),
}

/// Bytes that a request stores of what is asked: the change, field by field beside it, and the state.
pub fn stored_bytes(change: &str, state: &str, diff: &[FieldDiff]) -> usize {
    let texts = diff
        .iter()
        .flat_map(|field| [Some(&field.path), field.from.as_ref(), field.to.as_ref()]);
    let fields: usize = texts.flatten().map(String::len).sum();
    change.len() + state.len() + fields
}

/// Digest of a raw spec as the API server returns it: canonical form without `digest`.
pub fn spec_digest(raw_spec: &str) -> Result<String, RecordError> {
    let document =
        json::read(raw_spec).map_err(|error| RecordError::Malformed(error.to_string()))?;
    Ok(digest_of(document.root()))
}

/// Digest of a spec, without its `digest`.
pub fn digest_of(spec: json::Value<'_>) -> String {
    canonical::digest(&canonical::object(
        spec.entries()
            .filter(|(key, _)| *key != "digest")
            .map(|(key, value)| (key.to_owned(), canonical::to_string(value))),
    ))
}

/// The spec of the request for a proposal, with its digest.
pub fn request_spec(
    proposal: &Proposal,
    previous: Option<Previous>,
    now: Timestamp,
) -> Result<ApprovalRequestSpec, RecordError> {
    let rules = &proposal.rules;
    let deadline = now
        .checked_add(SignedDuration::from_secs(i64::from(rules.deadline_seconds)))
        .unwrap_or(Timestamp::MAX);
    let mut spec = ApprovalRequestSpec {
        requester: proposal.requester.clone(),
        action: proposal.action.clone(),
        action_key: proposal.action_key.clone(),
        change_digest: proposal.bound.change_digest.clone(),
        state_digest: proposal.bound.state_digest.clone(),
        digest: String::new(),
        change: proposal.bound.change.clone(),
        diff: proposal.bound.diff.clone(),
        state: proposal.bound.state.clone(),
        base: proposal.base.clone(),
        binding: rules.binding.clone(),
        policies: rules.policies.clone(),
        policy_set_hash: rules.policy_set_hash.clone(),
        validity: rules.validity.clone(),
        denial_cooldown_seconds: rules.denial_cooldown_seconds,
        deadline: MicroTime(microseconds(deadline)),
        facts: proposal.facts.clone(),
        previous,
    };
    let raw =
        serde_json::to_string(&spec).map_err(|error| RecordError::Malformed(error.to_string()))?;
    spec.digest = spec_digest(&raw)?;
    Ok(spec)
}

/// metav1.Time has whole seconds: finer ones would differ from what the server returns.
pub fn whole_seconds(time: Timestamp) -> Timestamp {
    Timestamp::from_second(time.as_second()).unwrap_or(time)
}

/// MicroTime has six digits: finer ones would differ from what the server returns.
pub fn microseconds(time: Timestamp) -> Timestamp {
    Timestamp::from_microsecond(time.as_microsecond()).unwrap_or(time)
}
