//! Programs are started, awaited, signalled and ended, and none outlives whoever started it.

use std::fs;
use std::net::TcpListener;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::cluster::control_plane::is_port_clash;
use crate::cluster::process::{Process, Recipe, Signal, tethered};
use crate::cluster::programs::Programs;
use crate::cluster::run_dir::RunDir;
use crate::cluster::wait::{PATIENCE, eventually};

fn shell(dir: &RunDir, script: &str) -> Recipe {
    Recipe::new("shell", "sh", dir.path()).args(["-c", script])
}

/// A zombie that nobody has collected yet does not run.
fn runs(pid: &str) -> bool {
    let stat = fs::read_to_string(Path::new("/proc").join(pid).join("stat")).unwrap_or_default();
    stat.rsplit(") ")
        .next()
        .is_some_and(|rest| !rest.is_empty() && !rest.starts_with('Z'))
}

#[tokio::test]
async fn a_program_dies_when_the_one_that_started_it_is_killed() {
    let dir = RunDir::new().unwrap();
    let tether = tethered(Path::new("sleep"));
    let words: Vec<PathBuf> = std::iter::once(tether.get_program())
        .chain(tether.get_args())
        .map(PathBuf::from)
        .collect();
    let script = "\"$0\" \"$@\" 3600 & echo \"child $!.\"; wait";
    let mut parent = Process::start(shell(&dir, script).args(words)).unwrap();
    parent.wait_for_log(".", PATIENCE).await.unwrap();
    let log = parent.log();
    let child = log
        .trim()
        .trim_start_matches("child ")
        .trim_end_matches('.');
    let sleeps = async || {
        let line = fs::read(Path::new("/proc").join(child).join("cmdline")).ok()?;
        line.starts_with(b"sleep").then_some(())
    };
    eventually("setpriv has become sleep", PATIENCE, sleeps)
        .await
        .unwrap();
    parent.kill();
    eventually("the child is dead", PATIENCE, async || {
        (!runs(child)).then_some(())
    })
    .await
    .unwrap();
}

#[tokio::test]
async fn a_program_outlives_the_thread_that_asked_for_it() {
    let dir = RunDir::new().unwrap();
    let recipe = shell(&dir, "echo here; exec sleep 3600");
    let mut process = std::thread::spawn(|| Process::start(recipe).unwrap())
        .join()
        .unwrap();
    process.wait_for_log("here", PATIENCE).await.unwrap();
    assert!(process.ended().is_none());
    let pid = process.pid().to_string();
    assert!(runs(&pid));
    drop(process);
    assert!(!runs(&pid), "dropped and still there");
}

#[tokio::test]
async fn waiting_for_a_program_that_ends_fails_at_once_with_its_last_words() {
    let dir = RunDir::new().unwrap();
    let mut process = Process::start(shell(&dir, "echo no such flag >&2; exit 3")).unwrap();
    let error = process
        .wait_for_log("ready", Duration::from_secs(3600))
        .await
        .unwrap_err();
    let error = format!("{error:#}");
    assert!(
        error.contains("no such flag") && error.contains("exit status: 3"),
        "{error}"
    );
    assert!(
        process.signal(Signal::Term).is_err(),
        "nobody is there to be signalled"
    );
}

#[tokio::test]
async fn sigterm_can_be_answered_and_a_restart_is_the_same_program_again() {
    let dir = RunDir::new().unwrap();
    let script = "trap 'echo asked; exit 7' TERM; echo up $MODE; while :; do sleep 0.05; done";
    let mut process = Process::start(shell(&dir, script).env("MODE", "seven")).unwrap();
    process.wait_for_log("up seven", PATIENCE).await.unwrap();
    let first = process.pid();
    assert_eq!(process.terminate().await.unwrap().code(), Some(7));
    process.restart().unwrap();
    assert_ne!(process.pid(), first);
    process
        .wait_for("up twice", PATIENCE, async |process| {
            process.log().matches("up seven").count() == 2
        })
        .await
        .unwrap();
    process.kill();
    assert_eq!(process.ended().unwrap().signal(), Some(9));
    assert_eq!(
        process.log().matches("asked").count(),
        1,
        "kill -9 asks nobody"
    );
}

#[tokio::test]
async fn a_port_that_somebody_took_meanwhile_is_recognised() {
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}", taken.local_addr().unwrap());
    let dir = RunDir::new().unwrap();
    let programs = tokio::task::spawn_blocking(Programs::ensure)
        .await
        .unwrap()
        .unwrap();
    let recipe = Recipe::new("etcd", programs.path("etcd"), dir.path())
        .arg(format!("--listen-client-urls={url}"))
        .arg(format!("--advertise-client-urls={url}"))
        .args(["--listen-peer-urls=http://127.0.0.1:0"]);
    let mut etcd = Process::start(recipe).unwrap();
    let error = etcd
        .wait_for_log("no such line", PATIENCE)
        .await
        .unwrap_err();
    assert!(is_port_clash(&error), "{error:#}");
}

#[test]
fn a_module_file_that_names_no_version_is_refused_in_words() {
    let dir = RunDir::new().unwrap();
    let refused = || format!("{:#}", Programs::of_module(dir.path()).unwrap_err());
    assert!(refused().contains("go.mod"), "{}", refused());
    fs::write(
        dir.path().join("go.mod"),
        "module example.com/m\n\nrequire k8s.io/kubernetes latest\n",
    )
    .unwrap();
    fs::write(dir.path().join("go.sum"), "").unwrap();
    assert!(
        refused().contains("go.mod requires no k8s.io/kubernetes"),
        "{}",
        refused()
    );
}

#[test]
fn what_a_killed_process_left_behind_is_swept_and_what_is_in_use_is_not() {
    let used = RunDir::new().unwrap();
    let abandoned = used.path().with_file_name("abandoned-by-a-killed-process");
    fs::create_dir_all(&abandoned).unwrap();
    fs::write(abandoned.join("lock"), "").unwrap();
    let next = RunDir::new().unwrap();
    assert!(!abandoned.exists());
    assert!(used.path().exists() && next.path().exists());
}
