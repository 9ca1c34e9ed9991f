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
    view::{Said, ViewError},
};
use crate::decide::revision;

/// How long a Lease holds after its last renewal.
pub const DURATION: Duration = Duration::from_secs(15);
/// The same as Leases write it.
const DURATION_SECONDS: i32 = 15;
/// A holder that could not renew for so long stops by itself, before anybody takes over.
const GIVE_UP: Duration = Duration::from_secs(10);
/// A leader that cannot do the work for so long gives it to others.
const UNFIT: Duration = Duration::from_secs(10);
/// For so long who cannot do the work leaves a free Lease to others.
const OTHERS_FIRST: Duration = Duration::from_secs(30);
const RENEW_EVERY: Duration = Duration::from_secs(2);
const CALL: Duration = Duration::from_secs(3);
const LOOK_AGAIN: Duration = Duration::from_millis(200);

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
    /// We hold it and cannot do the work: give it back.
    GiveUp,
    /// Somebody else holds it, or should.
    Wait,
}

/// Decides. `unchanged_for` is how long we have seen the Lease unchanged: a holder's own timestamps may be of another clock. `unfit_for`
/// is how long we could not have done the work; `None`: we can. Who cannot lets others go first, and takes what nobody else takes: the
/// gate is looked after also while nothing can be decided.
pub fn step(
    spec: Option<&LeaseSpec>,
    me: &str,
    unchanged_for: Duration,
    unfit_for: Option<Duration>,
) -> Step {
    let holder = spec.and_then(|spec| spec.holder_identity.as_deref());
    let free_after = match holder {
        Some(holder) if holder == me => {
            let is_long = unfit_for.is_some_and(|span| span > UNFIT);
            return if is_long { Step::GiveUp } else { Step::Renew };
        }
        None | Some("") => Duration::ZERO,
        Some(_) => spec
            .and_then(|spec| spec.lease_duration_seconds)
            .and_then(|seconds| u64::try_from(seconds).ok())
            .map_or(DURATION, Duration::from_secs),
    };
    let others_first = unfit_for.map_or(Duration::ZERO, |_| OTHERS_FIRST);
    let wait = free_after.saturating_add(others_first);
    if unchanged_for > wait || wait.is_zero() {
        Step::Take
    } else {
        Step::Wait
    }
}

fn moment() -> Instant {
    Instant::now()
}

async fn rest(span: Duration) {
    tokio::time::sleep(span).await;
}

/// One replica's candidacy. Time is an argument.
#[derive(Debug)]
struct Candidate {
    /// When the last renewal that landed was begun.
    renewed: Instant,
    /// Since when the work could not be done.
    unfit_since: Option<Instant>,
    /// When it was given up: others go first for a while.
    gave_up: Option<Instant>,
}

impl Candidate {
    fn new(now: Instant) -> Self {
        Self {
            renewed: now,
            unfit_since: None,
            gave_up: None,
        }
    }

    /// How long the work could not be done; `None`: it can be.
    fn unfit_for(&mut self, is_fit: bool, now: Instant) -> Option<Duration> {
        if is_fit {
            self.unfit_since = None;
        } else {
            self.unfit_since.get_or_insert(now);
        }
        let rests = self
            .gave_up
            .is_some_and(|at| now.saturating_duration_since(at) < OTHERS_FIRST);
        match self.unfit_since {
            Some(since) => Some(now.saturating_duration_since(since)),
            None => rests.then_some(Duration::ZERO),
        }
    }

    /// The Lease is ours since a call that began at `started`; it was not before if `taken`.
    fn holds(&mut self, started: Instant, taken: bool) {
        self.renewed = started;
        if taken {
            // Its time begins anew: nobody else wanted it.
            self.unfit_since = None;
            self.gave_up = None;
        }
    }

    /// Until then nobody else can have taken what we hold.
    fn stops_at(&self) -> Instant {
        self.renewed + GIVE_UP
    }
}

