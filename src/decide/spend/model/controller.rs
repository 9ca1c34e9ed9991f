//! What others than replicas write into the grant: the controller, people, and whoever restores copies.

use super::{
    gate::{Gate, History},
    rules::Rule,
    target::{revision, version},
    world::GrantId,
};
use crate::{
    api::grant::{Evidence, GrantPhase, GrantStatus, Use, UseEffect},
    decide::{
        ended, json,
        live::StaleReason,
        observe::{self, Finding, Marks, Target, Walked},
        permission_for_tests::after,
        settle::{self, Step},
        spend,
    },
};

impl Gate<'_> {
    /// The grant after a person revoked it.
    pub fn revoked(&mut self, live: GrantId) -> GrantId {
        self.next(live, |next| next.spec.revoked = Some(true))
    }

    /// The grant after the controller, or a replica, found it stale; `None`: its phase is final.
    pub fn stale(&mut self, live: GrantId, second: i64) -> Option<GrantId> {
        let grant = self.grant(live);
        let active = grant
            .status
            .as_ref()
            .is_none_or(|status| status.phase.unwrap_or_default() == GrantPhase::Active);
        let status = active
            .then(|| spend::stale(grant, StaleReason::ApproverLost, "gone", after(second)))?;
        Some(self.next(live, |next| next.status = Some(status)))
    }

    /// The grant after the controller wrote that it ended by its uses or its time; `None`: there is nothing to write.
    pub fn ended(&mut self, live: GrantId, second: i64) -> Option<GrantId> {
        let grant = self.grant(live);
        let (spec, status) = (&grant.spec, grant.status.as_ref());
        status
            .is_none_or(|status| status.phase.unwrap_or_default() == Default::default())
            .then_some(())?;
        let end = if self.dropped.has(Rule::EndWaitsForOpenUses) {
            ended::ended(spec, status, after(second))
        } else {
            ended::to_record(spec, status, after(second))
        };
        let phase = end?.phase();
        Some(self.next(live, |next| {
            next.status.get_or_insert_default().phase = Some(phase)
        }))
    }

    /// A copy of the grant that was kept from before its first use, made again under its name: the server gives it another uid and no
    /// status.
    pub fn restored(&mut self, live: GrantId) -> GrantId {
        self.next(live, |next| {
            next.metadata.uid = Some("g2".to_owned());
            next.status = Some(GrantStatus::default());
            next.spec.revoked = None;
        })
    }

    /// The grant after the controller settled what is ready; `None`: nothing is.
    pub fn settle(&mut self, live: GrantId, second: i64, history: &History) -> Option<GrantId> {
        let key = (live, second, history.clone());
        if let Some(known) = self.settled.get(&key) {
            return *known;
        }
        let settled = self.find_out(live, second, history);
        self.settled.insert(key, settled);
        settled
    }

    fn find_out(&mut self, live: GrantId, second: i64, history: &History) -> Option<GrantId> {
        let grant = self.grant(live).clone();
        let status = grant.status.clone()?;
        let early = self.dropped.has(Rule::SettledLate);
        let look = after(if early { second + 1000 } else { second });
        let (ready, _) = settle::ready(&status, look);
        let mut found = Vec::new();
        for uid in ready {
            let (effect, evidence) = self.what_became(&status.uses[&uid], history);
            found.push((uid, effect, evidence));
        }
        if found.is_empty() {
            return None;
        }
        let (status, _) = settle::plan(&grant, &found, after(second));
        Some(self.next(live, |next| next.status = Some(status)))
    }

    fn what_became(&self, used: &Use, history: &History) -> (UseEffect, Evidence) {
        let marks = Marks::of(&self.request.spec);
        let last = history.revisions.len() - 1;
        let text = history.revisions[last]
            .map(|object| self.scenario.place.shown(object, last).to_string());
        let document = text.as_deref().map(|text| json::read(text).unwrap());
        let target = document
            .as_ref()
            .map_or(Target::Absent, |document| Target::Present(document.root()));
        let from = match observe::find(used, &marks, target) {
            Finding::Settled(effect, evidence) => return (effect, evidence),
            Finding::Walk { from } => from,
        };
        let to = history.revisions[last].map(|_| version(last).parse().unwrap());
        let mut walked = Walked::Incomplete;
        for event in from
            .map(|from| self.events(revision(&from), history))
            .unwrap_or_default()
        {
            let text = event.to_string();
            match settle::event(json::read(&text).unwrap().root(), used, &marks, to) {
                Some(Step::On) => continue,
                Some(Step::Held) => walked = Walked::Held,
                Some(Step::End) => walked = Walked::NeverHeld,
                None => {}
            }
            break;
        }
        let (effect, words) = observe::after_walk(used, &marks, walked);
        (effect, observe::evidence(target, &[], words))
    }
}
