//! Our kinds as the API server names them, and the rights on them in words.

use super::exit::{Failure, quoted};
use crate::decide::visible::{one_line, visible};

/// A resource of ours in a namespace, or in all.
#[derive(Clone, Copy, Debug)]
pub struct Kind {
    /// Plural name.
    pub plural: &'static str,
    /// Singular name with group, as `-o name` prints it.
    pub singular: &'static str,
    /// What may stand before a slash in an argument.
    pub types: &'static [&'static str],
}

/// ApprovalRequest.
pub const REQUESTS: Kind = Kind {
    plural: "approvalrequests",
    singular: "approvalrequest.grantgate.dev",
    types: &[
        "approvalrequest",
        "approvalrequests",
        "approvalrequest.grantgate.dev",
        "approvalrequests.grantgate.dev",
        "ggar",
    ],
};
/// ApprovalDecision.
pub const DECISIONS: Kind = Kind {
    plural: "approvaldecisions",
    singular: "approvaldecision.grantgate.dev",
    types: &[],
};
/// Grant.
pub const GRANTS: Kind = Kind {
    plural: "grants",
    singular: "grant.grantgate.dev",
    types: &[
        "grant",
        "grants",
        "grant.grantgate.dev",
        "grants.grantgate.dev",
        "gggr",
    ],
};
/// AgentIdentity.
pub const AGENTS: Kind = Kind {
    plural: "agentidentities",
    singular: "agentidentity.grantgate.dev",
    types: &[],
};

impl Kind {
    /// Path of the collection; `None`: all namespaces, or a cluster kind.
    pub fn path(self, namespace: Option<&str>) -> String {
        match namespace {
            Some(namespace) => format!(
                "/apis/grantgate.dev/v1alpha1/namespaces/{namespace}/{}",
                self.plural
            ),
            None => format!("/apis/grantgate.dev/v1alpha1/{}", self.plural),
        }
    }
}

/// One line that names a missing right.
pub fn missing_verb(
    verb: &str,
    plural: &str,
    namespace: Option<&str>,
    name: Option<&str>,
    me: &str,
) -> String {
    let named = name
        .map(|name| format!(" {}", visible(name)))
        .unwrap_or_default();
    let place = match namespace {
        Some(namespace) => format!("in namespace {}", visible(namespace)),
        None => "in the whole cluster".to_owned(),
    };
    format!(
        "RBAC: {} lacks verb {verb} on {plural}.grantgate.dev{named} {place}",
        visible(me)
    )
}

/// The command by which an administrator makes somebody an approver.
pub fn bind_approver(namespace: Option<&str>, me: &str) -> String {
    let who = match me.strip_prefix("system:serviceaccount:") {
        Some(account) => format!("--serviceaccount={}", quoted(account)),
        None => format!("--user={}", quoted(me)),
    };
    match namespace {
        Some(namespace) => {
            format!(
                "kubectl create rolebinding grantgate-approver -n {} --clusterrole=grantgate-approver {who}",
                quoted(namespace)
            )
        }
        None => format!(
            "kubectl create clusterrolebinding grantgate-approver --clusterrole=grantgate-approver {who}"
        ),
    }
}

/// A name that may stand in a path.
pub fn checked(name: &str) -> Result<(), Failure> {
    let legal = name.len() <= 253
        && name.starts_with(|c: char| c.is_ascii_lowercase() || c.is_ascii_digit())
        && name
            .chars()
            .all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-' || c == '.');
    if legal {
        Ok(())
    } else {
        Err(Failure::Usage(format!(
            "{} is not a name: lower-case letters, digits, `-` and `.`",
            quoted(&one_line(name, 80))
        )))
    }
}
