//! From a body to an answer: reads the review, asks gate, guard or stamp in a task of its own, and counts the outcome.

use std::sync::{
    Arc,
    atomic::{AtomicBool, Ordering},
};

use futures::future::BoxFuture;
use tokio_util::task::TaskTracker;

use crate::{
    decide::{
        assess,
        denial::{Denial, Reason},
        json::{self, Document},
        review::{Review, ReviewError},
    },
    serve::{
        admit::{AdmissionPath, Admit, Answer, Body, Budget},
        gate::{Call, Decision, Gate, denied, denied_unread},
        guard::Guard,
        metrics::Metrics,
        stamp,
    },
};

/// What stands behind the three admission paths.
pub struct Admission {
    /// Agents' writes.
    pub gate: Gate,
    /// People's writes to our own kinds.
    pub guard: Guard,
    /// Counts outcomes.
    pub metrics: Arc<Metrics>,
    /// Decisions in hand, which go on when the API server hangs up.
    pub tasks: TaskTracker,
}

/// Turns a flag off when the handler's future is dropped: the API server hung up.
struct Connected(Arc<AtomicBool>);

impl Drop for Connected {
    fn drop(&mut self) {
        self.0.store(false, Ordering::Release);
    }
}

impl Admit for Admission {
    fn admit(
        self: Arc<Self>,
        path: AdmissionPath,
        body: Arc<Body>,
        budget: Budget,
    ) -> BoxFuture<'static, Answer> {
        Box::pin(async move {
            let connected = Arc::new(AtomicBool::new(true));
            let guard = Connected(connected.clone());
            // A task of its own: a use that is being written must be written to its end, and remembered, whoever hangs up.
            let tasks = self.tasks.clone();
            let task =
                tasks.spawn(async move { self.answer(&path, &body, budget, connected).await });
            let answer = task.await;
            drop(guard);
            match answer {
                Ok(answer) => answer,
                Err(error) => match error.try_into_panic() {
                    // Caught at the request's edge, where it is counted and answered as a denial.
                    Ok(panic) => std::panic::resume_unwind(panic),
                    Err(_) => Answer::Failed("the server is stopping".to_owned()),
                },
            }
        })
    }
}

impl Admission {
    /// Waits until every decision in hand is written to its end.
    pub async fn finish(&self) {
        self.tasks.close();
        self.tasks.wait().await;
    }

    async fn answer(
        &self,
        path: &AdmissionPath,
        body: &Body,
        budget: Budget,
        connected: Arc<AtomicBool>,
    ) -> Answer {
        let document = match json::read(body) {
            Ok(document) => document,
            Err(error) => return Answer::BadRequest(format!("the body is not JSON: {error}")),
        };
        let review = match Review::of(&document) {
            Ok(review) => review,
            Err(error) => return unreadable(&document, &error),
        };
        let decision = match path {
            AdmissionPath::Gate { digest } => {
                let call = Call {
                    entry: digest.clone(),
                    deadline: budget.deadline,
                    connected,
                };
                self.gate.decide(&document, &review, &call).await
            }
            AdmissionPath::Guard => self.guard.decide(&document, &review, budget.deadline).await,
            AdmissionPath::Stamp => match assess::readable(&document) {
                Ok(()) => Decision {
                    response: stamp::stamp(&review),
                    verdict: "Allow",
                    reason: "Stamped",
                },
                Err(denial) => denied(&review, &denial),
            },
        };
        self.metrics
            .decided(path.word(), decision.verdict, decision.reason);
        match decision.response.to_json(review.uid) {
            Ok(json) => Answer::Review(json),
            Err(error) => Answer::Failed(format!("the answer could not be written: {error}")),
        }
    }
}

/// A review that cannot be read: an answer with words where it has a uid.
fn unreadable(document: &Document<'_>, error: &ReviewError) -> Answer {
    let words = error.to_string();
    let Some(uid) =
        Review::uid_of(document).filter(|_| !matches!(error, ReviewError::WrongKind { .. }))
    else {
        return Answer::BadRequest(words);
    };
    let denial = Denial::new(Reason::NotApprovable, "Unreadable", words);
    match denied_unread(&denial).to_json(uid) {
        Ok(json) => Answer::Review(json),
        Err(error) => Answer::Failed(error.to_string()),
    }
}
