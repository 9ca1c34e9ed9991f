//! The processes of a cluster and how they are started: etcd, API servers, the controller manager.

use std::fs;
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result, anyhow};
use http::Method;
use rcgen::KeyPair;

use super::Options;
use super::http::{Tls, send};
use super::pki::Authority;
use super::process::{Process, Recipe};
use super::programs::Programs;
use super::user::{Endpoint, User};
use super::wait::PATIENCE;

/// A part of a cluster that can be stopped and started.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Part {
    /// etcd, which holds everything.
    Etcd,
    /// One API server, counted from 0.
    Server(usize),
    /// The controllers, where the cluster was started with them.
    ControllerManager,
}

/// What every process of one cluster needs to know.
pub struct Plan<'a> {
    /// Where its files are.
    pub dir: &'a Path,
    /// The programs.
    pub programs: &'a Programs,
    /// Who signs.
    pub authority: &'a Authority,
    /// What was asked for.
    pub options: &'a Options,
}

/// The running processes. The order of the fields is the order of taking down.
pub struct ControlPlane {
    /// Garbage collection, namespaces, Deployments.
    pub controller_manager: Option<Process>,
    /// One or two API servers, with where each is reached.
    pub servers: Vec<(Process, Endpoint)>,
    /// The store, with its client URL.
    pub etcd: (Process, String),
}

/// Kept by the API servers for the whole life of the cluster.
const AUDIT_POLICY: &str = r#"{"apiVersion": "audit.k8s.io/v1", "kind": "Policy", "omitStages": ["RequestReceived"],
 "rules": [{"level": "None", "nonResourceURLs": ["/readyz*", "/livez*"]}, {"level": "Metadata"}]}
"#;

impl ControlPlane {
    /// Starts all of it and waits until each part says it is ready. A port that somebody took meanwhile is an error that
    /// [`is_port_clash`] knows.
    pub async fn start(plan: &Plan<'_>) -> Result<ControlPlane> {
        plan.write_files()?;
        let (client_port, peer_port) = (free_port()?, free_port()?);
        let etcd_url = format!("http://127.0.0.1:{client_port}");
        let etcd = Process::start(plan.etcd(&etcd_url, peer_port))?;
        let mut servers = Vec::new();
        for number in 0..plan.options.servers {
            let port = free_port()?;
            let endpoint = Endpoint {
                url: format!("https://127.0.0.1:{port}"),
                authority_pem: plan.authority.pem(),
                authority_der: plan.authority.der(),
            };
            servers.push((
                Process::start(plan.api_server(number, port, &etcd_url))?,
                endpoint,
            ));
        }
        let mut plane = ControlPlane {
            controller_manager: None,
            servers,
            etcd: (etcd, etcd_url),
        };
        plane.wait_until_ready().await?;
        if plan.options.controller_manager {
            let kubeconfig = plan.dir.join("controller-manager.kubeconfig");
            let endpoint = &plane.servers.first().context("no API server")?.1;
            fs::write(&kubeconfig, User::admin().kubeconfig(endpoint))?;
            let mut process = Process::start(plan.controller_manager(&kubeconfig))?;
            controllers_work(&mut process, endpoint).await?;
            plane.controller_manager = Some(process);
        }
        Ok(plane)
    }

    /// Waits until etcd and every API server that runs answer `/readyz`.
    pub async fn wait_until_ready(&mut self) -> Result<()> {
        let (etcd, url) = &mut self.etcd;
        let tls = Tls::trusting_anyone()?;
        etcd.wait_for("etcd is ready", PATIENCE, async |_| {
            is_ready(&tls, url).await
        })
        .await?;
        for (server, endpoint) in &mut self.servers {
            if server.ended().is_none() {
                let tls = Tls::trusting(&endpoint.authority_der)?;
                let what = format!("{} is ready", server.name());
                server
                    .wait_for(&what, PATIENCE, async |_| {
                        is_ready(&tls, &endpoint.url).await
                    })
                    .await?;
            }
        }
        Ok(())
    }

    /// The process of one part.
    pub fn part(&mut self, part: Part) -> Result<&mut Process> {
        let process = match part {
            Part::Etcd => Some(&mut self.etcd.0),
            Part::Server(number) => self.servers.get_mut(number).map(|(process, _)| process),
            Part::ControllerManager => self.controller_manager.as_mut(),
        };
        process.ok_or_else(|| anyhow!("this cluster was started without {part:?}"))
    }

    /// Waits until the controllers work, where there are some.
    pub async fn wait_for_controllers(&mut self) -> Result<()> {
        match (&mut self.controller_manager, self.servers.first()) {
            (Some(process), Some((_, endpoint))) => controllers_work(process, endpoint).await,
            _ => Ok(()),
        }
    }
}

/// Whether a start failed because somebody took one of the ports between choosing and listening.
pub fn is_port_clash(error: &anyhow::Error) -> bool {
    format!("{error:#}").contains("address already in use")
}

