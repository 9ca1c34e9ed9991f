//! The gate's part of a round: its configuration, what canaries show of it, and what identities are told. It waits for nothing else,
//! so whatever is broken beside it, a new agent is gated, and what is not proven now is not called proven.

use jiff::Timestamp;
use k8s_openapi::api::admissionregistration::v1::ValidatingWebhookConfiguration;
use kube::ResourceExt;
use tokio::time::Instant;

use super::{Keeper, PROVE_AGAIN, done};
use crate::{
    cluster::{client::CallError, clock::Clock},
    control::{
        canary,
        configuration::{self, Configuration, GATE, Leaving},
        identities,
        journal::{Journal, Transition},
    },
    decide::{
        gate_entries::{self, Subjects},
        subject,
    },
    manifests,
};

/// Characters of subjects in one note.
const NOTE: usize = 800;

/// Why the gate's configuration is not as it should be.
#[derive(Debug, thiserror::Error)]
enum GateError {
    #[error("it cannot be read: {0}")]
    Read(CallError),
    #[error("it cannot be written: {0}")]
    Write(CallError),
}

impl Keeper {
    /// Brings the gate's configuration to what is declared. Whether it is there.
    pub(super) async fn keep_gate(&mut self) -> bool {
        match self.configure_gate().await {
            Ok(is_there) => is_there,
            error => done(GATE, error.map(|_| ())),
        }
    }

    async fn configure_gate(&mut self) -> Result<bool, GateError> {
        self.gate.doubt = None;
        let context = self.context.clone();
        let live = match configuration::read(&context.client, GATE).await {
            Ok(live) => live,
            Err(error) => {
                let error = GateError::Read(error);
                self.gate.doubt = Some(format!("the gate's configuration: {error}"));
                return Err(error);
            }
        };
        self.installed(live.as_ref());
        if !self.watched.progress.synced() {
            // Without the list every subject would seem to have left.
            return Ok(false);
        }
        let fresh = self.watched.progress.fresh();
        if let Err(error) = &fresh {
            self.gate.doubt = Some(error.to_string());
        }
        // A gate that is there need not wait for the certificate to be read: it goes on trusting what it trusts.
        let Some(bundle) = self.bundle.clone().or_else(|| trusted(live.as_ref())) else {
            return Ok(false);
        };

        let own = manifests::never_gated(&context.namespace);
        let identities: Vec<(String, Subjects)> = self
            .watched
            .by_age()
            .iter()
            .map(|identity| (identity.name_any(), identities::gated(identity, &own)))
            .collect();
        let mut all = Subjects::default();
        for (_, subjects) in &identities {
            all.extend(subjects);
        }
        let unsure = match fresh {
            Ok(()) => self.watched.doubt(),
            Err(error) => Some(error.to_string()),
        };
        let clock = context.view.clock.now();
        let now = clock.as_ref().ok().filter(|_| unsure.is_none()).copied();
        let mut leaving = configuration::leaving(live.as_ref(), &all, now);
        if now.is_none() && !leaving.subjects.is_empty() {
            let why = unsure.or_else(|| clock.err().map(|error| error.to_string()));
            tracing::warn!(
                why,
                "subjects that nobody seems to declare are sent to the gate for as long as that is not certain"
            );
        }
        leaving
            .subjects
            .usernames
            .retain(|name| !own.contains(name));
        let canary = manifests::username(&context.namespace, canary::NAME);
        let entries = gate_entries::entries(&identities, &leaving.subjects, &canary);
        let wanted = configuration::gate(&entries, &self.settings.reach, &bundle);
        let wanted = configuration::with_leaving(wanted, &leaving);
        self.gate.left_out.clone_from(&entries.left_out);
        let was_there = live.is_some();
        match configuration::apply(&context.client, GATE, live, &wanted).await {
            Ok(there) => {
                self.gate.refused = None;
                self.installed(Some(&there));
                if let Some(now) = now.filter(|_| leaving.news) {
                    tell_leaving(&self.journal, &there, &leaving, now);
                }
                Ok(true)
            }
            // Refused for what it holds: the earlier one stays in force, and identities that it lacks are told so (V14).
            Err(error)
                if error.is_definite()
                    && !error.is_conflict()
                    && !error.is_already_exists()
                    && was_there =>
            {
                tracing::error!(%error, "the API server refuses the gate's configuration");
                self.gate.refused = Some(error.to_string());
                Ok(true)
            }
            Err(error) => Err(GateError::Write(error)),
        }
    }

