//! The MCP side: the server as its makers publish it, and a client that calls it as an agent's harness does.

#![allow(dead_code, reason = "the demonstration and the suite use parts of it")]

use std::fs::{self, File};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use rmcp::ServiceExt;
use rmcp::model::{CallToolRequestParams, ContentBlock};
use rmcp::service::{RoleClient, RunningService};
use rmcp::transport::TokioChildProcess;
use serde_json::{Map, Value};

use crate::cluster::process::tethered;
use crate::cluster::programs::{last_lines, target_dir};

/// The server's package at the registry that npm asks.
const PACKAGE: &str = "kubernetes-mcp-server";
/// Its exact version: the catalogue that comes with grantgate describes this one.
const VERSION: &str = "0.0.67";
/// How long one call may take.
const LIMIT: Duration = Duration::from_secs(60);

/// The server's program: npm brings it ready to run in a package for this platform.
#[derive(Debug, Clone)]
pub struct Server {
    program: PathBuf,
}

impl Server {
    /// Finds it under the target directory, or lets npm install it there. Blocks. The error says what is missing.
    pub fn ensure() -> Result<Server> {
        let root = target_dir().join("mcp");
        let dir = root.join(format!("{PACKAGE}-{VERSION}"));
        fs::create_dir_all(&root)?;
        // Two demonstrations that start together install once; the lock ends with its process.
        let turn = File::create(root.join("lock"))?;
        turn.lock()?;
        if !dir.is_dir() {
            let unfinished = root.join(".unfinished");
            if unfinished.exists() {
                fs::remove_dir_all(&unfinished)?;
            }
            install(&unfinished)?;
            fs::rename(&unfinished, &dir)?;
        }
        Ok(Server {
            program: program_in(&dir.join("node_modules"))?,
        })
    }

    /// The file to execute.
    pub fn program(&self) -> &Path {
        &self.program
    }
}

fn install(into: &Path) -> Result<()> {
    let _ = writeln!(
        std::io::stderr(),
        "installing {PACKAGE} {VERSION} with npm (once)"
    );
    let output = Command::new("npm")
        .args([
            "install",
            "--no-save",
            "--no-audit",
            "--no-fund",
            "--ignore-scripts",
        ])
        .args(["--loglevel", "error", "--prefix"])
        .arg(into)
        .arg(format!("{PACKAGE}@{VERSION}"))
        .stdin(Stdio::null())
        .output()
        .context("npm is not installed (it comes with Node.js)")?;
    ensure!(
        output.status.success(),
        "npm could not install {PACKAGE} {VERSION}: {}",
        last_lines(&String::from_utf8_lossy(&output.stderr), 5)
    );
    Ok(())
}

/// The package itself only starts this program; started directly, it is tied to us and gets our signals.
fn program_in(modules: &Path) -> Result<PathBuf> {
    for entry in fs::read_dir(modules)? {
        let name = entry?.file_name();
        let name = name.to_string_lossy();
        if name.starts_with(&format!("{PACKAGE}-")) {
            let program = modules.join(&*name).join("bin").join(&*name);
            if program.is_file() {
                return Ok(program);
            }
        }
    }
    bail!("{PACKAGE} {VERSION} has no program for this platform")
}

/// A session with a running server. Dropping it ends the server.
pub struct Session {
    client: RunningService<RoleClient, ()>,
    /// Name and version that the server gave.
    pub server: String,
    /// How many tools it serves.
    pub tools: usize,
}

/// What a tool call came back with.
#[derive(Debug, Clone)]
pub struct Answer {
    /// `isError` as it came.
    pub is_error: bool,
    /// The text blocks, one after the other.
    pub text: String,
}

impl Session {
    /// Starts the server over stdio with one kubeconfig and nothing else to reach a cluster by.
    pub async fn start(server: &Server, kubeconfig: &Path, dir: &Path) -> Result<Session> {
        let mut command = tokio::process::Command::from(tethered(&server.program));
        command
            .arg("--kubeconfig")
            .arg(kubeconfig)
            .env_clear()
            .env("PATH", std::env::var_os("PATH").unwrap_or_default())
            .env("HOME", dir)
            .current_dir(dir);
        let log = File::create(dir.join("mcp-server.log"))?;
        let (process, _) = TokioChildProcess::builder(command).stderr(log).spawn()?;
        let client = tokio::time::timeout(LIMIT, ().serve(process))
            .await
            .context("the MCP server does not answer `initialize`")??;
        let server = client
            .peer_info()
            .and_then(|info| info.server_info.clone())
            .map(|server| format!("{} {}", server.name, server.version))
            .context("the MCP server does not say what it is")?;
        let tools = tokio::time::timeout(LIMIT, client.list_all_tools())
            .await
            .context("the MCP server does not answer `tools/list`")??
            .len();
        Ok(Session {
            client,
            server,
            tools,
        })
    }

    /// One `tools/call`.
    pub async fn call(&self, tool: &'static str, arguments: Map<String, Value>) -> Result<Answer> {
        let request = CallToolRequestParams::new(tool).with_arguments(arguments);
        let result = tokio::time::timeout(LIMIT, self.client.call_tool(request))
            .await
            .context("the MCP server does not answer `tools/call`")??;
        let texts: Vec<&str> = result
            .content
            .iter()
            .filter_map(ContentBlock::as_text)
            .map(|block| block.text.as_str())
            .collect();
        Ok(Answer {
            is_error: result.is_error.unwrap_or(false),
            text: texts.join("\n"),
        })
    }
}
