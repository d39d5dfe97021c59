//! Written next: see the design.
