//! What may happen next in a state: one step of the API server, of a replica, of the controller, of the store, or of somebody else.

use std::{fmt, ops::Range};

use super::{
    gate::Gate,
    rules::Dropped,
    target::{Foreign, version},
    world::{GrantId, LATE, LIFE, Phase, Scenario, World},
    writes::Act,
};

/// One step.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Step {
    /// A request, or its next attempt, asks a replica that has this copy of the grant.
    Ask {
        request: usize,
        revision: usize,
        copy: usize,
    },
    /// The review is sent again, to a replica that has this copy.
    AskAgain { request: usize, copy: usize },
    /// A replica does what comes next.
    Go { call: usize },
    /// The same, but its answer is lost.
    GoUnheard { call: usize },
    /// The store does what a replica asks, and the replica does not learn of it.
    Unanswered { call: usize },
    /// The API server gives a request up.
    Abandon { request: usize },
    /// An admitted write reaches the store.
    Commit { request: usize },
    /// Somebody else writes the target.
    Foreign(Foreign),
    /// The history up to now is compacted.
    Compact,
    /// A person revokes the grant.
    Revoke,
    /// The grant is found stale.
    Stale,
    /// The grant is deleted, and an old copy of it is created.
    Restore,
    /// The controller settles what is ready.
    Settle,
    /// The controller records that the grant ended.
    End,
    /// Time passes, until this second.
    Until(i64),
}

impl fmt::Display for Step {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Self::Ask {
                request,
                revision,
                copy,
            } => {
                let shown = version(revision);
                write!(
                    f,
                    "request {request} shows revision {shown} to a replica that knows revision {copy} of the grant"
                )
            }
            Self::AskAgain { request, copy } => {
                write!(
                    f,
                    "request {request} sends its review again, to a replica that knows revision {copy} of the grant"
                )
            }
            Self::Go { call } => write!(f, "call {call} goes on"),
            Self::GoUnheard { call } => write!(f, "call {call} goes on, and its answer is lost"),
            Self::Unanswered { call } => write!(f, "call {call} writes, and gets no answer"),
            Self::Abandon { request } => write!(f, "the API server gives request {request} up"),
            Self::Commit { request } => write!(f, "request {request} reaches the store"),
            Self::Foreign(what) => write!(f, "somebody else: {what:?}"),
            Self::Compact => write!(f, "the history is compacted"),
            Self::Revoke => write!(f, "a person revokes the grant"),
            Self::Stale => write!(f, "the grant is found stale"),
            Self::Restore => write!(f, "the grant is deleted and restored from a copy"),
            Self::Settle => write!(f, "the controller settles"),
            Self::End => write!(f, "the controller records the end"),
            Self::Until(second) => write!(f, "it is second {second}"),
        }
    }
}

/// What the next states are made with.
pub struct Steps<'s> {
    /// What may happen.
    pub scenario: &'s Scenario,
    /// Without which rules.
    pub dropped: Dropped,
    /// The gate.
    pub gate: Gate<'s>,
}

type Next = Vec<(Step, World)>;

