//! `approve` and `deny`: a vote on exactly what was seen.

use std::{
    io::{BufRead, IsTerminal},
    time::Duration,
};

use clap::{Args, ValueEnum};
use jiff::Timestamp;
use serde_json::{Value, json};

use super::{
    counted::{counted, past, said, waiting},
    eligible::{self, Standing, label, wants_reason},
    exit::{Failure, quoted},
    kinds::DECISIONS,
    output::{Printed, time, to_stderr},
    person::Person,
    seen::{PREFIX, Seen, hex, irreversible, prefix, state},
    server::{Refusal, Server, unreadable},
    show::render,
    target,
};
use crate::{
    api::{ApprovalDecision, ApprovalRequestSpec, Verdict},
    decide::{
        ended::Finish,
        visible::{one_line, visible},
    },
};

/// Arguments of `approve`.
#[derive(Args, Debug)]
pub struct ApproveArgs {
    /// NAME or NAMESPACE/NAME of an ApprovalRequest.
    pub request: String,
    /// Digest of what you have seen, or its first 8 or more hex digits.
    #[arg(long, value_name = "PREFIX")]
    pub digest: String,
    /// Good for one use, whatever the policies allow.
    #[arg(long)]
    pub once: bool,
    /// Good for so long, e.g. 5m; never longer than the policies allow.
    #[arg(long = "for", value_name = "TIME", value_parser = super::span)]
    pub lasts: Option<Duration>,
    /// What goes with every vote.
    #[command(flatten)]
    pub vote: VoteArgs,
}

/// Arguments of `deny`.
#[derive(Args, Debug)]
pub struct DenyArgs {
    /// NAME or NAMESPACE/NAME of ApprovalRequests.
    #[arg(required = true)]
    pub requests: Vec<String>,
    /// What goes with every vote.
    #[command(flatten)]
    pub vote: VoteArgs,
}

/// What goes with every vote.
#[derive(Args, Clone, Debug)]
pub struct VoteArgs {
    /// Why; kept in the record.
    #[arg(long)]
    pub reason: Option<String>,
    /// Do not ask for confirmation on a terminal.
    #[arg(short, long)]
    pub yes: bool,
    /// `server`: let the server check everything and store nothing.
    #[arg(long, value_enum, default_value_t = DryRun::None, value_name = "WHERE")]
    pub dry_run: DryRun,
    /// How long to wait until the vote is counted.
    #[arg(long, default_value = "15s", value_parser = super::span, value_name = "TIME")]
    pub timeout: Duration,
}

/// Whether the vote is stored.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq, ValueEnum)]
pub enum DryRun {
    /// It is.
    #[default]
    None,
    /// The server checks it and stores nothing.
    Server,
}

/// Approves one request.
pub async fn approve(server: &Server, args: ApproveArgs) -> Result<Printed, Failure> {
    let wanted = Prefix::parse(&args.digest)?;
    let seen = Seen::read(server, &args.request).await?;
    wanted.check(&seen)?;
    let mut validity = serde_json::Map::new();
    if args.once {
        validity.insert("uses".to_owned(), json!(1));
    }
    if let Some(lasts) = args.lasts {
        validity.insert("durationSeconds".to_owned(), json!(lasts.as_secs()));
        if let Some(note) = no_narrower(&seen.request.spec, lasts) {
            to_stderr(&note);
        }
    }
    let validity = (!validity.is_empty()).then_some(Value::Object(validity));
    cast(server, seen, Verdict::Approve, validity, &args.vote).await
}

/// Denies each request on its own: one that cannot be denied keeps no other from it.
pub async fn deny(server: &Server, args: DenyArgs) -> Result<Printed, Failure> {
    let mut all = Printed::default();
    let mut documents = Vec::new();
    for argument in &args.requests {
        let outcome = match Seen::read(server, argument).await {
            Ok(seen) => cast(server, seen, Verdict::Deny, None, &args.vote).await,
            Err(failure) => Err(failure),
        };
        match outcome {
            Ok(printed) => {
                all.table.push_str(&printed.table);
                all.names.extend(printed.names);
                documents.push(printed.document);
            }
            Err(failure) => {
                documents.push(failure.document());
                all.failures.push(failure);
            }
        }
    }
    all.document = json!({"items": documents});
    Ok(all)
}

/// A digest, or how it begins.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Prefix(String);

impl Prefix {
    /// Reads 8 to 64 hex digits, with or without `v1:sha256:`.
    pub fn parse(text: &str) -> Result<Self, Failure> {
        let digits = hex(text).to_ascii_lowercase();
        let legal = (PREFIX..=64).contains(&digits.len())
            && digits.bytes().all(|byte| byte.is_ascii_hexdigit());
        if legal {
            return Ok(Self(digits));
        }
        Err(Failure::Usage(format!(
            "--digest {} must be {PREFIX} to 64 hex digits of the digest, with or without `v1:sha256:`; `kubectl grantgate show` prints it",
            quoted(&one_line(text, 90))
        )))
    }

