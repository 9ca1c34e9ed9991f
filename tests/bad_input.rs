//! Whatever comes to the webhook's port: it is answered or refused in order, nothing is allowed by it, and the process lives.

mod mutants;

use http::Method;
use serde_json::{Value, json};

use crate::{
    cluster::http::{Answer, Tls, send},
    stack::{Agent, Stack, installed},
};

const JSON: &[(&str, &str)] = &[("content-type", "application/json")];
const UID: &str = "705ab4f5-6393-11e8-b7cc-42010a800002";
/// What an agent's writes and people's writes are sent to; the stamp only fills in an author and stops nothing.
const DECIDING: [&str; 2] = ["/gate/some-digest", "/guard"];

/// One replica, spoken to as the API server does, but by anybody.
struct Port {
    tls: Tls,
    url: String,
    probes: String,
}

impl Port {
    async fn of(stack: &Stack<'_>, number: usize) -> Port {
        let (address, probes) = stack.addresses(number).await.unwrap();
        Port {
            tls: Tls::trusting_anyone().unwrap(),
            url: format!("https://{address}"),
            probes: format!("http://{probes}"),
        }
    }

    async fn post(&self, path: &str, body: impl Into<hyper::body::Bytes>) -> Answer {
        let url = format!("{}{path}?timeout=10s", self.url);
        send(&self.tls, Method::POST, &url, JSON, body)
            .await
            .unwrap()
    }

    /// How many requests panicked so far.
    async fn panics(&self) -> u64 {
        let url = format!("{}/metrics", self.probes);
        let answer = send(&self.tls, Method::GET, &url, &[], "").await.unwrap();
        let text = answer.text();
        let line = text
            .lines()
            .find(|line| !line.starts_with('#') && line.contains("panics"))
            .unwrap_or_else(|| panic!("no count of panics in {text}"));
        line.rsplit(' ').next().unwrap().parse().unwrap()
    }

    /// The same process is there, never panicked, and decides a good review.
    async fn assert_well(&self, agent: &Agent) {
        assert_eq!(self.panics().await, 0);
        let answer = self.post(DECIDING[0], good(agent).to_string()).await;
        assert_eq!(answer.status, 200, "{}", answer.text());
        let response = answer.json().unwrap()["response"].clone();
        assert_eq!(response["uid"], UID);
        let reason = &response["status"]["reason"];
        assert!(
            reason == "ApprovalPending" || reason == "ApprovalUnavailable",
            "{response}"
        );
    }
}

/// A review of an agent's write as the API server would send it.
fn good(agent: &Agent) -> Value {
    let deployment = |replicas: i32, generation: i32| {
        let mut object = crate::stack::deployment(&agent.namespace, "api", replicas);
        object["metadata"]["uid"] = json!("21cd294e-2378-4c11-b368-7d9a1b034fb5");
        object["metadata"]["resourceVersion"] = json!("7");
        object["metadata"]["generation"] = json!(generation);
        object
    };
    let gvr = json!({"group": "apps", "version": "v1", "resource": "deployments"});
    let gvk = json!({"group": "apps", "version": "v1", "kind": "Deployment"});
    json!({
        "kind": "AdmissionReview", "apiVersion": "admission.k8s.io/v1",
        "request": {
            "uid": UID, "kind": gvk, "resource": gvr, "requestKind": gvk, "requestResource": gvr,
            "name": "api", "namespace": agent.namespace, "operation": "UPDATE",
            "userInfo": user_info(agent),
            "object": deployment(5, 2), "oldObject": deployment(3, 1), "dryRun": false,
            "options": {"kind": "UpdateOptions", "apiVersion": "meta.k8s.io/v1", "fieldManager": "test"},
        },
    })
}

fn user_info(agent: &Agent) -> Value {
    json!({"username": agent.user.name, "uid": "u-1", "groups": ["system:serviceaccounts", "system:authenticated"]})
}

/// `good`, with one member of the envelope or the request replaced or, by null, removed.
fn with(agent: &Agent, pointer: &str, value: Value) -> String {
    let mut review = good(agent);
    let (parent, key) = pointer.rsplit_once('/').unwrap();
    let parent = review.pointer_mut(parent).unwrap().as_object_mut().unwrap();
    if value.is_null() {
        parent.remove(key);
    } else {
        parent.insert(key.to_owned(), value);
    }
    review.to_string()
}

fn allowed(answer: &Answer) -> bool {
    answer
        .json()
        .is_ok_and(|review| review["response"]["allowed"] == true)
}

