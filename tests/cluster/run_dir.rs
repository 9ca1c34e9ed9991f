//! The directory of one running cluster, under the target directory.

use std::fs::{self, File};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};

use anyhow::Result;

use super::programs::target_dir;

/// A directory that is held, by a lock, for as long as this process lives and wants it.
///
/// Taken away when dropped, except when a test panics. What a killed process left behind goes when the next one starts.
#[derive(Debug)]
pub struct RunDir {
    path: PathBuf,
    _held: File,
}

impl RunDir {
    /// A new empty directory.
    pub fn new() -> Result<RunDir> {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let root = target_dir().join("run");
        fs::create_dir_all(&root)?;
        // Creating and locking must look like one step to a process that sweeps.
        let turn = File::create(root.join("lock"))?;
        turn.lock()?;
        sweep(&root)?;
        let path = root.join(format!(
            "{}-{}",
            std::process::id(),
            COUNT.fetch_add(1, Ordering::Relaxed)
        ));
        fs::create_dir(&path)?;
        let held = File::create(path.join("lock"))?;
        held.lock()?;
        Ok(RunDir { path, _held: held })
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.path
    }
}

impl Drop for RunDir {
    fn drop(&mut self) {
        if std::thread::panicking() {
            let _ = writeln!(
                std::io::stderr(),
                "test cluster: its logs are kept in {}",
                self.path.display()
            );
        } else {
            // If that fails, the next sweep does it.
            let _ = fs::remove_dir_all(&self.path);
        }
    }
}

/// Removes the directories that nobody holds any more.
fn sweep(root: &Path) -> Result<()> {
    for entry in fs::read_dir(root)? {
        let path = entry?.path();
        let abandoned = File::open(path.join("lock")).is_ok_and(|lock| lock.try_lock().is_ok());
        if abandoned {
            fs::remove_dir_all(&path)?;
        }
    }
    Ok(())
}
