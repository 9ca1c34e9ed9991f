//! Answers that the transport gives itself, when the admission logic was not reached or did not come back.

use http::header::{CONTENT_TYPE, HeaderValue};
use http::{Response, StatusCode};
use http_body_util::Full;
use hyper::body::Bytes;

use super::{admit::Answer, response::Refusal};
use crate::decide::{denial::Reason, json};

/// A whole response.
pub(super) type Reply = Response<Full<Bytes>>;

/// How much of a body's beginning is looked at for its uid. The API server writes `kind`, `apiVersion` and
/// `request.uid` first, in some 110 bytes.
pub(super) const BEGINNING: usize = 1024;

/// More candidates than any real envelope has before its uid.
const MOST_CUTS: usize = 32;

/// Why the transport answers in the place of the admission logic.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Unavailable {
    /// The bodies in flight leave no room for this one.
    Busy,
    /// The admission logic panicked.
    Panicked,
    /// It did not come back in time.
    Late,
    /// The body is not UTF-8.
    NotUtf8,
    /// Reading the body would take more memory than there is for all.
    TooLarge,
}

impl Unavailable {
    /// The detail word in `details.causes`.
    fn word(self) -> &'static str {
        match self {
            Self::Busy | Self::Late => "Busy",
            Self::Panicked => "InternalError",
            Self::NotUtf8 => "NotUtf8",
            Self::TooLarge => "TooLargeToReview",
        }
    }

    /// The `reason` of the answer: what comes again later is unavailable, what never will is not approvable.
    fn reason(self) -> Reason {
        match self {
            Self::Busy | Self::Late | Self::Panicked => Reason::ApprovalUnavailable,
            Self::NotUtf8 | Self::TooLarge => Reason::NotApprovable,
        }
    }

    fn words(self) -> &'static str {
        match self {
            Self::Busy => {
                "NOT EXECUTED (this write): grantgate has too many large requests in hand (Busy). \
                 Nothing was decided and no permission was used: try once more in a minute."
            }
            Self::Late => {
                "NOT EXECUTED (this write): grantgate could not decide in the time the API server gives (Busy). \
                 Stop and look at the request, if there is one, before trying once more."
            }
            Self::Panicked => {
                "NOT EXECUTED (this write): grantgate failed while deciding. Neither approved nor refused: stop and \
                 tell the user; the reason is in the log of grantgate-webhook."
            }
            Self::NotUtf8 => {
                "NOT EXECUTED (this write): the review is not valid UTF-8, so it cannot be shown to a person."
            }
            Self::TooLarge => {
                "NOT EXECUTED (this write): the review holds more values than a person could look at. Nothing was changed \
                 and nobody was asked: write less at once."
            }
        }
    }

    fn denial(self, uid: &str) -> Result<String, serde_json::Error> {
        let refusal = Refusal {
            reason: self.reason(),
            message: self.words().to_owned(),
            causes: vec![(self.word(), self.words().to_owned())],
            name: String::new(),
            kind: String::new(),
        };
        super::response::Response::refuse(refusal).to_json(uid)
    }

    /// The denial, to the review that has `uid`; without one the words under an HTTP status.
    pub(super) fn reply(self, uid: Option<&str>) -> Reply {
        match uid.and_then(|uid| self.denial(uid).ok()) {
            Some(denial) => review(denial),
            None => {
                let status = match self {
                    Self::Busy | Self::Late => StatusCode::SERVICE_UNAVAILABLE,
                    Self::Panicked => StatusCode::INTERNAL_SERVER_ERROR,
                    Self::NotUtf8 => StatusCode::BAD_REQUEST,
                    Self::TooLarge => StatusCode::PAYLOAD_TOO_LARGE,
                };
                words(status, self.words())
            }
        }
    }
}

/// What the admission logic answered, on the wire.
pub(super) fn reply(answer: Answer) -> Reply {
    match answer {
        Answer::Review(json) => review(json),
        Answer::BadRequest(text) => words(StatusCode::BAD_REQUEST, text),
        Answer::Failed(text) => words(StatusCode::INTERNAL_SERVER_ERROR, text),
    }
}

/// A response of one or more lines of text.
pub(super) fn words(status: StatusCode, text: impl Into<String>) -> Reply {
    let mut text = text.into();
    if !text.ends_with('\n') {
        text.push('\n');
    }
    typed(status, "text/plain; charset=utf-8", text)
}

