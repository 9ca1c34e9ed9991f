//! Since when nobody can have stored a decision under another's name.
//!
//! A Lease has no status, so what is known stands in annotations of the Lease `grantgate-installation`: the instant, and uid and
//! generation of everything that proves or fills in authorship. When any of them is another, the instant is void, and moves to the
//! moment when a forged decision, tried as a dry run through each API server, was refused by the policy.

use std::{collections::BTreeMap, time::Duration};

use jiff::Timestamp;
use k8s_openapi::api::{
    admissionregistration::v1::{
        MutatingWebhookConfiguration, ValidatingAdmissionPolicy, ValidatingAdmissionPolicyBinding,
        ValidatingWebhookConfiguration,
    },
    coordination::v1::Lease,
};
use kube::{
    Api, Client, Resource, ResourceExt,
    api::{ObjectMeta, PostParams},
};
use serde_json::json;

use super::{
    configuration::{GUARD, STAMP},
    servers::Servers,
};
use crate::{
    api::{ApprovalDecision, ApprovalDecisionSpec, Approver, DecidedRequest, Verdict},
    cluster::client::{CallError, within},
};

/// The Lease of the installation. It only keeps annotations; nobody holds it.
pub const LEASE: &str = "grantgate-installation";
/// The policy that compares authors, and its binding.
pub use crate::manifests::AUTHORSHIP as POLICY;
/// Annotation: since when, RFC 3339.
pub const GUARD_SINCE: &str = "grantgate.dev/guard-since";
/// Annotation: what that instant stands on.
pub const GUARD_WITNESS: &str = "grantgate.dev/guard-witness";
/// Who is pretended to have decided.
const FORGED: &str = "grantgate-forgery";
const LIMIT: Duration = Duration::from_secs(10);

