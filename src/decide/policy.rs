//! Policies, compiled: every problem with its field path, and what of the selectors can be read.
//!
//! A policy with problems is kept. What it matches is unready, and whatever in it cannot be read matches too much rather than
//! too little, so that a policy broken by an edit, or written for a newer version, never opens what it guarded.

use std::{collections::BTreeSet, fmt};

use serde::Serialize;

use super::{
    canonical,
    condition::Held,
    select::{AgentPredicate, Situation, Specificity},
    trace::{Step, Trace},
};
use crate::api::{
    ApprovalPolicy, ClusterApprovalPolicy, Operation, PolicyBody,
    approval_decision::Verdict,
    approval_policy::{Approvers, Effect, NamespaceMay, RequesterMay, StateBinding, Volatile},
    reference::Validity,
};

mod check;
mod target;

use target::CompiledTarget;

pub use check::{approver_words, row_holds, row_is_open, subject_words};

/// Uses of a grant where a policy says nothing about validity.
pub const DEFAULT_USES: i32 = 1;
/// Seconds that a grant serves where a policy says nothing about validity.
pub const DEFAULT_DURATION_SECONDS: i32 = 600;
/// Seconds that a grant serves at most.
pub const MAX_DURATION_SECONDS: i32 = 86_400;
/// Seconds after which silence ends a request, where a policy says nothing.
pub const DEFAULT_EXPIRE_SECONDS: i32 = 1_800;
/// Seconds of cool-down after a denial, where a policy says nothing.
pub const DEFAULT_COOLDOWN_SECONDS: i32 = 60;

/// One thing wrong with an object, and what to do.
#[derive(Clone, Debug, Eq, Ord, PartialEq, PartialOrd, Serialize)]
pub struct Problem {
    /// Field path, e.g. `spec.targets[0].kubernetes.when`.
    pub path: String,
    /// What is wrong and what to do.
    pub message: String,
}

/// Which of the two kinds.
#[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd, Serialize)]
pub enum PolicyKind {
    /// Namespaced.
    ApprovalPolicy,
    /// For the whole cluster.
    ClusterApprovalPolicy,
}

/// A policy by name. Written `Kind/name` or `Kind/namespace/name`.
#[derive(Clone, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub struct PolicyName {
    /// Which kind.
    pub kind: PolicyKind,
    /// `None` for cluster policies.
    pub namespace: Option<String>,
    /// Its name.
    pub name: String,
}

/// A compiled policy.
#[derive(Debug)]
pub struct Policy {
    /// Its name.
    pub name: PolicyName,
    /// Uid of the object.
    pub uid: String,
    /// Generation that was compiled.
    pub generation: i64,
    /// What matching means.
    pub effect: Effect,
    /// Who decides, and the limits of what they allow.
    pub terms: Terms,
    /// Whether a namespaced policy may exempt what this one asks for.
    pub namespace_may_exempt: bool,
    /// Everything wrong with it. Not empty: what it matches is unready.
    pub problems: Vec<Problem>,
    targets: Vec<CompiledTarget>,
    agents: AgentPredicate,
}

/// What a policy asks for, with defaults applied.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Terms {
    /// Who decides.
    pub approvers: Approvers,
    /// Uses of a grant; `None`: not counted.
    pub uses: Option<i32>,
    /// Seconds that a grant serves.
    pub duration_seconds: i32,
    /// Seconds until silence ends the request.
    pub expire_seconds: i32,
    /// Seconds of cool-down after a denial.
    pub cooldown_seconds: i32,
    /// How the state is bound; `None`: as the operation says.
    pub state: Option<StateBinding>,
    /// Fields that must be unchanged besides.
    pub state_fields: BTreeSet<String>,
    /// Paths whose new value is free within a shape.
    pub volatile: BTreeSet<Volatile>,
}

