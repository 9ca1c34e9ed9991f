//! The words of answers: one ASCII line that stands alone, from typed and cleaned fields, with the request's name early.

use jiff::Timestamp;

use crate::{
    api::ApprovalRequest,
    decide::{denial::Reason, proposal::Proposal, visible},
};

/// Longest message, in characters. What does not fit is shortened; the request's name never is.
pub const MAX: usize = 350;
/// Longest warning, in characters: API servers cut longer ones.
const MAX_WARNING: usize = 250;
const MAX_FIELDS: usize = 3;

/// How requests are called in a command where there is no room for the whole name.
const SHORT_NAME: &str = "ggar";

/// The warning on an admitted dry run.
pub const DRY_RUN: &str = "dry run only: a real run of this change waits for a person's approval";
/// What the gate answers a canary with, before the digest of the entry that sent the call.
pub const CANARY: &str = "grantgate canary: refused by gate entry ";

/// Why an earlier permission did not serve.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Before {
    /// The answer's reason.
    pub reason: Reason,
    /// The detail word in `causes`.
    pub cause: &'static str,
    /// In words, e.g. `the target changed since it was approved`.
    pub words: String,
    /// Paths that differ.
    pub fields: Vec<String>,
}

/// The line for a change that waits for a person.
pub fn pending(
    request: &ApprovalRequest,
    proposal: &Proposal,
    before: Option<&Before>,
    admitted_before: usize,
) -> String {
    let (namespace, name) = place(request);
    let half = match admitted_before {
        0 => String::new(),
        n => format!(" {n} write(s) just now were admitted."),
    };
    let mut pieces = vec![Piece::fixed("NOT EXECUTED (this write), ")];
    if let Some(before) = before {
        pieces.extend([
            Piece::of(clean(&before.words)).instead(6, in_short(before.reason)),
            Piece::of(fields(&before.fields)).clip(2, 40).clip(11, 14),
            Piece::fixed(": "),
        ]);
    }
    pieces.extend([
        Piece::fixed(format!(
            "waiting for a person: request {namespace}/{name} for "
        )),
        Piece::of(what(proposal)).clip(1, 40).clip(5, 24),
        Piece::fixed(" by agent "),
        Piece::of(clean(&proposal.requester.agent))
            .clip(3, 24)
            .clip(10, 12),
        Piece::of(
            ". Neither success nor failure: stop, do not retry or work around it, tell the user it"
                .to_owned(),
        )
        .instead(
            4,
            ". Neither success nor failure: stop, do not retry, tell the user it",
        ),
        Piece::fixed(format!(
            " awaits approval until {}.",
            minute(request.spec.deadline.0)
        )),
        Piece::of(half).instead(8, ""),
        Piece::of(format!(
            " Poll: kubectl get approvalrequests.grantgate.dev {name} -n {namespace}"
        ))
        // Whole or not at all: without its name the command would list, which an agent may not. The name stands early anyway.
        .instead(
            7,
            format!(" Poll: kubectl get {SHORT_NAME} {name} -n {namespace}"),
        )
        .instead(9, ""),
    ]);
    fit(MAX, pieces)
}

/// The line for a change whose request is approved but cannot be used yet.
pub fn approved(request: &ApprovalRequest, proposal: &Proposal, why: &str) -> String {
    let (namespace, name) = place(request);
    fit(
        MAX,
        vec![
            Piece::fixed(format!(
                "NOT EXECUTED (this write): request {namespace}/{name} is approved, but "
            )),
            Piece::of(clean(why)).clip(2, 40),
            Piece::fixed(": "),
            Piece::of(what(proposal)).clip(1, 40),
            Piece::fixed(" may be tried again in a moment. Nothing was changed"),
        ],
    )
}

/// The line for a change that a person refused a moment ago.
pub fn denied(request: &ApprovalRequest, proposal: &Proposal, until: Timestamp) -> String {
    let (namespace, name) = place(request);
    fit(
        MAX,
        vec![
            Piece::fixed(format!(
                "NOT EXECUTED (this write): a person denied request {namespace}/{name} for "
            )),
            Piece::of(what(proposal)).clip(1, 40),
            Piece::fixed(format!(
                ". Do not retry or work around it; tell the user. The same may be asked again after {}",
                second(until)
            )),
        ],
    )
}

/// The line for what no person can allow now.
pub fn refused(target: &str, words: &str) -> String {
    unasked(
        "NOT EXECUTED (this write), refused: ",
        target,
        words,
        ". Nothing was changed and nobody was asked",
    )
}

/// The line for when nothing can be decided.
pub fn unavailable(target: &str, words: &str) -> String {
    unasked(
        "NOT EXECUTED (this write), approval is unavailable: ",
        target,
        words,
        ". Nothing was changed; the same call may be tried again later",
    )
}

fn unasked(head: &str, target: &str, words: &str, tail: &str) -> String {
    fit(
        MAX,
        vec![
            Piece::fixed(head),
            Piece::of(clean(words)).clip(2, 120),
            Piece::fixed(": "),
            Piece::of(clean(target)).clip(1, 60),
            Piece::fixed(tail),
        ],
    )
}

