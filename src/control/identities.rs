//! The status of AgentIdentities: whether the declaration can be used, and whether the gate was seen to hold for its subjects.

use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};
use kube::{
    Api, Client, ResourceExt,
    api::{ApiResource, DynamicObject, PostParams},
};
use serde_json::{Map, Value, json};

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
        subject, visible,
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
    /// Why it is not known for certain what it should send, or sends: then nobody is called enforced.
    pub doubt: Option<String>,
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
    let unknown = identity.spec.subjects.iter().position(subject::is_unknown);
    if let Some(at) = unknown {
        let words = format!(
            "spec.subjects[{at}] is of a kind that this version does not know, and is not sent to the gate"
        );
        return (FALSE, "UnknownSubject", words);
    }
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
        let lines = visible::visible(&lines.join(", "));
        return match &gate.refused {
            Some(why) => (
                FALSE,
                "TooManySubjects",
                format!(
                    "not sent to the gate: {lines}; the API server refused the configuration: {why}"
                ),
            ),
            None if gate.doubt.is_none() => {
                (FALSE, "NotSent", format!("not sent to the gate: {lines}"))
            }
            None => (UNKNOWN, "NotProven", gate.doubt.clone().unwrap_or_default()),
        };
    }
    if gate.proven.is_empty() {
        return (UNKNOWN, "NotTried", "no canary was answered yet".to_owned());
    }
    let entries = entries_of(identity, gate);
    let mut doubt = gate.doubt.clone();
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

/// An identity that cannot be read, with a status that says so: what it says now is not what is enforced. `None`: it says so already.
pub fn unreadable(mut object: DynamicObject, why: &str, now: Timestamp) -> Option<DynamicObject> {
    let generation = object.metadata.generation;
    let status = object.data.get("status").cloned().unwrap_or_default();
    let known = status.get("conditions").cloned().unwrap_or_default();
    let mut conditions: Vec<Condition> = serde_json::from_value(known).unwrap_or_default();
    let before = conditions.clone();
    let words = format!("it cannot be read: {}", visible::one_line(why, 512));
    let valid = observed(VALID, FALSE, "Unreadable", &words);
    conditions::set(&mut conditions, valid, generation, now);
    let words = "what it declares cannot be read; what it declared before stays with the gate";
    let enforced = observed(ENFORCED, UNKNOWN, "Unreadable", words);
    conditions::set(&mut conditions, enforced, generation, now);
    if conditions == before {
        return None;
    }
    let mut status = match status {
        Value::Object(members) => members,
        _ => Map::new(),
    };
    status.insert("conditions".to_owned(), json!(conditions));
    object
        .data
        .as_object_mut()?
        .insert("status".to_owned(), Value::Object(status));
    Some(object)
}

/// Writes the status of an identity that cannot be read, under the revision that was seen.
pub async fn write_unreadable(client: &Client, object: &DynamicObject) -> Result<(), CallError> {
    let resource = ApiResource::erase::<AgentIdentity>(&());
    let api: Api<DynamicObject> = Api::all_with(client.clone(), &resource);
    let name = object.name_any();
    let params = PostParams::default();
    within(LIMIT, api.replace_status(&name, &params, object)).await?;
    Ok(())
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
    fn what_is_in_doubt_is_not_called_enforced() {
        let bot = identity(json!([{"user": "bot"}]));
        let gate = |subjects: &[&str]| Gate {
            installed: vec![entry(subjects)],
            proven: vec![server("https://a", &[Proof::Enforced])],
            doubt: Some("nothing heard of agentidentities for 21 s".to_owned()),
            ..Gate::default()
        };
        assert_eq!(seen(&bot, &gate(&["bot"])).0, "Unknown");
        assert_eq!(
            seen(&bot, &gate(&[])).0,
            "Unknown",
            "not read is not absent"
        );
    }

    #[test]
    fn a_subject_of_an_unknown_kind_is_neither_valid_nor_enforced() {
        let newer = identity(json!([{"user": "bot"}, {"workload": {"name": "w"}}]));
        let gate = Gate {
            installed: vec![entry(&["bot"])],
            proven: vec![server("https://a", &[Proof::Enforced])],
            ..Gate::default()
        };
        assert_eq!(seen(&newer, &gate).1, "UnknownSubject");
        let problems = subject::identity_problems(&Default::default(), &[], &[], &newer);
        assert_eq!(problems.len(), 1);
        assert_eq!(problems[0].path, "spec.subjects[1]");
    }

    #[test]
    fn an_unreadable_identity_says_so_once() {
        let object: DynamicObject = serde_json::from_value(json!({
            "apiVersion": "grantgate.dev/v1alpha1", "kind": "AgentIdentity",
            "metadata": {"name": "a", "generation": 2}, "spec": {"subjects": 7},
            "status": {"conditions": [{
                "type": "Enforced", "status": "True", "reason": "Proven", "message": "",
                "lastTransitionTime": "2026-01-01T00:00:00Z",
            }]},
        }))
        .unwrap();
        let told = unreadable(object, "no subjects", Timestamp::UNIX_EPOCH).unwrap();
        let conditions: Vec<Condition> =
            serde_json::from_value(told.data["status"]["conditions"].clone()).unwrap();
        assert!(!conditions::holds(&conditions, "Enforced"));
        assert_eq!(
            conditions::get(&conditions, "Valid").unwrap().reason,
            "Unreadable"
        );
        assert_eq!(unreadable(told, "no subjects", Timestamp::MAX), None);
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
