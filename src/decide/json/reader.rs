//! The reader itself: one pass over the bytes, with its own stack of open containers.

use super::{Malformed, NO_NODE, Node, Tag};

/// Objects up to this many members are searched for duplicate keys pair by pair, larger ones by sorting.
const FEW_MEMBERS: usize = 16;

/// What one pass over a text leaves.
pub(super) struct Read {
    pub(super) nodes: Vec<Node>,
    pub(super) decoded: String,
    pub(super) depth: usize,
    /// The earliest key that repeats an earlier one of its object.
    pub(super) duplicate: Option<u32>,
}

/// How many nodes a text can have: exactly as many as it has, if it is JSON.
pub(super) fn nodes_at_most(text: &[u8]) -> usize {
    let (mut nodes, mut in_string, mut escaped) = (1, false, false);
    for byte in text {
        match byte {
            _ if escaped => escaped = false,
            b'\\' if in_string => escaped = true,
            b'"' => in_string = !in_string,
            // Each value but the first, and each key, stands behind one of these.
            b',' | b':' | b'[' | b'{' if !in_string => nodes += 1,
            _ => {}
        }
    }
    nodes
}

pub(super) fn read(text: &str) -> Result<Read, Malformed> {
    if u32::try_from(text.len()).is_err() {
        return Err(Malformed {
            offset: 0,
            expected: "a text shorter than 4 GiB",
        });
    }
    let mut reader = Reader {
        text,
        bytes: text.as_bytes(),
        at: 0,
        nodes: Vec::with_capacity(nodes_at_most(text.as_bytes())),
        decoded: String::new(),
        open: Vec::new(),
        depth: 0,
        duplicate: None,
    };
    reader.document()?;
    let Reader {
        nodes,
        decoded,
        depth,
        duplicate,
        ..
    } = reader;
    Ok(Read {
        nodes,
        decoded,
        depth,
        duplicate,
    })
}

struct Reader<'t> {
    text: &'t str,
    bytes: &'t [u8],
    at: usize,
    nodes: Vec<Node>,
    decoded: String,
    /// The lists and objects that are not closed yet.
    open: Vec<u32>,
    depth: usize,
    /// The earliest key that repeats an earlier one of its object.
    duplicate: Option<u32>,
}

