//! What a grant binds of a call, as text that can be stored, shown and digested.
//!
//! The change is what would be done: for UPDATE `{path: {"to": value}}`, with `{}` where a path goes away, and what entries of
//! `managedFields` gain and lose; for CREATE the object at the path `""`; for DELETE `{"options": …}`. The state is what it would be
//! done to: `{path: {"is": value}}`, and the target's uid. Neither holds what the server makes by itself, nor a Secret's values.

use thiserror::Error;

use crate::api::{
    Operation,
    approval_policy::{StateBinding, VolatileShape},
    approval_request::{FieldDiff, ResolvedBinding},
};

use super::{
    canonical::{self, Edit, EditList, Edits},
    comparison::Comparison,
    json::Value,
    options::normalised_options,
    ownership, pointer,
    redact::Redactor,
    shape,
};

/// Most bytes of a change, of its diff, and of a state that are stored: 128 KiB each.
pub const MAX_BYTES: usize = 128 * 1024;

/// Most fields of a diff, and most characters of one of their paths: what a request can hold.
const MAX_FIELDS: usize = 4096;
const MAX_PATH: usize = 4096;

/// The path of a deletion's options.
pub(super) const OPTIONS: &str = "options";
/// The path of the target's uid in a state.
const UID: &str = "uid";

/// What would be stored for a person to read is too large. It is never cut.
#[derive(Clone, Copy, Debug, Eq, Error, PartialEq)]
#[error(
    "the {what} takes {size} {unit}, and no more than {most} can be shown to an approver whole"
)]
pub struct TooLarge {
    /// `change`, `diff`, `state`, or a part of one.
    pub what: &'static str,
    /// How large it is.
    pub size: usize,
    /// `bytes`, `fields` or `characters`.
    pub unit: &'static str,
    /// How large it may be.
    pub most: usize,
}

/// What a grant binds of a call.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Bound {
    /// Canonical text of the change.
    pub change: String,
    /// Its digest.
    pub change_digest: String,
    /// The change field by field, with old values, sorted by path. Ownership stands under `as MANAGER (OPERATION)`.
    pub diff: Vec<FieldDiff>,
    /// Canonical text of the state.
    pub state: String,
    /// Its digest.
    pub state_digest: String,
    /// Digest of the change with every volatile value in it.
    pub content_digest: String,
}

/// A volatile place that is changed to a value of its shape.
struct Open<'d> {
    /// The policy's pointer.
    pointer: &'d str,
    /// Its name in the change.
    path: String,
    new: Value<'d>,
    /// Position of the change that it is, or is in.
    changed: usize,
}

impl<'d> Comparison<'d> {
    /// What `binding` binds of this call.
    pub fn bind(&self, binding: &ResolvedBinding, redactor: &Redactor) -> Result<Bound, TooLarge> {
        let mut edits = self.left_out.clone();
        if Redactor::covers(self.compared.group, self.compared.resource) {
            for object in [self.compared.object, self.compared.old_object]
                .into_iter()
                .flatten()
            {
                redactor.redact("", object, &mut edits);
            }
        }
        let open = self.open(binding);
        let change = self.change(&open, &edits);
        let content_digest = if open.is_empty() {
            canonical::digest(&change)
        } else {
            canonical::digest(&self.change(&[], &edits))
        };
        let diff = self.diff(&edits);
        let state = self.state(binding, &open, &edits);
        let texts = diff
            .iter()
            .flat_map(|field| [Some(&field.path), field.from.as_ref(), field.to.as_ref()]);
        let diff_bytes = texts.flatten().map(String::len).sum();
        let longest_path = diff.iter().map(|field| field.path.len()).max().unwrap_or(0);
        // The diff holds old values too, so it may be twice what one of both can be.
        for (what, size, unit, most) in [
            ("change", change.len(), "bytes", MAX_BYTES),
            ("state", state.len(), "bytes", MAX_BYTES),
            ("diff", diff_bytes, "bytes", 2 * MAX_BYTES),
            ("diff", diff.len(), "fields", MAX_FIELDS),
            ("longest path", longest_path, "characters", MAX_PATH),
        ] {
            if size > most {
                return Err(TooLarge {
                    what,
                    size,
                    unit,
                    most,
                });
            }
        }
        let (change_digest, state_digest) = (canonical::digest(&change), canonical::digest(&state));
        Ok(Bound {
            change,
            change_digest,
            diff,
            state,
            state_digest,
            content_digest,
        })
    }