    /// Takes note of what is installed. What was proven of other entries proves nothing of these.
    fn installed(&mut self, there: Option<&ValidatingWebhookConfiguration>) {
        let installed = there.map(configuration::installed).unwrap_or_default();
        if installed != self.gate.installed {
            self.gate.installed = installed;
            self.gate.proven.clear();
            self.proven_at = None;
        }
    }

    /// Tries the entries through every API server, unless they were proven lately.
    pub(super) async fn prove(&mut self) {
        let now = Instant::now();
        let fresh = self
            .proven_at
            .is_some_and(|at| now.duration_since(at) < PROVE_AGAIN);
        if (fresh && self.is_proven()) || self.gate.installed.is_empty() {
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

    pub(super) fn is_proven(&self) -> bool {
        let proofs = self.gate.proven.iter().flat_map(|server| &server.entries);
        !self.gate.proven.is_empty()
            && proofs
                .into_iter()
                .all(|proof| *proof == canary::Proof::Enforced)
    }

    /// Writes what changed. False: something could not be written.
    pub(super) async fn statuses(&self) -> bool {
        let client = &self.context.client;
        // What is seen is said also while the time is in doubt: only transition times stand on it.
        let clock = &self.context.view.clock;
        let now = clock.now().unwrap_or_else(|_| Clock::local());
        let world = self.context.view.world();
        let own = manifests::own_accounts(&self.context.namespace);
        let unreadable = self.watched.unreadable();
        let mut all_written = true;
        for identity in self.watched.by_age() {
            let name = identity.name_any();
            if unreadable
                .iter()
                .any(|(object, _)| object.name_any() == name)
            {
                continue;
            }
            let problems =
                subject::identity_problems(&world.agents, &own, &manifests::JANITORS, &identity);
            let status = identities::plan(&identity, &problems, &self.gate, now);
            let answer = identities::write(client, &identity, status).await;
            all_written &= was_written(&name, answer.map(|_| ()));
        }
        for (object, why) in unreadable {
            let name = object.name_any();
            all_written &= match identities::unreadable(object, &why, now) {
                Some(status) => {
                    was_written(&name, identities::write_unreadable(client, &status).await)
                }
                None => true,
            };
        }
        all_written
    }
}

fn was_written(identity: &str, answer: Result<(), CallError>) -> bool {
    match answer {
        Ok(()) => true,
        Err(error) if error.is_conflict() || error.is_not_found() => false,
        Err(error) => {
            tracing::warn!(identity, %error, "its status could not be written");
            false
        }
    }
}

/// What an installed gate trusts.
fn trusted(live: Option<&ValidatingWebhookConfiguration>) -> Option<String> {
    let bundles = live?.ca_bundles();
    let bundle = bundles.into_iter().find(|bundle| !bundle.is_empty())?;
    String::from_utf8(bundle.to_vec()).ok()
}

/// Removing an identity is an act: it is told in the audit stream and by Events, all of its subjects in as many as they need.
fn tell_leaving(
    journal: &Journal,
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
        journal.tell(gate, &transition, now);
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_subject_that_leaves_stands_in_a_note() {
        let line = |number| format!("user {number}-{}", "x".repeat(200));
        let notes = in_notes((0..10).map(line));
        assert!(notes.len() > 1 && notes.iter().all(|note| note.len() <= NOTE + 2));
        let all = notes.join(", ");
        assert!((0..10).all(|number| all.contains(&line(number))));
    }
}
