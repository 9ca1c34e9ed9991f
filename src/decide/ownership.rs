//! Whose fields a write makes them: what entries of `metadata.managedFields` gain and lose although no value changed.
//!
//! Ownership decides what the next server-side apply removes: whoever gives a field away to an owner whose manifest lacks
//! it has it removed later, by an innocent controller (W2). Entries are told apart by manager, operation, API version and
//! subresource. That the writer's own entry gains the paths whose values changed, and that others lose them, follows from
//! the change and is not repeated; everything else is.

use std::collections::{HashMap, HashSet, VecDeque};

use super::{
    canonical,
    json::{self, Kind, Value},
    pointer,
};

mod place;

use place::Place;

/// What one entry gains and loses beyond what the change explains.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Shift {
    /// `manager` of the entry.
    pub manager: String,
    /// `operation` of the entry: `Apply` or `Update`.
    pub operation: String,
    /// `apiVersion` of the entry.
    pub api_version: String,
    /// `subresource` of the entry; empty for the object itself.
    pub subresource: String,
    /// Paths that it owns now and did not, sorted.
    pub gains: Vec<String>,
    /// Paths that it owned and does not, sorted.
    pub loses: Vec<String>,
}

/// What the entries of two revisions of an object gain and lose; without an old one, those of a new object, whose creator
/// may have brought entries for others. `field_manager` is the writer's name where the request says it.
pub fn shifts(old: Option<Value<'_>>, new: Value<'_>, field_manager: Option<&str>) -> Vec<Shift> {
    let (old_fields, new_fields) = (old.and_then(managed_fields), managed_fields(new));
    if old_fields.map(Value::raw) == new_fields.map(Value::raw) {
        return Vec::new();
    }
    let mut moves = Vec::new();
    let mut news: Vec<Option<Value<'_>>> = new_fields
        .into_iter()
        .flat_map(Value::items)
        .map(Some)
        .collect();
    let mut places: HashMap<Id<'_>, VecDeque<usize>> = HashMap::new();
    for (place, new_entry) in news.iter().flatten().enumerate() {
        places
            .entry(Id::of(*new_entry))
            .or_default()
            .push_back(place);
    }
    for old_entry in old_fields.into_iter().flat_map(Value::items) {
        let place = places
            .get_mut(&Id::of(old_entry))
            .and_then(VecDeque::pop_front);
        let new_entry = place.and_then(|place| news.get_mut(place)?.take());
        moves.extend(Moves::of(Some(old_entry), new_entry, old, new));
    }
    for new_entry in news.into_iter().flatten() {
        moves.extend(Moves::of(None, Some(new_entry), old, new));
    }
    unexplained(moves, field_manager)
}

/// The entries of an object, if it has the list.
pub(crate) fn managed_fields(object: Value<'_>) -> Option<Value<'_>> {
    object.get("metadata")?.get("managedFields")
}

/// A name for each shift that no other shares, and its canonical text.
pub fn described(shifts: &[Shift]) -> Vec<(String, String)> {
    let short = |shift: &Shift| {
        let of = if shift.subresource.is_empty() {
            String::new()
        } else {
            format!(" of {}", shift.subresource)
        };
        format!("as {} ({}{of})", shift.manager, shift.operation)
    };
    let mut named: HashMap<String, usize> = HashMap::new();
    for shift in shifts {
        *named.entry(short(shift)).or_default() += 1;
    }
    let mut copies: HashMap<String, usize> = HashMap::new();
    let mut taken: HashSet<String> = HashSet::new();
    let mut described: Vec<(String, String)> = Vec::with_capacity(shifts.len());
    for shift in shifts {
        let mut name = short(shift);
        if named.get(&name).is_some_and(|count| *count > 1) {
            name = format!("{name} in {}", shift.api_version);
        }
        let base = name.clone();
        while !taken.insert(name.clone()) {
            let copy = copies.entry(base.clone()).or_insert(1);
            *copy += 1;
            name = format!("{base} #{copy}");
        }
        let list =
            |paths: &[String]| canonical::array(paths.iter().map(|path| canonical::string(path)));
        let sides = [("gains", &shift.gains), ("loses", &shift.loses)];
        let members = sides
            .into_iter()
            .filter(|(_, paths)| !paths.is_empty())
            .map(|(side, paths)| (side, list(paths)));
        described.push((name, canonical::object(members)));
    }
    described
}

/// The writer is the one entry that gains changed paths; where several do, nobody can be told from it and all is shown.
fn unexplained(moves: Vec<Moves>, field_manager: Option<&str>) -> Vec<Shift> {
    let may_write = |moves: &Moves| {
        !moves.explained_gains.is_empty()
            && field_manager.is_none_or(|manager| manager == moves.shift.manager)
    };
    let one_writer = moves.iter().filter(|moves| may_write(moves)).count() == 1;
    let mut shifts: Vec<Shift> = moves
        .into_iter()
        .map(|moves| {
            let writes = one_writer && may_write(&moves);
            let Moves {
                mut shift,
                explained_gains,
            } = moves;
            if !writes {
                shift.gains.extend(explained_gains);
            }
            shift.gains.sort_unstable();
            shift.loses.sort_unstable();
            shift
        })
        .filter(|shift| !shift.gains.is_empty() || !shift.loses.is_empty())
        .collect();
    let id = |shift: &Shift| {
        (
            shift.manager.clone(),
            shift.operation.clone(),
            shift.subresource.clone(),
            shift.api_version.clone(),
        )
    };
    shifts.sort_by_cached_key(id);
    shifts
}

#[derive(Eq, Hash, PartialEq)]
struct Id<'d> {
    manager: &'d str,
    operation: &'d str,
    api_version: &'d str,
    subresource: &'d str,
}

