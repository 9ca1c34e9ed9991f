//! A replica of the gate at work on a review. Between any two of its steps everything else may happen.

use super::{
    gate::{Asked, Verdict},
    rules::Rule,
    steps::{Step, Steps},
    world::{Call, Doing, Phase, Uid, World, Wrong},
    writes::{Act, Shown},
};
use crate::{api::grant::GrantPhase, decide::witness::Seen};

impl Steps<'_> {
    /// A review reaches a replica.
    pub fn call(&mut self, world: &mut World, request: usize, shown: Shown, copy: usize) {
        let uid = Uid::try_from(request).unwrap() * 10 + world.requests[request].attempt;
        let call = Call {
            request,
            uid,
            shown,
            awaited: true,
            grant: world.grants[copy],
            live: false,
            gone: Vec::new(),
            next: Doing::Read,
        };
        self.judge(world, call, true);
    }

    pub fn of_call(&mut self, world: &World, place: usize, next: &mut Vec<(Step, World)>) {
        let call = &world.calls[place];
        let mut after = world.clone();
        self.go(&mut after, place, true);
        next.push((Step::Go { call: place }, after));
        if world.left.lost_answers > 0 && call.awaited {
            let mut after = world.clone();
            after.left.lost_answers -= 1;
            self.go(&mut after, place, false);
            next.push((Step::GoUnheard { call: place }, after));
        }
        if world.left.lost_replies > 0 && matches!(call.next, Doing::Write { .. }) {
            let mut after = world.clone();
            after.left.lost_replies -= 1;
            let call = after.calls.remove(place);
            if let Doing::Write { next, .. } = call.next
                && after.live() == call.grant
            {
                after.grants.push(next);
            }
            if call.awaited {
                after.requests[call.request].phase = Phase::Done;
            }
            next.push((Step::Unanswered { call: place }, after));
        }
    }

    /// A replica does what comes next. `heard`: its answer, if it comes to one, reaches the API server.
    fn go(&mut self, world: &mut World, place: usize, heard: bool) {
        let mut call = world.calls.remove(place);
        match call.next {
            Doing::Read => {
                call.grant = world.live();
                call.live = true;
            }
            Doing::Look { by, from } => {
                let asked = self.asked(world, &call);
                let seen = self.gate.look(&asked, from, &world.history);
                let moved = match seen {
                    Seen::NotCommitted => self.gate.moved(call.grant, by, call.shown),
                    Seen::MaybeCommitted => None,
                };
                if let Some(next) = moved {
                    call.next = Doing::Write { next, by };
                    world.calls.insert(place, call);
                    return;
                }
                call.gone.push(by);
            }
            Doing::Write { next, by } => {
                let ended = self.has_ended(world);
                let live = world.live();
                let stored = if live == call.grant {
                    Some(next)
                } else if self.dropped.has(Rule::ExactRevisionOfTheGrant) {
                    Some(self.gate.overwritten(live, next))
                } else if self.dropped.has(Rule::JudgedAgainAfterConflict) {
                    Some(self.gate.forced(live, next))
                } else {
                    None
                };
                if let Some(stored) = stored {
                    world.grants.push(stored);
                    self.admit(world, &call, by, ended, by == call.uid, heard);
                } else {
                    call.next = Doing::Read;
                    world.calls.insert(place, call);
                }
                return;
            }
        }
        self.judge(world, call, heard);
    }

    fn asked(&self, world: &World, call: &Call) -> Asked {
        Asked {
            grant: call.grant,
            live: call.live,
            gone: call.gone.clone(),
            write: u8::try_from(call.request).unwrap(),
            shown: call.shown,
            uid: call.uid,
            second: self.now(world),
        }
    }

    fn judge(&mut self, world: &mut World, mut call: Call, heard: bool) {
        let asked = self.asked(world, &call);
        call.next = match self.gate.decide(&asked) {
            Verdict::Admit { by, rule } => {
                // The same answer to the same review began before.
                let ended = rule.is_some() && self.has_ended(world);
                self.admit(world, &call, by, ended, rule.is_none(), heard);
                return;
            }
            Verdict::Deny => {
                let request = &mut world.requests[call.request];
                if call.awaited && heard {
                    let told = matches!(request.phase, Phase::Asking { told: true, .. });
                    request.phase = Phase::Done;
                    if told {
                        world.blame(Wrong::AnswerChanged);
                    }
                }
                return;
            }
            Verdict::Read => Doing::Read,
            Verdict::Look { by, from } => Doing::Look { by, from },
            Verdict::Write { next, by } => Doing::Write { next, by },
        };
        world.calls.push(call);
    }

    fn has_ended(&self, world: &World) -> bool {
        let grant = self.gate.grant(world.live());
        let stale = grant.status.as_ref().and_then(|status| status.phase);
        world.void || grant.spec.revoked == Some(true) || stale == Some(GrantPhase::Stale)
    }

    /// A replica admits. `counted`: the use is this review's own.
    fn admit(
        &mut self,
        world: &mut World,
        call: &Call,
        by: Uid,
        ended: bool,
        counted: bool,
        heard: bool,
    ) {
        let request = &mut world.requests[call.request];
        if !call.awaited || !heard {
            if let Phase::Asking { told, .. } = &mut request.phase
                && request.attempt == call.uid % 10
            {
                *told |= counted;
            }
            return;
        }
        request.phase = Phase::Admitted {
            shown: call.shown,
            by,
        };
        if ended {
            world.blame(Wrong::AfterTheEnd);
        }
        let write = self.scenario.writes[call.request];
        if write.stray.is_some() {
            world.blame(Wrong::NotApproved);
        }
        if write.act == Act::Exec {
            world.requests[call.request].phase = Phase::Done;
            self.effect(world, by);
        }
    }
}
