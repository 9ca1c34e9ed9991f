//! One list and one watch per kind, with an age.
//!
//! A watch that went silent cannot be told from one without news, so each is asked to end after ten seconds: whatever the server had
//! until then has arrived when it ends. Hearing nothing for longer than that makes the view too old to decide on.

use std::{
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, Ordering},
    },
    time::{Duration, Instant},
};

use futures::{StreamExt, pin_mut};
use kube::{
    Api, ResourceExt,
    api::{DynamicObject, ListParams, WatchEvent, WatchParams},
};

use super::client::{CALL_TIMEOUT, within};

/// The server is asked to end a watch after so many seconds.
const WATCH_SECONDS: u32 = 10;
/// How much later than that its end may arrive.
const GRACE: Duration = Duration::from_secs(4);
/// What a watch is silent about for longer than this is not known. It ends by itself after ten seconds, so a healthy one is never so old.
pub const MAX_AGE: Duration = Duration::from_secs(20);
const PAGE: u32 = 500;
const BACKOFF_FIRST: Duration = Duration::from_millis(100);
const BACKOFF_LAST: Duration = Duration::from_secs(5);

/// What a watch says.
#[derive(Debug)]
pub enum Change {
    /// The complete list: what is not in it is gone.
    Reset(Vec<DynamicObject>),
    /// A new or changed object.
    Applied(Box<DynamicObject>),
    /// A deleted object.
    Deleted(Box<DynamicObject>),
}

/// How fresh a watch is. Shared between the watch and whoever decides by it.
#[derive(Debug)]
pub struct Progress {
    /// Plural name of the watched resource.
    pub resource: &'static str,
    synced: AtomicBool,
    state: Mutex<Reached>,
}

/// Why what a watch brings is not to be relied on.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
pub enum WatchError {
    /// The first list is not in.
    #[error("not listed yet: {0}")]
    NotSynced(String),
    /// It is silent for too long.
    #[error("nothing heard of {resource} for {seconds} s")]
    TooOld {
        /// Which.
        resource: &'static str,
        /// For how long.
        seconds: u64,
    },
}

impl WatchError {
    /// Whether another says the same, however long it lasts meanwhile.
    pub fn is_like(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::TooOld { resource: a, .. }, Self::TooOld { resource: b, .. }) => a == b,
            (a, b) => a == b,
        }
    }
}

/// Whether all of these were listed, and heard of lately.
pub fn fresh<'p>(all: impl Iterator<Item = &'p Progress> + Clone) -> Result<(), WatchError> {
    let missing: Vec<&str> = all
        .clone()
        .filter(|progress| !progress.synced())
        .map(|progress| progress.resource)
        .collect();
    if !missing.is_empty() {
        return Err(WatchError::NotSynced(missing.join(", ")));
    }
    for progress in all {
        let age = progress.age();
        if age > MAX_AGE {
            return Err(WatchError::TooOld {
                resource: progress.resource,
                seconds: age.as_secs(),
            });
        }
    }
    Ok(())
}

#[derive(Debug)]
struct Reached {
    heard: Instant,
    resource_version: String,
}

impl Progress {
    /// Nothing heard yet.
    pub fn new(resource: &'static str) -> Arc<Self> {
        Arc::new(Self {
            resource,
            synced: AtomicBool::new(false),
            state: Mutex::new(Reached {
                heard: now(),
                resource_version: String::new(),
            }),
        })
    }

    /// Whether the first list is in.
    pub fn synced(&self) -> bool {
        self.synced.load(Ordering::Acquire)
    }

    /// Time since the server last proved that nothing is missing.
    pub fn age(&self) -> Duration {
        self.lock().heard.elapsed()
    }

    /// Whether it was listed, and heard of lately.
    pub fn fresh(&self) -> Result<(), WatchError> {
        fresh(std::iter::once(self))
    }

