//! The admission review as the API server sent it: borrowed, untyped where types could lose something.
//!
//! Shapes: `admission.k8s.io/v1` AdmissionReview; keys that are empty are absent, `object`, `oldObject` and `options` are
//! `null` where there is nothing (recorded in `tests/reviews`).

use std::collections::BTreeMap;

use crate::{
    api::Operation,
    decide::json::{Document, Value},
};

/// One review, borrowed from the body.
#[derive(Clone, Copy, Debug)]
pub struct Review<'d> {
    /// `request.uid`: new for every call of the webhook.
    pub uid: &'d str,
    /// What the request does.
    pub operation: Operation,
    /// API group of the resource.
    pub group: &'d str,
    /// API version of the resource, as requested.
    pub version: &'d str,
    /// Plural resource name.
    pub resource: &'d str,
    /// Kind of the object, e.g. `Deployment`.
    pub kind: &'d str,
    /// Subresource, absent for the main resource.
    pub subresource: Option<&'d str>,
    /// `request.namespace`: for a Namespace object its own name.
    pub request_namespace: Option<&'d str>,
    /// `request.name`; absent for deletecollection.
    pub name: Option<&'d str>,
    /// Who asks.
    pub user: User<'d>,
    /// The object as it would be stored.
    pub object: Option<Value<'d>>,
    /// The object as it is.
    pub old_object: Option<Value<'d>>,
    /// The request's options.
    pub options: Option<Value<'d>>,
    /// Whether nothing will be stored.
    pub dry_run: bool,
}

/// `request.userInfo`.
#[derive(Clone, Copy, Debug)]
pub struct User<'d> {
    /// Username.
    pub username: &'d str,
    /// Uid, where the API server knows one.
    pub uid: Option<&'d str>,
    groups: Option<Value<'d>>,
    extra: Option<Value<'d>>,
}

/// Why a body is no review that can be decided.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
pub enum ReviewError {
    /// The body is not an AdmissionReview of a version known here.
    #[error(
        "not an admission.k8s.io/v1 AdmissionReview but apiVersion {api_version:?}, kind {kind:?}"
    )]
    WrongKind {
        /// apiVersion found.
        api_version: String,
        /// kind found.
        kind: String,
    },
    /// Without a uid no answer can be given.
    #[error("request.uid is missing")]
    NoUid,
    /// A member is missing or of another type.
    #[error("{path} is missing or not {expected}")]
    Missing {
        /// Path of the member.
        path: &'static str,
        /// What was expected.
        expected: &'static str,
    },
}

