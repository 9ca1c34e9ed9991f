//! `kubectl grantgate`: what waits for a person, what would change, and the decision.

pub mod change;
pub mod counted;
pub mod diff;
pub mod eligible;
pub mod exit;
pub mod grants;
pub mod kinds;
pub mod output;
pub mod pending;
pub mod person;
pub mod revoke;
pub mod seen;
pub mod server;
pub mod show;
pub mod target;
pub mod version;
pub mod vote;
pub mod wait;

#[cfg(test)]
mod fixtures;

use std::{process::ExitCode, time::Duration};

use clap::{Args, Parser, Subcommand, ValueEnum};

use self::{
    exit::{Exit, Failure},
    output::Printed,
    server::Server,
};

/// A person's decision between an AI agent's proposal and a change to the cluster.
///
/// Exit codes: 0 done, 1 error, 2 usage, 3 nothing changed, 4 still pending, 5 denied or expired, 6 not allowed, 7 stale.
#[derive(Debug, Parser)]
#[command(
    name = "kubectl-grantgate",
    bin_name = "kubectl grantgate",
    disable_version_flag = true,
    max_term_width = 100
)]
pub struct Cli {
    /// Which cluster, as whom, where.
    #[command(flatten)]
    pub flags: Flags,
    /// What to do.
    #[command(subcommand)]
    pub command: Command,
}

/// Flags as kubectl has them.
#[derive(Args, Clone, Debug, Default)]
pub struct Flags {
    /// Path of the kubeconfig file.
    #[arg(long, global = true, value_name = "FILE")]
    pub kubeconfig: Option<std::path::PathBuf>,
    /// Name of the kubeconfig context.
    #[arg(long, global = true)]
    pub context: Option<String>,
    /// Name of the kubeconfig cluster.
    #[arg(long, global = true)]
    pub cluster: Option<String>,
    /// Name of the kubeconfig user.
    #[arg(long, global = true)]
    pub user: Option<String>,
    /// Username to impersonate.
    #[arg(long = "as", global = true, value_name = "USERNAME")]
    pub impersonate: Option<String>,
    /// Group to impersonate; may be repeated.
    #[arg(long = "as-group", global = true, value_name = "GROUP")]
    pub impersonate_groups: Vec<String>,
    /// Namespace; otherwise the context's.
    #[arg(short, long, global = true)]
    pub namespace: Option<String>,
    /// Output format.
    #[arg(short, long, global = true, value_enum, default_value_t = Format::Table)]
    pub output: Format,
    /// How long one call to the API server may take, e.g. 30s.
    #[arg(long, global = true, default_value = "30s", value_parser = span)]
    pub request_timeout: Duration,
}

/// Output formats.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq, ValueEnum)]
pub enum Format {
    /// Text for people.
    #[default]
    Table,
    /// The same with more columns.
    Wide,
    /// JSON with `code`; hidden characters as escapes.
    Json,
    /// YAML with `code`; hidden characters as escapes.
    Yaml,
    /// TYPE/NAME.
    Name,
}

/// What to do.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// List requests that wait for a person
    #[command(visible_alias = "list")]
    Pending(pending::PendingArgs),
    /// Show facts, the whole change, policies and votes of a request
    Show(show::ShowArgs),
    /// Print the change of a request; exit code 1 when there is one, as kubectl diff
    Diff(diff::DiffArgs),
    /// Approve one request that you have seen
    Approve(vote::ApproveArgs),
    /// Deny requests
    Deny(vote::DenyArgs),
    /// End grants
    Revoke(revoke::RevokeArgs),
    /// List grants
    Grants(grants::GrantsArgs),
    /// Wait until a request is decided
    Wait(wait::WaitArgs),
    /// Print versions of the plugin and the server
    Version(version::VersionArgs),
}

/// Runs the plugin on the process's arguments.
pub fn main() -> ExitCode {
    // A second installation of a provider is refused, and the first serves as well.
    let _already_installed = rustls::crypto::ring::default_provider().install_default();
    let cli = match Cli::try_parse() {
        Ok(cli) => cli,
        Err(error) => {
            let usage = error.use_stderr();
            // Nothing can be said when the terminal is gone.
            let _gone = error.print();
            return if usage {
                Exit::Usage.into()
            } else {
                Exit::Done.into()
            };
        }
    };
    let runtime = match tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
    {
        Ok(runtime) => runtime,
        Err(error) => {
            output::to_stderr(&format!("error: cannot start: {error}"));
            return Exit::Error.into();
        }
    };
    let format = cli.flags.output;
    runtime.block_on(run(cli)).print(format).into()
}

/// Carries one command out.
pub async fn run(cli: Cli) -> Printed {
    let result = match cli.command {
        Command::Version(args) => version::run(&cli.flags, args).await,
        command => match Server::connect(&cli.flags).await {
            Err(failure) => Err(failure),
            Ok(server) => match command {
                Command::Pending(args) => pending::run(&server, args).await,
                Command::Show(args) => show::run(&server, args).await,
                Command::Diff(args) => diff::run(&server, args).await,
                Command::Approve(args) => vote::approve(&server, args).await,
                Command::Deny(args) => vote::deny(&server, args).await,
                Command::Revoke(args) => revoke::run(&server, args).await,
                Command::Grants(args) => grants::run(&server, args).await,
                Command::Wait(args) => wait::run(&server, args).await,
                Command::Version(args) => version::run(&cli.flags, args).await,
            },
        },
    };
    result.unwrap_or_else(Printed::failure)
}

