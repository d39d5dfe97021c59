//! The only room that prints.

pub mod fetch;
