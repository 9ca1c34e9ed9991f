//! Rights of people and agents as the API server's authorizer has them now, with answers kept for a short while.

use std::{
    collections::{BTreeSet, HashMap},
    sync::{Mutex, PoisonError},
    time::Duration,
};

use kube::{Client, ResourceExt};
use tokio::time::Instant;

use crate::{
    api::{Action, ApprovalRequest, Operation, Requester, ServiceAccountRef},
    cluster::rights::{self, Person, Right},
};

/// How long an answer about rights is good for looking.
pub const GLANCE: Duration = Duration::from_secs(5);
/// How long an answer about rights is good for what is already permitted.
pub const RECHECK: Duration = Duration::from_secs(30);
/// Answers that are kept; beyond it all are forgotten.
const MAX_ANSWERS: usize = 10_000;

/// Answers of the API server, each with its age.
pub struct Answers<K, V>(Mutex<HashMap<K, (Instant, V)>>);

impl<K, V> Default for Answers<K, V> {
    fn default() -> Self {
        Self(Mutex::default())
    }
}

impl<K: Eq + std::hash::Hash, V: Clone> Answers<K, V> {
    /// The answer, if it is younger than `age`.
    pub fn young(&self, key: &K, age: Duration) -> Option<V> {
        let answers = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let (at, answer) = answers.get(key)?;
        (at.elapsed() < age).then(|| answer.clone())
    }

    /// Keeps an answer as of now.
    pub fn keep(&self, key: K, answer: V) {
        let now = Instant::now();
        let mut answers = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if answers.len() >= MAX_ANSWERS {
            answers.clear();
        }
        answers.insert(key, (now, answer));
    }
}

/// Answers about rights, with their age.
#[derive(Default)]
pub struct Rights {
    approve: Answers<(Person, String), BTreeSet<String>>,
    other: Answers<(Person, Right), bool>,
}

impl Rights {
    /// The policies of a request that somebody may approve on, asked again if the last answer is older than `age`.
    pub async fn on(
        &self,
        client: &Client,
        person: &Person,
        request: &ApprovalRequest,
        age: Duration,
    ) -> Result<BTreeSet<String>, String> {
        let key = (person.clone(), request.uid().unwrap_or_default());
        if let Some(known) = self.approve.young(&key, age) {
            return Ok(known);
        }
        let may = rights::approvable(client, person, request)
            .await
            .map_err(|error| error.to_string())?;
        self.approve.keep(key, may.clone());
        Ok(may)
    }

    /// Whether somebody has a right, asked again if the last answer is older than `age`.
    pub async fn has(
        &self,
        client: &Client,
        person: &Person,
        right: &Right,
        age: Duration,
    ) -> Result<bool, String> {
        let key = (person.clone(), right.clone());
        if let Some(known) = self.other.young(&key, age) {
            return Ok(known);
        }
        let has = rights::allowed(client, person, right)
            .await
            .map_err(|error| error.to_string())?;
        self.other.keep(key, has);
        Ok(has)
    }
}

/// A requester whose groups follow from its name: a ServiceAccount. Others' groups are in no record, so their rights cannot be asked.
pub fn service_account(requester: &Requester) -> Option<(Person, ServiceAccountRef)> {
    let account = ServiceAccountRef::of_username(&requester.username)?;
    let person = Person {
        username: requester.username.clone(),
        uid: requester.uid.clone().unwrap_or_default(),
        groups: vec![
            "system:serviceaccounts".to_owned(),
            format!("system:serviceaccounts:{}", account.namespace),
            "system:authenticated".to_owned(),
        ],
        ..Person::default()
    };
    Some((person, account))
}

/// The rights of which a requester needs one for an action.
pub fn needed(action: &Action) -> Vec<Right> {
    let right = |verb: &str, name: &str| Right {
        verb: verb.to_owned(),
        group: action.group.clone(),
        resource: action.resource.clone(),
        subresource: action.subresource.clone().unwrap_or_default(),
        namespace: action.namespace.clone().unwrap_or_default(),
        name: name.to_owned(),
    };
    let name = action.name.as_deref().unwrap_or_default();
    match action.operation {
        // A POST names nothing when it is authorized; an apply does.
        Operation::Create => vec![right("create", ""), right("create", name)],
        Operation::Update => vec![right("update", name), right("patch", name)],
        Operation::Delete => vec![right("delete", name)],
        Operation::Connect | Operation::Unknown => Vec::new(),
    }
}

#[cfg(test)]
mod tests {
    #![allow(
        clippy::unwrap_used,
        clippy::expect_used,
        clippy::panic,
        reason = "tests"
    )]

    use super::*;

    #[test]
    fn only_of_service_accounts_the_groups_are_known() {
        let requester = |username: &str| Requester {
            username: username.to_owned(),
            ..Requester::default()
        };
        let account = requester("system:serviceaccount:agents:ops-bot");
        let (person, account) = service_account(&account).unwrap();
        assert_eq!(
            (account.namespace.as_str(), account.name.as_str()),
            ("agents", "ops-bot")
        );
        assert!(
            person
                .groups
                .contains(&"system:serviceaccounts:agents".to_owned())
        );
        assert!(service_account(&requester("oidc:ops-bot")).is_none());
    }

    #[test]
    fn an_update_needs_one_of_two_verbs() {
        let action = |operation: &str| -> Action {
            serde_json::from_value(serde_json::json!({
                "operation": operation, "group": "apps", "version": "v1", "resource": "deployments", "namespace": "web", "name": "api",
                "options": "{}",
            }))
            .unwrap()
        };
        let verbs = |operation| -> Vec<String> {
            needed(&action(operation))
                .into_iter()
                .map(|right| right.verb)
                .collect()
        };
        assert_eq!(verbs("UPDATE"), ["update", "patch"]);
        assert_eq!(verbs("DELETE"), ["delete"]);
        assert_eq!(verbs("CREATE"), ["create", "create"]);
        assert!(verbs("CONNECT").is_empty());
    }
}