/// Whether, and how closely, a policy matches.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Match {
    /// It does not.
    No,
    /// It does.
    Yes(Specificity),
    /// A condition that could not be evaluated decides: it may match as closely as `possible`, and does as closely as `certain`.
    InDoubt {
        /// By a target of which nothing is in doubt.
        certain: Option<Specificity>,
        /// If every such condition holds: closer than `certain`.
        possible: Specificity,
    },
    /// Labels of the namespace are needed and not known.
    NamespaceUnknown,
}

impl Policy {
    /// Compiles a namespaced policy.
    pub fn compile(policy: &ApprovalPolicy) -> Self {
        let name = PolicyName {
            kind: PolicyKind::ApprovalPolicy,
            namespace: Some(policy.metadata.namespace.clone().unwrap_or_default()),
            name: policy.metadata.name.clone().unwrap_or_default(),
        };
        Self::from_body(name, &policy.metadata, &policy.spec.body, &[])
    }

    /// Compiles a cluster policy.
    pub fn compile_cluster(policy: &ClusterApprovalPolicy) -> Self {
        let name = PolicyName::cluster(policy.metadata.name.clone().unwrap_or_default());
        Self::from_body(
            name,
            &policy.metadata,
            &policy.spec.body,
            &policy.spec.namespace_may,
        )
    }

    /// A policy of which nothing can be read: it matches everything in its reach, and what it matches is unready.
    pub fn unreadable(name: PolicyName, why: &str) -> Self {
        Self {
            name,
            uid: String::new(),
            generation: 0,
            effect: Effect::Unknown,
            terms: Terms::default(),
            namespace_may_exempt: false,
            problems: vec![Problem::new("spec", format!("cannot be read: {why}"))],
            targets: vec![CompiledTarget::everything()],
            agents: AgentPredicate::default(),
        }
    }

    fn from_body(
        name: PolicyName,
        metadata: &kube::api::ObjectMeta,
        body: &PolicyBody,
        namespace_may: &[NamespaceMay],
    ) -> Self {
        let mut problems = Vec::new();
        let namespaced = name.kind == PolicyKind::ApprovalPolicy;
        let agents = body
            .agents
            .as_ref()
            .map_or_else(AgentPredicate::default, |agents| {
                AgentPredicate::compile(
                    &agents.names,
                    agents.selector.as_ref(),
                    "spec.agents",
                    &mut problems,
                )
            });
        if body.effect == Effect::Unknown {
            problems.push(Problem::new(
                "spec.effect",
                "this version does not know the effect: use RequireApproval or Exempt",
            ));
        }
        let mut targets: Vec<CompiledTarget> = Vec::new();
        for (n, target) in body.targets.iter().enumerate() {
            let path = format!("spec.targets[{n}]");
            targets.push(match &target.kubernetes {
                Some(kubernetes) => CompiledTarget::compile(
                    kubernetes,
                    &format!("{path}.kubernetes"),
                    namespaced,
                    &mut problems,
                ),
                None => {
                    problems.push(Problem::new(
                        path,
                        "exactly one member is needed, and this version knows `kubernetes`",
                    ));
                    CompiledTarget::everything()
                }
            });
        }
        if targets.is_empty() {
            problems.push(Problem::new("spec.targets", "name at least one target"));
            targets.push(CompiledTarget::everything());
        }
        for (n, may) in namespace_may.iter().enumerate() {
            if *may == NamespaceMay::Unknown {
                problems.push(Problem::new(
                    format!("spec.namespaceMay[{n}]"),
                    "this version does not know the word: use Exempt",
                ));
            }
        }
        let terms = check::terms(body, &mut problems);
        Self {
            name,
            uid: metadata.uid.clone().unwrap_or_default(),
            generation: metadata.generation.unwrap_or_default(),
            effect: body.effect,
            terms,
            namespace_may_exempt: namespace_may.contains(&NamespaceMay::Exempt),
            problems,
            targets,
            agents,
        }
    }

