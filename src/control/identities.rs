//! The status of AgentIdentities: whether the declaration can be used, and whether the gate was seen to hold for its subjects.

use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube::{Api, Client, ResourceExt, api::PostParams};

use super::{
    canary::{Proof, Proven},
    configuration::Installed,
};
use crate::{
    api::{AgentIdentity, AgentIdentityStatus, agent_identity::SeenEndpoint},
    cluster::client::{CallError, within},
    decide::{
        conditions::{self, ENFORCED, FALSE, Observed, TRUE, UNKNOWN, VALID},
        gate_entries::Subjects,
        policy::Problem,
        record::whole_seconds,
    },
};

const LIMIT: Duration = Duration::from_secs(10);

/// What is known of the gate.
#[derive(Clone, Debug, Default)]
pub struct Gate {
    /// Its entries as installed.
    pub installed: Vec<Installed>,
    /// Identities that found no room, by name.
    pub left_out: Vec<String>,
    /// Why the API server refused the newest configuration, if it did.
    pub refused: Option<String>,
    /// What canaries showed; empty before the first.
    pub proven: Vec<Proven>,
}

/// The subjects of an identity that are sent to the gate: all but `never`, our own accounts, for whose calls the gate would wait on
/// itself, and those that remove namespaces and dependents.
pub fn gated(identity: &AgentIdentity, never: &[String]) -> Subjects {
    let mut subjects = Subjects::of(&identity.spec.subjects);
    subjects.usernames.retain(|name| !never.contains(name));
    subjects
}

/// The status that an identity should have.
pub fn plan(
    identity: &AgentIdentity,
    problems: &[Problem],
    gate: &Gate,
    now: Timestamp,
) -> AgentIdentityStatus {
    let mut status = identity.status.clone().unwrap_or_default();
    let generation = identity.metadata.generation;
    let words: Vec<String> = problems.iter().map(ToString::to_string).collect();
    let words = words.join("; ");
    let valid = if problems.is_empty() {
        observed(
            VALID,
            TRUE,
            "Valid",
            "every subject stands in this identity only",
        )
    } else {
        observed(VALID, FALSE, "Invalid", &words)
    };
    conditions::set(&mut status.conditions, valid, generation, now);

    let (state, reason, message) = enforced(identity, gate);
    let enforced = observed(ENFORCED, state, reason, &message);
    conditions::set(&mut status.conditions, enforced, generation, now);

    let entries = entries_of(identity, gate);
    let before = std::mem::take(&mut status.endpoints);
    status.endpoints = gate
        .proven
        .iter()
        .map(|server| {
            let enforced = server.of(entries.iter().copied()) == Proof::Enforced;
            // The moment when this was first seen, so that seeing it again writes nothing.
            let same = before
                .iter()
                .find(|seen| seen.url == server.url && seen.enforced == enforced);
            let at = same.map_or_else(|| Time(whole_seconds(now)), |seen| seen.at.clone());
            SeenEndpoint {
                url: server.url.clone(),
                enforced,
                at,
            }
        })
        .collect();
    status
}

fn observed<'a>(kind: &'a str, status: &'a str, reason: &'a str, message: &'a str) -> Observed<'a> {
    Observed {
        kind,
        status,
        reason,
        message,
    }
}

/// The first entry, which sends whoever carries the extra key, and those that hold a subject.
fn entries_of(identity: &AgentIdentity, gate: &Gate) -> Vec<usize> {
    let subjects = Subjects::of(&identity.spec.subjects);
    let holds = |entry: &Installed| {
        !subjects.usernames.is_disjoint(&entry.subjects.usernames)
            || !subjects.groups.is_disjoint(&entry.subjects.groups)
    };
    let entries = gate.installed.iter().enumerate();
    entries
        .filter(|(number, entry)| *number == 0 || holds(entry))
        .map(|(number, _)| number)
        .collect()
}

fn enforced(identity: &AgentIdentity, gate: &Gate) -> (&'static str, &'static str, String) {
    let name = identity.name_any();
    if gate.left_out.contains(&name) {
        let words = "the gate's configuration has no room for its subjects: older identities fill it. Use groups instead of many names";
        return (FALSE, "TooManySubjects", words.to_owned());
    }
    let mut sent = Subjects::default();
    for entry in &gate.installed {
        sent.extend(&entry.subjects);
    }
    let missing = Subjects::of(&identity.spec.subjects).without(&sent);
    if !missing.is_empty() {
        let lines: Vec<String> = missing.lines().take(3).collect();
        let lines = crate::decide::visible::visible(&lines.join(", "));
        return match &gate.refused {
            Some(why) => (
                FALSE,
                "TooManySubjects",
                format!(
                    "not sent to the gate: {lines}; the API server refused the configuration: {why}"
                ),
            ),
            None => (FALSE, "NotSent", format!("not sent to the gate: {lines}")),
        };
    }
    if gate.proven.is_empty() {
        return (UNKNOWN, "NotTried", "no canary was answered yet".to_owned());
    }
    let entries = entries_of(identity, gate);
    let mut doubt = None;
    for server in &gate.proven {
        match server.of(entries.iter().copied()) {
            Proof::Enforced => {}
            Proof::NotEnforced => {
                let words = format!("through {} a canary was admitted", server.url);
                return (FALSE, "NotEnforced", words);
            }
            Proof::Unknown(why) => {
                doubt.get_or_insert(format!("through {}: {why}", server.url));
            }
        }
    }
    match doubt {
        Some(words) => (UNKNOWN, "NotProven", words),
        None => (
            TRUE,
            "Proven",
            format!(
                "canaries were refused by the gate through {} API servers",
                gate.proven.len()
            ),
        ),
    }
}

