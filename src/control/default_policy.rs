//! `ClusterApprovalPolicy/grantgate-default`: what holds where no policy matches. Made when absent, and never changed again: it is the
//! platform team's from then on.

use std::time::Duration;

use kube::{Api, Client, api::PostParams};

use crate::{
    api::{
        ClusterApprovalPolicy, ClusterApprovalPolicySpec, PolicyBody,
        approval_policy::{
            Approvers, Effect, KubernetesTarget, Required, Scope, Silence, SilenceAction, Target,
        },
        reference::Validity,
    },
    cluster::client::{CallError, within},
    decide::policy::{DEFAULT_DURATION_SECONDS, DEFAULT_EXPIRE_SECONDS, DEFAULT_USES},
};

/// Its name.
pub use crate::decide::resolve::DEFAULT_POLICY as NAME;
const LIMIT: Duration = Duration::from_secs(10);

/// Every change asks; one person who holds verb `approve` on it decides; one use within ten minutes; silence of half an hour ends the request.
pub fn object() -> ClusterApprovalPolicy {
    let body = PolicyBody {
        effect: Effect::RequireApproval,
        targets: vec![Target {
            kubernetes: Some(KubernetesTarget {
                scope: Some(Scope::All),
                ..KubernetesTarget::default()
            }),
        }],
        agents: None,
        approvers: Some(Approvers {
            required: vec![Required {
                count: 1,
                from: Vec::new(),
            }],
            ..Approvers::default()
        }),
        validity: Some(Validity {
            uses: Some(DEFAULT_USES),
            duration_seconds: Some(DEFAULT_DURATION_SECONDS),
        }),
        on_silence: vec![Silence {
            after_seconds: DEFAULT_EXPIRE_SECONDS,
            action: SilenceAction::Expire,
        }],
        denial_cooldown_seconds: None,
        binding: None,
    };
    ClusterApprovalPolicy::new(
        NAME,
        ClusterApprovalPolicySpec {
            body,
            namespace_may: Vec::new(),
        },
    )
}

/// Creates it when it is absent.
pub async fn ensure(client: &Client) -> Result<(), CallError> {
    let api: Api<ClusterApprovalPolicy> = Api::all(client.clone());
    if within(LIMIT, api.get_metadata_opt(NAME)).await?.is_some() {
        return Ok(());
    }
    tracing::info!(policy = NAME, "creating");
    match within(LIMIT, api.create(&PostParams::default(), &object())).await {
        Err(error) if !error.is_already_exists() => Err(error),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::decide::policy::Policy;

    #[test]
    fn the_default_policy_has_no_problems() {
        assert_eq!(Policy::compile_cluster(&object()).problems, []);
    }
}