/// Runs for leadership until the last receiver is dropped. The receiver says whether we lead; it turns false before anybody else can take
/// over, also while a call hangs. `fit` is asked whether the work can be done. The task ends once a Lease that we held is given back, so
/// that the next leader need not wait.
pub fn run_for_leader(
    client: &Client,
    namespace: &str,
    name: &str,
    me: &str,
    fit: impl Fn() -> Result<(), ViewError> + Send + Sync + 'static,
) -> (watch::Receiver<bool>, tokio::task::JoinHandle<()>) {
    let (leads, receiver) = watch::channel(false);
    let api: Api<Lease> = Api::namespaced(client.clone(), namespace);
    let (name, me) = (name.to_owned(), me.to_owned());
    let task = tokio::spawn(async move {
        // Whoever waits for a change is woken by changes only.
        let say = |leading: bool| {
            leads.send_if_modified(|known| std::mem::replace(known, leading) != leading);
        };
        let (mut seen, mut seen_since) = (None, moment());
        let mut candidate = Candidate::new(moment());
        let mut said = Said::default();
        while !leads.is_closed() {
            let started = moment();
            let unfit = fit().err();
            if said.is_news(unfit.as_ref()) {
                match &unfit {
                    Some(why) => {
                        tracing::warn!(%why, lease = name, "this replica cannot do the leader's work")
                    }
                    None => tracing::info!(lease = name, "this replica can do the leader's work"),
                }
            }
            let unfit_for = candidate.unfit_for(unfit.is_none(), started);
            let attempt = attempt(
                &api,
                &name,
                &me,
                &mut seen,
                &mut seen_since,
                unfit_for,
                &say,
            );
            tokio::pin!(attempt);
            let outcome = match tokio::time::timeout_at(candidate.stops_at(), &mut attempt).await {
                Ok(outcome) => outcome,
                Err(_) => {
                    say(false);
                    attempt.await
                }
            };
            match outcome {
                Ok(Step::GiveUp) => candidate.gave_up = Some(moment()),
                Ok(Step::Wait) => say(false),
                Ok(step) => {
                    candidate.holds(started, step == Step::Take);
                    say(true);
                }
                Err(error) => tracing::warn!(%error, lease = name, "cannot renew"),
            }
            let leading = *leads.borrow();
            let pause = match candidate.stops_at().checked_duration_since(moment()) {
                Some(left) if leading => RENEW_EVERY.min(left),
                _ => RENEW_EVERY,
            };
            tokio::select! {
                () = rest(pause) => {}
                () = until_fit(&fit), if unfit.is_some() && !leading => {}
                () = leads.closed() => {}
            }
        }
        if *leads.borrow() {
            release(&api, &name, &me).await;
        }
    });
    (receiver, task)
}

/// Ends once the work can be done: a replica that has just started need not wait for its next look at the Lease.
async fn until_fit(fit: &impl Fn() -> Result<(), ViewError>) {
    while fit().is_err() {
        rest(LOOK_AGAIN).await;
    }
}

type Seen = Option<(Option<String>, Option<MicroTime>, Option<String>)>;

