//! A proposal: one gated change with everything that a request shows and a grant binds.

use crate::{
    api::{
        Action, Requester,
        approval_request::{Base, Fact},
    },
    decide::{bind::Bound, resolve::Rules},
};

/// One gated change. Made once per review and compared with every grant and request of its action key.
#[derive(Clone, Debug)]
pub struct Proposal {
    /// Uid of the admission review.
    pub admission_uid: String,
    /// Who proposes.
    pub requester: Requester,
    /// What is proposed.
    pub action: Action,
    /// Digest of requester, agent and target.
    pub action_key: String,
    /// Change and state, redacted, with their digests.
    pub bound: Bound,
    /// What the matching policies say.
    pub rules: Rules,
    /// The revision shown; absent for CREATE.
    pub base: Option<Base>,
    /// Uid of the object: the target's, or for CREATE the one that the server chose.
    pub object_uid: String,
    /// Whether the review shows a raised generation: the server commits it onto a higher one only.
    pub raises_generation: bool,
    /// Options of the request.
    pub options: Options,
    /// Typed facts about the risk.
    pub facts: Vec<Fact>,
    /// Namespace in which request and grant live.
    pub home: String,
}

/// The options of a request after normalising.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Options {
    /// Canonical JSON, whole.
    pub canonical: String,
    /// Digest of the options without the grace period.
    pub digest: String,
    /// Grace period in seconds, where shown.
    pub grace_seconds: Option<i64>,
}

impl Proposal {
    /// The target in one phrase: `deployments/scale web/api`.
    pub fn target(&self) -> String {
        target(&self.action)
    }
}

/// The target of an action in one phrase: `deployments/scale web/api`, `nodes node-1`, `jobs web/run-*`.
pub fn target(action: &Action) -> String {
    let mut text = action.resource.clone();
    if let Some(subresource) = &action.subresource {
        text.push('/');
        text.push_str(subresource);
    }
    text.push(' ');
    if let Some(namespace) = &action.namespace {
        text.push_str(namespace);
        text.push('/');
    }
    match (&action.name, &action.generate_name) {
        (Some(name), _) => text.push_str(name),
        (None, Some(prefix)) => {
            text.push_str(prefix);
            text.push('*');
        }
        (None, None) => text.push('*'),
    }
    text
}
