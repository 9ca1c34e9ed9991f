//! Keeps what an installation consists of: Secrets, webhook configurations, the default policy, and what is known of the gate.
//!
//! One round looks at everything and repairs what differs, the gate before all else; a step that fails stops no other. Rounds are woken
//! by changes of identities and of what is kept, and come by themselves every few seconds.

use std::{collections::BTreeMap, fmt::Display, sync::Arc, time::Duration};

use jiff::Timestamp;
use k8s_openapi::ByteString;
use k8s_openapi::api::admissionregistration::v1::{
    MutatingWebhookConfiguration, ValidatingAdmissionPolicy, ValidatingAdmissionPolicyBinding,
    ValidatingWebhookConfiguration,
};
use kube::Api;
use tokio::{sync::Notify, task::JoinSet, time::Instant};

use super::{
    Context,
    authorship::{self, AuthorshipError},
    certificate::{self, CertificateError},
    configuration::{self, Configuration, GATE, GUARD, Reach, STAMP},
    default_policy,
    identities::Gate,
    journal::Journal,
    servers::Servers,
    wake,
};
use crate::{
    api::ClusterApprovalPolicy,
    cluster::{background, client::CallError, secrets},
    decide::resolve::DEFAULT_POLICY,
    serve::certs::Names,
};

mod gate;
mod replicas;
mod watched;

use replicas::Replicas;
use watched::Watched;

/// Rounds come by themselves so often.
const ROUND: Duration = Duration::from_secs(10);
/// So soon while something is not proven or failed; each time twice as late, up to the second.
const SOON: [Duration; 2] = [Duration::from_millis(500), Duration::from_secs(5)];
/// A proof of all entries is repeated so often.
const PROVE_AGAIN: Duration = Duration::from_secs(30);

/// What an installation is told at its start.
pub struct Settings {
    /// Where API servers find the webhook.
    pub reach: Reach,
    /// Names in the serving certificate.
    pub names: Names,
    /// The API servers.
    pub servers: Arc<Servers>,
}

/// Keeps an installation for as long as it is polled. Returns only when a watch of it has ended.
pub async fn run(context: Arc<Context>, settings: Settings) {
    let watched = Arc::new(Watched::default());
    let notify = Arc::new(Notify::new());
    let mut watches = JoinSet::new();
    watched.follow(&context.client, &notify, &mut watches);
    watch_kept(&mut watches, &context, &notify);

    let mut keeper = Keeper {
        journal: Journal::new(context.client.clone(), context.replica.clone()),
        context,
        settings,
        watched,
        gate: Gate::default(),
        bundle: None,
        proven_at: None,
        replicas: Replicas::default(),
        key: None,
    };
    let [first, last] = SOON;
    let mut soon = first;
    loop {
        let is_well = keeper.round().await;
        let next = if is_well { ROUND } else { soon };
        soon = if is_well { first } else { (soon * 2).min(last) };
        tokio::select! {
            _ = tokio::time::timeout(next, notify.notified()) => {}
            words = background::first_to_end(&mut watches) => {
                tracing::error!(words, "a watch of the installation has ended");
                return;
            }
        }
    }
}

/// Drift is repaired when it happens.
fn watch_kept(tasks: &mut JoinSet<()>, context: &Context, notify: &Arc<Notify>) {
    let client = &context.client;
    for name in [GATE, GUARD] {
        let api = Api::<ValidatingWebhookConfiguration>::all(client.clone());
        tasks.spawn(wake::on_changes(api, name, notify.clone()));
    }
    let api = Api::<MutatingWebhookConfiguration>::all(client.clone());
    tasks.spawn(wake::on_changes(api, STAMP, notify.clone()));
    let api = Api::<ValidatingAdmissionPolicy>::all(client.clone());
    tasks.spawn(wake::on_changes(api, authorship::POLICY, notify.clone()));
    let api = Api::<ValidatingAdmissionPolicyBinding>::all(client.clone());
    tasks.spawn(wake::on_changes(api, authorship::POLICY, notify.clone()));
    let api = Api::<ClusterApprovalPolicy>::all(client.clone());
    tasks.spawn(wake::on_changes(api, default_policy::NAME, notify.clone()));
}

struct Keeper {
    context: Arc<Context>,
    journal: Journal,
    settings: Settings,
    watched: Arc<Watched>,
    gate: Gate,
    /// What the webhook configurations should trust; `None` before the certificate was read.
    bundle: Option<String>,
    proven_at: Option<Instant>,
    replicas: Replicas,
    key: Option<BTreeMap<String, ByteString>>,
}