/// Why the instant is not known.
#[derive(Debug, thiserror::Error)]
pub enum AuthorshipError {
    /// A piece is missing.
    #[error("{0} is not there: apply the output of `grantgate manifests`")]
    Missing(&'static str),
    /// A forged decision went through.
    #[error("a forged decision was not refused by policy {POLICY} through {url}: {answer}")]
    NotRefused {
        /// Through which API server.
        url: String,
        /// What it said.
        answer: String,
    },
    /// It changed while it was tried.
    #[error("policy, binding or configuration changed while they were tried")]
    Moving,
    /// The API server.
    #[error(transparent)]
    Call(#[from] CallError),
}

/// Since when votes count, by what is stored and what is there now. Tries a forgery, and stores, where these differ.
pub async fn since(
    client: &Client,
    servers: &Servers,
    namespace: &str,
    now: impl Fn() -> Option<Timestamp>,
) -> Result<Option<Timestamp>, AuthorshipError> {
    let witness = witness(client).await?;
    let api: Api<Lease> = Api::namespaced(client.clone(), namespace);
    let lease = within(LIMIT, api.get_opt(LEASE)).await?;
    if let Some(since) = lease.as_ref().and_then(|lease| stored(lease, &witness)) {
        return Ok(Some(since));
    }
    for server in servers.all().iter() {
        try_forgery(&server.own, namespace)
            .await
            .map_err(|answer| AuthorshipError::NotRefused {
                url: server.url.clone(),
                answer,
            })?;
    }
    // After the refusal: whatever was stored before the policy held is older than this.
    let Some(since) = now() else { return Ok(None) };
    if self::witness(client).await? != witness {
        return Err(AuthorshipError::Moving);
    }
    write(&api, lease, since, &witness).await?;
    tracing::info!(%since, "decisions are proven from now on");
    Ok(Some(since))
}

/// The stored instant, if it stands on the same things.
fn stored(lease: &Lease, witness: &str) -> Option<Timestamp> {
    let annotations = lease.annotations();
    if annotations.get(GUARD_WITNESS).map(String::as_str) != Some(witness) {
        return None;
    }
    annotations.get(GUARD_SINCE)?.parse().ok()
}

/// Uid and generation of everything that authorship stands on.
async fn witness(client: &Client) -> Result<String, AuthorshipError> {
    let parts = [
        part::<ValidatingAdmissionPolicy>(client, "policy", POLICY).await?,
        part::<ValidatingAdmissionPolicyBinding>(client, "binding", POLICY).await?,
        part::<ValidatingWebhookConfiguration>(client, "guard", GUARD).await?,
        part::<MutatingWebhookConfiguration>(client, "stamp", STAMP).await?,
    ];
    let parts: BTreeMap<&str, String> = parts.into();
    Ok(json!(parts).to_string())
}

async fn part<K>(
    client: &Client,
    what: &'static str,
    name: &'static str,
) -> Result<(&'static str, String), AuthorshipError>
where
    K: Resource<DynamicType = ()> + Clone + std::fmt::Debug + serde::de::DeserializeOwned,
{
    let api: Api<K> = Api::all(client.clone());
    let object = within(LIMIT, api.get_opt(name))
        .await?
        .ok_or(AuthorshipError::Missing(name))?;
    let uid = object.uid().unwrap_or_default();
    // What is being deleted does not hold for long.
    if object.meta().deletion_timestamp.is_some() {
        return Err(AuthorshipError::Missing(name));
    }
    let generation = object.meta().generation.unwrap_or_default();
    Ok((what, format!("{uid}@{generation}")))
}

/// A decision under another's name, as a dry run. The account may create decisions, so only the policy can refuse it.
async fn try_forgery(client: &Client, namespace: &str) -> Result<(), String> {
    let api: Api<ApprovalDecision> = Api::namespaced(client.clone(), namespace);
    let forged = ApprovalDecision::new(
        FORGED,
        ApprovalDecisionSpec {
            requests: vec![DecidedRequest {
                name: "ar-none".to_owned(),
                uid: "00000000-0000-0000-0000-000000000000".to_owned(),
                digest: format!("v1:sha256:{}", "0".repeat(64)),
            }],
            verdict: Verdict::Deny,
            reason: Some("a forgery, to see it refused".to_owned()),
            validity: None,
            approver: Some(Approver {
                username: FORGED.to_owned(),
                uid: String::new(),
                groups: Vec::new(),
            }),
        },
    );
    let params = PostParams {
        dry_run: true,
        ..PostParams::default()
    };
    match within(LIMIT, api.create(&params, &forged)).await {
        Ok(_) => Err("it was accepted".to_owned()),
        Err(CallError::Api(kube::Error::Api(status)))
            if status.code == 403 && status.message.contains(&format!("'{POLICY}'")) =>
        {
            Ok(())
        }
        Err(error) => Err(error.to_string()),
    }
}

async fn write(
    api: &Api<Lease>,
    lease: Option<Lease>,
    since: Timestamp,
    witness: &str,
) -> Result<(), CallError> {
    let known = lease.is_some();
    let mut lease = lease.unwrap_or_else(|| Lease {
        metadata: ObjectMeta {
            name: Some(LEASE.to_owned()),
            ..ObjectMeta::default()
        },
        spec: None,
    });
    lease.annotations_mut().extend([
        (GUARD_SINCE.to_owned(), since.to_string()),
        (GUARD_WITNESS.to_owned(), witness.to_owned()),
    ]);
    let params = PostParams::default();
    if known {
        within(LIMIT, api.replace(LEASE, &params, &lease)).await?;
    } else {
        within(LIMIT, api.create(&params, &lease)).await?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_instant_that_stood_on_other_things_is_void() {
        let mut lease = Lease::default();
        lease.annotations_mut().extend([
            (GUARD_SINCE.to_owned(), "2026-01-01T10:00:00.5Z".to_owned()),
            (GUARD_WITNESS.to_owned(), "a@1".to_owned()),
        ]);
        assert!(stored(&lease, "a@1").is_some());
        assert_eq!(stored(&lease, "a@2"), None);
        assert_eq!(stored(&Lease::default(), "a@1"), None);
    }
}
