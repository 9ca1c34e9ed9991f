//! Whether the gate really holds: a call that only one entry can refuse, through one API server.
//!
//! The canary's account applies a ConfigMap that never exists, as a dry run. The field manager of the call says which entry should send
//! it to the gate, and the gate answers with the digest in the path that it was called by. Refused in our words with the current digest:
//! enforced. Admitted: not enforced, and nothing is stored. Whatever else comes back proves nothing.

use std::time::Duration;

use k8s_openapi::api::core::v1::ConfigMap;
use kube::{
    Api, Client,
    api::{Patch, PatchParams},
};
use serde_json::json;

use super::{configuration::Installed, servers::Servers};
use crate::{
    cluster::client::{CallError, within},
    decide::message,
};

/// The account, and the ConfigMap that never exists.
pub use crate::manifests::CANARY as NAME;
const LIMIT: Duration = Duration::from_secs(10);

/// What a canary's call showed.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Proof {
    /// Refused by the current entry.
    Enforced,
    /// Admitted.
    NotEnforced,
    /// Nothing, in words.
    Unknown(String),
}

/// Proofs of one API server.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Proven {
    /// Its URL.
    pub url: String,
    /// One for each entry.
    pub entries: Vec<Proof>,
}

impl Proven {
    /// What holds for these entries together: one that is not enforced decides, then one that is not known.
    pub fn of(&self, entries: impl IntoIterator<Item = usize>) -> Proof {
        let mut all = Proof::Enforced;
        for entry in entries {
            match self.entries.get(entry) {
                Some(Proof::Enforced) => {}
                Some(Proof::NotEnforced) => return Proof::NotEnforced,
                Some(unknown) => all = unknown.clone(),
                None => all = Proof::Unknown("not tried yet".to_owned()),
            }
        }
        all
    }
}

/// Tries every entry through every API server.
pub async fn prove(servers: &Servers, namespace: &str, entries: &[Installed]) -> Vec<Proven> {
    let all = servers.all();
    let tried = all.iter().map(async |server| {
        let mut proofs = Vec::new();
        let client = servers.as_canary(server, namespace, NAME).await;
        for entry in entries {
            let proof = match &client {
                Ok(client) => one(client, namespace, entry).await,
                Err(error) => Proof::Unknown(error.to_string()),
            };
            proofs.push(proof);
        }
        Proven {
            url: server.url.clone(),
            entries: proofs,
        }
    });
    let proven = futures::future::join_all(tried).await;
    let all = || proven.iter().flat_map(|server| &server.entries);
    if all().any(|proof| matches!(proof, Proof::Unknown(_))) {
        servers.forget_token().await;
    }
    proven
}

async fn one(client: &Client, namespace: &str, entry: &Installed) -> Proof {
    let api: Api<ConfigMap> = Api::namespaced(client.clone(), namespace);
    let params = PatchParams {
        dry_run: true,
        field_manager: Some(entry.canary_manager.clone()),
        ..PatchParams::default()
    };
    let nothing = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": NAME}});
    let answer = within(LIMIT, api.patch(NAME, &params, &Patch::Apply(&nothing))).await;
    read(answer.map(|_| ()), &entry.digest)
}

/// Reads an answer.
fn read(answer: Result<(), CallError>, digest: &str) -> Proof {
    let status = match answer {
        Ok(()) => return Proof::NotEnforced,
        Err(CallError::Api(kube::Error::Api(status))) => status,
        Err(error) => return Proof::Unknown(error.to_string()),
    };
    let refused_by = status
        .message
        .split_once(message::CANARY)
        .map(|(_, rest)| rest.trim());
    match refused_by {
        Some(entry) if status.code == 403 && !digest.is_empty() && entry == digest => {
            Proof::Enforced
        }
        Some(_) => Proof::Unknown("the API server still calls an earlier entry".to_owned()),
        None => Proof::Unknown(status.message.chars().take(300).collect()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refused(code: u16, message: &str) -> Result<(), CallError> {
        let mut status = kube::core::Status::failure(message, "Forbidden");
        status.code = code;
        Err(CallError::Api(kube::Error::Api(Box::new(status))))
    }

    #[test]
    fn only_our_words_with_the_current_digest_are_a_proof() {
        let ours = "admission webhook \"gate.grantgate.dev\" denied the request: grantgate canary: refused by gate entry abc";
        assert_eq!(read(refused(403, ours), "abc"), Proof::Enforced);
        for (answer, digest) in [
            (refused(403, ours), "def"),
            (refused(403, &format!("{ours}d")), "abc"),
            (refused(403, ours), ""),
            (refused(500, ours), "abc"),
            (
                refused(403, "admission webhook \"other\" denied the request"),
                "abc",
            ),
            (
                refused(500, "failed calling webhook \"gate.grantgate.dev\""),
                "abc",
            ),
            (Err(CallError::TimedOut(LIMIT)), "abc"),
        ] {
            assert!(matches!(read(answer, digest), Proof::Unknown(_)));
        }
        assert_eq!(read(Ok(()), "abc"), Proof::NotEnforced);
    }

    #[test]
    fn entries_together_hold_only_if_each_does() {
        let unknown = Proof::Unknown("x".to_owned());
        let proven = Proven {
            url: String::new(),
            entries: vec![Proof::Enforced, unknown.clone(), Proof::NotEnforced],
        };
        assert_eq!(proven.of([0]), Proof::Enforced);
        assert_eq!(proven.of([0, 1]), unknown);
        assert_eq!(proven.of([0, 1, 2]), Proof::NotEnforced);
        assert!(matches!(proven.of([3]), Proof::Unknown(_)));
    }
}