/// Whether a step came to its end. One that failed is said, and stops no other.
fn done<E: Display>(step: &'static str, outcome: Result<(), E>) -> bool {
    if let Err(error) = &outcome {
        tracing::warn!(step, %error, "the installation is not as it should be");
    }
    outcome.is_ok()
}

impl Keeper {
    /// One look at everything. Answers whether all is as it should be.
    async fn round(&mut self) -> bool {
        let client = self.context.client.clone();
        let mut gated = self.keep_gate().await;
        if self.settings.servers.look(&client).await {
            self.proven_at = None;
        }
        self.prove().await;
        let mut written = self.statuses().await;

        let key = self.fingerprint().await;
        let mut well = done("fingerprint key", key);
        well &= done(DEFAULT_POLICY, default_policy::ensure(&client).await);
        let now = self.context.view.clock.now();
        if let Ok(now) = now {
            let known = self.bundle.clone();
            well &= done("certificate", self.certificate(now).await);
            if self.bundle != known {
                gated = self.keep_gate().await;
                self.prove().await;
                written = self.statuses().await;
            }
        }
        well &= done("time", now.map(|_| ()));
        if let Some(bundle) = self.bundle.clone() {
            let namespace = &self.context.namespace;
            let wanted = configuration::guard(namespace, &self.settings.reach, &bundle);
            well &= done(GUARD, keep(&self.context, GUARD, &wanted).await);
            let wanted = configuration::stamp(&self.settings.reach, &bundle);
            well &= done(STAMP, keep(&self.context, STAMP, &wanted).await);
        }
        well &= self.authorship().await;
        if let Ok(now) = now {
            let namespace = &self.context.namespace;
            self.replicas.tidy(&client, namespace, now).await;
        }
        well && gated && written && self.is_proven()
    }

    /// The view fingerprints with the key that is there.
    async fn fingerprint(&mut self) -> Result<(), CertificateError> {
        let context = &self.context;
        let key = certificate::fingerprint(&context.client, &context.namespace).await?;
        if self.key != key.data {
            self.key.clone_from(&key.data);
            match secrets::redactor(&key) {
                Some(redactor) => context.view.set_redactor(redactor),
                None => tracing::error!(
                    name = secrets::FINGERPRINT,
                    "the Secret cannot be used: delete it to have another made"
                ),
            }
        }
        Ok(())
    }

    /// Looks after the certificate, and learns what the configurations should trust.
    async fn certificate(&mut self, now: Timestamp) -> Result<(), CertificateError> {
        let (client, namespace) = (&self.context.client, &self.context.namespace);
        let trusts = CertificateError::Configurations;
        let gate: Option<ValidatingWebhookConfiguration> =
            configuration::read(client, GATE).await.map_err(trusts)?;
        let guard: Option<ValidatingWebhookConfiguration> =
            configuration::read(client, GUARD).await.map_err(trusts)?;
        let stamp: Option<MutatingWebhookConfiguration> =
            configuration::read(client, STAMP).await.map_err(trusts)?;
        let published = match (&gate, &guard, &stamp) {
            (Some(gate), Some(guard), Some(stamp)) => {
                let bundles = [gate.ca_bundles(), guard.ca_bundles(), stamp.ca_bundles()];
                configuration::published(&bundles.concat())
            }
            _ => String::new(),
        };
        let names = &self.settings.names;
        let contents = certificate::serving(client, namespace, names, &published, now).await?;
        self.bundle = Some(contents.ca_bundle);
        Ok(())
    }

    async fn authorship(&self) -> bool {
        let context = &self.context;
        let now = || context.view.clock.now().ok();
        let since = authorship::since(
            &context.client,
            &self.settings.servers,
            &context.namespace,
            now,
        )
        .await;
        match since {
            Ok(since) => {
                context.guard_since.set(since);
                since.is_some()
            }
            Err(error) => {
                tracing::warn!(%error, "it is not proven who decides, so no vote counts");
                // One failed call says nothing about what was proven.
                if !matches!(error, AuthorshipError::Call(_)) {
                    context.guard_since.set(None);
                }
                false
            }
        }
    }
}

/// Brings one configuration to what it should be.
async fn keep<K: Configuration>(
    context: &Context,
    name: &'static str,
    wanted: &K,
) -> Result<(), CallError> {
    let live = configuration::read(&context.client, name).await?;
    configuration::apply(&context.client, name, live, wanted).await?;
    Ok(())
}
