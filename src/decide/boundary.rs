//! Whether the policies still say of a stored request what they said when it was filed, without the object that was reviewed.
//!
//! The webhook compares exactly, with the object in hand. Whoever has only the record can tell which policies *select* the action
//! (agent, operation, resource, name, namespace labels), not whether a `when` holds. So a rule with `when` counts as matching once it
//! changed or newly selects; one that did neither is taken to hold or not to hold as it did when the request was filed.

use std::collections::BTreeSet;

use jiff::Timestamp;
use kube::api::ObjectMeta;

use super::{
    live::StaleReason,
    policy::{Match, Policy, PolicyName},
    record::whole_seconds,
    resolve::DEFAULT_POLICY,
    review::is_namespace,
    select::{Situation, Specificity},
    trace::Trace,
};
use crate::api::{
    Action, ApprovalPolicy, ClusterApprovalPolicy, Operation, PolicyBody, PolicyRef,
    approval_policy::Target,
};

/// Every policy, compiled without its conditions.
#[derive(Debug, Default)]
pub struct Rulebook {
    rules: Vec<Rule>,
}

/// One policy.
#[derive(Debug)]
struct Rule {
    /// As if every `when` held.
    selecting: Policy,
    /// Only the targets that have no `when`; absent where each has one.
    certain: Option<Policy>,
    /// The policy as written has problems, its conditions included.
    unusable: bool,
    /// Nothing of it can be read, so it cannot be compared with anything.
    unreadable: bool,
    /// When its spec changed last.
    changed_at: Timestamp,
}

/// What a look at the policies comes to.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Boundary {
    /// They say the same.
    Same,
    /// They do not.
    Crossed {
        /// Why a grant is stale.
        reason: StaleReason,
        /// In words.
        words: String,
    },
    /// It cannot be told here: nothing is marked because of it.
    CannotTell(Doubt),
}

/// Why something cannot be told.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Doubt {
    /// In words.
    pub words: String,
    /// As long as it lasts the webhook lets nothing through, so nothing void is used meanwhile.
    pub refused: bool,
}

/// The stored action of a request, and what is known of its surroundings.
#[derive(Clone, Copy, Debug)]
pub struct Stored<'a> {
    /// What is to be done.
    pub action: &'a Action,
    /// Whether it destroys, as it was found when it was filed.
    pub destructive: bool,
    /// Username of the requester.
    pub username: &'a str,
    /// Name of the AgentIdentity.
    pub agent_name: &'a str,
    /// Labels of the AgentIdentity.
    pub agent_labels: &'a std::collections::BTreeMap<String, String>,
    /// Labels of the namespace; `None` where they are not known.
    pub namespace_labels: Option<&'a std::collections::BTreeMap<String, String>>,
}

impl<'a> Stored<'a> {
    /// The situation as selectors see it. Conditions see no object.
    pub fn situation(&self) -> Situation<'a> {
        let action = self.action;
        Situation {
            agent_name: self.agent_name,
            agent_labels: self.agent_labels,
            operation: action.operation,
            group: &action.group,
            resource: &action.resource,
            subresource: action.subresource.as_deref(),
            namespace: reviewed_namespace(action),
            namespace_labels: self.namespace_labels,
            // A generated name was none that a policy names, or the grant would not serve it; its prefix is none either.
            name: action
                .name
                .as_deref()
                .or(action.generate_name.as_deref())
                .unwrap_or_default(),
            destructive: self.destructive,
            object: None,
            old_object: None,
            username: self.username,
            groups: &[],
        }
    }
}

/// The namespace that a review of this action names: for a Namespace object its own name.
pub fn reviewed_namespace(action: &Action) -> Option<&str> {
    if is_namespace(&action.group, &action.resource) {
        action.name.as_deref()
    } else {
        action.namespace.as_deref()
    }
}