impl Plan<'_> {
    fn write_files(&self) -> Result<()> {
        fs::write(self.file("ca.crt"), self.authority.pem())?;
        self.authority
            .server(&["10.96.0.1"])?
            .write(self.dir, "server")?;
        let key = KeyPair::generate()?;
        fs::write(self.file("service-accounts.key"), key.serialize_pem())?;
        fs::write(self.file("service-accounts.pub"), key.public_key_pem())?;
        let users = User::everyone()
            .into_iter()
            .chain(self.options.users.iter().cloned());
        let rows: String = users.filter_map(|user| user.token_row()).collect();
        fs::write(self.file("tokens.csv"), rows)?;
        fs::write(self.file("audit-policy.json"), AUDIT_POLICY)?;
        Ok(())
    }

    fn file(&self, name: &str) -> PathBuf {
        self.dir.join(name)
    }

    fn flag(&self, name: &str, file: &str) -> String {
        format!("--{name}={}", self.file(file).display())
    }

    fn recipe(&self, name: &str, program: &str) -> Recipe {
        Recipe::new(name, self.programs.path(program), self.dir)
    }

    fn etcd(&self, url: &str, peer_port: u16) -> Recipe {
        let peer = format!("http://127.0.0.1:{peer_port}");
        let recipe = self
            .recipe("etcd", "etcd")
            .arg(self.flag("data-dir", "etcd"))
            .arg(format!("--listen-client-urls={url}"))
            .arg(format!("--advertise-client-urls={url}"))
            .arg(format!("--listen-peer-urls={peer}"))
            .arg(format!("--initial-advertise-peer-urls={peer}"))
            .arg(format!("--initial-cluster=default={peer}"));
        if self.options.fsync {
            recipe
        } else {
            recipe.arg("--unsafe-no-fsync")
        }
    }

    fn api_server(&self, number: usize, port: u16, etcd: &str) -> Recipe {
        self.recipe(&format!("kube-apiserver-{number}"), "kube-apiserver")
            .arg(format!("--etcd-servers={etcd}"))
            .arg(format!("--secure-port={port}"))
            .args([
                "--bind-address=127.0.0.1",
                "--advertise-address=127.0.0.1",
                "--authorization-mode=RBAC",
                "--service-account-issuer=https://kubernetes.default.svc",
                "--service-cluster-ip-range=10.96.0.0/16",
                // Two servers on one address would each take the other's endpoint away.
                "--endpoint-reconciler-type=none",
                "--allow-privileged",
            ])
            .arg(self.flag("tls-cert-file", "server.crt"))
            .arg(self.flag("tls-private-key-file", "server.key"))
            .arg(self.flag("client-ca-file", "ca.crt"))
            .arg(self.flag("token-auth-file", "tokens.csv"))
            .arg(self.flag("service-account-signing-key-file", "service-accounts.key"))
            .arg(self.flag("service-account-key-file", "service-accounts.pub"))
            .arg(self.flag("audit-policy-file", "audit-policy.json"))
            .arg(format!(
                "--audit-log-path={}",
                audit_log(self.dir, number).display()
            ))
            // Positions are byte offsets: the file must not be rotated away.
            .arg("--audit-log-maxsize=2000")
            .args(&self.options.api_server_args)
    }

    fn controller_manager(&self, kubeconfig: &Path) -> Recipe {
        self.recipe("kube-controller-manager", "kube-controller-manager")
            .arg(format!("--kubeconfig={}", kubeconfig.display()))
            .arg(self.flag("service-account-private-key-file", "service-accounts.key"))
            .arg(self.flag("root-ca-file", "ca.crt"))
            .args([
                "--use-service-account-credentials",
                "--leader-elect=false",
                "--secure-port=0",
            ])
    }
}

/// Where API server `number` writes its audit log.
pub fn audit_log(dir: &Path, number: usize) -> PathBuf {
    dir.join(format!("audit-{number}.log"))
}

async fn is_ready(tls: &Tls, url: &str) -> bool {
    let url = format!("{url}/readyz");
    let ready = send(tls, Method::GET, &url, &[], "");
    let answer = tokio::time::timeout(Duration::from_secs(5), ready).await;
    answer.is_ok_and(|answer| answer.is_ok_and(|answer| answer.status == 200))
}

/// The controllers work when they have made what every namespace gets.
async fn controllers_work(process: &mut Process, endpoint: &Endpoint) -> Result<()> {
    let tls = Tls::trusting(&endpoint.authority_der)?;
    let url = format!(
        "{}/api/v1/namespaces/default/serviceaccounts/default",
        endpoint.url
    );
    let admin = User::admin();
    let bearer = format!("Bearer {}", admin.token().unwrap_or_default());
    let found = async |_: &Process| {
        let answer = send(&tls, Method::GET, &url, &[("authorization", &bearer)], "").await;
        answer.is_ok_and(|answer| answer.status == 200)
    };
    process
        .wait_for(
            "the controllers have made a ServiceAccount",
            PATIENCE,
            found,
        )
        .await
}

/// A port that the kernel says is free now.
fn free_port() -> Result<u16> {
    Ok(TcpListener::bind("127.0.0.1:0")?.local_addr()?.port())
}
