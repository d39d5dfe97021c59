//! Torchlift's own figures, each measured beside its yardstick in one run.
//!
//! Owns how a figure is taken (alternating runs, medians) and what bound it has. Only `commands::bench` prints.

pub mod build;
pub mod client;
pub mod demo;
pub mod digest;
pub mod doctor;
pub mod gpu_code;
pub mod hosts;
pub mod launch;
pub mod serve;
pub mod tree;

use std::process::{Command, Output, Stdio};
use std::time::Duration;

use serde::Serialize;
use torchlift::clock::Clock;
use torchlift_schema::exit_code;

use crate::error::CommandError;

/// One figure with its bound.
#[derive(Clone, Debug, Serialize)]
pub struct Figure {
    /// What was measured.
    pub name: String,
    /// Our value, in `unit`.
    pub ours: f64,
    /// What it was measured beside, and its value in `unit`.
    pub yardstick: Option<(String, f64)>,
    /// `ms` or `MiB`.
    pub unit: &'static str,
    /// What it may be.
    pub bound: Bound,
}

/// What a figure may be at most.
#[derive(Clone, Copy, Debug, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Bound {
    /// Ours, in the figure's unit.
    Absolute(f64),
    /// Ours divided by the yardstick.
    Ratio(f64),
    /// Ours less the yardstick, in the figure's unit.
    Above(f64),
}

impl Figure {
    /// The number that the bound is about; `None` when a yardstick is missing.
    pub fn measured(&self) -> Option<f64> {
        let yardstick = self.yardstick.as_ref().map(|(_, value)| *value);
        match self.bound {
            Bound::Absolute(_) => Some(self.ours),
            Bound::Ratio(_) => yardstick.map(|value| self.ours / value),
            Bound::Above(_) => yardstick.map(|value| self.ours - value),
        }
    }

    /// Whether it keeps its bound.
    pub fn holds(&self) -> bool {
        let limit = match self.bound {
            Bound::Absolute(limit) | Bound::Ratio(limit) | Bound::Above(limit) => limit,
        };
        self.measured().is_some_and(|value| value <= limit)
    }
}

/// One run of a command that must succeed: all that it wrote, and how long it took. What it said is shown when it fails.
fn timed(command: &mut Command) -> Result<(Output, Duration), CommandError> {
    let failed = |what: String| CommandError::new(exit_code::BUILD, what);
    let name = command.get_program().to_string_lossy().into_owned();
    let clock = Clock::start();
    let start = clock.now();
    let output = command.stdin(Stdio::null()).output();
    let taken = clock.now().since(start);
    let output = output.map_err(|error| failed(format!("`{name}` cannot be measured")).because(error))?;
    if output.status.success() {
        return Ok((output, taken));
    }
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    Err(failed(format!("`{name}` ended with {}", output.status)).because(said))
}

/// The middle one of some durations, in milliseconds; the mean of the two middle ones when their number is even.
pub fn median_ms(samples: &[Duration]) -> f64 {
    let mut sorted: Vec<f64> = samples.iter().map(|sample| sample.as_secs_f64() * 1000.0).collect();
    sorted.sort_by(f64::total_cmp);
    match sorted.len() {
        0 => f64::NAN,
        n if n % 2 == 1 => sorted[n / 2],
        n => f64::midpoint(sorted[n / 2 - 1], sorted[n / 2]),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn figure(ours: f64, yardstick: Option<f64>, bound: Bound) -> Figure {
        Figure { name: "x".into(), ours, yardstick: yardstick.map(|v| ("y".into(), v)), unit: "ms", bound }
    }

    #[test]
    fn a_bound_is_about_the_ratio_the_difference_or_the_value() {
        assert!(figure(15.0, Some(10.0), Bound::Ratio(1.5)).holds());
        assert!(!figure(15.1, Some(10.0), Bound::Ratio(1.5)).holds());
        assert!(figure(400.0, Some(101.0), Bound::Above(300.0)).holds());
        assert!(!figure(402.0, Some(101.0), Bound::Above(300.0)).holds());
        assert!(figure(20.0, None, Bound::Absolute(20.0)).holds());
        assert!(!figure(1.0, None, Bound::Ratio(9.0)).holds(), "without its yardstick a ratio holds nothing");
    }

    #[test]
    fn the_median_is_the_middle_of_the_sorted() {
        let ms = |values: &[u64]| median_ms(&values.iter().map(|v| Duration::from_millis(*v)).collect::<Vec<_>>());
        assert!((ms(&[9, 1, 5]) - 5.0).abs() < 1e-9);
        assert!((ms(&[4, 2]) - 3.0).abs() < 1e-9);
    }
}
