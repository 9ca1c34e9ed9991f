//! The grantgate program: components and tools by subcommand.

mod command;

use std::process::ExitCode;

use clap::Parser;
use grantgate::telemetry::{self, LogFormat};

/// A person's decision between an AI agent and a change to a Kubernetes cluster.
#[derive(Debug, Parser)]
#[command(name = "grantgate", version, about, max_term_width = 100)]
struct Arguments {
    /// Which events are logged on standard error, e.g. `info,grantgate=debug`.
    #[arg(
        long,
        global = true,
        env = "RUST_LOG",
        default_value = "info",
        value_name = "FILTER"
    )]
    log: String,
    /// How log lines look.
    #[arg(
        long,
        global = true,
        env = "GRANTGATE_LOG_FORMAT",
        value_enum,
        default_value_t
    )]
    log_format: LogFormat,
    #[command(subcommand)]
    command: command::Command,
}

fn main() -> ExitCode {
    // Before anything else: the first TLS configuration made without a provider would panic.
    if rustls::crypto::ring::default_provider()
        .install_default()
        .is_err()
    {
        eprintln!("grantgate: another TLS provider has been installed before");
        return ExitCode::FAILURE;
    }
    let arguments = Arguments::parse();
    let outcome = telemetry::init(&arguments.log, arguments.log_format)
        .map_err(anyhow::Error::from)
        .and_then(|()| arguments.command.run());
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("grantgate: {error:#}");
            ExitCode::FAILURE
        }
    }
}
