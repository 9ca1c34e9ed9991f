//! The test bed keeps what it promises: the other tests stand on it.

mod apiproxy;
mod audit;
mod processes;
mod servers;
mod users;
mod webhookproxy;
