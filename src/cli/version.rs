//! `version`: of the plugin, and of what it talks to.

use clap::Args;
use serde_json::{Value, json};

use super::{
    Flags,
    exit::Failure,
    output::Printed,
    server::{Refusal, Server, unreadable},
};
use crate::decide::visible::one_line;

/// Arguments of `version`.
#[derive(Args, Debug)]
pub struct VersionArgs {
    /// Do not ask the cluster.
    #[arg(long)]
    pub client: bool,
}

/// Prints versions.
pub async fn run(flags: &Flags, args: VersionArgs) -> Result<Printed, Failure> {
    let client = env!("CARGO_PKG_VERSION");
    let mut printed = Printed {
        table: format!("Client: {client}\n"),
        document: json!({"client": client}),
        ..Printed::default()
    };
    if args.client {
        return Ok(printed);
    }
    let server = Server::connect(flags).await?;
    let version: Value = match server.call(http::Method::GET, "/version", None).await {
        Ok(text) => serde_json::from_str(&text).map_err(|error| unreadable(&error))?,
        Err(Refusal::Status(status)) => {
            return Err(server.explain_status(&status, "ask the server's version"));
        }
        Err(Refusal::Failure(failure)) => return Err(failure),
    };
    let kubernetes = one_line(
        version
            .get("gitVersion")
            .and_then(Value::as_str)
            .unwrap_or("unknown"),
        80,
    );
    let served = match server
        .call(http::Method::GET, "/apis/grantgate.dev/v1alpha1", None)
        .await
    {
        Ok(_) => true,
        Err(Refusal::Status(status)) if status.code == 404 => false,
        Err(Refusal::Status(status)) => {
            return Err(server.explain_status(&status, "ask for the API grantgate.dev"));
        }
        Err(Refusal::Failure(failure)) => return Err(failure),
    };
    let api = if served {
        "grantgate.dev/v1alpha1 is served"
    } else {
        "grantgate.dev/v1alpha1 is NOT served: grantgate is not installed"
    };
    printed.table.push_str(&format!(
        "Server: Kubernetes {kubernetes} at {}\nAPI:    {api}\n",
        server.url
    ));
    printed.document = json!({
        "client": client, "kubernetes": kubernetes, "server": server.url,
        "api": {"group": "grantgate.dev", "version": "v1alpha1", "served": served},
    });
    Ok(printed)
}
