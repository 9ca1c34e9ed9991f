#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "tests"
)]

use super::*;
use crate::{
    api::Operation,
    decide::{
        attempt_for_tests::{delete, scale, update},
        json,
        server::resolve_server,
    },
};

const TOOLS: &str = "
identity: {callerToken: {}}
tools:
- {name: get, class: ReadOnly}
- {name: scale, class: Write, actions: [{apiGroups: ['*'], resources: ['*/scale'], operations: [UPDATE]}]}
- {name: delete, class: Destructive, actions: [{apiGroups: ['*'], resources: ['*'], operations: [DELETE]}]}
- {name: plain}
";

fn server(spec: &str) -> Arc<ResolvedServer> {
    Arc::new(resolve_server(&serde_saphyr::from_str(spec).unwrap()))
}

fn spec(more: &str) -> ToolMountSpec {
    serde_saphyr::from_str(&format!("{{agent: ops-bot, server: s{more}}}")).unwrap()
}

fn mounted(more: &str) -> (Vec<MountedTool>, Vec<Problem>) {
    resolve_mount(&spec(more), &server(TOOLS), Enforcement::default())
}

fn names(more: &str, which: impl Fn(&MountedTool) -> bool) -> Vec<String> {
    let (tools, problems) = mounted(more);
    assert_eq!(problems, [], "{more}");
    tools
        .into_iter()
        .filter(which)
        .map(|tool| tool.name)
        .collect()
}

#[test]
fn enable_less_disable_is_what_the_agent_has() {
    for (more, expected) in [
        ("", vec!["delete", "get", "plain", "scale"]),
        (
            ", enable: ['@all']",
            vec!["delete", "get", "plain", "scale"],
        ),
        (", enable: ['@read-only']", vec!["get"]),
        (", enable: [scale, get]", vec!["get", "scale"]),
        (", enable: ['@read-only', delete]", vec!["delete", "get"]),
        (", enable: []", vec![]),
        (", disable: [delete]", vec!["get", "plain", "scale"]),
        (", enable: [delete], disable: [delete]", vec![]),
    ] {
        assert_eq!(names(more, |tool| tool.enabled), expected, "{more}");
    }
}

#[test]
fn approval_waits_for_what_it_lists_and_by_default_for_what_writes() {
    for (more, expected) in [
        ("", vec!["delete", "plain", "scale"]),
        (", approval: []", vec![]),
        (
            ", approval: ['@all']",
            vec!["delete", "get", "plain", "scale"],
        ),
        (", approval: ['@write']", vec!["plain", "scale"]),
        (", approval: ['@destructive']", vec!["delete", "plain"]),
        (", approval: [get]", vec!["get", "plain"]),
        (", unannotated: Exempt", vec!["delete", "scale"]),
        (", unannotated: Exempt, approval: [plain]", vec!["plain"]),
        (
            ", unannotated: Exempt, approval: ['@all']",
            vec!["delete", "get", "plain", "scale"],
        ),
        (", disable: [delete]", vec!["plain", "scale"]),
    ] {
        assert_eq!(names(more, |tool| tool.needs_approval), expected, "{more}");
    }
}

#[test]
fn preload_lists_and_never_enables() {
    assert_eq!(names("", |tool| tool.preloaded), Vec::<String>::new());
    assert_eq!(
        names(", preload: ['@all'], disable: [get]", |tool| tool.preloaded),
        ["delete", "plain", "scale"]
    );
    assert_eq!(
        names(", preload: [get, delete], disable: [get]", |tool| tool
            .preloaded),
        ["delete"]
    );
}

#[test]
fn a_name_that_the_server_lacks_is_a_problem_and_the_other_tools_stay() {
    let (tools, problems) = mounted(
        ", enable: [scale, gone], disable: ['@write'], preload: [lost], approval: ['@read-only']",
    );
    let paths: Vec<&str> = problems
        .iter()
        .map(|problem| problem.path.as_str())
        .collect();
    assert_eq!(
        paths,
        [
            "spec.disable[0]",
            "spec.approval[0]",
            "spec.enable[1]",
            "spec.preload[0]"
        ]
    );
    assert!(
        tools
            .iter()
            .any(|tool| tool.name == "scale" && tool.enabled)
    );
}

#[test]
fn each_row_names_the_rule_that_decided() {
    let (tools, _) = mounted(", disable: [delete], approval: ['@write']");
    let rules: Vec<(&str, &str)> = tools
        .iter()
        .map(|tool| (tool.name.as_str(), tool.rule.as_str()))
        .collect();
    assert_eq!(
        rules,
        [
            ("delete", "disable: delete"),
            ("get", "approval names it not"),
            ("plain", "unannotated: Gate"),
            ("scale", "approval: @write"),
        ]
    );
}

#[test]
fn a_tool_is_enforced_only_where_it_is_seen() {
    let at = |enforcement| -> Vec<(String, String)> {
        let (tools, _) = resolve_mount(&spec(""), &server(TOOLS), enforcement);
        tools
            .into_iter()
            .map(|tool| (tool.name, tool.enforced_at))
            .collect()
    };
    let point = |rows: &[(String, String)], name: &str| {
        rows.iter().find(|row| row.0 == name).unwrap().1.clone()
    };
    let seen = at(Enforcement {
        identities_enforced: true,
        gateway: false,
    });
    assert_eq!(
        (point(&seen, "scale"), point(&seen, "get")),
        ("Admission".into(), "Nowhere".into())
    );
    let unseen = at(Enforcement::default());
    assert_eq!(point(&unseen, "scale"), "Nowhere");
    let gateway = at(Enforcement {
        identities_enforced: false,
        gateway: true,
    });
    assert_eq!(point(&gateway, "scale"), "Gateway");
}

