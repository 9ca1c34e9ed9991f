//! `cargo demo`: an agent's change waits for a person, on a real cluster, through a real MCP server.
//!
//! Every line under a command is what that command printed. Where something comes out otherwise than told, the demonstration
//! stops and ends with an error.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "the test bed panics with the reason"
)]

mod agent;
#[path = "../cluster/mod.rs"]
mod cluster;
#[path = "../mcp.rs"]
mod mcp;
mod people;
#[path = "../stack/mod.rs"]
mod stack;
mod stage;
mod story;
mod telling;

use std::io::IsTerminal;
use std::process::ExitCode;

use anyhow::{Result, bail};
use clap::Parser;
use tokio::signal::unix::{SignalKind, signal};

use crate::stage::Stage;
use crate::telling::Telling;

/// Shows on a real cluster how an AI agent's change waits for a person's decision.
///
/// Everything runs on this machine, on loopback, and is taken down at the end. On a terminal the cluster stays up afterwards, to
/// play both roles by hand, until Ctrl-C.
#[derive(Debug, Parser)]
#[command(name = "cargo demo", bin_name = "cargo demo", max_term_width = 100)]
struct Arguments {
    /// End after the story, also on a terminal.
    #[arg(long, conflicts_with = "keep")]
    no_wait: bool,
    /// Stay up after the story, also without a terminal, until SIGINT or SIGTERM.
    #[arg(long)]
    keep: bool,
    /// Use kubectl as the agent, as when npm is missing.
    #[arg(long)]
    without_mcp: bool,
}

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    let runtime = match tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()
    {
        Ok(runtime) => runtime,
        Err(error) => {
            eprintln!("demonstration: cannot start: {error}");
            return ExitCode::FAILURE;
        }
    };
    let outcome = runtime.block_on(run(&arguments));
    // A build that was interrupted must not hold us up.
    runtime.shutdown_background();
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("\ndemonstration: {error:#}");
            ExitCode::FAILURE
        }
    }
}

/// Tells the story. What was started is taken down on the way out, whichever way that is.
async fn run(arguments: &Arguments) -> Result<()> {
    let telling = Telling::new();
    let stays = arguments.keep || (!arguments.no_wait && std::io::stdout().is_terminal());
    telling.says(
        "grantgate: an AI agent's change to a cluster waits until a person has seen it and allowed it.",
    );
    let programs = unless_stopped(stage::build(telling)).await?;
    let cluster = unless_stopped(stage::cluster(&programs, telling)).await?;
    let set = Stage::set(&cluster, !arguments.without_mcp, telling);
    let stage = unless_stopped(set).await?;
    unless_stopped(story::tell(&stage, telling)).await?;
    if stays {
        stage.explain_how_to_go_on(telling);
        told_to_stop().await;
        telling.line("\nTaking everything down.");
    }
    Ok(())
}

/// Does `work`, unless a signal comes first.
async fn unless_stopped<T>(work: impl Future<Output = Result<T>>) -> Result<T> {
    tokio::select! {
        outcome = work => outcome,
        () = told_to_stop() => bail!("stopped before the end; everything is taken down"),
    }
}

/// Resolves at SIGINT, SIGTERM or SIGHUP.
async fn told_to_stop() {
    let kinds = [
        SignalKind::interrupt(),
        SignalKind::terminate(),
        SignalKind::hangup(),
    ];
    let waits = kinds.into_iter().map(|kind| {
        Box::pin(async move {
            match signal(kind) {
                Ok(mut signal) => signal.recv().await,
                // Without a handler the signal's own effect ends us.
                Err(_) => std::future::pending().await,
            }
        })
    });
    futures::future::select_all(waits).await;
}
