//! Many identical calls at one moment, through two API servers and two webhook replicas: one use, one effect.
//!
//! In every other round somebody sets the object back the moment the effect is seen, while the rest of the calls are still on
//! their way: then a second admission would be a second effect, and not merely a write that changes nothing.

use std::collections::BTreeMap;

use futures::{StreamExt, future::join_all};
use kube::{
    Api, Client,
    api::{ApiResource, DynamicObject, Patch, PatchParams, WatchEvent, WatchParams},
};
use serde_json::{Value, json};

use crate::{
    cluster::{
        audit::Select,
        wait::{PATIENCE, eventually},
    },
    stack::{Agent, Stack, installed},
};

/// Calls of one round.
const CALLS: usize = 16;
/// How many rounds each of the three races runs: a hundred together. The variable `GRANTGATE_RACE_ROUNDS` sets another number.
const ROUNDS: usize = 34;

/// What the calls change.
struct Target {
    /// Path of the object that is watched.
    object: String,
    /// Path of the calls: the object or its subresource.
    called: String,
    resource: ApiResource,
    name: &'static str,
    /// The changed member, in the object as in what is sent.
    pointer: &'static str,
    before: Value,
    after: Value,
    /// As merge patches.
    change: Value,
    back: Value,
}

fn label(agent: &Agent) -> Target {
    let object = format!("/api/v1/namespaces/{}/configmaps/settings", agent.namespace);
    let tier = |value: &str| json!({"metadata": {"labels": {"tier": value}}});
    Target {
        called: object.clone(),
        object,
        resource: ApiResource::erase::<k8s_openapi::api::core::v1::ConfigMap>(&()),
        name: "settings",
        pointer: "/metadata/labels/tier",
        before: json!("A"),
        after: json!("B"),
        change: tier("B"),
        back: tier("A"),
    }
}

fn replicas(agent: &Agent, subresource: &str) -> Target {
    let namespace = &agent.namespace;
    let object = format!("/apis/apps/v1/namespaces/{namespace}/deployments/api");
    Target {
        called: format!("{object}{subresource}"),
        object,
        resource: ApiResource::erase::<k8s_openapi::api::apps::v1::Deployment>(&()),
        name: "api",
        pointer: "/spec/replicas",
        before: json!(3),
        after: json!(5),
        change: json!({"spec": {"replicas": 5}}),
        back: json!({"spec": {"replicas": 3}}),
    }
}

/// How the calls of a round are made.
#[derive(Clone, Copy)]
struct Round {
    /// PUT with the resourceVersion read before, instead of a merge patch without one.
    put: bool,
    /// Whether the effect is taken back while calls are on their way.
    reverted_at_once: bool,
}

impl Round {
    fn of(number: usize) -> Round {
        Round {
            put: number % 4 >= 2,
            reverted_at_once: number % 2 == 1,
        }
    }
}

/// How a call ended, in a word; anything else fails the test.
fn word(answer: &Result<Value, kube::Error>) -> &'static str {
    match answer {
        Ok(_) => "2xx",
        Err(kube::Error::Api(status)) if status.code == 403 => "403",
        Err(kube::Error::Api(status)) if status.code == 409 => "409",
        // The gate fails closed, so this is a refusal too; it tells of the machine, and shows in what is printed.
        Err(kube::Error::Api(status)) if status.message.contains("context deadline exceeded") => {
            "out of time"
        }
        Err(error) => panic!("neither done, refused nor in conflict: {error:?}"),
    }
}

async fn call(client: &Client, target: &Target, put: Option<&Value>) -> Result<Value, kube::Error> {
    let (method, kind, body) = match put {
        Some(object) => ("PUT", "application/json", object),
        None => ("PATCH", "application/merge-patch+json", &target.change),
    };
    let request = http::Request::builder()
        .method(method)
        .uri(&target.called)
        .header("content-type", kind)
        .body(body.to_string().into_bytes())
        .unwrap();
    client.request(request).await
}

async fn get(client: &Client, path: &str) -> Value {
    let request = http::Request::get(path).body(Vec::new()).unwrap();
    client.request(request).await.unwrap()
}

/// The object to PUT: as it is now, with the change.
async fn changed(client: &Client, target: &Target) -> Value {
    let mut object = get(client, &target.called).await;
    *object.pointer_mut(target.pointer).unwrap() = target.after.clone();
    object
}

fn revision(object: &Value) -> String {
    object["metadata"]["resourceVersion"]
        .as_str()
        .unwrap()
        .to_owned()
}

/// Waits until the controllers have nothing more to write about the object, so that a PUT has a fair chance.
async fn at_rest(admin: &Client, target: &Target) -> Value {
    eventually("the controllers are at rest", PATIENCE, async || {
        let object = get(admin, &target.object).await;
        let status = &object["status"];
        let rests = target.name != "api"
            || (status["observedGeneration"] == object["metadata"]["generation"]
                && status["replicas"] == object["spec"]["replicas"]
                && status["updatedReplicas"] == object["spec"]["replicas"]);
        rests.then_some(object)
    })
    .await
    .unwrap()
}

