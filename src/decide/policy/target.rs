//! One target of a policy: rules or a scope, narrowed by namespace, names and a condition.

use super::Problem;
use crate::{
    api::approval_policy::{KubernetesTarget, Scope},
    decide::{
        condition::Condition,
        select::{LabelPredicate, RulePredicate, Situation, Specificity},
    },
};

/// One compiled target.
#[derive(Debug)]
pub struct CompiledTarget {
    selects: Selects,
    namespaces: Option<LabelPredicate>,
    names: Vec<String>,
    /// The condition, if there is one that can be read.
    pub when: Option<Condition>,
}

#[derive(Debug)]
enum Selects {
    Rules(Vec<RulePredicate>),
    Scope(Specificity),
}

impl CompiledTarget {
    /// Matches everything: where nothing can be read.
    pub fn everything() -> Self {
        Self {
            selects: Selects::Scope(Specificity::All),
            namespaces: None,
            names: Vec::new(),
            when: None,
        }
    }

    /// Compiles a target; every problem is reported under `path`, and what cannot be read widens.
    pub fn compile(
        target: &KubernetesTarget,
        path: &str,
        namespaced: bool,
        problems: &mut Vec<Problem>,
    ) -> Self {
        let selects = match (target.scope, target.rules.as_slice()) {
            (Some(Scope::Destructive), []) => Selects::Scope(Specificity::Destructive),
            (Some(Scope::All), []) => Selects::Scope(Specificity::All),
            (Some(Scope::Unknown), []) => {
                problems.push(Problem::new(
                    format!("{path}.scope"),
                    "this version does not know the scope: use Destructive or All",
                ));
                Selects::Scope(Specificity::All)
            }
            (Some(_), _) => {
                problems.push(Problem::new(
                    path,
                    "`rules` and `scope` exclude each other: keep one of them",
                ));
                Selects::Scope(Specificity::All)
            }
            (None, []) => {
                problems.push(Problem::new(path, "say `rules` or `scope`"));
                Selects::Scope(Specificity::All)
            }
            (None, rules) => Selects::Rules(
                rules
                    .iter()
                    .enumerate()
                    .map(|(n, rule)| {
                        RulePredicate::compile(
                            &rule.api_groups,
                            &rule.resources,
                            &rule.operations,
                            &format!("{path}.rules[{n}]"),
                            problems,
                        )
                    })
                    .collect(),
            ),
        };
        let namespaces = target.namespace_selector.as_ref().and_then(|selector| {
            let at = format!("{path}.namespaceSelector");
            if namespaced {
                problems.push(Problem::new(at, "a namespaced policy covers its own namespace only: leave the selector out"));
                return None;
            }
            if let Selects::Rules(rules) = &selects
                && rules.iter().any(RulePredicate::names_only_namespaces)
            {
                problems.push(Problem::new(at.clone(), "a Namespace is cluster-scoped and never matches where this is present: use `names`"));
                return None;
            }
            Some(LabelPredicate::compile(selector, &at, problems))
        });
        let when = target
            .when
            .as_ref()
            .and_then(|source| match Condition::compile(source) {
                Ok(condition) => Some(condition),
                Err(problem) => {
                    problems.push(Problem::new(format!("{path}.when"), problem.to_string()));
                    None
                }
            });
        Self {
            selects,
            namespaces,
            names: target.names.clone(),
            when,
        }
    }

    /// How closely rules or scope, and names, select the attempt. `asks`: what is not known counts as selected.
    pub fn selects(&self, situation: &Situation<'_>, asks: bool) -> Option<Specificity> {
        // A name that the server has still to make up may turn out to be one of these.
        let named = self.names.is_empty()
            || self.names.iter().any(|name| name == situation.name)
            || (asks && situation.name.is_empty());
        if !named {
            return None;
        }
        match &self.selects {
            Selects::Scope(Specificity::Destructive) => {
                situation.destructive.then_some(Specificity::Destructive)
            }
            Selects::Scope(specificity) => Some(*specificity),
            Selects::Rules(rules) => rules
                .iter()
                .filter_map(|rule| rule.matches(situation))
                .max(),
        }
    }

    /// Whether rules or scope may select an attempt of this kind: see [`super::Policy::could_ask`].
    pub fn could_select(&self, situation: &Situation<'_>) -> bool {
        match &self.selects {
            Selects::Scope(Specificity::Destructive) => situation.could_destroy(),
            Selects::Scope(_) => true,
            Selects::Rules(rules) => rules.iter().any(|rule| rule.could_name(situation)),
        }
    }

    /// Whether the namespace's labels match; `None`: cannot be told.
    pub fn namespace_matches(&self, situation: &Situation<'_>) -> Option<bool> {
        let Some(selector) = &self.namespaces else {
            return Some(true);
        };
        if situation.target_namespace().is_none() {
            return Some(false);
        }
        if selector.is_everything() {
            Some(true)
        } else {
            situation
                .namespace_labels
                .map(|labels| selector.matches(labels))
        }
    }
}
