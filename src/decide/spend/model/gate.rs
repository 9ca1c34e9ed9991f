//! The gate: any number of replicas, each of which decides by the real functions on the copy of the grant that it has. What was decided
//! once is remembered: the functions are pure.

use std::{collections::HashMap, hash::Hash, rc::Rc};

use jiff::SignedDuration;

use super::{
    explore::Quick,
    rules::{Dropped, Rule, newest},
    target::{Object, revision, version},
    world::{GrantId, Scenario, Uid},
    writes::{self, Shown},
};
use crate::{
    api::{
        ApprovalRequest, Grant, Operation,
        approval_request::{Base, RequestPhase},
        grant::GrantStatus,
    },
    decide::{
        json,
        live::GrantView,
        permission_for_tests::{self as permission, after},
        proposal::Proposal,
        review::Review,
        spend::{self, Known, ReadmitRule, Turn, WINDOW},
        witness::{self, Seen},
        world::World,
    },
};

/// What a replica is asked.
#[derive(Clone, Debug, Eq, Hash, PartialEq)]
pub struct Asked {
    /// Its copy of the grant.
    pub grant: GrantId,
    /// Whether that was read live within this call.
    pub live: bool,
    /// Uses that the witness found gone.
    pub gone: Vec<Uid>,
    /// Which of the scenario's writes.
    pub write: u8,
    /// What the review shows.
    pub shown: Shown,
    /// Uid of the review.
    pub uid: Uid,
    /// Seconds since the beginning.
    pub second: i64,
}

/// What a replica does next.
#[derive(Clone, Debug, Eq, Hash, PartialEq)]
pub enum Verdict {
    /// It admits, under this use.
    Admit {
        /// The use.
        by: Uid,
        /// Why an open use serves; `None`: the same review.
        rule: Option<ReadmitRule>,
    },
    /// It denies.
    Deny,
    /// It reads the grant.
    Read,
    /// It asks the witness about the revisions from one to the other.
    Look {
        /// The use.
        by: Uid,
        /// The revision that it stands at.
        from: usize,
    },
    /// It writes this grant, and admits under this use if that is stored.
    Write {
        /// What it writes.
        next: GrantId,
        /// The use.
        by: Uid,
    },
}

/// The revisions of the target, and the first that the watch still serves.
#[derive(Clone, Debug, Eq, Hash, PartialEq)]
pub struct History {
    /// Each revision; `None`: deleted.
    pub revisions: Vec<Option<Object>>,
    /// Watches from before this one are answered 410.
    pub kept_from: usize,
}

/// Gate and controller of one exploration.
pub struct Gate<'s> {
    /// What happens.
    pub scenario: &'s Scenario,
    /// Without which rules.
    pub dropped: Dropped,
    world: World,
    /// The request that the grant was minted from.
    pub request: ApprovalRequest,
    grants: Vec<Grant>,
    by_text: HashMap<String, GrantId>,
    proposals: HashMap<(u8, Shown, Uid), Rc<Proposal>, Quick>,
    verdicts: HashMap<Asked, Verdict, Quick>,
    looks: HashMap<(u8, Shown, usize, History), Seen, Quick>,
    /// What the controller settled.
    pub settled: HashMap<(GrantId, i64, History), Option<GrantId>, Quick>,
}

/// The admission uid that stands for the so-manieth review of a request.
fn admission_uid(uid: Uid) -> String {
    format!("00000000-0000-0000-0000-{uid:012}")
}

fn uid_of(admission_uid: &str) -> Uid {
    admission_uid[24..].parse().unwrap()
}

/// Text of a review.
fn text(scenario: &Scenario, write: u8, shown: Shown, uid: Uid) -> String {
    // The API server makes up another uid for each attempt to create.
    let made = Object {
        uid: uid + 10,
        ..scenario.place.first()
    };
    let write = scenario.writes[usize::from(write)];
    writes::review(scenario.place, write, shown, &admission_uid(uid), made)
}

