//! Mounts, resolved: which tools an agent has, and whether one of them covers an attempt.
//!
//! Enablement, preload and approval are three answers. *Enabled* decides whether a tool exists for the agent, *preloaded* whether
//! its schema is put into context at once, *needs approval* whether a call waits for a person. An explicit list is exact, also
//! an empty one. A tool that nothing classifies is *unannotated*: under `Gate` it waits for a person unless `approval: []` says
//! that nothing does; under `Exempt` only a literal name or `@all` makes it wait.
//!
//! What cannot be read never covers anything: an attempt that only an unreadable tool or mount could cover is unready. A `when`
//! that cannot be evaluated does not cover either, since access has to be shown.

use std::{
    borrow::Cow,
    collections::{BTreeSet, HashMap},
    sync::Arc,
};

use super::{
    policy::Problem,
    select::Situation,
    server::{ResolvedServer, ServerTool},
};
use crate::api::{
    ToolMountSpec,
    tool_mount::{APPROVAL_WORDS, ENABLE_WORDS, MountedTool, PRELOAD_WORDS, Unannotated},
    tool_server::{EnforceAt, ToolClass},
};

/// What is known besides about where a mount's tools are stopped.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct Enforcement {
    /// Every identity that the server writes under is a subject of the mount's agent, and seen to be enforced.
    pub identities_enforced: bool,
    /// A gateway is programmed with this mount.
    pub gateway: bool,
}

/// Every mount, by agent.
#[derive(Debug, Default)]
pub struct Mounts {
    by_agent: HashMap<String, Vec<Mount>>,
}

/// One mount, as far as covering an attempt is concerned.
#[derive(Debug)]
pub struct Mount {
    name: String,
    enabled: Vec<String>,
    server: Arc<ResolvedServer>,
    unreadable: Option<String>,
}

/// Whether an agent's mounts cover an attempt.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Coverage {
    /// By these tools, as `namespace/mount: tool`, sorted.
    Covered(Vec<String>),
    /// By none, in words.
    NotCovered(String),
    /// It cannot be told, in words.
    Unready(String),
}

/// Resolves a mount: one row per tool of the server, and what is wrong by field path. A name that the server lacks is a problem;
/// the other tools stay.
pub fn resolve_mount(
    spec: &ToolMountSpec,
    server: &ResolvedServer,
    enforcement: Enforcement,
) -> (Vec<MountedTool>, Vec<Problem>) {
    let mut problems = misunderstood(spec);
    let (enable, approval) = (enable_of(spec), approval_of(spec));
    for Words { path, words, .. } in lists(spec) {
        for (n, word) in words.iter().enumerate() {
            if !word.starts_with('@') && !server.tools.contains_key(word) {
                problems.push(Problem::new(
                    format!("{path}[{n}]"),
                    format!("the server has no tool `{word}`"),
                ));
            }
        }
    }
    let tools = server.tools.values().map(|tool| {
        let (enabled, enabled_by) = enabled(tool, &enable, &spec.disable);
        let (waits, waits_by) = waits(tool, &approval, spec);
        MountedTool {
            name: tool.name.clone(),
            enabled,
            preloaded: enabled
                && spec
                    .preload
                    .iter()
                    .any(|word| word == "@all" || *word == tool.name),
            needs_approval: enabled && waits,
            enforced_at: enforced_at(tool, enabled, enforcement).to_owned(),
            class: tool.class,
            rule: if enabled { waits_by } else { enabled_by },
        }
    });
    (tools.collect(), problems)
}

/// Words that this version does not understand: they may mean anything, so the mount cannot be used.
pub fn misunderstood(spec: &ToolMountSpec) -> Vec<Problem> {
    let mut problems = Vec::new();
    for Words {
        path,
        words,
        selectors,
    } in lists(spec)
    {
        for (n, word) in words.iter().enumerate() {
            if word.starts_with('@') && !selectors.contains(&word.as_str()) {
                let known = if selectors.is_empty() {
                    "tool names only".to_owned()
                } else {
                    format!("{} or tool names", selectors.join(", "))
                };
                problems.push(Problem::new(
                    format!("{path}[{n}]"),
                    format!("`{word}` means nothing here: use {known}"),
                ));
            }
        }
    }
    if spec.unannotated == Unannotated::Unknown {
        problems.push(Problem::new(
            "spec.unannotated",
            "this version does not know the word: use Gate or Exempt",
        ));
    }
    problems
}

/// One list of a mount: tool names, and the selectors that it may hold.
struct Words<'s> {
    path: &'static str,
    words: Cow<'s, [String]>,
    selectors: &'static [&'static str],
}

fn lists(spec: &ToolMountSpec) -> [Words<'_>; 4] {
    let list = |path, words, selectors: &'static [&'static str]| Words {
        path,
        words,
        selectors,
    };
    [
        list("spec.enable", enable_of(spec), &ENABLE_WORDS),
        list("spec.disable", Cow::Borrowed(&spec.disable), &[]),
        list("spec.preload", Cow::Borrowed(&spec.preload), &PRELOAD_WORDS),
        list("spec.approval", approval_of(spec), &APPROVAL_WORDS),
    ]
}

fn enable_of(spec: &ToolMountSpec) -> Cow<'_, [String]> {
    spec.enable
        .as_deref()
        .map_or_else(|| Cow::Owned(vec!["@all".to_owned()]), Cow::Borrowed)
}

fn approval_of(spec: &ToolMountSpec) -> Cow<'_, [String]> {
    spec.approval.as_deref().map_or_else(
        || Cow::Owned(vec!["@write".to_owned(), "@destructive".to_owned()]),
        Cow::Borrowed,
    )
}

