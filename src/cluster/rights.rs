//! Questions about rights, asked of the API server's own authorizer.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use k8s_openapi::api::authorization::v1::{
    ResourceAttributes, SubjectAccessReview, SubjectAccessReviewSpec,
};
use kube::{Api, Client, api::PostParams};

use crate::{
    api::{ApprovalRequest, Approver, GROUP},
    cluster::client::{CallError, within},
    decide::{
        quorum,
        review::{Review, User},
    },
};

const LIMIT: Duration = Duration::from_secs(2);

/// A right somebody may have.
#[derive(Clone, Debug, Default, Eq, Hash, PartialEq)]
pub struct Right {
    /// Verb, e.g. `approve`.
    pub verb: String,
    /// API group.
    pub group: String,
    /// Plural resource.
    pub resource: String,
    /// Subresource; empty: the main resource.
    pub subresource: String,
    /// Namespace; empty: the whole cluster.
    pub namespace: String,
    /// Name; empty: every one.
    pub name: String,
}

/// Somebody as the API server authenticated them.
#[derive(Clone, Debug, Default, Eq, Hash, PartialEq)]
pub struct Person {
    /// Username.
    pub username: String,
    /// Uid; empty where there is none.
    pub uid: String,
    /// Groups.
    pub groups: Vec<String>,
    /// Extra, which webhook authorizers may look at.
    pub extra: BTreeMap<String, Vec<String>>,
}

impl Person {
    /// Who made a request, with everything that the API server knows of them.
    pub fn of(user: &User<'_>) -> Self {
        Self {
            username: user.username.to_owned(),
            uid: user.uid.unwrap_or_default().to_owned(),
            groups: user.groups().map(str::to_owned).collect(),
            extra: user.extras(),
        }
    }
}

impl From<&Approver> for Person {
    fn from(approver: &Approver) -> Self {
        Self {
            username: approver.username.clone(),
            uid: approver.uid.clone(),
            groups: approver.groups.clone(),
            extra: BTreeMap::new(),
        }
    }
}

/// Asks whether somebody has a right.
pub async fn allowed(client: &Client, person: &Person, right: &Right) -> Result<bool, CallError> {
    let some = |text: &str| Some(text.to_owned()).filter(|text| !text.is_empty());
    let review = SubjectAccessReview {
        spec: SubjectAccessReviewSpec {
            user: Some(person.username.clone()),
            uid: some(&person.uid),
            groups: Some(person.groups.clone()),
            extra: Some(person.extra.clone()).filter(|extra| !extra.is_empty()),
            resource_attributes: Some(ResourceAttributes {
                verb: Some(right.verb.clone()),
                group: Some(right.group.clone()),
                resource: Some(right.resource.clone()),
                subresource: some(&right.subresource),
                namespace: some(&right.namespace),
                name: some(&right.name),
                ..ResourceAttributes::default()
            }),
            ..SubjectAccessReviewSpec::default()
        },
        ..SubjectAccessReview::default()
    };
    let api: Api<SubjectAccessReview> = Api::all(client.clone());
    let answer = within(LIMIT, api.create(&PostParams::default(), &review)).await?;
    Ok(answer.status.is_some_and(|status| status.allowed))
}

/// The policies of a request, by label, on which somebody holds verb `approve`, asked in the namespace of the target.
pub async fn approvable(
    client: &Client,
    person: &Person,
    request: &ApprovalRequest,
) -> Result<BTreeSet<String>, CallError> {
    let mut may = BTreeSet::new();
    let asking = request.spec.policies.iter();
    for policy in asking.filter(|policy| policy.approvers.is_some()) {
        let resource = match policy.namespace {
            Some(_) => "approvalpolicies",
            None => "clusterapprovalpolicies",
        };
        let right = Right {
            verb: "approve".to_owned(),
            group: GROUP.to_owned(),
            resource: resource.to_owned(),
            namespace: request.spec.action.namespace.clone().unwrap_or_default(),
            name: policy.name.clone(),
            ..Right::default()
        };
        if allowed(client, person, &right).await? {
            may.insert(quorum::policy_label(policy));
        }
    }
    Ok(may)
}

/// Whether the requester of a review may itself read the target. In doubt it may not.
pub async fn may_get(client: &Client, review: &Review<'_>) -> bool {
    let person = Person::of(&review.user);
    let right = Right {
        verb: "get".to_owned(),
        group: review.group.to_owned(),
        resource: review.resource.to_owned(),
        subresource: review.subresource.unwrap_or_default().to_owned(),
        namespace: review.namespace().unwrap_or_default().to_owned(),
        name: review.name.unwrap_or_default().to_owned(),
    };
    allowed(client, &person, &right)
        .await
        .unwrap_or_else(|error| {
            tracing::warn!(%error, "cannot ask for the requester's right to read");
            false
        })
}
