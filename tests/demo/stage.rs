//! Setting the stage: programs, the cluster, grantgate, and who takes part.

use std::path::Path;

use anyhow::{Context, Result, ensure};
use tokio::task::spawn_blocking;

use crate::agent::Agent;
use crate::cluster::cargo::cargo;
use crate::cluster::programs::Programs;
use crate::cluster::{Cluster, Options, User};
use crate::mcp::Server;
use crate::people::Person;
use crate::stack::{Setup, Stack};
use crate::telling::Telling;

/// Replicas of the webhook.
const REPLICAS: usize = 2;

/// Everything that plays a part.
pub struct Stage<'c> {
    /// How the agent reaches the cluster.
    pub agent: Agent,
    /// A member of `sre-oncall`, whom the samples make an approver.
    pub ana: Person,
    /// The platform team.
    pub admin: Person,
    /// The agent's own kubeconfig, for a shell.
    pub shell: Person,
    cluster: &'c Cluster,
    mcp: Option<Server>,
    _stack: Stack<'c>,
}

/// Builds what is missing: the cluster's programs, and grantgate's own.
pub async fn build(telling: Telling) -> Result<Programs> {
    telling.section("The stage");
    let mut command = cargo();
    // Together with this example: its development dependencies give hyper one more feature, and without it everything from there
    // up would be compiled a second time.
    command.args(["build", "--quiet", "--bins", "--example", "demo"]);
    command.args(profile()?);
    let status = spawn_blocking(move || command.status())
        .await?
        .context("cannot run cargo (through `setpriv` of util-linux)")?;
    ensure!(status.success(), "cargo could not build grantgate");
    spawn_blocking(Programs::ensure).await?
}

/// The flag for the profile that this program was built with.
fn profile() -> Result<Vec<String>> {
    // TARGET/PROFILE/examples/demo
    let exe = std::env::current_exe()?;
    let profile = exe.ancestors().nth(2).and_then(Path::file_name);
    let profile = profile.context("cannot tell where this program lies")?;
    Ok(match profile.to_string_lossy().as_ref() {
        "debug" => Vec::new(),
        other => vec!["--profile".to_owned(), other.to_owned()],
    })
}

/// Starts the cluster.
pub async fn cluster(programs: &Programs, telling: Telling) -> Result<Cluster> {
    let options = Options {
        controller_manager: true,
        ..Options::default()
    };
    let cluster = Cluster::try_start(options).await?;
    telling.says(&format!(
        "A real cluster of this machine's own: etcd, kube-apiserver and kube-controller-manager {} at {}. It has no nodes: Pods are \
         made and stay Pending.",
        programs.kubernetes(),
        cluster.endpoint(0).url
    ));
    Ok(cluster)
}

impl<'c> Stage<'c> {
    /// Installs grantgate and gives everybody a credential.
    pub async fn set(cluster: &'c Cluster, with_mcp: bool, telling: Telling) -> Result<Stage<'c>> {
        let setup = Setup {
            replicas: REPLICAS,
            ..Setup::default()
        };
        let stack = Stack::try_start(cluster, setup).await?;
        telling.says(&format!(
            "grantgate on it, as `grantgate crds` and `grantgate manifests` install it: a controller and {REPLICAS} replicas of the \
             webhook, each under its own ServiceAccount."
        ));
        let admin = Person::new(cluster, &User::admin(), "admin", telling)?;
        let ana = Person::new(cluster, &User::ana(), "ana", telling)?;
        // Its namespace comes with the first sample, and its token is needed only afterwards.
        admin
            .asks("kubectl apply -f docs/samples/01-agent-account.yaml")
            .await?;
        let account = cluster.service_account("agents", "ops-bot").await;
        let shell = Person::new(cluster, &account, "ops-bot", telling)?;
        let server = match with_mcp {
            true => spawn_blocking(Server::ensure).await?,
            false => Err(anyhow::anyhow!("not wanted (--without-mcp)")),
        };
        let (agent, mcp) = match server {
            Ok(server) => {
                let agent = Agent::mcp(&server, &shell.kubeconfig, cluster.dir()).await?;
                (agent, Some(server))
            }
            Err(error) => {
                telling.says(&format!(
                    "No MCP server: {error:#}. The agent uses kubectl instead, under the same ServiceAccount."
                ));
                (Agent::Kubectl(shell.kubectl().clone()), None)
            }
        };
        if let Agent::Mcp(session) = &agent {
            telling.says(&format!(
                "{}, an MCP server over stdio that serves {} tools, under ServiceAccount agents/ops-bot and no other credential.",
                session.server, session.tools
            ));
        }
        Ok(Stage {
            agent,
            ana,
            admin,
            shell,
            cluster,
            mcp,
            _stack: stack,
        })
    }

    /// What to type to play both roles.
    pub fn explain_how_to_go_on(&self, telling: Telling) {
        telling.section("Now you");
        telling.says("The cluster stays up until Ctrl-C. In two other terminals, first:");
        let path = std::env::join_paths([
            crate::cluster::tools::binaries(),
            self.cluster.programs().dir().to_path_buf(),
        ]);
        let path = path.unwrap_or_default();
        telling.line(&format!("\n    export PATH={}:$PATH", path.display()));
        let role = |who: &str, person: &Person, lines: &[&str]| {
            telling.line(&format!("\n{who}:\n"));
            telling.line(&format!(
                "    export KUBECONFIG={}",
                person.kubeconfig.display()
            ));
            for line in lines {
                telling.line(&format!("    {line}"));
            }
        };
        role(
            "As the agent",
            &self.shell,
            &["kubectl scale deployment api -n web --replicas=9"],
        );
        if let Some(server) = &self.mcp {
            telling.line(&format!(
                "    # or let your own MCP client start this as a server over stdio:\n    {} --kubeconfig $KUBECONFIG",
                server.program().display()
            ));
        }
        role(
            "As ana@example.com, of sre-oncall",
            &self.ana,
            &[
                "kubectl grantgate pending -n web",
                "kubectl grantgate show REQUEST -n web",
                "kubectl grantgate approve REQUEST -n web --digest DIGEST    # or: deny REQUEST",
                "kubectl grantgate grants -n web",
            ],
        );
        role(
            "As the platform team",
            &self.admin,
            &[
                "kubectl get grantgate -A",
                "kubectl explain clusterapprovalpolicies.spec",
            ],
        );
    }
}
