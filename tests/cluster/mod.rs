//! A real cluster for tests: etcd and one or two API servers on loopback, with everything needed to play every role.
//!
//! Nothing here is a fake: the API server is the one that clusters run, built once from the modules that `go.mod` names.
//!
//! * [`shared`] is one cluster for all tests of the process that disturb nothing cluster-wide: each takes a namespace of its
//!   own ([`Cluster::namespace`]) and names of its own.
//! * [`Cluster::start`] is for tests that stop, restart or reconfigure something cluster-wide; it takes about four seconds.
//!
//! Everything that is started ends with the process that started it, however that ends: see [`process::tethered`].

#![allow(
    dead_code,
    reason = "the suite, the demonstration and the benchmark each use their part"
)]

pub mod access;
pub mod apiproxy;
pub mod audit;
pub mod cargo;
pub mod control_plane;
pub mod faults;
pub mod http;
pub mod install;
pub mod pki;
pub mod process;
pub mod programs;
mod proxy;
pub mod run_dir;
pub mod tools;
pub mod user;
pub mod wait;
pub mod webhookproxy;

use std::path::Path;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, LazyLock};

use anyhow::Result;
use tokio::sync::{Mutex, MutexGuard, OnceCell, OwnedSemaphorePermit, Semaphore};

pub use self::control_plane::Part;
use self::control_plane::{ControlPlane, Plan, is_port_clash};
use self::pki::Authority;
use self::process::Signal;
use self::programs::Programs;
use self::run_dir::RunDir;
pub use self::user::{Endpoint, User};

/// What a cluster is made of.
#[derive(Debug, Clone)]
pub struct Options {
    /// How many API servers stand on the one etcd.
    pub servers: usize,
    /// Whether controllers run: garbage collection, namespace deletion, Deployments to Pods.
    pub controller_manager: bool,
    /// Whether etcd waits for the disk, as it must for a measurement.
    pub fsync: bool,
    /// Users for the token file besides [`User::everyone`].
    pub users: Vec<User>,
    /// Further flags of every API server.
    pub api_server_args: Vec<String>,
}

/// One API server, no controllers.
impl Default for Options {
    fn default() -> Options {
        Options {
            servers: 1,
            controller_manager: false,
            fsync: false,
            users: Vec::new(),
            api_server_args: Vec::new(),
        }
    }
}

/// A running cluster. Dropping it ends its processes and removes its files (after a panic the files stay).
pub struct Cluster {
    // The order of the fields is the order of taking down.
    plane: Mutex<ControlPlane>,
    endpoints: Vec<Endpoint>,
    authority: Authority,
    programs: Programs,
    count: AtomicU32,
    dir: RunDir,
    _place: OwnedSemaphorePermit,
}

/// The cluster that the tests of this process share, with controllers and two API servers.
pub async fn shared() -> &'static Cluster {
    static SHARED: OnceCell<Cluster> = OnceCell::const_new();
    let options = Options {
        servers: 2,
        controller_manager: true,
        ..Options::default()
    };
    SHARED.get_or_init(|| Cluster::start(options)).await
}

impl Cluster {
    /// Starts a cluster of its own.
    ///
    /// # Panics
    ///
    /// When it does not come up, with the reason and the end of the log.
    pub async fn start(options: Options) -> Cluster {
        Cluster::try_start(options)
            .await
            .unwrap_or_else(|error| panic!("no cluster: {error:?}"))
    }

    /// As [`Cluster::start`], with the reason as an error.
    pub async fn try_start(options: Options) -> Result<Cluster> {
        // An API server takes half a gigabyte; a machine with many cores runs many tests at once. Some clusters are kept for as long as
        // the process lives, so there must be room beside them.
        static PLACES: LazyLock<Arc<Semaphore>> = LazyLock::new(|| {
            let cores = std::thread::available_parallelism().map_or(2, usize::from);
            Arc::new(Semaphore::new((cores / 2).max(6)))
        });
        // A second installation is refused, which is all the same to us.
        let _ = rustls::crypto::ring::default_provider().install_default();
        let place = Arc::clone(&PLACES).acquire_owned().await?;
        let programs = tokio::task::spawn_blocking(Programs::ensure).await??;
        let authority = Authority::new("test cluster")?;
        let mut attempts = 0;
        let (plane, dir) = loop {
            let dir = RunDir::new()?;
            let plan = Plan {
                dir: dir.path(),
                programs: &programs,
                authority: &authority,
                options: &options,
            };
            match ControlPlane::start(&plan).await {
                Ok(plane) => break (plane, dir),
                Err(error) if is_port_clash(&error) && attempts < 5 => attempts += 1,
                Err(error) => return Err(error),
            }
        };
        let endpoints = plane
            .servers
            .iter()
            .map(|(_, endpoint)| endpoint.clone())
            .collect();
        let plane = Mutex::new(plane);
        Ok(Cluster {
            plane,
            endpoints,
            authority,
            programs,
            count: AtomicU32::new(0),
            dir,
            _place: place,
        })
    }

    /// Its directory: for files that go away with it.
    pub fn dir(&self) -> &Path {
        self.dir.path()
    }

    /// Its certificate authority.
    pub fn authority(&self) -> &Authority {
        &self.authority
    }

    /// The programs it was made from, with `kubectl` and `helm`.
    pub fn programs(&self) -> &Programs {
        &self.programs
    }

    /// Where API server `number` is reached.
    pub fn endpoint(&self, number: usize) -> &Endpoint {
        &self.endpoints[number]
    }

    /// How many API servers it was started with.
    pub fn servers(&self) -> usize {
        self.endpoints.len()
    }

    /// A number that this cluster has not given out yet.
    pub fn next(&self) -> u32 {
        self.count.fetch_add(1, Ordering::Relaxed)
    }

    /// kill -9, and waits until it is gone.
    pub async fn kill(&self, part: Part) -> Result<()> {
        self.plane().await.part(part)?.kill();
        Ok(())
    }

    /// SIGTERM, and waits until it has ended.
    pub async fn terminate(&self, part: Part) -> Result<()> {
        self.plane().await.part(part)?.terminate().await?;
        Ok(())
    }

    /// Starts a part again, with the same data and the same port (killing it first if it runs), and waits until it works.
    pub async fn restart(&self, part: Part) -> Result<()> {
        let mut plane = self.plane().await;
        plane.part(part)?.restart()?;
        match part {
            Part::ControllerManager => plane.wait_for_controllers().await,
            Part::Etcd | Part::Server(_) => plane.wait_until_ready().await,
        }
    }

    /// Stops a part where it is: its connections stay open, nothing is answered.
    pub async fn pause(&self, part: Part) -> Result<()> {
        self.plane().await.part(part)?.signal(Signal::Stop)
    }

    /// Lets a paused part go on.
    pub async fn resume(&self, part: Part) -> Result<()> {
        self.plane().await.part(part)?.signal(Signal::Cont)
    }

    /// What a part printed.
    pub async fn log(&self, part: Part) -> Result<String> {
        Ok(self.plane().await.part(part)?.log())
    }

    /// The process id of a part.
    pub async fn pid(&self, part: Part) -> Result<u32> {
        Ok(self.plane().await.part(part)?.pid())
    }

    async fn plane(&self) -> MutexGuard<'_, ControlPlane> {
        self.plane.lock().await
    }
}
