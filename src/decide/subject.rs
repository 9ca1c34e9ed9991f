//! Who acts: from a review's user to one declared agent.

use std::collections::{BTreeMap, HashMap};

use crate::{
    api::{AgentIdentity, Owner, Subject, Surface},
    decide::{policy::Problem, review::User},
};

/// The extra key whose value names an AgentIdentity.
pub const AGENT_KEY: &str = "grantgate.dev/agent";
/// The extra key that names the person an agent acts for.
pub const ON_BEHALF_OF_KEY: &str = "grantgate.dev/on-behalf-of";

/// One declared agent.
#[derive(Clone, Debug, PartialEq)]
pub struct Agent {
    /// Name of the AgentIdentity.
    pub name: String,
    /// Uid of the AgentIdentity object.
    pub uid: String,
    /// Labels of the AgentIdentity, for policies' agent selectors.
    pub labels: BTreeMap<String, String>,
    /// Who answers for it.
    pub owner: Owner,
    /// Whether mounts bound it.
    pub surface: Surface,
    /// Its identities.
    pub subjects: Vec<Subject>,
}

/// Every declared agent, by what identifies it.
#[derive(Clone, Debug, Default)]
pub struct Agents {
    agents: BTreeMap<String, Agent>,
    by_username: HashMap<String, Vec<String>>,
    by_group: HashMap<String, Vec<String>>,
}

/// Why no agent can be told.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
pub enum SubjectError {
    /// The API server sends declared identities only: this replica is behind.
    #[error("no AgentIdentity known here declares this identity yet")]
    Unknown,
    /// Two identities fit.
    #[error("the identity belongs to {}: a subject stands in one AgentIdentity", .0.join(" and "))]
    Several(Vec<String>),
    /// The extra key names another agent than the subject.
    #[error("the subject belongs to {subject}, but extra key {AGENT_KEY} says {extra:?}")]
    Disagree {
        /// Agent that the subject belongs to.
        subject: String,
        /// What the extra key says.
        extra: String,
    },
    /// The extra key has no or several values, or names no AgentIdentity.
    #[error(
        "extra key {AGENT_KEY} must have exactly one value, the name of an AgentIdentity; it has {0:?}"
    )]
    Extra(Vec<String>),
    /// The claim on whose behalf it acts is not one value.
    #[error("extra key {ON_BEHALF_OF_KEY} must have exactly one value")]
    OnBehalfOf,
}

impl From<&AgentIdentity> for Agent {
    fn from(identity: &AgentIdentity) -> Self {
        Self {
            name: identity.metadata.name.clone().unwrap_or_default(),
            uid: identity.metadata.uid.clone().unwrap_or_default(),
            labels: identity.metadata.labels.clone().unwrap_or_default(),
            owner: identity.spec.owner.clone(),
            surface: identity.spec.surface,
            subjects: identity.spec.subjects.clone(),
        }
    }
}

/// Subjects that stand in more than one identity, each with the identities' names.
pub fn shared_subjects<'a>(agents: impl Iterator<Item = &'a Agent>) -> Vec<(Subject, Vec<String>)> {
    let mut seen: HashMap<Subject, Vec<String>> = HashMap::new();
    for agent in agents {
        for subject in agent.subjects.iter().filter(|subject| !is_unknown(subject)) {
            let names = seen.entry(plain(subject)).or_default();
            if !names.contains(&agent.name) {
                names.push(agent.name.clone());
            }
        }
    }
    let mut shared: Vec<_> = seen
        .into_iter()
        .filter(|(_, names)| names.len() > 1)
        .collect();
    shared.sort_by(|a, b| a.1.cmp(&b.1));
    shared
}

