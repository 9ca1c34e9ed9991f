//! JSON values for property tests, and several spellings of each.

use proptest::prelude::*;

/// A JSON value whose members have distinct keys.
#[derive(Clone, Debug, PartialEq)]
pub enum Tree {
    Null,
    Bool(bool),
    Number(String),
    String(String),
    Array(Vec<Tree>),
    Object(Vec<(String, Tree)>),
}

/// How a spelling differs from the plainest one.
#[derive(Clone, Copy, Debug)]
pub struct Spelling {
    pub reversed: bool,
    pub spaced: bool,
    pub escaped: bool,
}

pub const PLAIN: Spelling = Spelling {
    reversed: false,
    spaced: false,
    escaped: false,
};

/// Words that collide often, so that lists merge by key and members meet.
fn word() -> impl Strategy<Value = String> {
    prop_oneof![
        6 => prop::sample::select(vec!["name", "a", "b", "c", "key", "port", "protocol", "[order]", "x/y", "~", ""]).prop_map(str::to_owned),
        1 => any::<String>(),
    ]
}

fn number() -> impl Strategy<Value = String> {
    prop_oneof![
        any::<i64>().prop_map(|number| number.to_string()),
        (0..4i32).prop_map(|number| number.to_string()),
        prop::sample::select(vec![
            "-0",
            "1e300",
            "1.0",
            "0.5",
            "18446744073709552000",
            "1E+2"
        ])
        .prop_map(str::to_owned),
    ]
}

pub fn tree() -> impl Strategy<Value = Tree> {
    let leaf = prop_oneof![
        Just(Tree::Null),
        any::<bool>().prop_map(Tree::Bool),
        number().prop_map(Tree::Number),
        word().prop_map(Tree::String),
    ];
    leaf.prop_recursive(5, 40, 5, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..5).prop_map(Tree::Array),
            members(inner.clone()),
            named_list(inner),
        ]
    })
}

fn members(inner: impl Strategy<Value = Tree>) -> impl Strategy<Value = Tree> {
    prop::collection::vec((word(), inner), 0..5).prop_map(|members| Tree::Object(distinct(members)))
}

/// A list whose elements carry a name, as most Kubernetes lists do.
fn named_list(inner: impl Strategy<Value = Tree>) -> impl Strategy<Value = Tree> {
    prop::collection::vec(
        (
            prop::sample::select(vec!["a", "b", "c", "d/1", "e,f"]),
            inner,
        ),
        0..5,
    )
    .prop_map(|elements| {
        let named = |(name, value): (&str, Tree)| {
            Tree::Object(vec![
                ("name".to_owned(), Tree::String(name.to_owned())),
                ("value".to_owned(), value),
            ])
        };
        Tree::Array(elements.into_iter().map(named).collect())
    })
}

pub fn distinct(members: Vec<(String, Tree)>) -> Vec<(String, Tree)> {
    let mut seen = std::collections::BTreeSet::new();
    members
        .into_iter()
        .filter(|(key, _)| seen.insert(key.clone()))
        .collect()
}

pub fn spelling() -> impl Strategy<Value = Spelling> {
    any::<(bool, bool, bool)>().prop_map(|(reversed, spaced, escaped)| Spelling {
        reversed,
        spaced,
        escaped,
    })
}

impl Tree {
    pub fn spell(&self, spelling: Spelling) -> String {
        let mut out = String::new();
        self.write(spelling, &mut out);
        out
    }

    fn write(&self, spelling: Spelling, out: &mut String) {
        let space = if spelling.spaced { " \n\t\r" } else { "" };
        out.push_str(space);
        match self {
            Self::Null => out.push_str("null"),
            Self::Bool(value) => out.push_str(if *value { "true" } else { "false" }),
            Self::Number(text) => out.push_str(text),
            Self::String(text) => write_text(text, spelling, out),
            Self::Array(items) => {
                out.push('[');
                for (position, item) in items.iter().enumerate() {
                    if position > 0 {
                        out.push(',');
                    }
                    item.write(spelling, out);
                }
                out.push(']');
            }
            Self::Object(members) => {
                let mut members: Vec<_> = members.iter().collect();
                if spelling.reversed {
                    members.reverse();
                }
                out.push('{');
                for (position, (key, value)) in members.into_iter().enumerate() {
                    if position > 0 {
                        out.push(',');
                    }
                    out.push_str(space);
                    write_text(key, spelling, out);
                    out.push_str(space);
                    out.push(':');
                    value.write(spelling, out);
                }
                out.push('}');
            }
        }
        out.push_str(space);
    }

    /// The same value with its members sorted: equal exactly if the values are.
    pub fn sorted(&self) -> Self {
        match self {
            Self::Array(items) => Self::Array(items.iter().map(Self::sorted).collect()),
            Self::Object(members) => {
                let mut members: Vec<_> = members
                    .iter()
                    .map(|(key, value)| (key.clone(), value.sorted()))
                    .collect();
                members.sort_by(|a, b| a.0.cmp(&b.0));
                Self::Object(members)
            }
            other => other.clone(),
        }
    }
}

fn write_text(text: &str, spelling: Spelling, out: &mut String) {
    if !spelling.escaped {
        out.push_str(&serde_json::to_string(text).unwrap_or_default());
        return;
    }
    out.push('"');
    for unit in text.encode_utf16() {
        out.push_str(&format!("\\u{unit:04X}"));
    }
    out.push('"');
}
