//! Processes: the guard, the spawning of ranks, the tree below them.

pub mod guard;
