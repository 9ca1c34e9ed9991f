//! What the record-keeping works with: its own watches beside the view, answers about rights, and the journal.

use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use jiff::Timestamp;
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::ServiceAccount;
use kube::{Api, ResourceExt, api::PostParams};
use tokio::{
    sync::{OnceCell, watch},
    task::JoinSet,
};

use crate::{
    api::{
        AgentIdentity, ApprovalDecision, ApprovalPolicy, ApprovalRequest, ApprovalRequestStatus,
        ClusterApprovalPolicy, Grant, ToolMount, ToolServer, grant::GrantStatus,
    },
    cluster::{
        client::{CallError, within},
        ledger::{Ledger, Swap},
        view::ViewError,
        watch::fresh,
    },
    control::{
        access::{Declared, Objects, Standing, Unreadable},
        context::Context,
        declarations::Memo,
        journal::{Journal, Transition},
        request::News,
        rights::{Answers, RECHECK, Rights},
        store::{Entry, Store},
    },
    decide::{boundary::Doubt, world::Namespace},
};

const LIMIT: Duration = Duration::from_secs(5);

/// What the record-keeping works with.
pub struct Desk {
    /// Shared with the rest of the controller.
    pub ctx: Arc<Context>,
    /// Decisions.
    pub decisions: Arc<Store<ApprovalDecision>>,
    /// Cluster policies.
    pub cluster_policies: Arc<Store<ClusterApprovalPolicy>>,
    /// Namespaced policies.
    pub policies: Arc<Store<ApprovalPolicy>>,
    /// Servers.
    pub servers: Arc<Store<ToolServer>>,
    /// Mounts.
    pub mounts: Arc<Store<ToolMount>>,
    /// Agents, with their status.
    pub agents: Arc<Store<AgentIdentity>>,
    /// Leases of the installation's namespace.
    pub leases: Arc<Store<Lease>>,
    /// Answers about rights.
    pub rights: Rights,
    /// Events and the audit stream.
    pub journal: Journal,
    /// Compare-and-swap on grants.
    pub ledger: Ledger,
    /// Wakes at each change of a store.
    pub wake: Arc<watch::Sender<u64>>,
    /// Declarations whose status needs nothing.
    pub memo: Memo,
    compiled: Mutex<Option<Compiled>>,
    conditional: Mutex<HashMap<String, BTreeSet<String>>>,
    accounts: Answers<(String, String), Option<String>>,
}

/// One look at everything: the copies known here, and what is read live where a copy says that something is void.
pub struct Look {
    /// Cluster policies.
    pub cluster_policies: Vec<Entry<ClusterApprovalPolicy>>,
    /// Namespaced policies.
    pub policies: Vec<Entry<ApprovalPolicy>>,
    /// Servers.
    pub servers: Vec<Entry<ToolServer>>,
    /// Mounts.
    pub mounts: Vec<Entry<ToolMount>>,
    /// All of these, compiled: what is said to be in force is what was judged by.
    pub declared: Arc<Declared>,
    decisions: HashMap<(String, String), Vec<Arc<ApprovalDecision>>>,
    live: OnceCell<Option<Declared>>,
    /// The server's time.
    pub now: Timestamp,
}

impl Look {
    /// The decisions that name a request.
    pub fn decisions_on(&self, request: &ApprovalRequest) -> Vec<Arc<ApprovalDecision>> {
        let key = (
            request.namespace().unwrap_or_default(),
            request.uid().unwrap_or_default(),
        );
        self.decisions.get(&key).cloned().unwrap_or_default()
    }
}

/// What was compiled last, and from what.
struct Compiled {
    versions: [u64; 5],
    namespaces: Arc<BTreeMap<String, Namespace>>,
    declared: Arc<Declared>,
}

fn decisions_by_request(
    decisions: &Store<ApprovalDecision>,
) -> HashMap<(String, String), Vec<Arc<ApprovalDecision>>> {
    let mut by_request: HashMap<_, Vec<Arc<ApprovalDecision>>> = HashMap::new();
    for entry in decisions.all() {
        let namespace = entry.object.namespace().unwrap_or_default();
        let named: BTreeSet<&str> = entry
            .object
            .spec
            .requests
            .iter()
            .map(|named| named.uid.as_str())
            .collect();
        for uid in named {
            by_request
                .entry((namespace.clone(), uid.to_owned()))
                .or_default()
                .push(entry.object.clone());
        }
    }
    by_request
}

