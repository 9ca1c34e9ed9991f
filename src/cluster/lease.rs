//! Leases: which controller leads, and which webhook replicas live and what they have seen.
//!
//! A Lease does not fence writes: safety comes from names and compare-and-swap. It keeps two leaders from doing the same work, and tells the
//! controller which replicas must have seen a change before it is in force.

use std::{
    cmp::Ordering,
    collections::BTreeMap,
    sync::{Arc, Mutex},
    time::Duration,
};

use jiff::Timestamp;
use k8s_openapi::{
    api::coordination::v1::{Lease, LeaseSpec},
    apimachinery::pkg::apis::meta::v1::MicroTime,
};
use kube::{
    Api, Client, ResourceExt,
    api::{ObjectMeta, PostParams},
};
use tokio::{sync::watch, time::Instant};

use super::{
    client::{CallError, within},
    clock::Clock,
};
use crate::decide::revision;

/// How long a Lease holds after its last renewal.
pub const DURATION: Duration = Duration::from_secs(15);
/// The same as Leases write it.
const DURATION_SECONDS: i32 = 15;
/// A holder that could not renew for so long stops by itself, before anybody takes over.
const GIVE_UP: Duration = Duration::from_secs(10);
const RENEW_EVERY: Duration = Duration::from_secs(2);
const CALL: Duration = Duration::from_secs(3);

/// Label that tells replicas' Leases from others.
pub const COMPONENT_LABEL: &str = "grantgate.dev/component";
/// Value of [`COMPONENT_LABEL`] on the Lease of a webhook replica.
pub const WEBHOOK_COMPONENT: &str = "webhook";
/// Annotation with the resourceVersions reached: a JSON object by plural resource name.
pub const REACHED: &str = "grantgate.dev/reached";

/// What to do about a Lease that somebody may hold.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Step {
    /// Nobody holds it, or its holder is gone: take it.
    Take,
    /// We hold it: renew it.
    Renew,
    /// Somebody else holds it.
    Wait,
}

/// Decides. `unchanged_for` is how long we have seen the Lease unchanged: a holder's own timestamps may be of another clock.
pub fn step(spec: Option<&LeaseSpec>, me: &str, unchanged_for: Duration) -> Step {
    let Some(spec) = spec else { return Step::Take };
    match spec.holder_identity.as_deref() {
        Some(holder) if holder == me => Step::Renew,
        None | Some("") => Step::Take,
        Some(_) => {
            let holds_for = spec
                .lease_duration_seconds
                .and_then(|seconds| u64::try_from(seconds).ok())
                .map_or(DURATION, Duration::from_secs);
            if unchanged_for > holds_for {
                Step::Take
            } else {
                Step::Wait
            }
        }
    }
}

fn moment() -> Instant {
    Instant::now()
}

async fn rest(span: Duration) {
    tokio::time::sleep(span).await;
}

/// Runs for leadership until the last receiver is dropped. The receiver says whether we lead; it turns false before anybody else can take
/// over. The task ends once a Lease that we held is given back, so that the next leader need not wait.
pub fn run_for_leader(
    client: &Client,
    namespace: &str,
    name: &str,
    me: &str,
) -> (watch::Receiver<bool>, tokio::task::JoinHandle<()>) {
    let (leads, receiver) = watch::channel(false);
    let api: Api<Lease> = Api::namespaced(client.clone(), namespace);
    let (name, me) = (name.to_owned(), me.to_owned());
    let task = tokio::spawn(async move {
        // Whoever waits for a change is woken by changes only.
        let say = |leading: bool| {
            leads.send_if_modified(|known| std::mem::replace(known, leading) != leading);
        };
        let (mut seen, mut seen_since, mut renewed) = (None, moment(), moment());
        while !leads.is_closed() {
            let started = moment();
            match attempt(&api, &name, &me, &mut seen, &mut seen_since).await {
                Ok(true) => {
                    renewed = started;
                    say(true);
                }
                Ok(false) => say(false),
                Err(error) => {
                    tracing::warn!(%error, lease = name, "cannot renew");
                    if renewed.elapsed() > GIVE_UP {
                        say(false);
                    }
                }
            }
            tokio::select! {
                () = rest(RENEW_EVERY) => {}
                () = leads.closed() => {}
            }
        }
        if *leads.borrow() {
            release(&api, &name, &me).await;
        }
    });
    (receiver, task)
}