impl<'s> Gate<'s> {
    /// A gate with the scenario's grant, not used yet.
    pub fn new(scenario: &'s Scenario, dropped: Dropped) -> (Self, GrantId) {
        let world = writes::known(scenario.place);
        let text = text(scenario, 0, scenario.first_shown(), 99);
        let approved = writes::proposal(&world, &text, scenario.writes[0]);
        let mut grant = permission::grant(&approved, Some(scenario.uses));
        grant.spec.not_after.0 = after(scenario.not_after);
        let mut request = permission::request(&approved, "r1", Some(RequestPhase::Approved));
        request.metadata.name = Some(grant.spec.request_ref.name.clone());
        let mut gate = Self {
            scenario,
            dropped,
            world,
            request,
            grants: Vec::new(),
            by_text: HashMap::new(),
            proposals: HashMap::default(),
            verdicts: HashMap::default(),
            looks: HashMap::default(),
            settled: HashMap::default(),
        };
        let first = gate.intern(grant);
        (gate, first)
    }

    fn intern(&mut self, grant: Grant) -> GrantId {
        let text = serde_json::to_string(&grant).unwrap();
        *self.by_text.entry(text).or_insert_with(|| {
            self.grants.push(grant);
            GrantId::try_from(self.grants.len() - 1).unwrap()
        })
    }

    /// A grant.
    pub fn grant(&self, id: GrantId) -> &Grant {
        &self.grants[usize::from(id)]
    }

    /// A grant with another status, as the next revision of `live`.
    pub fn next(&mut self, live: GrantId, change: impl FnOnce(&mut Grant)) -> GrantId {
        let mut grant = self.grant(live).clone();
        let stored: u32 = grant
            .metadata
            .resource_version
            .take()
            .unwrap()
            .parse()
            .unwrap();
        change(&mut grant);
        grant.metadata.resource_version = Some((stored + 1).to_string());
        self.intern(grant)
    }

    fn proposal(&mut self, write: u8, shown: Shown, uid: Uid) -> Rc<Proposal> {
        if let Some(known) = self.proposals.get(&(write, shown, uid)) {
            return known.clone();
        }
        let text = text(self.scenario, write, shown, uid);
        let made = writes::proposal(&self.world, &text, self.scenario.writes[usize::from(write)]);
        let made = Rc::new(made);
        self.proposals.insert((write, shown, uid), made.clone());
        made
    }

    /// What a replica does next.
    pub fn decide(&mut self, asked: &Asked) -> Verdict {
        if let Some(known) = self.verdicts.get(asked) {
            return known.clone();
        }
        let verdict = self.judge(asked);
        self.verdicts.insert(asked.clone(), verdict.clone());
        verdict
    }

    fn judge(&mut self, asked: &Asked) -> Verdict {
        let stored = self.grant(asked.grant).clone();
        let mut proposal = (*self.proposal(asked.write, asked.shown, asked.uid)).clone();
        let mut known = Known {
            live: Vec::new(),
            gone: asked.gone.iter().map(|uid| admission_uid(*uid)).collect(),
        };
        if asked.live {
            known.live.extend(stored.metadata.uid.clone());
        }
        let mut grant = stored.clone();
        self.dropped.disguise(&mut grant, &mut proposal, &mut known);
        let mut now = after(asked.second - self.scenario.replicas_behind);
        if let Some((_, open)) = newest(&grant).filter(|_| self.dropped.has(Rule::Window)) {
            let within = WINDOW.checked_sub(SignedDuration::from_secs(1)).unwrap();
            now = now.min(open.at.0.checked_add(within).unwrap());
        }
        let mut view = GrantView::of(&grant, [&self.request]);
        if self.dropped.has(Rule::BothReferences) {
            view.backed_by_request = grant.metadata.uid.as_deref();
        }
        let moves = self.scenario.moves;
        match spend::turn(&[view], &proposal, now, "replica", &known) {
            Turn::Admit {
                operation_id, rule, ..
            } => {
                let uses = &stored.status.as_ref().unwrap().uses;
                let by = uses
                    .iter()
                    .find(|(_, used)| used.operation_id == operation_id);
                Verdict::Admit {
                    by: uid_of(by.unwrap().0),
                    rule,
                }
            }
            Turn::Write { status, .. } => Verdict::Write {
                next: self.next(asked.grant, |next| count(next, *status, &proposal, moves)),
                by: asked.uid,
            },
            Turn::Read { .. } => Verdict::Read,
            Turn::Look { use_uid, from, .. } => Verdict::Look {
                by: uid_of(&use_uid),
                from: revision(&from.resource_version),
            },
            Turn::Busy(_) => Verdict::Deny,
            Turn::Refuse(_) => self.never(&grant, &proposal),
        }
    }