    /// The resourceVersion reached.
    pub fn resource_version(&self) -> String {
        self.lock().resource_version.clone()
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Reached> {
        self.state
            .lock()
            .unwrap_or_else(std::sync::PoisonError::into_inner)
    }

    fn heard(&self, resource_version: Option<String>) {
        let mut state = self.lock();
        state.heard = now();
        if let Some(version) = resource_version.filter(|version| !version.is_empty()) {
            state.resource_version = version;
        }
    }
}

fn now() -> Instant {
    Instant::now()
}

/// Lists, then watches for ever, handing each change to `sink` in order. Never returns.
pub async fn run(api: Api<DynamicObject>, progress: Arc<Progress>, mut sink: impl FnMut(Change)) {
    let mut backoff = BACKOFF_FIRST;
    loop {
        let listed = list(&api).await;
        let mut version = match listed {
            Ok((objects, version)) => {
                sink(Change::Reset(objects));
                progress.heard(Some(version.clone()));
                progress.synced.store(true, Ordering::Release);
                version
            }
            Err(error) => {
                tracing::warn!(resource = progress.resource, %error, "cannot list");
                pause(&mut backoff).await;
                continue;
            }
        };
        // Said once for each reason: it is tried every few seconds, and its age says the rest.
        let mut said = None;
        loop {
            match follow(&api, &progress, &mut version, &mut sink).await {
                Ok(()) => {
                    backoff = BACKOFF_FIRST;
                    said = None;
                }
                Err(Broken::Relist) => break,
                Err(Broken::Again(why)) => {
                    let why = Some(why);
                    if said != why {
                        tracing::warn!(resource = progress.resource, why, "a watch broke off");
                        said = why;
                    }
                    pause(&mut backoff).await;
                }
            }
        }
    }
}

enum Broken {
    /// The history is gone: start over.
    Relist,
    /// Try from where it was.
    Again(String),
}

async fn pause(backoff: &mut Duration) {
    tokio::time::sleep(*backoff).await;
    *backoff = (*backoff * 2).min(BACKOFF_LAST);
}

async fn list(
    api: &Api<DynamicObject>,
) -> Result<(Vec<DynamicObject>, String), super::client::CallError> {
    let mut objects = Vec::new();
    let mut params = ListParams::default().limit(PAGE);
    loop {
        let page = within(CALL_TIMEOUT, api.list(&params)).await?;
        objects.extend(page.items);
        match page.metadata.continue_.filter(|token| !token.is_empty()) {
            Some(token) => params = params.continue_token(&token),
            None => return Ok((objects, page.metadata.resource_version.unwrap_or_default())),
        }
    }
}

async fn follow(
    api: &Api<DynamicObject>,
    progress: &Progress,
    version: &mut String,
    sink: &mut impl FnMut(Change),
) -> Result<(), Broken> {
    let params = WatchParams::default().timeout(WATCH_SECONDS);
    let broken = |error: &dyn std::fmt::Display| Broken::Again(error.to_string());
    let stream = within(CALL_TIMEOUT, api.watch(&params, version))
        .await
        .map_err(|error| match &error {
            super::client::CallError::Api(kube::Error::Api(status)) if status.code == 410 => {
                Broken::Relist
            }
            _ => broken(&error),
        })?;
    pin_mut!(stream);
    let ends = tokio::time::Instant::from_std(now())
        + Duration::from_secs(u64::from(WATCH_SECONDS))
        + GRACE;
    loop {
        let Ok(next) = tokio::time::timeout_at(ends, stream.next()).await else {
            return Err(Broken::Again("it did not end when it should".to_owned()));
        };
        let Some(event) = next else {
            progress.heard(None);
            return Ok(());
        };
        let reached = match event.map_err(|error| broken(&error))? {
            WatchEvent::Added(object) | WatchEvent::Modified(object) => {
                let reached = object.resource_version();
                sink(Change::Applied(Box::new(object)));
                reached
            }
            WatchEvent::Deleted(object) => {
                let reached = object.resource_version();
                sink(Change::Deleted(Box::new(object)));
                reached
            }
            WatchEvent::Bookmark(bookmark) => Some(bookmark.metadata.resource_version),
            WatchEvent::Error(status) if status.code == 410 => return Err(Broken::Relist),
            WatchEvent::Error(status) => return Err(Broken::Again(status.message.clone())),
        };
        if let Some(reached) = reached {
            version.clone_from(&reached);
            progress.heard(Some(reached));
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use super::*;

    #[test]
    fn what_was_listed_once_is_not_fresh_for_ever() {
        let progress = Progress::new("approvaldecisions");
        let others = Progress::new("grants");
        for one in [&progress, &others] {
            assert!(matches!(one.fresh(), Err(WatchError::NotSynced(_))));
            one.synced.store(true, Ordering::Release);
        }
        let both = [progress.as_ref(), others.as_ref()];
        assert_eq!(fresh(both.into_iter()), Ok(()));
        let long_ago = now().checked_sub(MAX_AGE + GRACE).unwrap();
        progress.lock().heard = long_ago;
        let error = fresh(both.into_iter()).unwrap_err();
        assert!(error.to_string().contains("approvaldecisions"), "{error}");
        progress.heard(None);
        assert_eq!(fresh(both.into_iter()), Ok(()));
    }
}
