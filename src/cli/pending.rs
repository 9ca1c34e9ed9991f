//! `pending`: what waits for a person.

use clap::Args;
use jiff::Timestamp;
use serde_json::Value;

use super::{
    eligible,
    exit::Failure,
    kinds::REQUESTS,
    output::{Printed, between, list, table},
    seen::prefix,
    server::Server,
    target,
};
use crate::{
    api::ApprovalRequest,
    decide::{ended::finished, visible::one_line},
};

/// Arguments of `pending`.
#[derive(Args, Debug)]
pub struct PendingArgs {
    /// Requests of all namespaces.
    #[arg(short = 'A', long)]
    pub all_namespaces: bool,
}

/// Lists what waits, the soonest to expire first.
pub async fn run(server: &Server, args: PendingArgs) -> Result<Printed, Failure> {
    let namespace = (!args.all_namespaces).then_some(server.namespace.as_str());
    let items = server.list(REQUESTS, namespace).await?;
    Ok(render(items, namespace, server.now()))
}

/// The list in every format. `namespace`: the one that was asked for, or all.
pub fn render(items: Vec<Value>, namespace: Option<&str>, now: Timestamp) -> Printed {
    let mut notes = Vec::new();
    let mut waiting = Vec::new();
    for item in items {
        match serde_json::from_value::<ApprovalRequest>(item.clone()) {
            Ok(request) if pending(&request, now) => waiting.push((request, item)),
            Ok(_) => {}
            Err(error) => notes.push(unreadable(&item, &error)),
        }
    }
    waiting.sort_by_key(|(request, _)| request.spec.deadline.0);
    let rows: Vec<Row> = waiting
        .iter()
        .map(|(request, _)| Row::of(request, now))
        .collect();
    if rows.is_empty() {
        notes.push(match namespace {
            Some(namespace) => {
                format!("Nothing waits for a person in namespace {namespace}. All namespaces: kubectl grantgate pending -A")
            }
            None => "Nothing waits for a person in any namespace.".to_owned(),
        });
    }
    let with_namespace = namespace.is_none();
    let columns = |wide: bool| {
        let cells: Vec<Vec<String>> = rows
            .iter()
            .map(|row| row.cells(with_namespace, wide))
            .collect();
        table(&header(with_namespace, wide), &cells)
    };
    Printed {
        table: columns(false),
        wide: columns(true),
        notes,
        names: rows
            .iter()
            .map(|row| format!("{}/{}", REQUESTS.singular, row.name))
            .collect(),
        document: list(
            "ApprovalRequestList",
            waiting.into_iter().map(|(_, item)| item).collect(),
        ),
        ..Printed::default()
    }
}

fn pending(request: &ApprovalRequest, now: Timestamp) -> bool {
    let status = request.status.as_ref();
    let uid = request.metadata.uid.as_deref().unwrap_or_default();
    status.and_then(|status| status.phase).is_none()
        && finished(uid, &request.spec, status, None, now).is_none()
}

fn unreadable(item: &Value, error: &serde_json::Error) -> String {
    let text = |path: &str| {
        one_line(
            item.pointer(path).and_then(Value::as_str).unwrap_or("?"),
            80,
        )
    };
    format!(
        "{}/{} cannot be read by this version ({}): kubectl get {} {} -n {} -o yaml",
        text("/metadata/namespace"),
        text("/metadata/name"),
        one_line(&error.to_string(), 120),
        "approvalrequests.grantgate.dev",
        text("/metadata/name"),
        text("/metadata/namespace"),
    )
}

fn header(namespace: bool, wide: bool) -> Vec<&'static str> {
    let mut header = Vec::new();
    if namespace {
        header.push("NAMESPACE");
    }
    header.extend(["NAME", "OPERATION", "TARGET", "REQUESTER"]);
    if wide {
        header.extend(["AGENT", "GROUP", "TARGETNAMESPACE", "POLICIES"]);
    }
    header.extend(["LEFT", "APPROVALS", "DIGEST", "AGE"]);
    header
}

struct Row {
    namespace: String,
    name: String,
    operation: &'static str,
    target: String,
    requester: String,
    wide: [String; 4],
    left: String,
    approvals: String,
    digest: String,
    age: String,
}

