//! The AgentIdentities as they are watched for the gate, those that cannot be read among them.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, PoisonError},
};

use kube::{
    Api, Client, ResourceExt,
    api::{ApiResource, DynamicObject},
};
use tokio::{sync::Notify, task::JoinSet};

use crate::{
    api::AgentIdentity,
    cluster::watch::{self, Change, Progress},
    decide::subject,
};

/// The identities as watched.
pub struct Watched {
    known: Mutex<Known>,
    /// How fresh they are.
    pub progress: Arc<Progress>,
}

#[derive(Default)]
struct Known {
    /// As last read: one that can no longer be read stays as it was.
    readable: BTreeMap<String, AgentIdentity>,
    /// As stored now, with what the reader said.
    unreadable: BTreeMap<String, (DynamicObject, String)>,
}

impl Default for Watched {
    fn default() -> Self {
        Self {
            known: Mutex::default(),
            progress: Progress::new("agentidentities"),
        }
    }
}

impl Watched {
    /// Follows them until the set is dropped, and wakes at each change.
    pub fn follow(
        self: &Arc<Self>,
        client: &Client,
        notify: &Arc<Notify>,
        tasks: &mut JoinSet<()>,
    ) {
        let resource = ApiResource::erase::<AgentIdentity>(&());
        let api = Api::<DynamicObject>::all_with(client.clone(), &resource);
        let (watched, notify) = (self.clone(), notify.clone());
        tasks.spawn(async move {
            let progress = watched.progress.clone();
            watch::run(api, progress, move |change| {
                watched.take(change);
                notify.notify_one();
            })
            .await;
        });
    }

    fn take(&self, change: Change) {
        let mut known = self.lock();
        match change {
            Change::Reset(objects) => {
                let names: Vec<String> = objects.iter().map(ResourceExt::name_any).collect();
                known.readable.retain(|name, _| names.contains(name));
                known.unreadable.clear();
                objects.into_iter().for_each(|object| known.put(object));
            }
            Change::Applied(object) => known.put(*object),
            Change::Deleted(object) => {
                let name = object.name_any();
                known.readable.remove(&name);
                known.unreadable.remove(&name);
            }
        }
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Known> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The oldest first: where room ends, the youngest are left out.
    pub fn by_age(&self) -> Vec<AgentIdentity> {
        let mut all: Vec<AgentIdentity> = self.lock().readable.values().cloned().collect();
        all.sort_by_key(|identity| {
            let created = identity.metadata.creation_timestamp.as_ref();
            (created.map(|time| time.0), identity.name_any())
        });
        all
    }

    /// Those of which the present state cannot be read, and why.
    pub fn unreadable(&self) -> Vec<(DynamicObject, String)> {
        self.lock().unreadable.values().cloned().collect()
    }

    /// Why it is not known who is declared: then nobody counts as gone.
    pub fn doubt(&self) -> Option<String> {
        let known = self.lock();
        if let Some(name) = known.unreadable.keys().next() {
            return Some(format!("AgentIdentity {name} cannot be read"));
        }
        let unknown = known.readable.iter().find(|(_, identity)| {
            let subjects = &identity.spec.subjects;
            subjects.iter().any(subject::is_unknown)
        });
        unknown.map(|(name, _)| {
            format!("AgentIdentity {name} has a subject of a kind that this version does not know")
        })
    }
}

impl Known {
    fn put(&mut self, mut object: DynamicObject) {
        object.managed_fields_mut().clear();
        let name = object.name_any();
        match object.clone().try_parse::<AgentIdentity>() {
            Ok(identity) => {
                self.unreadable.remove(&name);
                self.readable.insert(name, identity);
            }
            Err(error) => {
                tracing::warn!(name, %error, "an AgentIdentity cannot be read; its subjects stay as they were, and no subject leaves the gate");
                self.unreadable.insert(name, (object, error.to_string()));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use serde_json::json;

    use super::*;

    fn object(spec: serde_json::Value) -> DynamicObject {
        serde_json::from_value(json!({
            "apiVersion": "grantgate.dev/v1alpha1",
            "kind": "AgentIdentity",
            "metadata": {"name": "a"},
            "spec": spec,
        }))
        .unwrap()
    }

    #[test]
    fn an_identity_that_cannot_be_read_keeps_its_subjects_and_is_a_doubt() {
        let good = json!({"owner": {"user": "o"}, "subjects": [{"user": "bot"}]});
        let watched = Watched::default();
        watched.take(Change::Applied(Box::new(object(good.clone()))));
        assert_eq!(watched.doubt(), None);
        watched.take(Change::Applied(Box::new(object(json!({"subjects": 7})))));
        watched.take(Change::Reset(vec![object(json!({"subjects": 7}))]));
        assert_eq!(watched.by_age().len(), 1);
        assert_eq!(watched.unreadable().len(), 1);
        assert!(watched.doubt().is_some());
        watched.take(Change::Applied(Box::new(object(good))));
        assert_eq!(watched.doubt(), None);
        watched.take(Change::Reset(Vec::new()));
        assert!(watched.by_age().is_empty());
    }

    #[test]
    fn a_process_that_begins_with_an_unreadable_identity_is_in_doubt_from_the_start() {
        let watched = Watched::default();
        watched.take(Change::Reset(vec![object(json!({"subjects": 7}))]));
        assert!(watched.by_age().is_empty());
        assert!(watched.doubt().unwrap().contains("AgentIdentity a"));
    }

    #[test]
    fn a_subject_of_an_unknown_kind_is_a_doubt() {
        let newer = json!({"owner": {"user": "o"}, "subjects": [{"user": "bot"}, {"workload": {"name": "w"}}]});
        let watched = Watched::default();
        watched.take(Change::Reset(vec![object(newer)]));
        assert_eq!(watched.by_age().len(), 1);
        assert!(watched.doubt().unwrap().contains("does not know"));
    }
}
