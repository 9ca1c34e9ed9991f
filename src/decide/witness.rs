//! Whether a revision of the target already holds a change: then somebody, most likely this very write, has committed it.

use crate::decide::{
    canonical::{self, Edit, Edits},
    comparison::{Compared, Comparison},
    json::Value,
    pointer,
    review::Review,
};

/// What was seen between two revisions.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Seen {
    /// Every revision in between, and none holds the change.
    NotCommitted,
    /// One holds the change, or not every one could be seen.
    MaybeCommitted,
}

/// What one event of the watch says, which began after the use's revision and is to reach revision `end`, the one shown; `None`: the
/// next event tells. A watch that ends before it has told says `MaybeCommitted`.
pub fn event(review: &Review<'_>, event: Value<'_>, end: u64) -> Option<Seen> {
    let kind = event.get("type").and_then(Value::as_str);
    if kind == Some("BOOKMARK") {
        return None;
    }
    let (Some("ADDED" | "MODIFIED"), Some(object)) = (kind, event.get("object")) else {
        return Some(Seen::MaybeCommitted);
    };
    let revision = object
        .at("/metadata/resourceVersion")
        .and_then(Value::as_str)
        .and_then(|version| version.parse::<u64>().ok());
    match revision {
        Some(revision) if revision == end => Some(Seen::NotCommitted),
        Some(revision) if revision < end => holds(review, object).then_some(Seen::MaybeCommitted),
        _ => Some(Seen::MaybeCommitted),
    }
}

/// Whether `revision` holds every new value that the review's write sets. In doubt it does, and the use counts as spent.
pub fn holds(review: &Review<'_>, revision: Value<'_>) -> bool {
    let (Some(object), Some(_)) = (review.object, review.old_object) else {
        return true;
    };
    if review.subresource == Some("scale") {
        // The review shows a Scale, the watch its parent: replicas stand at the same path in the kinds that may be watched.
        let replicas = |value: Value<'_>| value.at("/spec/replicas").map(canonical::to_string);
        return replicas(object) == replicas(revision);
    }
    let changed = compared(review, review.old_object);
    let against = compared(review, Some(revision));
    let at = |root, path: &str| {
        pointer::resolve(root, path)
            .filter(|value| against.left_out.edit(*value) != Edit::Omit)
            .map(|value| canonical::to_string_edited(value, &against.left_out))
    };
    // Each place by itself: how the two differ around it, as in the order of a list, must not hide that the value is there. Of an
    // order nothing is looked up, so it is taken to be there.
    changed
        .changed()
        .iter()
        .filter(|changed| !changed.path.ends_with(pointer::ORDER))
        .all(|changed| at(object, &changed.path) == at(revision, &changed.path))
}

fn compared<'d>(review: &Review<'d>, old_object: Option<Value<'d>>) -> Comparison<'d> {
    Comparison::of(&Compared {
        operation: review.operation,
        group: review.group,
        resource: review.resource,
        subresource: review.subresource,
        object: review.object,
        old_object,
        options: review.options,
        generated_name: false,
    })
}

#[cfg(test)]
mod tests;
