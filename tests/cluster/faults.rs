//! What a proxy does to the requests that pass it: it counts, delays, holds and cuts them, as a test says.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use hyper::body::Bytes;
use tokio::sync::watch;

use super::wait::{PATIENCE, eventually};

/// A request that passed, or was about to.
#[derive(Debug, Clone)]
pub struct Seen {
    /// Counted from 0 over the life of the proxy.
    pub number: u64,
    /// The HTTP method.
    pub method: String,
    /// The path, without the query.
    pub path: String,
    /// The query, without the question mark.
    pub query: String,
    /// The body.
    pub body: Bytes,
    /// Which backend it was sent to; none if it never was.
    pub backend: Option<usize>,
    /// The status that the server answered, whether or not the client got to see it.
    pub status: Option<u16>,
}

/// On which side of the server's work a fault strikes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Moment {
    /// The server never hears of the request.
    Before,
    /// The server has done all of it; the client does not hear of that.
    After,
}

/// What happens to a request at its moment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Action {
    Cut,
    Hold,
    Answer(u16),
}

/// What a proxy is to do with a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Fate {
    /// Let it pass.
    Pass,
    /// Close the connection without an answer.
    Cut,
    /// Answer with this status in the server's stead.
    Answer(u16),
}

/// Where a trap stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Stage {
    Set,
    Sprung,
    Released,
    Gone,
}

type Which = Arc<dyn Fn(&Seen) -> bool + Send + Sync>;

struct Rule {
    id: u64,
    moment: Moment,
    action: Action,
    which: Which,
    /// How many matching requests pass before it strikes.
    skip: usize,
    stage: watch::Sender<Stage>,
    caught: Arc<Mutex<Option<Seen>>>,
}

/// A fault that strikes one request. Dropping it takes it away; a request that it still holds is then cut.
#[must_use = "dropping a trap takes it away"]
pub struct Trap {
    id: u64,
    faults: Arc<Faults>,
    stage: watch::Sender<Stage>,
    caught: Arc<Mutex<Option<Seen>>>,
}

/// Switches that every connection watches.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Switches {
    pub stalled: bool,
    pub severed: bool,
    pub closed: bool,
    pub shift_seconds: i64,
}

/// The faults of one proxy; shared with its connections.
pub struct Faults {
    pub(super) switches: watch::Sender<Switches>,
    seen: Mutex<Vec<Seen>>,
    rules: Mutex<Vec<Rule>>,
    delay: Mutex<Option<(Duration, Which)>>,
    next_trap: AtomicU64,
    next_request: AtomicU64,
}

impl Seen {
    /// Whether it may change an object. Posting a review of rights or tokens asks and changes nothing.
    pub fn is_write(&self) -> bool {
        let writes = matches!(self.method.as_str(), "POST" | "PUT" | "PATCH" | "DELETE");
        writes && !self.path.ends_with("reviews")
    }

    /// Whether it is a watch, whose answer does not end.
    pub fn is_watch(&self) -> bool {
        self.query
            .split('&')
            .any(|pair| pair == "watch=true" || pair == "watch=1" || pair == "watch")
    }
}

impl Faults {
    pub(super) fn new() -> Arc<Faults> {
        Arc::new(Faults {
            switches: watch::Sender::new(Switches::default()),
            seen: Mutex::default(),
            rules: Mutex::default(),
            delay: Mutex::default(),
            next_trap: AtomicU64::new(0),
            next_request: AtomicU64::new(0),
        })
    }

    /// While true, watches stay open and deliver nothing, also those opened now. What they would have delivered comes after.
    pub fn stall_watches(&self, stalled: bool) {
        self.switches
            .send_modify(|switches| switches.stalled = stalled);
    }

    /// Answers say in their `Date` that it is so many seconds later (or, negative, earlier).
    pub fn shift_date(&self, seconds: i64) {
        self.switches
            .send_modify(|switches| switches.shift_seconds = seconds);
    }

    /// While true, open connections are cut and new ones are closed at once: for this client the server is gone.
    pub fn sever(&self, severed: bool) {
        self.switches
            .send_modify(|switches| switches.severed = severed);
    }

    /// From now on the matching requests wait so long before they are passed on. Zero ends that.
    pub fn delay(&self, time: Duration, which: impl Fn(&Seen) -> bool + Send + Sync + 'static) {
        *lock(&self.delay) = (!time.is_zero()).then(|| (time, Arc::new(which) as Which));
    }

    /// Closes the connection of the `nth` matching request (1 is the next one), before or after the server's work.
    pub fn cut(
        self: &Arc<Self>,
        moment: Moment,
        nth: usize,
        which: impl Fn(&Seen) -> bool + Send + Sync + 'static,
    ) -> Trap {
        self.set(moment, Action::Cut, nth, Arc::new(which))
    }

    /// Holds the `nth` matching request until [`Trap::release`]: time to end the process that sent it.
    pub fn hold(
        self: &Arc<Self>,
        moment: Moment,
        nth: usize,
        which: impl Fn(&Seen) -> bool + Send + Sync + 'static,
    ) -> Trap {
        self.set(moment, Action::Hold, nth, Arc::new(which))
    }

