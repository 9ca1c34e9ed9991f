//! The webhook configurations: what they should hold, and bringing what is there to that by compare-and-swap.
//!
//! `grantgate-gate` sends declared identities' writes to the gate. `grantgate-guard` sends people's writes of our own kinds to the guard,
//! but not those of controllers that must work while we are down (V16), nor our own. `grantgate-stamp` has the author of a decision
//! filled in. Each is written as a whole, so any drift is a difference.

use std::{collections::BTreeMap, time::Duration};

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::{
    ByteString,
    api::admissionregistration::v1::{
        MatchCondition, MutatingWebhook, MutatingWebhookConfiguration, RuleWithOperations,
        ServiceReference, ValidatingWebhook, ValidatingWebhookConfiguration, WebhookClientConfig,
    },
    apimachinery::pkg::apis::meta::v1::LabelSelector,
};
use kube::{
    Api, Client, Resource, ResourceExt,
    api::{ObjectMeta, PostParams},
};
use serde::{Serialize, de::DeserializeOwned};

use crate::{
    cluster::client::{CallError, within},
    decide::{
        cel_text,
        gate_entries::{self, Entries, Subjects},
    },
    manifests,
};

pub use crate::manifests::{GATE, GUARD, STAMP};

/// What no identity declares any more is still sent for so long: requests in flight, and replicas that have not heard yet.
pub const LEAVING: SignedDuration = SignedDuration::from_secs(60);

/// Annotation of `grantgate-gate`: which subjects leave, as a digest, and until when they are still sent.
const LEAVING_UNTIL: &str = "grantgate.dev/leaving";
const FIELD_OWNER: &str = manifests::CONTROLLER;
const LIMIT: Duration = Duration::from_secs(10);
const API_VERSIONS: &str = "v1";

/// Where API servers find the webhook.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Reach {
    /// By the Service in the installation's namespace.
    Service {
        /// Its namespace.
        namespace: String,
    },
    /// By a base URL, `https://HOST:PORT` without a path.
    Url(String),
}

impl Reach {
    fn client_config(&self, path: &str, ca_bundle: &str) -> WebhookClientConfig {
        let mut config = WebhookClientConfig {
            ca_bundle: Some(ByteString(ca_bundle.as_bytes().to_vec())),
            ..WebhookClientConfig::default()
        };
        match self {
            Self::Service { namespace } => {
                config.service = Some(ServiceReference {
                    name: manifests::SERVICE.to_owned(),
                    namespace: namespace.clone(),
                    path: Some(path.to_owned()),
                    port: Some(443),
                });
            }
            Self::Url(base) => config.url = Some(format!("{}{path}", base.trim_end_matches('/'))),
        }
        config
    }
}

/// `grantgate-gate` for these entries.
pub fn gate(entries: &Entries, reach: &Reach, ca_bundle: &str) -> ValidatingWebhookConfiguration {
    let webhooks = entries.entries.iter().map(|entry| ValidatingWebhook {
        name: entry.name.clone(),
        client_config: reach.client_config(&format!("/gate/{}", entry.digest), ca_bundle),
        rules: Some(vec![rule(
            &["*"],
            &["*/*"],
            &["CREATE", "UPDATE", "DELETE", "CONNECT"],
        )]),
        match_conditions: Some(
            entry
                .conditions
                .iter()
                .map(|(name, expression)| condition(name, expression))
                .collect(),
        ),
        // A write that is only tried out must be answered too, and files nothing.
        side_effects: "NoneOnDryRun".to_owned(),
        ..validating()
    });
    ValidatingWebhookConfiguration {
        metadata: metadata(GATE),
        webhooks: Some(webhooks.collect()),
    }
}

/// `grantgate-guard` of an installation in `namespace`.
pub fn guard(namespace: &str, reach: &Reach, ca_bundle: &str) -> ValidatingWebhookConfiguration {
    let excluded = manifests::never_gated(namespace);
    let excluded: Vec<String> = excluded.iter().map(|name| cel_text::quoted(name)).collect();
    let not_excluded = format!(
        "!(has(request.userInfo.username) && request.userInfo.username in [{}])",
        excluded.join(", ")
    );
    ValidatingWebhookConfiguration {
        metadata: metadata(GUARD),
        webhooks: Some(vec![ValidatingWebhook {
            name: "guard.grantgate.dev".to_owned(),
            client_config: reach.client_config("/guard", ca_bundle),
            rules: Some(vec![
                rule(&[crate::api::GROUP], &["approvaldecisions"], &["CREATE"]),
                rule(
                    &[crate::api::GROUP],
                    &manifests::DECLARED,
                    &["CREATE", "UPDATE"],
                ),
            ]),
            match_conditions: Some(vec![condition("not-needed-while-down", &not_excluded)]),
            side_effects: "None".to_owned(),
            ..validating()
        }]),
    }
}