/// Reads a span of time as kubectl writes them: `90s`, `5m`, `1h30m`.
pub fn span(text: &str) -> Result<Duration, String> {
    let wrong = || format!("`{text}` is no span of time: write it like 90s, 5m or 1h30m");
    if !text.starts_with(|c: char| c.is_ascii_digit()) {
        return Err(wrong());
    }
    let span: jiff::SignedDuration = text.parse().map_err(|_| wrong())?;
    match u64::try_from(span.as_secs()) {
        Ok(seconds) if (1..=86_400).contains(&seconds) && span.subsec_nanos() == 0 => {
            Ok(Duration::from_secs(seconds))
        }
        _ => Err(format!("`{text}` must be whole seconds from 1s to 24h")),
    }
}

/// What a name argument names: `NAME`, `NAMESPACE/NAME`, or `TYPE/NAME` as `-o name` prints it.
pub fn named(
    text: &str,
    types: &[&str],
    namespace: Option<&str>,
) -> Result<(Option<String>, String), Failure> {
    match text.split_once('/') {
        None => Ok((namespace.map(str::to_owned), text.to_owned())),
        Some((kind, name)) if types.contains(&kind) => {
            Ok((namespace.map(str::to_owned), name.to_owned()))
        }
        Some((given, name)) if !name.contains('/') => match namespace {
            Some(flag) if flag != given => Err(Failure::Usage(format!(
                "namespace {} in the name, but --namespace {}",
                quoted(given),
                quoted(flag)
            ))),
            _ => Ok((Some(given.to_owned()), name.to_owned())),
        },
        Some(_) => Err(Failure::Usage(format!(
            "{} is not NAME, NAMESPACE/NAME or TYPE/NAME",
            quoted(text)
        ))),
    }
}

use self::exit::quoted;

#[cfg(test)]
mod tests {
    #![allow(
        clippy::unwrap_used,
        clippy::expect_used,
        clippy::panic,
        reason = "tests"
    )]

    use clap::CommandFactory;

    use super::*;

    #[test]
    fn the_command_line_is_consistent() {
        Cli::command().debug_assert();
    }

    #[test]
    fn help_names_the_plugin_as_kubectl_does() {
        let help = Cli::command().render_help().to_string();
        assert!(help.contains("Usage: kubectl grantgate"), "{help}");
    }

    #[test]
    fn flags_stand_before_or_after_the_command() {
        for line in [
            "kubectl-grantgate -n web approve ar-a --digest 9f31c2a4 --for 5m --as ana@example.com --as-group a --as-group b",
            "kubectl-grantgate approve ar-a --digest 9f31c2a4 --for 5m -n web --as ana@example.com --as-group a --as-group b",
        ] {
            let cli = Cli::try_parse_from(line.split(' ')).unwrap();
            assert_eq!(cli.flags.namespace.as_deref(), Some("web"));
            assert_eq!(cli.flags.impersonate_groups, ["a", "b"]);
            let Command::Approve(args) = cli.command else {
                panic!("{line}")
            };
            assert_eq!(args.lasts, Some(Duration::from_secs(300)));
        }
    }

    #[test]
    fn an_approval_without_a_digest_is_a_usage_error() {
        assert!(Cli::try_parse_from(["kubectl-grantgate", "approve", "ar-a"]).is_err());
        assert!(Cli::try_parse_from(["kubectl-grantgate", "deny"]).is_err());
    }

    #[test]
    fn spans_are_read_as_kubectl_writes_them() {
        assert_eq!(span("90s"), Ok(Duration::from_secs(90)));
        assert_eq!(span("1h30m"), Ok(Duration::from_secs(5400)));
        for wrong in ["", "5", "-5m", "0s", "25h", "1500ms", "five"] {
            assert!(span(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn a_name_may_carry_its_namespace_or_type() {
        let types = ["approvalrequest.grantgate.dev"];
        let read = |text, flag| named(text, &types, flag);
        assert_eq!(
            read("ar-a", Some("web")),
            Ok((Some("web".into()), "ar-a".into()))
        );
        assert_eq!(read("ar-a", None), Ok((None, "ar-a".into())));
        assert_eq!(
            read("shop/ar-a", None),
            Ok((Some("shop".into()), "ar-a".into()))
        );
        assert_eq!(
            read("approvalrequest.grantgate.dev/ar-a", Some("web")),
            Ok((Some("web".into()), "ar-a".into()))
        );
        assert!(matches!(
            read("shop/ar-a", Some("web")),
            Err(Failure::Usage(_))
        ));
        assert!(matches!(read("a/b/c", None), Err(Failure::Usage(_))));
    }
}
