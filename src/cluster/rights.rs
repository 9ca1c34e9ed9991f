//! Questions about rights, asked of the API server's own authorizer.

use std::{collections::BTreeMap, time::Duration};

use k8s_openapi::api::authorization::v1::{
    ResourceAttributes, SubjectAccessReview, SubjectAccessReviewSpec,
};
use kube::{Api, Client, api::PostParams};

use crate::{
    cluster::client::{CallError, within},
    decide::review::{Review, User},
};

const LIMIT: Duration = Duration::from_secs(2);

/// A right somebody may have.
#[derive(Clone, Debug, Eq, Hash, PartialEq)]
pub struct Right {
    /// Verb, e.g. `approve`.
    pub verb: String,
    /// API group.
    pub group: String,
    /// Plural resource.
    pub resource: String,
    /// Namespace; empty: the whole cluster.
    pub namespace: String,
    /// Name.
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

/// Asks whether somebody has a right.
pub async fn allowed(client: &Client, person: &Person, right: &Right) -> Result<bool, CallError> {
    let review = SubjectAccessReview {
        spec: SubjectAccessReviewSpec {
            user: Some(person.username.clone()),
            uid: Some(person.uid.clone()).filter(|uid| !uid.is_empty()),
            groups: Some(person.groups.clone()),
            extra: Some(person.extra.clone()).filter(|extra| !extra.is_empty()),
            resource_attributes: Some(ResourceAttributes {
                verb: Some(right.verb.clone()),
                group: Some(right.group.clone()),
                resource: Some(right.resource.clone()),
                namespace: Some(right.namespace.clone()).filter(|namespace| !namespace.is_empty()),
                name: Some(right.name.clone()),
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

/// Whether the requester of a review may itself read the target. In doubt it may not.
pub async fn may_get(client: &Client, review: &Review<'_>) -> bool {
    let person = Person::of(&review.user);
    let right = Right {
        verb: "get".to_owned(),
        group: review.group.to_owned(),
        resource: review.resource.to_owned(),
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
