//! kill -9 between any two steps, a restart of the store, and answers that never come: nothing is lost and nothing is doubled.

use std::sync::Arc;

use grantgate::api::Grant;
use serde_json::{Value, json};

use crate::{
    cluster::{
        Cluster, Part,
        apiproxy::ApiProxy,
        faults::{Faults, Moment, Seen},
        wait::{PATIENCE, eventually},
    },
    stack::{Agent, Answer, Setup, Stack, kubeconfig_at, with_controllers},
};

/// What an agent changes: replicas by `scale` (the generation tells), or a label (only the resourceVersion does).
#[derive(Clone, Copy, Debug)]
enum Change {
    Scale(i32),
    Label(&'static str),
}

impl Change {
    async fn call(self, stack: &Stack<'_>, agent: &Agent) -> Answer {
        match self {
            Change::Scale(replicas) => stack.scale(agent, replicas).await,
            Change::Label(tier) => stack.label(agent, tier).await,
        }
    }

    async fn approved(self, stack: &Stack<'_>, agent: &Agent) -> Grant {
        let stopped = self.call(stack, agent).await;
        assert_eq!(stopped.status, 403, "{stopped:?}");
        stack.approve(&stopped).await.grant.unwrap()
    }

    async fn is_done(self, stack: &Stack<'_>, agent: &Agent) -> bool {
        match self {
            Change::Scale(replicas) => stack.replicas(&agent.namespace).await == replicas,
            Change::Label(tier) => {
                let path = format!("/api/v1/namespaces/{}/configmaps/settings", agent.namespace);
                let admin = crate::cluster::User::admin();
                let map = stack.call(&admin, "GET", &path, "", &Value::Null).await;
                map.expect_ok()["metadata"]["labels"]["tier"] == tier
            }
        }
    }

    /// A person takes it back.
    async fn undo(self, stack: &Stack<'_>, agent: &Agent) {
        let admin = crate::cluster::User::admin();
        match self {
            Change::Scale(_) => stack.admin_scale(&agent.namespace, 3).await,
            Change::Label(_) => {
                let path = format!("/api/v1/namespaces/{}/configmaps/settings", agent.namespace);
                let back = json!({"metadata": {"labels": {"tier": "A"}}});
                stack.patch(&admin, &path, back).await.expect_ok();
            }
        }
    }
}

/// The write of a use.
fn records_a_use(seen: &Seen) -> bool {
    seen.method == "PUT" && seen.path.contains("/grants/") && seen.path.ends_with("/status")
}

/// A stack whose first replica reaches the API server through a proxy.
async fn behind_a_proxy<'c>(cluster: &'c Cluster, proxy: &ApiProxy, replicas: usize) -> Stack<'c> {
    let kubeconfig = kubeconfig_at(cluster, proxy.endpoint(), "grantgate-webhook").await;
    Stack::start(
        cluster,
        Setup {
            replicas,
            webhook_kubeconfigs: vec![Some(kubeconfig)],
            ..Setup::default()
        },
    )
    .await
}

/// After whatever happened: done once under one use; taken back by a person it is not done again.
async fn assert_spent(stack: &Stack<'_>, agent: &Agent, change: Change, grant: &Grant) {
    assert!(change.is_done(stack, agent).await, "{change:?}");
    assert_eq!(stack.uses(grant).await.len(), 1, "{change:?}");
    change.undo(stack, agent).await;
    change.call(stack, agent).await.expect_refused("GrantSpent");
    assert!(!change.is_done(stack, agent).await, "{change:?}");
    assert_eq!(stack.uses(grant).await.len(), 1, "{change:?}");
}

