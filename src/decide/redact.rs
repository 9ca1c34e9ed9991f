//! Keeps the values of Secrets out of everything that is stored, shown or digested.
//!
//! Each leaf is replaced by a keyed fingerprint over its path and value before anything is canonicalised: equal values at
//! one path stay equal, so a change can be recognised, and nothing can be guessed from it without the key.

use std::{collections::BTreeSet, fmt};

use hmac::{Hmac, KeyInit, Mac};
use sha2::Sha256;

use super::{
    canonical::{self, EditList},
    json::{Kind, Value},
    pointer,
};

/// What stands before the key's id in a fingerprint.
const PREFIX: &str = "hmac:";

/// What a Secret shows in clear: what names it, and the two fields that are no content.
const SHOWN: [&str; 8] = [
    "/apiVersion",
    "/kind",
    "/type",
    "/immutable",
    "/metadata/name",
    "/metadata/generateName",
    "/metadata/namespace",
    "/metadata/labels",
];

/// Fingerprints values with one key.
#[derive(Clone)]
pub struct Redactor {
    key_id: String,
    mac: Option<Hmac<Sha256>>,
}

impl Redactor {
    /// `key_id` names the key in each fingerprint, so that a grant made under another one is recognised.
    pub fn new(key_id: &str, key: &[u8]) -> Self {
        // HMAC takes keys of any length. Were one refused, every fingerprint would be the same word, and nothing shown.
        Self {
            key_id: key_id.to_owned(),
            mac: Hmac::new_from_slice(key).ok(),
        }
    }

    /// No key yet: every fingerprint is the same word, so nothing can be told from one, and nothing is shown.
    pub fn unset() -> Self {
        Self {
            key_id: "unset".to_owned(),
            mac: None,
        }
    }

    /// Whether there is a key.
    pub fn is_set(&self) -> bool {
        self.mac.is_some()
    }

    /// Name of a key, other than this one, whose fingerprints stand in a canonical text.
    pub fn other_key<'t>(&self, canonical: &'t str) -> Option<&'t str> {
        key_ids(canonical).into_iter().find(|id| *id != self.key_id)
    }

    /// Name of the key.
    pub fn key_id(&self) -> &str {
        &self.key_id
    }

    /// Whether objects of this resource are redacted.
    pub fn covers(group: &str, resource: &str) -> bool {
        group.is_empty() && resource == "secrets"
    }

    /// `hmac:KEYID:` and 64 hexadecimal digits over path, NUL and canonical value, as a canonical string. Canonical text
    /// holds no NUL, so path and value cannot be shifted against each other.
    pub fn fingerprint(&self, path: &str, canonical: &str) -> String {
        let mut mac = self.mac.clone();
        if let Some(mac) = &mut mac {
            mac.update(path.as_bytes());
            mac.update(&[0]);
            mac.update(canonical.as_bytes());
        }
        let hash = mac
            .map(|mac| hex::encode(mac.finalize().into_bytes()))
            .unwrap_or_default();
        canonical::string(&format!("{PREFIX}{}:{hash}", self.key_id))
    }

    /// Replaces every leaf at or below `path` that a Secret does not show; names of members stay.
    pub fn redact(&self, path: &str, value: Value<'_>, edits: &mut EditList) {
        let mut path = path.to_owned();
        self.walk(&mut path, value, edits);
    }

    fn walk(&self, path: &mut String, value: Value<'_>, edits: &mut EditList) {
        if SHOWN
            .iter()
            .any(|shown| pointer::is_at_or_below(path, shown))
        {
            return;
        }
        let before = path.len();
        match value.kind() {
            Kind::Object => {
                for (key, member) in value.entries() {
                    pointer::push_member(path, key);
                    self.walk(path, member, edits);
                    path.truncate(before);
                }
            }
            Kind::Array => {
                for (place, item) in value.items().enumerate() {
                    pointer::push_index(path, place);
                    self.walk(path, item, edits);
                    path.truncate(before);
                }
            }
            _ => edits.replace(value, self.fingerprint(path, &canonical::to_string(value))),
        }
    }
}

impl fmt::Debug for Redactor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Redactor({})", self.key_id)
    }
}

/// Whether a text is a fingerprint: `hmac:KEYID:` and 64 hexadecimal digits.
pub fn is_fingerprint(text: &str) -> bool {
    key_id(text).is_some()
}

