//! Predicates: which actions, targets and agents a rule, a selector or a target names.
//!
//! Rules have the semantics of Kubernetes' own webhook rules. What cannot be read is reported and *widens* the predicate, so
//! that a policy nobody can read covers too much rather than too little.

use std::{collections::BTreeMap, fmt};

use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
use serde::Serialize;

use super::{
    condition::{Facts, RequestFacts},
    json::Value,
    policy::Problem,
    review::is_namespace,
};
use crate::api::{Operation, tool_server::OperationSelector};

/// One attempt, as predicates and conditions see it.
#[derive(Clone, Copy)]
pub struct Situation<'a> {
    /// Name of the AgentIdentity that attempts it.
    pub agent_name: &'a str,
    /// Labels of that AgentIdentity.
    pub agent_labels: &'a BTreeMap<String, String>,
    /// What is done.
    pub operation: Operation,
    /// API group; empty for the core group.
    pub group: &'a str,
    /// Plural resource.
    pub resource: &'a str,
    /// Subresource; `None` for the main resource.
    pub subresource: Option<&'a str>,
    /// `namespace` of the AdmissionReview. For a Namespace object that is its own name; see [`Situation::target_namespace`].
    pub namespace: Option<&'a str>,
    /// Labels of that namespace; `None` where they are not known.
    pub namespace_labels: Option<&'a BTreeMap<String, String>>,
    /// Name of the target; empty where it is not known yet.
    pub name: &'a str,
    /// Whether the change destroys: DELETE, eviction, collection, finalizers, owner references.
    pub destructive: bool,
    /// The object as it would be stored.
    pub object: Option<Value<'a>>,
    /// The object as it is stored.
    pub old_object: Option<Value<'a>>,
    /// Username of the requester.
    pub username: &'a str,
    /// Groups of the requester.
    pub groups: &'a [&'a str],
}

/// How closely a target names an action.
#[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd, Serialize)]
pub enum Specificity {
    /// By a wildcard, or by `scope: All`.
    All,
    /// By `scope: Destructive`.
    Destructive,
    /// By group, resource and operation without a wildcard.
    Named,
}

/// A compiled rule: API groups, resources and operations.
#[derive(Clone, Debug)]
pub struct RulePredicate {
    groups: Vec<String>,
    resources: Vec<ResourcePattern>,
    operations: Vec<OperationSelector>,
}

#[derive(Clone, Debug)]
struct ResourcePattern {
    resource: String,
    subresource: Option<String>,
}

/// A compiled label selector; absent and empty selectors match everything.
#[derive(Clone, Debug, Default)]
pub struct LabelPredicate {
    requirements: Vec<Requirement>,
}

#[derive(Clone, Debug)]
enum Requirement {
    In(String, Vec<String>),
    NotIn(String, Vec<String>),
    Exists(String),
    DoesNotExist(String),
}

/// Compiled agents: both parts must match, an absent part matches all.
#[derive(Clone, Debug, Default)]
pub struct AgentPredicate {
    names: Vec<String>,
    labels: LabelPredicate,
}

impl<'a> Situation<'a> {
    /// The namespace that the target lives in. A Namespace object lives in none, although its review names one.
    pub fn target_namespace(&self) -> Option<&'a str> {
        self.namespace
            .filter(|namespace| !is_namespace(self.group, self.resource) && !namespace.is_empty())
    }

    /// Whether some change of this kind destroys: a deletion, an eviction, and an update of an object's finalizers or owners.
    pub fn could_destroy(&self) -> bool {
        let whole = matches!(self.subresource, None | Some("" | "*"));
        match self.operation {
            Operation::Update => whole || self.subresource == Some("status"),
            Operation::Create => matches!(self.subresource, Some("eviction" | "*")),
            Operation::Delete | Operation::Unknown => true,
            Operation::Connect => false,
        }
    }

    /// What conditions are evaluated over.
    pub fn facts(&self) -> Facts<'a> {
        Facts {
            object: self.object,
            old_object: self.old_object,
            request: RequestFacts {
                operation: self.operation,
                group: self.group,
                resource: self.resource,
                subresource: self.subresource,
                namespace: self.namespace,
                name: self.name,
                username: self.username,
                groups: self.groups,
                agent: self.agent_name,
            },
        }
    }
}

