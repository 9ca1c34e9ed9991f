//! Long-running programs: started with their output in files, stopped by pid, never left behind.

use std::ffi::OsString;
use std::fs::{self, OpenOptions};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::OnceLock;
use std::sync::mpsc::{Sender, channel};
use std::time::Duration;

use anyhow::{Context, Result, anyhow, bail, ensure};

use ::http::Method;

use super::http::{Tls, send};
use super::programs::last_lines;
use super::wait::eventually;

/// What to start: kept, so that the same can be started again.
#[derive(Debug, Clone)]
pub struct Recipe {
    /// Names the process in messages and its log file, `NAME.log`.
    pub name: String,
    /// The file to execute.
    pub program: PathBuf,
    /// Its arguments.
    pub args: Vec<OsString>,
    /// Its whole environment but for `PATH` and `HOME`: what the developer has set must not decide a test.
    pub env: Vec<(String, OsString)>,
    /// Its working directory, its `HOME`, and where its log goes.
    pub dir: PathBuf,
}

impl Recipe {
    /// A program that runs in `dir` under `name`.
    pub fn new(
        name: impl Into<String>,
        program: impl Into<PathBuf>,
        dir: impl Into<PathBuf>,
    ) -> Recipe {
        Recipe {
            name: name.into(),
            program: program.into(),
            args: Vec::new(),
            env: Vec::new(),
            dir: dir.into(),
        }
    }

    /// Adds one argument.
    #[must_use]
    pub fn arg(mut self, arg: impl Into<OsString>) -> Recipe {
        self.args.push(arg.into());
        self
    }

    /// Adds arguments.
    #[must_use]
    pub fn args<A: Into<OsString>>(mut self, args: impl IntoIterator<Item = A>) -> Recipe {
        self.args.extend(args.into_iter().map(Into::into));
        self
    }

    /// Sets a variable.
    #[must_use]
    pub fn env(mut self, key: impl Into<String>, value: impl Into<OsString>) -> Recipe {
        self.env.push((key.into(), value.into()));
        self
    }

    fn command(&self) -> Result<Command> {
        fs::create_dir_all(&self.dir)?;
        let log = OpenOptions::new()
            .create(true)
            .append(true)
            .open(self.log_file())?;
        let mut command = tethered(&self.program);
        command
            .args(&self.args)
            .env_clear()
            .env("PATH", std::env::var_os("PATH").unwrap_or_default())
            .env("HOME", &self.dir)
            .envs(self.env.iter().map(|(key, value)| (key, value)))
            .current_dir(&self.dir)
            .stdin(Stdio::null())
            .stdout(log.try_clone()?)
            .stderr(log);
        Ok(command)
    }

    fn log_file(&self) -> PathBuf {
        self.dir.join(format!("{}.log", self.name))
    }
}

/// A running (or ended) program. Dropping it kills it.
#[derive(Debug)]
pub struct Process {
    recipe: Recipe,
    child: Child,
}

/// What [`Process::signal`] can send.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Signal {
    /// Asks it to end.
    Term,
    /// As Ctrl-C does.
    Int,
    /// Stops it where it is: connections stay open, nothing is answered.
    Stop,
    /// Lets a stopped one go on.
    Cont,
}

impl Process {
    /// Starts it; says nothing about whether it is ready.
    pub fn start(recipe: Recipe) -> Result<Process> {
        let child = spawn(recipe.command()?)
            .with_context(|| format!("cannot start {}", recipe.program.display()))?;
        Ok(Process { recipe, child })
    }

    /// Its process id. `setpriv` replaces itself by the program, so this is the program's own.
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// The name in its recipe.
    pub fn name(&self) -> &str {
        &self.recipe.name
    }

    /// Everything it printed to stdout and stderr, over all its lives.
    pub fn log(&self) -> String {
        String::from_utf8_lossy(&fs::read(self.recipe.log_file()).unwrap_or_default()).into_owned()
    }

    /// The end of its log.
    pub fn log_tail(&self) -> String {
        last_lines(&self.log(), 30)
    }

    /// How it ended, if it has.
    pub fn ended(&mut self) -> Option<ExitStatus> {
        self.child.try_wait().ok().flatten()
    }

