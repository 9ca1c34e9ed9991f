//! Which policies match, and what they come to: level, then specificity, and strictness apart from both.
//!
//! *Level.* Cluster policies are the floor. A namespaced policy may ask where no cluster policy does, add approvers to one
//! that asks, and tighten limits. It may exempt, or replace approvers, only over the default policy; and it may exempt where
//! every matching cluster policy that asks says `namespaceMay: [Exempt]`.
//!
//! *Specificity.* Within a level the closest target wins: Named, then Destructive, then All. At equal rank asking beats
//! exempting, and the approvers of each policy that asks are needed. The winners shape the request.
//!
//! *Strictness.* The limits of *all* matching policies that ask are combined, whoever wins: see [`super::strictest`].
//!
//! *No match.* `ClusterApprovalPolicy/grantgate-default` decides. Its own selectors are never looked at.

use std::{collections::HashMap, fmt, sync::Arc};

use serde::Serialize;

pub use super::select::Situation;
use super::{
    canonical,
    policy::{Match, Policy, PolicyName},
    select::Specificity,
    strictest,
    trace::{Step, Trace},
};
use crate::api::{
    Operation, PolicyRef, approval_policy::Effect, approval_request::ResolvedBinding,
    reference::Validity,
};

/// Name of the cluster policy that decides where no other matches.
pub const DEFAULT_POLICY: &str = "grantgate-default";

/// Every policy, compiled, by where it can match.
#[derive(Debug, Default)]
pub struct Policies {
    default: Option<Arc<Policy>>,
    cluster: Vec<Arc<Policy>>,
    by_namespace: HashMap<String, Vec<Arc<Policy>>>,
}

/// What the policies come to.
#[derive(Debug)]
pub struct Resolved {
    /// What happens.
    pub outcome: Outcome,
    /// Digest of the policies that matched, also of those that exempt; empty when unready.
    pub policy_set_hash: String,
    /// How it came about.
    pub trace: Trace,
}

/// What the policies come to.
#[derive(Debug, Eq, PartialEq)]
pub enum Outcome {
    /// A person decides, by these rules.
    Approval(Rules),
    /// Nobody is asked: the policy that says so, as `Kind/name` or `Kind/namespace/name`.
    Exempt(String),
    /// It cannot be told, for these reasons. Never allowed.
    Unready(Vec<String>),
}

/// The rules of one request for approval.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Rules {
    /// All that matched, sorted by kind, namespace and name. Those whose approvers are needed carry them, with counts raised.
    pub policies: Vec<PolicyRef>,
    /// Digest of the policies that matched.
    pub policy_set_hash: String,
    /// How often and how long a grant serves: `duration_seconds` is always there, `uses` absent means not counted.
    pub validity: Validity,
    /// What a grant binds.
    pub binding: ResolvedBinding,
    /// Seconds until silence ends the request.
    pub deadline_seconds: i32,
    /// Seconds of cool-down after a denial.
    pub denial_cooldown_seconds: i32,
}

/// Where a policy stands.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd, Serialize)]
pub enum Level {
    /// For the whole cluster: the floor.
    Cluster,
    /// For one namespace.
    Namespace,
    /// What decides where nothing matches.
    Default,
}

/// A policy that matches an attempt.
#[derive(Clone, Copy, Debug)]
pub struct Matched<'p> {
    /// The policy.
    pub policy: &'p Policy,
    /// How closely it names the attempt, if every condition of it holds.
    pub specificity: Specificity,
    /// How closely it does whatever the conditions come to that could not be evaluated; `None`: it may not match at all.
    pub certain: Option<Specificity>,
    /// Where it stands.
    pub level: Level,
}

