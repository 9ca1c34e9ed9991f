//! Keeps what an installation consists of: Secrets, webhook configurations, the default policy, and what is known of the gate.
//!
//! One round looks at everything and repairs what differs. Rounds are woken by changes of identities and of what is kept, and come by
//! themselves every few seconds.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use jiff::Timestamp;
use k8s_openapi::ByteString;
use k8s_openapi::api::core::v1::Secret;
use k8s_openapi::api::{
    admissionregistration::v1::{
        MutatingWebhookConfiguration, ValidatingAdmissionPolicy, ValidatingAdmissionPolicyBinding,
        ValidatingWebhookConfiguration,
    },
    coordination::v1::Lease,
};
use kube::{
    Api, Resource, ResourceExt,
    api::{ApiResource, DeleteParams, DynamicObject, ListParams, Preconditions},
};
use tokio::{sync::Notify, task::JoinSet, time::Instant};

use super::{
    Context,
    authorship::{self, AuthorshipError},
    canary,
    certificate::{self, CertificateError},
    configuration::{self, GATE, GUARD, Leaving, Reach, STAMP},
    default_policy,
    identities::{self, Gate},
    journal::{Journal, Transition},
    servers::Servers,
    wake,
};
use crate::{
    api::{AgentIdentity, ClusterApprovalPolicy},
    cluster::{
        client::{CallError, within},
        clock::ClockError,
        lease::{COMPONENT_LABEL, Replica, WEBHOOK_COMPONENT},
        secrets,
        watch::{self, Change, Progress},
    },
    decide::{
        gate_entries::{self, Subjects},
        resolve::DEFAULT_POLICY,
        subject,
    },
    manifests,
    serve::certs::Names,
};

/// Rounds come by themselves so often.
const ROUND: Duration = Duration::from_secs(10);
/// So soon while something is not proven or failed; each time twice as late, up to the second.
const SOON: [Duration; 2] = [Duration::from_millis(500), Duration::from_secs(5)];
/// A proof of all entries is repeated so often.
const PROVE_AGAIN: Duration = Duration::from_secs(30);
/// Leases of replicas that are gone for so long are removed.
const STALE_LEASE: jiff::SignedDuration = jiff::SignedDuration::from_secs(600);
const LIMIT: Duration = Duration::from_secs(10);
/// Characters of subjects in one note.
const NOTE: usize = 800;

/// What an installation is told at its start.
pub struct Settings {
    /// Where API servers find the webhook.
    pub reach: Reach,
    /// Names in the serving certificate.
    pub names: Names,
    /// The API servers.
    pub servers: Arc<Servers>,
}

/// The identities as watched.
#[derive(Default)]
struct Declared {
    identities: Mutex<BTreeMap<String, AgentIdentity>>,
}