#[tokio::test]
async fn a_replica_killed_between_recording_a_use_and_answering_leaves_one_use_that_serves_again() {
    let cluster = Cluster::start(with_controllers()).await;
    let proxy = cluster.api_proxy(0);
    let mut stack = behind_a_proxy(&cluster, &proxy, 2).await;
    let agent = stack.agent("killed").await;
    for (change, moment, recorded) in [
        (Change::Scale(5), Moment::After, 1),
        (Change::Label("B"), Moment::After, 1),
        (Change::Scale(6), Moment::Before, 0),
        (Change::Label("C"), Moment::Before, 0),
    ] {
        stack.only(0, &agent).await;
        let grant = change.approved(&stack, &agent).await;
        let trap = proxy.faults().hold(moment, 1, records_a_use);
        let mut replica = stack.webhooks.remove(0);
        let (answer, ()) = tokio::join!(change.call(&stack, &agent), async {
            trap.sprung().await;
            replica.kill();
            drop(trap);
        });
        stack.webhooks.insert(0, replica);
        let what = format!("{change:?}, killed {moment:?} the write");
        assert!(
            answer.status >= 500,
            "{what}: the client learns that something broke: {answer:?}"
        );
        assert!(!change.is_done(&stack, &agent).await, "{what}");
        assert_eq!(stack.uses(&grant).await.len(), recorded, "{what}");

        stack.front.choose(None);
        change.call(&stack, &agent).await.expect_ok();
        assert_spent(&stack, &agent, change, &grant).await;

        // The one that died comes back, reads what is, and admits nothing again.
        stack.restart_webhook(0).await.unwrap();
        stack.only(0, &agent).await;
        let again = change.call(&stack, &agent).await;
        assert_eq!(again.status, 403, "{what}: {again:?}");
        assert_eq!(stack.uses(&grant).await.len(), 1, "{what}");
    }
}

#[tokio::test]
async fn a_use_whose_write_was_not_answered_is_found_and_admitted_once() {
    let cluster = Cluster::start(with_controllers()).await;
    let proxy = cluster.api_proxy(0);
    let stack = behind_a_proxy(&cluster, &proxy, 1).await;
    let agent = stack.agent("unanswered").await;
    let faults = proxy.faults();
    type Fault = fn(&Arc<Faults>, Moment) -> crate::cluster::faults::Trap;
    let cut: Fault = |faults, moment| faults.cut(moment, 1, records_a_use);
    let refused: Fault = |faults, moment| faults.answer(moment, 1, 503, records_a_use);
    let too_many: Fault = |faults, moment| faults.answer(moment, 1, 429, records_a_use);
    for (number, (fault, moment, change)) in [
        (cut, Moment::After, Change::Scale(5)),
        (cut, Moment::After, Change::Label("B")),
        (refused, Moment::After, Change::Scale(6)),
        (too_many, Moment::After, Change::Scale(7)),
        (cut, Moment::Before, Change::Scale(8)),
        (refused, Moment::Before, Change::Label("C")),
    ]
    .into_iter()
    .enumerate()
    {
        let what = format!("case {number}, {change:?} {moment:?}");
        let grant = change.approved(&stack, &agent).await;
        faults.forget();
        let trap = fault(faults, moment);
        let answer = change.call(&stack, &agent).await;
        assert!(trap.is_sprung(), "{what}");
        assert_eq!(faults.count(records_a_use), 1, "{what}: written once");
        if moment == Moment::After {
            assert!(answer.ok(), "{what}: {answer:?}");
        } else {
            // It did not land, and nothing says that it never will: refused, and free for the next call.
            answer.expect_refused("ApprovalUnavailable");
            assert!(!change.is_done(&stack, &agent).await, "{what}");
            assert!(stack.uses(&grant).await.is_empty(), "{what}");
            change.call(&stack, &agent).await.expect_ok();
        }
        assert_spent(&stack, &agent, change, &grant).await;
    }
}

