//! The reviews that a real API server sent, for tests.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "tests"
)]

use std::path::PathBuf;

use crate::api::{
    Operation,
    approval_policy::{ChangeBinding, StateBinding},
    approval_request::ResolvedBinding,
};

use super::{
    bind::Bound,
    comparison::{Compared, Comparison},
    json::{self, Document, Value},
    redact::Redactor,
    server_made::is_generated_name,
};

fn folder() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/reviews")
}

/// Names of all recorded reviews, sorted.
pub fn names() -> Vec<String> {
    let files = std::fs::read_dir(folder())
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap());
    let mut names: Vec<String> = files
        .filter_map(|file| file.strip_suffix(".json").map(str::to_owned))
        .collect();
    names.sort();
    names
}

pub fn text(name: &str) -> String {
    std::fs::read_to_string(folder().join(format!("{name}.json"))).unwrap()
}

pub fn compared<'d>(document: &'d Document<'d>) -> Compared<'d> {
    let request = document.root().get("request").unwrap();
    let text = |path: &str| request.at(path).and_then(Value::as_str);
    let operation: Operation = serde_json::from_value(text("/operation").unwrap().into()).unwrap();
    let object = request.get("object");
    let generate_name = object
        .and_then(|object| object.at("/metadata/generateName"))
        .and_then(Value::as_str);
    let name = object
        .and_then(|object| object.at("/metadata/name"))
        .and_then(Value::as_str);
    Compared {
        operation,
        group: text("/resource/group").unwrap(),
        resource: text("/resource/resource").unwrap(),
        subresource: text("/subResource"),
        object,
        old_object: request.get("oldObject"),
        options: request.get("options"),
        generated_name: operation == Operation::Create
            && matches!((name, generate_name), (Some(name), Some(prefix)) if is_generated_name(name, prefix)),
    }
}

pub fn binding(state: StateBinding) -> ResolvedBinding {
    ResolvedBinding {
        change: ChangeBinding::Exact,
        state,
        state_fields: Vec::new(),
        volatile: Vec::new(),
    }
}

pub fn redactor() -> Redactor {
    Redactor::new("k1", b"a key for tests")
}

/// Reads a text and hands over what it compares.
pub fn with<T>(text: &str, then: impl FnOnce(&Comparison<'_>) -> T) -> T {
    let document = json::read(text).unwrap();
    then(&Comparison::of(&compared(&document)))
}

pub fn bound_text(text: &str, binding: &ResolvedBinding) -> Bound {
    with(text, |comparison| {
        comparison.bind(binding, &redactor()).unwrap()
    })
}

pub fn bound(name: &str, state: StateBinding) -> Bound {
    bound_text(&text(name), &binding(state))
}
