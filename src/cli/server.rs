//! The one connection of a command: no retries, a deadline on every call, and the server's clock.

use std::{
    sync::atomic::{AtomicI64, Ordering},
    time::{Duration, Instant},
};

use futures::{FutureExt, StreamExt};
use jiff::{SignedDuration, Timestamp};
use kube::{
    Client, Config,
    client::Body,
    config::{KubeConfigOptions, Kubeconfig},
    core::{DynamicObject, Status, WatchEvent},
};
use serde_json::{Value, json};

use super::{
    Flags,
    exit::Failure,
    kinds::{Kind, bind_approver, checked, missing_verb},
    person::Person,
};
use crate::{
    cluster::{clock::Clock, target::escaped},
    decide::visible::{one_line, visible},
};

/// Items of one page of a list.
const PAGE: usize = 500;
/// Longest message of the server that is repeated.
const MESSAGE: usize = 1_500;

/// A connected API server.
pub struct Server {
    client: Client,
    /// `--namespace`, where given.
    pub namespace_flag: Option<String>,
    /// `--namespace`, else the context's.
    pub namespace: String,
    /// Where the API server is.
    pub url: String,
    timeout: Duration,
    /// What the server's clock is ahead of ours, in milliseconds.
    ahead: AtomicI64,
}

/// How long a command still waits.
#[derive(Clone, Copy, Debug)]
pub struct Patience {
    end: Instant,
}

impl Patience {
    /// So long from now.
    pub fn of(limit: Duration) -> Self {
        Self {
            end: Instant::now() + limit,
        }
    }

    /// What is left of it; zero when it is over.
    pub fn left(self) -> Duration {
        self.end.saturating_duration_since(Instant::now())
    }
}

/// Why a call gave nothing.
#[derive(Debug)]
pub enum Refusal {
    /// The API server answered with a failure.
    Status(Box<Status>),
    /// No answer that can be read.
    Failure(Failure),
}

impl Server {
    /// Connects as the flags say. Nothing is sent yet.
    pub async fn connect(flags: &Flags) -> Result<Self, Failure> {
        let config_error =
            |error: &dyn std::fmt::Display| Failure::Config(visible(&error.to_string()));
        let options = KubeConfigOptions {
            context: flags.context.clone(),
            cluster: flags.cluster.clone(),
            user: flags.user.clone(),
        };
        let chosen = flags.kubeconfig.is_some()
            || options.context.is_some()
            || options.cluster.is_some()
            || options.user.is_some();
        let mut config = match &flags.kubeconfig {
            Some(path) => {
                let file = Kubeconfig::read_from(path).map_err(|error| config_error(&error))?;
                Config::from_custom_kubeconfig(file, &options)
                    .await
                    .map_err(|error| config_error(&error))?
            }
            None if chosen => Config::from_kubeconfig(&options)
                .await
                .map_err(|error| config_error(&error))?,
            None => Config::infer()
                .await
                .map_err(|error| config_error(&error))?,
        };
        if flags.impersonate.is_none() && !flags.impersonate_groups.is_empty() {
            return Err(Failure::Usage("--as-group needs --as".to_owned()));
        }
        if let Some(user) = &flags.impersonate {
            config.auth_info.impersonate = Some(user.clone());
            config.auth_info.impersonate_groups =
                (!flags.impersonate_groups.is_empty()).then(|| flags.impersonate_groups.clone());
            config.auth_info.impersonate_uid = None;
            config.auth_info.impersonate_user_extra = None;
        }
        // A repeated write is a second decision: whatever fails is said, not tried again.
        config.default_retry = false;
        let namespace = flags
            .namespace
            .clone()
            .unwrap_or_else(|| config.default_namespace.clone());
        for namespace in flags.namespace.iter().chain([&namespace]) {
            checked(namespace)?;
        }
        let url = visible(&config.cluster_url.to_string());
        let client = Client::try_from(config).map_err(|error| config_error(&error))?;
        Ok(Self {
            client,
            namespace_flag: flags.namespace.clone(),
            namespace,
            url,
            timeout: flags.request_timeout,
            ahead: AtomicI64::new(0),
        })
    }

