#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "tests"
)]

use proptest::prelude::*;

use super::super::{
    arbitrary::{PLAIN, Tree, spelling, tree},
    canonical::AsIs,
    json::{MAX_DEPTH, read},
};
use super::*;

/// Path, from and to of every change, as canonical text.
fn changes(old: &str, new: &str) -> Vec<(String, Option<String>, Option<String>)> {
    let (old, new) = (read(old).unwrap(), read(new).unwrap());
    between(old.root(), new.root(), Lists::ByKey, &AsIs)
        .into_iter()
        .map(|changed| {
            (
                changed.path,
                changed.from.canonical(&AsIs),
                changed.to.canonical(&AsIs),
            )
        })
        .collect()
}

fn paths(old: &str, new: &str) -> Vec<String> {
    changes(old, new)
        .into_iter()
        .map(|change| change.0)
        .collect()
}

fn tree_of(text: &str) -> Tree {
    fn of(value: Value<'_>) -> Tree {
        use super::super::json::Kind;
        match value.kind() {
            Kind::Null => Tree::Null,
            Kind::Bool(value) => Tree::Bool(value),
            Kind::Number(text) => Tree::Number(text.to_owned()),
            Kind::String(text) => Tree::String(text.to_owned()),
            Kind::Array => Tree::Array(value.items().map(of).collect()),
            Kind::Object => Tree::Object(
                value
                    .entries()
                    .map(|(key, value)| (key.to_owned(), of(value)))
                    .collect(),
            ),
        }
    }
    of(read(text).unwrap().root())
}

/// The key of a list's element in the words of a path.
fn key_of(element: &Tree, token: &str) -> Option<String> {
    let text = element.spell(PLAIN);
    let document = read(&text).unwrap();
    let members: Vec<&str> = token
        .strip_prefix('[')?
        .strip_suffix(']')?
        .split(',')
        .map(|part| part.split('=').next().unwrap())
        .collect();
    pointer::element_key(document.root(), &members)
}

/// A path's tokens, and what is there now.
type Step = (Vec<String>, Option<Tree>);

/// What a list of changes makes of the old value, knowing nothing else.
fn apply(old: &Tree, changes: &[Step]) -> Option<Tree> {
    if changes.is_empty() {
        return Some(old.clone());
    }
    if let [(path, to)] = changes
        && path.is_empty()
    {
        return to.clone();
    }
    let mut by_token: Vec<(String, Vec<Step>)> = Vec::new();
    for (path, to) in changes {
        let (token, rest) = path.split_first().unwrap();
        match by_token.iter_mut().find(|(other, _)| other == token) {
            Some((_, group)) => group.push((rest.to_vec(), to.clone())),
            None => by_token.push((token.clone(), vec![(rest.to_vec(), to.clone())])),
        }
    }
    match old {
        Tree::Object(members) => {
            let mut members = members.clone();
            for (token, group) in by_token {
                let name = |key: &str| {
                    let mut path = String::new();
                    pointer::push_member(&mut path, key);
                    path[1..].to_owned()
                };
                match members.iter().position(|(key, _)| name(key) == token) {
                    Some(place) => match apply(&members[place].1, &group) {
                        Some(value) => members[place].1 = value,
                        None => {
                            members.remove(place);
                        }
                    },
                    None => {
                        let key = token
                            .replace("~2", "[")
                            .replace("~1", "/")
                            .replace("~0", "~");
                        members.push((key, group[0].1.clone().unwrap()));
                    }
                }
            }
            Some(Tree::Object(members))
        }
        Tree::Array(items) => {
            let mut items = items.clone();
            let order = by_token
                .iter()
                .position(|(token, _)| token == pointer::ORDER)
                .map(|place| by_token.remove(place));
            for (token, group) in &by_token {
                match items
                    .iter()
                    .position(|item| key_of(item, token).as_deref() == Some(token))
                {
                    Some(place) => match apply(&items[place], group) {
                        Some(value) => items[place] = value,
                        None => {
                            items.remove(place);
                        }
                    },
                    None => items.push(group[0].1.clone().unwrap()),
                }
            }
            if let Some((_, group)) = order {
                let Some(Tree::Array(keys)) = &group[0].1 else {
                    panic!("an order is a list")
                };
                let place = |item: &Tree| {
                    keys.iter().position(|key| matches!(key, Tree::String(key) if key_of(item, key).as_deref() == Some(key)))
                };
                items.sort_by_key(|item| place(item).expect("every element has its place"));
            }
            Some(Tree::Array(items))
        }
        _ => panic!("a scalar changes as a whole"),
    }
}