impl RulePredicate {
    /// Compiles a rule; every problem is reported under `path`.
    pub fn compile(
        groups: &[String],
        resources: &[String],
        operations: &[OperationSelector],
        path: &str,
        problems: &mut Vec<Problem>,
    ) -> Self {
        let mut rule = Self {
            groups: groups.to_vec(),
            resources: Vec::new(),
            operations: operations.to_vec(),
        };
        if groups.is_empty() {
            problems.push(Problem::new(
                format!("{path}.apiGroups"),
                "name at least one group: \"\" is the core group, * is all",
            ));
            rule.groups.push("*".to_owned());
        }
        if resources.is_empty() {
            problems.push(Problem::new(
                format!("{path}.resources"),
                "name at least one resource, or */*",
            ));
            rule.resources.push(ResourcePattern::everything());
        }
        for (n, text) in resources.iter().enumerate() {
            rule.resources
                .push(ResourcePattern::read(text).unwrap_or_else(|words| {
                    problems.push(Problem::new(format!("{path}.resources[{n}]"), words));
                    ResourcePattern::everything()
                }));
        }
        if operations.is_empty() {
            problems.push(Problem::new(
                format!("{path}.operations"),
                "name at least one operation, or *",
            ));
            rule.operations.push(OperationSelector::All);
        }
        for (n, operation) in operations.iter().enumerate() {
            if *operation == OperationSelector::Unknown {
                problems.push(Problem::new(format!("{path}.operations[{n}]"), "this version does not know the operation: use CREATE, UPDATE, DELETE, CONNECT or *"));
                rule.operations.push(OperationSelector::All);
            }
        }
        rule
    }

    /// How closely the rule names the action; `None` where it does not.
    pub fn matches(&self, situation: &Situation<'_>) -> Option<Specificity> {
        let group = best(
            self.groups
                .iter()
                .filter_map(|group| literal_or_any(group, situation.group)),
        )?;
        let operation = best(self.operations.iter().filter_map(|operation| {
            operation
                .covers(situation.operation)
                .then_some(*operation != OperationSelector::All)
        }))?;
        let resource = best(
            self.resources
                .iter()
                .filter_map(|pattern| pattern.matches(situation)),
        )?;
        Some(if group && operation && resource {
            Specificity::Named
        } else {
            Specificity::All
        })
    }

    /// Whether the rule may name an action whose own words may be `*` for any.
    pub fn could_name(&self, situation: &Situation<'_>) -> bool {
        let could = |pattern: &str, word: &str| pattern == "*" || word == "*" || pattern == word;
        let group = self
            .groups
            .iter()
            .any(|group| could(group, situation.group));
        let operation = self
            .operations
            .iter()
            .any(|operation| operation.covers(situation.operation));
        let resource = self.resources.iter().any(|pattern| {
            let subresource = situation.subresource.unwrap_or_default();
            let below = match pattern.subresource.as_deref() {
                None => matches!(subresource, "" | "*"),
                Some("*") => true,
                Some(named) => subresource == "*" || subresource == named,
            };
            below && could(&pattern.resource, situation.resource)
        });
        group && operation && resource
    }

    /// Whether the rule names nothing but objects of core kind Namespace.
    pub fn names_only_namespaces(&self) -> bool {
        self.groups.iter().all(String::is_empty)
            && self
                .resources
                .iter()
                .all(|pattern| pattern.resource == "namespaces")
    }
}

impl ResourcePattern {
    fn everything() -> Self {
        Self {
            resource: "*".to_owned(),
            subresource: Some("*".to_owned()),
        }
    }

    fn read(text: &str) -> Result<Self, &'static str> {
        let mut parts = text.split('/');
        match (parts.next(), parts.next(), parts.next()) {
            (Some(resource), None, None) if !resource.is_empty() => Ok(Self {
                resource: resource.to_owned(),
                subresource: None,
            }),
            (Some(resource), Some(subresource), None)
                if !resource.is_empty() && !subresource.is_empty() =>
            {
                Ok(Self {
                    resource: resource.to_owned(),
                    subresource: Some(subresource.to_owned()),
                })
            }
            _ => Err(
                "not readable: write resource, resource/subresource, resource/*, */subresource, * or */*",
            ),
        }
    }

    /// As in webhook rules: a bare `*` covers no subresource, and `/*` covers the main resource too. Says whether the
    /// resource part is named.
    fn matches(&self, situation: &Situation<'_>) -> Option<bool> {
        let subresource = match &self.subresource {
            None => situation.subresource.is_none_or(str::is_empty),
            Some(pattern) => pattern == "*" || situation.subresource == Some(pattern.as_str()),
        };
        if subresource {
            literal_or_any(&self.resource, situation.resource)
        } else {
            None
        }
    }
}