    /// Sends a signal to this one process. It has not been waited for, so its pid cannot be another's.
    pub fn signal(&mut self, signal: Signal) -> Result<()> {
        if let Some(status) = self.ended() {
            bail!("{} has already ended: {status}", self.recipe.name);
        }
        let name = match signal {
            Signal::Term => "TERM",
            Signal::Int => "INT",
            Signal::Stop => "STOP",
            Signal::Cont => "CONT",
        };
        let pid = self.pid().to_string();
        let status = Command::new("sh")
            .args(["-c", "kill -s \"$0\" \"$1\"", name, &pid])
            .status()?;
        ensure!(
            status.success(),
            "cannot send {name} to {}",
            self.recipe.name
        );
        Ok(())
    }

    /// kill -9, and waits until it is gone.
    pub fn kill(&mut self) {
        // Both fail only when it is gone already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }

    /// SIGTERM, then waits for its end; the status says how it ended.
    pub async fn terminate(&mut self) -> Result<ExitStatus> {
        self.signal(Signal::Term)?;
        self.wait_for_end(Duration::from_secs(30)).await
    }

    /// Waits until it ends by itself.
    pub async fn wait_for_end(&mut self, limit: Duration) -> Result<ExitStatus> {
        let name = self.recipe.name.clone();
        eventually(&format!("{name} ends"), limit, async || self.ended()).await
    }

    /// Starts the same again, killing it first if it still runs. The log goes on in the same file.
    pub fn restart(&mut self) -> Result<()> {
        self.kill();
        self.child = spawn(self.recipe.command()?)?;
        Ok(())
    }

    /// Waits until its log holds `text`; fails at once when it ends before.
    pub async fn wait_for_log(&mut self, text: &str, limit: Duration) -> Result<()> {
        let what = format!("{} logs {text:?}", self.recipe.name);
        self.wait_for(&what, limit, async |process| process.log().contains(text))
            .await
    }

    /// Waits until `url` answers with 200, whoever signed its certificate; fails at once when it ends before.
    pub async fn wait_for_url(&mut self, url: &str, limit: Duration) -> Result<()> {
        let tls = Tls::trusting_anyone()?;
        let what = format!("{url} answers 200");
        let answers = async |_: &Process| {
            let answer = send(&tls, Method::GET, url, &[], "").await;
            answer.is_ok_and(|answer| answer.status == 200)
        };
        self.wait_for(&what, limit, answers).await
    }

    /// Waits until `holds`; fails at once, with the end of the log, when the process ends before.
    pub async fn wait_for(
        &mut self,
        what: &str,
        limit: Duration,
        mut holds: impl AsyncFnMut(&Process) -> bool,
    ) -> Result<()> {
        let outcome = eventually(what, limit, async || {
            if let Some(status) = self.ended() {
                return Some(Err(anyhow!(
                    "{} ended ({status}) before: {what}",
                    self.recipe.name
                )));
            }
            holds(self).await.then_some(Ok(()))
        })
        .await;
        outcome
            .and_then(|ended| ended)
            .with_context(|| format!("{}:\n{}", self.recipe.name, self.log_tail()))
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        self.kill();
    }
}

/// `program`, killed by the kernel when the thread that started it ends, however that comes about.
///
/// Rust's own `pre_exec` would need `unsafe`, which the package forbids; `setpriv` of util-linux does the same and then
/// becomes the program.
pub fn tethered(program: &Path) -> Command {
    let mut command = Command::new("setpriv");
    command.args(["--pdeathsig", "KILL", "--"]).arg(program);
    command
}

/// Starts a command from a thread that lives as long as this process: the kernel's parent-death signal follows the
/// *thread* that forked, and a test's thread ends with its test, which must not end a cluster that others still use.
fn spawn(command: Command) -> Result<Child> {
    type Order = (Command, Sender<std::io::Result<Child>>);
    static NURSERY: OnceLock<Sender<Order>> = OnceLock::new();
    let nursery = NURSERY.get_or_init(|| {
        let (orders, inbox) = channel::<Order>();
        std::thread::spawn(move || {
            for (mut command, reply) in inbox {
                // Nobody waits for the answer any more: the child is dropped unseen, and ends with this process.
                let _ = reply.send(command.spawn());
            }
        });
        orders
    });
    let (reply, answer) = channel();
    nursery
        .send((command, reply))
        .map_err(|_| anyhow!("the thread that starts processes is gone"))?;
    answer
        .recv()?
        .context("`setpriv` (package util-linux) ties every started program to this one")
}