impl Rulebook {
    /// Compiles every policy. Those that cannot be used are kept: what they select cannot be told.
    pub fn new<'p>(
        cluster: impl IntoIterator<Item = &'p ClusterApprovalPolicy>,
        namespaced: impl IntoIterator<Item = &'p ApprovalPolicy>,
    ) -> Self {
        let mut rules = Vec::new();
        for policy in cluster {
            let compile = |keep: fn(&Target) -> bool| {
                let mut policy = policy.clone();
                without_conditions(&mut policy.spec.body, keep)
                    .then(|| Policy::compile_cluster(&policy))
            };
            let whole = Policy::compile_cluster(policy);
            rules.extend(rule(compile, &whole, &policy.metadata));
        }
        for policy in namespaced {
            let compile = |keep: fn(&Target) -> bool| {
                let mut policy = policy.clone();
                without_conditions(&mut policy.spec.body, keep).then(|| Policy::compile(&policy))
            };
            let whole = Policy::compile(policy);
            rules.extend(rule(compile, &whole, &policy.metadata));
        }
        Self { rules }
    }

    /// Adds policies of which nothing can be read: they are a doubt on everything in their reach.
    #[must_use]
    pub fn with_unreadable<'p>(
        mut self,
        unreadable: impl IntoIterator<Item = (&'p PolicyName, &'p str)>,
    ) -> Self {
        let rules = unreadable.into_iter().map(|(name, why)| Rule {
            selecting: Policy::unreadable(name.clone(), why),
            certain: None,
            unusable: true,
            unreadable: true,
            changed_at: Timestamp::MIN,
        });
        self.rules.extend(rules);
        self
    }

    /// The policies whose selectors match only by targets that have a `when`, by name: what a later look compares with.
    pub fn conditional(&self, situation: &Situation<'_>) -> BTreeSet<String> {
        let selected = self.rules.iter().filter(|rule| {
            !rule.is_default()
                && in_reach(&rule.selecting.name, situation)
                && matches!(rule.selects(situation), Match::Yes(_))
                && !matches!(rule.certainly(situation), Match::Yes(_))
        });
        selected
            .map(|rule| rule.selecting.name.to_string())
            .collect()
    }

    /// Compares with the snapshot of a request that was filed at `filed_at`. `before` is what [`Self::conditional`] said at an earlier
    /// look, `None` at the first.
    pub fn compare(
        &self,
        snapshot: &[PolicyRef],
        situation: &Situation<'_>,
        filed_at: Timestamp,
        before: Option<&BTreeSet<String>>,
    ) -> Boundary {
        let mut doubt = None;
        for known in snapshot {
            match self.against(known, situation) {
                Boundary::Same => {}
                Boundary::CannotTell(why) => doubt = graver(doubt, why),
                crossed @ Boundary::Crossed { .. } => return crossed,
            }
        }
        for rule in &self.rules {
            let name = &rule.selecting.name;
            let named = snapshot.iter().any(|known| is(known, name));
            if named || rule.is_default() || !in_reach(name, situation) {
                continue;
            }
            match rule.selects(situation) {
                Match::No => continue,
                Match::NamespaceUnknown => {
                    doubt = graver(doubt, labels_unknown(name));
                    continue;
                }
                Match::Yes(_) | Match::InDoubt { .. } => {}
            }
            // What an unusable policy selects is Unready at its use, and serves again once it is repaired.
            if rule.unusable {
                doubt = graver(doubt, unusable(name));
                continue;
            }
            let certain = matches!(rule.certainly(situation), Match::Yes(_));
            let newly = before.is_some_and(|before| !before.contains(&name.to_string()));
            if certain || newly || rule.changed_at >= whole_seconds(filed_at) {
                return Boundary::Crossed {
                    reason: StaleReason::BoundaryCrossed,
                    words: format!("{name} began to match"),
                };
            }
        }
        doubt.map_or(Boundary::Same, Boundary::CannotTell)
    }

    fn against(&self, known: &PolicyRef, situation: &Situation<'_>) -> Boundary {
        let crossed = |reason, words: String| Boundary::Crossed { reason, words };
        let Some(rule) = self
            .rules
            .iter()
            .find(|rule| is(known, &rule.selecting.name))
        else {
            let name = super::quorum::policy_label(known);
            return crossed(
                StaleReason::BoundaryCrossed,
                format!("{name} was taken away"),
            );
        };
        let policy = &rule.selecting;
        let name = &policy.name;
        if rule.unreadable {
            return Boundary::CannotTell(unusable(name));
        }
        let same_object = policy.uid == known.uid;
        if same_object && policy.generation < known.generation {
            return Boundary::CannotTell(Doubt {
                words: format!("{name} is older here than in the request"),
                refused: false,
            });
        }
        let unchanged = same_object && policy.generation == known.generation;
        if rule.is_default() {
            return if unchanged || policy.hash(situation.operation, Specificity::All) == known.hash
            {
                Boundary::Same
            } else {
                crossed(StaleReason::PolicyChanged, format!("{name} changed"))
            };
        }
        let specificity = match rule.selects(situation) {
            Match::NamespaceUnknown => {
                return Boundary::CannotTell(labels_unknown(name));
            }
            Match::No => {
                return crossed(
                    StaleReason::BoundaryCrossed,
                    format!("{name} ceased to match"),
                );
            }
            // Conditions were taken away, so nothing is in doubt.
            Match::Yes(specificity)
            | Match::InDoubt {
                possible: specificity,
                ..
            } => specificity,
        };
        if unchanged {
            return Boundary::Same;
        }
        if rule.unusable {
            return Boundary::CannotTell(unusable(name));
        }
        if rule.certainly(situation) != Match::Yes(specificity) {
            return crossed(
                StaleReason::BoundaryCrossed,
                format!(
                    "{name} changed, and whether its condition holds is not known without the object"
                ),
            );
        }
        if policy.hash(situation.operation, specificity) == known.hash {
            Boundary::Same
        } else {
            crossed(StaleReason::PolicyChanged, format!("{name} changed"))
        }
    }
}

