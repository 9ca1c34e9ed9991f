//! The canonical form of a JSON value, and its digest.
//!
//! Two texts have one canonical form exactly if they hold the same value: members sorted by the UTF-8 bytes of their keys,
//! no white space, strings with the fewest escapes, numbers in the text they came in (so integers of any size survive, and
//! `1` and `1.0` differ). Recursion is as deep as the value; callers refuse what is deeper than [`super::json::MAX_DEPTH`].

use sha2::{Digest as _, Sha256};

use super::json::{Kind, Value};

/// Version tag and name of the hash, before 64 hexadecimal digits.
const DIGEST_PREFIX: &str = "v1:sha256:";

/// Answers, for single values, what stands in their place.
pub trait Edits {
    /// What to write instead of this value. Asked for every member of an object and every item of a list.
    fn edit(&self, value: Value<'_>) -> Edit<'_>;
}

/// What stands in place of a value.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Edit<'e> {
    /// The value itself.
    Keep,
    /// Nothing: the member or item is left out.
    Omit,
    /// This canonical text.
    Text(&'e str),
}

/// Leaves every value as it is.
pub struct AsIs;

impl Edits for AsIs {
    fn edit(&self, _: Value<'_>) -> Edit<'_> {
        Edit::Keep
    }
}

/// Single values of one document that are replaced or left out.
#[derive(Clone, Debug, Default)]
pub struct EditList {
    /// Sorted by the value's number; `None` leaves it out.
    edits: Vec<(u32, Option<String>)>,
}

impl EditList {
    /// Leaves a value out, whatever else was to stand there.
    pub fn omit(&mut self, value: Value<'_>) {
        match self.place(value) {
            Ok(place) => {
                if let Some(edit) = self.edits.get_mut(place) {
                    edit.1 = None;
                }
            }
            Err(place) => self.edits.insert(place, (value.index(), None)),
        }
    }

    /// Puts a canonical text in place of a value that is not edited yet.
    pub fn replace(&mut self, value: Value<'_>, canonical: String) {
        if let Err(place) = self.place(value) {
            self.edits.insert(place, (value.index(), Some(canonical)));
        }
    }

    fn place(&self, value: Value<'_>) -> Result<usize, usize> {
        self.edits
            .binary_search_by_key(&value.index(), |edit| edit.0)
    }
}

impl Edits for EditList {
    fn edit(&self, value: Value<'_>) -> Edit<'_> {
        match self
            .place(value)
            .ok()
            .and_then(|place| self.edits.get(place))
        {
            None => Edit::Keep,
            Some((_, None)) => Edit::Omit,
            Some((_, Some(text))) => Edit::Text(text),
        }
    }
}

/// Appends the canonical form of a value.
pub fn write(value: Value<'_>, out: &mut String) {
    Writer {
        edits: &AsIs,
        members: Vec::new(),
    }
    .value(value, out);
}

/// The canonical form of a value.
pub fn to_string(value: Value<'_>) -> String {
    to_string_edited(value, &AsIs)
}

/// Appends the canonical form of a value of which some parts are replaced or left out. The value itself is never left out.
pub fn write_edited(value: Value<'_>, edits: &impl Edits, out: &mut String) {
    let mut writer = Writer {
        edits,
        members: Vec::new(),
    };
    match edits.edit(value) {
        Edit::Text(text) => out.push_str(text),
        Edit::Keep | Edit::Omit => writer.value(value, out),
    }
}

/// The canonical form of a value of which some parts are replaced or left out.
pub fn to_string_edited(value: Value<'_>, edits: &impl Edits) -> String {
    let mut out = String::with_capacity(value.raw().len());
    write_edited(value, edits, &mut out);
    out
}

/// A canonical object of members whose values are canonical texts. Of members with one key the last stays.
pub fn object<K, V>(members: impl IntoIterator<Item = (K, V)>) -> String
where
    K: AsRef<str>,
    V: AsRef<str>,
{
    let mut members: Vec<(K, V)> = members.into_iter().collect();
    members.sort_by(|a, b| a.0.as_ref().as_bytes().cmp(b.0.as_ref().as_bytes()));
    let mut out = String::from("{");
    let mut members = members.iter().peekable();
    while let Some((key, value)) = members.next() {
        if members
            .peek()
            .is_some_and(|next| next.0.as_ref() == key.as_ref())
        {
            continue;
        }
        if out.len() > 1 {
            out.push(',');
        }
        write_string(key.as_ref(), &mut out);
        out.push(':');
        out.push_str(value.as_ref());
    }
    out.push('}');
    out
}

/// A canonical list of items that are canonical texts.
pub fn array<V: AsRef<str>>(items: impl IntoIterator<Item = V>) -> String {
    let mut out = String::from("[");
    for item in items {
        if out.len() > 1 {
            out.push(',');
        }
        out.push_str(item.as_ref());
    }
    out.push(']');
    out
}

/// A canonical string.
pub fn string(text: &str) -> String {
    let mut out = String::with_capacity(text.len() + 2);
    write_string(text, &mut out);
    out
}

/// `v1:sha256:` and the hash of a canonical text in hexadecimal.
pub fn digest(canonical: &str) -> String {
    format!(
        "{DIGEST_PREFIX}{}",
        hex::encode(Sha256::digest(canonical.as_bytes()))
    )
}

/// Whether two values are the same JSON value: the order of members does not matter, that of items does.
pub fn equal(a: Value<'_>, b: Value<'_>) -> bool {
    if a.raw() == b.raw() {
        return true;
    }
    match (a.kind(), b.kind()) {
        (Kind::Array, Kind::Array) => {
            a.len() == b.len() && a.items().zip(b.items()).all(|(a, b)| equal(a, b))
        }
        (Kind::Object, Kind::Object) => a.len() == b.len() && equal_members(a, b),
        (a, b) => a == b,
    }
}

fn equal_members(a: Value<'_>, b: Value<'_>) -> bool {
    // Two revisions of one object nearly always come in the same order.
    if a.entries().zip(b.entries()).all(|(a, b)| a.0 == b.0) {
        return a.entries().zip(b.entries()).all(|(a, b)| equal(a.1, b.1));
    }
    sorted_members(a)
        .iter()
        .zip(sorted_members(b).iter())
        .all(|(a, b)| a.0 == b.0 && equal(a.1, b.1))
}

/// The members sorted by key; duplicates stay in the order they were written in.
pub(crate) fn sorted_members(object: Value<'_>) -> Vec<(&str, Value<'_>)> {
    let mut members: Vec<_> = object.entries().collect();
    members.sort_by(|a, b| a.0.as_bytes().cmp(b.0.as_bytes()));
    members
}

struct Writer<'d, 'e, E> {
    edits: &'e E,
    /// Members that wait to be written, of all objects that are open: one buffer for the whole value.
    members: Vec<(&'d str, Value<'d>)>,
}

impl<'d, E: Edits> Writer<'d, '_, E> {
    fn value(&mut self, value: Value<'d>, out: &mut String) {
        match value.kind() {
            Kind::Null | Kind::Bool(_) | Kind::Number(_) => out.push_str(value.raw()),
            Kind::String(text) => write_string(text, out),
            Kind::Array => self.array(value, out),
            Kind::Object => self.object(value, out),
        }
    }

