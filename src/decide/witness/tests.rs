#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "tests"
)]

use serde_json::{Value as Json, json};

use super::*;
use crate::decide::json::read;

fn deployment(version: u64, containers: Json) -> Json {
    json!({
        "apiVersion": "apps/v1", "kind": "Deployment",
        "metadata": {"name": "api", "namespace": "web", "uid": "t1", "resourceVersion": version.to_string()},
        "spec": {"template": {"spec": {"containers": containers}}},
    })
}

fn container(name: &str, image: &str) -> Json {
    json!({"name": name, "image": image})
}

/// Whether a revision holds what the write from the one list to the other sets.
fn held(old: Json, new: Json, revision: Json) -> bool {
    let text = json!({"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": {
        "uid": "r", "operation": "UPDATE", "name": "api", "namespace": "web", "userInfo": {"username": "agent"},
        "resource": {"group": "apps", "version": "v1", "resource": "deployments"},
        "object": deployment(102, new), "oldObject": deployment(102, old), "options": {},
    }})
    .to_string();
    let document = read(&text).unwrap();
    let revision = deployment(101, revision).to_string();
    let revision = read(&revision).unwrap();
    holds(&Review::of(&document).unwrap(), revision.root())
}

#[test]
fn a_new_value_is_found_whatever_became_of_the_list_around_it() {
    let (old, new) = (container("app", "a:1"), container("app", "a:2"));
    let (side, more) = (container("side", "s:1"), container("more", "m:1"));
    for revision in [
        json!([new, side]),
        json!([side, new]),
        json!([new]),
        json!([more, side, new]),
        json!([new, side, side]),
    ] {
        assert!(
            held(json!([side, old]), json!([side, new]), revision.clone()),
            "{revision}"
        );
    }
    for revision in [json!([old, side]), json!([side]), json!([])] {
        assert!(
            !held(json!([side, old]), json!([side, new]), revision.clone()),
            "{revision}"
        );
    }
}

#[test]
fn what_a_write_takes_away_is_held_where_it_is_absent() {
    let (app, side) = (container("app", "a:1"), container("side", "s:1"));
    let write = |revision| held(json!([app, side]), json!([app]), revision);
    assert!(write(json!([app])));
    assert!(!write(json!([side, app])));
}

#[test]
fn an_order_alone_is_taken_to_be_held() {
    let (app, side) = (container("app", "a:1"), container("side", "s:1"));
    let added = json!([side, app]);
    // A new element in front of the others: it, and the order of the list.
    assert!(held(json!([app]), added.clone(), added));
    assert!(!held(json!([app]), json!([side, app]), json!([app])));
}