/// Watches the object from `since` until the revision that carries `mark`, and returns how often it came to carry the change. Takes
/// the first one back at once where the round says so.
async fn effects(
    admin: Client,
    agent: &Agent,
    target: &Target,
    since: &str,
    mark: &str,
    revert: bool,
) -> usize {
    let api: Api<DynamicObject> = Api::namespaced_with(admin, &agent.namespace, &target.resource);
    let params = WatchParams::default().fields(&format!("metadata.name={}", target.name));
    let mut watch = api.watch(&params, since).await.unwrap().boxed();
    let (mut carried, mut count) = (false, 0);
    loop {
        let Some(Ok(WatchEvent::Modified(object))) = watch.next().await else {
            panic!("the watch broke off, so nothing can be counted");
        };
        let object = serde_json::to_value(&object).unwrap();
        let carries = object.pointer(target.pointer) == Some(&target.after);
        if carries && !carried {
            count += 1;
            if revert && count == 1 {
                let patch = Patch::Merge(&target.back);
                api.patch(target.name, &PatchParams::default(), &patch)
                    .await
                    .unwrap();
            }
        }
        carried = carries;
        if object["metadata"]["labels"]["round"] == mark {
            return count;
        }
    }
}

/// One round, from the request to the object as it was before. Returns how the calls ended.
async fn round(
    stack: &Stack<'_>,
    agent: &Agent,
    target: &Target,
    clients: &[Client],
    number: usize,
) -> BTreeMap<&'static str, usize> {
    let how = Round::of(number);
    let admin = stack.cluster.admin();
    let since = revision(&at_rest(&admin, target).await);
    let stopped = match call(&clients[number % clients.len()], target, None).await {
        Err(kube::Error::Api(status)) if status.code == 403 => status.details.unwrap().name,
        other => panic!("round {number}: not stopped: {other:?}"),
    };
    let request = stack.request(&agent.namespace, &stopped).await;
    let grant = stack.approve_request(&request).await.grant.unwrap();

    let put = if how.put {
        Some(changed(&clients[0], target).await)
    } else {
        None
    };
    let mark = format!("r{number}");
    let watching = effects(
        admin.clone(),
        agent,
        target,
        &since,
        &mark,
        how.reverted_at_once,
    );
    let calling = async {
        let calls = (0..CALLS).map(|one| call(&clients[one % clients.len()], target, put.as_ref()));
        let answers = join_all(calls).await;
        let mut words = BTreeMap::new();
        for answer in &answers {
            *words.entry(word(answer)).or_default() += 1;
        }
        // Another's write between admission and commit lets each PUT end as a conflict, and a machine that does much else lets
        // calls run out of time: then the client reads and tries again.
        if !words.contains_key("2xx") {
            let object = changed(&clients[0], target).await;
            let again = call(&clients[0], target, Some(&object)).await;
            assert!(again.is_ok(), "round {number}: {words:?}, {again:?}");
            words.insert("2xx once more", 1);
        }
        // Sets it back, and tells the watch that the round is over.
        let mut back = target.back.clone();
        back["metadata"]["labels"]["round"] = json!(mark);
        let api: Api<DynamicObject> =
            Api::namespaced_with(admin.clone(), &agent.namespace, &target.resource);
        api.patch(target.name, &PatchParams::default(), &Patch::Merge(back))
            .await
            .unwrap();
        words
    };
    let (effects, words) = tokio::join!(watching, calling);
    assert_eq!(effects, 1, "round {number}: {words:?}");
    assert_eq!(
        stack.uses(&grant).await.len(),
        1,
        "round {number}: {words:?}"
    );
    let object = get(&admin, &target.object).await;
    assert_eq!(object.pointer(target.pointer), Some(&target.before));
    words
}

async fn race(name: &str, target: impl FnOnce(&Agent) -> Target) {
    let stack = installed().await;
    assert_eq!(
        (stack.cluster.servers(), stack.webhooks.len()),
        (2, 2),
        "two API servers and two replicas race"
    );
    let agent = stack.agent(name).await;
    let target = target(&agent);
    let clients: Vec<Client> = (0..stack.cluster.servers())
        .map(|server| stack.cluster.client_at(server, &agent.user))
        .collect();
    let rounds = std::env::var("GRANTGATE_RACE_ROUNDS")
        .map_or(ROUNDS, |text| text.parse().expect("a number of rounds"));
    let mark = stack.cluster.audit_mark().await;
    let begun = std::time::Instant::now();
    let mut ends: BTreeMap<&'static str, usize> = BTreeMap::new();
    let (mut counted, mut number) = (0, 0);
    while counted < rounds {
        assert!(
            number < 4 * rounds,
            "calls run out of time in most rounds: {ends:?}"
        );
        let words = round(stack, &agent, &target, &clients, number).await;
        // A round that the machine was too slow for must hold what every round holds, and another is run in its place.
        counted += usize::from(!words.contains_key("out of time"));
        number += 1;
        for (word, count) in words {
            *ends.entry(word).or_default() += count;
        }
    }
    let took = begun.elapsed();
    let events = stack
        .cluster
        .audit_settled(&Select::since(&mark).user(&agent.user).writes())
        .await;
    let mut decisions: BTreeMap<String, usize> = BTreeMap::new();
    for event in &events {
        // By its whole key: authorization notes a decision too.
        let noted = event.annotations.get("gate.grantgate.dev/decision");
        let decision = noted.map_or("not asked", String::as_str).to_owned();
        *decisions.entry(decision).or_default() += 1;
    }
    println!(
        "{name}: {number} rounds of {CALLS} calls and one before, {took:.0?}: ended {ends:?}; first decisions {decisions:?}"
    );
    assert!(
        decisions.contains_key("admitted") && decisions.contains_key("pending"),
        "{decisions:?}"
    );
}

#[tokio::test]
async fn sixteen_calls_label_a_config_map_once_per_grant() {
    race("race-label", label).await;
}

#[tokio::test]
async fn sixteen_calls_set_replicas_by_the_main_resource_once_per_grant() {
    race("race-main", |agent| replicas(agent, "")).await;
}

#[tokio::test]
async fn sixteen_calls_set_replicas_by_the_scale_subresource_once_per_grant() {
    race("race-scale", |agent| replicas(agent, "/scale")).await;
}
