//! What differs between two revisions of an object, field by field.
//!
//! Nothing is lost: the old revision and the list of changes determine the new one. So `null` is not absence, the order of
//! a list counts, and a list is compared element by element only where that says everything (V5): every element on both
//! sides is an object with one scalar key, no key occurs twice, and the elements that stay keep their order. Added elements
//! are taken to follow the others, sorted by path; where they do not, the path `…/[order]` holds the order of the keys.
//! Any other list is one value.

use std::collections::HashMap;

use super::{
    canonical::{self, Edit, Edits},
    json::Value,
    pointer,
};

/// What lists merge by, in order of preference: the merge keys of the built-in kinds.
const MERGE_KEYS: [&[&str]; 11] = [
    &["name"],
    &["containerPort", "protocol"],
    &["port", "protocol"],
    &["mountPath"],
    &["devicePath"],
    &["topologyKey", "whenUnsatisfiable"],
    &["topologyKey"],
    &["type"],
    &["ip"],
    &["key"],
    &["uid"],
];

/// One place that differs.
#[derive(Clone, Debug)]
pub struct Changed<'d> {
    /// Where, as [`pointer`] writes it.
    pub path: String,
    /// What was there.
    pub from: Side<'d>,
    /// What is there now.
    pub to: Side<'d>,
}

/// What one revision holds at a place.
#[derive(Clone, Debug)]
pub enum Side<'d> {
    /// Nothing.
    Absent,
    /// A value.
    Value(Value<'d>),
    /// The keys of a list's elements, in order.
    Order(Vec<String>),
}

impl<'d> Side<'d> {
    /// The value, if it is one.
    pub fn value(&self) -> Option<Value<'d>> {
        match self {
            Self::Value(value) => Some(*value),
            _ => None,
        }
    }

    /// The canonical text; absent where nothing is there.
    pub fn canonical(&self, edits: &impl Edits) -> Option<String> {
        match self {
            Self::Absent => None,
            Self::Value(value) => Some(canonical::to_string_edited(*value, edits)),
            Self::Order(keys) => Some(canonical::array(
                keys.iter().map(|key| canonical::string(key)),
            )),
        }
    }
}

/// How lists are compared.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Lists {
    /// Element by element where a key allows it.
    ByKey,
    /// Each as one value.
    Whole,
}

/// Everything that differs between two values, sorted by path. A place that `edits` leaves out on each side that has it is
/// skipped; one that it leaves out on one side only is compared as it is.
pub fn between<'d>(
    old: Value<'d>,
    new: Value<'d>,
    lists: Lists,
    edits: &impl Edits,
) -> Vec<Changed<'d>> {
    let mut walk = Walk {
        lists,
        edits,
        path: String::new(),
        found: Vec::new(),
    };
    walk.values(old, new);
    walk.found
        .sort_by(|a, b| a.path.as_bytes().cmp(b.path.as_bytes()));
    walk.found
}

struct Walk<'d, 'e, E> {
    lists: Lists,
    edits: &'e E,
    path: String,
    found: Vec<Changed<'d>>,
}

