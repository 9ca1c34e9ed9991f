//! Keys and names that racing replicas agree on without talking to each other.

use sha2::{Digest, Sha256};

use crate::{api::Action, decide::canonical};

/// Length of the hash part of names: 26 characters of base32 hold 130 bits.
const LENGTH: usize = 26;
const ALPHABET: &[u8; 32] = b"abcdefghijklmnopqrstuvwxyz234567";

/// Digest of what a request is found by: who, which agent, and the target. Everything else is compared, each with its own reason.
pub fn action_key(username: &str, agent: &str, action: &Action) -> String {
    let name = action
        .name
        .as_deref()
        .or(action.generate_name.as_deref())
        .unwrap_or_default();
    let parts = [
        ("agent", agent),
        (
            "generated",
            if action.name.is_none() { "yes" } else { "no" },
        ),
        ("group", &action.group),
        ("name", name),
        ("namespace", action.namespace.as_deref().unwrap_or_default()),
        ("operation", action.operation.as_str()),
        ("resource", &action.resource),
        (
            "subresource",
            action.subresource.as_deref().unwrap_or_default(),
        ),
        ("username", username),
    ];
    canonical::digest(&canonical::object(
        parts
            .iter()
            .map(|(key, value)| ((*key).to_owned(), canonical::string(value))),
    ))
}

/// Name of the request for one change by one requester after one predecessor: racing replicas meet on it.
pub fn request_name(action_key: &str, change_digest: &str, previous_uid: Option<&str>) -> String {
    format!(
        "ar-{}",
        short(&[action_key, change_digest, previous_uid.unwrap_or_default()])
    )
}

/// Name of the one grant that a request can have.
pub fn grant_name(request_name: &str) -> String {
    format!(
        "gr-{}",
        request_name.strip_prefix("ar-").unwrap_or(request_name)
    )
}

/// Id of one operation, the same for each retransmission of one review.
pub fn operation_id(grant_uid: &str, admission_uid: &str) -> String {
    format!("op-{}", short(&[grant_uid, admission_uid]))
}

/// A short name for anything made of parts.
pub fn short(parts: &[&str]) -> String {
    let mut hasher = Sha256::new();
    for part in parts {
        hasher.update((part.len() as u64).to_be_bytes());
        hasher.update(part.as_bytes());
    }
    base32(&hasher.finalize())
}

fn base32(bytes: &[u8]) -> String {
    let mut text = String::with_capacity(LENGTH);
    let (mut buffer, mut bits) = (0_u32, 0_u32);
    for byte in bytes {
        if text.len() == LENGTH {
            break;
        }
        buffer = (buffer << 8) | u32::from(*byte);
        bits += 8;
        while bits >= 5 && text.len() < LENGTH {
            bits -= 5;
            let index = ((buffer >> bits) & 31) as usize;
            text.push(char::from(ALPHABET.get(index).copied().unwrap_or(b'a')));
        }
        buffer &= (1 << bits) - 1;
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_depend_on_every_part_and_on_where_parts_end() {
        let name = request_name("k", "d", None);
        assert_eq!(name.len(), 29);
        assert_ne!(name, request_name("k", "d", Some("u")));
        assert_ne!(request_name("ka", "b", None), request_name("k", "ab", None));
        assert_eq!(
            grant_name(&name).strip_prefix("gr-"),
            name.strip_prefix("ar-")
        );
        assert!(name[3..].bytes().all(|byte| ALPHABET.contains(&byte)));
    }
}
