//! The agent: it holds one ServiceAccount's kubeconfig, and wants a Deployment scaled.

use std::path::Path;

use anyhow::Result;
use serde_json::json;

use crate::cluster::tools::Tool;
use crate::mcp::{Server, Session};
use crate::telling::Telling;

/// How the agent reaches the cluster.
pub enum Agent {
    /// Through an MCP server under its ServiceAccount.
    Mcp(Session),
    /// Through a shell under the same ServiceAccount, where the server cannot be had.
    Kubectl(Tool),
}

/// What its attempt came to.
#[derive(Debug)]
pub struct Attempt {
    /// Whether it was refused: `isError`, or an exit code other than 0.
    pub refused: bool,
    /// Everything it was told.
    pub text: String,
}

impl Agent {
    /// Through the MCP server.
    pub async fn mcp(server: &Server, kubeconfig: &Path, dir: &Path) -> Result<Agent> {
        Session::start(server, kubeconfig, dir)
            .await
            .map(Agent::Mcp)
    }

    /// Asks for `replicas` of `web/api`, and tells how that went.
    pub async fn scale(&self, replicas: u32, telling: Telling) -> Result<Attempt> {
        match self {
            Agent::Mcp(session) => {
                let arguments = json!({
                    "apiVersion": "apps/v1", "kind": "Deployment", "namespace": "web", "name": "api", "scale": replicas,
                });
                telling.call(
                    "ops-bot",
                    &format!("tools/call resources_scale {arguments}"),
                );
                let arguments = arguments.as_object().cloned().unwrap_or_default();
                let answer = session.call("resources_scale", arguments).await?;
                telling.output(&format!("isError: {}", answer.is_error));
                if answer.is_error {
                    telling.message(&answer.text);
                } else {
                    telling.output(&head(&answer.text, 3));
                }
                Ok(Attempt {
                    refused: answer.is_error,
                    text: answer.text,
                })
            }
            Agent::Kubectl(kubectl) => {
                let line = format!("scale deployment api -n web --replicas={replicas}");
                telling.command("ops-bot", &format!("kubectl {line}"));
                let output = kubectl.run(line.split(' ')).await;
                telling.message(&format!("{}{}", output.stdout, output.stderr));
                telling.output(&format!("(exit code {})", output.code.unwrap_or(-1)));
                Ok(Attempt {
                    refused: !output.ok(),
                    text: format!("{}{}", output.stdout, output.stderr),
                })
            }
        }
    }
}

/// The first lines of a long text, and how many more there are.
fn head(text: &str, count: usize) -> String {
    let lines: Vec<&str> = text.trim_end().lines().collect();
    let mut shown = lines
        .iter()
        .take(count)
        .copied()
        .collect::<Vec<_>>()
        .join("\n");
    if lines.len() > count {
        shown.push_str(&format!("\n… ({} more lines)", lines.len() - count));
    }
    shown
}