    /// Which of the volatile places are changed to a value of their shape; each once.
    fn open<'b>(&self, binding: &'b ResolvedBinding) -> Vec<Open<'b>>
    where
        'd: 'b,
    {
        let mut open: Vec<Open<'b>> = Vec::new();
        let Some(object) = self.compared.object else {
            return open;
        };
        for volatile in &binding.volatile {
            let fits = match volatile.shape {
                VolatileShape::Timestamp => |text: &str| shape::is_timestamp(text),
                VolatileShape::Unknown => |_: &str| false,
            };
            let Some(new) = object
                .at(&volatile.path)
                .filter(|new| new.as_str().is_some_and(fits))
            else {
                continue;
            };
            if open.iter().any(|other| other.new.index() == new.index()) {
                continue;
            }
            for (place, changed) in self.changed.iter().enumerate() {
                let Some(to) = changed.to.value() else {
                    continue;
                };
                if let Some(below) = path_to(to, new) {
                    open.push(Open {
                        pointer: &volatile.path,
                        path: format!("{}{below}", changed.path),
                        new,
                        changed: place,
                    });
                }
            }
        }
        open
    }

    fn change(&self, open: &[Open<'_>], edits: &EditList) -> String {
        if self.compared.operation == Operation::Delete {
            return canonical::object([(OPTIONS, self.options())]);
        }
        let mut without = edits.clone();
        for volatile in open {
            without.omit(volatile.new);
        }
        let mut members: Vec<(String, String)> =
            Vec::with_capacity(self.changed.len() + open.len());
        for (place, changed) in self.changed.iter().enumerate() {
            let is_open = open
                .iter()
                .any(|volatile| volatile.changed == place && volatile.path == changed.path);
            if !is_open {
                members.push((
                    changed.path.clone(),
                    side("to", changed.to.canonical(&without)),
                ));
            }
        }
        for volatile in open {
            members.push((
                volatile.path.clone(),
                canonical::object([("shape", "\"Timestamp\"")]),
            ));
        }
        members.extend(ownership::described(&self.shifts));
        canonical::object(members)
    }

    fn diff(&self, edits: &EditList) -> Vec<FieldDiff> {
        if self.compared.operation == Operation::Delete {
            return vec![FieldDiff {
                path: OPTIONS.to_owned(),
                from: None,
                to: Some(self.options()),
            }];
        }
        let fields = self.changed.iter().map(|changed| FieldDiff {
            path: changed.path.clone(),
            from: changed.from.canonical(edits),
            to: changed.to.canonical(edits),
        });
        let owners = ownership::described(&self.shifts);
        let owners = owners.into_iter().map(|(path, moved)| FieldDiff {
            path,
            from: None,
            to: Some(moved),
        });
        fields.chain(owners).collect()
    }

    fn state(&self, binding: &ResolvedBinding, open: &[Open<'_>], edits: &EditList) -> String {
        let Some(old) = self.compared.old_object else {
            return "{}".to_owned();
        };
        let mut members: Vec<(String, String)> = Vec::new();
        let at = |path: &str, edits: &EditList| {
            let shown = old
                .at(path)
                .filter(|value| edits.edit(*value) != Edit::Omit || is_asked_for(path, binding));
            (
                path.to_owned(),
                side(
                    "is",
                    shown.map(|value| canonical::to_string_edited(value, edits)),
                ),
            )
        };
        match (binding.state, self.compared.operation) {
            (StateBinding::TouchedFields, Operation::Update) => {
                for (place, changed) in self.changed.iter().enumerate() {
                    let is_open = open
                        .iter()
                        .any(|volatile| volatile.changed == place && volatile.path == changed.path);
                    if !is_open {
                        members.push((
                            changed.path.clone(),
                            side("is", changed.from.canonical(edits)),
                        ));
                    }
                }
            }
            // Nothing of a deleted object is touched more than the rest, so what identifies it is bound.
            (StateBinding::Identity | StateBinding::TouchedFields, _) => {
                members.push(at("/metadata/labels", edits))
            }
            // A word that this version does not know is read as the strictest.
            (StateBinding::WholeObject | StateBinding::Unknown, _) => {
                let mut edits = edits.clone();
                if self.compared.subresource != Some("status")
                    && let Some(status) = old.get("status")
                {
                    edits.omit(status);
                }
                for volatile in open {
                    if let Some(old_value) = old.at(volatile.pointer) {
                        edits.omit(old_value);
                    }
                }
                members.push((
                    String::new(),
                    side("is", Some(canonical::to_string_edited(old, &edits))),
                ));
            }
        }
        members.extend(binding.state_fields.iter().map(|path| at(path, edits)));
        if let Some(uid) = old.at("/metadata/uid").and_then(Value::as_str) {
            members.push((UID.to_owned(), canonical::string(uid)));
        }
        canonical::object(members)
    }

    fn options(&self) -> String {
        normalised_options(self.compared.options).canonical
    }
}

/// Whether a policy asks for this place by name.
fn is_asked_for(path: &str, binding: &ResolvedBinding) -> bool {
    binding.state_fields.iter().any(|field| field == path)
}

/// `{"to": …}`, or `{}` where nothing is there.
fn side(name: &str, canonical: Option<String>) -> String {
    canonical::object(canonical.map(|text| (name, text)))
}

/// The path from a value down to one that it holds through members alone; `""` for itself.
fn path_to(from: Value<'_>, to: Value<'_>) -> Option<String> {
    let mut path = String::new();
    let mut at = from;
    while at.index() != to.index() {
        let (key, below) = at.entries().find(|(_, member)| member.holds(to))?;
        pointer::push_member(&mut path, key);
        at = below;
    }
    Some(path)
}

#[cfg(test)]
mod expected;
#[cfg(test)]
mod tests;
