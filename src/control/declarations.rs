//! The status of declarations: policies, servers and mounts, as each pass finds them.

use std::{
    collections::HashMap,
    fmt::Debug,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use kube::{
    Api, Resource, ResourceExt,
    api::{ObjectMeta, PostParams},
    core::NamespaceResourceScope,
};
use serde::Serialize;

use crate::{
    cluster::{client::within, lease::Replica},
    control::{
        declared,
        desk::{Desk, Look},
        force::{self, Force},
        mount,
        store::{Kept, Store},
    },
    decide::{
        policy::{Policy, PolicyName, Problem},
        resolve::Policies,
    },
};

const LIMIT: Duration = Duration::from_secs(5);

/// What was looked at and needed no write, so that the same is not resolved at every pass: a mount is every tool of it against every policy.
#[derive(Default)]
pub struct Memo(Mutex<Known>);

#[derive(Default)]
struct Known {
    /// What the policies were; another set voids all.
    policies: Arc<Policies>,
    /// By uid: everything else that went in.
    inputs: HashMap<String, String>,
}

impl Memo {
    /// Whether an object was found to need nothing with just these inputs.
    fn is_settled(&self, policies: &Arc<Policies>, uid: &str, inputs: &str) -> bool {
        let mut known = self.lock();
        if !Arc::ptr_eq(&known.policies, policies) {
            known.policies = policies.clone();
            known.inputs.clear();
        }
        known.inputs.get(uid).is_some_and(|before| before == inputs)
    }

    /// It was.
    fn settle(&self, uid: &str, inputs: String) {
        self.lock().inputs.insert(uid.to_owned(), inputs);
    }

    /// Forgets what is gone.
    fn keep_only(&self, uids: &[&str]) {
        let mut known = self.lock();
        if known.inputs.len() > uids.len() {
            known.inputs.retain(|uid, _| uids.contains(&uid.as_str()));
        }
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Known> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// uid and revision of what went in; absent objects too.
fn revision(meta: Option<&ObjectMeta>) -> String {
    let text = |text: Option<&String>| text.cloned().unwrap_or_default();
    meta.map_or_else(String::new, |meta| {
        format!(
            "{}@{}",
            text(meta.uid.as_ref()),
            text(meta.resource_version.as_ref())
        )
    })
}

/// Writes every status that differs. `unmarked`: grants that may be void are not marked yet.
pub async fn keep(desk: &Desk, look: &Look, replicas: &[Replica], unmarked: bool) {
    let now = look.now;
    let force =
        |plural: &str, since: &str| -> Force { force::observe(replicas, plural, since, unmarked) };
    let world = desk.ctx.view.world();
    // Compiling is dear, and the view has done it already.
    let compiled = |name: PolicyName, metadata: &ObjectMeta| -> Option<Vec<Problem>> {
        let policy = world.policies.get(&name)?;
        let same = Some(&policy.uid) == metadata.uid.as_ref()
            && Some(policy.generation) == metadata.generation;
        same.then(|| policy.problems.clone())
    };
    for entry in &look.cluster_policies {
        let policy = &entry.object;
        let known = compiled(PolicyName::cluster(policy.name_any()), &policy.metadata);
        let problems = known.unwrap_or_else(|| Policy::compile_cluster(policy).problems);
        let force = force("clusterapprovalpolicies", &entry.since);
        let generation = policy.metadata.generation;
        if let Some(status) =
            declared::policy(policy.status.as_ref(), &problems, &force, generation, now)
        {
            let mut written = policy.as_ref().clone();
            written.status = Some(status);
            write_cluster(desk, &desk.cluster_policies, written).await;
        }
    }
    for entry in &look.policies {
        let policy = &entry.object;
        let name =
            PolicyName::namespaced(policy.namespace().unwrap_or_default(), policy.name_any());
        let known = compiled(name, &policy.metadata);
        let problems = known.unwrap_or_else(|| Policy::compile(policy).problems);
        let force = force("approvalpolicies", &entry.since);
        let generation = policy.metadata.generation;
        if let Some(status) =
            declared::policy(policy.status.as_ref(), &problems, &force, generation, now)
        {
            let mut written = policy.as_ref().clone();
            written.status = Some(status);
            write(desk, &desk.policies, written).await;
        }
    }
    let memo = &desk.memo;
    let servers = look
        .servers
        .iter()
        .filter_map(|entry| entry.object.metadata.uid.as_deref());
    let mounts = look
        .mounts
        .iter()
        .filter_map(|entry| entry.object.metadata.uid.as_deref());
    memo.keep_only(&servers.chain(mounts).collect::<Vec<_>>());
    for entry in &look.servers {
        let server = &entry.object;
        let generation = server.metadata.generation;
        let (uid, inputs) = (
            server.uid().unwrap_or_default(),
            revision(Some(&server.metadata)),
        );
        if memo.is_settled(&world.policies, &uid, &inputs) {
            continue;
        }
        match declared::server(server.status.as_ref(), &server.spec, generation, now) {
            Some(status) => {
                let mut written = server.as_ref().clone();
                written.status = Some(status);
                write(desk, &desk.servers, written).await;
            }
            None => memo.settle(&uid, inputs),
        }
    }
    for entry in &look.mounts {
        let mount = &entry.object;
        let namespace = mount.namespace().unwrap_or_default();
        let server = desk.servers.get(&namespace, &mount.spec.server);
        let agent = desk.agents.get("", &mount.spec.agent);
        let force = force("toolmounts", &entry.since);
        let uid = mount.uid().unwrap_or_default();
        let inputs = format!(
            "{} {} {} {force:?}",
            revision(Some(&mount.metadata)),
            revision(server.as_ref().map(|entry| &entry.object.metadata)),
            revision(agent.as_ref().map(|entry| &entry.object.metadata)),
        );
        if memo.is_settled(&world.policies, &uid, &inputs) {
            continue;
        }
        let status = mount::plan(
            mount,
            server.as_ref().map(|entry| entry.object.as_ref()),
            agent.as_ref().map(|entry| entry.object.as_ref()),
            &world.policies,
            &force,
            now,
        );
        match status {
            Some(status) => {
                let mut written = mount.as_ref().clone();
                written.status = Some(status);
                write(desk, &desk.mounts, written).await;
            }
            None => memo.settle(&uid, inputs),
        }
    }
}

/// Writes a status onto the exact revision that it was made from.
pub async fn write<K>(desk: &Desk, store: &Store<K>, object: K)
where
    K: Kept + Serialize + Resource<Scope = NamespaceResourceScope>,
{
    let namespace = object.namespace().unwrap_or_default();
    let api = Api::namespaced(desk.ctx.client.clone(), &namespace);
    put_status(&api, store, object).await;
}

async fn write_cluster<K: Kept + Serialize>(desk: &Desk, store: &Store<K>, object: K) {
    put_status(&Api::all(desk.ctx.client.clone()), store, object).await;
}

/// Writes a status onto the exact revision that it was made from.
async fn put_status<K: Kept + Serialize + Debug>(api: &Api<K>, store: &Store<K>, mut object: K) {
    object.meta_mut().managed_fields = None;
    let name = object.name_any();
    let answer = within(
        LIMIT,
        api.replace_status(&name, &PostParams::default(), &object),
    )
    .await;
    match answer {
        Ok(stored) => store.put(stored),
        Err(error) if error.is_conflict() || error.is_not_found() => {}
        Err(error) => {
            tracing::warn!(%error, kind = %K::kind(&()), name, "a status could not be written");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_needed_no_write_is_looked_at_again_when_anything_that_went_in_is_another() {
        let memo = Memo::default();
        let (one, other) = (Arc::new(Policies::default()), Arc::new(Policies::default()));
        assert!(!memo.is_settled(&one, "u", "m@1 s@1"));
        memo.settle("u", "m@1 s@1".to_owned());
        assert!(memo.is_settled(&one, "u", "m@1 s@1"));
        assert!(!memo.is_settled(&one, "u", "m@1 s@2"));
        memo.keep_only(&["u"]);
        assert!(memo.is_settled(&one, "u", "m@1 s@1"));
        assert!(!memo.is_settled(&other, "u", "m@1 s@1"));
        memo.settle("u", "m@1 s@1".to_owned());
        memo.keep_only(&[]);
        assert!(!memo.is_settled(&other, "u", "m@1 s@1"));
    }
}
