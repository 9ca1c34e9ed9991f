//! What became of an admitted write, read from the target afterwards.
//!
//! Admitted is not stored. What is there now shows an effect that lasted; an effect that somebody undid shows only in the revisions in
//! between, so an unchanged target proves nothing unless its revision is still the one the write was made on.

use super::{canonical, json::Value, pointer, visible::visible};
use crate::api::{
    ApprovalRequestSpec, Operation,
    approval_policy::Volatile,
    approval_request::FieldDiff,
    grant::{Evidence, Use, UseEffect},
};

/// Paths that are kept as evidence.
const MAX_PATHS: usize = 16;
/// Longest path that is kept as evidence.
const MAX_PATH: usize = 4096;

/// The target now.
#[derive(Clone, Copy)]
pub enum Target<'d> {
    /// There is no object of that name.
    Absent,
    /// This is there.
    Present(Value<'d>),
}

/// What the target shows.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Finding {
    /// It is known what became of the use.
    Settled(UseEffect, Evidence),
    /// Only the revisions after this one can tell.
    Walk {
        /// The revision that the use stands at; absent for CREATE.
        from: Option<String>,
    },
}

/// The fields by which a change is recognised: new values that can be looked up in an object.
#[derive(Clone, Debug, Default)]
pub struct Marks<'r> {
    fields: Vec<(&'r FieldDiff, Wanted)>,
}

/// What value a field must have.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Wanted {
    /// The one approved.
    Approved,
    /// Any but the old one: it was left free within a shape.
    Another,
}

impl<'r> Marks<'r> {
    /// Of a request. The order of a list, and who owns a field, cannot be looked up and are no marks.
    pub fn of(request: &'r ApprovalRequestSpec) -> Self {
        let mut marks = Self::default();
        for field in &request.diff {
            let plain = field.path.is_empty() || field.path.starts_with('/');
            if plain && !field.path.ends_with(pointer::ORDER) {
                let wanted = if free(&field.path, &request.binding.volatile) {
                    Wanted::Another
                } else {
                    Wanted::Approved
                };
                marks.fields.push((field, wanted));
            }
        }
        marks
    }

    /// The marks that an object bears.
    pub fn borne_by(&self, object: Value<'_>) -> Vec<&'r str> {
        let bears = |(field, wanted): &&(&FieldDiff, Wanted)| {
            let there = pointer::resolve(object, &field.path).map(canonical::to_string);
            match wanted {
                Wanted::Approved => there.as_deref() == field.to.as_deref(),
                Wanted::Another => there.is_some() && there.as_deref() != field.from.as_deref(),
            }
        };
        let borne = self.fields.iter().filter(bears);
        borne.map(|(field, _)| field.path.as_str()).collect()
    }

    /// Whether an object bears all of them. A change without marks is never recognised.
    pub fn all_borne_by(&self, object: Value<'_>) -> bool {
        !self.fields.is_empty() && self.borne_by(object).len() == self.fields.len()
    }

    /// Whether the change may be what deletes its target: it touches the finalizers.
    pub fn may_delete(&self) -> bool {
        let mut paths = self.fields.iter().map(|(field, _)| field.path.as_str());
        paths.any(|path| pointer::overlap(path, "/metadata/finalizers"))
    }

    /// Whether an object without all marks is surely without the change.
    pub fn tell(&self) -> bool {
        !self.fields.is_empty()
    }
}

/// Whether a path is, holds or lies below one whose value is free.
fn free(path: &str, volatile: &[Volatile]) -> bool {
    volatile
        .iter()
        .any(|free| pointer::overlap(path, &free.path))
}

/// What the target shows of a use.
pub fn find(used: &Use, marks: &Marks<'_>, target: Target<'_>) -> Finding {
    match used.operation {
        Operation::Delete => deleted(used, target),
        Operation::Create => created(used, target),
        Operation::Update => updated(used, marks, target),
        Operation::Connect | Operation::Unknown => settled(
            UseEffect::Unknown,
            target,
            &[],
            "nothing of such an operation can be read afterwards",
        ),
    }
}

/// A deletion never un-happens: the same object without a deletion time was not deleted.
fn deleted(used: &Use, target: Target<'_>) -> Finding {
    match target {
        Target::Absent => settled(UseEffect::Confirmed, target, &[], "the object is gone"),
        Target::Present(object) if uid(object) != Some(used.target_uid.as_str()) => settled(
            UseEffect::Confirmed,
            target,
            &[],
            "the object is gone; another one has its name",
        ),
        Target::Present(object) if object.at("/metadata/deletionTimestamp").is_some() => settled(
            UseEffect::Confirmed,
            target,
            &[],
            "the object is being deleted",
        ),
        Target::Present(_) => settled(
            UseEffect::NotObserved,
            target,
            &[],
            "the object is there and not being deleted",
        ),
    }
}

fn created(used: &Use, target: Target<'_>) -> Finding {
    match target {
        Target::Present(object) if uid(object) == Some(used.target_uid.as_str()) => {
            settled(UseEffect::Confirmed, target, &[], "the object is there")
        }
        Target::Absent | Target::Present(_) => Finding::Walk { from: None },
    }
}

fn updated(used: &Use, marks: &Marks<'_>, target: Target<'_>) -> Finding {
    let from = used
        .shown
        .as_ref()
        .map(|base| base.resource_version.clone());
    let Target::Present(object) = target else {
        return Finding::Walk { from };
    };
    if uid(object) != Some(used.target_uid.as_str()) {
        return Finding::Walk { from };
    }
    if from.is_some() && from.as_deref() == text(object, "/metadata/resourceVersion") {
        return settled(
            UseEffect::NotObserved,
            target,
            &[],
            "the target still has the revision that the change was made on",
        );
    }
    if marks.all_borne_by(object) {
        let paths = marks.borne_by(object);
        return settled(
            UseEffect::Confirmed,
            target,
            &paths,
            "the target holds the change",
        );
    }
    Finding::Walk { from }
}

/// What the walk over the revisions in between came to.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Walked {
    /// One of them held the change, or was the object that was created.
    Held,
    /// Every one was seen, and none did.
    NeverHeld,
    /// Not every one could be seen.
    Incomplete,
}