type Seen = Option<(Option<String>, Option<MicroTime>, Option<String>)>;

async fn attempt(
    api: &Api<Lease>,
    name: &str,
    me: &str,
    seen: &mut Seen,
    seen_since: &mut Instant,
) -> Result<bool, CallError> {
    let there = match within(CALL, api.get_opt(name)).await? {
        Some(lease) => lease,
        None => {
            let lease = Lease {
                metadata: ObjectMeta {
                    name: Some(name.to_owned()),
                    ..ObjectMeta::default()
                },
                spec: Some(held(None, me)),
            };
            return match within(CALL, api.create(&PostParams::default(), &lease)).await {
                Ok(_) => Ok(true),
                Err(error) if error.is_already_exists() => Ok(false),
                Err(error) => Err(error),
            };
        }
    };
    let now_seen = Some((
        there
            .spec
            .as_ref()
            .and_then(|spec| spec.holder_identity.clone()),
        there.spec.as_ref().and_then(|spec| spec.renew_time.clone()),
        there.resource_version(),
    ));
    if *seen != now_seen {
        *seen = now_seen;
        *seen_since = moment();
    }
    if step(there.spec.as_ref(), me, seen_since.elapsed()) == Step::Wait {
        return Ok(false);
    }
    let mut taken = there.clone();
    taken.spec = Some(held(there.spec.as_ref(), me));
    match within(CALL, api.replace(name, &PostParams::default(), &taken)).await {
        Ok(_) => Ok(true),
        Err(error) if error.is_conflict() => Ok(false),
        Err(error) => Err(error),
    }
}

fn held(before: Option<&LeaseSpec>, me: &str) -> LeaseSpec {
    let now = MicroTime(Clock::local());
    let ours = before.is_some_and(|spec| spec.holder_identity.as_deref() == Some(me));
    let transitions = before.and_then(|spec| spec.lease_transitions).unwrap_or(0);
    LeaseSpec {
        holder_identity: Some(me.to_owned()),
        lease_duration_seconds: Some(DURATION_SECONDS),
        renew_time: Some(now.clone()),
        acquire_time: before
            .filter(|_| ours)
            .and_then(|spec| spec.acquire_time.clone())
            .or(Some(now)),
        lease_transitions: Some(if ours {
            transitions
        } else {
            transitions.saturating_add(1)
        }),
        ..LeaseSpec::default()
    }
}

async fn release(api: &Api<Lease>, name: &str, me: &str) {
    let Ok(Some(mut lease)) = within(CALL, api.get_opt(name)).await else {
        return;
    };
    if let Some(spec) = lease
        .spec
        .as_mut()
        .filter(|spec| spec.holder_identity.as_deref() == Some(me))
    {
        spec.holder_identity = Some(String::new());
        if let Err(error) = within(CALL, api.replace(name, &PostParams::default(), &lease)).await {
            tracing::debug!(%error, "the Lease could not be released");
        }
    }
}

/// One replica's sign of life.
#[derive(Debug)]
pub struct Heartbeat {
    renewed: Mutex<Option<Instant>>,
}

impl Heartbeat {
    /// Starts renewing `NAME` until the task is aborted; `reached` is asked before each renewal.
    pub fn start(
        client: &Client,
        namespace: &str,
        name: String,
        reached: impl Fn() -> BTreeMap<String, String> + Send + 'static,
    ) -> (Arc<Self>, tokio::task::JoinHandle<()>) {
        let heartbeat = Arc::new(Self {
            renewed: Mutex::new(None),
        });
        let api: Api<Lease> = Api::namespaced(client.clone(), namespace);
        let beat = heartbeat.clone();
        let task = tokio::spawn(async move {
            let mut known: Option<Lease> = None;
            loop {
                let started = moment();
                match renew(&api, &name, reached(), known.take()).await {
                    Ok(lease) => {
                        known = Some(lease);
                        *beat
                            .renewed
                            .lock()
                            .unwrap_or_else(std::sync::PoisonError::into_inner) = Some(started);
                    }
                    Err(error) => tracing::warn!(%error, lease = name, "cannot renew"),
                }
                rest(RENEW_EVERY).await;
            }
        });
        (heartbeat, task)
    }