impl Row {
    fn of(request: &ApprovalRequest, now: Timestamp) -> Self {
        let spec = &request.spec;
        let progress = eligible::progress(spec, request.status.as_ref());
        let cell = |text: &str| one_line(text, 80).replace(' ', "<U+0020>");
        let policies: Vec<String> = spec
            .policies
            .iter()
            .map(|policy| cell(&policy.name))
            .collect();
        Self {
            namespace: cell(request.metadata.namespace.as_deref().unwrap_or("-")),
            name: cell(request.metadata.name.as_deref().unwrap_or("-")),
            operation: spec.action.operation.as_str(),
            target: target::column(&spec.action),
            requester: target::person(&spec.requester.username),
            wide: [
                cell(&spec.requester.agent),
                if spec.action.group.is_empty() {
                    "core".to_owned()
                } else {
                    cell(&spec.action.group)
                },
                cell(spec.action.namespace.as_deref().unwrap_or("-")),
                if policies.is_empty() {
                    "-".to_owned()
                } else {
                    policies.join(",")
                },
            ],
            left: between(now, spec.deadline.0),
            approvals: format!("{}/{}", progress.have, progress.need),
            digest: prefix(&spec.digest),
            age: request
                .metadata
                .creation_timestamp
                .as_ref()
                .map_or("-".to_owned(), |created| between(created.0, now)),
        }
    }

    fn cells(&self, namespace: bool, wide: bool) -> Vec<String> {
        let mut cells = Vec::new();
        if namespace {
            cells.push(self.namespace.clone());
        }
        cells.extend([
            self.name.clone(),
            self.operation.to_owned(),
            self.target.clone(),
            self.requester.clone(),
        ]);
        if wide {
            cells.extend(self.wide.iter().cloned());
        }
        cells.extend([
            self.left.clone(),
            self.approvals.clone(),
            self.digest.clone(),
            self.age.clone(),
        ]);
        cells
    }
}

#[cfg(test)]
mod tests {
    #![allow(
        clippy::unwrap_used,
        clippy::expect_used,
        clippy::panic,
        reason = "tests"
    )]

    use serde_json::json;

    use super::*;
    use crate::cli::{Format, exit::Exit, fixtures::request};

    fn now() -> Timestamp {
        "2026-01-01T10:06:00Z".parse().unwrap()
    }

    #[test]
    fn what_waits_is_listed_the_soonest_to_expire_first() {
        let mut later = request(json!({"deadline": "2026-01-01T12:30:00Z"}), json!({}));
        later["metadata"]["name"] = json!("ar-later");
        let printed = render(vec![later, request(json!({}), json!({}))], None, now());
        assert_eq!(
            printed.stdout(Format::Table),
            "NAMESPACE   NAME       OPERATION   TARGET                  REQUESTER           LEFT    APPROVALS   DIGEST     AGE\n\
             web         ar-7f3k    UPDATE      deployments/api/scale   sa:agents/ops-bot   24m     0/2         9f31c2a4   6m\n\
             web         ar-later   UPDATE      deployments/api/scale   sa:agents/ops-bot   2h24m   0/2         9f31c2a4   6m\n"
        );
        assert_eq!(
            printed.stdout(Format::Name),
            "approvalrequest.grantgate.dev/ar-7f3k\napprovalrequest.grantgate.dev/ar-later\n"
        );
        let document: Value = serde_json::from_str(&printed.stdout(Format::Json)).unwrap();
        assert_eq!(
            (
                document["code"].as_u64(),
                document["items"].as_array().unwrap().len()
            ),
            (Some(0), 2)
        );
        assert!(
            printed
                .stdout(Format::Wide)
                .contains("apps    web               production-changes")
        );
    }

    #[test]
    fn what_is_decided_or_past_its_deadline_does_not_wait() {
        let items = vec![
            request(json!({}), json!({"phase": "Denied"})),
            request(
                json!({}),
                json!({"phase": "Approved", "grant": {"name": "gr-a"}}),
            ),
            request(json!({"deadline": "2026-01-01T10:06:00Z"}), json!({})),
        ];
        let printed = render(items, Some("web"), now());
        assert_eq!(printed.stdout(Format::Table), "");
        assert_eq!(printed.exit(), Exit::Done);
        assert_eq!(
            printed.stderr(Format::Table),
            "Nothing waits for a person in namespace web. All namespaces: kubectl grantgate pending -A\n"
        );
        assert_eq!(printed.stderr(Format::Json), "");
    }

    #[test]
    fn a_request_that_cannot_be_read_hides_no_other() {
        let printed = render(
            vec![
                json!({"metadata": {"name": "odd\u{1b}", "namespace": "web"}, "spec": {}}),
                request(json!({}), json!({})),
            ],
            Some("web"),
            now(),
        );
        assert!(printed.stdout(Format::Table).contains("ar-7f3k"));
        assert!(
            printed
                .stderr(Format::Table)
                .contains("web/odd<U+001B> cannot be read by this version")
        );
    }

    #[test]
    fn a_row_stays_one_row_whatever_it_holds() {
        let hostile = request(
            json!({"requester": {"username": "a b\n\t\u{202e}\u{1b}[2J", "agent": "x"}}),
            json!({}),
        );
        let text = render(vec![hostile], Some("web"), now()).stdout(Format::Wide);
        assert_eq!(text.lines().count(), 2);
        assert!(
            text.contains("a<U+0020>b<U+000A>→<U+202E><U+001B>[2J"),
            "{text}"
        );
    }
}
