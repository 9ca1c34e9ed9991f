//! Somebody at a prompt, with a kubeconfig and kubectl.

use std::path::{Path, PathBuf};

use anyhow::{Result, ensure};

use crate::cluster::tools::Tool;
use crate::cluster::{Cluster, User};
use crate::telling::Telling;

/// Somebody who types commands.
pub struct Person {
    /// The word before the prompt.
    prompt: &'static str,
    /// Whose credential this file holds, and nothing else.
    pub kubeconfig: PathBuf,
    kubectl: Tool,
    telling: Telling,
}

impl Person {
    /// Gives `user` a kubeconfig `PROMPT.kubeconfig` in the cluster's directory.
    pub fn new(
        cluster: &Cluster,
        user: &User,
        prompt: &'static str,
        telling: Telling,
    ) -> Result<Person> {
        let kubeconfig = cluster.dir().join(format!("{prompt}.kubeconfig"));
        std::fs::write(&kubeconfig, user.kubeconfig(cluster.endpoint(0)))?;
        let kubectl = cluster.tool("kubectl", kubeconfig.clone());
        Ok(Person {
            prompt,
            kubeconfig,
            kubectl,
            telling,
        })
    }

    /// kubectl with this person's kubeconfig.
    pub fn kubectl(&self) -> &Tool {
        &self.kubectl
    }

    /// Types a kubectl command that must succeed, and shows what it prints.
    pub async fn types(&self, line: &str) -> Result<String> {
        self.telling.command(self.prompt, line);
        self.runs(line, true).await
    }

    /// The same, of which only the answer matters.
    pub async fn asks(&self, line: &str) -> Result<String> {
        self.runs(line, false).await
    }

    async fn runs(&self, line: &str, shown: bool) -> Result<String> {
        let args = words(line);
        let args = args.strip_prefix(&["kubectl".to_owned()]).unwrap_or(&args);
        let output = self.kubectl.run(args).await;
        if shown || !output.ok() {
            self.telling.output(&output.stdout);
            self.telling.output(&output.stderr);
        }
        ensure!(
            output.ok(),
            "this was to succeed, and ended with exit code {:?}: {line}",
            output.code
        );
        Ok(output.stdout)
    }
}

/// The words of a command line as a shell takes them, as far as our own lines go: spaces part, single quotes hold together.
/// `docs/` means this package's, since the commands are run elsewhere.
fn words(line: &str) -> Vec<String> {
    let mut words = vec![String::new()];
    let mut quoted = false;
    for c in line.chars() {
        match c {
            '\'' => quoted = !quoted,
            ' ' if !quoted => words.push(String::new()),
            c => {
                if let Some(word) = words.last_mut() {
                    word.push(c);
                }
            }
        }
    }
    let here = |word: String| {
        if word.starts_with("docs/") {
            let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(word);
            path.display().to_string()
        } else {
            word
        }
    };
    words.into_iter().map(here).collect()
}