impl<'d, E: Edits> Walk<'d, '_, E> {
    fn values(&mut self, old: Value<'d>, new: Value<'d>) {
        if old.raw() == new.raw() {
            return;
        }
        if old.is_object() && new.is_object() {
            self.members(old, new);
        } else if old.is_array() && new.is_array() {
            self.items(old, new);
        } else if !canonical::equal(old, new) {
            self.push(Side::Value(old), Side::Value(new));
        }
    }

    fn members(&mut self, old: Value<'d>, new: Value<'d>) {
        let in_step = old.len() == new.len()
            && old
                .entries()
                .zip(new.entries())
                .all(|(old, new)| old.0 == new.0);
        if in_step {
            for ((key, old), (_, new)) in old.entries().zip(new.entries()) {
                self.member(key, Some(old), Some(new));
            }
            return;
        }
        let mut olds = canonical::sorted_members(old).into_iter().peekable();
        let mut news = canonical::sorted_members(new).into_iter().peekable();
        loop {
            let order = match (olds.peek(), news.peek()) {
                (None, None) => return,
                (Some(_), None) => std::cmp::Ordering::Less,
                (None, Some(_)) => std::cmp::Ordering::Greater,
                (Some(old), Some(new)) => old.0.as_bytes().cmp(new.0.as_bytes()),
            };
            let old = if order.is_le() { olds.next() } else { None };
            let new = if order.is_ge() { news.next() } else { None };
            let Some((key, _)) = old.or(new) else { return };
            self.member(key, old.map(|old| old.1), new.map(|new| new.1));
        }
    }

    fn member(&mut self, key: &str, old: Option<Value<'d>>, new: Option<Value<'d>>) {
        if let (Some(old), Some(new)) = (old, new)
            && old.raw() == new.raw()
        {
            return;
        }
        let before = self.path.len();
        pointer::push_member(&mut self.path, key);
        self.place(old, new);
        self.path.truncate(before);
    }

    fn place(&mut self, old: Option<Value<'d>>, new: Option<Value<'d>>) {
        let left_out =
            |side: Option<Value<'d>>| side.is_none_or(|value| self.edits.edit(value) == Edit::Omit);
        if left_out(old) && left_out(new) {
            return;
        }
        match (old, new) {
            (Some(old), Some(new)) => match (self.edits.edit(old), self.edits.edit(new)) {
                (Edit::Text(a), Edit::Text(b)) if a == b => {}
                _ => self.values(old, new),
            },
            (old, new) => self.push(
                old.map_or(Side::Absent, Side::Value),
                new.map_or(Side::Absent, Side::Value),
            ),
        }
    }

    fn items(&mut self, old: Value<'d>, new: Value<'d>) {
        let keyed = match self.lists {
            Lists::ByKey => MERGE_KEYS
                .iter()
                .find_map(|members| Keyed::of(old, new, members)),
            Lists::Whole => None,
        };
        match keyed {
            Some(keyed) => self.elements(keyed),
            None if canonical::equal(old, new) => {}
            None => self.push(Side::Value(old), Side::Value(new)),
        }
    }

    fn elements(&mut self, lists: Keyed<'d>) {
        let before = self.path.len();
        let mut expected = Vec::with_capacity(lists.new.len());
        for (key, old) in &lists.old {
            let new = lists
                .new_by_key
                .get(key.as_str())
                .and_then(|place| lists.new.get(*place))
                .map(|(_, new)| *new);
            if new.is_some() {
                expected.push(key.as_str());
            }
            pointer::push_element(&mut self.path, key);
            self.place(Some(*old), new);
            self.path.truncate(before);
        }
        let kept = expected.len();
        for (key, new) in &lists.new {
            if lists.old_by_key.contains_key(key.as_str()) {
                continue;
            }
            expected.push(key);
            pointer::push_element(&mut self.path, key);
            self.place(None, Some(*new));
            self.path.truncate(before);
        }
        if let Some(added) = expected.get_mut(kept..) {
            added.sort_unstable();
        }
        if !expected
            .iter()
            .copied()
            .eq(lists.new.iter().map(|(key, _)| key.as_str()))
        {
            pointer::push_element(&mut self.path, pointer::ORDER);
            let keys =
                |list: &[(String, Value<'_>)]| list.iter().map(|(key, _)| key.clone()).collect();
            self.push(Side::Order(keys(&lists.old)), Side::Order(keys(&lists.new)));
            self.path.truncate(before);
        }
    }

    fn push(&mut self, from: Side<'d>, to: Side<'d>) {
        self.found.push(Changed {
            path: self.path.clone(),
            from,
            to,
        });
    }
}

/// Two lists whose elements have distinct keys, and keep their order.
struct Keyed<'d> {
    old: Vec<(String, Value<'d>)>,
    new: Vec<(String, Value<'d>)>,
    old_by_key: HashMap<String, usize>,
    new_by_key: HashMap<String, usize>,
}

impl<'d> Keyed<'d> {
    fn of(old: Value<'d>, new: Value<'d>, members: &[&str]) -> Option<Self> {
        let (old, old_by_key) = keyed(old, members)?;
        let (new, new_by_key) = keyed(new, members)?;
        let mut reached = None;
        for (key, _) in &old {
            if let Some(place) = new_by_key.get(key) {
                if reached.is_some_and(|reached| reached > place) {
                    return None;
                }
                reached = Some(place);
            }
        }
        Some(Self {
            old,
            new,
            old_by_key,
            new_by_key,
        })
    }
}

type KeyedList<'d> = (Vec<(String, Value<'d>)>, HashMap<String, usize>);

fn keyed<'d>(list: Value<'d>, members: &[&str]) -> Option<KeyedList<'d>> {
    let mut elements = Vec::with_capacity(list.len());
    let mut by_key = HashMap::with_capacity(list.len());
    for (place, element) in list.items().enumerate() {
        let key = pointer::element_key(element, members)?;
        if by_key.insert(key.clone(), place).is_some() {
            return None;
        }
        elements.push((key, element));
    }
    Some((elements, by_key))
}

#[cfg(test)]
mod tests;