    /// Whether the policy matches an attempt, by its closest target.
    pub fn matches(&self, situation: &Situation<'_>, trace: &mut Trace) -> Match {
        if !self.agents.matches(situation) {
            return Match::No;
        }
        // For a policy that is not plainly an exemption, what is not known counts as matching.
        let asks = self.effect != Effect::Exempt || !self.problems.is_empty();
        let effect = if asks {
            Effect::RequireApproval
        } else {
            Effect::Exempt
        };
        let (mut closest, mut possible) = (None, None);
        let mut namespace_unknown = false;
        for target in &self.targets {
            let Some(specificity) = target.selects(situation, asks) else {
                continue;
            };
            if closest.is_some_and(|closest| closest >= specificity) {
                continue;
            }
            match target.namespace_matches(situation) {
                Some(true) => {}
                Some(false) => continue,
                None => {
                    namespace_unknown = true;
                    continue;
                }
            }
            let held = target.when.as_ref().map_or(Held::Yes, |when| {
                when.holds_for(effect, &situation.facts(), &self.name, trace)
            });
            match held {
                Held::Yes => closest = Some(specificity),
                Held::InDoubt => possible = possible.max(Some(specificity)),
                Held::No => trace.push(Step::ConditionFalse {
                    policy: self.name.clone(),
                    source: target
                        .when
                        .as_ref()
                        .map(|when| when.source().to_owned())
                        .unwrap_or_default(),
                }),
            }
        }
        match (closest, possible) {
            _ if namespace_unknown => Match::NamespaceUnknown,
            (certain, Some(possible)) if certain < Some(possible) => {
                Match::InDoubt { certain, possible }
            }
            (Some(specificity), _) => Match::Yes(specificity),
            (None, _) => Match::No,
        }
    }

    /// Whether the policy may ask for some attempt of this kind, whatever its namespace, name and content. `*` in the situation's group,
    /// resource and subresource stands for any.
    pub fn could_ask(&self, situation: &Situation<'_>) -> bool {
        let asks = self.effect != Effect::Exempt || !self.problems.is_empty();
        asks && self.agents.matches(situation)
            && self
                .targets
                .iter()
                .any(|target| target.could_select(situation))
    }

    /// Digest of what the policy resolves to for this operation and this closeness. Members that equal their default are left
    /// out, so that a default written down, a reordered list, a label or a comment changes nothing; so are targets and
    /// conditions, since a policy that matches differently either still matches or leaves the set.
    pub fn hash(&self, operation: Operation, specificity: Specificity) -> String {
        let text = |text: &str| canonical::string(text);
        let mut members: Vec<(&str, String)> = vec![
            ("kind", text(self.name.kind.as_str())),
            ("name", text(&self.name.name)),
        ];
        if let Some(namespace) = &self.name.namespace {
            members.push(("namespace", text(namespace)));
        }
        if specificity != Specificity::All {
            members.push(("specificity", text(&specificity.to_string())));
        }
        if self.effect == Effect::Exempt {
            members.push(("effect", text("Exempt")));
        } else {
            self.terms.members(operation, &mut members);
        }
        if self.namespace_may_exempt {
            members.push(("namespaceMay", "[\"Exempt\"]".to_owned()));
        }
        canonical::digest(&canonical::object(members))
    }
}

impl Terms {
    /// How the state is bound for an operation.
    pub fn state_for(&self, operation: Operation) -> StateBinding {
        self.state.unwrap_or_else(|| default_state(operation))
    }

