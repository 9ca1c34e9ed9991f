//! kubectl and Helm as a person or an agent runs them: with a kubeconfig, and with an exit code.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use anyhow::{Context, Result};
use tokio::io::AsyncWriteExt;

use super::process::tethered;
use super::{Cluster, User};

/// How long one command may take.
const LIMIT: Duration = Duration::from_secs(120);

/// What a command left behind.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Output {
    /// Its exit code; `None` when a signal ended it.
    pub code: Option<i32>,
    /// What it wrote to stdout.
    pub stdout: String,
    /// What it wrote to stderr.
    pub stderr: String,
}

/// A command line with one kubeconfig: `cluster.kubectl(&user)`.
#[derive(Debug, Clone)]
pub struct Tool {
    program: PathBuf,
    path: OsString,
    home: PathBuf,
    kubeconfig: PathBuf,
}

impl Output {
    /// Whether it ended with 0.
    pub fn ok(&self) -> bool {
        self.code == Some(0)
    }

    /// stdout, of a command that must succeed.
    ///
    /// # Panics
    ///
    /// When it did not end with 0.
    #[track_caller]
    pub fn expect_ok(self) -> String {
        assert!(self.ok(), "{self:?}");
        self.stdout
    }
}

impl Cluster {
    /// kubectl as `user`, with the plugin on its `PATH`.
    pub fn kubectl(&self, user: &User) -> Tool {
        self.tool("kubectl", self.kubeconfig(user))
    }

    /// Helm as `user`.
    pub fn helm(&self, user: &User) -> Tool {
        self.tool("helm", self.kubeconfig(user))
    }

    /// One of the programs, with a kubeconfig that is there already.
    pub fn tool(&self, program: &str, kubeconfig: PathBuf) -> Tool {
        let mut path: Vec<PathBuf> = vec![binaries(), self.programs().dir().to_path_buf()];
        path.extend(std::env::split_paths(
            &std::env::var_os("PATH").unwrap_or_default(),
        ));
        Tool {
            program: self.programs().path(program),
            path: std::env::join_paths(path).unwrap(),
            home: self.dir().to_path_buf(),
            kubeconfig,
        }
    }
}

impl Tool {
    /// Runs it.
    ///
    /// # Panics
    ///
    /// When it cannot be started or does not end.
    pub async fn run<A: AsRef<str>>(&self, args: impl IntoIterator<Item = A>) -> Output {
        self.run_with_input(args, "").await
    }

    /// Runs it with `input` on stdin, as in `kubectl apply -f -`.
    pub async fn run_with_input<A: AsRef<str>>(
        &self,
        args: impl IntoIterator<Item = A>,
        input: &str,
    ) -> Output {
        let args: Vec<String> = args
            .into_iter()
            .map(|arg| arg.as_ref().to_owned())
            .collect();
        let what = format!("{} {}", self.program.display(), args.join(" "));
        let output = tokio::time::timeout(LIMIT, self.output(&args, input)).await;
        output
            .with_context(|| format!("did not end: {what}"))
            .and_then(|output| output)
            .unwrap()
    }

    /// Creates or changes what `manifest` says.
    pub async fn apply(&self, manifest: &str) -> Output {
        self.run_with_input(["apply", "-f", "-"], manifest).await
    }

    async fn output(&self, args: &[String], input: &str) -> Result<Output> {
        let mut child = tokio::process::Command::from(tethered(&self.program))
            .args(args)
            .env_clear()
            .env("PATH", &self.path)
            // Discovery caches and Helm's files: of this cluster only.
            .env("HOME", &self.home)
            .env("KUBECONFIG", &self.kubeconfig)
            .current_dir(&self.home)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .kill_on_drop(true)
            .spawn()
            .context("cannot start it (needs `setpriv` of util-linux)")?;
        let mut stdin = child.stdin.take().context("no stdin")?;
        let input = input.as_bytes().to_vec();
        // A command that does not read its input closes it; that is its business.
        tokio::spawn(async move { stdin.write_all(&input).await });
        let output = child.wait_with_output().await?;
        Ok(Output {
            code: output.status.code(),
            stdout: String::from_utf8_lossy(&output.stdout).into_owned(),
            stderr: String::from_utf8_lossy(&output.stderr).into_owned(),
        })
    }
}

/// The directory of this package's own programs, `grantgate` and `kubectl-grantgate`.
pub fn binaries() -> PathBuf {
    // Cargo builds them before it builds tests and benchmarks, and says where; beside an example they are one level up.
    let named = option_env!("CARGO_BIN_EXE_grantgate")
        .map(|file| Path::new(file).parent().map(Path::to_path_buf));
    named.flatten().unwrap_or_else(|| {
        let exe = std::env::current_exe().unwrap_or_default();
        exe.ancestors()
            .nth(2)
            .map(Path::to_path_buf)
            .unwrap_or_default()
    })
}

/// The `grantgate` program.
pub fn grantgate() -> PathBuf {
    binaries().join("grantgate")
}
