//! Every recorded review, sent to a running webhook: it answers as the core decides, by the same table.

use std::{
    collections::BTreeMap,
    fs,
    path::{Path, PathBuf},
};

use http::Method;
use serde_json::{Value, json};

use crate::{
    cluster::{
        Cluster, Options,
        http::{Tls, send},
        wait::{PATIENCE, eventually},
    },
    sequences::definitions::{Version, define},
    stack::{Setup, Stack},
};

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/reviews")
}

fn table() -> BTreeMap<String, String> {
    fs::read_to_string(folder().join("decided.txt"))
        .unwrap()
        .lines()
        .filter(|line| !line.starts_with('#'))
        .filter_map(|line| line.split_once(' '))
        .map(|(name, word)| (name.to_owned(), word.to_owned()))
        .collect()
}

/// An answer in the words of the table.
fn word(answer: &Value) -> String {
    let response = &answer["response"];
    if response["allowed"] == true {
        return response["auditAnnotations"]["decision"]
            .as_str()
            .unwrap_or_default()
            .to_owned();
    }
    let cause = response["status"]["details"]["causes"][0]["reason"]
        .as_str()
        .unwrap_or_default();
    match cause {
        "ApprovalPending" => "ask".to_owned(),
        "Unready" => "unready".to_owned(),
        cause => cause.to_owned(),
    }
}

#[tokio::test]
async fn the_webhook_answers_every_recorded_review_as_the_core_decides_it() {
    let cluster = Cluster::start(Options::default()).await;
    let stack = Stack::start(&cluster, Setup::default()).await;
    for namespace in ["web", "shop", "gc1", "agents"] {
        let object =
            json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace}});
        stack.kubectl_apply(&object).await;
    }
    define(&stack, "example.com", &[Version::stored("v1")]).await;
    let mut subjects: Vec<Value> = (0..10)
        .map(|number| json!({"user": format!("agent-{number}")}))
        .collect();
    subjects.push(json!({"serviceAccount": {"namespace": "agents", "name": "ops-bot"}}));
    stack
        .kubectl_apply(&json!({
            "apiVersion": "grantgate.dev/v1alpha1", "kind": "AgentIdentity", "metadata": {"name": "ops-bot"},
            "spec": {"owner": {"group": "team-platform"}, "surface": "Policies", "subjects": subjects},
        }))
        .await;
    stack.wait_enforced("ops-bot").await;
    let url = format!(
        "https://{}/gate/recorded?timeout=10s",
        stack.addresses(0).await.unwrap().0
    );
    let tls = Tls::trusting_anyone().unwrap();
    let ask = async |text: String| -> Value {
        let headers = [("content-type", "application/json")];
        let answer = send(&tls, Method::POST, &url, &headers, text.into_bytes())
            .await
            .unwrap();
        assert_eq!(answer.status, 200, "{}", answer.text());
        answer.json().unwrap()
    };
    let table = table();
    let mut wrong = Vec::new();
    let mut files: Vec<PathBuf> = fs::read_dir(folder())
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .collect();
    files.retain(|path| {
        path.extension()
            .is_some_and(|extension| extension == "json")
    });
    files.sort();
    assert!(files.len() >= 90);
    for (number, path) in files.iter().enumerate() {
        let name = path.file_stem().unwrap().to_str().unwrap().to_owned();
        // Twenty requests of one requester may be pending, so each ten reviews are somebody else's.
        let text = fs::read_to_string(path).unwrap().replace(
            r#""username":"agent""#,
            &format!(r#""username":"agent-{}""#, number / 10),
        );
        let expected = table.get(&name).map_or("ask", String::as_str);
        let decided = eventually(
            "the webhook knows namespaces and kinds",
            PATIENCE,
            async || {
                let word = word(&ask(text.clone()).await);
                (word != "unready" || expected == "unready").then_some(word)
            },
        )
        .await
        .unwrap();
        if decided != expected {
            wrong.push(format!("{name}: {decided}, expected {expected}"));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}