fn mounts(mount: &str, server_spec: &str) -> Mounts {
    let mount = Mount::new("agents/m".into(), &spec(mount), Some(server(server_spec)));
    Mounts::new([("ops-bot".to_owned(), mount)])
}

#[test]
fn an_attempt_is_covered_by_an_enabled_tool_that_makes_it() {
    let all = mounts("", TOOLS);
    assert_eq!(
        all.covers(&scale()),
        Coverage::Covered(vec!["agents/m: scale".into()])
    );
    assert_eq!(
        all.covers(&delete()),
        Coverage::Covered(vec!["agents/m: delete".into()])
    );
    let create = Situation {
        operation: Operation::Create,
        ..update()
    };
    assert_eq!(
        all.covers(&create),
        Coverage::NotCovered("no enabled tool of agent ops-bot makes this change".into())
    );
}

#[test]
fn a_disabled_tool_does_not_cover_and_is_named() {
    let Coverage::NotCovered(words) = mounts(", disable: [delete]", TOOLS).covers(&delete()) else {
        panic!()
    };
    assert_eq!(
        words,
        "no enabled tool of agent ops-bot makes this change; agents/m: delete would, and is not enabled"
    );
}

#[test]
fn without_a_mount_nothing_is_covered() {
    let other = Situation {
        agent_name: "other",
        ..scale()
    };
    assert!(
        matches!(mounts("", TOOLS).covers(&other), Coverage::NotCovered(words) if words.contains("no ToolMount is left"))
    );
}

#[test]
fn what_cannot_be_read_covers_nothing_and_is_unready_where_it_could_matter() {
    let unknown_word = mounts(", enable: ['@harmless']", TOOLS);
    assert!(matches!(
        unknown_word.covers(&scale()),
        Coverage::Unready(_)
    ));
    let unknown_class = mounts(
        "",
        "{identity: {callerToken: {}}, tools: [{name: t, class: Harmless, actions: [{apiGroups: ['*'], resources: ['*/*'], operations: ['*']}]}]}",
    );
    assert!(matches!(
        unknown_class.covers(&scale()),
        Coverage::Unready(_)
    ));
    let no_server = Mounts::new([(
        "ops-bot".to_owned(),
        Mount::new("agents/m".into(), &spec(""), None),
    )]);
    assert!(
        matches!(no_server.covers(&scale()), Coverage::Unready(words) if words.contains("ToolServer s"))
    );
    // Another tool that can be read covers all the same.
    let beside = mounts("", &format!("{TOOLS}\n- {{name: odd, class: Harmless}}\n"));
    assert!(matches!(beside.covers(&scale()), Coverage::Covered(_)));
}

#[test]
fn a_condition_that_cannot_be_evaluated_does_not_cover() {
    let conditional = mounts(
        "",
        "{identity: {callerToken: {}}, tools: [{name: t, class: Write, actions: [{apiGroups: ['*'], resources: ['*'], operations: [UPDATE], when: 'object.spec.replicas < 3'}]}]}",
    );
    let at = |text: &str| {
        let document = json::read(text).unwrap();
        conditional.covers(&Situation {
            object: Some(document.root()),
            ..update()
        })
    };
    assert!(matches!(
        at(r#"{"spec":{"replicas":2}}"#),
        Coverage::Covered(_)
    ));
    assert!(matches!(
        at(r#"{"spec":{"replicas":3}}"#),
        Coverage::NotCovered(_)
    ));
    let Coverage::NotCovered(words) = at("{}") else {
        panic!()
    };
    assert!(words.contains("could not be evaluated"), "{words}");
}

/// Side writes of the shipped catalogue: each is covered only as far as its condition says.
#[test]
fn side_writes_of_a_catalogue_are_actions_too() {
    let shipped = mounts(
        ", enable: [pods_delete]",
        "{identity: {callerToken: {}}, catalog: {name: kubernetes-mcp-server, version: '1'}}",
    );
    let service = |labels: &str| {
        let text = format!(r#"{{"metadata":{{"labels":{labels}}}}}"#);
        let document = json::read(&text).unwrap();
        shipped.covers(&Situation {
            group: "",
            resource: "services",
            old_object: Some(document.root()),
            ..delete()
        })
    };
    assert!(matches!(
        service(r#"{"app.kubernetes.io/managed-by":"kubernetes-mcp-server"}"#),
        Coverage::Covered(_)
    ));
    assert!(matches!(
        service(r#"{"app.kubernetes.io/managed-by":"Helm"}"#),
        Coverage::NotCovered(_)
    ));
    assert!(matches!(service("{}"), Coverage::NotCovered(_)));
}

#[test]
fn only_the_exact_kubelet_paths_of_the_log_tools_are_covered() {
    let shipped = mounts(
        "",
        "{identity: {callerToken: {}}, catalog: {name: kubernetes-mcp-server, version: '1'}}",
    );
    let proxy = |path: &str, name: &'static str| {
        let text = format!(r#"{{"path":"{path}"}}"#);
        let document = json::read(&text).unwrap();
        let situation = Situation {
            operation: Operation::Connect,
            group: "",
            resource: "nodes",
            subresource: Some("proxy"),
            namespace: None,
            name,
            object: Some(document.root()),
            ..update()
        };
        matches!(shipped.covers(&situation), Coverage::Covered(_))
    };
    assert!(proxy("/logs", "node1") && proxy("/stats/summary", "node1"));
    assert!(
        !proxy("/logs/../run/web/api/c", "node1")
            && !proxy("/logs", "https:node1:10250")
            && !proxy("/run", "node1")
    );
}
