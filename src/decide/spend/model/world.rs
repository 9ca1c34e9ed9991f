//! One state of everything, and what a scenario allows to happen in it.

use super::{
    gate::History,
    target::{Foreign, Object, Place},
    writes::{Act, Shown, Write},
};

/// A revision of the grant, by its place among all that were ever seen.
pub type GrantId = u16;
/// An admission review: ten times its request's number, and the number of the attempt.
pub type Uid = u8;

/// The API server gives up a request after so many seconds.
pub const LIFE: i64 = 34;
/// A write that was sent to the store just before that may land so much later.
pub const LATE: i64 = 15;

/// What happens in one exploration, and how often each at most.
#[derive(Clone, Debug)]
pub struct Scenario {
    /// Where the approved change is made.
    pub place: Place,
    /// Uses granted.
    pub uses: i32,
    /// What agents send: the first is what was approved.
    pub writes: Vec<Write>,
    /// Attempts of one request.
    pub attempts: u8,
    /// What other people write.
    pub foreign: Vec<Foreign>,
    /// How often.
    pub foreigners: u8,
    /// Instants that the clock goes through, in seconds.
    pub times: Vec<i64>,
    /// When the grant ends by time.
    pub not_after: i64,
    /// By how many seconds the clocks of the replicas are behind; the controller's is right.
    pub replicas_behind: i64,
    /// Whether a first attempt may show an older revision, from the API server's cache.
    pub old_objects: bool,
    /// How often the witness has moved a use when it begins.
    pub moves: i32,
    /// Whether replicas may have any older revision of the grant.
    pub old_copies: bool,
    /// Answers of the store that a replica does not get.
    pub lost_replies: u8,
    /// Answers of a replica that the API server does not get; it sends the review again, or gives up.
    pub lost_answers: u8,
    /// Requests that the API server gives up while a replica goes on.
    pub abandoned: u8,
    /// Compactions of the history.
    pub compactions: u8,
    /// A person revokes the grant.
    pub revoked: u8,
    /// The grant becomes stale.
    pub stale: u8,
    /// The grant is deleted and restored from a copy.
    pub restored: u8,
    /// Whether the controller settles uses and ends the grant.
    pub controller: bool,
}

impl Scenario {
    /// Two requests for the approved change, three attempts each, one use.
    pub fn of(place: Place) -> Self {
        Self {
            place,
            uses: 1,
            writes: vec![Write::SET, Write::SET],
            attempts: 3,
            foreign: Vec::new(),
            foreigners: 0,
            times: vec![0],
            not_after: 600,
            replicas_behind: 0,
            old_objects: false,
            moves: 0,
            old_copies: true,
            lost_replies: 0,
            lost_answers: 0,
            abandoned: 0,
            compactions: 0,
            revoked: 0,
            stale: 0,
            restored: 0,
            controller: false,
        }
    }

    /// What the approved write was shown when it was proposed.
    pub fn first_shown(&self) -> Shown {
        let needs = matches!(self.writes[0].act, Act::Set(_) | Act::Delete { .. });
        needs.then(|| (self.place.first(), 0))
    }

    /// The state at the beginning.
    pub fn begin(&self, grant: GrantId) -> World {
        let absent = self.writes[0].act == Act::Create;
        World {
            clock: 0,
            history: History {
                revisions: vec![(!absent).then(|| self.place.first())],
                kept_from: 0,
            },
            grants: vec![grant],
            requests: vec![Request::default(); self.writes.len()],
            calls: Vec::new(),
            left: Left {
                foreigners: self.foreigners,
                lost_replies: self.lost_replies,
                lost_answers: self.lost_answers,
                abandoned: self.abandoned,
                compactions: self.compactions,
                revoked: self.revoked,
                stale: self.stale,
                restored: self.restored,
            },
            effects: 0,
            done: Vec::new(),
            void: false,
            wrong: None,
        }
    }
}

