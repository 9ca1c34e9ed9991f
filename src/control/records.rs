//! The record-keeping half: requests, decisions, grants, and what the status of declarations says.
//!
//! Level-triggered: each pass looks at everything that is known and does what is left to do, whatever happened before. A pass begins
//! when something changes, when a deadline comes, and at least every 30 seconds. Nothing is remembered that a restart would miss.

use std::{collections::BTreeSet, sync::Arc, time::Duration};

use futures::StreamExt;
use jiff::{SignedDuration, Timestamp};
use kube::{
    Api, ResourceExt,
    api::{Patch, PatchParams},
};
use tokio::task::JoinSet;

use crate::{
    api::{
        ApprovalDecision, ApprovalRequest, Grant,
        approval_request::RequestPhase,
        grant::{GrantPhase, UseEffect},
    },
    cluster::{
        background,
        client::within,
        index::Index,
        lease::{COMPONENT_LABEL, Replica, WEBHOOK_COMPONENT},
        view::Said,
    },
    control::{context::Context, decision, declarations, desk::Desk, rights::RECHECK},
    decide::{conditions, ended},
};

/// The pause between a change and the pass that it begins: changes come in groups.
const GATHER: Duration = Duration::from_millis(40);
/// A pass while the view cannot be decided on is tried again after this.
const UNREADY: Duration = Duration::from_millis(500);
/// The least pause before a deadline's pass.
const LEAST: Duration = Duration::from_millis(10);
/// Records that are worked on at one time.
const AT_ONCE: usize = 8;
const LIMIT: Duration = Duration::from_secs(5);

/// Keeps records for as long as it is polled: while this replica leads. Dropping it ends it between two writes or within one; the next
/// run, here or elsewhere, goes on from what is stored. Returns only when a watch of it has ended.
pub async fn run(ctx: Arc<Context>) {
    let mut tasks = JoinSet::new();
    let desk = Desk::start(ctx, &mut tasks);
    tokio::select! {
        () = keep(&desk) => {}
        () = settle_all(&desk) => {}
        words = background::first_to_end(&mut tasks) => {
            tracing::error!(words, "a watch of the records has ended");
        }
    }
}

async fn rest(span: Duration) {
    tokio::time::sleep(span).await;
}

/// Time until an instant, within bounds.
fn until(next: Option<Timestamp>, now: Timestamp) -> Duration {
    let span = next.map_or(RECHECK, |next| {
        Duration::try_from(next.duration_since(now)).unwrap_or(Duration::ZERO)
    });
    span.clamp(LEAST, RECHECK)
}

async fn keep(desk: &Arc<Desk>) {
    let mut world = desk.ctx.view.changes();
    let mut own = desk.wake.subscribe();
    let mut said = Said::default();
    loop {
        world.mark_unchanged();
        own.mark_unchanged();
        // Nothing ends by a deadline either: a vote may have been cast that is not seen here.
        let ready = desk.ready();
        let unready = ready.as_ref().err();
        desk.ctx.unkept.set(unready.cloned());
        if said.is_news(unready)
            && let Some(error) = unready
        {
            tracing::warn!(%error, "nothing is decided now");
        }
        let pause = match ready {
            Ok(now) => until(pass(desk, now).await, now),
            Err(_) => UNREADY,
        };
        tokio::select! {
            () = rest(pause) => {}
            _ = world.changed() => rest(GATHER).await,
            _ = own.changed() => rest(GATHER).await,
        }
    }
}

/// One look at everything. Returns when the next deadline comes.
async fn pass(desk: &Arc<Desk>, now: Timestamp) -> Option<Timestamp> {
    let look = desk.look(now);
    let index = &desk.ctx.view.index;
    let requests = index.requests();
    let watched: BTreeSet<String> = requests
        .iter()
        .filter_map(|request| request.uid())
        .collect();
    desk.forget_all_but(&watched);

    let open: Vec<Arc<ApprovalRequest>> = requests
        .into_iter()
        .filter(|request| is_open(request, index, now))
        .collect();
    futures::stream::iter(open)
        .for_each_concurrent(AT_ONCE, |request| desk.keep_request(&look, request))
        .await;

    let active: Vec<Arc<Grant>> = index
        .grants()
        .into_iter()
        .filter(|grant| is_active(grant))
        .collect();
    let unmarked = futures::stream::iter(active)
        .map(|grant| {
            let look = &look;
            async move { desk.keep_grant(look, &grant).await }
        })
        .buffer_unordered(AT_ONCE)
        .fold(false, |any, one| async move { any || one })
        .await;

    keep_decisions(desk, now).await;
    declarations::keep(desk, &look, &replicas(desk, now), unmarked).await;
    next_deadline(desk, now)
}

/// Whether anything may be left to do: it waits, or its grant may have to be made, recorded, lost or ended.
fn is_open(request: &ApprovalRequest, index: &Index, now: Timestamp) -> bool {
    let Some(status) = &request.status else {
        return true;
    };
    match status.phase {
        None => true,
        Some(RequestPhase::Approved) => {
            let lost = conditions::holds(&status.conditions, conditions::GRANT_LOST);
            let uid = status.grant.as_ref().and_then(|grant| grant.uid.clone());
            let over = index
                .grant_of(&request.uid().unwrap_or_default())
                .is_some_and(|grant| {
                    uid.is_some()
                        && grant.metadata.uid == uid
                        && ended::ended(&grant.spec, grant.status.as_ref(), now).is_some()
                });
            !lost && !over
        }
        Some(_) => false,
    }
}