fn enabled(tool: &ServerTool, enable: &[String], disable: &[String]) -> (bool, String) {
    if disable.contains(&tool.name) {
        return (false, format!("disable: {}", tool.name));
    }
    for word in enable {
        let covers = match word.as_str() {
            "@all" => true,
            "@read-only" => tool.class == Some(ToolClass::ReadOnly),
            name => name == tool.name,
        };
        if covers {
            return (true, format!("enable: {word}"));
        }
    }
    (false, "enable names it not".to_owned())
}

/// Whether a call waits for a person, and the rule that says so. A literal name and `@all` come first, then the class.
fn waits(tool: &ServerTool, approval: &[String], spec: &ToolMountSpec) -> (bool, String) {
    let listed = if spec.approval.is_some() {
        "approval"
    } else {
        "approval (default)"
    };
    for word in approval {
        let covers = match word.as_str() {
            "@all" => true,
            "@write" => tool.class == Some(ToolClass::Write),
            "@destructive" => tool.class == Some(ToolClass::Destructive),
            name => name == tool.name,
        };
        if covers {
            return (true, format!("{listed}: {word}"));
        }
    }
    // Selectors may mean any tool that nothing classifies; an empty list means none.
    if tool.class.is_none() && !approval.is_empty() && spec.unannotated != Unannotated::Exempt {
        return (true, "unannotated: Gate".to_owned());
    }
    let reason = match tool.class {
        None if spec.unannotated == Unannotated::Exempt => "unannotated: Exempt",
        _ if approval.is_empty() => "approval: []",
        _ => "approval names it not",
    };
    (false, reason.to_owned())
}

fn enforced_at(tool: &ServerTool, enabled: bool, enforcement: Enforcement) -> &'static str {
    let at_admission = tool.enforce_at == EnforceAt::Auto && tool.writes() && !tool.unreadable;
    if enabled && at_admission && enforcement.identities_enforced {
        "Admission"
    } else if enforcement.gateway {
        "Gateway"
    } else {
        "Nowhere"
    }
}

impl Mount {
    /// A mount of one server. `name` is `namespace/name`. `None` for the server: there is no such object.
    pub fn new(name: String, spec: &ToolMountSpec, server: Option<Arc<ResolvedServer>>) -> Self {
        let Some(server) = server else {
            let words = format!(
                "mount {name} names the ToolServer {}, which is not known here",
                spec.server
            );
            return Self {
                name,
                enabled: Vec::new(),
                server: Arc::default(),
                unreadable: Some(words),
            };
        };
        let unreadable = misunderstood(spec)
            .first()
            .map(|problem| format!("mount {name} cannot be used: {problem}"));
        let enable = enable_of(spec);
        let tools = server
            .tools
            .values()
            .filter(|tool| enabled(tool, &enable, &spec.disable).0);
        let enabled = tools.map(|tool| tool.name.clone()).collect();
        Self {
            name,
            enabled,
            server,
            unreadable,
        }
    }
}

impl Mounts {
    /// Sorts mounts by the agent that they are for.
    pub fn new(mounts: impl IntoIterator<Item = (String, Mount)>) -> Self {
        let mut by_agent: HashMap<String, Vec<Mount>> = HashMap::new();
        for (agent, mount) in mounts {
            by_agent.entry(agent).or_default().push(mount);
        }
        Self { by_agent }
    }

    /// Whether an enabled tool of one of the agent's mounts makes this attempt.
    pub fn covers(&self, situation: &Situation<'_>) -> Coverage {
        let agent = situation.agent_name;
        let mounts = self
            .by_agent
            .get(agent)
            .map(Vec::as_slice)
            .unwrap_or_default();
        if mounts.is_empty() {
            return Coverage::NotCovered(format!(
                "no ToolMount is left for agent {agent}, so none of its calls may change anything"
            ));
        }
        let mut covering = BTreeSet::new();
        let mut doubts = BTreeSet::new();
        let mut disabled = BTreeSet::new();
        let mut errors = Vec::new();
        for mount in mounts {
            doubts.extend(mount.unreadable.iter().cloned());
            for tool in mount.server.tools.values() {
                let enabled = mount.unreadable.is_none() && mount.enabled.contains(&tool.name);
                let mut unevaluated = Vec::new();
                let makes = tool.makes(situation, &mut unevaluated);
                let name = format!("{}: {}", mount.name, tool.name);
                if makes && enabled && !tool.unreadable {
                    covering.insert(name);
                } else if makes && !enabled {
                    disabled.insert(name);
                } else if enabled && tool.unreadable {
                    doubts.insert(format!("tool {name} cannot be read"));
                } else if enabled {
                    errors.append(&mut unevaluated);
                }
            }
        }
        if !covering.is_empty() {
            return Coverage::Covered(covering.into_iter().collect());
        }
        if let Some(doubt) = doubts.into_iter().next() {
            return Coverage::Unready(doubt);
        }
        Coverage::NotCovered(not_covered(agent, &disabled, &errors))
    }
}

fn not_covered(agent: &str, disabled: &BTreeSet<String>, errors: &[String]) -> String {
    let mut words = format!("no enabled tool of agent {agent} makes this change");
    if let Some(tool) = disabled.first() {
        words.push_str(&format!("; {tool} would, and is not enabled"));
    }
    if let Some(error) = errors.first() {
        words.push_str(&format!("; {error}"));
    }
    words
}

#[cfg(test)]
mod tests;
