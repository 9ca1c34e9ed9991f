//! What a running component says about itself on standard error.

use std::io::IsTerminal;

use tracing_subscriber::EnvFilter;

/// How log lines look.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq, clap::ValueEnum)]
pub enum LogFormat {
    /// One line of text for each event.
    #[default]
    Text,
    /// One JSON object for each event.
    Json,
}

/// Why logging could not be set up.
#[derive(Debug, thiserror::Error)]
pub enum LogProblem {
    /// The filter cannot be read.
    #[error(
        "the log filter {filter:?} cannot be read: {reason}; write e.g. \"info\" or \"info,grantgate=debug\""
    )]
    Filter {
        /// The filter as given.
        filter: String,
        /// What is wrong with it.
        reason: String,
    },
    /// Something else in this process has set up logging before.
    #[error("logging has been set up before")]
    AlreadySet,
}

/// Sends what is traced to standard error. `filter` is written as in `RUST_LOG`, e.g. `info,grantgate=debug`.
pub fn init(filter: &str, format: LogFormat) -> Result<(), LogProblem> {
    let filter = EnvFilter::try_new(filter).map_err(|error| LogProblem::Filter {
        filter: filter.to_owned(),
        reason: error.to_string(),
    })?;
    let subscriber = tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(std::io::stderr);
    let set = match format {
        LogFormat::Text => subscriber
            .with_ansi(std::io::stderr().is_terminal())
            .try_init(),
        LogFormat::Json => subscriber.json().flatten_event(true).try_init(),
    };
    set.map_err(|_error| LogProblem::AlreadySet)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_filter_that_cannot_be_read_is_named() {
        let problem =
            init("grantgate=loud=er", LogFormat::Text).map_err(|problem| problem.to_string());
        assert!(
            problem
                .is_err_and(|words| words.contains("grantgate=loud=er") && words.contains("info"))
        );
    }
}
