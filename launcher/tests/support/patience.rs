//! Waiting for a value.

use std::time::Duration;

use torchlift::clock::Clock;

/// The longest wait for anything: never reached unless something is broken.
const PATIENCE: Duration = Duration::from_secs(60);

/// Waits for a value, for a bounded time.
pub(crate) fn within<T>(what: &str, mut look: impl FnMut() -> Option<T>) -> T {
    let clock = Clock::start();
    let limit = clock.now().plus(PATIENCE);
    loop {
        if let Some(value) = look() {
            return value;
        }
        assert!(clock.now() < limit, "still waiting for {what}");
        let _ = nix::poll::poll(&mut [], 5_u8);
    }
}
