//! Who is sent to the gate, with more subjects than one entry holds.

use std::collections::BTreeSet;

use grantgate::control::configuration;
use serde_json::{Value, json};
use tokio::sync::OnceCell;

use super::{PATIENCE, Played, apply_all, identity, open_namespace, validating, wait_condition};
use crate::{
    cluster::{Cluster, Options, User, audit::Select, wait::eventually},
    stack::{Setup, Stack},
};

/// The API servers read these names from headers, so they are plain.
fn user(number: usize) -> String {
    format!("oidc:user-{number:04}-{}", "u".repeat(200))
}

fn group(number: usize) -> String {
    format!("group-{number:04}-{}", "g".repeat(200))
}

fn chunk(of: fn(usize) -> String, member: &str, first: usize) -> Value {
    let subjects = (first..first + 60).map(|number| json!({member: of(number)}));
    subjects.collect()
}

/// Two API servers and 960 subjects, which need three entries.
async fn many() -> &'static Stack<'static> {
    static SHARED: OnceCell<(Stack<'static>, &'static Cluster)> = OnceCell::const_new();
    let made = async || {
        let options = Options {
            servers: 2,
            ..Options::default()
        };
        let cluster: &'static Cluster = Box::leak(Box::new(Cluster::start(options).await));
        let stack = Stack::start(cluster, Setup::default()).await;
        let identities: Vec<Value> = (0..16)
            .map(|number| match number % 2 {
                0 => identity(&format!("users-{number}"), chunk(user, "user", number * 30)),
                _ => identity(
                    &format!("groups-{number}"),
                    chunk(group, "group", (number - 1) * 30),
                ),
            })
            .collect();
        apply_all(&stack, &identities).await;
        for name in ["users-0", "users-14", "groups-1", "groups-15"] {
            wait_condition(&stack, name, "Enforced", ("True", "Proven")).await;
        }
        (stack, cluster)
    };
    &SHARED.get_or_init(made).await.0
}

/// Names of the gate's entries that answered a call, by the notes which each leaves in the audit log.
async fn entries_called(
    stack: &Stack<'_>,
    who: &Played,
    server: usize,
    namespace: &str,
) -> (u16, BTreeSet<String>) {
    let mark = stack.cluster.audit_mark().await;
    let answer = who.writes(stack.cluster, server, namespace).await;
    let select = Select::since(&mark).on("configmaps").namespace(namespace);
    let events = stack.cluster.wait_for_audit(&select, 1).await;
    let called = events
        .iter()
        .flat_map(|event| event.annotations.keys())
        .filter_map(|key| key.strip_suffix(".grantgate.dev/decision"))
        .map(str::to_owned)
        .collect();
    (answer.status, called)
}

#[tokio::test]
async fn v13_exactly_one_entry_matches() {
    let stack = many().await;
    let gate = validating(stack.cluster)
        .get("grantgate-gate")
        .await
        .unwrap();
    let installed = configuration::installed(&gate);
    assert!(installed.len() >= 3, "{} entries", installed.len());
    let namespace = open_namespace(stack.cluster, "v13").await;
    let declared = [
        Played::named(&user(0)),
        Played::named(&user(479)),
        Played::named("x@example.com").in_groups([group(0)]),
        Played::named("x@example.com").in_groups([group(479)]),
        // One agent by every means: first and last name, first and last group.
        Played::named(&user(0)).in_groups([group(0)]),
        Played::named(&user(479)).in_groups([group(479), group(0)]),
        Played::named(&user(479)).with_extra("grantgate.dev%2fagent", "users-14"),
        Played::named("x@example.com")
            .in_groups([group(479)])
            .with_extra("grantgate.dev%2fagent", "groups-15"),
    ];
    let mut met = BTreeSet::new();
    for who in &declared {
        for server in 0..2 {
            let (status, called) = entries_called(stack, who, server, &namespace).await;
            assert_eq!(status, 403, "{who:?}");
            assert_eq!(called.len(), 1, "{who:?} met {called:?}");
            met.extend(called);
        }
    }
    assert!(met.len() >= 3, "{met:?}");
}

#[tokio::test]
async fn v15_presence_of_the_key_gates() {
    let stack = many().await;
    let namespace = open_namespace(stack.cluster, "v15").await;
    let person = Played::named("ana@example.com");
    let twice = person
        .clone()
        .with_extra("grantgate.dev%2fagent", "users-0")
        .with_extra("grantgate.dev%2fagent", "users-2");
    let gated = [
        person.clone().with_extra("grantgate.dev%2fagent", "nobody"),
        person.clone().with_extra("grantgate.dev%2fagent", ""),
        // Decoded after it is put in lower case, so this arrives with a capital letter.
        person
            .clone()
            .with_extra("%47rantgate.dev%2fagent", "users-0"),
        twice,
    ];
    for who in gated {
        let answer = who.writes(stack.cluster, 0, &namespace).await;
        assert_eq!(answer.status, 403, "{who:?}: {}", answer.text());
        assert!(
            answer.text().contains("gate.grantgate.dev"),
            "{}",
            answer.text()
        );
    }
    let other = person.with_extra("example.com%2fagent", "users-0");
    assert_eq!(other.writes(stack.cluster, 0, &namespace).await.status, 201);
}