/// A response of the given media type.
pub(super) fn typed(status: StatusCode, media_type: &'static str, text: String) -> Reply {
    let mut reply = Response::new(Full::new(Bytes::from(text)));
    *reply.status_mut() = status;
    reply
        .headers_mut()
        .insert(CONTENT_TYPE, HeaderValue::from_static(media_type));
    reply
}

fn review(json: String) -> Reply {
    typed(StatusCode::OK, "application/json", json)
}

/// The uid of a review of which only the beginning is at hand.
///
/// The text is cut before each comma or brace in turn and the two open objects are closed; the first cut that reads
/// as JSON with a `request.uid` has it. Good enough for a denial and for nothing else: a wrong uid makes the API
/// server refuse the answer, and a denial refused is a denial.
pub(super) fn uid_in(body: &[u8]) -> Option<String> {
    let beginning = body.get(..BEGINNING).unwrap_or(body);
    let text = match std::str::from_utf8(beginning) {
        Ok(text) => text,
        Err(problem) => std::str::from_utf8(beginning.get(..problem.valid_up_to())?).ok()?,
    };
    text.match_indices([',', '}'])
        .take(MOST_CUTS)
        .find_map(|(at, _)| {
            let closed = format!("{}}}}}", text.get(..at)?);
            let uid = request_uid(&closed)?;
            let plausible =
                !uid.is_empty() && uid.len() <= 128 && uid.bytes().all(|b| b.is_ascii_graphic());
            plausible.then_some(uid)
        })
}

fn request_uid(text: &str) -> Option<String> {
    let document = json::read(text).ok()?;
    Some(document.root().at("/request/uid")?.as_str()?.to_owned())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]

    use super::*;

    const UID: &str = "705ab4f5-6393-11e8-b7cc-42010a800002";

    #[test]
    fn the_uid_is_read_from_the_beginning_of_a_review() {
        let whole = format!(
            r#"{{"kind":"AdmissionReview","apiVersion":"admission.k8s.io/v1","request":{{"uid":"{UID}","kind":{{"group":"","#
        );
        assert_eq!(uid_in(whole.as_bytes()).as_deref(), Some(UID));
        assert_eq!(
            uid_in(format!(r#"{{"request":{{"uid":"{UID}"}}}}"#).as_bytes()).as_deref(),
            Some(UID)
        );
        let mut broken = format!(r#"{{"request":{{"uid":"{UID}","name":""#).into_bytes();
        broken.extend([0xff, 0xfe]);
        assert_eq!(uid_in(&broken).as_deref(), Some(UID));
    }

    #[test]
    fn a_uid_that_is_not_the_requests_is_not_taken() {
        for text in [
            String::new(),
            "not json, at all".to_owned(),
            format!(r#"{{"uid":"{UID}","#),
            format!(r#"{{"request":{{"object":{{"uid":"{UID}","#),
            format!(r#"{{"note":"\"request\":{{\"uid\":\"{UID}\",","#),
            r#"{"request":{"uid":"","#.to_owned(),
            r#"{"request":{"uid":17,"#.to_owned(),
            "[".repeat(5000) + ",",
        ] {
            assert_eq!(uid_in(text.as_bytes()), None, "{text}");
        }
    }

    #[test]
    fn what_the_transport_denies_carries_the_uid_and_no_code_that_is_repeated() {
        let json: serde_json::Value =
            serde_json::from_str(&Unavailable::Busy.denial(UID).unwrap()).unwrap();
        assert_eq!(json["response"]["uid"], UID);
        assert_eq!(json["response"]["allowed"], false);
        assert_eq!(json["response"]["status"]["code"], 403);
        assert_eq!(json["response"]["status"]["reason"], "ApprovalUnavailable");
        assert_eq!(
            json["response"]["status"]["details"]["causes"][0]["reason"],
            "Busy"
        );
        for why in [
            Unavailable::Busy,
            Unavailable::Late,
            Unavailable::Panicked,
            Unavailable::NotUtf8,
        ] {
            assert!(
                why.words().starts_with("NOT EXECUTED")
                    && why.words().len() <= 350
                    && why.words().is_ascii()
            );
        }
    }
}
