//! Reads one JSON text into a flat list of nodes that borrow from it.
//!
//! Reviews must be compared as they were sent, to any depth that the API server lets through (about 9,990 levels), so the
//! reader is iterative, keeps the text of numbers and drops in one step. Grammar: RFC 8259, without a byte order mark and
//! without anything after the value. Escapes of lone surrogates become U+FFFD, as the API server itself does.

mod reader;

use std::fmt;

use thiserror::Error;

/// Deepest nesting that may be approved. Deeper texts are still read, so that the uid of their review can be answered.
pub const MAX_DEPTH: usize = 256;

/// A text that is not one JSON value.
#[derive(Clone, Copy, Debug, Eq, Error, PartialEq)]
#[error("not JSON at byte {offset}: expected {expected}")]
pub struct Malformed {
    /// Offset of the first byte that does not fit.
    pub offset: usize,
    /// What could have stood there.
    pub expected: &'static str,
}

/// One JSON text, read.
pub struct Document<'t> {
    text: &'t str,
    nodes: Vec<Node>,
    /// The strings that hold escapes, decoded, one behind the other.
    decoded: String,
    depth: usize,
    duplicate_key: Option<String>,
}

/// One value of a document.
#[derive(Clone, Copy)]
pub struct Value<'d> {
    document: &'d Document<'d>,
    index: u32,
}

/// What a value is.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Kind<'d> {
    /// `null`.
    Null,
    /// `true` or `false`.
    Bool(bool),
    /// A number, as it was written.
    Number(&'d str),
    /// A string, escapes resolved.
    String(&'d str),
    /// A list; see [`Value::items`].
    Array,
    /// An object; see [`Value::entries`].
    Object,
}

#[derive(Clone, Copy, Eq, PartialEq)]
enum Tag {
    Null,
    True,
    False,
    Number,
    /// A string without escapes.
    Plain,
    /// A string with escapes; `a..a + b` is its place in `decoded`.
    Escaped,
    /// `a` is the node behind its last descendant, `b` the number of items.
    Array,
    /// `a` is the node behind its last descendant, `b` the number of members.
    Object,
}

/// A value, or the key that stands before a member's value.
#[derive(Clone, Copy)]
struct Node {
    start: u32,
    end: u32,
    a: u32,
    b: u32,
    tag: Tag,
}

/// Stands in where no node is; never reached from a document that was read.
const NO_NODE: Node = Node {
    start: 0,
    end: 0,
    a: 0,
    b: 0,
    tag: Tag::Null,
};

/// Bytes that reading a text takes beside the text, at most: 20 for each value and key, and the strings that hold escapes.
///
/// Linear, and known before anything is taken: a text of many small values takes ten times its length.
pub fn bytes_to_read(text: &[u8]) -> u64 {
    let nodes = reader::nodes_at_most(text) as u64 * size_of::<Node>() as u64;
    let decoded = if text.contains(&b'\\') { text.len() } else { 0 };
    nodes + decoded as u64
}

/// Reads one JSON text. Linear in its length; neither depth nor size is limited here but for the 4 GiB that offsets can hold. Takes
/// [`bytes_to_read`] at most.
pub fn read(text: &str) -> Result<Document<'_>, Malformed> {
    let read = reader::read(text)?;
    let mut document = Document {
        text,
        nodes: read.nodes,
        decoded: read.decoded,
        depth: read.depth,
        duplicate_key: None,
    };
    document.duplicate_key = read.duplicate.map(|key| document.path_of_key(key));
    Ok(document)
}

impl<'t> Document<'t> {
    /// The outermost value.
    pub fn root(&self) -> Value<'_> {
        Value {
            document: self,
            index: 0,
        }
    }

    /// Nesting of lists and objects: 0 for a scalar, 1 for `[]`.
    pub fn depth(&self) -> usize {
        self.depth
    }

    /// JSON pointer of the first member whose key stands twice in its object. The tree holds both; [`Value::get`] finds the first.
    pub fn duplicate_key(&self) -> Option<&str> {
        self.duplicate_key.as_deref()
    }

    fn node(&self, index: u32) -> &Node {
        self.nodes.get(index as usize).unwrap_or(&NO_NODE)
    }

    /// The node behind this value and everything in it.
    fn behind(&self, index: u32) -> u32 {
        let node = self.node(index);
        match node.tag {
            Tag::Array | Tag::Object => node.a,
            _ => index + 1,
        }
    }

    fn string(&self, node: &Node) -> &str {
        match node.tag {
            Tag::Plain => self
                .text
                .get(node.start as usize + 1..node.end as usize - 1)
                .unwrap_or_default(),
            Tag::Escaped => self
                .decoded
                .get(node.a as usize..(node.a + node.b) as usize)
                .unwrap_or_default(),
            _ => "",
        }
    }

    /// Walks down from the root to a member's key.
    fn path_of_key(&self, key: u32) -> String {
        let mut path = String::new();
        let mut at = self.root();
        loop {
            let inside = match at.kind() {
                Kind::Object => {
                    // A key stands one node before its value.
                    let found = at
                        .entries()
                        .find(|(_, value)| key < self.behind(value.index));
                    found.and_then(|(name, value)| {
                        super::pointer::push_member(&mut path, name);
                        (value.index <= key).then_some(value)
                    })
                }
                Kind::Array => {
                    let found = at
                        .items()
                        .enumerate()
                        .find(|(_, item)| key < self.behind(item.index));
                    found.map(|(position, item)| {
                        super::pointer::push_index(&mut path, position);
                        item
                    })
                }
                _ => None,
            };
            match inside {
                Some(value) => at = value,
                None => return path,
            }
        }
    }
}

