//! What makes each card a card of its own in the facts, whatever its driver said.

use std::collections::HashSet;

use torchlift_schema::host::{Gpu, MOST_BYTES};

/// Takes away what the form of facts does not allow: a UUID that another card has, and a size that none can have.
///
/// Older kernels give all partitions of an AMD card its one UUID. They are cards of their own all the same, chosen by index.
pub(super) fn keep_apart(cards: &mut [Gpu]) {
    let mut seen = HashSet::new();
    for card in cards.iter_mut() {
        card.uuid = card.uuid.take().filter(|uuid| seen.insert(uuid.clone()));
        card.memory = card.memory.filter(|bytes| *bytes <= MOST_BYTES);
    }
    for mig in cards.iter_mut().filter_map(|card| card.mig.as_mut()) {
        mig.devices.retain(|part| seen.insert(part.uuid.clone()));
        for part in &mut mig.devices {
            part.memory = part.memory.filter(|bytes| *bytes <= MOST_BYTES);
        }
    }
}

#[cfg(test)]
mod tests {
    use torchlift_schema::host::{Mig, MigDevice, Vendor};

    use super::*;

    #[test]
    fn a_uuid_is_kept_once_and_every_card_stays() {
        let mut cards: Vec<Gpu> = (0..3).map(|index| Gpu::new(Vendor::Amd, index)).collect();
        for card in &mut cards {
            card.uuid = Some("GPU-a".to_owned());
        }
        cards[2].memory = Some(u64::MAX);
        let part = |uuid: &str| MigDevice::new(uuid, None, Some(1));
        cards[1].mig = Some(Mig::new(true, vec![part("MIG-x"), part("MIG-x"), part("GPU-a"), part("MIG-y")]));
        keep_apart(&mut cards);
        let uuids: Vec<_> = cards.iter().map(|card| card.uuid.as_deref()).collect();
        assert_eq!(uuids, [Some("GPU-a"), None, None]);
        let parts: Vec<_> = cards[1].mig.iter().flat_map(|mig| &mig.devices).map(|part| part.uuid.as_str()).collect();
        assert_eq!(parts, ["MIG-x", "MIG-y"]);
        assert_eq!(cards[2].memory, None);
    }
}
