//! Which writes the API server sends to the gate: the `matchConditions` of each entry, made from the declared identities.
//!
//! A condition that errs, or costs too much, answers 403 to everybody, agents or not. So every optional field stands behind `has`, and lists
//! are `x in […]`, which is cheap. Two entries that match one request would each decide it, so exactly one may (V13): usernames stand in
//! one entry each, and entries made of groups, which one user may have several of, are excluded from all later ones.

use std::collections::BTreeSet;

use crate::{
    api::Subject,
    decide::{cel_text, subject::AGENT_KEY},
};

/// Longest condition that is written, in characters. The API server refuses more than 100,000 (V14).
pub const MAX_CONDITION: usize = 90_000;
/// Bytes of all conditions together: etcd takes objects of up to 1.5 MiB, and the rest of the object needs room too.
pub const MAX_TOTAL: usize = 1_100_000;
/// An entry has at most 64 conditions in the API server.
const MAX_ENTRIES: usize = 64;
/// Room in each entry for everything but lists.
const FRAME: usize = 2_000;
/// Field manager of the canary's calls; further entries append their number.
pub const CANARY_MANAGER: &str = "grantgate-canary";

const USERNAMES: &str = "request.userInfo.username in [";
const GROUPS: &str = "request.userInfo.groups.exists(g, g in [";

/// Usernames and groups of declared agents. A ServiceAccount is its username.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Subjects {
    /// Exact usernames.
    pub usernames: BTreeSet<String>,
    /// Exact groups.
    pub groups: BTreeSet<String>,
}

impl Subjects {
    /// Those of one identity.
    pub fn of<'s>(subjects: impl IntoIterator<Item = &'s Subject>) -> Self {
        let mut all = Self::default();
        for subject in subjects {
            if let Some(account) = &subject.service_account {
                all.usernames.insert(account.username());
            }
            all.usernames.extend(subject.user.clone());
            all.groups.extend(subject.group.clone());
        }
        all
    }

    /// Adds others.
    pub fn extend(&mut self, others: &Self) {
        self.usernames.extend(others.usernames.iter().cloned());
        self.groups.extend(others.groups.iter().cloned());
    }

    /// Those that others lack.
    #[must_use]
    pub fn without(&self, others: &Self) -> Self {
        let lacking = |mine: &BTreeSet<String>, theirs: &BTreeSet<String>| {
            mine.difference(theirs).cloned().collect()
        };
        Self {
            usernames: lacking(&self.usernames, &others.usernames),
            groups: lacking(&self.groups, &others.groups),
        }
    }

    /// Whether others hold all of these.
    pub fn within(&self, others: &Self) -> bool {
        self.usernames.is_subset(&others.usernames) && self.groups.is_subset(&others.groups)
    }

    /// Nobody.
    pub fn is_empty(&self) -> bool {
        self.usernames.is_empty() && self.groups.is_empty()
    }

    /// A line for each, e.g. `group ai-agents`.
    pub fn lines(&self) -> impl Iterator<Item = String> {
        let users = self.usernames.iter().map(|name| format!("user {name}"));
        users.chain(self.groups.iter().map(|name| format!("group {name}")))
    }
}

/// One entry of the gate's configuration.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Entry {
    /// Webhook name, e.g. `gate.grantgate.dev`.
    pub name: String,
    /// `matchConditions`: name and CEL expression. All must hold.
    pub conditions: Vec<(String, String)>,
    /// 64 hexadecimal digits over the conditions: the last segment of the path.
    pub digest: String,
    /// Field manager by which the canary's call reaches this entry.
    pub canary_manager: String,
    /// Whom it sends, beside whoever carries the extra key (the first entry).
    pub subjects: Subjects,
}

/// All entries.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Entries {
    /// At least one: the canary is always sent, so that enforcement can be proven without any agent.
    pub entries: Vec<Entry>,
    /// Identities that found no room, by name.
    pub left_out: Vec<String>,
}

/// The entries for identities in the order of their seniority: where room ends, the youngest are left out. `leaving` are subjects that no
/// identity declares any more and that are still sent. `canary` is the username of the account that proves enforcement.
pub fn entries(identities: &[(String, Subjects)], leaving: &Subjects, canary: &str) -> Entries {
    let with = |count: usize| {
        let mut subjects = leaving.clone();
        for (_, more) in identities.iter().take(count) {
            subjects.extend(more);
        }
        let built = build(&subjects, canary);
        let bytes: usize = built
            .iter()
            .flat_map(|entry| &entry.conditions)
            .map(|(_, expression)| expression.len())
            .sum();
        (bytes <= MAX_TOTAL && built.len() <= MAX_ENTRIES).then_some(built)
    };
    let left = |count: usize| {
        identities
            .iter()
            .skip(count)
            .map(|(name, _)| name.clone())
            .collect()
    };
    if let Some(entries) = with(identities.len()) {
        return Entries {
            entries,
            left_out: Vec::new(),
        };
    }
    let (mut fits, mut too_many) = (0, identities.len());
    let mut best = with(0).unwrap_or_else(|| build(&Subjects::default(), canary));
    while too_many - fits > 1 {
        let middle = fits + (too_many - fits) / 2;
        match with(middle) {
            Some(entries) => (fits, best) = (middle, entries),
            None => too_many = middle,
        }
    }
    Entries {
        entries: best,
        left_out: left(fits),
    }
}