impl Desk {
    /// Starts the watches. They end when the set is dropped.
    pub fn start(ctx: Arc<Context>, tasks: &mut JoinSet<()>) -> Arc<Self> {
        let wake = Arc::new(watch::Sender::new(0));
        let desk = Self {
            decisions: Store::new("approvaldecisions", &wake),
            cluster_policies: Store::new("clusterapprovalpolicies", &wake),
            policies: Store::new("approvalpolicies", &wake),
            servers: Store::new("toolservers", &wake),
            mounts: Store::new("toolmounts", &wake),
            agents: Store::new("agentidentities", &wake),
            leases: Store::new("leases", &wake),
            rights: Rights::default(),
            journal: Journal::new(ctx.client.clone(), ctx.replica.clone()),
            ledger: Ledger {
                client: ctx.client.clone(),
                index: ctx.view.index.clone(),
                replica: ctx.replica.clone(),
            },
            wake,
            memo: Memo::default(),
            compiled: Mutex::default(),
            conditional: Mutex::default(),
            accounts: Answers::default(),
            ctx,
        };
        let client = &desk.ctx.client;
        desk.decisions.follow(client, None, tasks);
        desk.cluster_policies.follow(client, None, tasks);
        desk.policies.follow(client, None, tasks);
        desk.servers.follow(client, None, tasks);
        desk.mounts.follow(client, None, tasks);
        desk.agents.follow(client, None, tasks);
        desk.leases.follow(client, Some(&desk.ctx.namespace), tasks);
        Arc::new(desk)
    }

    /// The server's time, if everything that is watched was listed, and heard of lately.
    pub fn ready(&self) -> Result<Timestamp, ViewError> {
        let (_, now) = self.ctx.view.ready()?;
        let watches = [
            self.decisions.progress(),
            self.cluster_policies.progress(),
            self.policies.progress(),
            self.servers.progress(),
            self.mounts.progress(),
            self.agents.progress(),
            self.leases.progress(),
        ];
        fresh(watches.into_iter())?;
        Ok(now)
    }

    fn versions(&self) -> [u64; 5] {
        [
            self.cluster_policies.version(),
            self.policies.version(),
            self.servers.version(),
            self.mounts.version(),
            self.agents.version(),
        ]
    }

    /// Begins a look at everything.
    pub fn look(&self, now: Timestamp) -> Look {
        fn objects<K>(entries: &[Entry<K>]) -> Vec<Arc<K>> {
            entries.iter().map(|entry| entry.object.clone()).collect()
        }
        let versions = self.versions();
        let namespaces = self.ctx.view.world().namespaces.clone();
        let (cluster_policies, policies) = (self.cluster_policies.all(), self.policies.all());
        let (servers, mounts) = (self.servers.all(), self.mounts.all());
        let agents = self.agents.all();
        // What changed while it was read is compiled now, and again at the next look.
        let steady = versions == self.versions();
        let mut compiled = self.compiled.lock().unwrap_or_else(PoisonError::into_inner);
        let known = compiled.as_ref().filter(|known| {
            steady && known.versions == versions && Arc::ptr_eq(&known.namespaces, &namespaces)
        });
        let declared = match known {
            Some(known) => known.declared.clone(),
            None => {
                let all = Objects {
                    cluster_policies: objects(&cluster_policies),
                    policies: objects(&policies),
                    servers: objects(&servers),
                    mounts: objects(&mounts),
                    agents: objects(&agents),
                    namespaces: namespaces
                        .iter()
                        .map(|(name, namespace)| (name.clone(), namespace.labels.clone()))
                        .collect(),
                    unreadable: Unreadable {
                        cluster_policies: self.cluster_policies.unreadable(),
                        policies: self.policies.unreadable(),
                        mounts: self.mounts.unreadable(),
                        agents: self.agents.unreadable(),
                    },
                };
                Arc::new(all.compile())
            }
        };
        *compiled = Some(Compiled {
            versions,
            namespaces,
            declared: declared.clone(),
        });
        drop(compiled);
        Look {
            cluster_policies,
            policies,
            servers,
            mounts,
            declared,
            decisions: decisions_by_request(&self.decisions),
            live: OnceCell::new(),
            now,
        }
    }

    /// Judges a request. A copy that is behind may say that something is void, so what is void is read live before it counts.
    pub async fn judge(&self, look: &Look, request: &ApprovalRequest) -> Standing {
        let uid = request.uid().unwrap_or_default();
        let before = self.conditional().get(&uid).cloned();
        match look.declared.judge(request, before.as_ref()) {
            Standing::Void { .. } => {
                let live = look.live.get_or_init(|| self.read_live()).await;
                match live {
                    Some(live) => live.judge(request, before.as_ref()),
                    None => Standing::CannotTell(Doubt {
                        words: "what is declared cannot be read".to_owned(),
                        refused: false,
                    }),
                }
            }
            other => {
                let conditional = look.declared.conditional(request);
                self.conditional().entry(uid).or_insert(conditional);
                other
            }
        }
    }

