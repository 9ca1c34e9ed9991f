//! The programs of a cluster, built from the Go modules that `go.mod` names.
//!
//! Versions stand in `go.mod` alone. The built programs live in a directory named after the content of `go.mod` and
//! `go.sum`, so another version is another directory and nothing is ever built twice. Cold, the whole takes about eight
//! minutes on two cores and fetches 0.8 GB of sources.

use std::fs::{self, File, TryLockError};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use sha2::{Digest, Sha256};

/// How often a running build says that it is still running.
const PROGRESS: Duration = Duration::from_secs(15);

/// A directory that holds every program of one release.
#[derive(Debug, Clone)]
pub struct Programs {
    dir: PathBuf,
    kubernetes: String,
}

/// What `go build` is asked for: the program's file name and its package.
struct Target {
    name: &'static str,
    package: &'static str,
    module: &'static str,
}

/// Quick ones first: someone who watches sees that it works before the five minutes of the API server begin.
const TARGETS: [Target; 5] = [
    Target {
        name: "etcd",
        package: "go.etcd.io/etcd/server/v3",
        module: "go.etcd.io/etcd/server/v3",
    },
    Target {
        name: "kube-apiserver",
        package: "k8s.io/kubernetes/cmd/kube-apiserver",
        module: KUBERNETES,
    },
    Target {
        name: "kubectl",
        package: "k8s.io/kubernetes/cmd/kubectl",
        module: KUBERNETES,
    },
    Target {
        name: "kube-controller-manager",
        package: "k8s.io/kubernetes/cmd/kube-controller-manager",
        module: KUBERNETES,
    },
    Target {
        name: "helm",
        package: "helm.sh/helm/v4/cmd/helm",
        module: "helm.sh/helm/v4",
    },
];

const KUBERNETES: &str = "k8s.io/kubernetes";

impl Programs {
    /// Finds the programs, building what is missing. Blocks, for minutes when it builds, and says so on stderr.
    pub fn ensure() -> Result<Programs> {
        Programs::of_module(&Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/cluster"))
    }

    /// As [`Programs::ensure`], for the module file in `module`.
    pub fn of_module(module: &Path) -> Result<Programs> {
        let read = |name: &str| {
            let path = module.join(name);
            fs::read_to_string(&path).with_context(|| format!("cannot read {}", path.display()))
        };
        let (go_mod, go_sum) = (read("go.mod")?, read("go.sum")?);
        let kubernetes = version_in(&go_mod, KUBERNETES)?;
        let mut hash = Sha256::new();
        hash.update(&go_mod);
        hash.update([0]);
        hash.update(&go_sum);
        let key = format!("{kubernetes}-{}", &hex::encode(hash.finalize())[..12]);
        let root = target_dir().join("cluster");
        let programs = Programs {
            dir: root.join(&key),
            kubernetes,
        };
        if programs.missing().is_empty() {
            return Ok(programs);
        }
        fs::create_dir_all(&programs.dir)?;
        let _turn = wait_for_turn(&root.join(format!("{key}.lock")))?;
        for target in programs.missing() {
            programs.build(module, &go_mod, target)?;
        }
        Ok(programs)
    }

    /// The file of the program `name`, for example `kubectl`.
    pub fn path(&self, name: &str) -> PathBuf {
        self.dir.join(name)
    }

    /// The directory that holds them, for `PATH`.
    pub fn dir(&self) -> &Path {
        &self.dir
    }

    /// The Kubernetes version with its `v`.
    pub fn kubernetes(&self) -> &str {
        &self.kubernetes
    }

    fn missing(&self) -> Vec<&'static Target> {
        TARGETS
            .iter()
            .filter(|target| !self.path(target.name).is_file())
            .collect()
    }

