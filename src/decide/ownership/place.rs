//! A value in which many places are looked up: what is large is sorted once, so that following every owned field stays linear. An
//! agent chooses how many fields a write has, and a review is answered within seconds.

use std::collections::HashMap;

use super::{Step, follow_step};
use crate::decide::{
    canonical,
    json::{self, Value},
};

/// Up to this many members or items are searched one by one.
const FEW: usize = 16;

/// A value with what was looked up in it.
pub(super) struct Place<'d> {
    value: Value<'d>,
    members: Option<HashMap<&'d str, Value<'d>>>,
    order: Option<Vec<Value<'d>>>,
    /// Items by the canonical texts of the members named; of no members named: of the whole item.
    items: HashMap<Vec<String>, HashMap<String, Value<'d>>>,
}

impl<'d> Place<'d> {
    pub(super) fn of(value: Value<'d>) -> Self {
        Self {
            value,
            members: None,
            order: None,
            items: HashMap::new(),
        }
    }

    /// The member of this name.
    pub(super) fn member(&mut self, name: &str) -> Option<Value<'d>> {
        let value = self.value;
        if value.len() <= FEW {
            return value.get(name);
        }
        let sorted = || {
            let mut sorted = HashMap::with_capacity(value.len());
            for (name, value) in value.entries() {
                sorted.entry(name).or_insert(value);
            }
            sorted
        };
        self.members.get_or_insert_with(sorted).get(name).copied()
    }

    /// As [`follow_step`]: `None` where the step cannot be read, and within it absent where the value has no such place.
    pub(super) fn follow(&mut self, step: &Step<'_>) -> Option<Option<Value<'d>>> {
        let value = self.value;
        if value.len() <= FEW {
            return follow_step(value, step);
        }
        Some(match step {
            Step::Member(name) => self.member(name),
            Step::Index(index) => {
                let order = self.order.get_or_insert_with(|| value.items().collect());
                order.get(*index).copied()
            }
            Step::Item(text) => {
                let wanted = json::read(text).ok()?;
                self.item(Vec::new(), &canonical::to_string(wanted.root()))
            }
            Step::Element(text) => {
                let key = json::read(text).ok()?;
                let key = key.root();
                if !key.is_object() {
                    return None;
                }
                if key.is_empty() {
                    return Some(value.items().next());
                }
                let names = canonical::sorted_members(key)
                    .into_iter()
                    .map(|(name, _)| name.to_owned())
                    .collect();
                self.item(names, &canonical::to_string(key))
            }
        })
    }

    /// The first item whose members of these names have this canonical text.
    fn item(&mut self, names: Vec<String>, wanted: &str) -> Option<Value<'d>> {
        let value = self.value;
        let by_text = self.items.entry(names).or_insert_with_key(|names| {
            let mut by_text = HashMap::with_capacity(value.len());
            for item in value.items() {
                if let Some(text) = key_text(item, names) {
                    by_text.entry(text).or_insert(item);
                }
            }
            by_text
        });
        by_text.get(wanted).copied()
    }
}

fn key_text(item: Value<'_>, names: &[String]) -> Option<String> {
    if names.is_empty() {
        return Some(canonical::to_string(item));
    }
    let members: Option<Vec<(String, String)>> = names
        .iter()
        .map(|name| Some((name.clone(), canonical::to_string(item.get(name)?))))
        .collect();
    Some(canonical::object(members?))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]

    use super::*;

    /// What a large value answers, and what the same value answers when it is searched one by one.
    fn same(text: &str, step: &Step<'_>) {
        let document = json::read(text).unwrap();
        let value = document.root();
        assert!(value.len() > FEW, "{text}");
        let (sorted, searched) = (Place::of(value).follow(step), follow_step(value, step));
        let place = |found: Option<Option<Value<'_>>>| found.map(|at| at.map(|at| at.index()));
        assert_eq!(place(sorted), place(searched));
    }

    #[test]
    fn what_is_sorted_answers_as_what_is_searched() {
        let members: Vec<String> = (0..40).map(|n| format!("\"k{n}\":{n}")).collect();
        let object = format!("{{{}}}", members.join(","));
        same(&object, &Step::Member("k39"));
        same(&object, &Step::Member("k40"));
        let numbers = format!(
            "[{}]",
            (0..40).map(|n| n.to_string()).collect::<Vec<_>>().join(",")
        );
        same(&numbers, &Step::Index(39));
        same(&numbers, &Step::Index(40));
        same(&numbers, &Step::Item("7"));
        same(&numbers, &Step::Item("41"));
        same(&numbers, &Step::Item("{"));
        let ports: Vec<String> = (0..40)
            .map(|n| format!(r#"{{"protocol":"TCP","port":{},"name":"p{n}"}}"#, n % 30))
            .collect();
        let list = format!("[{}]", ports.join(","));
        for key in [
            r#"{"port":5,"protocol":"TCP"}"#,
            r#"{"protocol":"TCP","port":29}"#,
            r#"{"port":31,"protocol":"TCP"}"#,
            r#"{"gone":1}"#,
            "{}",
            "7",
        ] {
            same(&list, &Step::Element(key));
        }
    }
}