/// The warning on an admitted use: the same text each time, since the server drops equal ones.
pub fn admitted(grant: &str, approvers: &[String], uses_left: Option<i64>) -> String {
    let by = if approvers.is_empty() {
        "a person".to_owned()
    } else {
        approvers.join(", ")
    };
    let left = match uses_left {
        Some(left) => format!("; {left} use(s) left"),
        None => "; uses are not counted".to_owned(),
    };
    fit(
        MAX_WARNING,
        vec![
            Piece::fixed(format!(
                "admitted under grant {}, approved by ",
                clean(grant)
            )),
            Piece::of(clean(&by)).clip(1, 40),
            Piece::fixed(left),
        ],
    )
}

/// What the gate answers a canary with: by `entry` the controller knows which configuration holds.
pub fn canary(entry: &str) -> String {
    format!("{CANARY}{}", clean(entry))
}

/// Namespace and name of a request, as the server gave them.
fn place(request: &ApprovalRequest) -> (&str, &str) {
    (
        request.metadata.namespace.as_deref().unwrap_or_default(),
        request.metadata.name.as_deref().unwrap_or_default(),
    )
}

/// Where there is no room for the words; `details.causes` has them whole.
fn in_short(reason: Reason) -> &'static str {
    match reason {
        Reason::GrantExpired => "permission expired",
        Reason::GrantSpent => "permission used up",
        Reason::GrantMismatch => "permission differs",
        _ => "permission stale",
    }
}

fn fields(fields: &[String]) -> String {
    if fields.is_empty() {
        return String::new();
    }
    let shown: Vec<String> = fields
        .iter()
        .take(MAX_FIELDS)
        .map(|path| clip(&clean(path), 60))
        .collect();
    let more = match fields.len().saturating_sub(MAX_FIELDS) {
        0 => String::new(),
        more => format!(" and {more} more"),
    };
    format!(" ({}{more})", shown.join(", "))
}

fn what(proposal: &Proposal) -> String {
    format!(
        "{} {}",
        proposal.action.operation.as_str(),
        clean(&proposal.target())
    )
}

/// A part of a line, with the ways in which it gets shorter, each with its turn: the lowest comes first.
struct Piece {
    text: String,
    shorter: Vec<(u8, Shorter)>,
}

enum Shorter {
    /// Its middle is cut out, as far as needed and down to so many characters.
    Clip(usize),
    /// Another text stands for it.
    Instead(String),
}

impl Piece {
    fn of(text: String) -> Self {
        Self {
            text,
            shorter: Vec::new(),
        }
    }

    fn fixed(text: impl Into<String>) -> Self {
        Self::of(text.into())
    }

    fn clip(mut self, turn: u8, least: usize) -> Self {
        self.shorter.push((turn, Shorter::Clip(least)));
        self
    }

    fn instead(mut self, turn: u8, text: impl Into<String>) -> Self {
        self.shorter.push((turn, Shorter::Instead(text.into())));
        self
    }
}

/// The pieces as one line of at most `max` characters, shortened in turn as far as needed.
fn fit(max: usize, mut pieces: Vec<Piece>) -> String {
    let mut turns: Vec<u8> = pieces
        .iter()
        .flat_map(|piece| piece.shorter.iter().map(|(turn, _)| *turn))
        .collect();
    turns.sort_unstable();
    for turn in turns {
        let length: usize = pieces.iter().map(|piece| piece.text.len()).sum();
        let Some(over) = length.checked_sub(max).filter(|over| *over > 0) else {
            break;
        };
        for Piece { text, shorter } in &mut pieces {
            let now = shorter.iter().find(|(of, _)| *of == turn);
            match now.map(|(_, shorter)| shorter) {
                Some(Shorter::Clip(least)) if text.len() > *least => {
                    *text = clip(text, text.len().saturating_sub(over).max(*least));
                }
                Some(Shorter::Instead(instead)) if text.len() > instead.len() => {
                    text.clone_from(instead);
                }
                _ => {}
            }
        }
    }
    pieces.into_iter().map(|piece| piece.text).collect()
}

/// Cuts the middle of an ASCII text out.
fn clip(text: &str, room: usize) -> String {
    if text.len() <= room {
        return text.to_owned();
    }
    let keep = room.saturating_sub(3);
    let front = keep.div_ceil(2);
    let back = text.len().saturating_sub(keep - front);
    format!(
        "{}...{}",
        text.get(..front).unwrap_or_default(),
        text.get(back..).unwrap_or_default()
    )
}

/// ASCII only, with everything else made visible.
fn clean(text: &str) -> String {
    let visible = visible::visible(text);
    if visible.is_ascii() {
        return visible;
    }
    visible
        .chars()
        .map(|c| {
            if c.is_ascii() {
                c.to_string()
            } else {
                format!("<U+{:04X}>", u32::from(c))
            }
        })
        .collect()
}

fn minute(time: Timestamp) -> String {
    time.strftime("%H:%MZ").to_string()
}

fn second(time: Timestamp) -> String {
    time.strftime("%H:%M:%SZ").to_string()
}

