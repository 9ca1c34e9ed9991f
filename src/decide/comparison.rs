//! One attempted call beside what it would change: is it a change at all, of what, and what of it can be bound.

use crate::api::Operation;

use super::{
    canonical::{self, AsIs, EditList},
    diff::{self, Changed, Lists, Side},
    json::Value,
    ownership::{self, Shift},
    pointer,
    redact::Redactor,
    server_made,
};

/// What of a review is compared. `object`, `old_object` and `options` may be absent or `null`.
#[derive(Clone, Copy, Debug)]
pub struct Compared<'d> {
    /// What the call does.
    pub operation: Operation,
    /// API group of the resource; empty for the core group.
    pub group: &'d str,
    /// Resource, in the plural.
    pub resource: &'d str,
    /// Subresource.
    pub subresource: Option<&'d str>,
    /// What would be stored, or the argument of a subresource.
    pub object: Option<Value<'d>>,
    /// What is stored.
    pub old_object: Option<Value<'d>>,
    /// The request's options.
    pub options: Option<Value<'d>>,
    /// Whether the object's name is what the server made of its `generateName` ([`server_made::is_generated_name`]).
    pub generated_name: bool,
}

/// What a call would change.
#[derive(Debug)]
pub struct Comparison<'d> {
    pub(super) compared: Compared<'d>,
    /// UPDATE: every place that differs. CREATE and CONNECT: the object, at the root. DELETE: nothing.
    pub(super) changed: Vec<Changed<'d>>,
    /// What entries of `managedFields` gain and lose beyond that.
    pub(super) shifts: Vec<Shift>,
    /// What the server made, in both revisions.
    pub(super) left_out: EditList,
    raised: bool,
    /// Whether something other than the generation, and what the server made, differs in content.
    content_differs: bool,
    no_op: bool,
}

impl<'d> Comparison<'d> {
    /// Compares. Linear but for sorting members; recursion is as deep as the object.
    pub fn of(compared: &Compared<'d>) -> Self {
        let mut compared = *compared;
        let present = |value: Option<Value<'d>>| value.filter(|value| !value.is_null());
        compared.object = present(compared.object);
        compared.old_object = present(compared.old_object);
        compared.options = present(compared.options);
        let mut left_out = EditList::default();
        let is_new = compared.operation == Operation::Create;
        let generated = compared.generated_name && is_new;
        for object in [compared.object, compared.old_object].into_iter().flatten() {
            server_made::leave_out(
                object,
                compared.group,
                compared.resource,
                is_new,
                generated,
                &mut left_out,
            );
        }
        let mut comparison = Self {
            compared,
            changed: Vec::new(),
            shifts: Vec::new(),
            left_out,
            raised: false,
            content_differs: false,
            no_op: false,
        };
        match (compared.operation, compared.object, compared.old_object) {
            (Operation::Update, Some(object), Some(old)) => comparison.update(old, object),
            (Operation::Delete, ..) => {}
            (_, Some(object), _) => {
                comparison.changed.push(Changed {
                    path: String::new(),
                    from: Side::Absent,
                    to: Side::Value(object),
                });
                comparison.shifts = ownership::shifts(None, object, comparison.field_manager());
            }
            _ => {}
        }
        comparison
    }