fn reapplied(old: &Tree, new: &Tree) -> Tree {
    let changes: Vec<(Vec<String>, Option<Tree>)> = changes(&old.spell(PLAIN), &new.spell(PLAIN))
        .into_iter()
        .map(|(path, _, to)| {
            (
                path.split('/').skip(1).map(str::to_owned).collect(),
                to.as_deref().map(tree_of),
            )
        })
        .collect();
    apply(old, &changes).unwrap()
}

/// A value and another that shares much with it.
fn revisions() -> impl Strategy<Value = (Tree, Tree)> {
    (tree(), tree(), any::<prop::sample::Index>(), any::<bool>()).prop_map(
        |(old, other, at, reverse)| {
            let new = edited(&old, &other, at.index(7), reverse);
            (old, new)
        },
    )
}

fn edited(tree: &Tree, other: &Tree, at: usize, reverse: bool) -> Tree {
    match tree {
        Tree::Object(members) if !members.is_empty() => {
            let mut members = members.clone();
            let place = at % members.len();
            if reverse && at.is_multiple_of(3) {
                members.remove(place);
            } else {
                members[place].1 = edited(&members[place].1, other, at / 2, reverse);
            }
            Tree::Object(members)
        }
        Tree::Array(items) if !items.is_empty() => {
            let mut items = items.clone();
            let place = at % items.len();
            match at % 4 {
                0 if reverse => items.reverse(),
                1 if reverse => {
                    items.remove(place);
                }
                2 => items.insert(place, other.clone()),
                _ => items[place] = edited(&items[place], other, at / 2, reverse),
            }
            Tree::Array(items)
        }
        _ => other.clone(),
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 512, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn the_changes_applied_to_the_old_value_give_the_new_one((old, new) in revisions()) {
        prop_assert_eq!(reapplied(&old, &new).sorted(), new.sorted());
    }

    #[test]
    fn that_holds_for_unrelated_values_too(old in tree(), new in tree()) {
        prop_assert_eq!(reapplied(&old, &new).sorted(), new.sorted());
    }

    #[test]
    fn different_new_values_differ_in_their_changes((old, a) in revisions(), b in tree()) {
        let same = a.sorted() == b.sorted();
        let (old, a, b) = (old.spell(PLAIN), a.spell(PLAIN), b.spell(PLAIN));
        let strip = |changes: Vec<(String, Option<String>, Option<String>)>| -> Vec<_> { changes.into_iter().map(|(path, _, to)| (path, to)).collect() };
        prop_assert_eq!(strip(changes(&old, &a)) == strip(changes(&old, &b)), same);
    }

    #[test]
    fn spelling_is_no_change(tree in tree(), a in spelling(), b in spelling()) {
        prop_assert!(changes(&tree.spell(a), &tree.spell(b)).is_empty());
    }

    #[test]
    fn paths_are_sorted_and_each_stands_once((old, new) in revisions()) {
        let paths = paths(&old.spell(PLAIN), &new.spell(PLAIN));
        prop_assert!(paths.windows(2).all(|pair| pair[0].as_bytes() < pair[1].as_bytes()), "{paths:?}");
    }
}

#[test]
fn null_is_not_absence() {
    assert_eq!(
        changes(r#"{"a":null}"#, "{}"),
        [("/a".to_owned(), Some("null".to_owned()), None)]
    );
    assert_eq!(
        changes("{}", r#"{"a":null}"#),
        [("/a".to_owned(), None, Some("null".to_owned()))]
    );
    assert_eq!(paths(r#"{"a":{}}"#, r#"{"a":[]}"#), ["/a"]);
}

#[test]
fn an_element_that_is_appended_is_one_change_wherever_others_stand() {
    assert_eq!(
        paths(
            r#"{"env":[{"name":"A","value":"1"}]}"#,
            r#"{"env":[{"name":"A","value":"1"},{"name":"B"}]}"#
        ),
        ["/env/[name=B]"]
    );
    assert_eq!(
        paths(
            r#"{"env":[{"name":"A","value":"1"}]}"#,
            r#"{"env":[{"name":"A","value":"2"}]}"#
        ),
        ["/env/[name=A]/value"]
    );
}

#[test]
fn an_element_put_before_others_says_so() {
    let found = changes(
        r#"{"env":[{"name":"A"}]}"#,
        r#"{"env":[{"name":"B"},{"name":"A"}]}"#,
    );
    assert_eq!(found[0].0, "/env/[name=B]");
    assert_eq!(
        found[1],
        (
            "/env/[order]".to_owned(),
            Some(r#"["[name=A]"]"#.to_owned()),
            Some(r#"["[name=B]","[name=A]"]"#.to_owned())
        )
    );
    // Two at the tail against their paths' order.
    assert_eq!(
        paths(r#"{"env":[]}"#, r#"{"env":[{"name":"B"},{"name":"A"}]}"#),
        ["/env/[name=A]", "/env/[name=B]", "/env/[order]"]
    );
    assert_eq!(
        paths(r#"{"env":[]}"#, r#"{"env":[{"name":"A"},{"name":"B"}]}"#),
        ["/env/[name=A]", "/env/[name=B]"]
    );
}

#[test]
fn swapped_init_containers_are_a_change() {
    let one = r#"{"initContainers":[{"name":"a","image":"x"},{"name":"b","image":"y"}]}"#;
    let two = r#"{"initContainers":[{"name":"b","image":"y"},{"name":"a","image":"x"}]}"#;
    assert_eq!(paths(one, two), ["/initContainers"]);
}

#[test]
fn swapped_env_entries_of_one_name_are_a_change() {
    let one = r#"{"env":[{"name":"A","value":"1"},{"name":"A","value":"2"}]}"#;
    let two = r#"{"env":[{"name":"A","value":"2"},{"name":"A","value":"1"}]}"#;
    assert_eq!(paths(one, two), ["/env"]);
}

#[test]
fn a_list_merges_by_the_first_key_that_tells_its_elements_apart() {
    let mounts = |sub: &str| {
        format!(
            r#"[{{"name":"v","mountPath":"/a"}},{{"name":"v","mountPath":"/b","subPath":"{sub}"}}]"#
        )
    };
    assert_eq!(
        paths(&mounts("x"), &mounts("y")),
        ["/[mountPath=~1b]/subPath"]
    );
    let ports = |port: u16| {
        format!(
            r#"[{{"port":80,"protocol":"TCP","targetPort":{port}}},{{"port":80,"protocol":"UDP"}}]"#
        )
    };
    assert_eq!(
        paths(&ports(1), &ports(2)),
        ["/[port=80,protocol=TCP]/targetPort"]
    );
    assert_eq!(paths("[1,2]", "[2,1]"), [""]);
    assert_eq!(paths(r#"[{"name":"a"},3]"#, r#"[{"name":"a"},4]"#), [""]);
}

#[test]
fn the_deepest_values_fit_a_small_stack() {
    let check = || {
        let text = |leaf: u8| {
            format!(
                "{}{leaf}{}",
                r#"{"a":[{"name":"x","b":"#.repeat(MAX_DEPTH / 3),
                "}]}".repeat(MAX_DEPTH / 3)
            )
        };
        assert_eq!(
            paths(&text(1), &text(2)),
            ["/a/[name=x]/b".repeat(MAX_DEPTH / 3)]
        );
    };
    std::thread::Builder::new()
        .stack_size(2 << 20)
        .spawn(check)
        .unwrap()
        .join()
        .unwrap();
}
