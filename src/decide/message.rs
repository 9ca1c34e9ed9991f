//! The words of answers: one ASCII line that stands alone, from typed and cleaned fields, with the request's name early.

use jiff::Timestamp;

use crate::{
    api::ApprovalRequest,
    decide::{denial::Reason, proposal::Proposal, visible},
};

/// Longest message. Only the target's name and the field list are ever cut.
pub const MAX: usize = 350;
const MAX_FIELDS: usize = 3;

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
    let name = request.metadata.name.as_deref().unwrap_or_default();
    let namespace = request.metadata.namespace.as_deref().unwrap_or_default();
    let until = minute(request.spec.deadline.0);
    let why = before.map(because).unwrap_or_default();
    let half = match admitted_before {
        0 => String::new(),
        n => format!(" {n} earlier write(s) of this agent in the last seconds were executed."),
    };
    let head = format!(
        "NOT EXECUTED (this write), {why}waiting for a person: request {namespace}/{name} for "
    );
    let tail = format!(
        " by agent {}. Neither success nor failure: stop, do not retry or work around it, tell the user it awaits approval \
         until {until}.{half} Poll: kubectl get approvalrequests.grantgate.dev {name} -n {namespace}",
        clean(&proposal.requester.agent),
    );
    let what = what(proposal);
    fit(head, &what, tail)
}

/// The line for a change whose request is approved but cannot be used yet.
pub fn approved(request: &ApprovalRequest, proposal: &Proposal, why: &str) -> String {
    let name = request.metadata.name.as_deref().unwrap_or_default();
    let namespace = request.metadata.namespace.as_deref().unwrap_or_default();
    let head =
        format!("NOT EXECUTED (this write): request {namespace}/{name} is approved, but {why}: ");
    fit(
        head,
        &what(proposal),
        " may be tried again in a moment. Nothing was changed".to_owned(),
    )
}

/// The line for a change that a person refused a moment ago.
pub fn denied(request: &ApprovalRequest, proposal: &Proposal, until: Timestamp) -> String {
    let name = request.metadata.name.as_deref().unwrap_or_default();
    let namespace = request.metadata.namespace.as_deref().unwrap_or_default();
    let head =
        format!("NOT EXECUTED (this write): a person denied request {namespace}/{name} for ");
    let tail = format!(
        ". Do not retry or work around it; tell the user. The same may be asked again after {}",
        second(until)
    );
    fit(head, &what(proposal), tail)
}

/// The line for what no person can allow now.
pub fn refused(target: &str, words: &str) -> String {
    let head = format!("NOT EXECUTED (this write), refused: {}: ", clean(words));
    fit(
        head,
        &clean(target),
        ". Nothing was changed and nobody was asked".to_owned(),
    )
}

/// The line for when nothing can be decided.
pub fn unavailable(target: &str, words: &str) -> String {
    let head = format!(
        "NOT EXECUTED (this write), approval is unavailable: {}: ",
        clean(words)
    );
    fit(
        head,
        &clean(target),
        ". Nothing was changed; the same call may be tried again later".to_owned(),
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
        Some(left) => format!("{left} use(s) left"),
        None => "uses are not counted".to_owned(),
    };
    clip(
        &clean(&format!(
            "executed under grant {grant}, approved by {by}; {left}"
        )),
        250,
    )
}

/// The warning on an admitted dry run.
pub const DRY_RUN: &str = "dry run only: a real run of this change waits for a person's approval";

fn because(before: &Before) -> String {
    let fields = match before.fields.len() {
        0 => String::new(),
        n if n > MAX_FIELDS => {
            format!(
                " ({} and {} more)",
                before.fields[..MAX_FIELDS].join(", "),
                n - MAX_FIELDS
            )
        }
        _ => format!(" ({})", before.fields.join(", ")),
    };
    format!("{}{}: ", clean(&before.words), clip(&clean(&fields), 110))
}

fn what(proposal: &Proposal) -> String {
    format!(
        "{} {}",
        proposal.action.operation.as_str(),
        clean(&proposal.target())
    )
}

fn fit(head: String, middle: &str, tail: String) -> String {
    let room = MAX.saturating_sub(head.len() + tail.len()).max(24);
    format!("{head}{}{tail}", clip(middle, room))
}

/// Cuts the middle of an ASCII text out.
fn clip(text: &str, room: usize) -> String {
    if text.len() <= room || !text.is_ascii() {
        return text.to_owned();
    }
    let keep = room.saturating_sub(3);
    let front = keep.div_ceil(2);
    format!(
        "{}...{}",
        &text[..front],
        &text[text.len() - (keep - front)..]
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
