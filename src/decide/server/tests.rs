#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "tests"
)]

use super::*;

fn server(spec: &str) -> ResolvedServer {
    resolve_server(&serde_saphyr::from_str(spec).unwrap())
}

fn paths(server: &ResolvedServer) -> Vec<&str> {
    server
        .problems
        .iter()
        .map(|problem| problem.path.as_str())
        .collect()
}

#[test]
fn a_catalogue_expands_and_our_word_stands_over_it() {
    let server = server(
        "
identity: {callerToken: {}}
catalog: {name: kubernetes-mcp-server, version: '1'}
tools:
- {name: pods_list, class: Write}
- {name: resources_scale, actions: [{apiGroups: [apps], resources: [deployments/scale], operations: [UPDATE]}]}
- {name: our_own}
",
    );
    assert_eq!(server.problems, []);
    let tool = |name: &str| server.tools.get(name).unwrap();
    assert_eq!(
        (tool("pods_list").class, tool("pods_list").class_from),
        (Some(ToolClass::Write), Some("Override"))
    );
    assert_eq!(
        (tool("pods_delete").class, tool("pods_delete").class_from),
        (Some(ToolClass::Destructive), Some("Catalog"))
    );
    assert_eq!(tool("resources_scale").declared.len(), 1);
    assert_eq!(tool("resources_scale").declared[0].api_groups, ["apps"]);
    assert_eq!(
        tool("resources_scale").class,
        Some(ToolClass::Destructive),
        "actions replace actions, not the class"
    );
    assert_eq!(
        (tool("our_own").class, tool("our_own").class_from),
        (None, None)
    );
    assert_eq!(
        tool("vm_lifecycle").enforce_at,
        EnforceAt::Gateway,
        "aggregated APIs are never seen at admission"
    );
    let status = server.status_tools();
    assert_eq!(status.len(), server.tools.len());
    assert!(status.iter().any(|tool| tool.name == "pods_delete"
        && tool.class_from.as_deref() == Some("Catalog")
        && tool.actions.len() == 3));
}

#[test]
fn an_empty_list_of_actions_takes_the_catalogue_s_away() {
    let server = server(
        "{identity: {callerToken: {}}, catalog: {name: kubernetes-mcp-server, version: '1'}, tools: [{name: pods_delete, actions: []}]}",
    );
    assert!(!server.tools.get("pods_delete").unwrap().writes());
}

#[test]
fn every_problem_of_a_server_is_reported_by_path_and_the_other_tools_stay() {
    let server = server(
        "
identity: {}
catalog: {name: unheard-of, version: '1'}
tools:
- {name: good, class: Write, actions: [{apiGroups: [''], resources: [pods], operations: [CREATE]}]}
- {name: odd, class: Harmless, enforceAt: Somewhere}
- {name: broken, actions: [{apiGroups: [''], resources: [pods], operations: [PATCH], when: 'object.('}]}
",
    );
    assert_eq!(
        paths(&server),
        [
            "spec.identity",
            "spec.catalog",
            "spec.tools[1].class",
            "spec.tools[1].enforceAt",
            "spec.tools[2].actions[0].operations[0]",
            "spec.tools[2].actions[0].when",
        ]
    );
    assert!(
        server.problems[1]
            .message
            .contains("kubernetes-mcp-server 1")
    );
    let readable: Vec<&str> = server
        .tools
        .values()
        .filter(|tool| !tool.unreadable)
        .map(|tool| tool.name.as_str())
        .collect();
    assert_eq!(readable, ["good"]);
    assert_eq!(
        server.tools.get("odd").unwrap().class,
        Some(ToolClass::Destructive),
        "an unknown class is the worst one"
    );
}

#[test]
fn more_tools_than_a_server_may_have_are_a_problem() {
    let tools: Vec<String> = (0..=MAX_TOOLS).map(|n| format!("{{name: t{n}}}")).collect();
    let server = server(&format!(
        "{{identity: {{callerToken: {{}}}}, tools: [{}]}}",
        tools.join(", ")
    ));
    assert!(server.too_many_tools);
    assert_eq!(server.problems.len(), 1);
}