#[tokio::test]
async fn a_body_without_a_readable_uid_is_refused_with_a_status_and_words() {
    let stack = installed().await;
    let agent = stack.agent("no-uid").await;
    let port = Port::of(stack, 0).await;
    let mut large = good(&agent).to_string();
    large.push_str(&" ".repeat(25 << 20));
    let mut not_text = b"{\"note\":\"".to_vec();
    not_text.extend([0xff, 0xfe, b'"', b'}']);
    let pod = json!({"kind": "Pod", "apiVersion": "v1", "metadata": {"name": "x"}}).to_string();
    let cases: Vec<(&str, u16, Vec<u8>)> = vec![
        ("empty", 400, Vec::new()),
        ("not JSON", 400, b"replicas: 5".to_vec()),
        ("half of it", 400, good(&agent).to_string()[..700].into()),
        (
            "two documents",
            400,
            [good(&agent).to_string(), "{}".to_owned()].concat().into(),
        ),
        ("wrong kind", 400, pod.into()),
        ("a list", 400, b"[]".to_vec()),
        ("null", 400, b"null".to_vec()),
        (
            "unknown version",
            400,
            with(&agent, "/apiVersion", json!("admission.k8s.io/v2")).into(),
        ),
        (
            "no uid",
            400,
            with(&agent, "/request/uid", Value::Null).into(),
        ),
        (
            "an empty uid",
            400,
            with(&agent, "/request/uid", json!("")).into(),
        ),
        (
            "a number as uid",
            400,
            with(&agent, "/request/uid", json!(7)).into(),
        ),
        (
            "no request",
            400,
            with(&agent, "/request", Value::Null).into(),
        ),
        (
            "a request that is a list",
            400,
            with(&agent, "/request", json!([1])).into(),
        ),
        ("not UTF-8", 400, not_text),
        ("depth 10,000, no uid", 400, nested(10_000).into()),
        ("25 MiB", 413, large.into()),
    ];
    for path in DECIDING.into_iter().chain(["/stamp"]) {
        for (what, status, body) in &cases {
            let answer = port.post(path, body.clone()).await;
            assert_eq!(answer.status, *status, "{path} {what}: {}", answer.text());
            assert!(answer.text().len() > 10, "{path} {what}: no words");
            assert!(!allowed(&answer), "{path} {what}");
        }
    }
    port.assert_well(&agent).await;
}

#[tokio::test]
async fn what_is_no_review_call_at_all_is_refused_as_http_says() {
    let stack = installed().await;
    let agent = stack.agent("no-call").await;
    let port = Port::of(stack, 0).await;
    let body = good(&agent).to_string();
    type Case<'c> = (Method, &'c str, &'c [(&'c str, &'c str)], u16);
    let cases: [Case<'_>; 9] = [
        (Method::GET, "/gate/x", JSON, 405),
        (Method::PUT, "/guard", JSON, 405),
        (Method::DELETE, "/stamp", JSON, 405),
        (Method::POST, "/", JSON, 404),
        (Method::POST, "/gate", JSON, 404),
        (Method::POST, "/gate/a/b", JSON, 404),
        (Method::POST, "/gate/x", &[], 415),
        (
            Method::POST,
            "/gate/x",
            &[("content-type", "text/yaml")],
            415,
        ),
        (
            Method::POST,
            "/gate/x",
            &[
                ("content-type", "application/json"),
                ("content-encoding", "gzip"),
            ],
            415,
        ),
    ];
    for (method, path, headers, status) in cases {
        let url = format!("{}{path}", port.url);
        let answer = send(&port.tls, method.clone(), &url, headers, body.clone())
            .await
            .unwrap();
        assert_eq!(answer.status, status, "{method} {path}: {}", answer.text());
        assert!(!allowed(&answer));
    }
    port.assert_well(&agent).await;
}

fn nested(depth: usize) -> String {
    ["{\"a\":".repeat(depth), "1".to_owned(), "}".repeat(depth)].concat()
}

/// `good` as text, with `"object"` replaced by any text.
fn with_object(agent: &Agent, object: &str) -> String {
    with(agent, "/request/object", json!("HERE")).replacen("\"HERE\"", object, 1)
}

