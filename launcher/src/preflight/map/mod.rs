//! Files in memory, read-only: whole, or through windows that follow each other.
//!
//! Purpose: a library of a gigabyte is looked into where it lies, and hashed where it lies; nothing is copied, and only the
//! pages that are looked at are read. Owns the unsafe calls of `preflight`, and the answer to a mapped file that is cut short,
//! or whose disk fails: the kernel tells of either by SIGBUS, which would end this process, and [`guard`] makes it an error of
//! that file alone. So all bytes are seen through [`look`] and [`through`], which give no answer from bytes that were not
//! the file's. Must not interpret what it shows.

#![expect(unsafe_code, reason = "mapping a file is unsafe; the reasons why it holds stand at the calls")]

mod file;
mod guard;
mod window;

pub(crate) use file::{MappedFile, look};
pub(crate) use window::{fetch, through};
