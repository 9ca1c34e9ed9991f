//! grantgate as installed, on a cluster of the test bed: definitions, manifests, one controller and any number of webhook
//! replicas, each under its own ServiceAccount and never as admin.

#![allow(
    dead_code,
    unused_imports,
    reason = "the demonstration and the benchmark use parts of it"
)]

mod agent;
mod records;

use std::path::PathBuf;

use anyhow::Result;
use serde_json::json;
use tokio::sync::OnceCell;

use crate::cluster::{
    Cluster, Endpoint, Options, User,
    process::{Process, Recipe},
    shared,
    tools::grantgate,
    wait::{PATIENCE, eventually},
    webhookproxy::Passthrough,
};

pub use agent::{Agent, Answer, deployment};
pub use records::{grant_phase, request_phase};

/// Namespace of the installation.
pub const SYSTEM: &str = "grantgate-system";

/// How grantgate is started.
#[derive(Clone, Debug)]
pub struct Setup {
    /// Webhook replicas.
    pub replicas: usize,
    /// Whether a controller runs.
    pub controller: bool,
    /// Further arguments of each webhook replica.
    pub webhook_args: Vec<String>,
    /// Kubeconfig of the webhook replicas, by number, instead of one straight to the API server.
    pub webhook_kubeconfigs: Vec<Option<PathBuf>>,
    /// Kubeconfig of the controller instead of one straight to the API server.
    pub controller_kubeconfig: Option<PathBuf>,
    /// Whether the controller looks for API servers itself, instead of being given them.
    pub find_api_servers: bool,
}

impl Default for Setup {
    fn default() -> Self {
        Self {
            replicas: 1,
            controller: true,
            webhook_args: Vec::new(),
            webhook_kubeconfigs: Vec::new(),
            controller_kubeconfig: None,
            find_api_servers: false,
        }
    }
}

/// grantgate on a cluster.
pub struct Stack<'c> {
    /// The cluster.
    pub cluster: &'c Cluster,
    /// The webhook replicas.
    pub webhooks: Vec<Process>,
    /// The controller.
    pub controller: Option<Process>,
    /// What the API servers call; spreads over the replicas.
    pub front: Passthrough,
    dir: PathBuf,
}

/// The installation that tests share which disturb nothing cluster-wide: two replicas, two API servers.
pub async fn installed() -> &'static Stack<'static> {
    static SHARED: OnceCell<Stack<'static>> = OnceCell::const_new();
    SHARED
        .get_or_init(async || {
            Stack::start(
                shared().await,
                Setup {
                    replicas: 2,
                    ..Setup::default()
                },
            )
            .await
        })
        .await
}