impl<'d> Review<'d> {
    /// The uid alone, for answers to bodies that are otherwise unreadable.
    pub fn uid_of(document: &'d Document<'_>) -> Option<&'d str> {
        let uid = document.root().get("request")?.get("uid")?.as_str()?;
        (!uid.is_empty()).then_some(uid)
    }

    /// Reads a review. Every error but `WrongKind` and `NoUid` can be answered with the uid.
    pub fn of(document: &'d Document<'_>) -> Result<Self, ReviewError> {
        let root = document.root();
        let word = |key| root.get(key).and_then(|v| v.as_str()).unwrap_or_default();
        if word("apiVersion") != "admission.k8s.io/v1" || word("kind") != "AdmissionReview" {
            return Err(ReviewError::WrongKind {
                api_version: clip(word("apiVersion")),
                kind: clip(word("kind")),
            });
        }
        let uid = Self::uid_of(document).ok_or(ReviewError::NoUid)?;
        let request = root.get("request").ok_or(ReviewError::NoUid)?;
        let text = |value: Option<Value<'d>>, path, expected| {
            value
                .and_then(|v| v.as_str())
                .ok_or(ReviewError::Missing { path, expected })
        };
        let resource = request.get("resource").ok_or(ReviewError::Missing {
            path: "request.resource",
            expected: "an object",
        })?;
        let operation = match text(request.get("operation"), "request.operation", "a string")? {
            "CREATE" => Operation::Create,
            "UPDATE" => Operation::Update,
            "DELETE" => Operation::Delete,
            "CONNECT" => Operation::Connect,
            _ => Operation::Unknown,
        };
        let user = request.get("userInfo").ok_or(ReviewError::Missing {
            path: "request.userInfo",
            expected: "an object",
        })?;
        let optional = |key| {
            request
                .get(key)
                .and_then(|v| v.as_str())
                .filter(|text| !text.is_empty())
        };
        let present = |key| request.get(key).filter(|v| !v.is_null());
        Ok(Self {
            uid,
            operation,
            group: resource
                .get("group")
                .and_then(|v| v.as_str())
                .unwrap_or_default(),
            version: text(
                resource.get("version"),
                "request.resource.version",
                "a string",
            )?,
            resource: text(
                resource.get("resource"),
                "request.resource.resource",
                "a string",
            )?,
            kind: request
                .at("/kind/kind")
                .and_then(|v| v.as_str())
                .unwrap_or_default(),
            subresource: optional("subResource"),
            request_namespace: optional("namespace"),
            name: optional("name"),
            user: User {
                username: text(
                    user.get("username"),
                    "request.userInfo.username",
                    "a string",
                )?,
                uid: user
                    .get("uid")
                    .and_then(|v| v.as_str())
                    .filter(|uid| !uid.is_empty()),
                groups: user.get("groups"),
                extra: user.get("extra"),
            },
            object: present("object"),
            old_object: present("oldObject"),
            options: present("options"),
            dry_run: request
                .get("dryRun")
                .and_then(|v| v.as_bool())
                .unwrap_or(false),
        })
    }

    /// Namespace of the target: absent for cluster-scoped targets, also for Namespace objects, whose
    /// `request.namespace` is their own name.
    pub fn namespace(&self) -> Option<&'d str> {
        self.request_namespace
            .filter(|_| !is_namespace(self.group, self.resource))
    }

    /// A string of the object's or, where there is none, the old object's metadata.
    pub fn metadata(&self, key: &str) -> Option<&'d str> {
        self.object
            .or(self.old_object)
            .and_then(|object| object.get("metadata"))
            .and_then(|metadata| metadata.get(key))
            .and_then(|value| value.as_str())
            .filter(|text| !text.is_empty())
    }

    /// A member of the old object's metadata.
    pub fn old_metadata(&self, key: &str) -> Option<Value<'d>> {
        self.old_object?.get("metadata")?.get(key)
    }
}

impl<'d> User<'d> {
    /// Groups in the order given.
    pub fn groups(&self) -> impl Iterator<Item = &'d str> + use<'d> {
        self.groups
            .into_iter()
            .flat_map(|groups| groups.items())
            .filter_map(|group| group.as_str())
    }

    /// Every value under an extra key, whatever the key's letter case.
    pub fn extra(&self, key: &str) -> Vec<&'d str> {
        let Some(extra) = self.extra else {
            return Vec::new();
        };
        extra
            .entries()
            .filter(|(name, _)| name.eq_ignore_ascii_case(key))
            .flat_map(|(_, values)| values.items())
            .map(|value| value.as_str().unwrap_or_default())
            .collect()
    }

    /// All extra, for questions about rights: an authorizer may look at it, e.g. at the scopes of a token.
    pub fn extras(&self) -> BTreeMap<String, Vec<String>> {
        let text = |value: Value<'d>| value.as_str().unwrap_or_default().to_owned();
        self.extra
            .into_iter()
            .flat_map(|extra| extra.entries())
            .map(|(key, values)| (key.to_owned(), values.items().map(text).collect()))
            .collect()
    }

    /// Whether an extra key is there, whatever its letter case, also without a value.
    pub fn has_extra(&self, key: &str) -> bool {
        self.extra.is_some_and(|extra| {
            extra
                .entries()
                .any(|(name, _)| name.eq_ignore_ascii_case(key))
        })
    }
}

/// Whether the target is a Namespace object: it lives in none, and its review names it as its own.
pub fn is_namespace(group: &str, resource: &str) -> bool {
    group.is_empty() && resource == "namespaces"
}

fn clip(text: &str) -> String {
    text.chars().take(64).collect()
}
