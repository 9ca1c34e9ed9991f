//! `diff`: only the change.

use clap::Args;
use serde_json::json;

use super::{
    change::change,
    exit::{Exit, Failure},
    output::Printed,
    seen::Seen,
    server::Server,
};

/// Arguments of `diff`.
#[derive(Args, Debug)]
pub struct DiffArgs {
    /// NAME or NAMESPACE/NAME of an ApprovalRequest.
    pub request: String,
}

/// Prints the change; exit code 1 when there is one, as `kubectl diff`.
pub async fn run(server: &Server, args: DiffArgs) -> Result<Printed, Failure> {
    let seen = Seen::read(server, &args.request).await?;
    let spec = &seen.request.spec;
    let differs = !spec.diff.is_empty() || spec.change != "{}";
    Ok(Printed {
        table: change(spec)
            .iter()
            .map(|line| format!("{line}\n"))
            .collect(),
        document: json!({"diff": spec.diff, "change": spec.change}),
        names: vec![seen.type_name()],
        exit: differs.then_some(Exit::Error),
        ..Printed::default()
    })
}
