//! How a host is reached: each way brings an allocator up on the host and gives back a connection to it.

pub(crate) mod local;