impl Steps<'_> {
    /// Every state that can come next.
    pub fn after(&mut self, world: &World) -> Next {
        let mut next = Vec::new();
        for request in 0..world.requests.len() {
            self.of_request(world, request, &mut next);
        }
        for call in 0..world.calls.len() {
            self.of_call(world, call, &mut next);
        }
        self.of_others(world, &mut next);
        next
    }

    /// The second.
    pub fn now(&self, world: &World) -> i64 {
        self.scenario.times[world.clock]
    }

    fn of_request(&mut self, world: &World, request: usize, next: &mut Next) {
        match &world.requests[request].phase {
            Phase::Ahead => self.ask(world, request, next),
            Phase::Asking { shown, .. } => {
                if world.left.abandoned > 0 {
                    let mut after = world.clone();
                    after.left.abandoned -= 1;
                    after.end_request(request);
                    next.push((Step::Abandon { request }, after));
                }
                if !world
                    .calls
                    .iter()
                    .any(|call| call.request == request && call.awaited)
                {
                    for copy in self.copies(world) {
                        let mut after = world.clone();
                        self.call(&mut after, request, *shown, copy);
                        next.push((Step::AskAgain { request, copy }, after));
                    }
                }
            }
            Phase::Admitted { shown, by } => {
                let mut after = world.clone();
                self.commit(&mut after, request, *shown, *by);
                next.push((Step::Commit { request }, after));
            }
            Phase::Done => {}
        }
    }

    /// The revisions of the grant that a replica may have.
    fn copies(&self, world: &World) -> Range<usize> {
        let newest = world.grants.len() - 1;
        if self.scenario.old_copies {
            0..newest + 1
        } else {
            newest..newest + 1
        }
    }

    fn ask(&mut self, world: &World, request: usize, next: &mut Next) {
        let write = self.scenario.writes[request];
        let first = world.requests[request].attempt == 0;
        // Equal requests come in their order: which is which makes no difference.
        let equal = |other: usize| self.scenario.writes[other] == write;
        if first && (0..request).any(|other| equal(other) && world.requests[other].attempt == 0) {
            return;
        }
        let newest = world.newest();
        let oldest = if first && self.scenario.old_objects {
            newest.saturating_sub(1)
        } else {
            newest
        };
        for revision in oldest..=newest {
            let object = world.history.revisions[revision];
            let mut begun = world.clone();
            let this = &mut begun.requests[request];
            this.attempt += 1;
            if first {
                this.born = self.now(world);
            }
            let shown = match (write.act, object) {
                (Act::Set(value), Some(object)) if object.value != value => {
                    Some((object, revision))
                }
                (Act::Delete { .. }, Some(object)) => Some((object, revision)),
                (Act::Create, None) | (Act::Exec, _) => None,
                // Nothing to do, nothing there, or there already; out of the cache the server looks again first.
                _ if revision == newest => {
                    this.phase = Phase::Done;
                    next.push((
                        Step::Ask {
                            request,
                            revision,
                            copy: 0,
                        },
                        begun,
                    ));
                    continue;
                }
                _ => continue,
            };
            for copy in self.copies(world) {
                let mut after = begun.clone();
                after.requests[request].phase = Phase::Asking { shown, told: false };
                self.call(&mut after, request, shown, copy);
                next.push((
                    Step::Ask {
                        request,
                        revision,
                        copy,
                    },
                    after,
                ));
            }
        }
    }

    fn of_others(&mut self, world: &World, next: &mut Next) {
        if world.left.foreigners > 0 {
            for what in &self.scenario.foreign {
                if let Some(mut after) = self.foreign(world, *what) {
                    after.left.foreigners -= 1;
                    next.push((Step::Foreign(*what), after));
                }
            }
        }
        if world.left.compactions > 0 && world.history.kept_from < world.newest() {
            let mut after = world.clone();
            after.left.compactions -= 1;
            after.history.kept_from = world.newest();
            next.push((Step::Compact, after));
        }
        let live = world.live();
        if world.left.revoked > 0 {
            let mut after = world.clone();
            after.left.revoked -= 1;
            after.grants.push(self.gate.revoked(live));
            next.push((Step::Revoke, after));
        }
        if world.left.stale > 0 {
            let mut after = world.clone();
            after.left.stale -= 1;
            match self.gate.stale(live, self.now(world)) {
                Some(stale) => after.grants.push(stale),
                None => after.void = true,
            }
            next.push((Step::Stale, after));
        }
        if world.left.restored > 0 {
            let mut after = world.clone();
            after.left.restored -= 1;
            after.grants.push(self.gate.restored(live));
            next.push((Step::Restore, after));
        }
        if self.scenario.controller {
            self.controller(world, live, next);
        }
        if let Some(second) = self.scenario.times.get(world.clock + 1) {
            next.push((Step::Until(*second), self.later(world, *second)));
        }
    }

    fn controller(&mut self, world: &World, live: GrantId, next: &mut Next) {
        let second = self.now(world);
        if let Some(settled) = self.gate.settle(live, second, &world.history) {
            let mut after = world.clone();
            after.grants.push(settled);
            self.compare_with_record(&mut after);
            next.push((Step::Settle, after));
        }
        if let Some(ended) = self.gate.ended(live, second) {
            let mut after = world.clone();
            after.grants.push(ended);
            next.push((Step::End, after));
        }
    }

    /// The state at a later second. The API server ends what is older than a request may become.
    fn later(&self, world: &World, second: i64) -> World {
        let mut after = world.clone();
        after.clock += 1;
        for request in 0..after.requests.len() {
            let this = &after.requests[request];
            let age = second - this.born;
            let over = match this.phase {
                Phase::Ahead => this.attempt > 0 && age > LIFE,
                Phase::Asking { .. } => age > LIFE,
                Phase::Admitted { .. } => age > LIFE + LATE,
                Phase::Done => false,
            };
            if over {
                after.end_request(request);
            }
        }
        // What a replica works on is over within seconds.
        after.calls.retain(|call| call.awaited);
        after
    }
}

impl World {
    /// The API server no longer waits for a request's answer.
    fn end_request(&mut self, request: usize) {
        self.requests[request].phase = Phase::Done;
        for call in &mut self.calls {
            if call.request == request {
                call.awaited = false;
            }
        }
    }
}
