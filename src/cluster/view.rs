//! The view of the cluster that decisions are made on: watches folded into one immutable `World`.

use std::{
    collections::BTreeMap,
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use arc_swap::ArcSwap;
use jiff::Timestamp;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::{
    Api, Client, Resource,
    api::{ApiResource, DynamicObject},
};
use tokio::{sync::Notify, task::JoinSet};

use crate::{
    api::{
        AgentIdentity, ApprovalPolicy, ApprovalRequest, ClusterApprovalPolicy, Grant, ToolMount,
        ToolServer,
    },
    cluster::{
        clock::Clock,
        discovery,
        index::Index,
        sources::Sources,
        watch::{self, Change, Progress, WatchError},
    },
    decide::{redact::Redactor, world::World},
};

/// The view, kept by one watch per kind.
pub struct View {
    world: ArcSwap<World>,
    sources: Mutex<Sources>,
    /// Requests and grants.
    pub index: Arc<Index>,
    /// The server's clock.
    pub clock: Arc<Clock>,
    progress: Vec<Arc<Progress>>,
    discover_again: Notify,
    discovered: AtomicBool,
    changed: tokio::sync::watch::Sender<u64>,
}

/// Why the view decides nothing.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
pub enum ViewError {
    /// Something was not listed yet, or not heard of lately.
    #[error("{0}")]
    Watch(#[from] WatchError),
    /// The clock cannot be trusted.
    #[error("{0}")]
    Clock(#[from] super::clock::ClockError),
}

impl ViewError {
    /// Whether another says the same, in whatever numbers.
    pub fn is_like(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Watch(a), Self::Watch(b)) => a.is_like(b),
            (Self::Clock(a), Self::Clock(b)) => {
                std::mem::discriminant(a) == std::mem::discriminant(b)
            }
            _ => false,
        }
    }
}

/// What was said last about why nothing is decided: the same is not said again.
#[derive(Debug, Default)]
pub struct Said(Option<ViewError>);

impl Said {
    /// Takes note, and says whether it is another reason than last time.
    pub fn is_news(&mut self, now: Option<&ViewError>) -> bool {
        let same = match (&self.0, now) {
            (None, None) => true,
            (Some(before), Some(now)) => before.is_like(now),
            _ => false,
        };
        self.0 = now.cloned();
        !same
    }
}

impl View {
    /// An empty view for an installation in `system_namespace`.
    pub fn new(system_namespace: &str, redactor: Redactor, clock: Arc<Clock>) -> Arc<Self> {
        let sources = Sources::new(system_namespace, redactor);
        let resources = [
            AgentIdentity::plural(&()),
            ToolServer::plural(&()),
            ToolMount::plural(&()),
            ApprovalPolicy::plural(&()),
            ClusterApprovalPolicy::plural(&()),
            ApprovalRequest::plural(&()),
            Grant::plural(&()),
        ];
        let known = resources.into_iter().map(|plural| -> &'static str {
            match plural {
                std::borrow::Cow::Borrowed(text) => text,
                std::borrow::Cow::Owned(_) => "ours",
            }
        });
        let progress = known
            .chain(["namespaces", "customresourcedefinitions"])
            .map(Progress::new)
            .collect();
        Arc::new(Self {
            world: ArcSwap::from_pointee(sources.world()),
            sources: Mutex::new(sources),
            index: Arc::new(Index::default()),
            clock,
            progress,
            discover_again: Notify::new(),
            discovered: AtomicBool::new(false),
            changed: tokio::sync::watch::Sender::new(0),
        })
    }

    /// The world as it is known now, whatever its age.
    pub fn world(&self) -> Arc<World> {
        self.world.load_full()
    }

    /// The world and the server's time, if both can be decided on.
    pub fn ready(&self) -> Result<(Arc<World>, Timestamp), ViewError> {
        self.fresh()?;
        Ok((self.world(), self.clock.now()?))
    }

    /// Whether everything was listed and heard of lately.
    pub fn fresh(&self) -> Result<(), WatchError> {
        watch::fresh(self.progress.iter().map(AsRef::as_ref))?;
        if !self.discovered.load(Ordering::Acquire) {
            return Err(WatchError::NotSynced(
                "the API server's resources".to_owned(),
            ));
        }
        Ok(())
    }

    /// The oldest watch's age.
    pub fn age(&self) -> Duration {
        self.progress
            .iter()
            .map(|progress| progress.age())
            .max()
            .unwrap_or_default()
    }

    /// The resourceVersion reached, by plural resource name.
    pub fn reached(&self) -> BTreeMap<String, String> {
        self.progress
            .iter()
            .map(|progress| (progress.resource.to_owned(), progress.resource_version()))
            .collect()
    }

    /// Asks for a new look at what the API server serves.
    pub fn discover_again(&self) {
        self.discover_again.notify_one();
    }

    /// Wakes whoever waits each time something changes.
    pub fn changes(&self) -> tokio::sync::watch::Receiver<u64> {
        self.changed.subscribe()
    }

    /// Replaces the fingerprint key.
    pub fn set_redactor(&self, redactor: Redactor) {
        self.update(|sources| {
            sources.set_redactor(redactor);
            true
        });
    }

    fn update(&self, change: impl FnOnce(&mut Sources) -> bool) {
        let mut sources = self
            .sources
            .lock()
            .unwrap_or_else(std::sync::PoisonError::into_inner);
        if change(&mut sources) {
            self.world.store(Arc::new(sources.world()));
        }
        drop(sources);
        self.changed
            .send_modify(|count| *count = count.wrapping_add(1));
    }

    /// Starts the watches. The set ends, with all of them, when it is dropped.
    pub fn start(self: &Arc<Self>, client: &Client) -> JoinSet<()> {
        let mut tasks = JoinSet::new();
        let ours =
            |resource: ApiResource| Api::<DynamicObject>::all_with(client.clone(), &resource);
        self.spawn(
            &mut tasks,
            ours(ApiResource::erase::<AgentIdentity>(&())),
            0,
            |view, change| {
                view.update(|sources| sources.on_agents(change));
            },
        );
        self.spawn(
            &mut tasks,
            ours(ApiResource::erase::<ToolServer>(&())),
            1,
            |view, change| {
                view.update(|sources| sources.on_servers(change));
            },
        );
        self.spawn(
            &mut tasks,
            ours(ApiResource::erase::<ToolMount>(&())),
            2,
            |view, change| {
                view.update(|sources| sources.on_mounts(change));
            },
        );
        self.spawn(
            &mut tasks,
            ours(ApiResource::erase::<ApprovalPolicy>(&())),
            3,
            |view, change| {
                view.update(|sources| sources.on_policies(change));
            },
        );
        self.spawn(
            &mut tasks,
            ours(ApiResource::erase::<ClusterApprovalPolicy>(&())),
            4,
            |view, change| {
                view.update(|sources| sources.on_cluster_policies(change));
            },
        );
        self.spawn(
            &mut tasks,
            ours(ApiResource::erase::<ApprovalRequest>(&())),
            5,
            |view, change| {
                view.index.on_requests(change);
                view.update(|_| false);
            },
        );
        self.spawn(
            &mut tasks,
            ours(ApiResource::erase::<Grant>(&())),
            6,
            |view, change| {
                view.index.on_grants(change);
                view.update(|_| false);
            },
        );
        let namespaces = ApiResource::erase::<k8s_openapi::api::core::v1::Namespace>(&());
        self.spawn(&mut tasks, ours(namespaces), 7, |view, change| {
            view.update(|sources| sources.on_namespaces(change));
        });
        let crds = ApiResource::erase::<CustomResourceDefinition>(&());
        self.spawn(&mut tasks, ours(crds), 8, |view, change| {
            view.update(|sources| sources.on_definitions(change));
            view.discover_again();
        });
        let (view, client) = (self.clone(), client.clone());
        tasks.spawn(async move { view.keep_discovering(client).await });
        tasks
    }

    fn spawn(
        self: &Arc<Self>,
        tasks: &mut JoinSet<()>,
        api: Api<DynamicObject>,
        which: usize,
        fold: impl Fn(&Self, Change) + Send + 'static,
    ) {
        let Some(progress) = self.progress.get(which).cloned() else {
            return;
        };
        let view = self.clone();
        tasks.spawn(
            async move { watch::run(api, progress, move |change| fold(&view, change)).await },
        );
    }

    async fn keep_discovering(&self, client: Client) {
        loop {
            match discovery::discover(&client).await {
                Ok(resources) => {
                    self.update(|sources| sources.on_discovery(resources));
                    self.discovered.store(true, Ordering::Release);
                }
                Err(error) => tracing::warn!(%error, "cannot ask the API server what it serves"),
            }
            // Built-in kinds change with the server's version: a look a minute is enough beside being asked.
            let _ =
                tokio::time::timeout(Duration::from_secs(60), self.discover_again.notified()).await;
            tokio::time::sleep(Duration::from_secs(1)).await;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reason_is_news_once_however_long_it_lasts() {
        let old = |resource, seconds| ViewError::from(WatchError::TooOld { resource, seconds });
        let mut said = Said::default();
        assert!(!said.is_news(None));
        assert!(said.is_news(Some(&old("grants", 21))));
        assert!(!said.is_news(Some(&old("grants", 22))));
        assert!(said.is_news(Some(&old("namespaces", 23))));
        assert!(said.is_news(None));
        assert!(said.is_news(Some(&old("namespaces", 21))));
    }
}