/// `grantgate-stamp`.
pub fn stamp(reach: &Reach, ca_bundle: &str) -> MutatingWebhookConfiguration {
    let unstamped =
        "!(has(object.spec) && has(object.spec.approver) && object.spec.approver != null)";
    MutatingWebhookConfiguration {
        metadata: metadata(STAMP),
        webhooks: Some(vec![MutatingWebhook {
            name: "stamp.grantgate.dev".to_owned(),
            client_config: reach.client_config("/stamp", ca_bundle),
            rules: Some(vec![rule(
                &[crate::api::GROUP],
                &["approvaldecisions"],
                &["CREATE"],
            )]),
            match_conditions: Some(vec![condition("unstamped", unstamped)]),
            side_effects: "None".to_owned(),
            // Another mutating webhook may have taken the stamp out again.
            reinvocation_policy: Some("IfNeeded".to_owned()),
            failure_policy: Some("Fail".to_owned()),
            match_policy: Some("Equivalent".to_owned()),
            timeout_seconds: Some(5),
            admission_review_versions: vec![API_VERSIONS.to_owned()],
            namespace_selector: Some(LabelSelector::default()),
            object_selector: Some(LabelSelector::default()),
        }]),
    }
}

fn validating() -> ValidatingWebhook {
    ValidatingWebhook {
        failure_policy: Some("Fail".to_owned()),
        match_policy: Some("Equivalent".to_owned()),
        timeout_seconds: Some(5),
        admission_review_versions: vec![API_VERSIONS.to_owned()],
        namespace_selector: Some(LabelSelector::default()),
        object_selector: Some(LabelSelector::default()),
        ..ValidatingWebhook::default()
    }
}

fn rule(groups: &[&str], resources: &[&str], operations: &[&str]) -> RuleWithOperations {
    let all = |words: &[&str]| Some(words.iter().map(|word| (*word).to_owned()).collect());
    RuleWithOperations {
        api_groups: all(groups),
        api_versions: all(&["*"]),
        operations: all(operations),
        resources: all(resources),
        scope: Some("*".to_owned()),
    }
}

fn condition(name: &str, expression: &str) -> MatchCondition {
    MatchCondition {
        name: name.to_owned(),
        expression: expression.to_owned(),
    }
}

fn metadata(name: &str) -> ObjectMeta {
    ObjectMeta {
        name: Some(name.to_owned()),
        labels: Some(manifests::labels()),
        ..ObjectMeta::default()
    }
}

/// One entry of the gate as it is installed.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Installed {
    /// Digest in its path; empty where the path is not of ours.
    pub digest: String,
    /// Field manager by which the canary's call reaches it.
    pub canary_manager: String,
    /// Whom it sends.
    pub subjects: Subjects,
}

/// The entries of an installed gate configuration.
pub fn installed(gate: &ValidatingWebhookConfiguration) -> Vec<Installed> {
    let webhooks = gate.webhooks.as_deref().unwrap_or_default();
    webhooks
        .iter()
        .enumerate()
        .map(|(number, webhook)| {
            let config = &webhook.client_config;
            let path = match (&config.service, &config.url) {
                (Some(service), _) => service.path.as_deref(),
                (None, url) => url.as_deref(),
            };
            let digest = path
                .and_then(|path| path.rsplit_once("/gate/"))
                .map_or("", |(_, digest)| digest);
            let conditions = webhook.match_conditions.as_deref().unwrap_or_default();
            Installed {
                digest: digest.to_owned(),
                canary_manager: gate_entries::canary_manager(number),
                subjects: gate_entries::subjects_of(
                    conditions
                        .iter()
                        .map(|condition| condition.expression.as_str()),
                ),
            }
        })
        .collect()
}

/// Subjects that no identity declares any more.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Leaving {
    /// Those that are still sent.
    pub subjects: Subjects,
    /// What the configuration keeps about them; `None`: nobody leaves.
    pub annotation: Option<String>,
    /// When to look again.
    pub until: Option<Timestamp>,
    /// Whether somebody left since the last look: news to be told.
    pub news: bool,
}

/// Who leaves: what the installed configuration sends and no identity declares. It goes on being sent until the time that the
/// configuration's annotation names, so that a controller that took over meanwhile does the same. Without `now`, who is declared or
/// what time it is cannot be told: nobody leaves, and whoever has left begins anew once it can.
pub fn leaving(
    live: Option<&ValidatingWebhookConfiguration>,
    declared: &Subjects,
    now: Option<Timestamp>,
) -> Leaving {
    let Some(live) = live else {
        return Leaving::default();
    };
    let mut sent = Subjects::default();
    for entry in installed(live) {
        sent.extend(&entry.subjects);
    }
    let gone = sent.without(declared);
    if gone.is_empty() {
        return Leaving::default();
    }
    let Some(now) = now else {
        return Leaving {
            subjects: gone,
            ..Leaving::default()
        };
    };
    let digest = gate_entries::hash(gone.lines());
    let known = live
        .annotations()
        .get(LEAVING_UNTIL)
        .and_then(|text| text.split_once(' '))
        .filter(|(of, _)| *of == digest)
        .and_then(|(_, until)| until.parse::<Timestamp>().ok());
    match known {
        Some(until) if until <= now => Leaving::default(),
        known => {
            let until = known.unwrap_or_else(|| now.checked_add(LEAVING).unwrap_or(now));
            Leaving {
                annotation: Some(format!("{digest} {until}")),
                subjects: gone,
                until: Some(until),
                news: known.is_none(),
            }
        }
    }
}

