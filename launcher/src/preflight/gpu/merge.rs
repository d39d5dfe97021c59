//! One account of NVIDIA's cards from what several sources say.
//!
//! NVML is believed first. What it leaves open is filled in by the kernel's files and, where a card still lacks what fit
//! asks for, by `nvidia-smi`. Where NVML cannot be used, the others stand alone, and why it cannot is a problem.

use std::path::Path;

use torchlift_schema::host::{Gpu, NvidiaDriver};
use torchlift_schema::{Finding, Place};

use super::nvml::{NvmlError, Refusal};
use super::{Nvml, Question, compat, kernel, nvml, smi, tegra};
use crate::preflight::code;
use crate::preflight::host::Problems;

/// The driver and its cards, in PCI order.
pub(super) fn nvidia(question: &Question<'_>, problems: &mut Problems) -> (Option<NvidiaDriver>, Vec<Gpu>) {
    let roots = question.roots;
    let mut driver = NvidiaDriver::default();
    let mut cards = Vec::new();
    let module = kernel::version(roots);
    let of_kernel = kernel::cards(roots);
    let file = match question.sources.nvml {
        Nvml::Search => nvml::file(question),
        Nvml::File(file) => Some(file.to_owned()),
        Nvml::Never => None,
    };
    let answer = match (&file, question.sources.nvml) {
        (Some(file), _) => Some(nvml::read(question.sources.asker, file, question.sources.patience)),
        (None, Nvml::Never) => None,
        (None, _) => Some(Err(NvmlError::NotThere)),
    };
    let is_answered = matches!(answer, Some(Ok(_)));
    // Kept until it is known whether there is a driver at all.
    let mut trouble = None;
    match answer {
        Some(Ok(answer)) => {
            (driver.version, driver.cuda) = (answer.driver, answer.cuda);
            driver.from.extend(file.as_deref().map(shown));
            cards = answer.cards;
            for lost in answer.lost {
                let remedy =
                    "look at `dmesg` for `NVRM` and `Xid`; a card that fell off the bus comes back with a reboot";
                problems.list.push(Finding::error(code::GPU_UNREADABLE, place(), lost).remedy(remedy));
            }
        }
        Some(Err(error)) => trouble = Some(error),
        None => {}
    }
    if let Some((version, from)) = module {
        driver.version.get_or_insert(version);
        driver.from.push(from.to_owned());
    }
    fill(&mut cards, of_kernel, !is_answered);

    let is_open = cards.iter().any(|card| card.capability.is_none() || card.memory.is_none());
    if let Some(program) = question.sources.nvidia_smi.as_deref().filter(|_| !is_answered || is_open) {
        match smi::read(program, question.sources.patience) {
            Ok(answer) => {
                driver.version = driver.version.or(answer.driver);
                driver.cuda = driver.cuda.or(answer.cuda);
                driver.from.push(shown(program));
                fill(&mut cards, answer.cards, !is_answered);
            }
            Err(error) if !is_answered => {
                let message = whole(&error);
                // Where the kernel's part is loaded there is a driver, and this is what is wrong with it.
                let finding = if driver.version.is_some() {
                    Finding::error(code::GPU_DRIVER_BROKEN, place(), message)
                } else {
                    Finding::warning(code::GPU_UNREADABLE, place(), message)
                };
                let remedy = "mend NVIDIA's driver so that `nvidia-smi` answers in a shell; after an update, reboot";
                problems.list.push(finding.remedy(remedy));
            }
            // NVML has answered; what is still open is told below.
            Err(_) => {}
        }
    }
    if let Some((of_tree, card)) = tegra::read(roots, question.memory) {
        driver.is_tegra = true;
        driver.from.extend(of_tree.from);
        match cards.as_mut_slice() {
            [] => cards.push(card),
            [only] => complete(only, card),
            _ => {}
        }
    }
    let is_there = !driver.from.is_empty() || !cards.is_empty();
    if let Some(error) = trouble.filter(|error| is_there || !matches!(error, NvmlError::NotThere)) {
        broken(&error, file.as_deref(), &driver, problems);
    }
    if !is_there {
        return (None, cards);
    }
    put_in_order(&mut cards);
    for card in cards.iter().filter(|card| card.capability.is_none()) {
        let message = format!("nothing says which capability NVIDIA's card {} has", named(card));
        let remedy = "mend the driver so that `nvidia-smi` answers; `gpus` of the kind says it meanwhile";
        problems.list.push(Finding::error(code::GPU_UNREADABLE, place(), message).remedy(remedy));
    }
    driver.compat = compat::read(question);
    (Some(driver), cards)
}

