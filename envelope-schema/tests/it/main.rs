//! The envelope against its fixtures, its schemas, the published type and hostile input.
//!
//! One program, since linking costs more than running.

mod agreement;
mod binary;
mod extent;
mod facts;
mod fixture;
mod fixtures;
mod messages;
mod published;
mod readme;
mod round_trip;
mod schema;
mod strategy;
