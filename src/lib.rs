//! grantgate
pub mod api;
pub mod decide;
