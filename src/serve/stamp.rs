//! The stamp: fills in who decides, from `userInfo`. A ValidatingAdmissionPolicy compares it inside the API server, and the schema
//! requires it, so a vote without its true author cannot be stored, whatever becomes of this webhook.

use base64::{Engine, engine::general_purpose::STANDARD};
use serde_json::json;

use crate::{
    api::Operation,
    decide::{denial::Reason, review::Review},
    serve::response::{Refusal, Response},
};

/// Fills in `spec.approver` of a new ApprovalDecision that has none.
pub fn stamp(review: &Review<'_>) -> Response {
    let ours = review.group == crate::api::GROUP
        && review.resource == "approvaldecisions"
        && review.subresource.is_none()
        && review.operation == Operation::Create;
    let spec = review.object.and_then(|object| object.get("spec"));
    let (true, Some(spec)) = (ours, spec) else {
        return Response::allow();
    };
    if spec
        .get("approver")
        .is_some_and(|approver| !approver.is_null())
    {
        return Response::allow();
    }
    let groups: Vec<&str> = review.user.groups().collect();
    let patch = json!([{
        "op": "add",
        "path": "/spec/approver",
        "value": {"username": review.user.username, "uid": review.user.uid.unwrap_or_default(), "groups": groups},
    }]);
    match serde_json::to_vec(&patch) {
        Ok(patch) => Response {
            patch: Some(STANDARD.encode(patch)),
            ..Response::allow()
        },
        Err(error) => Response::refuse(Refusal {
            reason: Reason::ApprovalUnavailable,
            message: format!("the author of the decision could not be filled in: {error}"),
            causes: Vec::new(),
            name: String::new(),
            kind: "approvaldecisions".to_owned(),
        }),
    }
}
