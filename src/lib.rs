//! grantgate
pub mod api;
