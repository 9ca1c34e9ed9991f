//! ToolMounts: which tools an agent has, which wait for a person, and what the policies say besides.

use std::collections::BTreeMap;

use jiff::Timestamp;

use crate::{
    api::{
        AgentIdentity, Operation, Subject, ToolMount, ToolMountStatus, ToolServer,
        tool_mount::MountedTool,
        tool_server::{OperationSelector, ToolAction},
    },
    control::{
        declared::{in_force, resolution, set},
        force::Force,
    },
    decide::{
        conditions::{self, ENFORCED, STILL_ASKED},
        mount::{self, Enforcement},
        policy::{Match, Policy, Problem},
        resolve::{self, DEFAULT_POLICY, Outcome, Policies, Situation},
        server,
        subject::plain,
        trace::Trace,
        visible,
    },
};

/// What the policies say of everything that a tool may do.
#[derive(Clone, Debug, Eq, PartialEq)]
enum Word {
    /// At least one of its actions waits for a person.
    Asked,
    /// Each is exempt, by this policy among others.
    Exempt(String),
    /// It does nothing to the cluster that is known.
    Nothing,
}

/// The status of a mount, if it differs from the one that is there.
pub fn plan(
    mount: &ToolMount,
    server: Option<&ToolServer>,
    agent: Option<&AgentIdentity>,
    policies: &Policies,
    force: &Force,
    now: Timestamp,
) -> Option<ToolMountStatus> {
    let generation = mount.metadata.generation;
    let known = mount.status.as_ref();
    let mut status = known.cloned().unwrap_or_default();
    let mut problems = Vec::new();
    if agent.is_none() {
        problems.push(Problem::new(
            "spec.agent",
            format!(
                "there is no AgentIdentity {}",
                visible::visible(&mount.spec.agent)
            ),
        ));
    }
    match server {
        None => {
            problems.push(Problem::new(
                "spec.server",
                format!(
                    "there is no ToolServer {} in this namespace",
                    visible::visible(&mount.spec.server)
                ),
            ));
            status.tools.clear();
            status.conditions.retain(|known| known.type_ != STILL_ASKED);
        }
        Some(server) => {
            let resolved = server::resolve_server(&server.spec);
            let enforcement = Enforcement {
                identities_enforced: agent.is_some_and(|agent| identities_enforced(server, agent)),
                gateway: false,
            };
            let (mut tools, found) = mount::resolve_mount(&mount.spec, &resolved, enforcement);
            problems.extend(found);
            let mut asked = Vec::new();
            for tool in &mut tools {
                let actions = resolved
                    .tools
                    .get(&tool.name)
                    .map(|tool| tool.declared.as_slice())
                    .unwrap_or_default();
                weigh(
                    tool,
                    word(actions, &mount.spec.agent, agent, policies),
                    &mut asked,
                );
            }
            tools.truncate(server::MAX_TOOLS);
            status.tools = tools;
            let (value, message) = still_asked(&asked);
            set(
                &mut status.conditions,
                STILL_ASKED,
                value,
                &message,
                generation,
                now,
            );
        }
    }
    resolution(&mut status.conditions, &problems, false, generation, now);
    in_force(&mut status.conditions, force, generation, now);
    (known != Some(&status)).then_some(status)
}

/// An exemption also exempts what the mount lists; the mount never exempts what a policy asks for.
fn weigh(tool: &mut MountedTool, word: Word, asked: &mut Vec<String>) {
    if !tool.enabled {
        return;
    }
    match word {
        Word::Exempt(by) if tool.needs_approval && tool.enforced_at == "Admission" => {
            tool.needs_approval = false;
            tool.rule = visible::one_line(&format!("exempt: {by}"), 512);
        }
        Word::Asked if !tool.needs_approval => asked.push(tool.name.clone()),
        _ => {}
    }
}

fn still_asked(asked: &[String]) -> ((&'static str, &'static str), String) {
    if asked.is_empty() {
        let words = "no policy asks for what `approval` leaves out";
        return ((conditions::FALSE, "NothingAsked"), words.to_owned());
    }
    let words = format!(
        "at admission policies still ask for what these do: {}; `approval` never loosens admission",
        asked.join(", ")
    );
    (
        (conditions::TRUE, "PoliciesAsk"),
        visible::one_line(&words, 1024),
    )
}