    fn build(&self, module: &Path, go_mod: &str, target: &Target) -> Result<()> {
        // A program appears under its name only when it is whole: a build that was killed leaves a name nobody looks for.
        let unfinished = self.dir.join(format!(".{}.unfinished", target.name));
        let version = version_in(go_mod, target.module)?;
        let mut command = Command::new("go");
        command
            .arg("build")
            .arg("-o")
            .arg(&unfinished)
            .arg("-ldflags")
            .arg(self.linker_flags(target)?)
            .arg(target.package)
            .current_dir(module)
            .env("CGO_ENABLED", "0")
            .stdin(Stdio::null());
        let what = format!("{} {version}", target.name);
        say(&format!(
            "building {what} from source (once; kept in {})",
            self.dir.display()
        ));
        let begun = Instant::now();
        let output = while_saying(&what, begun, || command.output()).with_context(|| {
            format!("cannot run `go`, which builds {what}: install Go (https://go.dev/dl)")
        })?;
        let complaint = String::from_utf8_lossy(&output.stderr);
        ensure!(
            output.status.success(),
            "`go build` of {what} failed:\n{}",
            last_lines(&complaint, 20)
        );
        fs::rename(&unfinished, self.path(target.name))?;
        say(&format!("built {what} in {} s", begun.elapsed().as_secs()));
        Ok(())
    }

    /// Without its version the server calls itself v0.0.0-master, and feature defaults and version checks go wrong.
    fn linker_flags(&self, target: &Target) -> Result<String> {
        if target.module != KUBERNETES {
            return Ok("-s -w".to_owned());
        }
        let mut parts = self.kubernetes.trim_start_matches('v').split('.');
        let (Some(major), Some(minor)) = (parts.next(), parts.next()) else {
            bail!("{} in go.mod is not a version", self.kubernetes);
        };
        let variable = "-X k8s.io/component-base/version";
        Ok(format!(
            "-s -w {variable}.gitVersion={} {variable}.gitMajor={major} {variable}.gitMinor={minor}",
            self.kubernetes
        ))
    }
}

/// Cargo's target directory: whatever the tests leave behind stays under it.
pub fn target_dir() -> PathBuf {
    // The running program is TARGET/PROFILE/deps/suite-HASH or TARGET/PROFILE/examples/demo.
    let exe = std::env::current_exe().unwrap_or_default();
    let found = exe.ancestors().find(|dir| {
        dir.join("CACHEDIR.TAG").is_file() || dir.file_name().is_some_and(|name| name == "target")
    });
    found.map_or_else(
        || Path::new(env!("CARGO_MANIFEST_DIR")).join("target"),
        Path::to_path_buf,
    )
}

/// The version that `go_mod` requires of `module`, with its `v`.
fn version_in(go_mod: &str, module: &str) -> Result<String> {
    let mut lines = go_mod
        .lines()
        .map(|line| line.trim().trim_start_matches("require "));
    lines
        .find_map(|line| {
            line.strip_prefix(module)?
                .strip_prefix(' ')?
                .split_whitespace()
                .next()
                .map(str::to_owned)
        })
        .filter(|version| version.starts_with('v'))
        .with_context(|| format!("go.mod requires no {module}"))
}

/// Test processes that start together build once: the others wait here. The lock ends with its process, however that ends.
fn wait_for_turn(path: &Path) -> Result<File> {
    let file = File::create(path).with_context(|| format!("cannot create {}", path.display()))?;
    match file.try_lock() {
        Ok(()) => {}
        Err(TryLockError::WouldBlock) => {
            while_saying("another process that builds", Instant::now(), || {
                file.lock()
            })?
        }
        Err(TryLockError::Error(error)) => return Err(error).context("cannot lock the build"),
    }
    Ok(file)
}

/// Does `work`, with a line on stderr every now and then.
fn while_saying<T>(what: &str, begun: Instant, work: impl FnOnce() -> T) -> T {
    std::thread::scope(|scope| {
        let (done, wait) = channel::<()>();
        scope.spawn(move || {
            while wait.recv_timeout(PROGRESS) == Err(RecvTimeoutError::Timeout) {
                say(&format!("{what}: {} s", begun.elapsed().as_secs()));
            }
        });
        let result = work();
        drop(done);
        result
    })
}

/// Goes around the test runner's capture: minutes of silence look like a hang.
fn say(line: &str) {
    // A closed stderr is no reason to stop.
    let _ = writeln!(std::io::stderr(), "test cluster: {line}");
}

/// The end of a text, where programs say why they stopped.
pub fn last_lines(text: &str, count: usize) -> String {
    let lines: Vec<&str> = text.lines().collect();
    lines[lines.len().saturating_sub(count)..].join("\n")
}
