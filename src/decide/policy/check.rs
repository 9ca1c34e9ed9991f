//! What a policy asks for, read and checked: approvers, validity, silence, binding.

use std::collections::BTreeSet;

use super::{
    DEFAULT_COOLDOWN_SECONDS, DEFAULT_DURATION_SECONDS, DEFAULT_EXPIRE_SECONDS, DEFAULT_USES,
    Effect, MAX_DURATION_SECONDS, PolicyBody, Problem, RequesterMay, StateBinding, Terms, Validity,
    Verdict,
};
use crate::{
    api::approval_policy::{
        ApproverSubject, Approvers, Binding, ChangeBinding, Silence, SilenceAction, VolatileShape,
    },
    decide::pointer,
};

/// Reads what a policy asks for. Whatever is wrong is reported and read strictly.
pub fn terms(body: &PolicyBody, problems: &mut Vec<Problem>) -> Terms {
    let approvers = body.approvers.clone().unwrap_or_default();
    check_approvers(body, &approvers, problems);
    let (uses, duration_seconds) = validity(body.validity.as_ref(), problems);
    let binding = body.binding.clone().unwrap_or_default();
    check_binding(&binding, problems);
    let cooldown_seconds = body
        .denial_cooldown_seconds
        .unwrap_or(DEFAULT_COOLDOWN_SECONDS);
    if cooldown_seconds < 0 {
        problems.push(Problem::new(
            "spec.denialCooldownSeconds",
            "must not be negative; 0 means none",
        ));
    }
    Terms {
        approvers,
        uses,
        duration_seconds,
        expire_seconds: expire(&body.on_silence, problems),
        cooldown_seconds,
        state: binding.state,
        state_fields: binding.state_fields.into_iter().collect(),
        volatile: binding.volatile.into_iter().collect(),
    }
}

fn check_approvers(body: &PolicyBody, approvers: &Approvers, problems: &mut Vec<Problem>) {
    if body.effect != Effect::Exempt && approvers.required.is_empty() {
        problems.push(Problem::new(
            "spec.approvers.required",
            "name at least one row; `from: []` means whoever holds verb approve on this policy",
        ));
    }
    for (n, row) in approvers.required.iter().enumerate() {
        let path = format!("spec.approvers.required[{n}]");
        if row.count < 1 {
            problems.push(Problem::new(format!("{path}.count"), "must be at least 1"));
        }
        for (m, subject) in row.from.iter().enumerate() {
            let members = [
                subject.group.is_some(),
                subject.user.is_some(),
                subject.service_account.is_some(),
            ];
            if members.iter().filter(|present| **present).count() != 1 {
                problems.push(Problem::new(
                    format!("{path}.from[{m}]"),
                    "exactly one of group, user and serviceAccount is needed",
                ));
            }
        }
        if let Some(people) = named_people(&row.from)
            && usize::try_from(row.count).is_ok_and(|count| count > people)
        {
            problems.push(Problem::new(
                format!("{path}.count"),
                format!(
                    "{} are needed and `from` names {people}: nobody could ever approve",
                    row.count
                ),
            ));
        }
    }
    if approvers.requester == Some(RequesterMay::Unknown) {
        problems.push(Problem::new(
            "spec.approvers.requester",
            "this version does not know the word: use Forbidden or Allowed",
        ));
    }
    for (n, verdict) in approvers.require_reason.iter().enumerate() {
        if *verdict == Verdict::Unknown {
            problems.push(Problem::new(
                format!("spec.approvers.requireReason[{n}]"),
                "this version does not know the word: use Approve or Deny",
            ));
        }
    }
}

/// How many people a row can hold, where it names only single ones; `None`: a group, or anybody.
fn named_people(from: &[ApproverSubject]) -> Option<usize> {
    if from.is_empty() || from.iter().any(|subject| subject.group.is_some()) {
        return None;
    }
    let names: BTreeSet<String> = from.iter().map(subject_words).collect();
    Some(names.len())
}

/// Whether a row can hold any number of people.
pub fn row_is_open(from: &[ApproverSubject]) -> bool {
    named_people(from).is_none()
}

/// Whether a row can hold so many people.
pub fn row_holds(from: &[ApproverSubject], count: i32) -> bool {
    let wanted = usize::try_from(count).unwrap_or_default();
    named_people(from).is_none_or(|people| people >= wanted)
}

