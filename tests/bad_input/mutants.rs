//! Recorded reviews, changed at random in a way that is the same each time.

use std::collections::BTreeMap;

use futures::StreamExt;
use serde_json::{Map, Value, json};

use super::{DECIDING, Port, allowed, user_info};
use crate::{
    cluster::{Cluster, http::Answer},
    stack::{Agent, Setup, Stack, with_controllers},
};

/// A small generator: the same numbers each time.
struct Dice(u64);

impl Dice {
    fn roll(&mut self, sides: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        usize::try_from(self.0 >> 11).unwrap() % sides.max(1)
    }
}

/// Every recorded review, by its file's name, as if the agent had made the call in its own namespace.
fn recorded(agent: &Agent) -> Vec<(String, Value)> {
    let dir = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/reviews");
    let mut all: Vec<(String, Value)> = std::fs::read_dir(dir)
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .filter(|path| {
            path.extension()
                .is_some_and(|extension| extension == "json")
        })
        // Deeper than this test's own parser goes; depth is another test's.
        .filter(|path| !path.to_string_lossy().contains("nested-200-levels"))
        .map(|path| {
            let name = path.file_stem().unwrap().to_str().unwrap().to_owned();
            let mut review: Value = serde_json::from_slice(&std::fs::read(path).unwrap()).unwrap();
            let request = &mut review["request"];
            request["userInfo"] = user_info(agent);
            if request["namespace"].is_string() {
                request["namespace"] = json!(agent.namespace);
                for object in ["object", "oldObject"] {
                    if request[object]["metadata"]["namespace"].is_string() {
                        request[object]["metadata"]["namespace"] = json!(agent.namespace);
                    }
                }
            }
            (name, review)
        })
        .collect();
    all.sort_by(|a, b| a.0.cmp(&b.0));
    assert!(all.len() > 80, "the recorded reviews are there");
    all
}

/// Whether an answer may be yes although nobody granted anything: nothing is stored, or nothing changes.
fn is_free(body: &[u8]) -> bool {
    let Ok(review) = serde_json::from_slice::<Value>(body) else {
        return false;
    };
    let request = &review["request"];
    let plain = |which: &str| {
        let mut object = request[which].clone();
        let metadata = object.get_mut("metadata").and_then(Value::as_object_mut);
        if let Some(metadata) = metadata {
            metadata.remove("resourceVersion");
            metadata.remove("selfLink");
            let entries = metadata
                .get_mut("managedFields")
                .and_then(Value::as_array_mut);
            for entry in entries
                .into_iter()
                .flatten()
                .filter_map(Value::as_object_mut)
            {
                entry.remove("time");
            }
        }
        object
    };
    let unchanged = request["operation"] == "UPDATE"
        && request["oldObject"].is_object()
        && plain("object") == plain("oldObject");
    request["dryRun"] == true || unchanged
}

/// As the API server writes it: the uid first, so that it can be read from a body that is broken further on.
fn text(review: &Value) -> Vec<u8> {
    let mut review = review.clone();
    let request = review.get_mut("request").and_then(Value::as_object_mut);
    let Some(uid) = request.and_then(|request| request.remove("uid")) else {
        return review.to_string().into_bytes();
    };
    let first = format!("\"request\":{{\"uid\":{uid},");
    let text = review.to_string().replacen("\"request\":{", &first, 1);
    text.replacen(",}", "}", 1).into_bytes()
}

/// The pointers of every value in a document.
fn pointers(value: &Value, at: &str, all: &mut Vec<String>) {
    all.push(at.to_owned());
    match value {
        Value::Object(members) => {
            for (key, value) in members {
                let key = key.replace('~', "~0").replace('/', "~1");
                pointers(value, &format!("{at}/{key}"), all);
            }
        }
        Value::Array(items) => {
            for (index, value) in items.iter().enumerate() {
                pointers(value, &format!("{at}/{index}"), all);
            }
        }
        _ => {}
    }
}

fn odd_value(dice: &mut Dice) -> Value {
    let values = [
        Value::Null,
        json!(true),
        json!(0),
        json!(-1),
        json!(u64::MAX),
        json!(1.5e300),
        json!(""),
        json!("\u{0}\u{202e}\u{fffd}"),
        json!("UPDATE"),
        json!("DELETE"),
        json!("kube-system"),
        json!("x".repeat(70_000)),
        json!([]),
        json!([null, [], {}]),
        json!({}),
        json!({"a": {"b": []}}),
        json!({"metadata": {"generation": 9, "finalizers": ["x"]}}),
    ];
    values[dice.roll(values.len())].clone()
}

