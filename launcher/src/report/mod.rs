//! The only room that prints.

pub mod failure;