fn is_active(grant: &Grant) -> bool {
    grant
        .status
        .as_ref()
        .and_then(|status| status.phase)
        .is_none_or(|phase| phase == GrantPhase::Active)
}

/// The next time at which something ends by itself, or a replica's Lease may run out.
fn next_deadline(desk: &Desk, now: Timestamp) -> Option<Timestamp> {
    let index = &desk.ctx.view.index;
    let requests = index
        .requests()
        .into_iter()
        .filter(|request| {
            request
                .status
                .as_ref()
                .is_none_or(|status| status.phase.is_none())
        })
        .map(|request| request.spec.deadline.0);
    let grants = index
        .grants()
        .into_iter()
        .filter(|grant| ended::ended(&grant.spec, grant.status.as_ref(), now).is_none())
        .map(|grant| grant.spec.not_after.0);
    let leases = desk.leases.all().into_iter().filter_map(|entry| {
        let lease = entry.object;
        is_replica(&lease).then_some(())?;
        let renewed = lease.spec.as_ref()?.renew_time.as_ref()?.0;
        renewed
            .checked_add(SignedDuration::try_from(crate::cluster::lease::DURATION).ok()?)
            .ok()
    });
    requests
        .chain(grants)
        .chain(leases)
        .filter(|time| *time > now)
        .min()
}

fn replicas(desk: &Desk, now: Timestamp) -> Vec<Replica> {
    desk.leases
        .all()
        .into_iter()
        .filter(|entry| is_replica(&entry.object))
        .map(|entry| Replica::of(&entry.object, now))
        .collect()
}

fn is_replica(lease: &k8s_openapi::api::coordination::v1::Lease) -> bool {
    lease.labels().get(COMPONENT_LABEL).map(String::as_str) == Some(WEBHOOK_COMPONENT)
}

async fn keep_decisions(desk: &Arc<Desk>, now: Timestamp) {
    let index = &desk.ctx.view.index;
    for entry in desk.decisions.all() {
        let decision = entry.object;
        let namespace = decision.namespace().unwrap_or_default();
        let named: Vec<Arc<ApprovalRequest>> = decision
            .spec
            .requests
            .iter()
            .filter_map(|named| index.request(&namespace, &named.name))
            .collect();
        let find = |name: &str| {
            named
                .iter()
                .find(|request| request.metadata.name.as_deref() == Some(name))
                .map(AsRef::as_ref)
        };
        if let Some(owners) = decision::owners(&decision, find) {
            own(desk, &decision, owners).await;
        }
        if let Some(status) = decision::plan(&decision, find, now) {
            let mut written = (*decision).clone();
            written.status = Some(status);
            declarations::write(desk, &desk.decisions, written).await;
        }
    }
}

async fn own(
    desk: &Desk,
    decision: &ApprovalDecision,
    owners: Vec<k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference>,
) {
    let namespace = decision.namespace().unwrap_or_default();
    let api: Api<ApprovalDecision> = Api::namespaced(desk.ctx.client.clone(), &namespace);
    let patch = serde_json::json!({"metadata": {
        "ownerReferences": owners, "resourceVersion": decision.metadata.resource_version, "uid": decision.metadata.uid,
    }});
    let name = decision.name_any();
    let answer = within(
        LIMIT,
        api.patch(&name, &PatchParams::default(), &Patch::Merge(&patch)),
    )
    .await;
    match answer {
        Ok(stored) => desk.decisions.put(stored),
        Err(error) if error.is_conflict() || error.is_not_found() => {}
        Err(error) => {
            tracing::warn!(%error, namespace, name, "the owner of a decision could not be written");
        }
    }
}

/// Settles uses as they fall due. Beside the passes: a walk may take seconds.
async fn settle_all(desk: &Arc<Desk>) {
    let mut world = desk.ctx.view.changes();
    loop {
        world.mark_unchanged();
        let mut pause = UNREADY;
        if let Ok((_, now)) = desk.ctx.view.ready() {
            let open: Vec<Arc<Grant>> = desk
                .ctx
                .view
                .index
                .grants()
                .into_iter()
                .filter(|grant| has_open_use(grant))
                .collect();
            let next = futures::stream::iter(open)
                .map(|grant| async move { desk.settle(&grant, now).await })
                .buffer_unordered(AT_ONCE)
                .fold(None::<Timestamp>, |next, one| async move {
                    [next, one].into_iter().flatten().min()
                })
                .await;
            // A use that could not be read is tried again, so the pause is short while anything is due.
            pause = until(next, now).min(Duration::from_secs(5));
        }
        tokio::select! {
            () = rest(pause) => {}
            _ = world.changed() => rest(GATHER).await,
        }
    }
}

fn has_open_use(grant: &Grant) -> bool {
    grant.status.as_ref().is_some_and(|status| {
        status
            .uses
            .values()
            .any(|used| used.effect == UseEffect::Pending)
    })
}
