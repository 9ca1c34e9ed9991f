//! The rules of a use, each of which a test can drop, to see what then goes wrong.
//!
//! Dropping happens to the inputs and results of the real functions, never inside them.

use crate::{
    api::{
        Grant,
        grant::{GrantPhase, Use, UseEffect},
    },
    decide::{canonical, proposal::Proposal, spend::Known},
};

/// One rule.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Rule {
    /// A use is written onto the exact revision of the grant that was judged.
    ExactRevisionOfTheGrant,
    /// After a conflict the grant is read and judged again.
    JudgedAgainAfterConflict,
    /// The same review gets the same answer.
    SameReview,
    /// An open use serves again for 34 s.
    Window,
    /// Only for the requester.
    Requester,
    /// Only for the object of that uid.
    TargetUid,
    /// Only through the same subresource.
    Subresource,
    /// Only through the same version.
    Version,
    /// Only with the same options; of a deletion: the same propagation.
    Options,
    /// Only for the same change, also in what the binding leaves free.
    WholeChange,
    /// The object shown has the resourceVersion of the use.
    SameRevision,
    /// The generation counts only where the write raises it.
    RaisesGeneration,
    /// The generation counts only where there is one.
    HasGeneration,
    /// No revision in between holds the change.
    WitnessLooks,
    /// A revision that cannot be seen counts as one that holds it.
    WitnessSeesAll,
    /// A use is moved ten times at most.
    TenMoves,
    /// A deletion serves again with no shorter grace.
    Grace,
    /// A creation never serves again.
    CreateNever,
    /// What a creation made is compared by the uid that the server chose.
    CreatedUid,
    /// A connection never serves again.
    ConnectNever,
    /// Not while the grant is revoked.
    NotRevoked,
    /// Not while the grant is stale.
    NotStale,
    /// Out of a grant that was read live.
    ReadLive,
    /// Only the newest open use, even when it is gone.
    NewestOnly,
    /// Only a use that is not settled.
    OpenOnly,
    /// A use is settled when no retry can land any more.
    SettledLate,
    /// No grant's end by time is written over an open use.
    EndWaitsForOpenUses,
    /// Grant and request name each other.
    BothReferences,
}

/// The rules that are dropped.
#[derive(Clone, Copy, Debug)]
pub struct Dropped(pub &'static [Rule]);

impl Dropped {
    /// Whether a rule is.
    pub fn has(self, rule: Rule) -> bool {
        self.0.contains(&rule)
    }

    /// What the functions are given instead of grant, proposal and knowledge.
    pub fn disguise(self, grant: &mut Grant, proposal: &mut Proposal, known: &mut Known) {
        let Self(dropped) = self;
        for rule in dropped {
            disguise(*rule, grant, proposal, known);
        }
    }
}

/// The newest use that is open.
pub fn newest(grant: &Grant) -> Option<(&String, &Use)> {
    let uses = &grant.status.as_ref()?.uses;
    uses.iter()
        .filter(|(_, used)| used.effect == UseEffect::Pending)
        .max_by_key(|(uid, used)| (used.at.0, *uid))
}

/// Rules of serving again make no difference before there is an open use, and none is disguised: a first use stays what it is.
fn disguise(rule: Rule, grant: &mut Grant, proposal: &mut Proposal, known: &mut Known) {
    let uses = |grant: &mut Grant, change: &dyn Fn(&mut Use)| {
        let status = grant.status.get_or_insert_default();
        status.uses.values_mut().for_each(change);
    };
    if rule == Rule::OpenOnly {
        uses(grant, &|used| used.effect = UseEffect::Pending);
    }
    let Some(open) = newest(grant).map(|(_, used)| used.clone()) else {
        return;
    };
    match rule {
        Rule::SameReview => {
            let status = grant.status.get_or_insert_default();
            if let Some(known) = status.uses.remove(&proposal.admission_uid) {
                let other = proposal.admission_uid.replace("00000000-", "ffffffff-");
                status.uses.insert(other, known);
            }
        }
        Rule::Requester => {
            proposal.requester.clone_from(&grant.spec.requester);
            proposal.action_key.clone_from(&grant.spec.action_key);
        }
        Rule::TargetUid => {
            // The uid stands in the use, in the action and in the state; other state is not disguised.
            if let Some(uid) = grant.spec.action.target_uid.clone() {
                let shown = format!("\"uid\":\"{}\"", proposal.object_uid);
                let bound = format!("\"uid\":\"{uid}\"");
                let state = proposal.bound.state.replace(&shown, &bound);
                proposal.bound.state_digest = canonical::digest(&state);
                proposal.object_uid.clone_from(&uid);
                proposal.action.target_uid = Some(uid);
            }
        }
        Rule::Subresource => {
            let approved = &grant.spec.action.subresource;
            proposal.action.subresource.clone_from(approved);
            proposal.action_key.clone_from(&grant.spec.action_key);
        }
        Rule::Version => {
            let approved = &grant.spec.action.version;
            proposal.action.version.clone_from(approved);
        }
        Rule::Options => {
            if proposal.bound.content_digest == proposal.options.digest {
                proposal.bound.content_digest = open.content_digest;
            }
            let approved = &grant.spec.action.options;
            proposal.options.canonical.clone_from(approved);
            proposal.options.digest = open.options_digest;
        }
        Rule::WholeChange => proposal.bound.content_digest = open.content_digest,
        Rule::SameRevision => {
            if let (Some(shown), Some(base)) = (open.shown, proposal.base.as_mut()) {
                base.resource_version = shown.resource_version;
            }
        }
        Rule::RaisesGeneration => proposal.raises_generation = true,
        Rule::HasGeneration => {
            if let Some(base) = proposal.base.as_mut() {
                base.generation.get_or_insert(0);
            }
            uses(grant, &|used| {
                if let Some(shown) = used.shown.as_mut() {
                    shown.generation.get_or_insert(0);
                }
            });
        }
        Rule::TenMoves => uses(grant, &|used| used.witness_moves = 0),
        Rule::Grace => proposal.options.grace_seconds = open.grace_seconds,
        Rule::CreatedUid => proposal.object_uid = open.target_uid,
        Rule::NotRevoked => {
            grant.spec.revoked = None;
            let status = grant.status.get_or_insert_default();
            status.phase = status.phase.filter(|phase| *phase != GrantPhase::Revoked);
        }
        Rule::NotStale => {
            let status = grant.status.get_or_insert_default();
            status.phase = status.phase.filter(|phase| *phase != GrantPhase::Stale);
        }
        Rule::ReadLive => known.live.extend(grant.metadata.uid.clone()),
        Rule::NewestOnly => {
            // Shown is the oldest that is not gone, and what answers the same review.
            let status = grant.status.get_or_insert_default();
            status.uses.retain(|uid, _| !known.gone.contains(uid));
            let oldest = status
                .uses
                .iter()
                .min_by_key(|(uid, used)| (used.at.0, *uid))
                .map(|(uid, _)| uid.clone());
            status
                .uses
                .retain(|uid, _| Some(uid) == oldest.as_ref() || *uid == proposal.admission_uid);
        }
        // Dropped where they are: above, in time, in what is written, in what the witness says, in results, and in the controller.
        Rule::OpenOnly
        | Rule::ExactRevisionOfTheGrant
        | Rule::JudgedAgainAfterConflict
        | Rule::Window
        | Rule::WitnessLooks
        | Rule::WitnessSeesAll
        | Rule::CreateNever
        | Rule::ConnectNever
        | Rule::SettledLate
        | Rule::EndWaitsForOpenUses
        | Rule::BothReferences => {}
    }
}
