//! The only place that talks to the API server: client, watches, the view made of them, and the compare-and-swap writes.

pub mod background;
pub mod client;
pub mod clock;
pub mod discovery;
pub mod filing;
pub mod index;
pub mod lease;
pub mod ledger;
pub mod present;
pub mod rights;
pub mod secrets;
pub mod sources;
pub mod target;
pub mod view;
pub mod watch;
pub mod witness;