/// What the policies say of a tool's actions on any target: named by none, so only what covers every target counts as an exemption, and
/// whatever may ask for some target asks.
fn word(
    actions: &[ToolAction],
    agent_name: &str,
    agent: Option<&AgentIdentity>,
    policies: &Policies,
) -> Word {
    let none = BTreeMap::new();
    let labels = agent
        .and_then(|agent| agent.metadata.labels.as_ref())
        .unwrap_or(&none);
    let mut exempt = None;
    for action in actions {
        for group in &action.api_groups {
            for resource in &action.resources {
                let (resource, subresource) = match resource.split_once('/') {
                    Some((resource, subresource)) => (resource, Some(subresource)),
                    None => (resource.as_str(), None),
                };
                for operation in action.operations.iter().flat_map(|one| operations(*one)) {
                    let situation = Situation {
                        agent_name,
                        agent_labels: labels,
                        operation: *operation,
                        group,
                        resource,
                        subresource,
                        namespace: None,
                        namespace_labels: None,
                        name: "",
                        destructive: *operation == Operation::Delete,
                        object: None,
                        old_object: None,
                        username: "",
                        groups: &[],
                    };
                    if policies
                        .iter()
                        .any(|policy| asks_unseen(policy, &situation))
                    {
                        return Word::Asked;
                    }
                    match resolve::resolve(policies, &situation).outcome {
                        Outcome::Exempt(by) => exempt = Some(by),
                        Outcome::Approval(_) | Outcome::Unready(_) => return Word::Asked,
                    }
                }
            }
        }
    }
    exempt.map_or(Word::Nothing, Word::Exempt)
}

/// Whether a policy may ask for some such attempt although it does not match one of which neither namespace nor name is known: a
/// namespaced one, one with a selector of namespaces, one that names what the action only says as `*`.
fn asks_unseen(policy: &Policy, situation: &Situation<'_>) -> bool {
    let name = &policy.name;
    // Its selectors are never looked at.
    if name.namespace.is_none() && name.name == DEFAULT_POLICY {
        return false;
    }
    let seen = name.namespace.is_none()
        && !matches!(
            policy.matches(situation, &mut Trace::default()),
            Match::No | Match::NamespaceUnknown
        );
    !seen && policy.could_ask(situation)
}

fn operations(selector: OperationSelector) -> &'static [Operation] {
    match selector {
        OperationSelector::All => &[
            Operation::Create,
            Operation::Update,
            Operation::Delete,
            Operation::Connect,
        ],
        OperationSelector::Create => &[Operation::Create],
        OperationSelector::Update => &[Operation::Update],
        OperationSelector::Delete => &[Operation::Delete],
        OperationSelector::Connect => &[Operation::Connect],
        OperationSelector::Unknown => &[Operation::Unknown],
    }
}

/// Whether every identity that the server writes under is a subject of the agent, and the agent's are seen to be enforced.
fn identities_enforced(server: &ToolServer, agent: &AgentIdentity) -> bool {
    let enforced = agent
        .status
        .as_ref()
        .is_some_and(|status| conditions::holds(&status.conditions, ENFORCED));
    let declared: Vec<Subject> = agent.spec.subjects.iter().map(plain).collect();
    let own = server.spec.identity.subjects.as_deref().unwrap_or_default();
    enforced && !own.is_empty() && own.iter().all(|subject| declared.contains(&plain(subject)))
}