    /// Whether a whole digest begins so.
    pub fn fits(&self, digest: &str) -> bool {
        digest
            .strip_prefix("v1:sha256:")
            .is_some_and(|digits| digits.starts_with(&self.0))
    }

    /// Refuses a request that is another than the one that was seen.
    fn check(&self, seen: &Seen) -> Result<(), Failure> {
        intact(seen)?;
        if self.fits(&seen.recomputed) {
            return Ok(());
        }
        Err(Failure::Stale {
            what: format!(
                "request {}/{} has digest {}, not {}: it is another proposal than the one you name. Nothing was sent",
                seen.namespace,
                seen.name,
                prefix(&seen.recomputed),
                self.0
            ),
            next: vec![format!(
                "kubectl grantgate show {} {}",
                seen.name,
                seen.flag()
            )],
        })
    }
}

fn intact(seen: &Seen) -> Result<(), Failure> {
    if seen.intact() {
        return Ok(());
    }
    Err(Failure::Stale {
        what: format!(
            "request {}/{} states digest {} but holds {}: it is not what was proposed. Nothing was sent",
            seen.namespace,
            seen.name,
            visible(&seen.request.spec.digest),
            seen.recomputed
        ),
        next: vec![format!(
            "kubectl grantgate show {} {}",
            seen.name,
            seen.flag()
        )],
    })
}

/// A remark if `--for` is no shorter than what the request allows anyway.
fn no_narrower(spec: &ApprovalRequestSpec, lasts: Duration) -> Option<String> {
    let most = spec.validity.duration_seconds?;
    (lasts.as_secs() > u64::try_from(most).unwrap_or(0)).then(|| {
        format!(
            "note: the policies allow {most} s; --for {} s does not make it longer",
            lasts.as_secs()
        )
    })
}

async fn cast(
    server: &Server,
    seen: Seen,
    verdict: Verdict,
    validity: Option<Value>,
    args: &VoteArgs,
) -> Result<Printed, Failure> {
    intact(&seen)?;
    let now = server.now();
    undecided(&seen, verdict, now)?;
    if args
        .reason
        .as_deref()
        .is_none_or(|reason| reason.trim().is_empty())
        && let Some(policy) = wants_reason(&seen.request.spec, verdict)
    {
        return Err(Failure::Usage(format!(
            "{} wants a reason to {verdict:?}: add --reason \"...\"",
            label(policy)
        )));
    }
    let person = server.whoami().await?;
    let standings = eligible::standings(server, &seen.request.spec, &person).await?;
    not_voted(&seen, verdict, &person)?;
    let named = format!("request {}/{}", seen.namespace, seen.name);
    if let Some(failure) = eligible::refusal(&named, &seen.request.spec, &person, &standings) {
        return Err(failure);
    }
    if !args.yes
        && args.dry_run == DryRun::None
        && std::io::stdin().is_terminal()
        && std::io::stderr().is_terminal()
    {
        confirm(&seen, server, verdict, &person, &standings, now)?;
    }
    let decision = create(server, &seen, verdict, validity, args).await?;
    if args.dry_run == DryRun::Server {
        return Ok(said(
            &seen,
            &format!("{} (server dry run, nothing is stored)", past(verdict)),
            &decision,
        ));
    }
    counted(server, seen, verdict, decision, args.timeout).await
}

/// Refuses to vote on what is decided or over.
fn undecided(seen: &Seen, verdict: Verdict, now: Timestamp) -> Result<(), Failure> {
    let named = format!("{} is {}", seen.type_name(), state(seen, now));
    let next = vec![format!("kubectl grantgate pending {}", seen.flag())];
    match (seen.finished(now), verdict) {
        (Some(Finish::Denied), Verdict::Deny) => Err(Failure::NothingChanged(named)),
        (Some(Finish::Denied | Finish::Expired), _) => Err(Failure::Ended {
            what: format!("{named}. Nothing was sent"),
            next,
        }),
        (Some(Finish::Superseded), _) => Err(Failure::Stale {
            what: format!("{named}. Nothing was sent"),
            next,
        }),
        (Some(Finish::Unreadable), _) => Err(Failure::Refused { what: named, next }),
        (Some(Finish::GrantEnded(_) | Finish::Lost), Verdict::Approve) => {
            Err(Failure::NothingChanged(named))
        }
        (Some(Finish::GrantEnded(_) | Finish::Lost), _) => Err(Failure::Ended {
            what: format!("{named}. Nothing was sent"),
            next,
        }),
        (None, Verdict::Approve) if seen.approved() => Err(Failure::NothingChanged(named)),
        // A denial before the first use ends the grant; after that only revoking it ends what is left of it.
        (None, _) if seen.approved() && seen.used() => {
            let grant = seen
                .request
                .status
                .as_ref()
                .and_then(|status| status.grant.as_ref());
            let grant = grant.map_or("GRANT".to_owned(), |grant| quoted(&grant.name));
            Err(Failure::Refused {
                what: format!(
                    "{named}, and its grant was used: a denial ends it no more, revoking the grant does"
                ),
                next: vec![format!("kubectl grantgate revoke {grant} {}", seen.flag())],
            })
        }
        (None, _) => Ok(()),
    }
}