/// Writes a status if it differs, under the revision that was read. Whether it was written.
pub async fn write(
    client: &Client,
    identity: &AgentIdentity,
    status: AgentIdentityStatus,
) -> Result<bool, CallError> {
    if identity.status.as_ref() == Some(&status) {
        return Ok(false);
    }
    let api: Api<AgentIdentity> = Api::all(client.clone());
    let mut changed = identity.clone();
    changed.status = Some(status);
    within(
        LIMIT,
        api.replace_status(&identity.name_any(), &PostParams::default(), &changed),
    )
    .await?;
    Ok(true)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use serde_json::json;

    use super::*;

    fn identity(subjects: serde_json::Value) -> AgentIdentity {
        serde_json::from_value(json!({
            "apiVersion": "grantgate.dev/v1alpha1",
            "kind": "AgentIdentity",
            "metadata": {"name": "ops-bot", "generation": 3},
            "spec": {"owner": {"group": "team-platform"}, "subjects": subjects},
        }))
        .unwrap()
    }

    fn entry(usernames: &[&str]) -> Installed {
        let usernames = usernames.iter().map(|name| (*name).to_owned()).collect();
        Installed {
            digest: "d".to_owned(),
            canary_manager: String::new(),
            subjects: Subjects {
                usernames,
                ..Subjects::default()
            },
        }
    }

    fn server(url: &str, entries: &[Proof]) -> Proven {
        Proven {
            url: url.to_owned(),
            entries: entries.to_vec(),
        }
    }

    fn seen(identity: &AgentIdentity, gate: &Gate) -> (String, String) {
        let status = plan(identity, &[], gate, Timestamp::UNIX_EPOCH);
        let enforced = conditions::get(&status.conditions, "Enforced").unwrap();
        (enforced.status.clone(), enforced.reason.clone())
    }

    #[test]
    fn enforced_needs_a_proof_of_its_entries_through_every_server() {
        let bot = identity(json!([{"user": "bot"}]));
        let unknown = Proof::Unknown("x".to_owned());
        let gate = |first: &[Proof], second: &[Proof]| Gate {
            installed: vec![entry(&[]), entry(&["bot"]), entry(&["other"])],
            proven: vec![server("https://a", first), server("https://b", second)],
            ..Gate::default()
        };
        let good = [Proof::Enforced, Proof::Enforced, Proof::NotEnforced];
        let is = |gate: Gate, status: &str| assert_eq!(seen(&bot, &gate).0, status);
        is(gate(&good, &good), "True");
        is(
            gate(
                &good,
                &[Proof::NotEnforced, Proof::Enforced, unknown.clone()],
            ),
            "False",
        );
        is(
            gate(
                &good,
                &[Proof::Enforced, Proof::NotEnforced, unknown.clone()],
            ),
            "False",
        );
        is(
            gate(&good, &[Proof::Enforced, unknown, Proof::Enforced]),
            "Unknown",
        );
        is(gate(&good, &[]), "Unknown");
    }

    #[test]
    fn what_is_not_sent_is_not_enforced() {
        let bot = identity(json!([{"user": "bot"}]));
        let mut gate = Gate {
            installed: vec![entry(&[])],
            proven: vec![server("https://a", &[Proof::Enforced])],
            ..Gate::default()
        };
        let is = |gate: &Gate, reason: &str| {
            let seen = seen(&bot, gate);
            assert_eq!((seen.0.as_str(), seen.1.as_str()), ("False", reason));
        };
        is(&gate, "NotSent");
        gate.refused = Some("too long".to_owned());
        is(&gate, "TooManySubjects");
        gate.left_out = vec!["ops-bot".to_owned()];
        is(&gate, "TooManySubjects");
    }

    #[test]
    fn seeing_the_same_again_changes_nothing() {
        let mut bot = identity(json!([{"user": "bot"}]));
        let gate = Gate {
            installed: vec![entry(&["bot"])],
            proven: vec![server("https://a", &[Proof::Enforced])],
            ..Gate::default()
        };
        let first = plan(&bot, &[], &gate, Timestamp::UNIX_EPOCH);
        bot.status = Some(first.clone());
        let later = Timestamp::from_second(600).unwrap();
        assert_eq!(plan(&bot, &[], &gate, later), first);
    }

    #[test]
    fn our_own_accounts_and_those_that_remove_things_are_never_gated() {
        let own = crate::manifests::never_gated("grantgate-system");
        let bot = identity(json!([
            {"user": "bot"},
            {"serviceAccount": {"namespace": "grantgate-system", "name": "grantgate-webhook"}},
            {"serviceAccount": {"namespace": "kube-system", "name": "namespace-controller"}},
        ]));
        let gated = gated(&bot, &own);
        assert_eq!(gated.usernames.len(), 1);
        let gate = Gate {
            installed: vec![entry(&["bot"])],
            ..Gate::default()
        };
        assert_eq!(seen(&bot, &gate).1, "NotSent");
    }
}