#[cfg(test)]
mod tests {
    #![allow(
        clippy::unwrap_used,
        clippy::expect_used,
        clippy::panic,
        reason = "tests"
    )]

    use serde_json::{Value, json};

    use super::*;
    use crate::api::{ApprovalPolicy, ClusterApprovalPolicy};

    fn object<K: serde::de::DeserializeOwned>(
        kind: &str,
        name: &str,
        spec: Value,
        status: Value,
    ) -> K {
        serde_json::from_value(json!({
            "apiVersion": "grantgate.dev/v1alpha1", "kind": kind,
            "metadata": {"name": name, "namespace": "agents", "generation": 1}, "spec": spec, "status": status,
        }))
        .unwrap()
    }

    fn policies(effect: &str) -> Policies {
        let policy: ClusterApprovalPolicy = object(
            "ClusterApprovalPolicy",
            "p",
            json!({
                "effect": effect, "targets": [{"kubernetes": {"scope": "All"}}],
                "approvers": {"required": [{"count": 1, "from": []}]},
            }),
            json!({}),
        );
        Policies::new([Policy::compile_cluster(&policy)])
    }

    fn status(approval: Value, effect: &str, enforced: &str) -> ToolMountStatus {
        let subjects = json!([{"serviceAccount": {"namespace": "agents", "name": "ops-bot"}}]);
        let agent: AgentIdentity = object(
            "AgentIdentity",
            "ops-bot",
            json!({"owner": {"user": "ana@example.com"}, "subjects": [{"user": "system:serviceaccount:agents:ops-bot"}]}),
            json!({"conditions": [{"type": "Enforced", "status": enforced, "reason": "R", "message": "", "lastTransitionTime": "2026-01-01T10:00:00Z"}]}),
        );
        let actions = json!([{"apiGroups": ["apps"], "resources": ["deployments/scale"], "operations": ["UPDATE"]}]);
        let server: ToolServer = object(
            "ToolServer",
            "s",
            json!({"identity": {"subjects": subjects}, "tools": [{"name": "scale", "class": "Write", "actions": actions}, {"name": "list", "class": "ReadOnly"}]}),
            json!({}),
        );
        let mount: ToolMount = object(
            "ToolMount",
            "m",
            json!({"agent": "ops-bot", "server": "s", "approval": approval}),
            json!({}),
        );
        let force = Force {
            status: conditions::TRUE,
            reason: "Reached",
            message: String::new(),
        };
        plan(
            &mount,
            Some(&server),
            Some(&agent),
            &policies(effect),
            &force,
            Timestamp::UNIX_EPOCH,
        )
        .unwrap()
    }

    fn scale(status: &ToolMountStatus) -> (bool, &str, &str) {
        let tool = status
            .tools
            .iter()
            .find(|tool| tool.name == "scale")
            .unwrap();
        (
            tool.needs_approval,
            tool.enforced_at.as_str(),
            tool.rule.as_str(),
        )
    }

    #[test]
    fn a_mount_never_loosens_admission_and_says_so() {
        let asked = status(json!([]), "RequireApproval", "True");
        assert_eq!(scale(&asked), (false, "Admission", "approval: []"));
        let condition = conditions::get(&asked.conditions, STILL_ASKED).unwrap();
        assert_eq!(condition.status, conditions::TRUE);
        assert!(condition.message.contains("scale") && !condition.message.contains("list"));
        let waits = status(json!(["@write"]), "RequireApproval", "True");
        assert!(!conditions::holds(&waits.conditions, STILL_ASKED));
    }

    #[test]
    fn an_exemption_also_exempts_what_the_mount_lists_where_admission_enforces_it() {
        let exempt = status(json!(["@write"]), "Exempt", "True");
        assert_eq!(
            scale(&exempt),
            (false, "Admission", "exempt: ClusterApprovalPolicy/p")
        );
        let unseen = status(json!(["@write"]), "Exempt", "False");
        assert_eq!(scale(&unseen), (true, "Nowhere", "approval: @write"));
    }

    #[test]
    fn a_policy_that_may_ask_somewhere_asks() {
        let exempt = |targets: Value| {
            let policy: ClusterApprovalPolicy = object(
                "ClusterApprovalPolicy",
                "exempts",
                json!({"effect": "Exempt", "targets": targets}),
                json!({}),
            );
            Policy::compile_cluster(&policy)
        };
        let asks = |targets: Value| {
            let spec = json!({
                "effect": "RequireApproval", "targets": targets,
                "approvers": {"required": [{"count": 1, "from": []}]},
            });
            let policy: ClusterApprovalPolicy =
                object("ClusterApprovalPolicy", "asks", spec.clone(), json!({}));
            let namespaced: ApprovalPolicy = object("ApprovalPolicy", "asks", spec, json!({}));
            (
                Policy::compile_cluster(&policy),
                Policy::compile(&namespaced),
            )
        };
        let of = |policies: Vec<Policy>, resource: &str| {
            let action: ToolAction = serde_json::from_value(json!({
                "apiGroups": ["*"], "resources": [resource], "operations": ["UPDATE"],
            }))
            .unwrap();
            word(&[action], "ops-bot", None, &Policies::new(policies))
        };
        let scales = json!([{"kubernetes": {"rules": [
            {"apiGroups": ["apps"], "resources": ["deployments/scale"], "operations": ["UPDATE"]},
        ]}}]);
        let all = || exempt(json!([{"kubernetes": {"scope": "All"}}]));
        let selected = json!([{"kubernetes": {"scope": "All", "namespaceSelector": {"matchLabels": {"env": "prod"}}}}]);
        let exempted = Word::Exempt("ClusterApprovalPolicy/exempts".to_owned());
        assert_eq!(of(vec![all()], "deployments/scale"), exempted);
        assert_eq!(
            of(vec![all(), asks(selected).0], "deployments/scale"),
            Word::Asked
        );
        let namespaced = asks(scales.clone()).1;
        assert_eq!(
            of(vec![all(), namespaced], "deployments/scale"),
            Word::Asked
        );
        assert_eq!(of(vec![all(), asks(scales.clone()).0], "*/*"), Word::Asked);
        assert_eq!(
            of(vec![all(), asks(scales.clone()).0], "*"),
            exempted,
            "no subresource"
        );
        assert_eq!(
            of(vec![all(), asks(scales).0], "statefulsets/scale"),
            exempted
        );
    }

    #[test]
    fn a_mount_without_its_server_or_agent_is_not_resolved() {
        let mount: ToolMount = object(
            "ToolMount",
            "m",
            json!({"agent": "a", "server": "s"}),
            json!({}),
        );
        let force = Force {
            status: conditions::FALSE,
            reason: "NoReplica",
            message: String::new(),
        };
        let status = plan(
            &mount,
            None,
            None,
            &Policies::default(),
            &force,
            Timestamp::UNIX_EPOCH,
        )
        .unwrap();
        let condition = conditions::get(&status.conditions, "Resolved").unwrap();
        assert_eq!(condition.status, conditions::FALSE);
        assert!(
            condition.message.starts_with("2 problems"),
            "{}",
            condition.message
        );
        let again = ToolMount {
            status: Some(status),
            ..mount
        };
        assert!(
            plan(
                &again,
                None,
                None,
                &Policies::default(),
                &force,
                Timestamp::MAX
            )
            .is_none()
        );
    }
}