    /// The time by the server's clock, as far as an answer has shown it. A reviewer's machine may be minutes off.
    pub fn now(&self) -> Timestamp {
        let ahead = SignedDuration::from_millis(self.ahead.load(Ordering::Relaxed));
        Clock::local()
            .checked_add(ahead)
            .unwrap_or_else(|_| Clock::local())
    }

    /// Sends one call and returns the text of the answer, byte for byte.
    pub async fn call(
        &self,
        method: http::Method,
        path: &str,
        body: Option<&Value>,
    ) -> Result<String, Refusal> {
        let unreachable =
            |text: String| Refusal::Failure(Failure::Unreachable(one_line(&text, MESSAGE)));
        let content_type = if method == http::Method::PATCH {
            "application/merge-patch+json"
        } else {
            "application/json"
        };
        let bytes = body
            .map(|body| body.to_string().into_bytes())
            .unwrap_or_default();
        let request = http::Request::builder()
            .method(method)
            .uri(path)
            .header(http::header::ACCEPT, "application/json")
            .header(http::header::CONTENT_TYPE, content_type)
            .body(Body::from(bytes))
            .map_err(|error| unreachable(error.to_string()))?;
        let exchange = async {
            let started = Clock::local();
            let response = self
                .client
                .send(request)
                .await
                .map_err(|error| unreachable(chain(&error)))?;
            self.learn_clock(started, response.headers());
            let status = response.status();
            let bytes = response
                .into_body()
                .collect_bytes()
                .await
                .map_err(|error| unreachable(chain(&error)))?;
            let text = String::from_utf8(bytes.to_vec())
                .map_err(|error| unreachable(error.to_string()))?;
            if status.is_success() {
                return Ok(text);
            }
            Err(Refusal::Status(Box::new(
                serde_json::from_str::<Status>(&text).unwrap_or_else(|_| Status {
                    code: status.as_u16(),
                    message: one_line(&text, MESSAGE),
                    ..Status::default()
                }),
            )))
        };
        match tokio::time::timeout(self.timeout, exchange).await {
            Ok(answer) => answer,
            Err(_) => Err(unreachable(format!(
                "no answer within {} s",
                self.timeout.as_secs()
            ))),
        }
    }

    fn learn_clock(&self, started: Timestamp, headers: &http::HeaderMap) {
        let ended = Clock::local();
        let date = headers
            .get(http::header::DATE)
            .and_then(|date| date.to_str().ok());
        let Some(date) = date.and_then(|date| jiff::fmt::rfc2822::parse(date).ok()) else {
            return;
        };
        let middle = started.as_millisecond().midpoint(ended.as_millisecond());
        // The header has whole seconds: its middle is the best guess, and less than a second is no offset at all.
        let ahead = date.timestamp().as_millisecond() + 500 - middle;
        self.ahead.store(
            if ahead.abs() <= 1_000 { 0 } else { ahead },
            Ordering::Relaxed,
        );
    }

    /// GET of one object, as text.
    pub async fn get(
        &self,
        kind: Kind,
        namespace: Option<&str>,
        name: &str,
    ) -> Result<String, Refusal> {
        self.call(
            http::Method::GET,
            &format!("{}/{name}", kind.path(namespace)),
            None,
        )
        .await
    }

