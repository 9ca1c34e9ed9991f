//! Objects of one kind as the API server has them, each with the revision at which its present generation was first seen.

use std::{
    collections::BTreeMap,
    sync::{
        Arc, PoisonError, RwLock,
        atomic::{AtomicU64, Ordering},
    },
};

use kube::{
    Api, Client, Resource,
    api::{ApiResource, DynamicObject},
};
use serde::de::DeserializeOwned;
use tokio::{sync::watch, task::JoinSet};

use crate::cluster::{
    index::{Key, is_older, key},
    watch::{self as follow, Change, Progress},
};

/// Kinds that a store can keep.
pub trait Kept:
    Resource<DynamicType = ()> + Clone + DeserializeOwned + std::fmt::Debug + Send + Sync + 'static
{
}

impl<K> Kept for K where
    K: Resource<DynamicType = ()>
        + Clone
        + DeserializeOwned
        + std::fmt::Debug
        + Send
        + Sync
        + 'static
{
}

/// One object.
#[derive(Clone, Debug)]
pub struct Entry<K> {
    /// As it was seen last.
    pub object: Arc<K>,
    /// The resourceVersion at which its generation was first seen here: writes of status do not move it.
    pub since: String,
}

/// Those that can be read, and for the others what is stored and why it cannot.
#[derive(Debug)]
struct Objects<K> {
    readable: BTreeMap<Key, Entry<K>>,
    unreadable: BTreeMap<Key, Unread>,
}

impl<K> Default for Objects<K> {
    fn default() -> Self {
        Self {
            readable: BTreeMap::new(),
            unreadable: BTreeMap::new(),
        }
    }
}

/// An object that cannot be read.
#[derive(Clone, Debug)]
pub struct Unread {
    /// Its namespace, empty for cluster kinds.
    pub namespace: String,
    /// Its name.
    pub name: String,
    /// What is stored.
    pub data: serde_json::Value,
    /// Why it cannot be read.
    pub why: String,
}

/// Reads an object as one of a kind.
pub fn read<K: Kept>(object: DynamicObject) -> Result<K, Unread> {
    let (namespace, name) = key(&object);
    let data = object.data.clone();
    object.try_parse::<K>().map_err(|error| Unread {
        namespace,
        name,
        data,
        why: error.to_string(),
    })
}

/// Objects of one kind.
#[derive(Debug)]
pub struct Store<K> {
    objects: RwLock<Objects<K>>,
    progress: Arc<Progress>,
    version: AtomicU64,
    wake: Arc<watch::Sender<u64>>,
}

impl<K: Kept> Store<K> {
    /// An empty store. `plural` names the resource in log lines; each change wakes who listens to `wake`.
    pub fn new(plural: &'static str, wake: &Arc<watch::Sender<u64>>) -> Arc<Self> {
        Arc::new(Self {
            objects: RwLock::default(),
            progress: Progress::new(plural),
            version: AtomicU64::new(0),
            wake: wake.clone(),
        })
    }

    /// Follows one kind, everywhere or in one namespace, until the set is dropped.
    pub fn follow(
        self: &Arc<Self>,
        client: &Client,
        namespace: Option<&str>,
        tasks: &mut JoinSet<()>,
    ) {
        let resource = ApiResource::erase::<K>(&());
        let api: Api<DynamicObject> = match namespace {
            Some(namespace) => Api::namespaced_with(client.clone(), namespace, &resource),
            None => Api::all_with(client.clone(), &resource),
        };
        let store = self.clone();
        tasks.spawn(async move {
            let progress = store.progress.clone();
            follow::run(api, progress, move |change| store.take(change)).await;
        });
    }

    /// How fresh it is.
    pub fn progress(&self) -> &Progress {
        &self.progress
    }

    /// Moves with each change. Read before the objects, it is never newer than they are.
    pub fn version(&self) -> u64 {
        self.version.load(Ordering::Acquire)
    }

    /// Every object, by namespace and name.
    pub fn all(&self) -> Vec<Entry<K>> {
        self.read().readable.values().cloned().collect()
    }

    /// Every object that is stored and cannot be read.
    pub fn unreadable(&self) -> Vec<Unread> {
        self.read().unreadable.values().cloned().collect()
    }