/// Name of the key that a fingerprint was made with.
fn key_id(text: &str) -> Option<&str> {
    let (key_id, hash) = text.strip_prefix(PREFIX)?.split_once(':')?;
    let is_hash = hash.len() == 64 && hash.bytes().all(|byte| byte.is_ascii_hexdigit());
    is_hash.then_some(key_id)
}

/// Names of the keys whose fingerprints stand in a canonical text. A grant is stale once one of them is no longer held.
fn key_ids(canonical: &str) -> BTreeSet<&str> {
    // A fingerprint holds no quote, so it stands between two.
    canonical.split('"').filter_map(key_id).collect()
}

#[cfg(test)]
mod tests {
    #![allow(
        clippy::unwrap_used,
        clippy::expect_used,
        clippy::panic,
        reason = "tests"
    )]

    use super::super::json::read;
    use super::*;

    const SECRET: &str = r#"{"kind":"Secret","apiVersion":"v1","metadata":{"name":"db","namespace":"web","labels":{"a":"b"},
        "annotations":{"last":"{\"password\":\"hunter2\"}"},"finalizers":["x/y"]},"data":{"password":"aHVudGVyMg==","user":"aHVudGVyMg=="},
        "type":"Opaque","immutable":true,"odd":[null,1,{}]}"#;

    fn redacted(redactor: &Redactor, text: &str) -> String {
        let document = read(text).unwrap();
        let mut edits = EditList::default();
        redactor.redact("", document.root(), &mut edits);
        canonical::to_string_edited(document.root(), &edits)
    }

    #[test]
    fn only_what_names_a_secret_is_shown() {
        let text = redacted(&Redactor::new("k1", b"key"), SECRET);
        let value: serde_json::Value = serde_json::from_str(&text).unwrap();
        assert_eq!(value["metadata"]["labels"]["a"], "b");
        assert_eq!(
            (
                &value["type"],
                &value["immutable"],
                &value["metadata"]["name"]
            ),
            (&"Opaque".into(), &true.into(), &"db".into())
        );
        assert!(
            !text.contains("hunter2") && !text.contains("aHVudGVyMg"),
            "{text}"
        );
        for pointer in [
            "/data/password",
            "/metadata/annotations/last",
            "/metadata/finalizers/0",
            "/odd/0",
            "/odd/1",
        ] {
            let fingerprint = value.pointer(pointer).unwrap().as_str().unwrap();
            assert!(
                fingerprint.starts_with("hmac:k1:") && fingerprint.len() == 72,
                "{pointer} {fingerprint}"
            );
        }
        assert_eq!(value["odd"][2], serde_json::json!({}));
        assert_ne!(
            value["data"]["password"], value["data"]["user"],
            "equal values at two places look different"
        );
    }

    #[test]
    fn a_fingerprint_depends_on_key_path_and_value() {
        let (one, other) = (Redactor::new("k1", b"key"), Redactor::new("k1", b"other"));
        let all = [
            one.fingerprint("/data/a", "\"x\""),
            one.fingerprint("/data/a", "\"y\""),
            one.fingerprint("/data/b", "\"x\""),
            other.fingerprint("/data/a", "\"x\""),
            one.fingerprint("/data/a", "null"),
            one.fingerprint("/data/a", "\"null\""),
        ];
        assert_eq!(all.iter().collect::<BTreeSet<_>>().len(), all.len());
        assert_eq!(one.fingerprint("/data/a", "\"x\""), all[0]);
        // Computed with another implementation: HMAC-SHA256("key", "/data/a" 00 "\"x\"").
        assert_eq!(
            all[0],
            "\"hmac:k1:98559a875a89209ff1afdb5092d5bb9526d6d86be902b66998e17def236aa31a\""
        );
    }

    #[test]
    fn debug_output_holds_no_key() {
        assert_eq!(
            format!("{:?}", Redactor::new("k1", b"hunter2")),
            "Redactor(k1)"
        );
    }

    #[test]
    fn the_keys_of_a_text_are_found() {
        let redactor = Redactor::new("k-7", b"key");
        let text = redacted(&redactor, SECRET);
        assert_eq!(key_ids(&text).into_iter().collect::<Vec<_>>(), ["k-7"]);
        assert!(key_ids(r#"{"a":"hmac:not one","b":"hmac:x:12"}"#).is_empty());
    }
}