    /// Every object of a collection, page by page.
    pub async fn list(&self, kind: Kind, namespace: Option<&str>) -> Result<Vec<Value>, Failure> {
        let mut items = Vec::new();
        let mut next = String::new();
        loop {
            let path = format!("{}?limit={PAGE}{next}", kind.path(namespace));
            let text = match self.call(http::Method::GET, &path, None).await {
                Ok(text) => text,
                Err(refusal) => {
                    let what = match namespace {
                        Some(namespace) => format!("list {} in namespace {namespace}", kind.plural),
                        None => format!("list {} in all namespaces", kind.plural),
                    };
                    return Err(self
                        .explain(refusal, "list", kind, namespace, None, &what)
                        .await);
                }
            };
            let mut page: Value =
                serde_json::from_str(&text).map_err(|error| unreadable(&error))?;
            if let Some(Value::Array(found)) = page.get_mut("items").map(Value::take) {
                items.extend(found);
            }
            match page.pointer("/metadata/continue").and_then(Value::as_str) {
                Some(token) if !token.is_empty() => next = format!("&continue={}", escaped(token)),
                _ => return Ok(items),
            }
        }
    }

    /// Who the API server takes us for.
    pub async fn whoami(&self) -> Result<Person, Failure> {
        let body = json!({"apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview"});
        let text = match self
            .call(
                http::Method::POST,
                "/apis/authentication.k8s.io/v1/selfsubjectreviews",
                Some(&body),
            )
            .await
        {
            Ok(text) => text,
            Err(Refusal::Status(status)) => {
                return Err(self.explain_status(&status, "ask who you are"));
            }
            Err(Refusal::Failure(failure)) => return Err(failure),
        };
        let review: Value = serde_json::from_str(&text).map_err(|error| unreadable(&error))?;
        serde_json::from_value(
            review
                .pointer("/status/userInfo")
                .cloned()
                .unwrap_or_default(),
        )
        .map_err(|error| unreadable(&error))
    }

    /// Whether RBAC lets us do something (SelfSubjectAccessReview).
    pub async fn may(
        &self,
        verb: &str,
        plural: &str,
        namespace: Option<&str>,
        name: Option<&str>,
    ) -> Result<bool, Failure> {
        let mut attributes = json!({"verb": verb, "group": crate::api::GROUP, "resource": plural});
        if let Some(members) = attributes.as_object_mut() {
            members.extend(namespace.map(|namespace| ("namespace".to_owned(), json!(namespace))));
            members.extend(name.map(|name| ("name".to_owned(), json!(name))));
        }
        let body = json!({
            "apiVersion": "authorization.k8s.io/v1", "kind": "SelfSubjectAccessReview",
            "spec": {"resourceAttributes": attributes},
        });
        let path = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews";
        let text = match self.call(http::Method::POST, path, Some(&body)).await {
            Ok(text) => text,
            Err(Refusal::Status(status)) => {
                return Err(self.explain_status(&status, "ask what you may do"));
            }
            Err(Refusal::Failure(failure)) => return Err(failure),
        };
        let review: Value = serde_json::from_str(&text).map_err(|error| unreadable(&error))?;
        Ok(review
            .pointer("/status/allowed")
            .and_then(Value::as_bool)
            .unwrap_or(false))
    }

    /// Turns a refusal of the API server into words: which right is missing and the command that gives it.
    pub async fn explain(
        &self,
        refusal: Refusal,
        verb: &str,
        kind: Kind,
        namespace: Option<&str>,
        name: Option<&str>,
        what: &str,
    ) -> Failure {
        let status = match refusal {
            Refusal::Failure(failure) => return failure,
            Refusal::Status(status) => status,
        };
        if status.code == 404 && name.is_none() {
            return Failure::NotInstalled;
        }
        let impersonation = status.message.contains("cannot impersonate");
        if status.code != 403
            || impersonation
            || self.may(verb, kind.plural, namespace, name).await != Ok(false)
        {
            return self.explain_status(&status, what);
        }
        let me = self
            .whoami()
            .await
            .map(|person| person.username)
            .unwrap_or_else(|_| "USERNAME".to_owned());
        Failure::NotAllowed {
            what: what.to_owned(),
            missing: vec![missing_verb(verb, kind.plural, namespace, name, &me)],
            next: vec![bind_approver(namespace, &me)],
        }
    }

