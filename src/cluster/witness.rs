//! The exact witness: one watch of one name, from the revision of a use to the revision shown.
//!
//! An attempt commits only onto the revision it was shown, so a committed one left a revision in between that holds the change.

use std::time::Duration;

use futures::{AsyncBufReadExt, StreamExt};
use kube::Client;

use crate::{
    cluster::target,
    decide::{
        json,
        redact::Redactor,
        review::Review,
        witness::{self, Seen},
    },
};

/// Whether the kind may be watched for this: Secrets are not read, and of a custom resource's scale the parent's path is not known.
pub fn may_watch(review: &Review<'_>) -> bool {
    if Redactor::covers(review.group, review.resource) {
        return false;
    }
    match review.subresource {
        None | Some("status") => true,
        Some("scale") => target::scale_stands_in_its_parent(review.group, review.resource),
        Some(_) => false,
    }
}

/// Looks at every revision after `from` and before `to`.
pub async fn look(
    client: &Client,
    review: &Review<'_>,
    from: &str,
    to: &str,
    limit: Duration,
) -> Seen {
    let walk = walk(client, review, from, to);
    match tokio::time::timeout(limit, walk).await {
        Ok(Ok(seen)) => seen,
        Ok(Err(error)) => {
            tracing::debug!(%error, "the witness could not look");
            Seen::MaybeCommitted
        }
        Err(_) => Seen::MaybeCommitted,
    }
}

#[derive(Debug, thiserror::Error)]
enum WalkError {
    #[error("{0}")]
    Api(#[from] kube::Error),
    #[error("{0}")]
    Http(#[from] http::Error),
    #[error("{0}")]
    Read(#[from] std::io::Error),
}

async fn walk(
    client: &Client,
    review: &Review<'_>,
    from: &str,
    to: &str,
) -> Result<Seen, WalkError> {
    let Some(name) = review.name else {
        return Ok(Seen::MaybeCommitted);
    };
    let collection = target::collection(
        review.group,
        review.version,
        review.namespace(),
        review.resource,
    );
    let request = http::Request::get(target::watch(&collection, name, from, 3)).body(Vec::new())?;
    let reader = client.request_stream(request).await?;
    let mut lines = std::pin::pin!(reader.lines());
    let Ok(end) = to.parse::<u64>() else {
        return Ok(Seen::MaybeCommitted);
    };
    while let Some(line) = lines.next().await {
        let line = line?;
        let Ok(document) = json::read(&line) else {
            return Ok(Seen::MaybeCommitted);
        };
        if let Some(seen) = witness::event(review, document.root(), end) {
            return Ok(seen);
        }
    }
    Ok(Seen::MaybeCommitted)
}
