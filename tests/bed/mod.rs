//! The test bed keeps what it promises: the other tests stand on it.

mod servers;
mod users;