/// One look at the Lease and what follows from it. What is answered has been done.
async fn attempt(
    api: &Api<Lease>,
    name: &str,
    me: &str,
    seen: &mut Seen,
    seen_since: &mut Instant,
    unfit_for: Option<Duration>,
    say: &(impl Fn(bool) + Sync),
) -> Result<Step, CallError> {
    let there = within(CALL, api.get_opt(name)).await?;
    let now_seen = there.as_ref().map(|lease| {
        let spec = lease.spec.as_ref();
        (
            spec.and_then(|spec| spec.holder_identity.clone()),
            spec.and_then(|spec| spec.renew_time.clone()),
            lease.resource_version(),
        )
    });
    if *seen != now_seen {
        *seen = now_seen;
        *seen_since = moment();
    }
    let spec = there.as_ref().and_then(|lease| lease.spec.as_ref());
    let step = step(spec, me, seen_since.elapsed(), unfit_for);
    let answer = match (step, there) {
        (Step::Wait, _) => return Ok(Step::Wait),
        (Step::GiveUp, _) => {
            // Before it is free.
            say(false);
            release(api, name, me).await;
            return Ok(Step::GiveUp);
        }
        (Step::Take | Step::Renew, Some(there)) => {
            let mut taken = there.clone();
            taken.spec = Some(held(there.spec.as_ref(), me));
            within(CALL, api.replace(name, &PostParams::default(), &taken)).await
        }
        (Step::Take | Step::Renew, None) => {
            let lease = Lease {
                metadata: ObjectMeta {
                    name: Some(name.to_owned()),
                    ..ObjectMeta::default()
                },
                spec: Some(held(None, me)),
            };
            within(CALL, api.create(&PostParams::default(), &lease)).await
        }
    };
    match answer {
        Ok(_) => Ok(step),
        Err(error) if error.is_conflict() || error.is_already_exists() => Ok(Step::Wait),
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
    announced: watch::Sender<bool>,
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
            announced: watch::Sender::new(false),
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
                        beat.announced.send_replace(true);
                    }
                    Err(error) => tracing::warn!(%error, lease = name, "cannot renew"),
                }
                rest(RENEW_EVERY).await;
            }
        });
        (heartbeat, task)
    }

    /// Waits until the replica is known to be there: from then on a change waits for it before it is said to be in force, so what it
    /// lists afterwards holds every change that did not wait.
    pub async fn announced(&self) {
        // It cannot fail: the sender is ours.
        let _ = self.announced.subscribe().wait_for(|there| *there).await;
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

    fn spec(holder: &str) -> LeaseSpec {
        LeaseSpec {
            holder_identity: Some(holder.to_owned()),
            lease_duration_seconds: Some(15),
            ..LeaseSpec::default()
        }
    }

    fn seconds(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    #[test]
    fn a_lease_is_taken_only_when_nobody_holds_it() {
        let step = |holder, unchanged| step(Some(&spec(holder)), "me", seconds(unchanged), None);
        assert_eq!(super::step(None, "me", seconds(0), None), Step::Take);
        assert_eq!(step("", 0), Step::Take);
        assert_eq!(step("me", 99), Step::Renew);
        assert_eq!(step("other", 3), Step::Wait);
        assert_eq!(step("other", 16), Step::Take);
    }

    #[test]
    fn who_cannot_do_the_work_gives_it_up_and_takes_only_what_nobody_else_takes() {
        let step = |holder, unchanged, unfit| {
            step(
                Some(&spec(holder)),
                "me",
                seconds(unchanged),
                Some(seconds(unfit)),
            )
        };
        assert_eq!(step("me", 0, 10), Step::Renew, "a moment is nothing");
        assert_eq!(step("me", 0, 11), Step::GiveUp);
        assert_eq!(step("", 3, 11), Step::Wait);
        assert_eq!(step("", 31, 11), Step::Take);
        assert_eq!(step("other", 16, 11), Step::Wait);
        assert_eq!(step("other", 46, 11), Step::Take);
        assert_eq!(
            super::step(None, "me", seconds(3), Some(seconds(1))),
            Step::Wait
        );
    }

    #[test]
    fn who_gave_up_lets_others_go_first_and_begins_anew_when_nobody_came() {
        let begin = moment();
        let mut candidate = Candidate::new(begin);
        assert_eq!(candidate.unfit_for(true, begin), None);
        assert_eq!(candidate.unfit_for(false, begin), Some(seconds(0)));
        let later = begin + seconds(11);
        assert_eq!(candidate.unfit_for(false, later), Some(seconds(11)));
        candidate.gave_up = Some(later);
        assert_eq!(
            candidate.unfit_for(true, later + seconds(1)),
            Some(seconds(0))
        );
        assert_eq!(candidate.unfit_for(true, later + seconds(31)), None);
        candidate.gave_up = Some(later + seconds(31));
        candidate.holds(later + seconds(62), true);
        assert_eq!(
            candidate.unfit_for(false, later + seconds(63)),
            Some(seconds(0))
        );
    }

    #[test]
    fn a_holder_stops_before_anybody_else_can_take_over() {
        let begin = moment();
        let mut candidate = Candidate::new(begin);
        candidate.holds(begin + seconds(4), false);
        let stops = candidate.stops_at().duration_since(begin + seconds(4));
        // Others count from a renewal that they saw, which is no earlier than the call that made it.
        assert!(stops + seconds(3) < DURATION);
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
