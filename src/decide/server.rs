//! MCP servers, resolved: a shipped catalogue, and the platform team's word on single tools over it.

use std::collections::BTreeMap;

use super::{
    catalog,
    condition::Condition,
    policy::Problem,
    select::{RulePredicate, Situation},
};
use crate::api::{
    ToolServerSpec,
    tool_server::{self, EnforceAt, ToolAction, ToolClass},
};

/// Tools that one server may have.
pub const MAX_TOOLS: usize = 512;

/// A server with what applies to each of its tools.
#[derive(Debug, Default)]
pub struct ResolvedServer {
    /// By name.
    pub tools: BTreeMap<String, ServerTool>,
    /// Everything wrong with it, by field path.
    pub problems: Vec<Problem>,
    /// It has more tools than can be shown.
    pub too_many_tools: bool,
}

/// One tool with what applies to it.
#[derive(Debug)]
pub struct ServerTool {
    /// Name as published by the server.
    pub name: String,
    /// What it can do at worst; `None`: nothing says so.
    pub class: Option<ToolClass>,
    /// `Override` or `Catalog`.
    pub class_from: Option<&'static str>,
    /// Where it is stopped.
    pub enforce_at: EnforceAt,
    /// What it does to a cluster, as written.
    pub declared: Vec<ToolAction>,
    actions: Vec<Action>,
    /// Part of it cannot be read.
    pub unreadable: bool,
}

#[derive(Debug)]
struct Action {
    rule: RulePredicate,
    when: Option<Condition>,
}

/// Expands a server: its catalogue, and our word on single tools over it.
pub fn resolve_server(spec: &ToolServerSpec) -> ResolvedServer {
    let mut server = ResolvedServer::default();
    if spec.identity.subjects.is_some() == spec.identity.caller_token.is_some() {
        server.problems.push(Problem::new(
            "spec.identity",
            "exactly one of subjects and callerToken is needed",
        ));
    }
    if let Some(reference) = &spec.catalog {
        match catalog::find(&reference.name, &reference.version) {
            Some(found) => {
                for tool in &found.tools {
                    server.add_from_catalog(tool);
                }
            }
            None => server.problems.push(Problem::new(
                "spec.catalog",
                format!(
                    "there is no such catalogue; shipped are: {}",
                    catalog::names().join(", ")
                ),
            )),
        }
    }
    for (n, tool) in spec.tools.iter().enumerate() {
        server.lay_over(tool, &format!("spec.tools[{n}]"));
    }
    server.too_many_tools = server.tools.len() > MAX_TOOLS;
    if server.too_many_tools {
        server.problems.push(Problem::new(
            "spec.tools",
            format!("{} tools, at most {MAX_TOOLS}", server.tools.len()),
        ));
    }
    server
}

impl ResolvedServer {
    fn add_from_catalog(&mut self, tool: &catalog::CatalogTool) {
        let mut resolved = ServerTool {
            name: tool.name.clone(),
            class: Some(tool.class),
            class_from: Some("Catalog"),
            enforce_at: tool.enforce_at,
            declared: Vec::new(),
            actions: Vec::new(),
            unreadable: false,
        };
        resolved.declare(
            &tool.actions,
            &format!("catalog.{}", tool.name),
            &mut self.problems,
        );
        self.tools.insert(tool.name.clone(), resolved);
    }

    fn lay_over(&mut self, tool: &tool_server::Tool, path: &str) {
        let resolved = self
            .tools
            .entry(tool.name.clone())
            .or_insert_with(|| ServerTool {
                name: tool.name.clone(),
                class: None,
                class_from: None,
                enforce_at: EnforceAt::Auto,
                declared: Vec::new(),
                actions: Vec::new(),
                unreadable: false,
            });
        match tool.class {
            None => {}
            Some(ToolClass::Unknown) => {
                self.problems.push(Problem::new(
                    format!("{path}.class"),
                    "this version does not know the class: use ReadOnly, Write or Destructive",
                ));
                resolved.class = Some(ToolClass::Destructive);
                resolved.class_from = Some("Override");
                resolved.unreadable = true;
            }
            Some(class) => {
                resolved.class = Some(class);
                resolved.class_from = Some("Override");
            }
        }
        if let Some(actions) = &tool.actions {
            resolved.declare(actions, path, &mut self.problems);
        }
        match tool.enforce_at {
            None => {}
            Some(EnforceAt::Unknown) => {
                self.problems.push(Problem::new(
                    format!("{path}.enforceAt"),
                    "this version does not know the word: use Auto or Gateway",
                ));
                resolved.enforce_at = EnforceAt::Gateway;
                resolved.unreadable = true;
            }
            Some(at) => resolved.enforce_at = at,
        }
    }

    /// For the server's status.
    pub fn status_tools(&self) -> Vec<tool_server::ResolvedTool> {
        self.tools
            .values()
            .map(|tool| tool_server::ResolvedTool {
                name: tool.name.clone(),
                class: tool.class,
                class_from: tool.class_from.map(str::to_owned),
                actions: tool.declared.clone(),
            })
            .collect()
    }
}

impl ServerTool {
    /// Replaces what the tool does. An action that cannot be read is left out and makes the tool unreadable.
    fn declare(&mut self, actions: &[ToolAction], path: &str, problems: &mut Vec<Problem>) {
        self.declared = actions.to_vec();
        self.actions.clear();
        for (n, action) in actions.iter().enumerate() {
            let at = format!("{path}.actions[{n}]");
            let before = problems.len();
            let rule = RulePredicate::compile(
                &action.api_groups,
                &action.resources,
                &action.operations,
                &at,
                problems,
            );
            let when = action
                .when
                .as_ref()
                .and_then(|source| match Condition::compile(source) {
                    Ok(condition) => Some(condition),
                    Err(problem) => {
                        problems.push(Problem::new(format!("{at}.when"), problem.to_string()));
                        None
                    }
                });
            if problems.len() == before {
                self.actions.push(Action { rule, when });
            } else {
                self.unreadable = true;
            }
        }
    }

    /// Whether the tool declares any write.
    pub fn writes(&self) -> bool {
        !self.actions.is_empty()
    }

    /// Whether one of the tool's actions is this attempt; errors of conditions are added in words.
    pub fn makes(&self, situation: &Situation<'_>, errors: &mut Vec<String>) -> bool {
        self.actions.iter().any(|action| {
            if action.rule.matches(situation).is_none() {
                return false;
            }
            let Some(when) = &action.when else {
                return true;
            };
            match when.holds(&situation.facts()) {
                Ok(held) => held,
                Err(error) => {
                    errors.push(format!(
                        "{}: `{}` could not be evaluated ({error})",
                        self.name,
                        when.source()
                    ));
                    false
                }
            }
        })
    }
}

#[cfg(test)]
mod tests;
