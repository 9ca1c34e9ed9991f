//! One module for each subcommand: arguments and what is done with them.

mod cleanup;
mod controller;
mod crds;
mod manifests;
mod webhook;

use std::io::{self, Write};

use clap::Subcommand;

/// What the program does.
#[derive(Debug, Subcommand)]
#[allow(clippy::large_enum_variant, reason = "made once per process")]
pub enum Command {
    /// Print the CustomResourceDefinitions, or write one file for each.
    Crds(crds::Arguments),
    /// Print namespace, accounts, rights, roles and policies of an installation.
    Manifests(manifests::Arguments),
    /// Run one replica of the controller; one at a time does the work.
    Controller(controller::Arguments),
    /// Take policy bindings and webhook configurations away: afterwards nothing waits for a person any more.
    Cleanup(cleanup::Arguments),
    /// Run one replica of the admission webhook.
    Webhook(webhook::Arguments),
}

impl Command {
    /// Carries the subcommand out.
    pub fn run(self) -> anyhow::Result<()> {
        match self {
            Self::Crds(arguments) => crds::run(&arguments),
            Self::Manifests(arguments) => manifests::run(arguments),
            Self::Controller(arguments) => controller::run(arguments),
            Self::Cleanup(arguments) => cleanup::run(arguments),
            Self::Webhook(arguments) => webhook::run(arguments),
        }
    }
}

/// Writes to standard output. A reader that stops early, such as `head`, is no error.
fn print(text: &str) -> anyhow::Result<()> {
    match io::stdout().write_all(text.as_bytes()) {
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(()),
        written => Ok(written?),
    }
}