/// What to write after a walk.
pub fn after_walk(used: &Use, marks: &Marks<'_>, walked: Walked) -> (UseEffect, &'static str) {
    match (walked, used.operation) {
        (Walked::Held, Operation::Create) => (
            UseEffect::Confirmed,
            "the object was made; it is no longer there",
        ),
        (Walked::Held, _) => (
            UseEffect::Confirmed,
            "the target held the change; it has been changed again since",
        ),
        (Walked::NeverHeld, Operation::Create) => {
            (UseEffect::NotObserved, "the object was never there")
        }
        // Without anything to look up, not seeing it says nothing.
        (Walked::NeverHeld, _) if marks.tell() => (
            UseEffect::NotObserved,
            "no revision of the target since then held the change",
        ),
        (Walked::NeverHeld, _) => (
            UseEffect::Unknown,
            "the change cannot be recognised in the target",
        ),
        (Walked::Incomplete, _) => (
            UseEffect::Unknown,
            "the target has changed since then, and its history is gone: look at the target",
        ),
    }
}

/// Whether one revision of the target proves the effect of a use.
pub fn proves(used: &Use, marks: &Marks<'_>, revision: Value<'_>) -> bool {
    if uid(revision) != Some(used.target_uid.as_str()) {
        return false;
    }
    used.operation == Operation::Create || marks.all_borne_by(revision)
}

/// Evidence from the target as it is.
pub fn evidence(target: Target<'_>, paths: &[&str], message: &str) -> Evidence {
    let object = match target {
        Target::Absent => None,
        Target::Present(object) => Some(object),
    };
    Evidence {
        resource_version: object
            .and_then(|object| text(object, "/metadata/resourceVersion"))
            .map(str::to_owned),
        generation: object
            .and_then(|object| object.at("/metadata/generation"))
            .and_then(Value::as_i64),
        uid: object.and_then(uid).map(str::to_owned),
        paths: paths
            .iter()
            .map(|path| visible(path))
            .filter(|path| path.chars().count() <= MAX_PATH)
            .take(MAX_PATHS)
            .collect(),
        message: Some(message.to_owned()),
    }
}

fn settled(effect: UseEffect, target: Target<'_>, paths: &[&str], message: &str) -> Finding {
    Finding::Settled(effect, evidence(target, paths, message))
}

fn uid(object: Value<'_>) -> Option<&str> {
    text(object, "/metadata/uid")
}

fn text<'d>(object: Value<'d>, path: &str) -> Option<&'d str> {
    object.at(path).and_then(Value::as_str)
}

#[cfg(test)]
mod tests;
