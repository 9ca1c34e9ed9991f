//! The reviewers' kubectl plugin: `kubectl grantgate`.

use std::process::ExitCode;

fn main() -> ExitCode {
    grantgate::cli::main()
}