/// What one level comes to.
enum Word<'p> {
    Nothing,
    Ask(Vec<Matched<'p>>),
    Exempt(Matched<'p>),
}

impl Policies {
    /// Sorts compiled policies by where they can match.
    pub fn new(policies: impl IntoIterator<Item = Policy>) -> Self {
        Self::shared(policies.into_iter().map(Arc::new))
    }

    /// The same of policies that were compiled before.
    pub fn shared(policies: impl IntoIterator<Item = Arc<Policy>>) -> Self {
        let mut index = Self::default();
        for policy in policies {
            match &policy.name.namespace {
                Some(namespace) => index
                    .by_namespace
                    .entry(namespace.clone())
                    .or_default()
                    .push(policy),
                None if policy.name.name == DEFAULT_POLICY => index.default = Some(policy),
                None => index.cluster.push(policy),
            }
        }
        index
    }

    /// Every policy, in no order.
    pub fn iter(&self) -> impl Iterator<Item = &Policy> {
        self.default
            .iter()
            .chain(&self.cluster)
            .chain(self.by_namespace.values().flatten())
            .map(AsRef::as_ref)
    }

    /// The policy of a name.
    pub fn get(&self, name: &PolicyName) -> Option<&Policy> {
        let bucket = match &name.namespace {
            Some(namespace) => self
                .by_namespace
                .get(namespace)
                .map(Vec::as_slice)
                .unwrap_or_default(),
            None => &self.cluster,
        };
        self.default
            .iter()
            .chain(bucket)
            .map(AsRef::as_ref)
            .find(|policy| policy.name == *name)
    }

    /// Those that can match a target in this namespace.
    fn candidates(&self, namespace: Option<&str>) -> impl Iterator<Item = &Policy> {
        let bucket = namespace.and_then(|namespace| self.by_namespace.get(namespace));
        let all = self.cluster.iter().chain(bucket.into_iter().flatten());
        all.map(AsRef::as_ref)
    }
}

/// Resolves what the policies come to for an attempt.
pub fn resolve(policies: &Policies, situation: &Situation<'_>) -> Resolved {
    let mut trace = Trace::default();
    match decide(policies, situation, &mut trace) {
        Ok((outcome, policy_set_hash)) => Resolved {
            outcome,
            policy_set_hash,
            trace,
        },
        Err(reasons) => {
            for words in &reasons {
                trace.push(Step::Unreadable {
                    words: words.clone(),
                });
            }
            Resolved {
                outcome: Outcome::Unready(reasons),
                policy_set_hash: String::new(),
                trace,
            }
        }
    }
}

fn decide(
    policies: &Policies,
    situation: &Situation<'_>,
    trace: &mut Trace,
) -> Result<(Outcome, String), Vec<String>> {
    if situation.operation == Operation::Unknown {
        return Err(vec!["this version does not know the operation".to_owned()]);
    }
    let mut matched = matching(policies, situation, trace)?;
    if matched.iter().all(|one| one.certain.is_none()) {
        let words = if matched.is_empty() {
            format!("no policy matches: {DEFAULT_POLICY} decides")
        } else {
            format!("no policy matches for certain: {DEFAULT_POLICY} decides besides")
        };
        matched.push(default_policy(policies)?);
        trace.push(Step::note(words));
    }
    matched.sort_by(|a, b| a.policy.name.cmp(&b.policy.name));
    let winners = match word_of_all(&matched, policies, trace)? {
        Decided::Exempt(name) => {
            return Ok((
                Outcome::Exempt(name.to_string()),
                set_hash(&matched, situation.operation),
            ));
        }
        Decided::Ask(winners) => winners,
    };
    let policy_set_hash = set_hash(&matched, situation.operation);
    let rules = strictest::rules(
        &matched,
        &winners,
        situation.operation,
        policy_set_hash.clone(),
        trace,
    );
    Ok((Outcome::Approval(rules), policy_set_hash))
}

fn matching<'p>(
    policies: &'p Policies,
    situation: &Situation<'_>,
    trace: &mut Trace,
) -> Result<Vec<Matched<'p>>, Vec<String>> {
    let mut matched = Vec::new();
    let mut unready = Vec::new();
    for policy in policies.candidates(situation.target_namespace()) {
        let (certain, specificity) = match policy.matches(situation, trace) {
            Match::No => continue,
            Match::NamespaceUnknown => {
                unready.push(format!(
                    "{}: the labels of the namespace are not known here yet",
                    policy.name
                ));
                continue;
            }
            Match::Yes(specificity) => (Some(specificity), specificity),
            Match::InDoubt { certain, possible } => (certain, possible),
        };
        if let Some(problem) = policy.problems.first() {
            unready.push(format!("{} cannot be used: {problem}", policy.name));
            continue;
        }
        let level = if policy.name.namespace.is_some() {
            Level::Namespace
        } else {
            Level::Cluster
        };
        trace.push(Step::PolicyMatched {
            policy: policy.name.clone(),
            level,
            specificity,
            effect: policy.effect,
        });
        matched.push(Matched {
            policy,
            specificity,
            certain,
            level,
        });
    }
    unready.sort();
    if unready.is_empty() {
        Ok(matched)
    } else {
        Err(unready)
    }
}

fn default_policy(policies: &Policies) -> Result<Matched<'_>, Vec<String>> {
    let Some(policy) = &policies.default else {
        return Err(vec![format!(
            "{} is missing",
            PolicyName::cluster(DEFAULT_POLICY)
        )]);
    };
    // Its selectors are not looked at, so what is wrong with them does not matter here.
    match policy.problems.iter().find(|problem| {
        !problem.path.starts_with("spec.targets") && !problem.path.starts_with("spec.agents")
    }) {
        Some(problem) => Err(vec![format!("{} cannot be used: {problem}", policy.name)]),
        None => Ok(Matched {
            policy,
            specificity: Specificity::All,
            certain: Some(Specificity::All),
            level: Level::Default,
        }),
    }
}

enum Decided<'p> {
    Ask(Vec<Matched<'p>>),
    Exempt(&'p PolicyName),
}

impl Decided<'_> {
    fn by_name(mut self) -> Self {
        if let Self::Ask(winners) = &mut self {
            winners.sort_by(|a, b| a.policy.name.cmp(&b.policy.name));
        }
        self
    }
}