    fn array(&mut self, value: Value<'d>, out: &mut String) {
        out.push('[');
        let mut separator = "";
        for item in value.items() {
            self.part(None, item, &mut separator, out);
        }
        out.push(']');
    }

    fn object(&mut self, value: Value<'d>, out: &mut String) {
        let first = self.members.len();
        self.members.extend(value.entries());
        if let Some(members) = self.members.get_mut(first..) {
            // Stable: a duplicate, which callers refuse, still has one form.
            members.sort_by(|a, b| a.0.as_bytes().cmp(b.0.as_bytes()));
        }
        out.push('{');
        let mut separator = "";
        let mut next = first;
        while let Some((key, member)) = self.members.get(next).copied() {
            next += 1;
            self.part(Some(key), member, &mut separator, out);
            if next == first + value.len() {
                break;
            }
        }
        self.members.truncate(first);
        out.push('}');
    }

    fn part(
        &mut self,
        key: Option<&str>,
        value: Value<'d>,
        separator: &mut &'static str,
        out: &mut String,
    ) {
        let edits = self.edits;
        let edit = edits.edit(value);
        if edit == Edit::Omit {
            return;
        }
        out.push_str(separator);
        *separator = ",";
        if let Some(key) = key {
            write_string(key, out);
            out.push(':');
        }
        match edit {
            Edit::Text(text) => out.push_str(text),
            _ => self.value(value, out),
        }
    }
}

/// Appends a string in quotes: escapes for `"`, `\` and the C0 controls, nothing else.
pub(crate) fn write_string(text: &str, out: &mut String) {
    out.push('"');
    let mut copied = 0;
    for (at, byte) in text.bytes().enumerate() {
        if byte >= 0x20 && byte != b'"' && byte != b'\\' {
            continue;
        }
        out.push_str(text.get(copied..at).unwrap_or_default());
        copied = at + 1;
        match byte {
            b'"' => out.push_str("\\\""),
            b'\\' => out.push_str("\\\\"),
            0x08 => out.push_str("\\b"),
            0x0c => out.push_str("\\f"),
            b'\n' => out.push_str("\\n"),
            b'\r' => out.push_str("\\r"),
            b'\t' => out.push_str("\\t"),
            control => {
                out.push_str("\\u00");
                for digit in [control >> 4, control & 15] {
                    out.push(char::from_digit(u32::from(digit), 16).unwrap_or('0'));
                }
            }
        }
    }
    out.push_str(text.get(copied..).unwrap_or_default());
    out.push('"');
}

#[cfg(test)]
mod tests;
