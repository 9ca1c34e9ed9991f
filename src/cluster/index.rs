//! Requests and grants by action key: fed by the watch and by our own writes' answers. It only *finds*; a use is proven by the
//! compare-and-swap on the exact revision.

use std::{
    cmp::Ordering,
    collections::{HashMap, VecDeque},
    sync::{Arc, RwLock},
};

use jiff::Timestamp;
use kube::{Resource, api::DynamicObject};

use crate::{
    api::{ApprovalRequest, Grant},
    decide::{chain::RequestView, live::GrantView, record, revision},
};

/// Namespace, empty for cluster kinds, and name.
pub type Key = (String, String);

/// The index.
#[derive(Debug, Default)]
pub struct Index {
    inner: RwLock<Inner>,
}

#[derive(Debug, Default)]
struct Inner {
    requests: HashMap<Key, Arc<ApprovalRequest>>,
    grants: HashMap<Key, Arc<Grant>>,
    requests_by_action: HashMap<String, Vec<Key>>,
    grants_by_action: HashMap<String, Vec<Key>>,
    grants_by_request: HashMap<String, Key>,
    /// Objects that this version cannot read, with their action keys as far as they show one.
    unreadable: HashMap<Key, String>,
    /// The newest uids that the watch saw deleted: an answer that comes late must not bring one back.
    deleted: VecDeque<String>,
}

/// How many deleted uids are remembered: far more than the answers that can be under way.
const MAX_DELETED: usize = 4096;

/// Everything filed and granted for one action key.
#[derive(Clone, Debug, Default)]
pub struct Filed {
    /// Requests.
    pub requests: Vec<Arc<ApprovalRequest>>,
    /// Grants, exact ones with the earliest end first.
    pub grants: Vec<Arc<Grant>>,
    /// Name of a request or grant of this key that cannot be read: nothing is decided while it is there.
    pub unreadable: Option<String>,
    /// Names of requests whose grants were looked for live.
    pub looked: Vec<String>,
}

/// How much is pending.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct Load {
    /// Pending requests.
    pub count: usize,
    /// What they store of changes and states, in bytes.
    pub bytes: usize,
}

impl Filed {
    /// One grant with what backs it.
    pub fn grant_view<'f>(&'f self, grant: &'f Grant) -> GrantView<'f> {
        GrantView::of(grant, self.requests.iter().map(AsRef::as_ref))
    }

    /// The requests with the grants that they name.
    pub fn request_views(&self) -> Vec<RequestView<'_>> {
        self.requests
            .iter()
            .map(|request| RequestView {
                request,
                grant: self
                    .grants
                    .iter()
                    .find(|grant| {
                        Some(grant.spec.request_ref.uid.as_str()) == request.metadata.uid.as_deref()
                    })
                    .map(AsRef::as_ref),
                looked: self
                    .looked
                    .iter()
                    .any(|name| request.metadata.name.as_ref() == Some(name)),
            })
            .collect()
    }

    /// Puts a fresher copy of a request in.
    pub fn put_request(&mut self, request: Arc<ApprovalRequest>) {
        self.requests
            .retain(|known| known.metadata.uid != request.metadata.uid);
        self.requests.push(request);
    }

    /// Puts a fresher copy of a grant in.
    pub fn put_grant(&mut self, grant: Arc<Grant>) {
        self.grants
            .retain(|known| known.metadata.uid != grant.metadata.uid);
        self.grants.push(grant);
    }
}

/// Namespace, empty for cluster kinds, and name of an object.
pub fn key<K: Resource>(object: &K) -> Key {
    (
        object.meta().namespace.clone().unwrap_or_default(),
        object.meta().name.clone().unwrap_or_default(),
    )
}

/// Whether a copy is older than the one that is known.
pub fn is_older<K: Resource>(copy: &K, known: &K) -> bool {
    let version = |object: &K| object.meta().resource_version.clone().unwrap_or_default();
    revision::order(&version(copy), &version(known)).is_some_and(Ordering::is_lt)
}

