//! What `nvidia-smi` says: the same as NVIDIA's library, for where that cannot be opened or leaves something open.

use std::path::Path;
use std::process::Command;
use std::time::Duration;

use torchlift_schema::gpu::{Capability, ToolkitVersion};
use torchlift_schema::host::{Gpu, Mig, MigDevice, Vendor};

use super::program::{self, ProgramError, Said};
use super::{driver_version, pci_address};
use crate::preflight::host::field;

/// What is asked of each card; the name comes last, for nobody promised that it has no comma.
const FIELDS: [&str; 7] = ["index", "uuid", "pci.bus_id", "memory.total", "mig.mode.current", "compute_cap", "name"];
/// A field that older ones do not know.
const NEWER: &str = "compute_cap";
/// Characters of what it says instead of an answer that are repeated.
const MOST_WORDS: usize = 300;

/// What it said.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Answer {
    pub(super) driver: Option<String>,
    pub(super) cuda: Option<ToolkitVersion>,
    pub(super) cards: Vec<Gpu>,
}

/// Why it said nothing.
#[derive(Debug, thiserror::Error)]
pub(super) enum SmiError {
    #[error("`{program}` did not answer")]
    NotAsked {
        program: String,
        #[source]
        source: ProgramError,
    },
    #[error("`{program}` says: {words}")]
    Refused { program: String, words: String },
    #[error("`{program}` says what is no list of cards: {words}")]
    NoList { program: String, words: String },
}

/// Asks it.
pub(super) fn read(program: &Path, patience: Duration) -> Result<Answer, SmiError> {
    let query = |fields: &[&str]| {
        let list = format!("--query-gpu={}", fields.join(","));
        run(program, &[&list, "--format=csv,noheader,nounits"], patience)
    };
    let (table, fields) = match query(&FIELDS) {
        Err(SmiError::Refused { words, .. }) if words.contains(NEWER) => {
            let fields: Vec<&str> = FIELDS.into_iter().filter(|field| *field != NEWER).collect();
            (query(&fields)?, fields)
        }
        other => (other?, FIELDS.to_vec()),
    };
    let mut answer = Answer { cards: cards(&table, &fields, program), ..Answer::default() };
    // The head of the long report has what no column has.
    if let Ok(report) = run(program, &["-q", "-d", "COMPUTE"], patience) {
        answer.driver = field(&report, "Driver Version").and_then(driver_version);
        answer.cuda = field(&report, "CUDA Version").and_then(|text| text.parse().ok());
    }
    let is_divided = |card: &Gpu| card.mig.as_ref().is_some_and(|mig| mig.enabled);
    if answer.cards.iter().any(is_divided)
        && let Ok(list) = run(program, &["-L"], patience)
    {
        add_parts(&list, &mut answer.cards);
    }
    if answer.cards.is_empty() && answer.driver.is_none() {
        // Whatever it is, no driver has answered through it.
        let words = if table.trim().is_empty() { "nothing".to_owned() } else { words(&table) };
        return Err(SmiError::NoList { program: program.display().to_string(), words });
    }
    Ok(answer)
}

fn run(program: &Path, arguments: &[&str], patience: Duration) -> Result<String, SmiError> {
    let shown = || program.display().to_string();
    let mut command = Command::new(program);
    // Its words are looked for in English.
    command.args(arguments).env("LC_ALL", "C");
    let Said { status, output } =
        program::ask(command, patience).map_err(|source| SmiError::NotAsked { program: shown(), source })?;
    let text = String::from_utf8_lossy(&output).into_owned();
    if status.success() {
        return Ok(text);
    }
    let words = words(&text);
    Err(SmiError::Refused { program: shown(), words: if words.is_empty() { status.to_string() } else { words } })
}

/// What it says in one line that does no harm to a terminal.
fn words(text: &str) -> String {
    let lines: Vec<&str> = text.lines().map(str::trim).filter(|line| !line.is_empty()).collect();
    let line: String = lines.join("; ").chars().filter(|character| !character.is_control()).collect();
    match line.char_indices().nth(MOST_WORDS) {
        Some((at, _)) => format!("{}…", &line[..at]),
        None => line,
    }
}

