//! Strictness: the limits of all matching policies that ask, combined so that none of them is loosened by another.
//!
//! Fewest uses (not counted is the most), shortest duration, earliest end by silence, longest cool-down; the closest binding of
//! the state, every state field; a path is volatile only where *every* policy says so with that shape, since volatile loosens;
//! Forbidden beats Allowed; every reason that one of them wants; and the highest count: no winner asks fewer people in any row
//! together than the highest row of any matching policy.

use std::collections::BTreeSet;

use super::{
    policy::{PolicyName, Terms, default_state, row_holds, row_is_open},
    resolve::{Matched, Rules, asks},
    trace::{Step, Trace},
};
use crate::api::{
    Operation, PolicyRef,
    approval_decision::Verdict,
    approval_policy::{Approvers, ChangeBinding, RequesterMay, Required, Volatile},
    approval_request::ResolvedBinding,
    reference::Validity,
};

/// The rules of a request: who is needed comes from the winners, the limits from all that ask.
pub fn rules(
    matched: &[Matched<'_>],
    winners: &[Matched<'_>],
    operation: Operation,
    policy_set_hash: String,
    trace: &mut Trace,
) -> Rules {
    let asking: Vec<(&PolicyName, &Terms)> = matched
        .iter()
        .filter(|one| asks(one))
        .map(|one| (&one.policy.name, &one.policy.terms))
        .collect();
    let mut limits = Limits {
        asking: &asking,
        trace,
    };

    // `None`, not counted, is looser than any count.
    let uses = limits.least("uses", |terms| terms.uses.map_or(i64::MAX, i64::from));
    let duration = limits.least("durationSeconds", |terms| i64::from(terms.duration_seconds));
    let deadline = limits.least("expireAfterSeconds", |terms| {
        i64::from(terms.expire_seconds)
    });
    let cooldown = limits.most("denialCooldownSeconds", |terms| terms.cooldown_seconds);
    let count = limits.most("approvers", |terms| {
        terms
            .approvers
            .required
            .iter()
            .map(|row| row.count)
            .max()
            .unwrap_or(1)
    });
    let state = limits.most("state", |terms| terms.state_for(operation));
    let forbidden = asking
        .iter()
        .any(|(_, terms)| terms.approvers.requester != Some(RequesterMay::Allowed));
    let reasons = [Verdict::Approve, Verdict::Deny]
        .into_iter()
        .filter(|verdict| {
            asking
                .iter()
                .any(|(_, terms)| terms.approvers.require_reason.contains(verdict))
        })
        .collect::<Vec<_>>();

    let count = count.unwrap_or(1);
    let common = Common {
        count,
        row: asking
            .iter()
            .flat_map(|(_, terms)| &terms.approvers.required)
            .find(|row| row.count >= count),
        forbidden,
        reasons: &reasons,
    };
    let policies = matched
        .iter()
        .map(|one| {
            let needed = winners
                .iter()
                .any(|winner| winner.policy.name == one.policy.name);
            let approvers = needed.then(|| common.applied_to(&one.policy.terms.approvers));
            PolicyRef {
                kind: one.policy.name.kind.as_str().to_owned(),
                namespace: one.policy.name.namespace.clone(),
                name: one.policy.name.name.clone(),
                uid: one.policy.uid.clone(),
                generation: one.policy.generation,
                hash: one.policy.hash(operation, one.specificity),
                approvers,
            }
        })
        .collect();

    Rules {
        policies,
        policy_set_hash,
        validity: Validity {
            uses: uses.and_then(|uses| i32::try_from(uses).ok()),
            duration_seconds: duration.and_then(|seconds| i32::try_from(seconds).ok()),
        },
        binding: ResolvedBinding {
            change: ChangeBinding::Exact,
            state: state.unwrap_or(default_state(operation)),
            state_fields: state_fields(&asking),
            volatile: volatile(&asking),
        },
        deadline_seconds: deadline
            .and_then(|seconds| i32::try_from(seconds).ok())
            .unwrap_or(1),
        denial_cooldown_seconds: cooldown.unwrap_or(0),
    }
}

struct Limits<'a, 't> {
    asking: &'a [(&'a PolicyName, &'a Terms)],
    trace: &'t mut Trace,
}

impl Limits<'_, '_> {
    /// The least value; the trace names who asks for exactly this.
    fn least(&mut self, limit: &'static str, of: impl Fn(&Terms) -> i64) -> Option<i64> {
        let value = self.asking.iter().map(|(_, terms)| of(terms)).min()?;
        let words = if value == i64::MAX {
            "not counted".to_owned()
        } else {
            value.to_string()
        };
        self.record(limit, words, |terms| of(terms) == value);
        Some(value)
    }

    /// The greatest value; the trace names who asks for exactly this.
    fn most<T: Ord + Copy + std::fmt::Debug>(
        &mut self,
        limit: &'static str,
        of: impl Fn(&Terms) -> T,
    ) -> Option<T> {
        let value = self.asking.iter().map(|(_, terms)| of(terms)).max()?;
        self.record(limit, format!("{value:?}"), |terms| of(terms) == value);
        Some(value)
    }

    fn record(&mut self, limit: &'static str, value: String, sets: impl Fn(&Terms) -> bool) {
        let by = self
            .asking
            .iter()
            .filter(|(_, terms)| sets(terms))
            .map(|(name, _)| (*name).clone())
            .collect();
        self.trace.push(Step::Limited { limit, value, by });
    }
}

fn state_fields(asking: &[(&PolicyName, &Terms)]) -> Vec<String> {
    let all: BTreeSet<&String> = asking
        .iter()
        .flat_map(|(_, terms)| &terms.state_fields)
        .collect();
    all.into_iter().cloned().collect()
}

fn volatile(asking: &[(&PolicyName, &Terms)]) -> Vec<Volatile> {
    let Some(((_, first), rest)) = asking.split_first() else {
        return Vec::new();
    };
    first
        .volatile
        .iter()
        .filter(|one| rest.iter().all(|(_, terms)| terms.volatile.contains(*one)))
        .cloned()
        .collect()
}

/// What every winner's approvers take over from the others.
struct Common<'a> {
    count: i32,
    /// A row that asks so many.
    row: Option<&'a Required>,
    forbidden: bool,
    reasons: &'a [Verdict],
}

impl Common<'_> {
    /// If no row asks so many already, the largest one that can hold them is raised to the highest count. Where none can, as a row that
    /// names one person, the row that asks so many is added: raised, nobody could ever approve, and nothing would say why.
    fn applied_to(&self, approvers: &Approvers) -> Approvers {
        let mut raised = approvers.clone();
        let largest = raised
            .required
            .iter()
            .enumerate()
            .filter(|(_, row)| row_holds(&row.from, self.count))
            .max_by_key(|(n, row)| (row_is_open(&row.from), row.count, std::cmp::Reverse(*n)))
            .map(|(n, _)| n);
        let reached = raised.required.iter().any(|row| row.count >= self.count);
        if !reached {
            match largest.and_then(|n| raised.required.get_mut(n)) {
                Some(row) => row.count = self.count,
                None => raised.required.extend(self.row.cloned()),
            }
        }
        raised.requester = Some(if self.forbidden {
            RequesterMay::Forbidden
        } else {
            RequesterMay::Allowed
        });
        raised.require_reason = self.reasons.to_vec();
        raised
    }
}