/// A row's sources in words.
pub fn approver_words(from: &[ApproverSubject]) -> String {
    if from.is_empty() {
        return "whoever holds verb approve on the policy".to_owned();
    }
    let words: Vec<String> = from.iter().map(subject_words).collect();
    words.join(" or ")
}

/// `group sre`, `user ana@example.com`, `serviceAccount ns/name`.
pub fn subject_words(subject: &ApproverSubject) -> String {
    match (&subject.group, &subject.user, &subject.service_account) {
        (Some(group), None, None) => format!("group {group}"),
        (None, Some(user), None) => format!("user {user}"),
        (None, None, Some(account)) => {
            format!("serviceAccount {}/{}", account.namespace, account.name)
        }
        _ => "nobody".to_owned(),
    }
}

fn validity(validity: Option<&Validity>, problems: &mut Vec<Problem>) -> (Option<i32>, i32) {
    let Some(validity) = validity else {
        return (Some(DEFAULT_USES), DEFAULT_DURATION_SECONDS);
    };
    if validity.uses.is_none() && validity.duration_seconds.is_none() {
        problems.push(Problem::new(
            "spec.validity",
            "say `uses`, `durationSeconds` or both, or leave validity out",
        ));
        return (Some(DEFAULT_USES), DEFAULT_DURATION_SECONDS);
    }
    if validity.uses.is_some_and(|uses| uses < 1) {
        problems.push(Problem::new("spec.validity.uses", "must be at least 1"));
    }
    let duration = validity.duration_seconds.unwrap_or(MAX_DURATION_SECONDS);
    if !(1..=MAX_DURATION_SECONDS).contains(&duration) {
        problems.push(Problem::new(
            "spec.validity.durationSeconds",
            format!("must be between 1 and {MAX_DURATION_SECONDS}"),
        ));
    }
    (validity.uses, duration)
}

fn expire(rows: &[Silence], problems: &mut Vec<Problem>) -> i32 {
    let mut earliest = None;
    for (n, row) in rows.iter().enumerate() {
        let path = format!("spec.onSilence[{n}]");
        if row.action == SilenceAction::Unknown {
            problems.push(Problem::new(
                format!("{path}.action"),
                "this version does not know the action: use Expire",
            ));
        }
        if row.after_seconds < 1 {
            problems.push(Problem::new(
                format!("{path}.afterSeconds"),
                "must be at least 1",
            ));
        }
        if n > 0 {
            problems.push(Problem::new(path, "exactly one row is possible"));
        }
        earliest = Some(earliest.map_or(row.after_seconds, |earliest: i32| {
            earliest.min(row.after_seconds)
        }));
    }
    earliest.unwrap_or(DEFAULT_EXPIRE_SECONDS)
}

fn check_binding(binding: &Binding, problems: &mut Vec<Problem>) {
    if binding.change == Some(ChangeBinding::Unknown) {
        problems.push(Problem::new(
            "spec.binding.change",
            "this version does not know the word: use Exact",
        ));
    }
    if binding.state == Some(StateBinding::Unknown) {
        problems.push(Problem::new(
            "spec.binding.state",
            "this version does not know the word: use TouchedFields, WholeObject or Identity",
        ));
    }
    for (n, path) in binding.state_fields.iter().enumerate() {
        if let Some(words) = pointer_problem(path) {
            problems.push(Problem::new(
                format!("spec.binding.stateFields[{n}]"),
                words,
            ));
        }
    }
    for (n, volatile) in binding.volatile.iter().enumerate() {
        if let Some(words) = pointer_problem(&volatile.path) {
            problems.push(Problem::new(
                format!("spec.binding.volatile[{n}].path"),
                words,
            ));
        }
        if volatile.shape == VolatileShape::Unknown {
            problems.push(Problem::new(
                format!("spec.binding.volatile[{n}].shape"),
                "this version does not know the shape: use Timestamp",
            ));
        }
    }
}

/// What is wrong with a JSON pointer (RFC 6901), if anything.
fn pointer_problem(path: &str) -> Option<&'static str> {
    if !path.starts_with('/') || path.len() < 2 {
        return Some("a JSON pointer begins with / and names a member, e.g. /metadata/labels/env");
    }
    (!pointer::is_valid(path))
        .then_some("in a JSON pointer ~ is written ~0 and / within a member ~1")
}