impl<'d> Id<'d> {
    fn of(entry: Value<'d>) -> Self {
        let text = |member| {
            entry
                .get(member)
                .and_then(Value::as_str)
                .unwrap_or_default()
        };
        Self {
            manager: text("manager"),
            operation: text("operation"),
            api_version: text("apiVersion"),
            subresource: text("subresource"),
        }
    }
}

/// What one entry gains and loses, before it is known who wrote.
struct Moves {
    shift: Shift,
    /// Gained paths whose values changed.
    explained_gains: Vec<String>,
}

impl Moves {
    /// None where the entry stays as it is but for its time.
    fn of(
        old_entry: Option<Value<'_>>,
        new_entry: Option<Value<'_>>,
        old: Option<Value<'_>>,
        new: Value<'_>,
    ) -> Option<Self> {
        let id = Id::of(new_entry.or(old_entry)?);
        let mut walk = Walk::default();
        let read = match (old_entry.map(fields), new_entry.map(fields)) {
            (Some(Err(Unreadable)), _) | (_, Some(Err(Unreadable))) => Err(Unreadable),
            (old_fields, new_fields) => walk.fields(
                old_fields.and_then(Result::ok),
                new_fields.and_then(Result::ok),
                old,
                Some(new),
            ),
        };
        if read.is_err() {
            // What cannot be followed is reported whole, unless it stays what it is.
            let text = |entry: Option<Value<'_>>| {
                entry.map(|entry| canonical::to_string_edited(entry, &WithoutTime))
            };
            let (before, after) = (text(old_entry), text(new_entry));
            if before == after {
                return None;
            }
            walk = Walk {
                loses: before.into_iter().collect(),
                gains: after.into_iter().collect(),
                ..Walk::default()
            };
        }
        let Walk {
            gains,
            explained_gains,
            loses,
            ..
        } = walk;
        if gains.is_empty() && explained_gains.is_empty() && loses.is_empty() {
            return None;
        }
        let shift = Shift {
            manager: id.manager.to_owned(),
            operation: id.operation.to_owned(),
            api_version: id.api_version.to_owned(),
            subresource: id.subresource.to_owned(),
            gains,
            loses,
        };
        Some(Self {
            shift,
            explained_gains,
        })
    }
}

pub(crate) struct Unreadable;

/// Leaves the times of entries out. An entry's own `time` is a string, so nothing else in it can be taken for one.
struct WithoutTime;