/// Puts what is kept about those who leave into a gate configuration.
#[must_use]
pub fn with_leaving(
    mut gate: ValidatingWebhookConfiguration,
    leaving: &Leaving,
) -> ValidatingWebhookConfiguration {
    let annotation = leaving
        .annotation
        .clone()
        .map(|text| (LEAVING_UNTIL.to_owned(), text));
    gate.metadata.annotations = annotation.map(|pair| BTreeMap::from([pair]));
    gate
}

/// What a configuration needs.
#[derive(Clone, Debug, PartialEq)]
pub enum Plan<K> {
    /// It is as it should be.
    Keep,
    /// It is not there.
    Create(K),
    /// It differs: this replaces the revision that was read.
    Replace(K),
}

/// A configuration object of ours: metadata and webhooks.
pub trait Configuration:
    Resource<DynamicType = (), Scope = kube::core::ClusterResourceScope>
    + Clone
    + std::fmt::Debug
    + PartialEq
    + Serialize
    + DeserializeOwned
{
    /// The same with another's webhooks.
    #[must_use]
    fn with_webhooks_of(self, other: &Self) -> Self;
    /// The `caBundle`s of its webhooks.
    fn ca_bundles(&self) -> Vec<&[u8]>;
}

impl Configuration for ValidatingWebhookConfiguration {
    fn with_webhooks_of(mut self, other: &Self) -> Self {
        self.webhooks.clone_from(&other.webhooks);
        self
    }

    fn ca_bundles(&self) -> Vec<&[u8]> {
        let webhooks = self.webhooks.as_deref().unwrap_or_default().iter();
        webhooks
            .map(|webhook| bundle(&webhook.client_config))
            .collect()
    }
}

impl Configuration for MutatingWebhookConfiguration {
    fn with_webhooks_of(mut self, other: &Self) -> Self {
        self.webhooks.clone_from(&other.webhooks);
        self
    }

    fn ca_bundles(&self) -> Vec<&[u8]> {
        let webhooks = self.webhooks.as_deref().unwrap_or_default().iter();
        webhooks
            .map(|webhook| bundle(&webhook.client_config))
            .collect()
    }
}

fn bundle(config: &WebhookClientConfig) -> &[u8] {
    config
        .ca_bundle
        .as_ref()
        .map_or(&[], |ByteString(bytes)| bytes)
}

/// Compares what is there with what should be. Labels and annotations of others stay.
pub fn plan<K: Configuration>(live: Option<&K>, desired: &K) -> Plan<K> {
    let Some(live) = live else {
        return Plan::Create(desired.clone());
    };
    let mut wanted = live.clone().with_webhooks_of(desired);
    wanted.labels_mut().extend(desired.labels().clone());
    wanted.annotations_mut().remove(LEAVING_UNTIL);
    wanted
        .annotations_mut()
        .extend(desired.annotations().clone());
    let mut known = live.clone();
    // Absent and empty are one.
    known.labels_mut();
    known.annotations_mut();
    if known == wanted {
        Plan::Keep
    } else {
        Plan::Replace(wanted)
    }
}

/// Reads a configuration.
pub async fn read<K: Configuration>(client: &Client, name: &str) -> Result<Option<K>, CallError> {
    let api: Api<K> = Api::all(client.clone());
    within(LIMIT, api.get_opt(name)).await
}

/// Carries a plan out and answers with what is there then. Losing the compare-and-swap is an error like others: the next round plans anew.
pub async fn apply<K: Configuration>(
    client: &Client,
    name: &str,
    live: Option<K>,
    desired: &K,
) -> Result<K, CallError> {
    let api: Api<K> = Api::all(client.clone());
    let params = PostParams {
        field_manager: Some(FIELD_OWNER.to_owned()),
        ..PostParams::default()
    };
    match (plan(live.as_ref(), desired), live) {
        (Plan::Keep, Some(live)) => Ok(live),
        (Plan::Keep, None) => Ok(desired.clone()),
        (Plan::Create(object), _) => {
            tracing::info!(name, "creating");
            within(LIMIT, api.create(&params, &object)).await
        }
        (Plan::Replace(object), _) => {
            tracing::info!(name, "replacing: it is not as it should be");
            within(LIMIT, api.replace(name, &params, &object)).await
        }
    }
}

/// The certificates that all of these trust, as PEM: what API servers hold for certain. Empty where one is missing or trusts nothing.
pub fn published(bundles: &[&[u8]]) -> String {
    let certificates = |bundle: &[u8]| {
        let parsed = pem::parse_many(bundle).unwrap_or_default();
        parsed
            .into_iter()
            .filter(|block| block.tag() == "CERTIFICATE")
            .collect::<Vec<_>>()
    };
    let mut all = bundles.iter().map(|bundle| certificates(bundle));
    let mut common = all.next().unwrap_or_default();
    for bundle in all {
        common.retain(|certificate| bundle.contains(certificate));
    }
    pem::encode_many(&common)
}

#[cfg(test)]
mod tests;