#[cfg(test)]
mod tests {
    #![allow(
        clippy::unwrap_used,
        clippy::expect_used,
        clippy::panic,
        reason = "tests"
    )]

    use proptest::prelude::*;

    use super::*;
    use crate::decide::permission_for_tests::{now, proposal, request};

    const NAME: &str = "ar-aaaaaaaaaaaaaaaaaaaaaaaaaa";

    fn filed(namespace: &str) -> ApprovalRequest {
        let mut request = request(&proposal(), "r1", None);
        request.metadata.name = Some(NAME.to_owned());
        request.metadata.namespace = Some(namespace.to_owned());
        request
    }

    fn before(words: &str, fields: &[&str]) -> Before {
        Before {
            reason: Reason::GrantStale,
            cause: "Stale",
            words: words.to_owned(),
            fields: fields.iter().map(|field| (*field).to_owned()).collect(),
        }
    }

    fn good(line: &str, max: usize) {
        assert!(line.len() <= max, "{} characters: {line}", line.len());
        assert!(
            line.bytes().all(|byte| (b' '..=b'~').contains(&byte)),
            "{line:?}"
        );
    }

    #[test]
    fn an_ordinary_line_is_whole() {
        let line = pending(&filed("web"), &proposal(), None, 0);
        good(&line, MAX);
        assert!(line.starts_with(&format!(
            "NOT EXECUTED (this write), waiting for a person: request web/{NAME} for UPDATE deployments web/api by agent ops-bot. \
             Neither success nor failure: stop, do not retry or work around it, tell the user it awaits approval until "
        )), "{line}");
        assert!(
            line.ends_with(&format!(
                " Poll: kubectl get approvalrequests.grantgate.dev {NAME} -n web"
            )),
            "{line}"
        );
    }

    #[test]
    fn what_a_permission_fails_by_is_named_with_three_fields_at_most() {
        let words = "the earlier permission is stale, the target changed since it was approved";
        let one = before(words, &["/spec/replicas"]);
        let line = pending(&filed("web"), &proposal(), Some(&one), 0);
        good(&line, MAX);
        assert!(line.contains("(/spec/replicas): waiting"), "{line}");
        let many = before("what is permitted differs", &["/a", "/b", "/c", "/d", "/e"]);
        let line = pending(&filed("web"), &proposal(), Some(&many), 0);
        good(&line, MAX);
        assert!(line.contains("(/a, /b, /c and 2 more): "), "{line}");
    }

    #[test]
    fn writes_of_the_last_seconds_are_counted() {
        let line = pending(&filed("web"), &proposal(), None, 2);
        good(&line, MAX);
        assert!(
            line.contains(" 2 write(s) just now were admitted."),
            "{line}"
        );
    }

    #[test]
    fn however_long_everything_else_is_the_requests_name_stays() {
        let namespace = "n".repeat(63);
        let request = filed(&namespace);
        let mut long = proposal();
        long.requester.agent = "a".repeat(253);
        long.action.name = Some("x".repeat(1024));
        long.action.resource = "r".repeat(253);
        let words = "w".repeat(500);
        let path = format!("/{}", "p".repeat(400));
        let before = before(&words, &[&path, &path, &path, &path]);
        let id = format!("{namespace}/{NAME}");
        for line in [
            pending(&request, &long, Some(&before), 99),
            pending(&request, &long, None, 99),
            approved(&request, &long, &words),
            denied(&request, &long, now()),
        ] {
            good(&line, MAX);
            assert!(line.contains(&id), "{line}");
        }
        let waiting = pending(&request, &long, Some(&before), 99);
        assert!(
            waiting.contains("Neither success nor failure: stop"),
            "{waiting}"
        );
        assert!(waiting.contains("until "), "{waiting}");
    }

    proptest! {
        #[test]
        fn no_text_from_elsewhere_makes_a_line_longer_or_less_plain(
            target in any::<String>(), words in any::<String>(), agent in any::<String>(), field in any::<String>(),
        ) {
            let mut hostile = proposal();
            hostile.requester.agent = agent.clone();
            hostile.action.name = Some(target.clone());
            let before = before(&words, &[&field, &words]);
            for line in [
                pending(&filed("web"), &hostile, Some(&before), 3),
                approved(&filed("web"), &hostile, &words),
                denied(&filed("web"), &hostile, now()),
                refused(&target, &words),
                unavailable(&target, &words),
                canary("0123abcd"),
            ] {
                good(&line, MAX);
            }
            good(&admitted("web/gr-x", &[agent, target], Some(1)), MAX_WARNING);
        }
    }

    #[test]
    fn a_warning_keeps_the_grant_and_what_is_left() {
        let approvers: Vec<String> = (0..30).map(|n| format!("person{n}@example.com")).collect();
        let line = admitted("web/gr-x", &approvers, Some(2));
        good(&line, MAX_WARNING);
        assert!(
            line.starts_with("admitted under grant web/gr-x, approved by person0"),
            "{line}"
        );
        assert!(line.ends_with("; 2 use(s) left"), "{line}");
        assert_eq!(
            admitted("web/gr-x", &[], None),
            "admitted under grant web/gr-x, approved by a person; uses are not counted"
        );
    }
}