    /// Whether the Lease surely still holds, in words if not.
    pub fn holds(&self) -> Result<(), String> {
        match *self
            .renewed
            .lock()
            .unwrap_or_else(std::sync::PoisonError::into_inner)
        {
            None => Err("this replica has not announced itself yet".to_owned()),
            Some(at) if at.elapsed() > GIVE_UP => Err(format!(
                "this replica could not announce itself for {} s",
                at.elapsed().as_secs()
            )),
            Some(_) => Ok(()),
        }
    }
}

async fn renew(
    api: &Api<Lease>,
    name: &str,
    reached: BTreeMap<String, String>,
    known: Option<Lease>,
) -> Result<Lease, CallError> {
    let there = match known {
        Some(lease) => Some(lease),
        None => within(CALL, api.get_opt(name)).await?,
    };
    let mut lease = there.clone().unwrap_or_default();
    lease.metadata.name = Some(name.to_owned());
    lease.metadata.managed_fields = None;
    lease
        .metadata
        .labels
        .get_or_insert_default()
        .insert(COMPONENT_LABEL.to_owned(), WEBHOOK_COMPONENT.to_owned());
    let text = serde_json::to_string(&reached).map_err(kube::Error::SerdeError)?;
    lease
        .metadata
        .annotations
        .get_or_insert_default()
        .insert(REACHED.to_owned(), text);
    lease.spec = Some(held(
        there.as_ref().and_then(|lease| lease.spec.as_ref()),
        name,
    ));
    match there {
        None => within(CALL, api.create(&PostParams::default(), &lease)).await,
        Some(_) => within(CALL, api.replace(name, &PostParams::default(), &lease)).await,
    }
}

/// One webhook replica as its Lease shows it.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Replica {
    /// Name of the Lease.
    pub name: String,
    /// Whether its Lease still holds.
    pub live: bool,
    /// resourceVersions reached, by plural resource name.
    pub reached: BTreeMap<String, String>,
}

impl Replica {
    /// Reads a replica's Lease.
    pub fn of(lease: &Lease, now: Timestamp) -> Self {
        let renewed = lease
            .spec
            .as_ref()
            .and_then(|spec| spec.renew_time.as_ref())
            .map(|time| time.0);
        let live =
            renewed.is_some_and(|renewed| now.duration_since(renewed).unsigned_abs() <= DURATION);
        let reached = lease
            .annotations()
            .get(REACHED)
            .and_then(|text| serde_json::from_str(text).ok())
            .unwrap_or_default();
        Self {
            name: lease.name_any(),
            live,
            reached,
        }
    }

    /// Whether the replica has seen this revision of a kind.
    pub fn has_reached(&self, resource: &str, resource_version: &str) -> bool {
        self.reached
            .get(resource)
            .and_then(|reached| revision::order(reached, resource_version))
            .is_some_and(Ordering::is_ge)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lease_is_taken_only_when_nobody_holds_it() {
        let spec = |holder: &str| LeaseSpec {
            holder_identity: Some(holder.to_owned()),
            lease_duration_seconds: Some(15),
            ..LeaseSpec::default()
        };
        let short = Duration::from_secs(3);
        assert_eq!(step(None, "me", short), Step::Take);
        assert_eq!(step(Some(&spec("")), "me", short), Step::Take);
        assert_eq!(
            step(Some(&spec("me")), "me", Duration::from_secs(99)),
            Step::Renew
        );
        assert_eq!(step(Some(&spec("other")), "me", short), Step::Wait);
        assert_eq!(
            step(Some(&spec("other")), "me", Duration::from_secs(16)),
            Step::Take
        );
    }

    #[test]
    fn a_replica_behind_has_not_reached_a_revision() {
        let replica = Replica {
            name: "r".to_owned(),
            live: true,
            reached: BTreeMap::from([("approvalpolicies".to_owned(), "99".to_owned())]),
        };
        assert!(replica.has_reached("approvalpolicies", "99"));
        assert!(!replica.has_reached("approvalpolicies", "100"));
        assert!(!replica.has_reached("toolmounts", "1"));
    }
}
