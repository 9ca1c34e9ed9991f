//! The store: it takes a write only onto the revision that was shown, and what it takes is an effect.

use super::{
    steps::Steps,
    target::{Foreign, Object},
    world::{Phase, Uid, World, Wrong},
    writes::{Act, Shown},
};
use crate::api::grant::{Use, UseEffect};

impl Steps<'_> {
    /// An effect under a use.
    pub fn effect(&self, world: &mut World, by: Uid) {
        world.effects += 1;
        world.done.push(by);
        if i32::from(world.effects) > self.scenario.uses {
            world.blame(Wrong::DoubleEffect);
        }
        self.compare_with_record(world);
    }

    pub fn compare_with_record(&self, world: &mut World) {
        let status = self
            .gate
            .grant(world.live())
            .status
            .clone()
            .unwrap_or_default();
        let denied = world.done.iter().any(|by| {
            let used = status
                .uses
                .get(&format!("00000000-0000-0000-0000-{by:012}"));
            used.is_some_and(|used| used.effect == UseEffect::NotObserved)
        });
        if denied {
            world.blame(Wrong::FalseRecord);
        }
    }

    /// An admitted write reaches the store, which takes it only onto the revision that was shown.
    pub fn commit(&mut self, world: &mut World, request: usize, shown: Shown, by: Uid) {
        let write = self.scenario.writes[request];
        let newest = world.newest();
        let conflict = match shown {
            Some((_, revision)) => revision != newest,
            None => world.target().is_some(),
        };
        if conflict {
            let this = &mut world.requests[request];
            let again =
                write.repeats && write.act != Act::Create && this.attempt < self.scenario.attempts;
            this.phase = if again { Phase::Ahead } else { Phase::Done };
            return;
        }
        world.requests[request].phase = Phase::Done;
        match (write.act, shown) {
            (Act::Set(value), Some((object, _))) => {
                world.store(Some(self.scenario.place.set(object, value)));
                self.effect(world, by);
            }
            (Act::Delete { grace, orphan }, Some((object, _))) => {
                self.delete(world, request, object, grace, orphan, by);
            }
            (Act::Create, _) => {
                let uid =
                    Uid::try_from(request).unwrap() * 10 + world.requests[request].attempt + 10;
                world.store(Some(Object {
                    uid,
                    ..self.scenario.place.first()
                }));
                self.effect(world, by);
            }
            _ => {}
        }
    }

    /// A deletion is two writes: one sets the time and grace, the other removes the object, at once where the grace is 0.
    fn delete(
        &self,
        world: &mut World,
        request: usize,
        object: Object,
        grace: u8,
        orphan: bool,
        by: Uid,
    ) {
        let marked = object.grace;
        if marked == Some(0) {
            world.store(None);
            return;
        }
        let shorter = marked.is_none_or(|marked| grace < marked);
        if !shorter && orphan == object.orphans {
            return;
        }
        // That it goes is one effect. Less time than any use counted allows, or another fate of its dependents, is one more.
        let status = self
            .gate
            .grant(world.live())
            .status
            .clone()
            .unwrap_or_default();
        let counted = |used: &Use| used.grace_seconds <= Some(i64::from(grace));
        let more =
            marked.is_none() || orphan != object.orphans || !status.uses.values().any(counted);
        world.store(Some(Object {
            grace: Some(marked.map_or(grace, |marked| marked.min(grace))),
            orphans: orphan,
            generation: object.generation.map(|generation| generation + 1),
            ..object
        }));
        if more {
            self.effect(world, by);
        }
        if grace == 0 {
            world.requests[request].phase = Phase::Ahead;
        }
    }

    pub fn foreign(&self, world: &World, what: Foreign) -> Option<World> {
        let mut after = world.clone();
        match (world.target(), what) {
            (Some(_), Foreign::Remove) => after.store(None),
            (Some(object), Foreign::Replace) => {
                after.store(None);
                after.store(Some(Object {
                    uid: object.uid + 1,
                    ..self.scenario.place.first()
                }));
            }
            (Some(object), _) => after.store(Some(self.scenario.place.foreign(object, what)?)),
            (None, _) => return None,
        }
        Some(after)
    }
}