/// Whether something matches, and whether anything that does is without a wildcard.
fn best(literal: impl Iterator<Item = bool>) -> Option<bool> {
    literal.fold(None, |best, literal| Some(best.unwrap_or(false) || literal))
}

fn literal_or_any(pattern: &str, word: &str) -> Option<bool> {
    if pattern == "*" {
        Some(false)
    } else {
        (pattern == word).then_some(true)
    }
}

impl LabelPredicate {
    /// Compiles a selector. A requirement that cannot be read is reported under `path` and left out.
    pub fn compile(selector: &LabelSelector, path: &str, problems: &mut Vec<Problem>) -> Self {
        let labels = selector.match_labels.iter().flatten();
        let mut requirements: Vec<Requirement> = labels
            .map(|(key, value)| Requirement::In(key.clone(), vec![value.clone()]))
            .collect();
        for (n, expression) in selector.match_expressions.iter().flatten().enumerate() {
            let at = format!("{path}.matchExpressions[{n}]");
            let key = expression.key.clone();
            let values = expression.values.clone().unwrap_or_default();
            if key.is_empty() {
                problems.push(Problem::new(format!("{at}.key"), "name a label"));
                continue;
            }
            match (expression.operator.as_str(), values.is_empty()) {
                ("In", false) => requirements.push(Requirement::In(key, values)),
                ("NotIn", false) => requirements.push(Requirement::NotIn(key, values)),
                ("Exists", true) => requirements.push(Requirement::Exists(key)),
                ("DoesNotExist", true) => requirements.push(Requirement::DoesNotExist(key)),
                ("In" | "NotIn", true) => problems.push(Problem::new(
                    format!("{at}.values"),
                    "In and NotIn need at least one value",
                )),
                ("Exists" | "DoesNotExist", false) => problems.push(Problem::new(
                    format!("{at}.values"),
                    "Exists and DoesNotExist take no values",
                )),
                _ => problems.push(Problem::new(
                    format!("{at}.operator"),
                    "use In, NotIn, Exists or DoesNotExist",
                )),
            }
        }
        Self { requirements }
    }

    /// Whether the labels match. A label that is absent satisfies `NotIn`.
    pub fn matches(&self, labels: &BTreeMap<String, String>) -> bool {
        self.requirements
            .iter()
            .all(|requirement| match requirement {
                Requirement::In(key, values) => {
                    labels.get(key).is_some_and(|value| values.contains(value))
                }
                Requirement::NotIn(key, values) => {
                    labels.get(key).is_none_or(|value| !values.contains(value))
                }
                Requirement::Exists(key) => labels.contains_key(key),
                Requirement::DoesNotExist(key) => !labels.contains_key(key),
            })
    }

    /// Whether every set of labels matches.
    pub fn is_everything(&self) -> bool {
        self.requirements.is_empty()
    }
}

impl AgentPredicate {
    /// Compiles the names and the selector of agents.
    pub fn compile(
        names: &[String],
        selector: Option<&LabelSelector>,
        path: &str,
        problems: &mut Vec<Problem>,
    ) -> Self {
        let labels = selector.map(|selector| {
            LabelPredicate::compile(selector, &format!("{path}.selector"), problems)
        });
        Self {
            names: names.to_vec(),
            labels: labels.unwrap_or_default(),
        }
    }

    /// Whether the agent matches both parts.
    pub fn matches(&self, situation: &Situation<'_>) -> bool {
        let named =
            self.names.is_empty() || self.names.iter().any(|name| name == situation.agent_name);
        named && self.labels.matches(situation.agent_labels)
    }
}

impl fmt::Display for Specificity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::All => "All",
            Self::Destructive => "Destructive",
            Self::Named => "Named",
        })
    }
}

#[cfg(test)]
mod tests;
