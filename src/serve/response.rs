//! The AdmissionReview that goes back: `admission.k8s.io/v1`, HTTP 200, code 403 for every denial.

use std::collections::BTreeMap;

use serde::Serialize;

use crate::{api::GROUP, decide::denial::Reason};

/// What goes back for one review.
#[derive(Clone, Debug, Default)]
pub struct Response {
    /// Why not, if not.
    pub refusal: Option<Refusal>,
    /// Shown to the client by the API server.
    pub warnings: Vec<String>,
    /// Audit annotations. Keys hold no slash; over several attempts of one request the first value of a key wins.
    pub audit: BTreeMap<&'static str, String>,
    /// A JSON patch, base64, for the stamp.
    pub patch: Option<String>,
}

/// Why not.
#[derive(Clone, Debug)]
pub struct Refusal {
    /// `status.reason`.
    pub reason: Reason,
    /// One line that stands alone.
    pub message: String,
    /// Detail words, each with what it is about.
    pub causes: Vec<(&'static str, String)>,
    /// Resource name for `details`.
    pub name: String,
    /// Resource kind for `details`.
    pub kind: String,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Wire<'r> {
    api_version: &'static str,
    kind: &'static str,
    response: WireResponse<'r>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct WireResponse<'r> {
    uid: &'r str,
    allowed: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    status: Option<WireStatus<'r>>,
    #[serde(skip_serializing_if = "<[String]>::is_empty")]
    warnings: &'r [String],
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    audit_annotations: &'r BTreeMap<&'static str, String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    patch_type: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    patch: Option<&'r str>,
}

#[derive(Serialize)]
struct WireStatus<'r> {
    status: &'static str,
    code: u16,
    reason: &'static str,
    message: &'r str,
    details: WireDetails<'r>,
}

#[derive(Serialize)]
struct WireDetails<'r> {
    name: &'r str,
    kind: &'r str,
    group: &'static str,
    causes: Vec<WireCause<'r>>,
}

#[derive(Serialize)]
struct WireCause<'r> {
    reason: &'r str,
    message: &'r str,
}

impl Response {
    /// Admitted without further words.
    pub fn allow() -> Self {
        Self::default()
    }

    /// Refused.
    pub fn refuse(refusal: Refusal) -> Self {
        Self {
            refusal: Some(refusal),
            ..Self::default()
        }
    }

    /// Adds an audit annotation.
    pub fn audited(mut self, key: &'static str, value: impl Into<String>) -> Self {
        self.audit.insert(key, value.into());
        self
    }

    /// Adds a warning.
    pub fn warned(mut self, warning: impl Into<String>) -> Self {
        self.warnings.push(warning.into());
        self
    }

    /// The complete answer to the review `uid`.
    pub fn to_json(&self, uid: &str) -> Result<String, serde_json::Error> {
        let status = self.refusal.as_ref().map(|refusal| WireStatus {
            status: "Failure",
            code: 403,
            reason: refusal.reason.as_str(),
            message: &refusal.message,
            details: WireDetails {
                name: &refusal.name,
                kind: &refusal.kind,
                group: GROUP,
                causes: refusal
                    .causes
                    .iter()
                    .map(|(reason, message)| WireCause { reason, message })
                    .collect(),
            },
        });
        serde_json::to_string(&Wire {
            api_version: "admission.k8s.io/v1",
            kind: "AdmissionReview",
            response: WireResponse {
                uid,
                allowed: self.refusal.is_none(),
                status,
                warnings: &self.warnings,
                audit_annotations: &self.audit,
                patch_type: self.patch.as_ref().map(|_| "JSONPatch"),
                patch: self.patch.as_deref(),
            },
        })
    }
}