impl Reader<'_> {
    fn document(&mut self) -> Result<(), Malformed> {
        self.skip_space();
        loop {
            let opened = self.value()?;
            if !opened {
                self.close_what_ends_here()?;
            }
            if self.open.is_empty() {
                self.skip_space();
                return if self.at == self.bytes.len() {
                    Ok(())
                } else {
                    Err(self.expected("the end of the text"))
                };
            }
        }
    }

    /// Reads a scalar, an empty container, or the beginning of one up to its first value. True: a value must follow.
    fn value(&mut self) -> Result<bool, Malformed> {
        let start = self.at;
        match self.bytes.get(start) {
            Some(b'{') => {
                self.open_container(Tag::Object);
                if self.bytes.get(self.at) == Some(&b'}') {
                    return Ok(false);
                }
                self.key()?;
                Ok(true)
            }
            Some(b'[') => {
                self.open_container(Tag::Array);
                Ok(self.bytes.get(self.at) != Some(&b']'))
            }
            Some(b'"') => self.string().map(|()| false),
            Some(b't') => self.word("true", Tag::True),
            Some(b'f') => self.word("false", Tag::False),
            Some(b'n') => self.word("null", Tag::Null),
            Some(b'-' | b'0'..=b'9') => self.number().map(|()| false),
            _ => Err(self.expected("a value")),
        }
    }

    /// After a value: closes containers until one goes on, whose next value then stands at `at`.
    fn close_what_ends_here(&mut self) -> Result<(), Malformed> {
        while let Some(&container) = self.open.last() {
            self.skip_space();
            let count = self.nodes.len();
            let Some(node) = self.nodes.get_mut(container as usize) else {
                return Ok(());
            };
            let is_object = node.tag == Tag::Object;
            // A container that was just opened has no value yet, so only its end may follow.
            let fresh = count == container as usize + 1;
            match self.bytes.get(self.at) {
                Some(b',') if !fresh => {
                    node.b += 1;
                    self.at += 1;
                    self.skip_space();
                    return if is_object { self.key() } else { Ok(()) };
                }
                Some(b'}') if is_object => {}
                Some(b']') if !is_object => {}
                _ if is_object => return Err(self.expected("`,` or `}`")),
                _ => return Err(self.expected("`,` or `]`")),
            }
            self.at += 1;
            node.end = u32_of(self.at);
            node.a = u32_of(count);
            node.b += u32::from(!fresh);
            self.open.pop();
            if is_object {
                self.note_duplicate(container);
            }
        }
        Ok(())
    }

    fn open_container(&mut self, tag: Tag) {
        self.open.push(u32_of(self.nodes.len()));
        self.depth = self.depth.max(self.open.len());
        self.nodes.push(Node {
            start: u32_of(self.at),
            end: 0,
            a: 0,
            b: 0,
            tag,
        });
        self.at += 1;
        self.skip_space();
    }

    fn key(&mut self) -> Result<(), Malformed> {
        if self.bytes.get(self.at) != Some(&b'"') {
            return Err(self.expected("a key in quotes"));
        }
        self.string()?;
        self.skip_space();
        if self.bytes.get(self.at) != Some(&b':') {
            return Err(self.expected("`:`"));
        }
        self.at += 1;
        self.skip_space();
        Ok(())
    }

    fn string(&mut self) -> Result<(), Malformed> {
        let start = self.at;
        self.at += 1;
        self.skip_plain();
        if self.bytes.get(self.at) == Some(&b'"') {
            self.at += 1;
            self.nodes.push(Node {
                start: u32_of(start),
                end: u32_of(self.at),
                a: 0,
                b: 0,
                tag: Tag::Plain,
            });
            return Ok(());
        }
        let decoded = self.decoded.len();
        let mut copied = start + 1;
        loop {
            self.decoded
                .push_str(self.text.get(copied..self.at).unwrap_or_default());
            match self.bytes.get(self.at) {
                Some(b'"') => break,
                Some(b'\\') => self.escape()?,
                Some(_) => return Err(self.expected("no control character in a string")),
                None => return Err(self.expected("the end of the string")),
            }
            copied = self.at;
            self.skip_plain();
        }
        self.at += 1;
        let (a, b) = (u32_of(decoded), u32_of(self.decoded.len() - decoded));
        self.nodes.push(Node {
            start: u32_of(start),
            end: u32_of(self.at),
            a,
            b,
            tag: Tag::Escaped,
        });
        Ok(())
    }

    /// Goes on to the next quote, backslash or control character, eight bytes at a time.
    fn skip_plain(&mut self) {
        const ONES: u64 = 0x0101_0101_0101_0101;
        const HIGH: u64 = 0x8080_8080_8080_8080;
        let zero_bytes = |word: u64| word.wrapping_sub(ONES) & !word & HIGH;
        while let Some(chunk) = self.bytes.get(self.at..).and_then(<[u8]>::first_chunk::<8>) {
            let word = u64::from_le_bytes(*chunk);
            let quote = zero_bytes(word ^ (ONES * u64::from(b'"')));
            let backslash = zero_bytes(word ^ (ONES * u64::from(b'\\')));
            let control = word.wrapping_sub(ONES * 0x20) & !word & HIGH;
            // A borrow can mark bytes above the first hit, never below it.
            let hits = quote | backslash | control;
            if hits != 0 {
                self.at += (hits.trailing_zeros() / 8) as usize;
                return;
            }
            self.at += 8;
        }
        while let Some(byte) = self.bytes.get(self.at) {
            if *byte < 0x20 || *byte == b'"' || *byte == b'\\' {
                return;
            }
            self.at += 1;
        }
    }

    fn escape(&mut self) -> Result<(), Malformed> {
        let character = match self.bytes.get(self.at + 1) {
            Some(b'"') => '"',
            Some(b'\\') => '\\',
            Some(b'/') => '/',
            Some(b'b') => '\u{8}',
            Some(b'f') => '\u{c}',
            Some(b'n') => '\n',
            Some(b'r') => '\r',
            Some(b't') => '\t',
            Some(b'u') => {
                let unit = self.four_digits(self.at + 2)?;
                self.at += 6;
                let character = self.surrogates(unit);
                self.decoded.push(character);
                return Ok(());
            }
            _ => {
                self.at += 1;
                return Err(self.expected("one of \" \\ / b f n r t u after a backslash"));
            }
        };
        self.decoded.push(character);
        self.at += 2;
        Ok(())
    }

    /// Joins a surrogate with the one that follows; alone it stands for nothing.
    fn surrogates(&mut self, unit: u32) -> char {
        if (0xD800..0xDC00).contains(&unit)
            && self.bytes.get(self.at..self.at + 2) == Some(b"\\u")
            && let Ok(low @ 0xDC00..=0xDFFF) = self.four_digits(self.at + 2)
        {
            self.at += 6;
            let joined = 0x10000 + ((unit - 0xD800) << 10) + (low - 0xDC00);
            return char::from_u32(joined).unwrap_or(char::REPLACEMENT_CHARACTER);
        }
        char::from_u32(unit).unwrap_or(char::REPLACEMENT_CHARACTER)
    }

    fn four_digits(&self, from: usize) -> Result<u32, Malformed> {
        let mut unit = 0;
        for offset in from..from + 4 {
            let digit = self
                .bytes
                .get(offset)
                .and_then(|byte| char::from(*byte).to_digit(16));
            let Some(digit) = digit else {
                return Err(Malformed {
                    offset,
                    expected: "four hexadecimal digits",
                });
            };
            unit = unit * 16 + digit;
        }
        Ok(unit)
    }

    fn number(&mut self) -> Result<(), Malformed> {
        let start = self.at;
        if self.bytes.get(self.at) == Some(&b'-') {
            self.at += 1;
        }
        if self.bytes.get(self.at) == Some(&b'0') {
            self.at += 1;
        } else {
            self.digits()?;
        }
        if self.bytes.get(self.at) == Some(&b'.') {
            self.at += 1;
            self.digits()?;
        }
        if let Some(b'e' | b'E') = self.bytes.get(self.at) {
            self.at += 1;
            if let Some(b'+' | b'-') = self.bytes.get(self.at) {
                self.at += 1;
            }
            self.digits()?;
        }
        self.nodes.push(Node {
            start: u32_of(start),
            end: u32_of(self.at),
            a: 0,
            b: 0,
            tag: Tag::Number,
        });
        Ok(())
    }

    fn digits(&mut self) -> Result<(), Malformed> {
        let start = self.at;
        while self.bytes.get(self.at).is_some_and(u8::is_ascii_digit) {
            self.at += 1;
        }
        if self.at == start {
            Err(self.expected("a digit"))
        } else {
            Ok(())
        }
    }

    fn word(&mut self, word: &'static str, tag: Tag) -> Result<bool, Malformed> {
        let end = self.at + word.len();
        if self.bytes.get(self.at..end) != Some(word.as_bytes()) {
            return Err(self.expected("a value"));
        }
        self.nodes.push(Node {
            start: u32_of(self.at),
            end: u32_of(end),
            a: 0,
            b: 0,
            tag,
        });
        self.at = end;
        Ok(false)
    }

    fn skip_space(&mut self) {
        while let Some(b' ' | b'\t' | b'\n' | b'\r') = self.bytes.get(self.at) {
            self.at += 1;
        }
    }

    fn expected(&self, expected: &'static str) -> Malformed {
        Malformed {
            offset: self.at,
            expected,
        }
    }

    /// Remembers the earliest repeated key; inner objects close first, so a later find can be an earlier place.
    fn note_duplicate(&mut self, object: u32) {
        let members = self
            .nodes
            .get(object as usize)
            .map_or(0, |node| node.b as usize);
        let found = if members < 2 {
            None
        } else if members <= FEW_MEMBERS {
            let mut keys = [("", 0); FEW_MEMBERS];
            for (place, key) in keys.iter_mut().zip(self.keys(object, members)) {
                *place = key;
            }
            let keys = keys.get(..members).unwrap_or_default();
            let repeated = |(place, key): (usize, &(&str, u32))| {
                keys.iter()
                    .take(place)
                    .any(|earlier| earlier.0 == key.0)
                    .then_some(key.1)
            };
            keys.iter().enumerate().find_map(repeated)
        } else {
            let mut keys: Vec<(&str, u32)> = self.keys(object, members).collect();
            keys.sort_unstable();
            keys.windows(2)
                .filter_map(|pair| match pair {
                    [first, second] if first.0 == second.0 => Some(second.1),
                    _ => None,
                })
                .min()
        };
        if let Some(found) = found {
            self.duplicate = Some(self.duplicate.map_or(found, |earlier| earlier.min(found)));
        }
    }

    fn keys(&self, object: u32, members: usize) -> impl Iterator<Item = (&str, u32)> {
        let mut next = object + 1;
        (0..members).map(move |_| {
            let key = next;
            let node = self.nodes.get(key as usize).unwrap_or(&NO_NODE);
            let text = match node.tag {
                Tag::Plain => self
                    .text
                    .get(node.start as usize + 1..node.end as usize - 1)
                    .unwrap_or_default(),
                _ => self
                    .decoded
                    .get(node.a as usize..(node.a + node.b) as usize)
                    .unwrap_or_default(),
            };
            let value = self.nodes.get(key as usize + 1).unwrap_or(&NO_NODE);
            next = match value.tag {
                Tag::Array | Tag::Object => value.a,
                _ => key + 2,
            };
            (text, key)
        })
    }
}

/// Offsets fit: longer texts are refused at the beginning.
fn u32_of(offset: usize) -> u32 {
    u32::try_from(offset).unwrap_or(u32::MAX)
}