impl<'c> Stack<'c> {
    /// Installs and starts; returns when every replica is ready and, with a controller, the gate is configured.
    ///
    /// # Panics
    ///
    /// When it does not come up, with the ends of the logs.
    pub async fn start(cluster: &'c Cluster, setup: Setup) -> Stack<'c> {
        Self::try_start(cluster, setup)
            .await
            .unwrap_or_else(|error| panic!("grantgate does not start: {error:?}"))
    }

    /// As [`Stack::start`], with the reason as an error.
    pub async fn try_start(cluster: &'c Cluster, setup: Setup) -> Result<Stack<'c>> {
        install(cluster).await?;
        let dir = cluster.dir().join(format!("grantgate-{}", cluster.next()));
        std::fs::create_dir_all(&dir)?;
        let mut stack = Stack {
            cluster,
            webhooks: Vec::new(),
            controller: None,
            front: Passthrough::start(&[]),
            dir,
        };
        for number in 0..setup.replicas {
            let recipe = stack.webhook_recipe(number, &setup).await?;
            stack.webhooks.push(Process::start(recipe)?);
        }
        if setup.controller {
            let recipe = stack.controller_recipe("controller", &setup).await?;
            stack.controller = Some(Process::start(recipe)?);
        }
        stack.join_front().await?;
        if setup.controller {
            stack.wait_until_ready().await?;
        }
        Ok(stack)
    }

    /// How webhook replica `number` is started.
    pub async fn webhook_recipe(&self, number: usize, setup: &Setup) -> Result<Recipe> {
        let account = self
            .cluster
            .service_account(SYSTEM, "grantgate-webhook")
            .await;
        let straight = self.cluster.kubeconfig_via(
            self.cluster.endpoint(number % self.cluster.servers()),
            &account,
        );
        let kubeconfig = setup
            .webhook_kubeconfigs
            .get(number)
            .cloned()
            .flatten()
            .unwrap_or(straight);
        let addr_file = self.addr_file(number);
        let _ = std::fs::remove_file(&addr_file);
        Ok(
            Recipe::new(format!("webhook-{number}"), grantgate(), &self.dir)
                .args([
                    "webhook",
                    "--bind",
                    "127.0.0.1:0",
                    "--probe-bind",
                    "127.0.0.1:0",
                    "--namespace",
                    SYSTEM,
                    "--linger",
                    "1",
                ])
                .args(["--identity".to_owned(), format!("replica-{number}")])
                .arg("--addr-file")
                .arg(addr_file)
                .args(setup.webhook_args.iter().cloned())
                .env("KUBECONFIG", kubeconfig)
                .env("RUST_LOG", "info,grantgate=debug"),
        )
    }

    /// How a controller is started.
    pub async fn controller_recipe(&self, identity: &str, setup: &Setup) -> Result<Recipe> {
        let account = self
            .cluster
            .service_account(SYSTEM, "grantgate-controller")
            .await;
        let straight = self.cluster.kubeconfig(&account);
        let kubeconfig = setup.controller_kubeconfig.clone().unwrap_or(straight);
        let mut recipe = Recipe::new(identity, grantgate(), &self.dir)
            .args([
                "controller",
                "--namespace",
                SYSTEM,
                "--identity",
                identity,
                "--webhook-url",
                &self.front.url(),
            ])
            .env("KUBECONFIG", kubeconfig)
            .env("RUST_LOG", "info,grantgate=debug");
        let given = if setup.find_api_servers {
            0
        } else {
            self.cluster.servers()
        };
        for number in 0..given {
            recipe = recipe.args(["--api-server", &self.cluster.endpoint(number).url]);
        }
        Ok(recipe)
    }

    fn addr_file(&self, number: usize) -> PathBuf {
        self.dir.join(format!("webhook-{number}.addr"))
    }

    /// The addresses of a replica: where it serves, and where its probes are.
    pub async fn addresses(&self, number: usize) -> Result<(String, String)> {
        let file = self.addr_file(number);
        eventually("the webhook's address", PATIENCE, async || {
            let text = std::fs::read_to_string(&file).ok()?;
            let mut lines = text.lines().map(str::to_owned);
            Some((lines.next()?, lines.next()?))
        })
        .await
    }

    /// Puts every replica's present address behind the front.
    pub async fn join_front(&self) -> Result<()> {
        let mut backends = Vec::new();
        for number in 0..self.webhooks.len() {
            backends.push(self.addresses(number).await?.0);
        }
        self.front.set_backends(&backends);
        Ok(())
    }

    /// Sends every review to one replica from now on. API servers keep connections, so those are cut first, and `agent`'s
    /// failing calls prove that each API server has noticed.
    pub async fn only(&self, number: usize, agent: &Agent) {
        self.front.choose(Some(number));
        self.front.sever(true);
        let path = format!(
            "/api/v1/namespaces/{}/configmaps/settings?dryRun=All",
            agent.namespace
        );
        for server in 0..self.cluster.servers() {
            eventually("no connection is left", PATIENCE, async || {
                let body = json!({"data": {"probe": "x"}}).to_string();
                let kind = "application/merge-patch+json";
                let answer = self
                    .cluster
                    .try_raw(server, &agent.user, "PATCH", &path, kind, body)
                    .await
                    .ok()?;
                (answer.status == 500).then_some(())
            })
            .await
            .unwrap();
        }
        self.front.sever(false);
    }

    /// Starts a replica again after it was killed, and puts its new address behind the front.
    pub async fn restart_webhook(&mut self, number: usize) -> Result<()> {
        let _ = std::fs::remove_file(self.addr_file(number));
        self.webhooks[number].restart()?;
        self.join_front().await?;
        self.wait_until_ready().await
    }

    /// Waits until every replica says it is ready.
    pub async fn wait_until_ready(&mut self) -> Result<()> {
        for number in 0..self.webhooks.len() {
            let (_, probes) = self.addresses(number).await?;
            self.webhooks[number]
                .wait_for_url(&format!("http://{probes}/readyz"), PATIENCE)
                .await?;
        }
        Ok(())
    }
}

/// A cluster for a stack of its own. With controllers: one of them fills the roles that agents and people are given.
pub fn with_controllers() -> Options {
    Options {
        controller_manager: true,
        ..Options::default()
    }
}

/// A kubeconfig of one of the installation's accounts for any endpoint, such as a proxy: for [`Setup`], before there is an
/// installation, so namespace and account are made here.
pub async fn kubeconfig_at(cluster: &Cluster, endpoint: &Endpoint, account: &str) -> PathBuf {
    let namespace = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": SYSTEM}});
    cluster
        .kubectl(&User::admin())
        .run_with_input(
            ["apply", "--server-side", "-f", "-"],
            &namespace.to_string(),
        )
        .await
        .expect_ok();
    let account = cluster.service_account(SYSTEM, account).await;
    cluster.kubeconfig_via(endpoint, &account)
}

/// Applies definitions and manifests, as a person would with kubectl.
async fn install(cluster: &Cluster) -> Result<()> {
    let print = |args: &[&str]| -> Result<String> {
        let output = std::process::Command::new(grantgate())
            .args(args)
            .output()?;
        anyhow::ensure!(
            output.status.success(),
            "{}",
            String::from_utf8_lossy(&output.stderr)
        );
        Ok(String::from_utf8(output.stdout)?)
    };
    let kubectl = cluster.kubectl(&User::admin());
    kubectl
        .run_with_input(["apply", "--server-side", "-f", "-"], &print(&["crds"])?)
        .await
        .expect_ok();
    kubectl
        .run([
            "wait",
            "--for=condition=Established",
            "crd",
            "--all",
            "--timeout=60s",
        ])
        .await
        .expect_ok();
    let manifests = print(&["manifests", "--namespace", SYSTEM])?;
    kubectl
        .run_with_input(["apply", "--server-side", "-f", "-"], &manifests)
        .await
        .expect_ok();
    Ok(())
}
