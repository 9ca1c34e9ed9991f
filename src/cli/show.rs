//! `show`: one request with everything that a decision needs, facts first.

use clap::Args;
use jiff::Timestamp;
use serde_json::json;

use super::{
    change,
    eligible::{self, Standing},
    exit::{Failure, quoted},
    output::{Printed, between},
    seen::{Seen, irreversible, prefix, state},
    server::Server,
    target,
};
use crate::{
    api::{
        ApprovalRequestSpec,
        approval_policy::{RequesterMay, StateBinding},
        approval_request::Vote,
    },
    decide::{
        ended::Finish,
        visible::{one_line, visible},
    },
};

/// Arguments of `show`.
#[derive(Args, Debug)]
pub struct ShowArgs {
    /// NAME or NAMESPACE/NAME of an ApprovalRequest.
    pub request: String,
}

/// Prints one request.
pub async fn run(server: &Server, args: ShowArgs) -> Result<Printed, Failure> {
    let seen = Seen::read(server, &args.request).await?;
    let standings = match server.whoami().await {
        Ok(person) => Some((
            person.username.clone(),
            eligible::standings(server, &seen.request.spec, &person).await?,
        )),
        Err(_) => None,
    };
    let now = server.now();
    let me = standings
        .as_ref()
        .map(|(me, standings)| (me.as_str(), standings.as_slice()));
    Ok(Printed {
        table: render(&seen, &server.url, me, now),
        document: json!({
            "request": seen.document,
            "recomputedDigest": seen.recomputed,
            "digestMatches": seen.intact(),
            "finished": seen.finished(now).map(Finish::word),
        }),
        names: vec![seen.type_name()],
        ..Printed::default()
    })
}

