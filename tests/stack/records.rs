//! Requests, decisions and grants as tests look at them.

use grantgate::api::{
    ApprovalDecision, ApprovalRequest, Grant,
    approval_request::RequestPhase,
    grant::{GrantPhase, Use},
};
use kube::{
    Api,
    api::{ListParams, Patch, PatchParams, PostParams},
};
use serde_json::{Value, json};

use super::{Agent, Answer, Stack};
use crate::cluster::{
    User,
    wait::{PATIENCE, eventually},
};

/// What a decision came to.
pub struct Decided {
    /// The request afterwards.
    pub request: ApprovalRequest,
    /// The grant, if there is one.
    pub grant: Option<Grant>,
}

/// The phase of a request; absent: Pending.
pub fn request_phase(request: &ApprovalRequest) -> Option<RequestPhase> {
    request.status.as_ref().and_then(|status| status.phase)
}

/// The phase of a grant.
pub fn grant_phase(grant: &Grant) -> GrantPhase {
    grant
        .status
        .as_ref()
        .and_then(|status| status.phase)
        .unwrap_or_default()
}

impl Stack<'_> {
    /// Every request of a namespace, oldest first.
    pub async fn requests(&self, namespace: &str) -> Vec<ApprovalRequest> {
        let api: Api<ApprovalRequest> = Api::namespaced(self.cluster.admin(), namespace);
        let mut requests = api.list(&ListParams::default()).await.unwrap().items;
        requests.sort_by_key(|request| {
            request
                .metadata
                .resource_version
                .as_deref()
                .unwrap()
                .parse::<u64>()
                .unwrap()
        });
        requests
    }

    /// One request.
    pub async fn request(&self, namespace: &str, name: &str) -> ApprovalRequest {
        Api::namespaced(self.cluster.admin(), namespace)
            .get(name)
            .await
            .unwrap()
    }

    /// The request that an answer names.
    pub async fn request_of(&self, answer: &Answer) -> ApprovalRequest {
        let (namespace, name) = answer
            .request()
            .unwrap_or_else(|| panic!("no request in {answer:?}"));
        self.request(&namespace, &name).await
    }

    /// One grant.
    pub async fn grant(&self, namespace: &str, name: &str) -> Grant {
        Api::namespaced(self.cluster.admin(), namespace)
            .get(name)
            .await
            .unwrap()
    }

    /// Every grant of a namespace.
    pub async fn grants(&self, namespace: &str) -> Vec<Grant> {
        let api: Api<Grant> = Api::namespaced(self.cluster.admin(), namespace);
        api.list(&ListParams::default()).await.unwrap().items
    }

    /// A decision as a person creates it, author left out.
    pub fn decision(request: &ApprovalRequest, verdict: &str) -> Value {
        json!({
            "apiVersion": "grantgate.dev/v1alpha1", "kind": "ApprovalDecision",
            "metadata": {"generateName": "d-", "namespace": request.metadata.namespace},
            "spec": {
                "requests": [{"name": request.metadata.name, "uid": request.metadata.uid, "digest": request.spec.digest}],
                "verdict": verdict,
            },
        })
    }

    /// Casts a vote; the API server's answer.
    pub async fn vote(
        &self,
        user: &User,
        request: &ApprovalRequest,
        verdict: &str,
    ) -> Result<ApprovalDecision, kube::Error> {
        let namespace = request.metadata.namespace.clone().unwrap();
        let decision = serde_json::from_value(Self::decision(request, verdict)).unwrap();
        let api: Api<ApprovalDecision> = Api::namespaced(self.cluster.client(user), &namespace);
        api.create(&PostParams::default(), &decision).await
    }

    /// Ana approves the request that an answer names; returns when its grant is usable.
    pub async fn approve(&self, answer: &Answer) -> Decided {
        self.approve_request(&self.request_of(answer).await).await
    }

    /// Ana approves a request; returns when its grant is usable.
    pub async fn approve_request(&self, request: &ApprovalRequest) -> Decided {
        self.vote(&User::ana(), request, "Approve").await.unwrap();
        let (namespace, name) = (
            request.metadata.namespace.clone().unwrap(),
            request.metadata.name.clone().unwrap(),
        );
        let request = eventually("the grant is minted", PATIENCE, async || {
            let request = self.request(&namespace, &name).await;
            request
                .status
                .as_ref()?
                .grant
                .as_ref()?
                .uid
                .is_some()
                .then_some(request)
        })
        .await
        .unwrap();
        let grant = request
            .status
            .as_ref()
            .unwrap()
            .grant
            .as_ref()
            .unwrap()
            .name
            .clone();
        let grant = self.grant(&namespace, &grant).await;
        Decided {
            request,
            grant: Some(grant),
        }
    }

    /// Ana denies the request that an answer names.
    pub async fn deny(&self, answer: &Answer) -> ApprovalRequest {
        let request = self.request_of(answer).await;
        self.vote(&User::ana(), &request, "Deny").await.unwrap();
        self.wait_request_phase(&request, RequestPhase::Denied)
            .await
    }

    /// Waits for a phase of a request.
    pub async fn wait_request_phase(
        &self,
        request: &ApprovalRequest,
        phase: RequestPhase,
    ) -> ApprovalRequest {
        let (namespace, name) = (
            request.metadata.namespace.clone().unwrap(),
            request.metadata.name.clone().unwrap(),
        );
        eventually(&format!("the request is {phase:?}"), PATIENCE, async || {
            let request = self.request(&namespace, &name).await;
            (request_phase(&request) == Some(phase)).then_some(request)
        })
        .await
        .unwrap()
    }

    /// Waits for a phase of a grant.
    pub async fn wait_grant_phase(&self, grant: &Grant, phase: GrantPhase) -> Grant {
        let (namespace, name) = (
            grant.metadata.namespace.clone().unwrap(),
            grant.metadata.name.clone().unwrap(),
        );
        eventually(&format!("the grant is {phase:?}"), PATIENCE, async || {
            let grant = self.grant(&namespace, &name).await;
            (grant_phase(&grant) == phase).then_some(grant)
        })
        .await
        .unwrap()
    }

    /// A person revokes a grant, as kubectl would.
    pub async fn revoke(&self, grant: &Grant) {
        let api: Api<Grant> = Api::namespaced(
            self.cluster.client(&User::ana()),
            grant.metadata.namespace.as_deref().unwrap(),
        );
        let patch = Patch::Merge(json!({"spec": {"revoked": true}}));
        api.patch(
            grant.metadata.name.as_deref().unwrap(),
            &PatchParams::default(),
            &patch,
        )
        .await
        .unwrap();
    }

    /// The uses of a grant as stored now.
    pub async fn uses(&self, grant: &Grant) -> Vec<Use> {
        let grant = self
            .grant(
                grant.metadata.namespace.as_deref().unwrap(),
                grant.metadata.name.as_deref().unwrap(),
            )
            .await;
        grant
            .status
            .map(|status| status.uses.into_values().collect())
            .unwrap_or_default()
    }

    /// The agent scales, ana approves, and the grant is returned before it is used.
    pub async fn approved_scale(&self, agent: &Agent, replicas: i32) -> Grant {
        let answer = self
            .scale(agent, replicas)
            .await
            .expect_refused("ApprovalPending");
        self.approve(&answer).await.grant.unwrap()
    }
}