fn place() -> Place {
    Place::default().key("gpus")
}

/// An error with what caused it.
fn whole(error: &dyn std::error::Error) -> String {
    let causes = std::iter::successors(error.source(), |cause| cause.source());
    causes.fold(error.to_string(), |text, cause| format!("{text}: {cause}"))
}

fn shown(path: &Path) -> String {
    path.display().to_string()
}

fn named(card: &Gpu) -> String {
    match &card.name {
        Some(name) => format!("{} (`{name}`)", card.index),
        None => card.index.to_string(),
    }
}

/// Why NVML cannot be used, where there is something to be used.
fn broken(error: &NvmlError, file: Option<&Path>, driver: &NvidiaDriver, problems: &mut Problems) {
    // A Tegra's older systems come without it.
    if driver.is_tegra && matches!(error, NvmlError::NotThere) {
        return;
    }
    let library = file.and_then(|file| compat::driver(&fs_err::canonicalize(file).ok()?));
    let (message, remedy) = match error {
        NvmlError::Refused(Refusal::Mismatch) => (
            format!(
                "{error}: the library is {}, the kernel's part {}",
                library.as_deref().unwrap_or("of an unknown version"),
                driver.version.as_deref().unwrap_or("of an unknown one")
            ),
            "reboot, or load the kernel's part again: an update has replaced one and not the other",
        ),
        NvmlError::Refused(Refusal::NotLoaded) => (
            format!("{error}, though `{}` is installed", file.map(shown).unwrap_or_default()),
            "load it (`modprobe nvidia`) and look at `dmesg`; on a machine without an NVIDIA card, take the library out",
        ),
        NvmlError::Refused(Refusal::NoPermission) => (
            error.to_string(),
            "look at the permissions of `/dev/nvidia*`, and let a container have them (`--gpus all`)",
        ),
        NvmlError::NotThere => (
            format!("{error}, though NVIDIA's driver is there"),
            "install the driver's library (`libnvidia-ml1`, `nvidia-driver-cuda-libs`) of the same version",
        ),
        NvmlError::Ended { .. } => (
            format!("{error}: `{}`", file.map(shown).unwrap_or_default()),
            "install the driver again, and look whether another library of that name comes before it",
        ),
        NvmlError::NotAsked { .. } => {
            (whole(error), "let this program run itself: /proc has to be there, and room for one more process")
        }
        NvmlError::Slow { .. } | NvmlError::Refused(Refusal::Failed(_)) => {
            (whole(error), "look at `dmesg` for `NVRM` and `Xid`, and whether `nvidia-smi` answers")
        }
    };
    problems.list.push(Finding::error(code::GPU_DRIVER_BROKEN, place(), message).remedy(remedy));
}

/// Completes `cards` by what another source says of the same ones, and adds those that are not there if `is_complete` says
/// that the first source left cards out. NVML shows a container only its own, and the kernel all.
fn fill(cards: &mut Vec<Gpu>, others: Vec<Gpu>, may_add: bool) {
    for other in others {
        let same = |card: &&mut Gpu| {
            let is_same = |a: &Option<String>, b: &Option<String>| a.is_some() && a == b;
            is_same(&card.uuid, &other.uuid) || is_same(&card.pci, &other.pci)
        };
        match cards.iter_mut().find(same) {
            Some(card) => complete(card, other),
            None if may_add => cards.push(other),
            None => {}
        }
    }
}