fn cards(table: &str, fields: &[&str], program: &Path) -> Vec<Gpu> {
    table
        .lines()
        .filter_map(|line| {
            let values: Vec<&str> = line.splitn(fields.len(), ',').map(str::trim).collect();
            let value = |name: &str| {
                let at = fields.iter().position(|field| *field == name)?;
                values.get(at).copied().filter(|value| !value.is_empty() && !value.starts_with('['))
            };
            let mut card = Gpu::new(Vendor::Nvidia, value("index")?.parse().ok()?);
            card.uuid = value("uuid").map(str::to_owned);
            card.pci = value("pci.bus_id").and_then(pci_address);
            // In MiB, as `nounits` leaves it.
            card.memory = value("memory.total").and_then(|text| text.parse::<u64>().ok()?.checked_mul(1024 * 1024));
            card.mig = value("mig.mode.current").map(|mode| Mig::new(mode == "Enabled", Vec::new()));
            card.capability = value(NEWER).and_then(|text| Capability::try_from(text.to_owned()).ok());
            card.name = value("name").map(str::to_owned);
            card.from.push(program.display().to_string());
            Some(card)
        })
        .collect()
}

/// Adds the parts of divided cards from the list of `-L`:
///
/// ```text
/// GPU 0: NVIDIA A100-SXM4-40GB (UUID: GPU-5c89852c-d268-c3f3-1b07-005d5ae1dc3f)
///   MIG 1g.5gb      Device  0: (UUID: MIG-c6d4f1ef-42e4-5de3-91c7-45d71c87eb3f)
/// ```
fn add_parts(list: &str, cards: &mut [Gpu]) {
    let uuid = |line: &str| {
        let text = line.rsplit_once("(UUID: ")?.1.trim_end().strip_suffix(')')?;
        (!text.is_empty()).then(|| text.to_owned())
    };
    let mut current: Option<String> = None;
    for line in list.lines() {
        if line.starts_with("GPU ") {
            current = uuid(line);
        } else if let Some(rest) = line.trim_start().strip_prefix("MIG ") {
            let card = cards.iter_mut().find(|card| card.uuid.is_some() && card.uuid == current);
            let (Some(card), Some(uuid)) = (card, uuid(line)) else { continue };
            let name = rest.split_whitespace().next().map(str::to_owned);
            card.mig.get_or_insert_default().devices.push(MigDevice::new(uuid, name, None));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_card_does_not_say_is_left_out() {
        let table = "0, GPU-1, 00000000:07:00.0, 40960, Enabled, 8.0, NVIDIA A100-SXM4-40GB\n\
                     1, GPU-2, 00000000:65:00.0, [N/A], [N/A], [N/A], NVIDIA T, 1\n\
                     no card\n";
        let cards = cards(table, &FIELDS, Path::new("/usr/bin/nvidia-smi"));
        assert_eq!(cards.len(), 2);
        assert_eq!(cards[0].memory, Some(40 << 30));
        assert_eq!(cards[0].capability, Some(Capability { major: 8, minor: 0 }));
        assert!(cards[0].mig.as_ref().is_some_and(|mig| mig.enabled));
        assert_eq!((cards[1].memory, &cards[1].mig, cards[1].capability), (None, &None, None));
        assert_eq!(cards[1].name.as_deref(), Some("NVIDIA T, 1"));
        assert_eq!(cards[1].pci.as_deref(), Some("0000:65:00.0"));
    }

    #[test]
    fn parts_belong_to_the_card_above_them() {
        let list = "GPU 0: A (UUID: GPU-1)\n  MIG 3g.20gb     Device  0: (UUID: MIG-a)\n  MIG 1g.5gb      Device  1: (UUID: MIG-b)\n\
                    GPU 1: B (UUID: GPU-2)\nGPU 2: C (UUID: GPU-3)\n  MIG 7g.40gb     Device  0: (UUID: MIG-c)\n";
        let mut cards: Vec<Gpu> = (0..2).map(|index| Gpu::new(Vendor::Nvidia, index)).collect();
        cards[0].uuid = Some("GPU-1".to_owned());
        cards[1].uuid = Some("GPU-2".to_owned());
        add_parts(list, &mut cards);
        let parts = &cards[0].mig.as_ref().unwrap().devices;
        assert_eq!(
            parts.iter().map(|part| (part.uuid.as_str(), part.name.as_deref().unwrap())).collect::<Vec<_>>(),
            [("MIG-a", "3g.20gb"), ("MIG-b", "1g.5gb")]
        );
        assert_eq!(cards[1].mig, None);
    }
}