    fn update(&mut self, old: Value<'d>, object: Value<'d>) {
        self.raised = generation(object) > generation(old);
        self.no_op = is_same_but_for_bookkeeping(old, object);
        if self.no_op {
            return;
        }
        // A merge key would put a value of the Secret into a path.
        let secret = Redactor::covers(self.compared.group, self.compared.resource);
        let lists = if secret { Lists::Whole } else { Lists::ByKey };
        self.changed = diff::between(old, object, lists, &self.left_out);
        self.content_differs = !self.changed.is_empty();
        self.shifts = ownership::shifts(Some(old), object, self.field_manager());
        if self.changed.is_empty() && self.shifts.is_empty() {
            // It is no no-op, so it may not look like one: show what would have been left out.
            let shown = |changed: &Changed<'_>| {
                !BOOKKEEPING
                    .iter()
                    .any(|path| pointer::is_at_or_below(&changed.path, path))
            };
            self.changed = diff::between(old, object, Lists::Whole, &AsIs)
                .into_iter()
                .filter(shown)
                .collect();
        }
    }

    fn field_manager(&self) -> Option<&'d str> {
        self.compared.options?.get("fieldManager")?.as_str()
    }

    /// Whether an UPDATE stores what is stored: both revisions are the same JSON value but for `metadata.resourceVersion`,
    /// `metadata.selfLink` and the `time` of each `managedFields` entry; so the generation is not raised either.
    pub fn is_noop(&self) -> bool {
        self.no_op
    }

    /// Whether an UPDATE raises `metadata.generation`.
    pub fn raises_generation(&self) -> bool {
        self.raised
    }

    /// Whether an UPDATE raises `metadata.generation` while the review shows no content that differs (W5): what is really
    /// stored then differs in something that this API version does not show.
    pub fn raises_generation_only(&self) -> bool {
        self.raised && !self.content_differs
    }

    /// Whether the place, or something in it, is changed. CREATE: whether the object has it.
    pub fn touches(&self, prefix: &str) -> bool {
        self.changed.iter().any(|changed| {
            if pointer::is_at_or_below(&changed.path, prefix) {
                return true;
            }
            let Some(rest) = prefix
                .strip_prefix(&changed.path)
                .filter(|rest| rest.starts_with('/'))
            else {
                return false;
            };
            let side = |side: &Side<'d>| side.value().and_then(|value| value.at(rest));
            match (side(&changed.from), side(&changed.to)) {
                (Some(from), Some(to)) => !canonical::equal(from, to),
                (from, to) => from.is_some() || to.is_some(),
            }
        })
    }

    /// Whether a string or key of either revision holds U+FFFD: all bytes that are not UTF-8 look so in a review, so what
    /// is shown may not be what is stored (W3, W4).
    pub fn holds_replacement_char(&self) -> bool {
        [self.compared.object, self.compared.old_object]
            .into_iter()
            .flatten()
            .any(Value::has_replacement_char)
    }

    /// Whether a CREATE brings a generation of its own (W11).
    ///
    /// `managedFields` never cover metadata of the server's, so they cannot tell. What the server itself sets is always 1,
    /// and a client's 1 does no harm; kinds that keep a client's show any other number as it was sent.
    pub fn sets_generation_on_create(&self) -> bool {
        let generation = self
            .compared
            .object
            .and_then(|object| object.at("/metadata/generation"));
        self.compared.operation == Operation::Create
            && generation
                .is_some_and(|generation| !generation.is_null() && generation.as_i64() != Some(1))
    }

    /// The places that differ, sorted by path.
    pub fn changed(&self) -> &[Changed<'d>] {
        &self.changed
    }

    /// What entries of `managedFields` gain and lose beyond what the change explains.
    pub fn shifts(&self) -> &[Shift] {
        &self.shifts
    }
}

/// What differs between two revisions of every object and says nothing.
const BOOKKEEPING: [&str; 2] = ["/metadata/resourceVersion", "/metadata/selfLink"];

/// Absent is 0, as in the server's own structs.
fn generation(object: Value<'_>) -> i64 {
    object
        .at("/metadata/generation")
        .and_then(Value::as_i64)
        .unwrap_or(0)
}

fn is_same_but_for_bookkeeping(old: Value<'_>, new: Value<'_>) -> bool {
    if !old.is_object() || !new.is_object() {
        return canonical::equal(old, new);
    }
    same_members(old, new, &[], |key, old, new| {
        if key != "metadata" || !old.is_object() || !new.is_object() {
            return canonical::equal(old, new);
        }
        same_members(
            old,
            new,
            &["resourceVersion", "selfLink"],
            |key, old, new| {
                if key != "managedFields" || !old.is_array() || !new.is_array() {
                    return canonical::equal(old, new);
                }
                old.len() == new.len()
                    && old
                        .items()
                        .zip(new.items())
                        .all(|(old, new)| same_entry(old, new))
            },
        )
    })
}

fn same_entry(old: Value<'_>, new: Value<'_>) -> bool {
    if old.is_object() && new.is_object() {
        same_members(old, new, &["time"], |_, old, new| {
            canonical::equal(old, new)
        })
    } else {
        canonical::equal(old, new)
    }
}

/// Whether two objects have the same members, less those `without`, each the same to `same`.
fn same_members(
    old: Value<'_>,
    new: Value<'_>,
    without: &[&str],
    same: impl Fn(&str, Value<'_>, Value<'_>) -> bool,
) -> bool {
    let counted = |(key, _): &(&str, Value<'_>)| !without.contains(key);
    let in_step = old
        .entries()
        .filter(counted)
        .map(|(key, _)| key)
        .eq(new.entries().filter(counted).map(|(key, _)| key));
    if in_step {
        let pairs = old
            .entries()
            .filter(counted)
            .zip(new.entries().filter(counted));
        return pairs
            .into_iter()
            .all(|((key, old), (_, new))| same(key, old, new));
    }
    let sorted = |object| {
        canonical::sorted_members(object)
            .into_iter()
            .filter(counted)
            .collect::<Vec<_>>()
    };
    let (old, new) = (sorted(old), sorted(new));
    old.len() == new.len()
        && old
            .iter()
            .zip(&new)
            .all(|(old, new)| old.0 == new.0 && same(old.0, old.1, new.1))
}

#[cfg(test)]
mod tests;
