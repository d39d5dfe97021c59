//! The bodies of the control connection: what is read is written and read again as the same, in both directions.

#![no_main]

mod cost;

use libfuzzer_sys::fuzz_target;
use torchlift_schema::View;
use torchlift_schema::control::{self, RemoteProcessAllocatorMessage};

fuzz_target!(|bytes: &[u8]| cost::bounded(|| read(bytes)));

fn read(bytes: &[u8]) {
    if let Ok(message) = control::allocator_message(bytes) {
        let text = serde_json::to_vec(&message).expect("messages are JSON");
        assert_eq!(control::allocator_message(&text).as_ref(), Ok(&message));
        if let RemoteProcessAllocatorMessage::Allocate { view, .. } = &message {
            assert_eq!(view.to_string().parse::<View>().as_ref(), Ok(view));
            // The last rank is there, and the one behind it is not; no size costs anything.
            let ranks = view.num_ranks();
            assert_eq!(view.get(ranks), None);
            if let Some(global) = ranks.checked_sub(1).and_then(|last| view.get(last)) {
                assert_eq!(view.local(global), Some(ranks - 1));
            }
        }
    }
    if let Ok(message) = control::state_message(bytes) {
        let text = serde_json::to_vec(&message).expect("messages are JSON");
        assert_eq!(control::state_message(&text), Ok(message));
    }
    if let Ok(line) = control::record_line(bytes) {
        let text = serde_json::to_vec(&line).expect("lines are JSON");
        assert_eq!(control::record_line(&text), Ok(line));
    }
    if let Ok(reply) = control::control_reply(bytes) {
        let text = serde_json::to_vec(&reply).expect("answers are JSON");
        assert_eq!(control::control_reply(&text), Ok(reply));
    }
    if let Ok(text) = std::str::from_utf8(bytes)
        && let Ok(view) = text.parse::<View>()
    {
        assert_eq!(view.to_string().parse::<View>(), Ok(view));
    }
}