fn not_voted(seen: &Seen, verdict: Verdict, person: &Person) -> Result<(), Failure> {
    let votes = seen
        .request
        .status
        .as_ref()
        .map(|status| status.votes.as_slice())
        .unwrap_or_default();
    match votes
        .iter()
        .find(|vote| vote.counted && vote.username == person.username && vote.verdict == verdict)
    {
        Some(vote) => Err(Failure::NothingChanged(format!(
            "{} counts your vote already: {verdict:?} at {}{}",
            seen.type_name(),
            time(vote.at.0),
            waiting(seen)
                .map(|waiting| format!("; {waiting}"))
                .unwrap_or_default()
        ))),
        None => Ok(()),
    }
}

fn confirm(
    seen: &Seen,
    server: &Server,
    verdict: Verdict,
    person: &Person,
    standings: &[Standing<'_>],
    now: Timestamp,
) -> Result<(), Failure> {
    to_stderr(&render(
        seen,
        &server.url,
        Some((&person.username, standings)),
        now,
    ));
    let spec = &seen.request.spec;
    let wanted = if verdict == Verdict::Approve && irreversible(spec) {
        let name = target::confirmation(&spec.action);
        to_stderr(&format!(
            "This cannot be taken back. Type the target's name, {name}, to approve:"
        ));
        name
    } else {
        to_stderr(&format!("{verdict:?} {}? Type yes:", seen.type_name()));
        "yes".to_owned()
    };
    let mut answer = String::new();
    match std::io::stdin().lock().read_line(&mut answer) {
        Ok(_) if answer.trim() == wanted => Ok(()),
        _ => Err(Failure::NotConfirmed),
    }
}

async fn create(
    server: &Server,
    seen: &Seen,
    verdict: Verdict,
    validity: Option<Value>,
    args: &VoteArgs,
) -> Result<ApprovalDecision, Failure> {
    let body = body(seen, verdict, validity, args.reason.as_deref());
    let dry_run = if args.dry_run == DryRun::Server {
        "&dryRun=All"
    } else {
        ""
    };
    let path = format!(
        "{}?fieldManager=kubectl-grantgate{dry_run}",
        DECISIONS.path(Some(&seen.namespace))
    );
    let what = format!(
        "{} request {}/{}",
        if verdict == Verdict::Approve {
            "approve"
        } else {
            "deny"
        },
        seen.namespace,
        seen.name
    );
    match server.call(http::Method::POST, &path, Some(&body)).await {
        Ok(text) => serde_json::from_str(&text).map_err(|error| unreadable(&error)),
        Err(Refusal::Status(status)) if status.code == 403 || status.code == 401 => Err(server
            .explain(
                Refusal::Status(status),
                "create",
                DECISIONS,
                Some(&seen.namespace),
                None,
                &what,
            )
            .await),
        Err(Refusal::Status(status)) => Err(Failure::Refused {
            what: format!(
                "{what}: HTTP {}: {}",
                status.code,
                one_line(&status.message, 1_500)
            ),
            next: if unstamped(&status.message) {
                vec![
                    "kubectl get mutatingwebhookconfiguration grantgate-stamp".to_owned(),
                    "kubectl get pods -A -l app.kubernetes.io/name=grantgate".to_owned(),
                ]
            } else {
                Vec::new()
            },
        }),
        Err(Refusal::Failure(failure)) => Err(failure),
    }
}

/// Whether the server missed the author, which our webhook fills in.
fn unstamped(message: &str) -> bool {
    message.contains("approver") || message.contains("failed calling webhook")
}

/// The decision without its author: that is filled in and proven on the server's side.
fn body(seen: &Seen, verdict: Verdict, validity: Option<Value>, reason: Option<&str>) -> Value {
    let mut spec = json!({
        "requests": [{"name": seen.name, "uid": seen.request.metadata.uid, "digest": seen.recomputed}],
        "verdict": verdict,
    });
    if let Some(members) = spec.as_object_mut() {
        members.extend(reason.map(|reason| ("reason".to_owned(), json!(reason))));
        members.extend(validity.map(|validity| ("validity".to_owned(), validity)));
    }
    json!({
        "apiVersion": "grantgate.dev/v1alpha1", "kind": "ApprovalDecision",
        "metadata": {"generateName": "d-", "namespace": seen.namespace}, "spec": spec,
    })
}

#[cfg(test)]
#[path = "vote_tests.rs"]
mod tests;
