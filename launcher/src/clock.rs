//! The one place where time is read.
//!
//! Everything that decides takes a [`Moment`] as an argument, so that its tests need no sleep.

use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// A point on the monotonic clock.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Moment(Duration);

impl Moment {
    /// A moment `since_start` after the clock's own zero; for tests.
    pub const fn after_zero(since_start: Duration) -> Self {
        Self(since_start)
    }

    /// The moment `duration` later.
    #[must_use]
    pub fn plus(self, duration: Duration) -> Self {
        Self(self.0.saturating_add(duration))
    }

    /// How long after `earlier` this is; zero when it is not.
    pub fn since(self, earlier: Self) -> Duration {
        self.0.saturating_sub(earlier.0)
    }
}

/// A running monotonic clock.
#[derive(Clone, Copy, Debug)]
pub struct Clock {
    zero: Instant,
}

impl Clock {
    /// A clock whose zero is now.
    #[expect(clippy::disallowed_methods, reason = "this is the clock")]
    pub fn start() -> Self {
        Self { zero: Instant::now() }
    }

    /// The time now.
    pub fn now(&self) -> Moment {
        Moment(self.zero.elapsed())
    }
}

/// Lets time pass, so that what happens meanwhile is found together, or before something that tells nobody when it changes is
/// asked again. Never a way to wait for what can be waited for.
#[expect(clippy::disallowed_methods, reason = "this is the clock")]
pub(crate) fn pause(duration: Duration) {
    std::thread::sleep(duration);
}

/// Seconds and nanoseconds since 1970 by the wall clock: for stamps and names, never for deadlines.
#[expect(clippy::disallowed_methods, reason = "this is the clock")]
pub fn wall() -> Duration {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default()
}