/// Why a round did not come to its end.
#[derive(Debug, thiserror::Error)]
enum RoundError {
    #[error(transparent)]
    Clock(#[from] ClockError),
    #[error(transparent)]
    Certificate(#[from] CertificateError),
    #[error("{name}: {error}")]
    Configuration {
        name: &'static str,
        error: CallError,
    },
    #[error("ClusterApprovalPolicy {DEFAULT_POLICY}: {0}")]
    Default(CallError),
}

/// Keeps an installation for as long as it is polled.
pub async fn run(context: Arc<Context>, settings: Settings) {
    let declared = Arc::new(Declared::default());
    let notify = Arc::new(Notify::new());
    let progress = Progress::new("agentidentities");
    let mut watches = JoinSet::new();
    watch_identities(&mut watches, &context, &declared, &notify, &progress);
    watch_kept(&mut watches, &context, &notify);

    let mut keeper = Keeper {
        journal: Journal::new(context.client.clone(), context.replica.clone()),
        context,
        settings,
        declared,
        progress,
        gate: Gate::default(),
        proven_at: None,
        leases_at: None,
        key: None,
    };
    let [first, last] = SOON;
    let mut soon = first;
    loop {
        let is_well = keeper.round().await.unwrap_or_else(|error| {
            tracing::warn!(%error, "the installation is not as it should be");
            false
        });
        let next = if is_well { ROUND } else { soon };
        soon = if is_well { first } else { (soon * 2).min(last) };
        let _ = tokio::time::timeout(next, notify.notified()).await;
    }
}

fn watch_identities(
    tasks: &mut JoinSet<()>,
    context: &Context,
    declared: &Arc<Declared>,
    notify: &Arc<Notify>,
    progress: &Arc<Progress>,
) {
    let api = Api::<DynamicObject>::all_with(
        context.client.clone(),
        &ApiResource::erase::<AgentIdentity>(&()),
    );
    let (declared, notify, progress) = (declared.clone(), notify.clone(), progress.clone());
    tasks.spawn(async move {
        watch::run(api, progress, move |change| {
            declared.take(change);
            notify.notify_one();
        })
        .await;
    });
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

impl Declared {
    fn take(&self, change: Change) {
        let mut known = self.lock();
        let read = |mut object: DynamicObject| {
            object.managed_fields_mut().clear();
            let name = object.name_any();
            match object.try_parse::<AgentIdentity>() {
                Ok(identity) => Some((name, identity)),
                Err(error) => {
                    tracing::warn!(name, %error, "an AgentIdentity cannot be read; its subjects stay as they were");
                    None
                }
            }
        };
        match change {
            Change::Reset(objects) => {
                let names: Vec<String> = objects.iter().map(ResourceExt::name_any).collect();
                known.retain(|name, _| names.contains(name));
                known.extend(objects.into_iter().filter_map(read));
            }
            Change::Applied(object) => known.extend(read(*object)),
            Change::Deleted(object) => {
                known.remove(&object.name_any());
            }
        }
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, BTreeMap<String, AgentIdentity>> {
        self.identities
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }

    /// The oldest first: where room ends, the youngest are left out.
    fn by_age(&self) -> Vec<AgentIdentity> {
        let mut all: Vec<AgentIdentity> = self.lock().values().cloned().collect();
        all.sort_by_key(|identity| {
            let created = identity.metadata.creation_timestamp.as_ref();
            (created.map(|time| time.0), identity.name_any())
        });
        all
    }
}

struct Keeper {
    context: Arc<Context>,
    journal: Journal,
    settings: Settings,
    declared: Arc<Declared>,
    progress: Arc<Progress>,
    gate: Gate,
    proven_at: Option<Instant>,
    leases_at: Option<Instant>,
    key: Option<BTreeMap<String, ByteString>>,
}

impl Keeper {
    /// One look at everything. Answers whether all is as it should be.
    async fn round(&mut self) -> Result<bool, RoundError> {
        let client = self.context.client.clone();
        let namespace = self.context.namespace.clone();
        // Also the first contact: the time is known from the API server's answers.
        let key = certificate::fingerprint(&client, &namespace).await?;
        self.take_key(&key);
        let now = self.context.view.clock.now()?;
        default_policy::ensure(&client)
            .await
            .map_err(RoundError::Default)?;
        if !self.progress.synced() {
            // Without the list every subject would seem to have left.
            return Ok(false);
        }
        self.configurations(now).await?;
        let authored = self.authorship().await;
        self.prove().await;
        let written = self.statuses(now).await;
        self.stale_leases(now).await;
        let proven = self.is_proven();
        Ok(authored && proven && written)
    }

    /// The view fingerprints with the key that is there.
    fn take_key(&mut self, key: &Secret) {
        if self.key != key.data {
            self.key.clone_from(&key.data);
            match secrets::redactor(key) {
                Some(redactor) => self.context.view.set_redactor(redactor),
                None => tracing::error!(
                    name = secrets::FINGERPRINT,
                    "the Secret cannot be used: delete it to have another made"
                ),
            }
        }
    }

    async fn configurations(&mut self, now: Timestamp) -> Result<(), RoundError> {
        let context = self.context.clone();
        let client = &context.client;
        let of = |name| move |error| RoundError::Configuration { name, error };
        let gate: Option<ValidatingWebhookConfiguration> =
            configuration::read(client, GATE).await.map_err(of(GATE))?;
        let guard: Option<ValidatingWebhookConfiguration> = configuration::read(client, GUARD)
            .await
            .map_err(of(GUARD))?;
        let stamp: Option<MutatingWebhookConfiguration> = configuration::read(client, STAMP)
            .await
            .map_err(of(STAMP))?;

        let published = match (&gate, &guard, &stamp) {
            (Some(gate), Some(guard), Some(stamp)) => {
                use configuration::Configuration;
                let bundles = [gate.ca_bundles(), guard.ca_bundles(), stamp.ca_bundles()];
                configuration::published(&bundles.concat())
            }
            _ => String::new(),
        };
        let contents = certificate::serving(
            client,
            &context.namespace,
            &self.settings.names,
            &published,
            now,
        )
        .await?;
        let (reach, bundle) = (&self.settings.reach, contents.ca_bundle.as_str());

        // The guard and the stamp first: without the gate's refusal nothing else here stops on them.
        let wanted = configuration::guard(&context.namespace, reach, bundle);
        configuration::apply(client, GUARD, guard, &wanted)
            .await
            .map_err(of(GUARD))?;
        let wanted = configuration::stamp(reach, bundle);
        configuration::apply(client, STAMP, stamp, &wanted)
            .await
            .map_err(of(STAMP))?;
        self.gate_configuration(gate, bundle, now).await
    }

    async fn gate_configuration(
        &mut self,
        live: Option<ValidatingWebhookConfiguration>,
        bundle: &str,
        now: Timestamp,
    ) -> Result<(), RoundError> {
        let context = self.context.clone();
        let own = manifests::never_gated(&context.namespace);
        let identities: Vec<(String, Subjects)> = self
            .declared
            .by_age()
            .iter()
            .map(|identity| (identity.name_any(), identities::gated(identity, &own)))
            .collect();
        let mut all = Subjects::default();
        for (_, subjects) in &identities {
            all.extend(subjects);
        }
        let mut leaving = configuration::leaving(live.as_ref(), &all, now);
        leaving
            .subjects
            .usernames
            .retain(|name| !own.contains(name));
        let canary = manifests::username(&context.namespace, canary::NAME);
        let entries = gate_entries::entries(&identities, &leaving.subjects, &canary);
        let wanted = configuration::gate(&entries, &self.settings.reach, bundle);
        let wanted = configuration::with_leaving(wanted, &leaving);
        self.gate.left_out.clone_from(&entries.left_out);
        let before = live.clone();
        let installed = match configuration::apply(&context.client, GATE, live, &wanted).await {
            Ok(there) => {
                self.gate.refused = None;
                if leaving.news {
                    self.tell_leaving(&there, &leaving, now);
                }
                configuration::installed(&there)
            }
            // Refused for what it holds: the earlier one stays in force, and identities that it lacks are told so (V14).
            Err(error)
                if error.is_definite()
                    && !error.is_conflict()
                    && !error.is_already_exists()
                    && before.is_some() =>
            {
                tracing::error!(%error, "the API server refuses the gate's configuration");
                self.gate.refused = Some(error.to_string());
                before
                    .as_ref()
                    .map(configuration::installed)
                    .unwrap_or_default()
            }
            Err(error) => return Err(RoundError::Configuration { name: GATE, error }),
        };
        if installed != self.gate.installed {
            self.gate.installed = installed;
            self.gate.proven.clear();
            self.proven_at = None;
        }
        Ok(())
    }

    /// Removing an identity is an act: it is told in the audit stream and by Events, all of its subjects in as many as they need.
    fn tell_leaving(
        &self,
        gate: &ValidatingWebhookConfiguration,
        leaving: &Leaving,
        now: Timestamp,
    ) {
        let until = leaving.until.unwrap_or(now);
        for subjects in in_notes(leaving.subjects.lines()) {
            let transition = Transition {
                reason: "IdentitiesRemoved",
                note: format!(
                    "no AgentIdentity declares these any more; sent to the gate until {until}: {subjects}"
                ),
                warning: true,
                members: vec![("subjects", subjects)],
            };
            self.journal.tell(gate, &transition, now);
        }
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

    async fn prove(&mut self) {
        let now = moment();
        let fresh = self
            .proven_at
            .is_some_and(|at| now.duration_since(at) < PROVE_AGAIN);
        if fresh && self.is_proven() {
            return;
        }
        let proven = canary::prove(
            &self.settings.servers,
            &self.context.namespace,
            &self.gate.installed,
        )
        .await;
        if proven != self.gate.proven {
            tracing::info!(?proven, "canaries were answered");
        }
        self.gate.proven = proven;
        self.proven_at = Some(now);
    }

    fn is_proven(&self) -> bool {
        let proofs = self.gate.proven.iter().flat_map(|server| &server.entries);
        !self.gate.proven.is_empty()
            && proofs
                .into_iter()
                .all(|proof| *proof == canary::Proof::Enforced)
    }

    /// Writes what changed. False: something could not be written.
    async fn statuses(&self, now: Timestamp) -> bool {
        let world = self.context.view.world();
        let own = manifests::own_accounts(&self.context.namespace);
        let mut all_written = true;
        for identity in self.declared.by_age() {
            let problems =
                subject::identity_problems(&world.agents, &own, &manifests::JANITORS, &identity);
            let status = identities::plan(&identity, &problems, &self.gate, now);
            match identities::write(&self.context.client, &identity, status).await {
                Ok(_) => {}
                Err(error) if error.is_conflict() || error.is_not_found() => all_written = false,
                Err(error) => {
                    tracing::warn!(identity = identity.name_any(), %error, "its status could not be written");
                    all_written = false;
                }
            }
        }
        all_written
    }

    /// Removes Leases of replicas that are long gone.
    async fn stale_leases(&mut self, now: Timestamp) {
        let moment = moment();
        if self
            .leases_at
            .is_some_and(|at| moment.duration_since(at) < Duration::from_secs(60))
        {
            return;
        }
        self.leases_at = Some(moment);
        let api: Api<Lease> = Api::namespaced(self.context.client.clone(), &self.context.namespace);
        let labelled =
            ListParams::default().labels(&format!("{COMPONENT_LABEL}={WEBHOOK_COMPONENT}"));
        let leases = match within(LIMIT, api.list(&labelled)).await {
            Ok(leases) => leases,
            Err(error) => {
                tracing::warn!(%error, "cannot list Leases");
                return;
            }
        };
        for lease in leases.items.iter().filter(|lease| is_stale(lease, now)) {
            let name = Replica::of(lease, now).name;
            let only_this = DeleteParams {
                preconditions: Some(Preconditions {
                    resource_version: lease.resource_version(),
                    uid: lease.uid(),
                }),
                ..DeleteParams::default()
            };
            tracing::info!(lease = name, "removing the Lease of a replica that is gone");
            if let Err(error) = within(LIMIT, api.delete(&name, &only_this)).await {
                tracing::warn!(%error, lease = name, "it could not be removed");
            }
        }
    }
}

/// Lines put together so that a note of an Event holds each of the texts whole.
fn in_notes(lines: impl Iterator<Item = String>) -> Vec<String> {
    let mut notes: Vec<String> = Vec::new();
    for line in lines {
        match notes.last_mut() {
            Some(note) if note.chars().count() + line.chars().count() < NOTE => {
                note.push_str(", ");
                note.push_str(&line);
            }
            _ => notes.push(line),
        }
    }
    notes
}

/// Whether a replica's Lease ran out long ago.
fn is_stale(lease: &Lease, now: Timestamp) -> bool {
    let spec = lease.spec.as_ref();
    let renewed = spec.and_then(|spec| spec.renew_time.as_ref());
    let last = renewed
        .map(|time| time.0)
        .or_else(|| lease.meta().creation_timestamp.as_ref().map(|time| time.0));
    last.is_some_and(|last| now.duration_since(last) > STALE_LEASE)
}

fn moment() -> Instant {
    Instant::now()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use serde_json::json;

    use super::*;

    #[test]
    fn only_leases_that_ran_out_long_ago_are_removed() {
        let lease: Lease = serde_json::from_value(json!({
            "metadata": {"name": "r"},
            "spec": {"renewTime": "2026-01-01T10:00:00.000000Z"},
        }))
        .unwrap();
        let at = |text: &str| text.parse::<Timestamp>().unwrap();
        assert!(!is_stale(&lease, at("2026-01-01T10:00:20Z")));
        assert!(is_stale(&lease, at("2026-01-01T10:11:00Z")));
        assert!(!is_stale(&Lease::default(), at("2026-01-01T10:11:00Z")));
    }

    #[test]
    fn every_subject_that_leaves_stands_in_a_note() {
        let line = |number| format!("user {number}-{}", "x".repeat(200));
        let notes = in_notes((0..10).map(line));
        assert!(notes.len() > 1 && notes.iter().all(|note| note.len() <= NOTE + 2));
        let all = notes.join(", ");
        assert!((0..10).all(|number| all.contains(&line(number))));
    }

    #[test]
    fn an_identity_that_cannot_be_read_keeps_its_subjects() {
        let object = |spec: serde_json::Value| -> DynamicObject {
            serde_json::from_value(json!({
                "apiVersion": "grantgate.dev/v1alpha1",
                "kind": "AgentIdentity",
                "metadata": {"name": "a"},
                "spec": spec,
            }))
            .unwrap()
        };
        let good = json!({"owner": {"user": "o"}, "subjects": [{"user": "bot"}]});
        let declared = Declared::default();
        declared.take(Change::Applied(Box::new(object(good))));
        declared.take(Change::Applied(Box::new(object(json!({"subjects": 7})))));
        declared.take(Change::Reset(vec![object(json!({"subjects": 7}))]));
        assert_eq!(declared.by_age().len(), 1);
        declared.take(Change::Reset(Vec::new()));
        assert!(declared.by_age().is_empty());
    }
}