fn complete(card: &mut Gpu, other: Gpu) {
    let is_divided = |card: &Gpu| card.mig.as_ref().is_some_and(|mig| mig.enabled);
    let lacks = |of_card: bool, of_other: bool| !of_card && of_other;
    let parts = |card: &Gpu| card.mig.as_ref().is_some_and(|mig| !mig.devices.is_empty());
    let adds = lacks(card.name.is_some(), other.name.is_some())
        || lacks(card.capability.is_some(), other.capability.is_some())
        || lacks(card.memory.is_some(), other.memory.is_some())
        || lacks(card.uuid.is_some(), other.uuid.is_some())
        || lacks(card.pci.is_some(), other.pci.is_some())
        || lacks(card.mig.is_some(), other.mig.is_some())
        || lacks(parts(card), parts(&other));
    if !adds {
        return;
    }
    if lacks(parts(card), parts(&other)) || (card.mig.is_none() && (is_divided(&other) || other.mig.is_some())) {
        card.mig = other.mig;
    }
    card.name = card.name.take().or(other.name);
    card.capability = card.capability.or(other.capability);
    card.memory = card.memory.or(other.memory);
    card.uuid = card.uuid.take().or(other.uuid);
    card.pci = card.pci.take().or(other.pci);
    card.from.extend(other.from);
}

/// By their place on the bus, as CUDA counts them with `CUDA_DEVICE_ORDER=PCI_BUS_ID`; those without one come last.
fn put_in_order(cards: &mut [Gpu]) {
    let key = |card: &Gpu| {
        let pci = card.pci.as_deref().and_then(|pci| {
            let (domain, rest) = pci.split_once(':')?;
            Some((u32::from_str_radix(domain, 16).ok()?, rest.to_owned()))
        });
        (pci.is_none(), pci, card.index)
    };
    cards.sort_by_key(key);
    for (index, card) in (0_u32..).zip(cards) {
        card.index = index;
    }
}

#[cfg(test)]
mod tests {
    use torchlift_schema::host::Vendor;

    use super::*;

    fn card(index: u32, pci: &str, uuid: Option<&str>) -> Gpu {
        let mut card = Gpu::new(Vendor::Nvidia, index);
        card.pci = Some(pci.to_owned());
        card.uuid = uuid.map(str::to_owned);
        card.from.push(format!("source {pci}"));
        card
    }

    #[test]
    fn a_source_completes_the_card_it_names_and_adds_none_where_the_first_saw_all() {
        let mut cards = vec![card(0, "0000:01:00.0", Some("GPU-a"))];
        let mut same = card(7, "0000:01:00.0", None);
        same.memory = Some(1);
        same.from = vec!["kernel".to_owned()];
        fill(&mut cards, vec![same, card(1, "0000:02:00.0", None)], false);
        assert_eq!(cards.len(), 1);
        assert_eq!((cards[0].memory, cards[0].from.len()), (Some(1), 2));
        fill(&mut cards, vec![card(1, "0000:02:00.0", None), card(0, "0000:01:00.0", Some("GPU-a"))], true);
        assert_eq!(cards.len(), 2);
        assert_eq!(cards[0].from.len(), 2, "what adds nothing is not named as a source");
    }

    #[test]
    fn cards_are_counted_by_their_place_on_the_bus() {
        let mut cards = vec![
            card(0, "10000:01:00.0", None),
            card(1, "0000:65:00.0", None),
            Gpu::new(Vendor::Nvidia, 2),
            card(3, "0000:17:00.0", None),
        ];
        put_in_order(&mut cards);
        let shown: Vec<_> = cards.iter().map(|card| (card.index, card.pci.as_deref())).collect();
        let expected = [(0, Some("0000:17:00.0")), (1, Some("0000:65:00.0")), (2, Some("10000:01:00.0")), (3, None)];
        assert_eq!(shown, expected);
    }
}