/// Groups first, then usernames, each entry filled before the next begins.
fn build(subjects: &Subjects, canary: &str) -> Vec<Entry> {
    let mut chunks: Vec<(Vec<&str>, Vec<&str>)> = Vec::new();
    let mut room = 0_usize;
    let all = subjects.groups.iter().map(|group| (true, group));
    for (is_group, name) in all.chain(subjects.usernames.iter().map(|name| (false, name))) {
        let needs = cel_text::quoted(name).chars().count() + 2;
        if chunks.is_empty() || needs > room {
            chunks.push(Default::default());
            room = MAX_CONDITION - FRAME;
        }
        room = room.saturating_sub(needs);
        if let Some((groups, usernames)) = chunks.last_mut() {
            if is_group { groups } else { usernames }.push(name);
        }
    }
    if chunks.is_empty() {
        chunks.push(Default::default());
    }
    let managers: Vec<String> = (0..chunks.len()).map(canary_manager).collect();
    let mut broad: Vec<String> = Vec::new();
    let mut entries = Vec::new();
    for (number, (groups, usernames)) in chunks.into_iter().enumerate() {
        let own = broad_part(number, &groups);
        let mut any = Vec::new();
        any.extend(own.clone());
        if !usernames.is_empty() {
            any.push(format!(
                "has(request.userInfo.username) && {USERNAMES}{}]",
                list(&usernames)
            ));
        }
        any.push(canary_part(number, &managers, canary));
        let any: Vec<String> = any.into_iter().map(|part| format!("({part})")).collect();
        let mut conditions = vec![("declared".to_owned(), any.join(" || "))];
        conditions.extend(
            broad
                .iter()
                .enumerate()
                .map(|(earlier, part)| (format!("not-in-entry-{earlier}"), format!("!({part})"))),
        );
        let set = |names: Vec<&str>| names.into_iter().map(str::to_owned).collect();
        entries.push(Entry {
            name: name(number),
            digest: hash(
                conditions
                    .iter()
                    .flat_map(|(name, expression)| [name, expression]),
            ),
            conditions,
            canary_manager: canary_manager(number),
            subjects: Subjects {
                usernames: set(usernames),
                groups: set(groups),
            },
        });
        broad.extend(own);
    }
    entries
}

/// What may hold for somebody of another entry too, and is therefore excluded from later ones.
fn broad_part(number: usize, groups: &[&str]) -> Option<String> {
    let extra = format!(
        "has(request.userInfo.extra) && request.userInfo.extra.exists(k, k.lowerAscii() == {})",
        cel_text::quoted(AGENT_KEY)
    );
    let in_groups = (!groups.is_empty())
        .then(|| format!("has(request.userInfo.groups) && {GROUPS}{}])", list(groups)));
    match (number, in_groups) {
        // Presence, whatever the value: unknown and missing values are refused, not let through (V15).
        (0, None) => Some(extra),
        (0, Some(groups)) => Some(format!("({extra}) || ({groups})")),
        (_, groups) => groups,
    }
}

/// One account proves every entry: the field manager of its call says which one is meant. A call with any other reaches the first.
fn canary_part(number: usize, managers: &[String], canary: &str) -> String {
    let is_canary = format!(
        "has(request.userInfo.username) && request.userInfo.username == {}",
        cel_text::quoted(canary)
    );
    let manager =
        "has(request.options) && has(request.options.fieldManager) && request.options.fieldManager";
    let others: Vec<&str> = managers.iter().skip(1).map(String::as_str).collect();
    match (number, others.is_empty()) {
        (0, true) => is_canary,
        (0, false) => format!("{is_canary} && !({manager} in [{}])", list(&others)),
        _ => format!(
            "{is_canary} && {manager} == {}",
            cel_text::quoted(&canary_manager(number))
        ),
    }
}

fn name(number: usize) -> String {
    match number {
        0 => "gate.grantgate.dev".to_owned(),
        number => format!("gate-{number}.grantgate.dev"),
    }
}

/// The field manager by which the canary's call reaches entry `number`.
pub fn canary_manager(number: usize) -> String {
    match number {
        0 => CANARY_MANAGER.to_owned(),
        number => format!("{CANARY_MANAGER}-{number}"),
    }
}

fn list(names: &[&str]) -> String {
    let quoted: Vec<String> = names.iter().map(|name| cel_text::quoted(name)).collect();
    quoted.join(", ")
}

/// 64 hexadecimal digits over texts in their order. None of ours holds a NUL, which ends each.
pub fn hash(texts: impl IntoIterator<Item = impl AsRef<str>>) -> String {
    use sha2::{Digest, Sha256};
    let mut hash = Sha256::new();
    for text in texts {
        hash.update(text.as_ref().as_bytes());
        hash.update([0]);
    }
    hex::encode(hash.finalize())
}

/// The subjects that conditions of ours send: what an installed configuration holds, whoever wrote it last.
pub fn subjects_of<'e>(conditions: impl IntoIterator<Item = &'e str>) -> Subjects {
    let mut found = Subjects::default();
    for expression in conditions {
        if expression.starts_with('!') {
            continue;
        }
        for (before, literal) in cel_text::literals(expression) {
            if before.ends_with(USERNAMES) {
                found.usernames.insert(literal);
            } else if before.ends_with(GROUPS) {
                found.groups.insert(literal);
            }
        }
    }
    found
}

#[cfg(test)]
mod tests;