/// One of our own kinds is read whole by the guard, and no stack is deep enough for this one.
#[tokio::test]
async fn an_object_of_ours_nested_a_hundred_thousand_levels_deep_ends_no_replica() {
    let stack = installed().await;
    let agent = stack.agent("deep").await;
    let port = Port::of(stack, 0).await;
    let mut review = good(&agent);
    let mount = json!({"group": "grantgate.dev", "version": "v1alpha1", "resource": "toolmounts"});
    review["request"]["resource"] = mount.clone();
    review["request"]["requestResource"] = mount;
    review["request"]["operation"] = json!("CREATE");
    review["request"]["oldObject"] = Value::Null;
    review["request"]["object"] = json!("HERE");
    let body = review.to_string().replacen("\"HERE\"", &nested(100_000), 1);
    for path in DECIDING.into_iter().chain(["/stamp"]) {
        let answer = port.post(path, body.clone()).await;
        assert_eq!(answer.status, 200, "{path}: {}", answer.text());
        assert!(!allowed(&answer), "{path}");
        assert!(
            answer.text().contains("TooDeep"),
            "{path}: {}",
            answer.text()
        );
    }
    port.assert_well(&agent).await;
}

#[tokio::test]
async fn a_review_with_a_uid_that_cannot_be_decided_is_answered_no_in_words() {
    let stack = installed().await;
    let agent = stack.agent("with-uid").await;
    let port = Port::of(stack, 0).await;
    // The API server writes the uid first; so does this.
    let first = |rest: &str| {
        format!(
            "{{\"kind\":\"AdmissionReview\",\"apiVersion\":\"admission.k8s.io/v1\",\"request\":{{\"uid\":\"{UID}\",{rest}}}}}"
        )
    };
    let mut not_text = first("\"name\":\"?\"").into_bytes();
    *not_text.iter_mut().find(|byte| **byte == b'?').unwrap() = 0xff;
    let twice = "{\"kind\":\"Deployment\",\"spec\":{\"replicas\":3,\"replicas\":5}}";
    let old = good(&agent)["request"]["oldObject"].to_string();
    let old_twice = old.replacen(
        "\"spec\":{",
        "\"spec\":{\"paused\":true,\"paused\":false,",
        1,
    );
    let cases: Vec<(&str, Vec<u8>)> = vec![
        ("not UTF-8", not_text),
        ("depth 10,000", with_object(&agent, &nested(10_000)).into()),
        ("duplicate keys", with_object(&agent, twice).into()),
        (
            "duplicate keys that else change nothing",
            with_object(&agent, &old_twice).into(),
        ),
        (
            "no user",
            with(&agent, "/request/userInfo", Value::Null).into(),
        ),
        (
            "a user who is a list",
            with(&agent, "/request/userInfo", json!([])).into(),
        ),
        (
            "no resource",
            with(&agent, "/request/resource", Value::Null).into(),
        ),
        (
            "no operation",
            with(&agent, "/request/operation", Value::Null).into(),
        ),
        (
            "an unknown operation",
            with(&agent, "/request/operation", json!("PROXY")).into(),
        ),
        (
            "no object",
            with(&agent, "/request/object", Value::Null).into(),
        ),
        ("an object that is a list", with_object(&agent, "[]").into()),
        (
            "an object that is a number",
            with_object(&agent, "1e400").into(),
        ),
        (
            "no old object",
            with(&agent, "/request/oldObject", Value::Null).into(),
        ),
        ("a bare uid", first("\"name\":\"x\"").into()),
        (
            "a bad name",
            with(&agent, "/request/name", json!("../\u{202e}evil\n")).into(),
        ),
    ];
    for (what, body) in &cases {
        let answer = port.post(DECIDING[0], body.clone()).await;
        assert_eq!(answer.status, 200, "{what}: {}", answer.text());
        let response = answer.json().unwrap()["response"].clone();
        assert_eq!(response["uid"], UID, "{what}");
        assert_eq!(response["allowed"], false, "{what}: {response}");
        let message = response["status"]["message"].as_str().unwrap();
        assert!(
            message.starts_with("NOT EXECUTED") && message.is_ascii(),
            "{what}: {message}"
        );
    }
    // A key given twice in the envelope: whichever the API server might have meant, it is not allowed.
    let body = good(&agent).to_string();
    let again = body.replacen("\"request\":{", "\"request\":{\"uid\":\"another\",", 1);
    let two = body.replacen("{", "{\"request\":{\"uid\":\"another\"},", 1);
    for body in [again, two] {
        let answer = port.post(DECIDING[0], body).await;
        assert!(!allowed(&answer), "{}", answer.text());
    }
    port.assert_well(&agent).await;
}