#[tokio::test]
async fn conditions_never_lock_out_a_person() {
    let stack = many().await;
    let namespace = open_namespace(stack.cluster, "people").await;
    let person = Played::named("ana@example.com");
    let many_groups = (0..500).map(|number| format!("team-{number}-{}", "t".repeat(40)));
    let many_extras = (0..100).fold(person.clone(), |who, number| {
        who.with_extra(&format!("example.com%2fkey-{number}"), "value")
    });
    let people = [
        person.clone(),
        person.clone().in_groups(many_groups),
        many_extras,
        Played::named("system:node:node-1"),
        Played::named("it's \\ a \"name\""),
    ];
    for who in people {
        for server in 0..2 {
            let (status, called) = entries_called(stack, &who, server, &namespace).await;
            assert_eq!((status, called.len()), (201, 0), "{who:?}");
        }
    }
}

#[tokio::test]
async fn a_name_that_is_code_is_gated_as_a_name() {
    let cluster = Cluster::start(Options::default()).await;
    let stack = Stack::start(&cluster, Setup::default()).await;
    let hostile = r"x'] || true || 'a\u0041' in ['";
    apply_all(
        &stack,
        &[identity(
            "hostile",
            json!([{"user": hostile}, {"group": "it's \"quoted\" \\"}]),
        )],
    )
    .await;
    wait_condition(&stack, "hostile", "Enforced", ("True", "Proven")).await;
    let namespace = open_namespace(&cluster, "hostile").await;
    let writes = async |who: Played| who.writes(&cluster, 0, &namespace).await.status;
    assert_eq!(writes(Played::named(hostile)).await, 403);
    let in_group = Played::named("x").in_groups(["it's \"quoted\" \\".to_owned()]);
    assert_eq!(writes(in_group).await, 403);
    assert_eq!(writes(Played::named("ana@example.com")).await, 201);
}

#[tokio::test]
async fn v14_identities_beyond_the_room_are_left_out_and_say_so() {
    let cluster = Cluster::start(Options::default()).await;
    let stack = Stack::start(&cluster, Setup::default()).await;
    apply_all(
        &stack,
        &[identity("oldest", json!([{"user": "oidc:oldest"}]))],
    )
    .await;
    wait_condition(&stack, "oldest", "Enforced", ("True", "Proven")).await;
    // 90 identities of 60 names: more than etcd takes in one object.
    let of = |number: usize| format!("oidc:user-{number:05}-{}", "u".repeat(220));
    for batch in 0..3 {
        let identities: Vec<Value> = (0..30)
            .map(|number| {
                let number = batch * 30 + number;
                let subjects = (0..60).map(|place| json!({"user": of(number * 60 + place)}));
                identity(&format!("many-{number:02}"), subjects.collect())
            })
            .collect();
        apply_all(&stack, &identities).await;
    }
    let api: kube::Api<grantgate::api::AgentIdentity> = kube::Api::all(cluster.admin());
    let left_out = eventually("somebody is left out", PATIENCE, async || {
        let all = api.list(&Default::default()).await.ok()?.items;
        let mut left_out = all.into_iter().filter(|identity| {
            let conditions = identity.status.iter().flat_map(|status| &status.conditions);
            conditions.into_iter().any(|known| {
                known.type_ == "Enforced"
                    && known.status == "False"
                    && known.reason == "TooManySubjects"
            })
        });
        left_out.next()
    })
    .await
    .unwrap();
    wait_condition(&stack, "oldest", "Enforced", ("True", "Proven")).await;
    wait_condition(&stack, "many-00", "Enforced", ("True", "Proven")).await;

    let namespace = open_namespace(&cluster, "v14").await;
    let writes = async |name: String| {
        Played::named(&name)
            .writes(&cluster, 0, &namespace)
            .await
            .status
    };
    assert_eq!(writes("oidc:oldest".to_owned()).await, 403);
    let left_out = left_out.spec.subjects[0].user.clone().unwrap();
    assert_eq!(writes(left_out).await, 201, "left out, and status says so");
    let kubectl = cluster.kubectl(&User::admin());
    let columns = kubectl.run(["get", "agentidentities"]).await.expect_ok();
    assert!(columns.contains("False"), "{columns}");
}