#[tokio::test]
async fn a_use_that_is_being_written_when_the_api_server_hangs_up_is_kept_and_serves_again() {
    let cluster = Cluster::start(with_controllers()).await;
    let proxy = cluster.api_proxy(0);
    let stack = behind_a_proxy(&cluster, &proxy, 1).await;
    let agent = stack.agent("hung-up").await;
    for change in [Change::Scale(5), Change::Label("B")] {
        let grant = change.approved(&stack, &agent).await;
        let trap = proxy.faults().hold(Moment::Before, 1, records_a_use);
        let (answer, ()) = tokio::join!(change.call(&stack, &agent), async {
            trap.sprung().await;
            // The API server loses its webhook while the write is on its way, and the client is told so.
            stack.front.sever(true);
        });
        assert!(answer.status >= 500, "{change:?}: {answer:?}");
        assert!(stack.uses(&grant).await.is_empty(), "{change:?}");
        trap.release();
        eventually("the use is written all the same", PATIENCE, async || {
            (stack.uses(&grant).await.len() == 1).then_some(())
        })
        .await
        .unwrap();
        assert!(!change.is_done(&stack, &agent).await, "{change:?}");
        stack.front.sever(false);
        change.call(&stack, &agent).await.expect_ok();
        assert_spent(&stack, &agent, change, &grant).await;
    }
}

/// A write of the controller on the way from a vote to a grant in force.
#[derive(Clone, Copy, Debug)]
enum Step {
    /// The request is approved, and the grant named.
    Approved,
    /// The grant is made.
    Minted,
    /// The request is told the grant's uid.
    Told,
    /// The decision is told that it was counted.
    Counted,
}

impl Step {
    fn is(self, seen: &Seen) -> bool {
        let status_of = |plural: &str| {
            seen.method == "PUT"
                && seen.path.contains(&format!("/{plural}/"))
                && seen.path.ends_with("/status")
        };
        let told = || {
            serde_json::from_slice::<Value>(&seen.body).is_ok_and(|body| {
                body.pointer("/status/grant/uid")
                    .is_some_and(Value::is_string)
            })
        };
        match self {
            Step::Approved => status_of("approvalrequests") && !told(),
            Step::Minted => seen.method == "POST" && seen.path.ends_with("/grants"),
            Step::Told => status_of("approvalrequests") && told(),
            Step::Counted => status_of("approvaldecisions"),
        }
    }
}

#[tokio::test]
async fn a_controller_killed_before_or_after_any_of_its_writes_makes_one_grant() {
    let cluster = Cluster::start(with_controllers()).await;
    let proxy = cluster.api_proxy(0);
    let kubeconfig = kubeconfig_at(&cluster, proxy.endpoint(), "grantgate-controller").await;
    let setup = Setup {
        controller_kubeconfig: Some(kubeconfig),
        ..Setup::default()
    };
    let mut stack = Stack::start(&cluster, setup).await;
    let agent = stack.agent("controller").await;
    let mut replicas = 4;
    for step in [Step::Approved, Step::Minted, Step::Told, Step::Counted] {
        for moment in [Moment::Before, Moment::After] {
            replicas += 1;
            let what = format!("killed {moment:?} {step:?}");
            let change = Change::Scale(replicas);
            let stopped = change.call(&stack, &agent).await;
            assert_eq!(stopped.status, 403, "{what}: {stopped:?}");
            let request = stack.request_of(&stopped).await;
            let trap = proxy.faults().hold(moment, 1, move |seen| step.is(seen));
            let mut controller = stack.controller.take().unwrap();
            let (decided, ()) = tokio::join!(stack.approve_request(&request), async {
                trap.sprung().await;
                controller.kill();
                drop(trap);
                controller.restart().unwrap();
            });
            stack.controller = Some(controller);
            let uid = request.metadata.uid.as_deref().unwrap();
            let grants = stack.grants(&agent.namespace).await;
            let of_it = grants
                .iter()
                .filter(|grant| grant.spec.request_ref.uid == uid);
            assert_eq!(of_it.count(), 1, "{what}");
            let grant = decided.grant.unwrap();
            let told = decided.request.status.unwrap().grant.unwrap();
            assert_eq!(told.uid, grant.metadata.uid, "{what}");
            eventually("the decision is told", PATIENCE, async || {
                let api: kube::Api<grantgate::api::ApprovalDecision> =
                    kube::Api::namespaced(cluster.admin(), &agent.namespace);
                let all = api.list(&kube::api::ListParams::default()).await.ok()?;
                let told = |decision: &grantgate::api::ApprovalDecision| {
                    let conditions = decision.status.as_ref().map(|status| &status.conditions);
                    conditions.is_some_and(|all| all.iter().any(|one| one.type_ == "Counted"))
                };
                all.items.iter().all(told).then_some(())
            })
            .await
            .unwrap();
            change.call(&stack, &agent).await.expect_ok();
            assert_spent(&stack, &agent, change, &grant).await;
        }
    }
}

