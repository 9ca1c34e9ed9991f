//! One request: where it goes, its body, its answer.

use std::panic::AssertUnwindSafe;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use futures::FutureExt;
use http::header::{
    ALLOW, CACHE_CONTROL, CONNECTION, CONTENT_ENCODING, CONTENT_TYPE, HeaderMap, HeaderValue,
};
use http::request::Parts;
use http::{Method, Request, StatusCode};
use http_body_util::BodyExt;
use hyper::body::{Body as _, Incoming};
use tokio::time::{Instant, timeout_at};

use super::admit::{AdmissionPath, Admit, Body, Budget};
use super::answer::{self, BEGINNING, Reply, Unavailable, uid_in, words};
use super::inflight::InFlight;
use super::metrics::{self, Cause, Endpoint, Metrics};
use super::probes::Readiness;
use crate::decide::json;

/// Past the budget, within the second that was kept back: then the transport answers itself.
const LATE: Duration = Duration::from_millis(500);

/// The longest digest in the path of the gate.
const LONGEST_DIGEST: usize = 128;

/// A refused body is read to its end, so that the answer arrives instead of a reset, up to this many times the limit.
const READ_OUT: u64 = 4;

/// What every request needs.
pub(super) struct Shell {
    /// `None` on the port that serves probes alone.
    pub(super) admit: Option<Arc<dyn Admit>>,
    /// Bytes of one body.
    pub(super) largest_body: u64,
    pub(super) in_flight: Arc<InFlight>,
    pub(super) readiness: Readiness,
    pub(super) metrics: Arc<Metrics>,
}

enum Route {
    Admission(AdmissionPath),
    Live,
    Ready,
    Metrics,
}

/// Why a body was not taken.
enum Refused {
    TooLarge,
    Busy,
    Slow,
    Broken,
}

impl Shell {
    /// Answers one request. A panic anywhere in it ends here.
    pub(super) async fn respond(&self, request: Request<Incoming>) -> Reply {
        let seen = OnceLock::new();
        match AssertUnwindSafe(self.answer(request, &seen))
            .catch_unwind()
            .await
        {
            Ok(reply) => reply,
            Err(_) => {
                self.metrics.panics.inc();
                self.refused("panic");
                tracing::error!("a request panicked and was denied");
                let uid = seen
                    .get()
                    .and_then(|body: &Arc<Body>| uid_in(body.as_bytes()));
                Unavailable::Panicked.reply(uid.as_deref())
            }
        }
    }

    async fn answer(&self, request: Request<Incoming>, seen: &OnceLock<Arc<Body>>) -> Reply {
        let (head, mut body) = request.into_parts();
        let budget = Budget::of_query(Instant::now(), head.uri.query());
        let mut reply = self.routed(&head, &mut body, budget, seen).await;
        // hyper closes a connection of which a body was left unread, and the reset can overtake the answer.
        if !body.is_end_stream()
            && !self
                .read_out(&mut body, &mut Vec::new(), budget.deadline + LATE)
                .await
        {
            reply
                .headers_mut()
                .insert(CONNECTION, HeaderValue::from_static("close"));
        }
        reply
    }

    async fn routed(
        &self,
        head: &Parts,
        body: &mut Incoming,
        budget: Budget,
        seen: &OnceLock<Arc<Body>>,
    ) -> Reply {
        let Some(route) = route(head.uri.path()) else {
            self.refused("path");
            return words(
                StatusCode::NOT_FOUND,
                "no such path; there are /gate/DIGEST, /guard, /stamp and the probes",
            );
        };
        match (route, &self.admit) {
            (Route::Admission(path), Some(admit)) => {
                self.admission(path, Arc::clone(admit), head, body, budget, seen)
                    .await
            }
            (Route::Admission(_), None) => {
                self.refused("path");
                words(StatusCode::NOT_FOUND, "this port serves probes alone")
            }
            (_, _) if head.method != Method::GET && head.method != Method::HEAD => {
                wrong_method("GET, HEAD")
            }
            (Route::Live, _) => fresh(words(StatusCode::OK, "alive")),
            (Route::Ready, _) => {
                let report = self.readiness.report();
                let status = if report.all_hold() {
                    StatusCode::OK
                } else {
                    StatusCode::SERVICE_UNAVAILABLE
                };
                fresh(words(status, report.to_string()))
            }
            (Route::Metrics, _) => match self.metrics.text() {
                Ok(text) => fresh(answer::typed(StatusCode::OK, metrics::CONTENT_TYPE, text)),
                Err(_) => words(
                    StatusCode::INTERNAL_SERVER_ERROR,
                    "the metrics cannot be written",
                ),
            },
        }
    }

