//! What is written is what is read.

use proptest::prelude::*;
use torchlift_schema::read::{self, Reading};
use torchlift_schema::write;

use crate::strategy;

proptest! {
    #[test]
    fn an_envelope_reads_as_it_was_written(envelope in strategy::envelope()) {
        let sealed = write::seal(envelope);
        let text = write::to_text(&sealed);
        prop_assert!(text.ends_with("\n") && !text.ends_with("\n\n"), "one final newline");
        prop_assert_eq!(read::envelope(text.as_bytes()), Ok(sealed.clone()));
        prop_assert_eq!(read::any(text.as_bytes()), Ok(Reading::Envelope(Box::new(sealed.clone()))));
        // A reader of the published three fields gets the same ones.
        prop_assert_eq!(read::per_host(text.as_bytes()), Ok(sealed.per_host()));
        prop_assert_eq!(sealed.validate(), Vec::new());
    }

    #[test]
    fn a_per_host_envelope_and_a_map_read_as_they_were_written(run in strategy::per_host(), map in strategy::map()) {
        prop_assert_eq!(read::any(write::per_host(&run).as_bytes()), Ok(Reading::PerHost(run)));
        prop_assert_eq!(read::any(write::per_host_map(&map).as_bytes()), Ok(Reading::Map(map)));
    }

    #[test]
    fn a_seal_is_the_same_when_it_is_put_on_again(envelope in strategy::envelope()) {
        let once = write::seal(envelope);
        prop_assert_eq!(write::seal(once.clone()), once);
    }

    #[test]
    fn every_changed_field_breaks_the_seal(envelope in strategy::envelope(), other in strategy::envelope()) {
        let sealed = write::seal(envelope);
        let mut edited = sealed.clone();
        edited.artifact.source_id = other.artifact.source_id;
        edited.bin = other.bin;
        edited.libtorch = other.libtorch;
        let reading = read::envelope(write::to_text(&edited).as_bytes());
        prop_assert_eq!(reading.is_ok(), edited == sealed);
    }
}
