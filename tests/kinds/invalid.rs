//! `tests/invalid/*.yaml`: for each kind one object that is accepted, and changes of it that must be refused with these words.

use std::fs;
use std::path::Path;

use grantgate::manifests;
use serde::Deserialize;
use serde_json::Value;

use super::{JSON, account, collection};
use crate::cluster::install::installed;
use crate::cluster::{Cluster, User};

#[derive(Deserialize)]
struct Table {
    plural: String,
    namespaced: bool,
    valid: Value,
    cases: Vec<Case>,
}

#[derive(Deserialize)]
struct Case {
    claim: String,
    /// JSON pointer to what is replaced, or added where its parent is there.
    at: String,
    /// Absent: the member is removed.
    value: Option<Value>,
    words: Vec<String>,
}

fn changed(valid: &Value, case: &Case) -> Value {
    let mut object = valid.clone();
    let (parent, member) = case.at.rsplit_once('/').unwrap();
    let parent = object
        .pointer_mut(parent)
        .unwrap_or_else(|| panic!("{}: no {parent}", case.claim));
    match (&mut *parent, &case.value) {
        (Value::Object(members), Some(value)) => {
            members.insert(member.to_owned(), value.clone());
        }
        (Value::Object(members), None) => {
            assert!(
                members.remove(member).is_some(),
                "{}: no {member}",
                case.claim
            );
        }
        (Value::Array(items), Some(value)) => {
            items[member.parse::<usize>().unwrap()] = value.clone()
        }
        _ => panic!("{}: {} cannot be changed", case.claim, case.at),
    }
    object
}

async fn author_of(cluster: &Cluster, kind: &Value) -> User {
    match kind.as_str() {
        Some("ApprovalRequest") => account(cluster, manifests::WEBHOOK).await,
        Some("Grant") => account(cluster, manifests::CONTROLLER).await,
        _ => User::admin(),
    }
}

#[tokio::test]
async fn objects_that_must_not_be_are_refused_in_words() {
    let cluster = installed().await;
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/invalid");
    let mut kinds = 0;
    let mut wrong = Vec::new();
    for entry in fs::read_dir(folder).unwrap() {
        let table: Table =
            serde_saphyr::from_str(&fs::read_to_string(entry.unwrap().path()).unwrap()).unwrap();
        kinds += 1;
        let user = author_of(cluster, &table.valid["kind"]).await;
        let namespace = table.namespaced.then_some("default");
        let path = format!(
            "{}?dryRun=All&fieldValidation=Strict",
            collection(namespace, &table.plural)
        );
        let answer = cluster
            .raw(&user, "POST", &path, JSON, table.valid.to_string())
            .await;
        assert_eq!(
            answer.status,
            201,
            "the valid {}: {}",
            table.plural,
            answer.text()
        );
        for case in &table.cases {
            let answer = cluster
                .raw(
                    &user,
                    "POST",
                    &path,
                    JSON,
                    changed(&table.valid, case).to_string(),
                )
                .await;
            let text = answer.json().unwrap()["message"]
                .as_str()
                .unwrap_or_default()
                .to_owned();
            if !matches!(answer.status, 400 | 422)
                || !case.words.iter().all(|word| text.contains(word.as_str()))
            {
                wrong.push(format!(
                    "{}, {}: {} {text}",
                    table.plural, case.claim, answer.status
                ));
            }
        }
    }
    assert_eq!(kinds, 8);
    assert!(wrong.is_empty(), "{wrong:#?}");
}
