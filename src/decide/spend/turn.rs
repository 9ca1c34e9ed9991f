//! One call's way through the grants of its action: what to do next with what it has read so far.
//!
//! The shell carries out one step at a time and asks again; it decides nothing.

use jiff::Timestamp;

use crate::{
    api::{approval_request::Base, grant::GrantStatus},
    decide::{
        live::{GrantView, Misfit},
        proposal::Proposal,
    },
};

use super::{ReadmitRule, Spend, spend};

/// What one call has found out so far.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Known {
    /// Uids of the grants that this call has read live; of others it has a copy of any age.
    pub live: Vec<String>,
    /// Admission uids of open uses that the witness found, or could not exclude, to be committed: they serve nobody again.
    pub gone: Vec<String>,
}

/// The next step of a call. Grants are meant by their place among those that were given.
#[derive(Clone, Debug, PartialEq)]
pub enum Turn {
    /// The write is admitted; nothing is written.
    Admit {
        /// Place of the grant.
        grant: usize,
        /// Id of the use's operation.
        operation_id: String,
        /// The rule by which an open use serves again; `None`: the same review, which gets the same answer.
        rule: Option<ReadmitRule>,
    },
    /// Write this status onto the exact revision known. Stored: the write is admitted. Not stored because somebody was faster: read
    /// the grant, and ask again; no verdict outlives the revision that it was made on.
    Write {
        /// Place of the grant.
        grant: usize,
        /// The status with the new use.
        status: Box<GrantStatus>,
        /// Id of the new use's operation.
        operation_id: String,
    },
    /// Read this grant live, and ask again: no open use serves again out of a copy.
    Read {
        /// Place of the grant.
        grant: usize,
    },
    /// Ask the witness about the revisions in between. If none holds the change, write what [`super::moved`] says; otherwise the use is
    /// gone, and the question is asked again.
    Look {
        /// Place of the grant.
        grant: usize,
        /// Admission uid of the open use.
        use_uid: String,
        /// The revision that the use stands at.
        from: Base,
        /// The revision shown now.
        to: Base,
    },
    /// Nothing can be consumed just now.
    Busy(&'static str),
    /// No grant serves: each with why, in their order.
    Refuse(Vec<Misfit>),
}

/// Chooses among several grants and says what comes next.
pub fn turn(
    views: &[GrantView<'_>],
    proposal: &Proposal,
    now: Timestamp,
    replica: &str,
    known: &Known,
) -> Turn {
    let mut misfits = Vec::new();
    let mut chosen: Option<(usize, Spend)> = None;
    for (place, view) in views.iter().enumerate() {
        match spend(view, proposal, now, replica, &known.gone) {
            Spend::Refused(misfit) => misfits.push(misfit),
            spend => {
                let first = chosen
                    .as_ref()
                    .is_none_or(|(_, other)| rank(&spend) < rank(other));
                if first {
                    chosen = Some((place, spend));
                }
            }
        }
    }
    let Some((grant, spend)) = chosen else {
        return Turn::Refuse(misfits);
    };
    let live = views
        .get(grant)
        .and_then(|view| view.grant.metadata.uid.as_ref())
        .is_some_and(|uid| known.live.contains(uid));
    match spend {
        Spend::Already { operation_id } => Turn::Admit {
            grant,
            operation_id,
            rule: None,
        },
        Spend::Consume {
            status,
            operation_id,
        } => Turn::Write {
            grant,
            status,
            operation_id,
        },
        Spend::Readmit { .. } | Spend::AskWitness { .. } if !live => Turn::Read { grant },
        Spend::Readmit {
            operation_id, rule, ..
        } => Turn::Admit {
            grant,
            operation_id,
            rule: Some(rule),
        },
        Spend::AskWitness { use_uid, from, to } => Turn::Look {
            grant,
            use_uid,
            from,
            to,
        },
        Spend::Busy(why) => Turn::Busy(why),
        Spend::Refused(misfit) => Turn::Refuse(vec![misfit]),
    }
}

/// Which of several grants to take: what writes nothing first.
fn rank(spend: &Spend) -> u8 {
    match spend {
        Spend::Already { .. } => 0,
        Spend::Readmit { .. } => 1,
        Spend::Consume { .. } => 2,
        Spend::AskWitness { .. } => 3,
        Spend::Busy(_) => 4,
        Spend::Refused(_) => 5,
    }
}