/// Ends etcd as a crash would, starts it again, and waits until grantgate works on it.
async fn restart_etcd(cluster: &Cluster, stack: &mut Stack<'_>) {
    cluster.kill(Part::Etcd).await.unwrap();
    cluster.restart(Part::Etcd).await.unwrap();
    stack.wait_until_ready().await.unwrap();
}

#[tokio::test]
async fn a_restart_of_the_store_at_any_point_loses_and_doubles_nothing() {
    let cluster = Cluster::start(with_controllers()).await;
    let proxy = cluster.api_proxy(0);
    let mut stack = behind_a_proxy(&cluster, &proxy, 1).await;
    let agent = stack.agent("store").await;
    for change in [Change::Scale(5), Change::Label("B")] {
        let before = stack.requests(&agent.namespace).await.len();
        let stopped = change.call(&stack, &agent).await;
        assert_eq!(stopped.status, 403, "{stopped:?}");
        let request = stack.request_of(&stopped).await;

        // While it waits.
        restart_etcd(&cluster, &mut stack).await;
        let again = eventually("the request is found again", PATIENCE, async || {
            Some(change.call(&stack, &agent).await).filter(|answer| answer.request().is_some())
        })
        .await
        .unwrap();
        assert_eq!(again.request(), stopped.request(), "{change:?}");

        // Between the vote and the grant, or somewhere about there.
        let voted = stack
            .vote(&crate::cluster::User::ana(), &request, "Approve")
            .await;
        voted.unwrap();
        restart_etcd(&cluster, &mut stack).await;
        let grant = minted(&stack, &agent, &request.metadata.uid.clone().unwrap()).await;

        // While the use is being written: the store is gone before the write arrives there.
        let trap = proxy.faults().hold(Moment::Before, 1, records_a_use);
        let (answer, ()) = tokio::join!(change.call(&stack, &agent), async {
            trap.sprung().await;
            cluster.kill(Part::Etcd).await.unwrap();
            trap.release();
        });
        assert!(!answer.ok(), "{change:?}: {answer:?}");
        restart_etcd(&cluster, &mut stack).await;
        assert!(!change.is_done(&stack, &agent).await, "{change:?}");
        assert!(stack.uses(&grant).await.len() <= 1, "{change:?}");
        eventually("the flow goes on", PATIENCE, async || {
            change.call(&stack, &agent).await.ok().then_some(())
        })
        .await
        .unwrap();
        assert!(change.is_done(&stack, &agent).await, "{change:?}");

        // After it was used.
        restart_etcd(&cluster, &mut stack).await;
        assert_eq!(stack.requests(&agent.namespace).await.len(), before + 1);
        assert_spent(&stack, &agent, change, &grant).await;
    }
}

/// The one grant of a request, once the request has been told its uid.
async fn minted(stack: &Stack<'_>, agent: &Agent, request_uid: &str) -> Grant {
    eventually("the grant is minted", PATIENCE, async || {
        let requests = stack.requests(&agent.namespace).await;
        let told = requests
            .into_iter()
            .find(|request| request.metadata.uid.as_deref() == Some(request_uid))?
            .status?
            .grant?
            .uid?;
        let grants = stack.grants(&agent.namespace).await;
        let mut of_it = grants
            .into_iter()
            .filter(|grant| grant.spec.request_ref.uid == request_uid);
        let grant = of_it
            .next()
            .filter(|grant| grant.metadata.uid.as_ref() == Some(&told))?;
        assert!(of_it.next().is_none(), "two grants for one request");
        Some(grant)
    })
    .await
    .unwrap()
}