fn mutate_tree(review: &mut Value, dice: &mut Dice) {
    let mut all = Vec::new();
    pointers(review, "", &mut all);
    let (here, there) = (
        all[dice.roll(all.len())].clone(),
        all[dice.roll(all.len())].clone(),
    );
    match dice.roll(5) {
        0 => *review.pointer_mut(&here).unwrap() = odd_value(dice),
        1 => {
            let other = review.pointer(&there).unwrap().clone();
            *review.pointer_mut(&here).unwrap() = other;
        }
        2 => {
            if let Some(Value::Object(parent)) = here
                .rsplit_once('/')
                .and_then(|(up, _)| review.pointer_mut(up))
            {
                let keys: Vec<String> = parent.keys().cloned().collect();
                parent.remove(&keys[dice.roll(keys.len())]);
            }
        }
        3 => {
            let value = odd_value(dice);
            let target = review.pointer_mut(&here).unwrap();
            match target {
                Value::Object(members) => {
                    members.insert("odd/~[name=x]".to_owned(), value);
                }
                Value::Array(items) => items.push(value),
                other => *other = Value::Object(Map::from_iter([("odd".to_owned(), value)])),
            }
        }
        // Most reviews differ in one place only: this makes them almost, or wholly, without a change.
        _ => {
            if let Some(rest) = here.strip_prefix("/request/object") {
                let old = review
                    .pointer(&format!("/request/oldObject{rest}"))
                    .cloned();
                if let Some(old) = old {
                    *review.pointer_mut(&here).unwrap() = old;
                }
            }
        }
    }
}

fn mutate_text(body: &mut Vec<u8>, dice: &mut Dice) {
    let at = dice.roll(body.len());
    let end = (at + 1 + dice.roll(64)).min(body.len());
    match dice.roll(5) {
        0 => body[at] ^= 1 << dice.roll(8),
        1 => drop(body.drain(at..end)),
        2 => {
            let piece = body[at..end].to_vec();
            let to = dice.roll(body.len());
            body.splice(to..to, piece);
        }
        3 => body.truncate(at),
        _ => {
            let marks = b"{}[]\",:\\0-eEu\xff";
            body[at] = marks[dice.roll(marks.len())];
        }
    }
    if body.is_empty() {
        body.push(b' ');
    }
}

#[tokio::test]
async fn thousands_of_mutated_reviews_allow_no_change_and_end_no_replica() {
    const MUTANTS: usize = 3000;
    // Of its own: what these leave behind counts towards the bounds on waiting requests.
    let cluster = Cluster::start(with_controllers()).await;
    let mut stack = Stack::start(&cluster, Setup::default()).await;
    let agent = stack.agent("mutants").await;
    let port = Port::of(&stack, 0).await;
    let seeds = recorded(&agent);
    let mut dice = Dice(0x9e37_79b9_7f4a_7c15);
    let mut bodies: Vec<(String, Vec<u8>)> = seeds
        .iter()
        .map(|(name, review)| (name.clone(), text(review)))
        .collect();
    while bodies.len() < MUTANTS {
        let (name, review) = &seeds[dice.roll(seeds.len())];
        let mut review = review.clone();
        for _ in 0..dice.roll(4) {
            mutate_tree(&mut review, &mut dice);
        }
        let mut body = text(&review);
        if dice.roll(3) == 0 {
            mutate_text(&mut body, &mut dice);
        }
        bodies.push((name.clone(), body));
    }
    let answers: Vec<(String, Vec<u8>, Answer)> = futures::stream::iter(bodies)
        .map(|(name, body)| async {
            let answer = port.post(DECIDING[0], body.clone()).await;
            (name, body, answer)
        })
        .buffer_unordered(4)
        .collect()
        .await;
    let mut ends: BTreeMap<String, usize> = BTreeMap::new();
    for (name, body, answer) in &answers {
        let end = match answer.status {
            200 if allowed(answer) => {
                assert!(
                    is_free(body),
                    "{name}: allowed: {}",
                    String::from_utf8_lossy(body)
                );
                "allowed: dry run or no change".to_owned()
            }
            200 => {
                let review = answer.json().unwrap();
                let status = &review["response"]["status"];
                assert_eq!(status["code"], 403, "{name}: {review}");
                let message = status["message"].as_str().unwrap();
                assert!(
                    message.starts_with("NOT EXECUTED") || message.contains("canary"),
                    "{name}: {message}"
                );
                let word = &status["details"]["causes"][0]["reason"];
                format!("denied: {}", word.as_str().unwrap())
            }
            400 => "400".to_owned(),
            // Out of time on a busy machine, and no uid to answer to.
            503 => "503".to_owned(),
            other => panic!("{name}: {other} {}", answer.text()),
        };
        *ends.entry(end).or_default() += 1;
    }
    println!("{MUTANTS} mutated reviews: {ends:#?}");
    assert!(
        ends.len() > 5,
        "the mutants reach many ways to end: {ends:?}"
    );
    port.assert_well(&agent).await;
    assert!(stack.webhooks[0].ended().is_none());
    assert!(stack.grants(&agent.namespace).await.is_empty());
}