/// What is wrong with an identity beside its schema: subjects that are another identity's, `own` accounts, or `janitors`, which remove
/// namespaces and dependents. Accounts stand there by username.
pub fn identity_problems(
    agents: &Agents,
    own: &[String],
    janitors: &[&str],
    identity: &AgentIdentity,
) -> Vec<Problem> {
    let mut problems = Vec::new();
    for (at, subject) in identity.spec.subjects.iter().enumerate() {
        if is_unknown(subject) {
            problems.push(Problem::new(
                format!("spec.subjects[{at}]"),
                "a subject of a kind that this version does not know: the gate is not told of it",
            ));
        }
        let Some(username) = plain(subject).user else {
            continue;
        };
        let words = if own.contains(&username) {
            "grantgate's own accounts cannot be agents: the gate would wait for itself"
        } else if janitors.contains(&username.as_str()) {
            "what removes namespaces and dependents cannot be an agent: nothing would be removed while the gate is down"
        } else {
            continue;
        };
        problems.push(Problem::new(format!("spec.subjects[{at}]"), words));
    }
    let me = Agent::from(identity);
    let others = agents
        .iter()
        .filter(|other| other.name != me.name)
        .chain(std::iter::once(&me));
    for (subject, names) in shared_subjects(others) {
        if names.contains(&me.name) {
            let others: Vec<String> = names.into_iter().filter(|name| *name != me.name).collect();
            let what = subject.user.or(subject.group).unwrap_or_default();
            problems.push(Problem::new(
                "spec.subjects",
                format!(
                    "{what} belongs to AgentIdentity {} already: a subject stands in one only",
                    others.join(", ")
                ),
            ));
        }
    }
    problems
}

/// A ServiceAccount and a user of the same username are one subject.
pub fn plain(subject: &Subject) -> Subject {
    match &subject.service_account {
        Some(account) => Subject {
            user: Some(account.username()),
            ..Subject::default()
        },
        None => subject.clone(),
    }
}

/// A subject without any member that is known here: a newer version's.
pub fn is_unknown(subject: &Subject) -> bool {
    *subject == Subject::default()
}

impl Agents {
    /// Indexes identities.
    pub fn of(agents: impl IntoIterator<Item = Agent>) -> Self {
        let mut index = Self::default();
        for agent in agents {
            for subject in &agent.subjects {
                let subject = plain(subject);
                if let Some(username) = subject.user {
                    index
                        .by_username
                        .entry(username)
                        .or_default()
                        .push(agent.name.clone());
                }
                if let Some(group) = subject.group {
                    index
                        .by_group
                        .entry(group)
                        .or_default()
                        .push(agent.name.clone());
                }
            }
            index.agents.insert(agent.name.clone(), agent);
        }
        index
    }

    /// The agent of that name.
    pub fn get(&self, name: &str) -> Option<&Agent> {
        self.agents.get(name)
    }

    /// All of them, by name.
    pub fn iter(&self) -> impl Iterator<Item = &Agent> {
        self.agents.values()
    }

    /// Whether a username or one of the groups is a subject of any agent.
    pub fn declares<'a>(&self, username: &str, groups: impl IntoIterator<Item = &'a str>) -> bool {
        self.by_username.contains_key(username)
            || groups
                .into_iter()
                .any(|group| self.by_group.contains_key(group))
    }

    /// The one agent that a user is.
    pub fn resolve(&self, user: &User<'_>) -> Result<&Agent, SubjectError> {
        let mut names: Vec<&String> = self
            .by_username
            .get(user.username)
            .into_iter()
            .flatten()
            .collect();
        for group in user.groups() {
            names.extend(self.by_group.get(group).into_iter().flatten());
        }
        names.sort();
        names.dedup();
        if names.len() > 1 {
            return Err(SubjectError::Several(names.into_iter().cloned().collect()));
        }
        let subject = names.first().and_then(|name| self.agents.get(*name));
        if !user.has_extra(AGENT_KEY) {
            return subject.ok_or(SubjectError::Unknown);
        }
        let values = user.extra(AGENT_KEY);
        let named = match values.as_slice() {
            [one] => self.agents.get(*one),
            _ => None,
        };
        match (subject, named) {
            (_, None) => Err(SubjectError::Extra(
                values.into_iter().map(str::to_owned).collect(),
            )),
            (Some(subject), Some(named)) if subject.name != named.name => {
                Err(SubjectError::Disagree {
                    subject: subject.name.clone(),
                    extra: named.name.clone(),
                })
            }
            (_, Some(named)) => Ok(named),
        }
    }
}

/// On whose behalf a user acts: a claim of whoever authenticated it.
pub fn on_behalf_of<'d>(user: &User<'d>) -> Result<Option<&'d str>, SubjectError> {
    if !user.has_extra(ON_BEHALF_OF_KEY) {
        return Ok(None);
    }
    match user.extra(ON_BEHALF_OF_KEY).as_slice() {
        [one] if !one.is_empty() => Ok(Some(*one)),
        _ => Err(SubjectError::OnBehalfOf),
    }
}