/// One state.
#[derive(Clone, Debug, Eq, Hash, PartialEq)]
pub struct World {
    /// Place in the scenario's instants.
    pub clock: usize,
    /// The target.
    pub history: History,
    /// Every stored revision of the grant; the last is the live one, the others are what a replica may still have.
    pub grants: Vec<GrantId>,
    /// One for each write of the scenario.
    pub requests: Vec<Request>,
    /// Reviews that replicas work on.
    pub calls: Vec<Call>,
    /// How often what may still happen.
    pub left: Left,
    /// Effects of admitted writes so far.
    pub effects: u8,
    /// Uses under which one took place.
    pub done: Vec<Uid>,
    /// The grant was found void after its phase had become final.
    pub void: bool,
    /// What must not be.
    pub wrong: Option<Wrong>,
}

/// How often what may still happen.
#[derive(Clone, Debug, Eq, Hash, PartialEq)]
pub struct Left {
    /// Writes of others.
    pub foreigners: u8,
    /// Answers of the store lost.
    pub lost_replies: u8,
    /// Answers of a replica lost.
    pub lost_answers: u8,
    /// Requests given up.
    pub abandoned: u8,
    /// Compactions.
    pub compactions: u8,
    /// Revocations.
    pub revoked: u8,
    /// Findings that the grant is void.
    pub stale: u8,
    /// Restorations of the grant.
    pub restored: u8,
}

/// A request within the API server.
#[derive(Clone, Debug, Default, Eq, Hash, PartialEq)]
pub struct Request {
    /// When it came.
    pub born: i64,
    /// Attempts begun.
    pub attempt: u8,
    /// How far it is.
    pub phase: Phase,
}

/// How far a request is.
#[derive(Clone, Debug, Default, Eq, Hash, PartialEq)]
pub enum Phase {
    /// It has not come, or goes back for another attempt.
    #[default]
    Ahead,
    /// The gate is asked.
    Asking {
        /// What was shown.
        shown: Shown,
        /// An admission that counted a use got lost on its way.
        told: bool,
    },
    /// Admitted, and not stored.
    Admitted {
        /// What was shown.
        shown: Shown,
        /// The use.
        by: Uid,
    },
    /// Over.
    Done,
}

/// A review that a replica works on.
#[derive(Clone, Debug, Eq, Hash, PartialEq)]
pub struct Call {
    /// The request.
    pub request: usize,
    /// Uid of the review.
    pub uid: Uid,
    /// What it shows.
    pub shown: Shown,
    /// Whether the API server waits for the answer.
    pub awaited: bool,
    /// Its copy of the grant.
    pub grant: GrantId,
    /// Whether that was read live.
    pub live: bool,
    /// Uses found gone.
    pub gone: Vec<Uid>,
    /// What it does next.
    pub next: Doing,
}

/// What a replica is about to do.
#[derive(Clone, Debug, Eq, Hash, PartialEq)]
pub enum Doing {
    /// To read the grant.
    Read,
    /// To ask the witness whether a use at `from` is committed.
    Look {
        /// The use.
        by: Uid,
        /// Its revision.
        from: usize,
    },
    /// To write the grant, and to admit under a use.
    Write {
        /// What it writes.
        next: GrantId,
        /// The use.
        by: Uid,
    },
}

/// What must not be.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub enum Wrong {
    /// More effects than uses granted.
    DoubleEffect,
    /// Admitted on a reading of the grant made after its end had been recorded.
    AfterTheEnd,
    /// A write was admitted that nobody approved.
    NotApproved,
    /// The record says that nothing was observed, and there was an effect.
    FalseRecord,
    /// A review that was admitted was denied when it was sent again.
    AnswerChanged,
}

impl World {
    /// The live grant.
    pub fn live(&self) -> GrantId {
        *self.grants.last().unwrap()
    }

    /// The target now.
    pub fn target(&self) -> Option<Object> {
        *self.history.revisions.last().unwrap()
    }

    /// The newest revision.
    pub fn newest(&self) -> usize {
        self.history.revisions.len() - 1
    }

    /// Stores a revision of the target.
    pub fn store(&mut self, object: Option<Object>) {
        self.history.revisions.push(object);
    }

    /// Notes the first thing that must not be.
    pub fn blame(&mut self, wrong: Wrong) {
        self.wrong.get_or_insert(wrong);
    }
}
