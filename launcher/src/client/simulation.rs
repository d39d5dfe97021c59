//! A client and its allocators in a world where everything goes wrong, the same way each time for one seed.
//!
//! Both sides are the real ones, as far as they decide: the client's state with its links, the allocator's state with the order
//! of a session. Simulated are the network, which loses, delays, repeats and reorders, the processes, which crash and pause,
//! and the ranks. Time is a number.
//!
//! `cargo test -p torchlift --lib client::simulation` runs a few seeds of each kind. `SIMULATION_SEEDS=10000` runs as many
//! worlds of 1,000 allocators; `SIMULATION_SEED=4711` runs that one again, which a failure names.

mod host;
mod random;
mod rule;
mod world;

use std::sync::atomic::{AtomicU64, Ordering};

use world::World;

/// Seeds of each size when nothing else is said.
const FEW: u64 = 40;

/// What a failing world says of how to see it again.
fn run(seed: u64, hosts: usize) {
    let outcome = std::panic::catch_unwind(|| World::new(seed, hosts).run());
    if outcome.is_err() {
        panic!(
            "seed {seed} with {hosts} hosts fails: see it again with `SIMULATION_SEED={seed} SIMULATION_HOSTS={hosts} \
             cargo test -p torchlift --lib client::simulation`"
        );
    }
}

fn number(name: &str) -> Option<u64> {
    std::env::var(name).ok().map(|text| text.parse().unwrap_or_else(|_| panic!("`{name}={text}` is no number")))
}

#[test]
fn nothing_is_lost_doubled_or_left_whatever_happens_on_the_way() {
    if let Some(seed) = number("SIMULATION_SEED") {
        return run(seed, number("SIMULATION_HOSTS").unwrap_or(1000) as usize);
    }
    if let Some(seeds) = number("SIMULATION_SEEDS") {
        return many(seeds);
    }
    for seed in 0..FEW {
        for hosts in [1, 2, 7, 60] {
            run(seed, hosts);
        }
    }
    run(0, 1000);
}

/// On every core; each world is one thread's alone.
fn many(seeds: u64) {
    let next = AtomicU64::new(0);
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    std::thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| {
                loop {
                    let seed = next.fetch_add(1, Ordering::Relaxed);
                    if seed >= seeds {
                        return;
                    }
                    run(seed, 1000);
                }
            });
        }
    });
}