impl fmt::Debug for Document<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Never the text: it may hold a Secret.
        write!(
            f,
            "Document({} bytes, {} nodes)",
            self.text.len(),
            self.nodes.len()
        )
    }
}

impl<'d> Value<'d> {
    /// What it is.
    pub fn kind(self) -> Kind<'d> {
        let node = self.document.node(self.index);
        match node.tag {
            Tag::Null => Kind::Null,
            Tag::True => Kind::Bool(true),
            Tag::False => Kind::Bool(false),
            Tag::Number => Kind::Number(self.raw()),
            Tag::Plain | Tag::Escaped => Kind::String(self.document.string(node)),
            Tag::Array => Kind::Array,
            Tag::Object => Kind::Object,
        }
    }

    /// The member of that key; of duplicates the first. Absent also where the value is no object.
    pub fn get(self, key: &str) -> Option<Value<'d>> {
        self.entries()
            .find(|(name, _)| *name == key)
            .map(|(_, value)| value)
    }

    /// Follows a JSON pointer, or a path as a diff writes it (see [`super::pointer`]).
    pub fn at(self, pointer: &str) -> Option<Value<'d>> {
        super::pointer::resolve(self, pointer)
    }

    /// The text of a string.
    pub fn as_str(self) -> Option<&'d str> {
        match self.kind() {
            Kind::String(text) => Some(text),
            _ => None,
        }
    }

    /// A number written as an integer that fits.
    pub fn as_i64(self) -> Option<i64> {
        match self.kind() {
            Kind::Number(text) => text.parse().ok(),
            _ => None,
        }
    }

    /// A truth value.
    pub fn as_bool(self) -> Option<bool> {
        match self.kind() {
            Kind::Bool(value) => Some(value),
            _ => None,
        }
    }

    /// Whether it is `null`.
    pub fn is_null(self) -> bool {
        self.document.node(self.index).tag == Tag::Null
    }

    /// Whether it is an object.
    pub fn is_object(self) -> bool {
        self.document.node(self.index).tag == Tag::Object
    }

    /// Whether it is a list.
    pub fn is_array(self) -> bool {
        self.document.node(self.index).tag == Tag::Array
    }

    /// Number of items or members; 0 for scalars.
    pub fn len(self) -> usize {
        let node = self.document.node(self.index);
        match node.tag {
            Tag::Array | Tag::Object => node.b as usize,
            _ => 0,
        }
    }

    /// Whether it holds no items and no members.
    pub fn is_empty(self) -> bool {
        self.len() == 0
    }

    /// The items of a list, in order; nothing for anything else.
    pub fn items(self) -> Items<'d> {
        let left = if self.is_array() { self.len() } else { 0 };
        Items {
            document: self.document,
            next: self.index + 1,
            left,
        }
    }

    /// The members of an object as written, duplicates included; nothing for anything else.
    pub fn entries(self) -> Entries<'d> {
        let left = if self.is_object() { self.len() } else { 0 };
        Entries {
            document: self.document,
            next: self.index + 1,
            left,
        }
    }

    /// The text that the value was read from.
    pub fn raw(self) -> &'d str {
        let node = self.document.node(self.index);
        self.document
            .text
            .get(node.start as usize..node.end as usize)
            .unwrap_or_default()
    }

    /// Whether a string or key in it holds U+FFFD: every byte sequence that is not UTF-8 looks so in a review.
    pub fn has_replacement_char(self) -> bool {
        if self.raw().contains('\u{FFFD}') {
            return true;
        }
        self.document.decoded.contains('\u{FFFD}')
            && (self.index..self.document.behind(self.index)).any(|index| {
                let node = self.document.node(index);
                node.tag == Tag::Escaped && self.document.string(node).contains('\u{FFFD}')
            })
    }

    /// Whether `other` of the same document is this value or stands in it.
    pub fn holds(self, other: Value<'_>) -> bool {
        other.index >= self.index && other.index < self.document.behind(self.index)
    }

    /// Number that tells the value apart from the others of its document.
    pub fn index(self) -> u32 {
        self.index
    }
}

impl fmt::Debug for Value<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Value({} bytes)", self.raw().len())
    }
}

/// The items of a list.
#[derive(Clone)]
pub struct Items<'d> {
    document: &'d Document<'d>,
    next: u32,
    left: usize,
}

impl<'d> Iterator for Items<'d> {
    type Item = Value<'d>;

    fn next(&mut self) -> Option<Value<'d>> {
        self.left = self.left.checked_sub(1)?;
        let value = Value {
            document: self.document,
            index: self.next,
        };
        self.next = self.document.behind(self.next);
        Some(value)
    }
}

/// The members of an object.
#[derive(Clone)]
pub struct Entries<'d> {
    document: &'d Document<'d>,
    next: u32,
    left: usize,
}

impl<'d> Iterator for Entries<'d> {
    type Item = (&'d str, Value<'d>);

    fn next(&mut self) -> Option<(&'d str, Value<'d>)> {
        self.left = self.left.checked_sub(1)?;
        let key = self.document.string(self.document.node(self.next));
        let value = Value {
            document: self.document,
            index: self.next + 1,
        };
        self.next = self.document.behind(self.next + 1);
        Some((key, value))
    }
}

#[cfg(test)]
mod tests;