/// The whole text. `me`: whoever asks, and where they stand with each policy.
pub fn render(
    seen: &Seen,
    url: &str,
    me: Option<(&str, &[Standing<'_>])>,
    now: Timestamp,
) -> String {
    let spec = &seen.request.spec;
    let mut out = Text::default();
    out.line(&format!(
        "{}  {}{}",
        spec.action.operation.as_str(),
        target::phrase(&spec.action),
        headline(spec)
    ));
    if !seen.approved() {
        out.line("Nothing has been executed.");
    }
    out.line("");
    facts(seen, url, now, &mut out);
    out.line("");
    out.line(&format!(
        "Change ({} {}):",
        spec.diff.len(),
        if spec.diff.len() == 1 {
            "field"
        } else {
            "fields"
        }
    ));
    out.indented(change::change(spec));
    out.line("");
    out.line(&format!(
        "Applies to this state ({}); a grant is stale once any of it differs:",
        state_words(spec)
    ));
    out.indented(change::state(spec));
    out.line("");
    policies(seen, me, &mut out);
    votes(seen, now, &mut out);
    next(seen, now, &mut out);
    out.text
}

fn headline(spec: &ApprovalRequestSpec) -> String {
    let mut words: Vec<String> = Vec::new();
    if irreversible(spec) {
        words.push("irreversible".to_owned());
    }
    words.extend(
        spec.facts
            .iter()
            .filter(|fact| fact.kind != "Irreversible")
            .map(|fact| one_line(&fact.kind, 40)),
    );
    if words.is_empty() {
        String::new()
    } else {
        format!("   [{}]", words.join(", "))
    }
}

fn facts(seen: &Seen, url: &str, now: Timestamp, out: &mut Text) {
    let spec = &seen.request.spec;
    let action = &spec.action;
    out.fact(
        "Request",
        &format!(
            "{}/{} uid {}",
            seen.namespace,
            seen.name,
            visible(seen.request.metadata.uid.as_deref().unwrap_or("-"))
        ),
    );
    out.fact("Cluster", url);
    out.fact(
        "Requester",
        &format!(
            "{} (authenticated), agent {}",
            visible(&spec.requester.username),
            visible(&spec.requester.agent)
        ),
    );
    if let Some(person) = &spec.requester.on_behalf_of {
        out.fact(
            "On behalf of",
            &format!("{} (a claim, not verified)", visible(person)),
        );
    }
    let group = if action.group.is_empty() {
        "core"
    } else {
        &action.group
    };
    out.fact(
        "Target",
        &format!(
            "{}{} ({} {}) {} {}",
            visible(&action.resource),
            action
                .subresource
                .as_deref()
                .map(|sub| format!("/{}", visible(sub)))
                .unwrap_or_default(),
            visible(group),
            visible(&action.version),
            target::confirmation(action),
            action
                .namespace
                .as_deref()
                .map_or("(cluster-scoped)".to_owned(), |namespace| format!(
                    "in namespace {}",
                    visible(namespace)
                )),
        ),
    );
    if action.name.is_none() {
        out.fact("Name", "made up by the server from that prefix");
    }
    if let Some(uid) = &action.target_uid {
        out.fact("Target uid", &visible(uid));
    }
    if action.options != "{}" {
        out.fact("Options", &visible(&action.options));
    }
    for fact in &spec.facts {
        out.fact(
            "Fact",
            &format!(
                "{}: {} (from: {})",
                visible(&fact.kind),
                visible(&fact.value),
                visible(&fact.source)
            ),
        );
    }
    out.fact("State", &state(seen, now));
    let digest = if seen.intact() {
        format!("{} (recomputed here: equal)", visible(&spec.digest))
    } else {
        format!(
            "{} DOES NOT MATCH what the request holds: {}",
            visible(&spec.digest),
            seen.recomputed
        )
    };
    out.fact("Digest", &digest);
    out.fact("Grant would be", &validity(spec));
    if let Some(base) = &spec.base {
        let generation = base
            .generation
            .map(|generation| format!(", generation {generation}"))
            .unwrap_or_default();
        out.fact(
            "Proposed on",
            &format!(
                "resourceVersion {}{generation}",
                visible(&base.resource_version)
            ),
        );
    }
    for volatile in &spec.binding.volatile {
        out.fact(
            "Not bound",
            &format!(
                "the new value of {}: any {:?}",
                visible(&volatile.path),
                volatile.shape
            ),
        );
    }
    if let Some(previous) = &spec.previous {
        out.fact(
            "Previous",
            &format!(
                "{} for the same change ended: {}",
                visible(&previous.name),
                visible(&previous.reason)
            ),
        );
    }
}

fn validity(spec: &ApprovalRequestSpec) -> String {
    let uses = match spec.validity.uses {
        Some(1) => "good for one use".to_owned(),
        Some(uses) => format!("good for {uses} uses"),
        None => "good for ANY NUMBER of uses".to_owned(),
    };
    match spec.validity.duration_seconds {
        Some(seconds) => format!("{uses} within {seconds} s of approval, of exactly this change"),
        None => format!(
            "{uses} within the installation's longest time (24 h unless set otherwise), of exactly this change"
        ),
    }
}

fn state_words(spec: &ApprovalRequestSpec) -> String {
    let what = match spec.binding.state {
        StateBinding::Identity => "the object's identity and labels",
        StateBinding::TouchedFields => "the old value of each changed field",
        StateBinding::WholeObject => "the whole object",
        StateBinding::Unknown => "in a way that this version does not know",
    };
    if spec.binding.state_fields.is_empty() {
        return what.to_owned();
    }
    format!(
        "{what}, and {}",
        spec.binding
            .state_fields
            .iter()
            .map(|path| visible(path))
            .collect::<Vec<_>>()
            .join(", ")
    )
}

fn policies(seen: &Seen, me: Option<(&str, &[Standing<'_>])>, out: &mut Text) {
    out.line("Policies that matched, and who decides:");
    for policy in &seen.request.spec.policies {
        let Some(approvers) = &policy.approvers else {
            out.line(&format!(
                "  {} (generation {}): asks nobody, only adds limits",
                eligible::label(policy),
                policy.generation
            ));
            continue;
        };
        let requester = match approvers.requester {
            Some(RequesterMay::Allowed) => "requester and owner may decide",
            _ => "requester and owner may not decide",
        };
        let reasons: Vec<String> = approvers
            .require_reason
            .iter()
            .map(|verdict| format!("{verdict:?}"))
            .collect();
        let reasons = if reasons.is_empty() {
            String::new()
        } else {
            format!("; needs a reason to {}", reasons.join(" and to "))
        };
        out.line(&format!(
            "  {} (generation {}): {}; {requester}{reasons}",
            eligible::label(policy),
            policy.generation,
            eligible::rows(policy)
        ));
    }
    if let Some((me, standings)) = me {
        for standing in standings {
            let words = if standing.bars.is_empty() {
                "yes".to_owned()
            } else {
                let spec = &seen.request.spec;
                let words = eligible::bars_in_words(standing.policy, spec, me, &standing.bars);
                format!("no: {words}")
            };
            out.line(&format!(
                "  You ({}) for {}: {words}",
                visible(me),
                eligible::label(standing.policy)
            ));
        }
    }
    out.line("");
}

fn votes(seen: &Seen, now: Timestamp, out: &mut Text) {
    let votes = seen
        .request
        .status
        .as_ref()
        .map(|status| status.votes.as_slice())
        .unwrap_or_default();
    out.line(if votes.is_empty() {
        "Votes: none yet"
    } else {
        "Votes:"
    });
    for vote in votes {
        out.line(&format!("  {}", one_vote(vote, now)));
    }
    out.line("");
}

fn one_vote(vote: &Vote, now: Timestamp) -> String {
    let reason = vote
        .reason
        .as_deref()
        .map(|reason| format!(", says \"{}\"", visible(reason)))
        .unwrap_or_default();
    let outcome = if vote.counted {
        let policies = vote
            .policies
            .iter()
            .map(|policy| visible(policy))
            .collect::<Vec<_>>()
            .join(", ");
        if policies.is_empty() {
            "counts".to_owned()
        } else {
            format!("counts for {policies}")
        }
    } else {
        format!(
            "does not count: {}",
            visible(vote.why_not.as_deref().unwrap_or("no reason is given"))
        )
    };
    format!(
        "{:?} by {}, {} ago{reason}: {outcome}",
        vote.verdict,
        visible(&vote.username),
        between(vote.at.0, now)
    )
}

fn next(seen: &Seen, now: Timestamp, out: &mut Text) {
    let (name, flag) = (&seen.name, seen.flag());
    if !seen.intact() {
        out.line("Do not decide: the request does not hold what its digest says.");
    } else if let Some(finish) = seen.finished(now) {
        out.line(&format!("Nothing to decide ({}). The same attempt makes a new request: kubectl grantgate pending {flag}", finish.word()));
    } else if seen.approved() {
        out.line("To take it back:");
        let grant = seen
            .request
            .status
            .as_ref()
            .and_then(|status| status.grant.as_ref());
        out.line(&format!(
            "  kubectl grantgate revoke {} {flag}",
            quoted(grant.map_or("GRANT", |grant| &grant.name))
        ));
    } else {
        let digest = prefix(&seen.request.spec.digest);
        out.line("To decide:");
        out.line(&format!(
            "  kubectl grantgate approve {name} {flag} --digest {digest} --reason \"...\""
        ));
        out.line(&format!(
            "  kubectl grantgate deny {name} {flag} --reason \"...\""
        ));
    }
}

#[derive(Default)]
struct Text {
    text: String,
}

impl Text {
    fn line(&mut self, line: &str) {
        self.text.push_str(line);
        self.text.push('\n');
    }

    fn indented(&mut self, lines: Vec<String>) {
        for line in lines {
            self.line(&format!("  {line}"));
        }
    }

    fn fact(&mut self, name: &str, value: &str) {
        self.line(&format!("{name:<15}{value}"));
    }
}

#[cfg(test)]
#[path = "show_tests.rs"]
mod tests;