    /// A denial, or what takes its place where creations or connections serve again.
    fn never(&self, grant: &Grant, proposal: &Proposal) -> Verdict {
        let rule = match proposal.action.operation {
            Operation::Create => Rule::CreateNever,
            Operation::Connect => Rule::ConnectNever,
            _ => return Verdict::Deny,
        };
        let again = newest(grant).filter(|(_, open)| {
            self.dropped.has(rule)
                && open.content_digest == proposal.bound.content_digest
                && open.target_uid == proposal.object_uid
        });
        again.map_or(Verdict::Deny, |(uid, _)| Verdict::Admit {
            by: uid_of(uid),
            rule: Some(ReadmitRule::SameRevision),
        })
    }

    /// What the gate writes after the witness saw no commit: the use at the revision shown. `None`: it may not be moved.
    pub fn moved(&mut self, grant: GrantId, by: Uid, shown: Shown) -> Option<GrantId> {
        let (object, revision) = shown?;
        let to = Base {
            resource_version: version(revision),
            generation: object.generation.map(i64::from),
        };
        let status = spend::moved(self.grant(grant), &admission_uid(by), &to)?;
        Some(self.next(grant, |next| next.status = Some(status)))
    }

    /// What the witness sees of the revisions after `from`, up to the one that the review shows.
    pub fn look(&mut self, asked: &Asked, from: usize, history: &History) -> Seen {
        let key = (asked.write, asked.shown, from, history.clone());
        if let Some(known) = self.looks.get(&key) {
            return *known;
        }
        let seen = self.walk(asked, from, history);
        self.looks.insert(key, seen);
        seen
    }

    fn walk(&self, asked: &Asked, from: usize, history: &History) -> Seen {
        let text = text(self.scenario, asked.write, asked.shown, asked.uid);
        let document = json::read(&text).unwrap();
        let review = Review::of(&document).unwrap();
        let end: u64 = version(asked.shown.unwrap().1).parse().unwrap();
        for event in self.events(from, history) {
            let gone = event["type"] == "ERROR";
            let text = event.to_string();
            let document = json::read(&text).unwrap();
            match witness::event(&review, document.root(), end) {
                None => {}
                Some(Seen::MaybeCommitted) if gone && self.dropped.has(Rule::WitnessSeesAll) => {
                    return Seen::NotCommitted;
                }
                Some(Seen::MaybeCommitted) if !gone && self.dropped.has(Rule::WitnessLooks) => {
                    return Seen::NotCommitted;
                }
                Some(seen) => return seen,
            }
        }
        Seen::MaybeCommitted
    }

    /// What a watch after `from` sends.
    pub fn events(&self, from: usize, history: &History) -> Vec<serde_json::Value> {
        if from < history.kept_from {
            let expired =
                serde_json::json!({"type": "ERROR", "object": {"kind": "Status", "code": 410}});
            return vec![expired];
        }
        let at = |revision: usize| history.revisions[revision];
        (from + 1..history.revisions.len())
            .map(|revision| {
                writes::event(
                    self.scenario.place,
                    at(revision),
                    at(revision - 1),
                    revision,
                )
            })
            .collect()
    }

    /// The live grant with a use that was judged on another revision of it.
    pub fn forced(&mut self, live: GrantId, judged: GrantId) -> GrantId {
        let status = self.grant(judged).status.clone().unwrap();
        self.next(live, |next| {
            let stored = next.status.get_or_insert_default();
            stored.used = Some(stored.used.unwrap_or(0) + 1);
            for (uid, used) in status.uses {
                stored.uses.entry(uid).or_insert(used);
            }
        })
    }

    /// The grant `judged` in the place of the live one, whatever that says.
    pub fn overwritten(&mut self, live: GrantId, judged: GrantId) -> GrantId {
        let written = self.grant(judged).status.clone();
        self.next(live, |next| next.status = written)
    }
}

/// Counts what the real function counted, on what is really stored.
fn count(next: &mut Grant, counted: GrantStatus, proposal: &Proposal, moves: i32) {
    let status = next.status.get_or_insert_default();
    status.used = counted.used;
    status.phase = counted.phase;
    let mut uses = counted.uses.into_iter();
    if let Some((uid, mut used)) = uses.find(|(uid, _)| *uid == proposal.admission_uid) {
        used.witness_moves = moves;
        status.uses.insert(uid, used);
    }
}