    async fn read_live(&self) -> Option<Declared> {
        match Objects::live(&self.ctx.client).await {
            Ok(objects) => Some(objects.compile()),
            Err(error) => {
                tracing::warn!(%error, "cannot read what is declared");
                None
            }
        }
    }

    /// Forgets what was remembered of requests that are over.
    pub fn forget_all_but(&self, uids: &BTreeSet<String>) {
        self.conditional().retain(|uid, _| uids.contains(uid));
    }

    fn conditional(&self) -> std::sync::MutexGuard<'_, HashMap<String, BTreeSet<String>>> {
        self.conditional
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }

    /// Writes the status of a request onto the revision that was looked at. `None`: somebody was faster, or it is not known.
    pub async fn write_request(
        &self,
        request: &ApprovalRequest,
        status: ApprovalRequestStatus,
        news: Option<&News>,
        now: Timestamp,
    ) -> Option<Arc<ApprovalRequest>> {
        let namespace = request.namespace().unwrap_or_default();
        let mut written = request.clone();
        written.metadata.managed_fields = None;
        written.status = Some(status);
        let api: Api<ApprovalRequest> = Api::namespaced(self.ctx.client.clone(), &namespace);
        let name = request.name_any();
        let answer = within(
            LIMIT,
            api.replace_status(&name, &PostParams::default(), &written),
        )
        .await;
        match answer {
            Ok(stored) => {
                self.ctx.view.index.put_request(stored.clone());
                if let Some(news) = news {
                    let grant = stored
                        .status
                        .as_ref()
                        .and_then(|status| status.grant.as_ref())
                        .map(|grant| grant.name.clone())
                        .unwrap_or_default();
                    self.tell(
                        &stored,
                        news,
                        vec![
                            ("digest", stored.spec.digest.clone()),
                            ("agent", stored.spec.requester.agent.clone()),
                            ("grant", grant),
                        ],
                        now,
                    );
                }
                Some(Arc::new(stored))
            }
            Err(error) if error.is_conflict() || error.is_not_found() => None,
            Err(error) => {
                tracing::warn!(%error, namespace, name, "the status of a request could not be written");
                None
            }
        }
    }

    /// Writes the status of a grant onto the revision that was looked at.
    pub async fn write_grant(
        &self,
        grant: &Grant,
        status: GrantStatus,
        news: Option<&News>,
        now: Timestamp,
    ) -> Option<Arc<Grant>> {
        match self.ledger.swap(grant, status, "").await {
            Swap::Stored(stored) | Swap::Landed(stored) => {
                if let Some(news) = news {
                    let members = vec![
                        ("request", stored.spec.request_ref.name.clone()),
                        ("agent", stored.spec.requester.agent.clone()),
                    ];
                    self.tell(stored.as_ref(), news, members, now);
                }
                Some(stored)
            }
            Swap::Lost => None,
            Swap::Unknown(error) => {
                tracing::warn!(
                    error,
                    name = grant.name_any(),
                    "the status of a grant could not be written"
                );
                None
            }
        }
    }

    /// Tells people and the record.
    pub fn tell<K: kube::Resource<DynamicType = ()>>(
        &self,
        object: &K,
        news: &News,
        members: Vec<(&'static str, String)>,
        now: Timestamp,
    ) {
        let transition = Transition {
            reason: news.reason,
            note: news.note.clone(),
            warning: news.warning,
            members,
        };
        self.journal.tell(object, &transition, now);
    }

    /// Uid of a ServiceAccount as it was at most 30 s ago; `None`: there is none.
    pub async fn account_uid(
        &self,
        namespace: &str,
        name: &str,
    ) -> Result<Option<String>, CallError> {
        let key = (namespace.to_owned(), name.to_owned());
        if let Some(known) = self.accounts.young(&key, RECHECK) {
            return Ok(known);
        }
        let api: Api<ServiceAccount> = Api::namespaced(self.ctx.client.clone(), namespace);
        let uid = within(LIMIT, api.get_metadata_opt(name))
            .await?
            .and_then(|account| account.metadata.uid);
        self.accounts.keep(key, uid.clone());
        Ok(uid)
    }
}
