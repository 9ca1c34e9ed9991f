//! What the process tells those who watch it: `/livez`, `/readyz`, `/metrics`.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Arc, PoisonError, RwLock};

/// A set of named conditions that must all hold before calls should be sent here. Clones share the set.
#[derive(Clone, Debug, Default)]
pub struct Readiness {
    conditions: Arc<RwLock<BTreeMap<&'static str, Condition>>>,
}

/// One condition.
enum Condition {
    /// Holds, as somebody said.
    Holds,
    /// Does not hold, for the reason given.
    Missing(String),
    /// Judged at each look, so that a writer which died cannot leave it true.
    Judged(Arc<dyn Fn() -> Result<(), String> + Send + Sync>),
}

/// One condition that does not hold.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Missing {
    /// Its name, e.g. `snapshot`.
    pub name: &'static str,
    /// Why it does not hold, in words.
    pub reason: String,
}

impl Readiness {
    /// No conditions: ready.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds or updates a condition that holds.
    pub fn holds(&self, name: &'static str) {
        self.put(name, Condition::Holds);
    }

    /// Adds or updates a condition that does not hold.
    pub fn missing(&self, name: &'static str, reason: impl Into<String>) {
        self.put(name, Condition::Missing(reason.into()));
    }

    /// Adds or updates a condition that is judged at each look. `judge` must be quick, must not block, and must not
    /// use this set.
    pub fn judged(
        &self,
        name: &'static str,
        judge: impl Fn() -> Result<(), String> + Send + Sync + 'static,
    ) {
        self.put(name, Condition::Judged(Arc::new(judge)));
    }

    /// Whether all conditions hold.
    pub fn is_ready(&self) -> bool {
        self.report().all_hold()
    }

    /// All conditions as they are now.
    pub fn report(&self) -> Report {
        let conditions = self
            .conditions
            .read()
            .unwrap_or_else(PoisonError::into_inner);
        let states = conditions.iter().map(|(name, condition)| {
            let state = match condition {
                Condition::Holds => Ok(()),
                Condition::Missing(reason) => Err(reason.clone()),
                Condition::Judged(judge) => judge(),
            };
            (*name, state)
        });
        Report(states.collect())
    }

    fn put(&self, name: &'static str, condition: Condition) {
        self.conditions
            .write()
            .unwrap_or_else(PoisonError::into_inner)
            .insert(name, condition);
    }
}

/// The conditions at one moment. Prints as `/readyz` does.
#[derive(Clone, Debug)]
pub struct Report(Vec<(&'static str, Result<(), String>)>);

impl Report {
    /// Whether all of them hold.
    pub fn all_hold(&self) -> bool {
        self.0.iter().all(|(_, state)| state.is_ok())
    }

    /// Those that do not.
    pub fn missing(&self) -> Vec<Missing> {
        let missing = self.0.iter().filter_map(|(name, state)| {
            state.as_ref().err().map(|reason| Missing {
                name,
                reason: reason.clone(),
            })
        });
        missing.collect()
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (name, state) in &self.0 {
            match state {
                Ok(()) => writeln!(f, "[+] {name}")?,
                Err(reason) => writeln!(f, "[-] {name}: {reason}")?,
            }
        }
        f.write_str(if self.all_hold() {
            "ready\n"
        } else {
            "not ready\n"
        })
    }
}

impl fmt::Debug for Condition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Holds => f.write_str("Holds"),
            Self::Missing(reason) => f.debug_tuple("Missing").field(reason).finish(),
            Self::Judged(_) => f.write_str("Judged"),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicBool, Ordering};

    use super::*;

    #[test]
    fn one_missing_condition_is_enough_not_to_be_ready_and_is_named() {
        let readiness = Readiness::new();
        readiness.missing("snapshot", "policies have not been listed yet");
        readiness.holds("certificate");
        assert!(!readiness.is_ready());
        assert_eq!(
            readiness.report().to_string(),
            "[+] certificate\n[-] snapshot: policies have not been listed yet\nnot ready\n"
        );
        readiness.holds("snapshot");
        assert_eq!(
            readiness.report().to_string(),
            "[+] certificate\n[+] snapshot\nready\n"
        );
        assert!(readiness.report().missing().is_empty());
    }

    #[test]
    fn a_judged_condition_is_judged_at_each_look() {
        let readiness = Readiness::new();
        let good = Arc::new(AtomicBool::new(true));
        let seen = Arc::clone(&good);
        readiness.judged("clock", move || {
            if seen.load(Ordering::Relaxed) {
                Ok(())
            } else {
                Err("3 s off".to_owned())
            }
        });
        assert!(readiness.is_ready());
        good.store(false, Ordering::Relaxed);
        let missing = readiness.report().missing();
        assert_eq!(
            missing,
            [Missing {
                name: "clock",
                reason: "3 s off".to_owned()
            }]
        );
    }
}