    async fn admission(
        &self,
        path: AdmissionPath,
        admit: Arc<dyn Admit>,
        head: &Parts,
        body: &mut Incoming,
        budget: Budget,
        seen: &OnceLock<Arc<Body>>,
    ) -> Reply {
        if head.method != Method::POST {
            self.refused("method");
            return wrong_method("POST");
        }
        if let Err(problem) = json_in_clear(&head.headers) {
            self.refused("media_type");
            return words(StatusCode::UNSUPPORTED_MEDIA_TYPE, problem);
        }
        let last = budget.deadline + LATE;
        let mut text = Vec::new();
        let body = match self.receive(body, &mut text, last).await {
            Ok(mut share) => match String::from_utf8(text) {
                Ok(text) => {
                    let whole =
                        (text.len() as u64).saturating_add(json::bytes_to_read(text.as_bytes()));
                    if share.grow_to(whole).is_none() {
                        let (cause, answer) = if whole > self.in_flight.limit() {
                            ("too_many_values", Unavailable::TooLarge)
                        } else {
                            ("busy", Unavailable::Busy)
                        };
                        self.refused(cause);
                        return answer.reply(uid_in(text.as_bytes()).as_deref());
                    }
                    Arc::new(Body::new(text, share))
                }
                Err(problem) => {
                    self.refused("utf8");
                    return Unavailable::NotUtf8.reply(uid_in(problem.as_bytes()).as_deref());
                }
            },
            Err(refused) => return self.refuse(refused, body, text, last).await,
        };
        let _kept = seen.set(Arc::clone(&body));
        let endpoint = path.word();
        let decided = timeout_at(last, admit.admit(path, Arc::clone(&body), budget)).await;
        let took = budget.received.elapsed().as_secs_f64();
        self.metrics
            .latency
            .get_or_create(&Endpoint { endpoint })
            .observe(took);
        match decided {
            Ok(answer) => answer::reply(answer),
            Err(_) => {
                self.refused("late");
                Unavailable::Late.reply(uid_in(body.as_bytes()).as_deref())
            }
        }
    }

    /// Reads a body into `text`, never more than the limit and never more than was reserved.
    async fn receive(
        &self,
        body: &mut Incoming,
        text: &mut Vec<u8>,
        last: Instant,
    ) -> Result<super::inflight::Reservation, Refused> {
        let declared = body.size_hint().exact().unwrap_or(0);
        if declared > self.largest_body {
            return Err(Refused::TooLarge);
        }
        let mut share = self.in_flight.reserve(declared).ok_or(Refused::Busy)?;
        reserve_exact(text, declared)?;
        while let Some(data) = next(body, last).await? {
            let length = (text.len() as u64).saturating_add(data.len() as u64);
            if length > self.largest_body {
                return Err(Refused::TooLarge);
            }
            if length > text.capacity() as u64 {
                // A chunked body tells its length last: its buffer doubles, and the share with it, before it does.
                let room = length
                    .max(text.capacity() as u64 * 2)
                    .min(self.largest_body);
                share.grow_to(room).ok_or(Refused::Busy)?;
                reserve_exact(text, room)?;
            }
            text.extend_from_slice(&data);
        }
        Ok(share)
    }

