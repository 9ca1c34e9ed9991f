//! What a running component says about itself on standard error.

use std::io::IsTerminal;

use tracing_subscriber::{EnvFilter, filter::Directive};

/// The stream of the record: what became of requests, grants and identities. No filter silences it.
pub const AUDIT: &str = "audit";

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
    let filter = filtered(filter)?;
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

/// The filter as given, and the record whatever it says.
fn filtered(filter: &str) -> Result<EnvFilter, LogProblem> {
    let problem = |reason: &dyn std::fmt::Display| LogProblem::Filter {
        filter: filter.to_owned(),
        reason: reason.to_string(),
    };
    let record = format!("{AUDIT}=info");
    let record: Directive = record.parse().map_err(|error| problem(&error))?;
    let filter = EnvFilter::try_new(filter).map_err(|error| problem(&error))?;
    Ok(filter.add_directive(record))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use std::sync::{Arc, Mutex};

    use super::*;

    #[derive(Clone, Default)]
    struct Lines(Arc<Mutex<Vec<u8>>>);

    impl std::io::Write for Lines {
        fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
            self.0.lock().unwrap().write(bytes)
        }

        fn flush(&mut self) -> std::io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn no_filter_silences_the_record() {
        for filter in ["warn", "off", "info,audit=off", "audit=error", ""] {
            let lines = Lines::default();
            let writer = lines.clone();
            let subscriber = tracing_subscriber::fmt()
                .with_env_filter(filtered(filter).unwrap())
                .with_writer(move || writer.clone())
                .finish();
            tracing::subscriber::with_default(subscriber, || {
                tracing::info!(target: AUDIT, "the record");
                tracing::debug!("something else");
            });
            let text = String::from_utf8(lines.0.lock().unwrap().clone()).unwrap();
            assert!(text.contains("the record"), "{filter:?}: {text:?}");
            assert!(!text.contains("something else"), "{filter:?}: {text:?}");
        }
    }

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