    /// Canonical text of every member that differs from its default.
    fn members(&self, operation: Operation, members: &mut Vec<(&'static str, String)>) {
        let mut number = |name, value: i32, default: i32| {
            if value != default {
                members.push((name, value.to_string()));
            }
        };
        number(
            "durationSeconds",
            self.duration_seconds,
            DEFAULT_DURATION_SECONDS,
        );
        number("expireSeconds", self.expire_seconds, DEFAULT_EXPIRE_SECONDS);
        number(
            "denialCooldownSeconds",
            self.cooldown_seconds,
            DEFAULT_COOLDOWN_SECONDS,
        );
        if self.uses != Some(DEFAULT_USES) {
            members.push((
                "uses",
                self.uses
                    .map_or_else(|| "null".to_owned(), |uses| uses.to_string()),
            ));
        }
        if self.state_for(operation) != default_state(operation) {
            members.push(("state", word(&self.state_for(operation))));
        }
        let list = |items: Vec<String>| format!("[{}]", items.join(","));
        if !self.state_fields.is_empty() {
            members.push((
                "stateFields",
                list(
                    self.state_fields
                        .iter()
                        .map(|path| canonical::string(path))
                        .collect(),
                ),
            ));
        }
        if !self.volatile.is_empty() {
            let entry = |volatile: &Volatile| {
                canonical::object([
                    ("path", canonical::string(&volatile.path)),
                    ("shape", word(&volatile.shape)),
                ])
            };
            members.push(("volatile", list(self.volatile.iter().map(entry).collect())));
        }
        if self.approvers.requester == Some(RequesterMay::Allowed) {
            members.push(("requester", "\"Allowed\"".to_owned()));
        }
        let reasons: BTreeSet<String> = self.approvers.require_reason.iter().map(word).collect();
        if !reasons.is_empty() {
            members.push(("requireReason", list(reasons.into_iter().collect())));
        }
        let rows: BTreeSet<String> = self
            .approvers
            .required
            .iter()
            .map(|row| {
                let from: BTreeSet<String> = row
                    .from
                    .iter()
                    .map(|subject| canonical::string(&check::subject_words(subject)))
                    .collect();
                canonical::object([
                    ("count", row.count.to_string()),
                    ("from", list(from.into_iter().collect())),
                ])
            })
            .collect();
        members.push(("required", list(rows.into_iter().collect())));
    }
}

/// A word of the API as canonical text.
fn word(of: &impl Serialize) -> String {
    serde_json::to_string(of).unwrap_or_default()
}

/// Where no policy says how the state is bound.
pub fn default_state(operation: Operation) -> StateBinding {
    match operation {
        Operation::Update => StateBinding::TouchedFields,
        Operation::Delete => StateBinding::Identity,
        Operation::Create | Operation::Connect | Operation::Unknown => StateBinding::WholeObject,
    }
}

impl Problem {
    /// A problem at a path.
    pub fn new(path: impl Into<String>, message: impl Into<String>) -> Self {
        Self {
            path: path.into(),
            message: message.into(),
        }
    }
}

impl PolicyKind {
    /// The kind's word.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::ApprovalPolicy => "ApprovalPolicy",
            Self::ClusterApprovalPolicy => "ClusterApprovalPolicy",
        }
    }
}

impl PolicyName {
    /// The policy that a record names.
    pub fn of(recorded: &crate::api::PolicyRef) -> Self {
        Self {
            kind: match recorded.namespace {
                Some(_) => PolicyKind::ApprovalPolicy,
                None => PolicyKind::ClusterApprovalPolicy,
            },
            namespace: recorded.namespace.clone(),
            name: recorded.name.clone(),
        }
    }

    /// A namespaced policy's name.
    pub fn namespaced(namespace: impl Into<String>, name: impl Into<String>) -> Self {
        Self {
            kind: PolicyKind::ApprovalPolicy,
            namespace: Some(namespace.into()),
            name: name.into(),
        }
    }

    /// A cluster policy's name.
    pub fn cluster(name: impl Into<String>) -> Self {
        Self {
            kind: PolicyKind::ClusterApprovalPolicy,
            namespace: None,
            name: name.into(),
        }
    }
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.path, self.message)
    }
}

impl fmt::Display for PolicyName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.namespace {
            Some(namespace) => write!(f, "{}/{namespace}/{}", self.kind.as_str(), self.name),
            None => write!(f, "{}/{}", self.kind.as_str(), self.name),
        }
    }
}

impl Serialize for PolicyName {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

#[cfg(test)]
mod tests;