    /// Answers the `nth` matching request with `status`, before or after the server's work.
    pub fn answer(
        self: &Arc<Self>,
        moment: Moment,
        nth: usize,
        status: u16,
        which: impl Fn(&Seen) -> bool + Send + Sync + 'static,
    ) -> Trap {
        self.set(moment, Action::Answer(status), nth, Arc::new(which))
    }

    /// Everything that came, in order.
    pub fn seen(&self) -> Vec<Seen> {
        lock(&self.seen).clone()
    }

    /// How many of the requests that came are so.
    pub fn count(&self, which: impl Fn(&Seen) -> bool) -> usize {
        lock(&self.seen).iter().filter(|seen| which(seen)).count()
    }

    /// How often each method and path came.
    pub fn counts(&self) -> BTreeMap<(String, String), usize> {
        let mut counts = BTreeMap::new();
        for seen in lock(&self.seen).iter() {
            *counts
                .entry((seen.method.clone(), seen.path.clone()))
                .or_default() += 1;
        }
        counts
    }

    /// Starts counting anew.
    pub fn forget(&self) {
        lock(&self.seen).clear();
    }

    fn set(self: &Arc<Self>, moment: Moment, action: Action, nth: usize, which: Which) -> Trap {
        let id = self.next_trap.fetch_add(1, Ordering::Relaxed);
        let (stage, caught) = (watch::Sender::new(Stage::Set), Arc::new(Mutex::new(None)));
        let skip = nth.saturating_sub(1);
        let rule = Rule {
            id,
            moment,
            action,
            which,
            skip,
            stage: stage.clone(),
            caught: Arc::clone(&caught),
        };
        lock(&self.rules).push(rule);
        Trap {
            id,
            faults: Arc::clone(self),
            stage,
            caught,
        }
    }

    pub(super) fn record(&self, method: &str, path: &str, query: &str, body: Bytes) -> Seen {
        let seen = Seen {
            number: self.next_request.fetch_add(1, Ordering::Relaxed),
            method: method.to_owned(),
            path: path.to_owned(),
            query: query.to_owned(),
            body,
            backend: None,
            status: None,
        };
        lock(&self.seen).push(seen.clone());
        seen
    }

    pub(super) fn note(&self, seen: &Seen) {
        let mut all = lock(&self.seen);
        if let Some(kept) = all.iter_mut().rev().find(|kept| kept.number == seen.number) {
            kept.backend = seen.backend;
            kept.status = seen.status;
        }
    }

    pub(super) async fn wait_as_told(&self, seen: &Seen) {
        let time = lock(&self.delay)
            .as_ref()
            .filter(|(_, which)| which(seen))
            .map(|(time, _)| *time);
        if let Some(time) = time {
            tokio::time::sleep(time).await;
        }
    }

    /// Whether a trap could strike this request at this moment: then its answer must be read to the end first.
    pub(super) fn awaits(&self, moment: Moment, seen: &Seen) -> bool {
        lock(&self.rules)
            .iter()
            .any(|rule| rule.moment == moment && (rule.which)(seen))
    }

    /// What is to happen to this request now; waits while a trap holds it.
    pub(super) async fn fate(&self, moment: Moment, seen: &Seen) -> Fate {
        let Some((action, stage)) = self.strike(moment, seen) else {
            return Fate::Pass;
        };
        match action {
            Action::Cut => Fate::Cut,
            Action::Answer(status) => Fate::Answer(status),
            Action::Hold => {
                let over = |stage: &Stage| matches!(stage, Stage::Released | Stage::Gone);
                match stage.subscribe().wait_for(over).await.as_deref() {
                    Ok(Stage::Released) => Fate::Pass,
                    _ => Fate::Cut,
                }
            }
        }
    }

    fn strike(&self, moment: Moment, seen: &Seen) -> Option<(Action, watch::Sender<Stage>)> {
        let mut rules = lock(&self.rules);
        let mut struck = None;
        for (index, rule) in rules.iter_mut().enumerate() {
            if rule.moment != moment || !(rule.which)(seen) {
                continue;
            }
            if rule.skip > 0 {
                rule.skip -= 1;
            } else if struck.is_none() {
                struck = Some(index);
            }
        }
        let rule = rules.remove(struck?);
        *lock(&rule.caught) = Some(seen.clone());
        rule.stage.send_replace(Stage::Sprung);
        Some((rule.action, rule.stage))
    }
}

impl Trap {
    /// Waits until it has struck; the request that it struck.
    ///
    /// # Panics
    ///
    /// When that does not happen.
    pub async fn sprung(&self) -> Seen {
        let caught = async || lock(&self.caught).clone();
        eventually("a request walks into the trap", PATIENCE, caught)
            .await
            .unwrap()
    }

    /// Whether it has struck.
    pub fn is_sprung(&self) -> bool {
        lock(&self.caught).is_some()
    }

    /// Lets the request go on that it holds.
    pub fn release(self) {
        self.stage.send_replace(Stage::Released);
    }
}

impl Drop for Trap {
    fn drop(&mut self) {
        lock(&self.faults.rules).retain(|rule| rule.id != self.id);
        self.stage.send_if_modified(|stage| {
            let changes = *stage != Stage::Released;
            *stage = if changes {
                Stage::Gone
            } else {
                Stage::Released
            };
            changes
        });
    }
}

/// A test that panicked while it held a lock has failed already.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex
        .lock()
        .unwrap_or_else(std::sync::PoisonError::into_inner)
}
