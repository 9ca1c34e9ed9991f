//! Shipped catalogues: what the tools of well-known MCP servers do to a cluster.
//!
//! Facts only: names, the class at worst, and the admission requests that a call makes, side writes included. A catalogue never
//! exempts anything. Each is a file beside this one, embedded and parsed once.

use std::sync::LazyLock;

use serde::Deserialize;

use crate::api::tool_server::{EnforceAt, ToolAction, ToolClass};

/// One catalogue: the tools of one server, as of one version of this file.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Catalog {
    /// Name, as in `spec.catalog.name`.
    pub name: String,
    /// Version, as in `spec.catalog.version`.
    pub version: String,
    /// The server and its version that were looked at.
    pub describes: String,
    /// Its tools.
    pub tools: Vec<CatalogTool>,
}

/// One tool of a catalogue.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct CatalogTool {
    /// Name as published by the server.
    pub name: String,
    /// What it can do at worst.
    pub class: ToolClass,
    /// What it does to a cluster; side writes are actions too.
    #[serde(default)]
    pub actions: Vec<ToolAction>,
    /// Where it is stopped: at the gateway where other identities than the server's make its writes.
    #[serde(default)]
    pub enforce_at: EnforceAt,
    /// Why it is stopped there, or what else a person should know.
    #[serde(default)]
    pub note: Option<String>,
}

const SOURCES: [&str; 2] = [
    include_str!("catalog/kubernetes-mcp-server.yaml"),
    include_str!("catalog/mcp-server-kubernetes.yaml"),
];

/// A file that does not parse is left out; a test proves that none is.
static CATALOGS: LazyLock<Vec<Catalog>> = LazyLock::new(|| {
    SOURCES
        .iter()
        .filter_map(|source| serde_saphyr::from_str(source).ok())
        .collect()
});

/// The catalogue of a name and version.
pub fn find(name: &str, version: &str) -> Option<&'static Catalog> {
    CATALOGS
        .iter()
        .find(|catalog| catalog.name == name && catalog.version == version)
}

/// Every shipped catalogue as `name version`.
pub fn names() -> Vec<String> {
    CATALOGS
        .iter()
        .map(|catalog| format!("{} {}", catalog.name, catalog.version))
        .collect()
}

#[cfg(test)]
mod tests {
    #![allow(
        clippy::unwrap_used,
        clippy::expect_used,
        clippy::panic,
        reason = "tests"
    )]
    use std::collections::BTreeSet;

    use super::*;
    use crate::decide::{condition::Condition, select::RulePredicate};

    #[test]
    fn every_shipped_catalogue_is_readable_to_the_last_condition() {
        for source in SOURCES {
            let catalog: Catalog = serde_saphyr::from_str(source).unwrap();
            assert!(find(&catalog.name, &catalog.version).is_some());
            let names: BTreeSet<&String> = catalog.tools.iter().map(|tool| &tool.name).collect();
            assert_eq!(
                names.len(),
                catalog.tools.len(),
                "{} names a tool twice",
                catalog.name
            );
            for tool in &catalog.tools {
                assert!(!matches!(tool.class, ToolClass::Unknown), "{}", tool.name);
                assert!(tool.enforce_at != EnforceAt::Unknown, "{}", tool.name);
                for action in &tool.actions {
                    let mut problems = Vec::new();
                    RulePredicate::compile(
                        &action.api_groups,
                        &action.resources,
                        &action.operations,
                        "",
                        &mut problems,
                    );
                    assert!(problems.is_empty(), "{}: {problems:?}", tool.name);
                    if let Some(when) = &action.when {
                        Condition::compile(when)
                            .unwrap_or_else(|problem| panic!("{}: {problem}", tool.name));
                    }
                }
            }
        }
    }

    #[test]
    fn a_tool_that_only_reads_makes_no_write() {
        for source in SOURCES {
            let catalog: Catalog = serde_saphyr::from_str(source).unwrap();
            for tool in catalog
                .tools
                .iter()
                .filter(|tool| tool.class == ToolClass::ReadOnly)
            {
                for action in &tool.actions {
                    assert_eq!(action.resources, ["nodes/proxy"], "{}", tool.name);
                }
            }
        }
    }

    #[test]
    fn an_unknown_catalogue_is_not_found() {
        assert!(find("kubernetes-mcp-server", "0").is_none());
        assert_eq!(names().len(), 2);
    }
}