    async fn refuse(
        &self,
        refused: Refused,
        body: &mut Incoming,
        mut text: Vec<u8>,
        last: Instant,
    ) -> Reply {
        match refused {
            Refused::TooLarge => {
                self.refused("too_large");
                let limit = self.largest_body;
                words(
                    StatusCode::PAYLOAD_TOO_LARGE,
                    format!("the review is larger than {limit} bytes"),
                )
            }
            Refused::Busy => {
                self.refused("busy");
                text.truncate(BEGINNING);
                text.shrink_to_fit();
                self.read_out(body, &mut text, last).await;
                Unavailable::Busy.reply(uid_in(&text).as_deref())
            }
            Refused::Slow => {
                self.refused("slow_body");
                words(
                    StatusCode::REQUEST_TIMEOUT,
                    "the body did not arrive within the time of the call",
                )
            }
            Refused::Broken => {
                self.refused("broken_body");
                words(StatusCode::BAD_REQUEST, "the body is not complete")
            }
        }
    }

    /// Reads a refused body to its end and keeps only its beginning. Whether the end was reached.
    async fn read_out(&self, body: &mut Incoming, beginning: &mut Vec<u8>, last: Instant) -> bool {
        let mut left = self.largest_body.saturating_mul(READ_OUT);
        while let Ok(data) = next(body, last).await {
            let Some(data) = data else { return true };
            left = left.saturating_sub(data.len() as u64);
            if left == 0 {
                return false;
            }
            let wanted = BEGINNING.saturating_sub(beginning.len()).min(data.len());
            beginning.extend_from_slice(data.get(..wanted).unwrap_or_default());
        }
        false
    }

    fn refused(&self, cause: &'static str) {
        self.metrics.refused.get_or_create(&Cause { cause }).inc();
    }
}

fn route(path: &str) -> Option<Route> {
    match path {
        "/guard" => Some(Route::Admission(AdmissionPath::Guard)),
        "/stamp" => Some(Route::Admission(AdmissionPath::Stamp)),
        "/livez" => Some(Route::Live),
        "/readyz" => Some(Route::Ready),
        "/metrics" => Some(Route::Metrics),
        _ => {
            let digest = path.strip_prefix("/gate/")?;
            let one = !digest.is_empty() && digest.len() <= LONGEST_DIGEST && !digest.contains('/');
            one.then(|| {
                Route::Admission(AdmissionPath::Gate {
                    digest: digest.to_owned(),
                })
            })
        }
    }
}

/// The body is JSON, not compressed, as the API server sends it.
fn json_in_clear(headers: &HeaderMap) -> Result<(), &'static str> {
    let media_type = headers
        .get(CONTENT_TYPE)
        .and_then(|value| value.to_str().ok())
        .unwrap_or_default();
    let essence = media_type.split(';').next().unwrap_or_default().trim();
    if !essence.eq_ignore_ascii_case("application/json") {
        return Err("the content type must be application/json");
    }
    match headers.get(CONTENT_ENCODING).map(HeaderValue::as_bytes) {
        None | Some(b"identity") => Ok(()),
        Some(_) => Err("the body must not be compressed"),
    }
}

/// The next bytes of a body; `None` at its end.
async fn next(body: &mut Incoming, last: Instant) -> Result<Option<hyper::body::Bytes>, Refused> {
    loop {
        match timeout_at(last, body.frame()).await {
            Err(_) => return Err(Refused::Slow),
            Ok(None) => return Ok(None),
            Ok(Some(Err(_))) => return Err(Refused::Broken),
            // Trailers say nothing to us.
            Ok(Some(Ok(frame))) => match frame.into_data() {
                Ok(data) => return Ok(Some(data)),
                Err(_) => continue,
            },
        }
    }
}

/// Room for `whole` bytes in all, or `Busy` where the system has no memory: a body must not abort the process.
fn reserve_exact(text: &mut Vec<u8>, whole: u64) -> Result<(), Refused> {
    let whole = usize::try_from(whole).map_err(|_| Refused::TooLarge)?;
    text.try_reserve_exact(whole.saturating_sub(text.len()))
        .map_err(|_| Refused::Busy)
}

fn wrong_method(allowed: &'static str) -> Reply {
    let mut reply = words(
        StatusCode::METHOD_NOT_ALLOWED,
        format!("this path takes {allowed}"),
    );
    reply
        .headers_mut()
        .insert(ALLOW, HeaderValue::from_static(allowed));
    reply
}

fn fresh(mut reply: Reply) -> Reply {
    reply
        .headers_mut()
        .insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    reply
}
