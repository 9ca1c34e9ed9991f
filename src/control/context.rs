//! What every part of the controller shares.

use std::sync::{Arc, Mutex, PoisonError};

use jiff::Timestamp;
use kube::Client;

use crate::{
    cluster::view::{View, ViewError},
    serve::Metrics,
};

/// What every part of the controller shares.
pub struct Context {
    /// The API server, as the account of the controller.
    pub client: Client,
    /// The cluster as it is known.
    pub view: Arc<View>,
    /// The installation's own namespace.
    pub namespace: Arc<str>,
    /// The name of this replica, as in Leases and Events.
    pub replica: Arc<str>,
    /// Since when nobody can have stored a decision under another's name.
    pub guard_since: GuardSince,
    /// Why the leader keeps no records now.
    pub unkept: Unkept,
    /// Counters of the process.
    pub metrics: Arc<Metrics>,
}

impl Context {
    /// Whether a leader's work can be done here.
    pub fn fit(&self) -> Result<(), ViewError> {
        self.view.ready()?;
        self.unkept.get().map_or(Ok(()), Err)
    }
}

/// Why the leader keeps no records; `None` while it does, and where it does not lead.
#[derive(Debug, Default)]
pub struct Unkept(Mutex<Option<ViewError>>);

impl Unkept {
    /// What is known.
    pub fn get(&self) -> Option<ViewError> {
        self.0
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clone()
    }

    /// Sets what is known.
    pub fn set(&self, why: Option<ViewError>) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = why;
    }
}

/// Since when policy, binding and guard configuration were seen to hold: votes from before do not count. `None` while that is not
/// known, and then no vote counts.
#[derive(Debug, Default)]
pub struct GuardSince(Mutex<Option<Timestamp>>);

impl GuardSince {
    /// The instant, if it is known.
    pub fn get(&self) -> Option<Timestamp> {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Replaces it.
    pub fn set(&self, since: Option<Timestamp>) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = since;
    }
}