/// Level first: see the head of this file.
fn word_of_all<'p>(
    matched: &[Matched<'p>],
    policies: &'p Policies,
    trace: &mut Trace,
) -> Result<Decided<'p>, Vec<String>> {
    let of = |level| {
        matched
            .iter()
            .copied()
            .filter(move |one: &Matched<'p>| one.level == level)
    };
    let default = word(of(Level::Default), trace);
    if !matches!(default, Word::Nothing) {
        // What stands beside the default policy is in doubt: it asks, or does not match.
        let others = matched
            .iter()
            .copied()
            .filter(|one| one.level != Level::Default);
        return Ok(finish(word(others, trace), default, trace).by_name());
    }
    let namespaced = word(of(Level::Namespace), trace);
    let cluster = word(of(Level::Cluster), trace);
    if let (Word::Ask(_), Word::Exempt(exemption)) = (&cluster, &namespaced) {
        let may = of(Level::Cluster)
            .filter(asks)
            .all(|one| one.policy.namespace_may_exempt);
        if may {
            trace.push(won(
                exemption,
                "every matching cluster policy that asks lets namespaces exempt",
            ));
            return Ok(Decided::Exempt(&exemption.policy.name));
        }
        trace.push(lost(
            exemption,
            "a cluster policy asks, and not every one that does lets namespaces exempt",
        ));
        return Ok(finish(cluster, Word::Nothing, trace));
    }
    if matches!((&cluster, &namespaced), (Word::Nothing, Word::Nothing)) {
        // Cannot be: something matched. Kept total all the same.
        let default = default_policy(policies)?;
        return Ok(Decided::Ask(vec![default]));
    }
    Ok(finish(cluster, namespaced, trace))
}

fn finish<'p>(upper: Word<'p>, lower: Word<'p>, trace: &mut Trace) -> Decided<'p> {
    let winners: Vec<Matched<'p>> = match (upper, lower) {
        (Word::Ask(upper), Word::Ask(lower)) => upper.into_iter().chain(lower).collect(),
        (Word::Ask(asking), _) => asking,
        (Word::Exempt(exemption), Word::Ask(asking)) => {
            trace.push(lost(&exemption, "a namespaced policy asks besides"));
            asking
        }
        (Word::Nothing, Word::Ask(asking)) => asking,
        (Word::Exempt(exemption), _) | (Word::Nothing, Word::Exempt(exemption)) => {
            trace.push(won(
                &exemption,
                "it exempts, and nothing of its rank or above asks",
            ));
            return Decided::Exempt(&exemption.policy.name);
        }
        (Word::Nothing, Word::Nothing) => Vec::new(),
    };
    for winner in &winners {
        trace.push(won(
            winner,
            "it asks, and nothing in its level names the action more closely",
        ));
    }
    Decided::Ask(winners)
}

/// Specificity within one level.
fn word<'p>(matched: impl Iterator<Item = Matched<'p>>, trace: &mut Trace) -> Word<'p> {
    let matched: Vec<Matched<'p>> = matched.collect();
    if matched.is_empty() {
        return Word::Nothing;
    }
    // Of what is in doubt, everything that would win may win, and whatever wins without it is needed too: `None` is below all.
    let rank = matched.iter().filter_map(|one| one.certain).max();
    let (closest, others): (Vec<_>, Vec<_>) = matched
        .into_iter()
        .partition(|one| one.certain == rank || Some(one.specificity) >= rank);
    for other in &others {
        trace.push(lost(
            other,
            &format!(
                "a policy of its level names the action more closely{}",
                rank.map(|rank| format!(" ({rank})")).unwrap_or_default()
            ),
        ));
    }
    let (asking, exempting): (Vec<_>, Vec<_>) = closest.into_iter().partition(asks);
    match exempting.first() {
        Some(exemption) if asking.is_empty() => Word::Exempt(*exemption),
        _ => {
            for exemption in &exempting {
                trace.push(lost(exemption, "a policy of the same rank asks"));
            }
            Word::Ask(asking)
        }
    }
}

/// Whether a policy asks. An effect that this version does not know asks.
pub fn asks(matched: &Matched<'_>) -> bool {
    matched.policy.effect != Effect::Exempt
}

fn won(matched: &Matched<'_>, because: &str) -> Step {
    Step::Won {
        policy: matched.policy.name.clone(),
        because: because.to_owned(),
    }
}

fn lost(matched: &Matched<'_>, because: &str) -> Step {
    Step::Lost {
        policy: matched.policy.name.clone(),
        because: because.to_owned(),
    }
}

/// Covers the names of all that matched, and what each resolves to. The input is sorted.
fn set_hash(matched: &[Matched<'_>], operation: Operation) -> String {
    let entries = matched.iter().map(|one| {
        (
            one.policy.name.to_string(),
            canonical::string(&one.policy.hash(operation, one.specificity)),
        )
    });
    let entries: Vec<(String, String)> = entries.collect();
    canonical::digest(&canonical::object(
        entries
            .iter()
            .map(|(name, hash)| (name.as_str(), hash.clone())),
    ))
}

impl fmt::Display for Level {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Cluster => "cluster",
            Self::Namespace => "namespace",
            Self::Default => "default",
        })
    }
}

#[cfg(test)]
mod in_doubt;
#[cfg(test)]
mod properties;
#[cfg(test)]
mod tests;