/// A doubt during which something void could be used outweighs others.
fn graver(known: Option<Doubt>, other: Doubt) -> Option<Doubt> {
    match known {
        Some(known) if !known.refused || other.refused => Some(known),
        _ => Some(other),
    }
}

fn labels_unknown(name: &PolicyName) -> Doubt {
    Doubt {
        words: format!("{name}: the namespace's labels are not known here"),
        refused: false,
    }
}

fn unusable(name: &PolicyName) -> Doubt {
    Doubt {
        words: format!("{name} cannot be used"),
        refused: true,
    }
}

impl Rule {
    fn is_default(&self) -> bool {
        self.selecting.name.namespace.is_none() && self.selecting.name.name == DEFAULT_POLICY
    }

    fn selects(&self, situation: &Situation<'_>) -> Match {
        self.selecting.matches(situation, &mut Trace::default())
    }

    fn certainly(&self, situation: &Situation<'_>) -> Match {
        self.certain.as_ref().map_or(Match::No, |policy| {
            policy.matches(situation, &mut Trace::default())
        })
    }
}

fn rule(
    compile: impl Fn(fn(&Target) -> bool) -> Option<Policy>,
    whole: &Policy,
    metadata: &ObjectMeta,
) -> Option<Rule> {
    let unconditional = |target: &Target| {
        target
            .kubernetes
            .as_ref()
            .is_none_or(|kubernetes| kubernetes.when.is_none())
    };
    Some(Rule {
        selecting: compile(|_| true)?,
        certain: compile(unconditional),
        unusable: !whole.problems.is_empty(),
        unreadable: false,
        changed_at: changed_at(metadata),
    })
}

/// Takes the conditions away and keeps some targets. Says whether any target is left.
fn without_conditions(body: &mut PolicyBody, keep: fn(&Target) -> bool) -> bool {
    let had_any = !body.targets.is_empty();
    body.targets.retain(keep);
    for target in &mut body.targets {
        if let Some(kubernetes) = &mut target.kubernetes {
            kubernetes.when = None;
        }
    }
    !body.targets.is_empty() || !had_any
}

/// When a spec changed last, as far as the server's own bookkeeping says.
fn changed_at(metadata: &ObjectMeta) -> Timestamp {
    let written = metadata
        .managed_fields
        .iter()
        .flatten()
        .filter(|entry| entry.subresource.as_deref().is_none_or(str::is_empty))
        .filter_map(|entry| entry.time.as_ref().map(|time| time.0));
    let created = metadata.creation_timestamp.as_ref().map(|time| time.0);
    written.chain(created).max().unwrap_or(Timestamp::MIN)
}

fn is(known: &PolicyRef, name: &PolicyName) -> bool {
    known.kind == name.kind.as_str() && known.namespace == name.namespace && known.name == name.name
}

/// A namespaced policy reaches its own namespace only.
fn in_reach(name: &PolicyName, situation: &Situation<'_>) -> bool {
    name.namespace
        .as_deref()
        .is_none_or(|namespace| situation.target_namespace() == Some(namespace))
}

/// Whether the stored facts of a request say that it destroys.
pub fn is_destructive(operation: Operation, facts: &[crate::api::approval_request::Fact]) -> bool {
    operation == Operation::Delete || facts.iter().any(|fact| fact.kind == "Destructive")
}

#[cfg(test)]
mod tests;