    /// One object.
    pub fn get(&self, namespace: &str, name: &str) -> Option<Entry<K>> {
        self.read()
            .readable
            .get(&(namespace.to_owned(), name.to_owned()))
            .cloned()
    }

    /// Takes the answer to a write of ours, unless something newer is there.
    pub fn put(&self, object: K) {
        let key = key(&object);
        let mut objects = self.objects.write().unwrap_or_else(PoisonError::into_inner);
        insert(&mut objects.readable, key, object);
        self.version.fetch_add(1, Ordering::Release);
    }

    fn read(&self) -> std::sync::RwLockReadGuard<'_, Objects<K>> {
        self.objects.read().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes what a watch says.
    pub fn take(&self, change: Change) {
        let mut objects = self.objects.write().unwrap_or_else(PoisonError::into_inner);
        match change {
            Change::Applied(object) => put_dynamic(&mut objects, *object),
            Change::Deleted(object) => {
                let key = key(&*object);
                objects.readable.remove(&key);
                objects.unreadable.remove(&key);
            }
            Change::Reset(listed) => {
                let mut before = std::mem::take(&mut *objects);
                for object in listed {
                    // A list after a gap must not make an old generation look new.
                    if let Some(entry) = before.readable.remove(&key(&object)) {
                        objects.readable.insert(key(&object), entry);
                    }
                    put_dynamic(&mut objects, object);
                }
            }
        }
        self.version.fetch_add(1, Ordering::Release);
        drop(objects);
        self.wake
            .send_modify(|count| *count = count.wrapping_add(1));
    }
}

fn put_dynamic<K: Kept>(objects: &mut Objects<K>, object: DynamicObject) {
    let key = key(&object);
    match read::<K>(object) {
        Ok(object) => {
            objects.unreadable.remove(&key);
            insert(&mut objects.readable, key, object);
        }
        Err(unread) => {
            tracing::warn!(kind = %K::kind(&()), namespace = key.0, name = key.1, error = unread.why, "cannot be read");
            objects.readable.remove(&key);
            objects.unreadable.insert(key, unread);
        }
    }
}

fn insert<K: Kept>(objects: &mut BTreeMap<Key, Entry<K>>, key: Key, object: K) {
    let version = object.meta().resource_version.clone().unwrap_or_default();
    let known = objects.get(&key);
    if known.is_some_and(|known| is_older(&object, &*known.object)) {
        return;
    }
    let since = known
        .filter(|known| {
            known.object.meta().uid == object.meta().uid
                && known.object.meta().generation == object.meta().generation
        })
        .map_or(version, |known| known.since.clone());
    objects.insert(
        key,
        Entry {
            object: Arc::new(object),
            since,
        },
    );
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
    use crate::api::ToolMount;

    fn mount(version: &str, generation: i64) -> DynamicObject {
        serde_json::from_value(serde_json::json!({
            "apiVersion": "grantgate.dev/v1alpha1", "kind": "ToolMount",
            "metadata": {"name": "m", "namespace": "n", "uid": "u", "resourceVersion": version, "generation": generation},
            "spec": {"agent": "a", "server": "s"},
        }))
        .unwrap()
    }

    #[test]
    fn a_write_of_status_does_not_make_a_generation_new() {
        let wake = Arc::new(watch::Sender::new(0));
        let store = Store::<ToolMount>::new("toolmounts", &wake);
        let since = |store: &Store<ToolMount>| store.get("n", "m").map(|entry| entry.since);
        store.take(Change::Reset(vec![mount("10", 1)]));
        store.take(Change::Applied(Box::new(mount("12", 1))));
        assert_eq!(since(&store).as_deref(), Some("10"));
        store.take(Change::Reset(vec![mount("15", 1)]));
        assert_eq!(since(&store).as_deref(), Some("10"));
        store.take(Change::Applied(Box::new(mount("20", 2))));
        assert_eq!(since(&store).as_deref(), Some("20"));
        store.put(mount("19", 1).try_parse().unwrap());
        assert_eq!(
            since(&store).as_deref(),
            Some("20"),
            "an older answer is left out"
        );
        store.take(Change::Reset(Vec::new()));
        assert!(store.get("n", "m").is_none());
        assert_eq!(*wake.borrow(), 5);
    }
}