impl Inner {
    fn note_deleted(&mut self, uid: Option<String>) {
        if self.deleted.len() >= MAX_DELETED {
            self.deleted.pop_front();
        }
        self.deleted.extend(uid);
    }

    fn was_deleted(&self, uid: Option<&str>) -> bool {
        uid.is_some_and(|uid| self.deleted.iter().any(|deleted| deleted == uid))
    }
}

impl Index {
    fn read(&self) -> std::sync::RwLockReadGuard<'_, Inner> {
        self.inner
            .read()
            .unwrap_or_else(std::sync::PoisonError::into_inner)
    }

    fn write(&self) -> std::sync::RwLockWriteGuard<'_, Inner> {
        self.inner
            .write()
            .unwrap_or_else(std::sync::PoisonError::into_inner)
    }

    /// What is filed and granted for one action key.
    pub fn filed(&self, action_key: &str) -> Filed {
        let inner = self.read();
        let mut grants: Vec<Arc<Grant>> = inner
            .grants_by_action
            .get(action_key)
            .into_iter()
            .flatten()
            .filter_map(|key| inner.grants.get(key).cloned())
            .collect();
        grants.sort_by_key(|grant| (grant.spec.not_after.0, grant.metadata.name.clone()));
        Filed {
            requests: inner
                .requests_by_action
                .get(action_key)
                .into_iter()
                .flatten()
                .filter_map(|key| inner.requests.get(key).cloned())
                .collect(),
            grants,
            looked: Vec::new(),
            unreadable: inner
                .unreadable
                .iter()
                .find(|(_, of)| of.as_str() == action_key)
                .map(|((_, name), _)| name.clone()),
        }
    }

    /// What is pending, of one requester and in all.
    pub fn load(&self, username: &str, now: Timestamp) -> (Load, Load) {
        let (mut own, mut all) = (Load::default(), Load::default());
        for request in self.read().requests.values() {
            let pending = request
                .status
                .as_ref()
                .is_none_or(|status| status.phase.is_none());
            if !pending || now >= request.spec.deadline.0 {
                continue;
            }
            let bytes = record::stored_bytes(
                &request.spec.change,
                &request.spec.state,
                &request.spec.diff,
            );
            all.count += 1;
            all.bytes += bytes;
            if request.spec.requester.username == username {
                own.count += 1;
                own.bytes += bytes;
            }
        }
        (own, all)
    }

    /// All grants.
    pub fn grants(&self) -> Vec<Arc<Grant>> {
        self.read().grants.values().cloned().collect()
    }

    /// All requests.
    pub fn requests(&self) -> Vec<Arc<ApprovalRequest>> {
        self.read().requests.values().cloned().collect()
    }

    /// A request by namespace and name.
    pub fn request(&self, namespace: &str, name: &str) -> Option<Arc<ApprovalRequest>> {
        self.read()
            .requests
            .get(&(namespace.to_owned(), name.to_owned()))
            .cloned()
    }

    /// The grant that was minted from a request.
    pub fn grant_of(&self, request_uid: &str) -> Option<Arc<Grant>> {
        let inner = self.read();
        inner
            .grants_by_request
            .get(request_uid)
            .and_then(|key| inner.grants.get(key))
            .cloned()
    }

    /// Takes a request, unless a newer copy is there.
    pub fn put_request(&self, request: ApprovalRequest) {
        let mut inner = self.write();
        let key = key(&request);
        let known = inner.requests.get(&key);
        if known.is_some_and(|known| is_older(&request, known))
            || inner.was_deleted(request.metadata.uid.as_deref())
        {
            return;
        }
        inner.unreadable.remove(&key);
        let keys = inner
            .requests_by_action
            .entry(request.spec.action_key.clone())
            .or_default();
        if !keys.contains(&key) {
            keys.push(key.clone());
        }
        inner.requests.insert(key, Arc::new(request));
    }

    /// Takes a grant, unless a newer copy is there.
    pub fn put_grant(&self, grant: Grant) {
        let mut inner = self.write();
        let key = key(&grant);
        let known = inner.grants.get(&key);
        if known.is_some_and(|known| is_older(&grant, known))
            || inner.was_deleted(grant.metadata.uid.as_deref())
        {
            return;
        }
        inner.unreadable.remove(&key);
        let keys = inner
            .grants_by_action
            .entry(grant.spec.action_key.clone())
            .or_default();
        if !keys.contains(&key) {
            keys.push(key.clone());
        }
        inner
            .grants_by_request
            .insert(grant.spec.request_ref.uid.clone(), key.clone());
        inner.grants.insert(key, Arc::new(grant));
    }

    /// Forgets a request that the API server does not have.
    pub fn drop_request(&self, key: &Key) {
        let mut inner = self.write();
        inner.unreadable.remove(key);
        if let Some(request) = inner.requests.remove(key)
            && let Some(keys) = inner.requests_by_action.get_mut(&request.spec.action_key)
        {
            keys.retain(|known| known != key);
            if keys.is_empty() {
                inner.requests_by_action.remove(&request.spec.action_key);
            }
        }
    }

    /// Forgets a grant that the API server does not have.
    pub fn drop_grant(&self, key: &Key) {
        let mut inner = self.write();
        inner.unreadable.remove(key);
        if let Some(grant) = inner.grants.remove(key) {
            if let Some(keys) = inner.grants_by_action.get_mut(&grant.spec.action_key) {
                keys.retain(|known| known != key);
                if keys.is_empty() {
                    inner.grants_by_action.remove(&grant.spec.action_key);
                }
            }
            if inner.grants_by_request.get(&grant.spec.request_ref.uid) == Some(key) {
                inner.grants_by_request.remove(&grant.spec.request_ref.uid);
            }
        }
    }

    /// Follows the watch of requests.
    pub fn on_requests(&self, change: super::watch::Change) {
        self.follow(change, Self::put_request, Self::drop_request, |inner| {
            inner.requests.keys().cloned().collect()
        });
    }

    /// Follows the watch of grants.
    pub fn on_grants(&self, change: super::watch::Change) {
        self.follow(change, Self::put_grant, Self::drop_grant, |inner| {
            inner.grants.keys().cloned().collect()
        });
    }

    fn follow<K>(
        &self,
        change: super::watch::Change,
        put: impl Fn(&Self, K),
        forget: impl Fn(&Self, &Key),
        keys: impl Fn(&Inner) -> Vec<Key>,
    ) where
        K: Resource<DynamicType = ()> + Clone + serde::de::DeserializeOwned + std::fmt::Debug,
    {
        use super::watch::Change;
        let apply = |object: DynamicObject| {
            let key = key(&object);
            let action_key = object.data["spec"]["actionKey"].as_str();
            let action_key = action_key.unwrap_or_default().to_owned();
            match object.try_parse::<K>() {
                Ok(object) => put(self, object),
                // What cannot be read permits nothing, and nothing new is asked because of it.
                Err(error) => {
                    tracing::warn!(kind = %K::kind(&()), namespace = key.0, name = key.1, %error, "cannot be read");
                    forget(self, &key);
                    self.write().unreadable.insert(key, action_key);
                }
            }
        };
        match change {
            Change::Applied(object) => apply(*object),
            Change::Deleted(object) => {
                self.write().note_deleted(object.metadata.uid.clone());
                forget(self, &key(&*object));
            }
            Change::Reset(objects) => {
                let listed: std::collections::HashSet<Key> = objects.iter().map(key).collect();
                let gone: Vec<Key> = keys(&self.read())
                    .into_iter()
                    .filter(|key| !listed.contains(key))
                    .collect();
                for key in gone {
                    forget(self, &key);
                }
                objects.into_iter().for_each(apply);
            }
        }
    }
}