impl canonical::Edits for WithoutTime {
    fn edit(&self, value: Value<'_>) -> canonical::Edit<'_> {
        match value.as_str() {
            Some(text) if super::shape::is_timestamp(text) => canonical::Edit::Omit,
            _ => canonical::Edit::Keep,
        }
    }
}

/// The tree of owned fields; an entry without one owns nothing.
pub(crate) fn fields(entry: Value<'_>) -> Result<Value<'_>, Unreadable> {
    let known = entry.get("fieldsType").and_then(Value::as_str) == Some("FieldsV1");
    entry
        .get("fieldsV1")
        .filter(|fields| known && fields.is_object())
        .ok_or(Unreadable)
}

/// Whether the entry owns the place itself: a leaf, or a place with owned children that says so with `.`.
pub(crate) fn is_member(fields: Value<'_>) -> bool {
    fields.is_empty() || fields.get(".").is_some()
}

/// One step of a field path, in an object's or list's value.
pub(crate) enum Step<'k> {
    /// `f:name`: a member.
    Member(&'k str),
    /// `k:{…}`: the element with these members, as JSON text.
    Element(&'k str),
    /// `v:…`: the item of this value, as JSON text.
    Item(&'k str),
    /// `i:0`: the item at this position.
    Index(usize),
}

impl<'k> Step<'k> {
    pub(crate) fn read(key: &'k str) -> Option<Self> {
        match key.split_once(':')? {
            ("f", name) => Some(Self::Member(name)),
            ("k", key) => Some(Self::Element(key)),
            ("v", value) => Some(Self::Item(value)),
            ("i", index) => index.parse().ok().map(Self::Index),
            _ => None,
        }
    }
}

#[derive(Default)]
struct Walk {
    path: String,
    gains: Vec<String>,
    explained_gains: Vec<String>,
    loses: Vec<String>,
}

impl Walk {
    /// Compares what two trees own below one place, whose values are `old` and `new`.
    fn fields(
        &mut self,
        old_fields: Option<Value<'_>>,
        new_fields: Option<Value<'_>>,
        old: Option<Value<'_>>,
        new: Option<Value<'_>>,
    ) -> Result<(), Unreadable> {
        if let (Some(a), Some(b)) = (old_fields, new_fields)
            && a.raw() == b.raw()
        {
            return Ok(());
        }
        let (mut old_tree, mut new_tree) = (old_fields.map(Place::of), new_fields.map(Place::of));
        let (mut old, mut new) = (old.map(Place::of), new.map(Place::of));
        for (key, below) in old_fields.into_iter().flat_map(Value::entries) {
            let there = new_tree.as_mut().and_then(|tree| tree.member(key));
            self.child(key, Some(below), there, &mut old, &mut new)?;
        }
        for (key, below) in new_fields.into_iter().flat_map(Value::entries) {
            if old_tree
                .as_mut()
                .and_then(|tree| tree.member(key))
                .is_none()
            {
                self.child(key, None, Some(below), &mut old, &mut new)?;
            }
        }
        Ok(())
    }

    fn child<'d>(
        &mut self,
        key: &str,
        old_fields: Option<Value<'_>>,
        new_fields: Option<Value<'_>>,
        old: &mut Option<Place<'d>>,
        new: &mut Option<Place<'d>>,
    ) -> Result<(), Unreadable> {
        if key == "." {
            return Ok(());
        }
        if [old_fields, new_fields]
            .into_iter()
            .flatten()
            .any(|fields| !fields.is_object())
        {
            return Err(Unreadable);
        }
        let step = Step::read(key).ok_or(Unreadable)?;
        let before = self.path.len();
        push_step(&mut self.path, &step)?;
        let (old, new) = (follow(old, &step)?, follow(new, &step)?);
        let (owned, owns) = (
            old_fields.is_some_and(is_member),
            new_fields.is_some_and(is_member),
        );
        if owned != owns {
            // A leaf stands for all that is in the value, a place with owned children only for being there.
            let leaf = old_fields.or(new_fields).is_some_and(Value::is_empty);
            let changed = match (old, new) {
                (Some(old), Some(new)) if leaf => !canonical::equal(old, new),
                (Some(old), Some(new)) => {
                    (old.is_object(), old.is_array()) != (new.is_object(), new.is_array())
                }
                (old, new) => old.is_some() != new.is_some(),
            };
            match (owns, changed) {
                (true, true) => self.explained_gains.push(self.path.clone()),
                (true, false) => self.gains.push(self.path.clone()),
                (false, false) => self.loses.push(self.path.clone()),
                (false, true) => {}
            }
        }
        self.fields(old_fields, new_fields, old, new)?;
        self.path.truncate(before);
        Ok(())
    }
}

/// Follows one step. Absent where the value has no such place.
pub(crate) fn follow_step<'d>(value: Value<'d>, step: &Step<'_>) -> Option<Option<Value<'d>>> {
    Some(match step {
        Step::Member(name) => value.get(name),
        Step::Index(index) => value.items().nth(*index),
        Step::Item(text) => {
            let wanted = json::read(text).ok()?;
            value
                .items()
                .find(|item| canonical::equal(*item, wanted.root()))
        }
        Step::Element(text) => {
            let key = json::read(text).ok()?;
            let key = key.root();
            if !key.is_object() {
                return None;
            }
            value.items().find(|item| has_key(*item, key))
        }
    })
}

/// Whether an element holds all members of a key.
pub(crate) fn has_key(element: Value<'_>, key: Value<'_>) -> bool {
    key.entries().all(|(name, wanted)| {
        element
            .get(name)
            .is_some_and(|value| canonical::equal(value, wanted))
    })
}

fn follow<'d>(
    place: &mut Option<Place<'d>>,
    step: &Step<'_>,
) -> Result<Option<Value<'d>>, Unreadable> {
    place
        .as_mut()
        .map_or(Ok(None), |place| place.follow(step).ok_or(Unreadable))
}

fn push_step(path: &mut String, step: &Step<'_>) -> Result<(), Unreadable> {
    match step {
        Step::Member(name) => pointer::push_member(path, name),
        Step::Index(index) => pointer::push_index(path, *index),
        Step::Item(text) => {
            let mut key = String::from("[=");
            pointer::push_key_value(&mut key, text);
            key.push(']');
            pointer::push_element(path, &key);
        }
        Step::Element(text) => {
            let document = json::read(text).map_err(|_| Unreadable)?;
            let mut key = String::from("[");
            for (position, (name, value)) in canonical::sorted_members(document.root())
                .into_iter()
                .enumerate()
            {
                if position > 0 {
                    key.push(',');
                }
                key.push_str(name);
                key.push('=');
                match value.kind() {
                    Kind::String(text) => pointer::push_key_value(&mut key, text),
                    _ => pointer::push_key_value(&mut key, value.raw()),
                }
            }
            key.push(']');
            pointer::push_element(path, &key);
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests;