    /// Words for a failure that is not about RBAC of our kinds.
    pub fn explain_status(&self, status: &Status, what: &str) -> Failure {
        let message = one_line(&status.message, MESSAGE);
        match status.code {
            401 => Failure::Config(format!(
                "the API server does not accept your credential: {message}"
            )),
            403 if status.message.contains("cannot impersonate") => Failure::NotAllowed {
                what: what.to_owned(),
                missing: vec![format!(
                    "RBAC: verb impersonate for --as and --as-group: {message}"
                )],
                next: vec!["kubectl auth can-i impersonate users".to_owned()],
            },
            403 => Failure::NotAllowed {
                what: what.to_owned(),
                missing: vec![format!(
                    "RBAC allows it, but the cluster's admission refused: {message}"
                )],
                next: vec![],
            },
            code => Failure::Refused {
                what: format!("{what}: HTTP {code}: {message}"),
                next: vec![],
            },
        }
    }

    /// Waits until something happens to one object after a revision, or for `limit`.
    ///
    /// Without the right to watch it waits a second; the caller reads again in any case.
    pub async fn changed(
        &self,
        kind: Kind,
        namespace: &str,
        name: &str,
        revision: &str,
        limit: Duration,
    ) {
        let seconds = limit.as_secs().clamp(1, 60);
        let path = format!(
            "{}?watch=true&fieldSelector=metadata.name%3D{name}&resourceVersion={}&timeoutSeconds={seconds}",
            kind.path(Some(namespace)),
            escaped(revision)
        );
        let first = async {
            let Ok(request) = http::Request::get(path).body(Vec::new()) else {
                return false;
            };
            let Ok(events) = self.client.request_events::<DynamicObject>(request).await else {
                return false;
            };
            let mut events = std::pin::pin!(events);
            !matches!(events.next().await, Some(Err(_) | Ok(WatchEvent::Error(_))))
        };
        let limited = tokio::time::timeout(limit, first)
            .map(|seen| seen.unwrap_or(true))
            .await;
        if !limited {
            tokio::time::sleep(limit.min(Duration::from_secs(1))).await;
        }
    }

    /// Namespace and name that an argument names.
    pub fn locate(&self, kind: Kind, argument: &str) -> Result<(String, String), Failure> {
        let (namespace, name) = super::named(argument, kind.types, self.namespace_flag.as_deref())?;
        let namespace = namespace.unwrap_or_else(|| self.namespace.clone());
        checked(&namespace)?;
        checked(&name)?;
        Ok((namespace, name))
    }
}

/// An answer that is not what it should be.
pub fn unreadable(error: &serde_json::Error) -> Failure {
    Failure::Unreachable(format!(
        "its answer cannot be read: {}",
        visible(&error.to_string())
    ))
}

fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(inner) = source {
        let inner_text = inner.to_string();
        if !text.contains(&inner_text) {
            text.push_str(": ");
            text.push_str(&inner_text);
        }
        source = inner.source();
    }
    text
}

#[cfg(test)]
mod tests {
    #![allow(
        clippy::unwrap_used,
        clippy::expect_used,
        clippy::panic,
        reason = "tests"
    )]

    use super::*;

    #[test]
    fn a_name_cannot_leave_its_path() {
        for wrong in ["", "..", "../x", "a/b", "a?b", "A", "a b", "a%2f", "-a"] {
            assert!(matches!(checked(wrong), Err(Failure::Usage(_))), "{wrong}");
        }
        assert!(checked("ar-7f3k").is_ok());
    }

    #[test]
    fn a_missing_right_is_named_with_its_command() {
        assert_eq!(
            missing_verb(
                "create",
                "approvaldecisions",
                Some("web"),
                None,
                "ana@example.com"
            ),
            "RBAC: ana@example.com lacks verb create on approvaldecisions.grantgate.dev in namespace web"
        );
        assert_eq!(
            bind_approver(Some("web"), "system:serviceaccount:ci:bot"),
            "kubectl create rolebinding grantgate-approver -n web --clusterrole=grantgate-approver --serviceaccount=ci:bot"
        );
        assert!(bind_approver(None, "o'b").ends_with(r"--user='o'\''b'"));
    }
}
