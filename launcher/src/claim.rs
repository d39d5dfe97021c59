//! Cards that a run has to itself: claimed for the whole machine, whoever started it and however it was reached.
//!
//! Owns the lock files, one for each card, with who holds it inside; the kernel takes a lock back when its holder ends in any
//! way. All that a run wants is claimed or nothing, in the order of its hosts. Must not print or read the environment.
//!
//! A claim is an agreement among runs of Torchlift. What else uses a card does not know of it.

use std::cell::LazyCell;
use std::collections::{BTreeMap, BTreeSet};
use std::ffi::{OsStr, OsString};
use std::fmt;
use std::io::{self, Read as _, Seek as _, Write as _};
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

use fs_err::os::unix::fs::OpenOptionsExt as _;
use fs_err::{File, OpenOptions};
use nix::fcntl::OFlag;
use nix::unistd::{ftruncate, geteuid};
use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};
use torchlift_schema::{Accelerator, Finding, Place};

use crate::env_vars;
use crate::plan::{HostPlan, HostRequest, card_elements};
use crate::preflight::code;
use crate::preflight::gpu::nvidia_cards;
use crate::preflight::host::Roots;

/// Characters of a card's name that its lock file's name has.
const MOST_NAME: usize = 128;
/// Bytes of a lock file that are read.
const MOST: u64 = 4096;

/// Where every user of a machine may make a lock.
const SHARED: &str = "/run/lock";
/// The same where the system has no such folder.
const FALLBACK: &str = "/tmp";
/// The folder of the locks in it.
const FOLDER: &str = "torchlift-cards";

/// A folder of claims that would be another one in every working folder.
#[derive(Debug, thiserror::Error)]
#[error("`TORCHLIFT_CLAIMS` is `{}`, which is no absolute path", folder.display())]
pub struct FolderError {
    folder: PathBuf,
}

impl FolderError {
    /// What to do next.
    pub fn hint(&self) -> &'static str {
        "name an absolute folder, the same for every user of the machine, or leave the variable out"
    }
}

/// The folder of this machine's claims, unless `TORCHLIFT_CLAIMS` in this environment has another: the same for every user.
///
/// # Errors
/// When that is no absolute path.
pub fn folder(env: &BTreeMap<OsString, OsString>) -> Result<PathBuf, FolderError> {
    let own = env.get(OsStr::new(env_vars::TORCHLIFT_CLAIMS)).filter(|own| !own.is_empty()).map(Path::new);
    match own {
        Some(own) if own.is_absolute() => Ok(own.to_owned()),
        Some(own) => Err(FolderError { folder: own.to_owned() }),
        None => Ok(Path::new(if Path::new(SHARED).is_dir() { SHARED } else { FALLBACK }).join(FOLDER)),
    }
}

/// Who claims.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Holder {
    /// The run.
    pub run_id: String,
    /// The user's number.
    pub uid: u32,
    /// The process that holds the claim.
    pub pid: u32,
}

impl Holder {
    /// This process, for the run with this id.
    pub fn of(run_id: &str) -> Self {
        Self { run_id: run_id.to_owned(), uid: geteuid().as_raw(), pid: std::process::id() }
    }
}

/// For people: ``run `20261130-142305-abcd` of user 1000 (process 4711)``.
impl fmt::Display for Holder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "run `{}` of user {} (process {})", self.run_id, self.uid, self.pid)
    }
}

/// The cards that one host of a run is to have, each by what it is called on the whole machine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Wanted {
    /// The host's name.
    pub host: String,
    /// Its cards: UUIDs where they are known.
    pub cards: Vec<String>,
}

impl Wanted {
    /// What the ranks of this host will see. `cards` are those of the machine by index, as [`cards_here`] gives them: read only
    /// where a host wants any.
    pub fn of(request: &HostRequest, plan: &HostPlan, cards: &LazyCell<Vec<String>>) -> Self {
        let accelerator = request.program.accelerator();
        let is_for_cards = accelerator.is_some_and(|accelerator| *accelerator != Accelerator::Cpu);
        let (name, prefix) = match accelerator {
            Some(Accelerator::Rocm(_)) => (env_vars::HIP_VISIBLE_DEVICES, "amd"),
            _ => (env_vars::CUDA_VISIBLE_DEVICES, "nvidia"),
        };
        let ranks = plan.ranks.iter().map(|rank| &rank.env);
        let envs = std::iter::once(&plan.env).chain(ranks);
        let shown: Vec<_> = envs.filter_map(|env| Some(env.get(OsStr::new(name))?.value.to_string_lossy())).collect();
        // What a program of unknown kind inherits was not chosen for it.
        let is_chosen = is_for_cards || !request.devices.is_empty();
        let mut wanted: Vec<String> = match (is_chosen, shown.is_empty()) {
            (false, _) => Vec::new(),
            (true, true) if prefix == "nvidia" => cards.to_vec(),
            (true, _) => {
                shown.iter().flat_map(|list| card_elements(list)).map(|card| on_machine(card, prefix, cards)).collect()
            }
        };
        wanted.sort();
        wanted.dedup();
        Self { host: request.name.clone(), cards: wanted }
    }
}

/// The cards that somebody names on this machine, by UUID or by index.
pub fn named(names: &[String]) -> Vec<String> {
    let cards = if names.is_empty() { Vec::new() } else { cards_here(&Roots::default()) };
    names.iter().map(|name| on_machine(name, "nvidia", &cards)).collect()
}

/// What this machine's NVIDIA cards are called, by the index that CUDA gives them in PCI order. Reads the kernel's files, and
/// starts no driver.
pub fn cards_here(roots: &Roots) -> Vec<String> {
    let cards = nvidia_cards(roots).into_iter();
    cards.map(|card| card.uuid.or(card.pci).unwrap_or_else(|| format!("nvidia-{}", card.index))).collect()
}

/// A card by the name that it has on the whole machine.
fn on_machine(element: &str, prefix: &str, cards: &[String]) -> String {
    let element = element.trim();
    if let Ok(index) = element.parse::<usize>() {
        let known = cards.get(index).filter(|_| prefix == "nvidia");
        return known.cloned().unwrap_or_else(|| format!("{prefix}-{index}"));
    }
    // A UUID may be shortened to a unique beginning.
    let mut whole = cards.iter().filter(|card| !element.is_empty() && card.starts_with(element));
    match (whole.next(), whole.next()) {
        (Some(card), None) => card.clone(),
        _ => element.to_owned(),
    }
}

/// What is claimed, until this is dropped.
#[derive(Debug, Default)]
pub struct Claims {
    _files: Vec<File>,
}

/// Claims all of it, for one run; hosts of one run may share a card. Gives what is claimed with doubts about it, or a finding
/// for each card that another one has: then nothing is claimed.
///
/// # Errors
/// When a card is another's.
pub fn take(folder: &Path, wanted: &[Wanted], holder: &Holder) -> Result<(Claims, Vec<Finding>), Vec<Finding>> {
    let mut seen = BTreeSet::new();
    let cards = wanted.iter().flat_map(|host| host.cards.iter().map(move |card| (host.host.as_str(), card.as_str())));
    let ordered = cards.filter(|(_, card)| seen.insert(*card));
    let (mut files, mut taken, mut doubts) = (Vec::new(), Vec::new(), Vec::new());
    for (host, card) in ordered {
        let place = Place::host(host).key("devices");
        match lock(folder, card) {
            Ok(Locked::Ours(file)) => files.push(file),
            Ok(Locked::Others(by)) => {
                let by = by.map_or_else(|| "another run".to_owned(), |holder| holder.to_string());
                let finding = Finding::error(code::CARD_CLAIMED, place, format!("card `{card}` is claimed by {by}"));
                taken.push(finding.remedy("wait for its end, or choose other cards in `devices`"));
            }
            Err(error) => {
                let message = format!("card `{card}` cannot be claimed for one run in `{}`: {error}", folder.display());
                let finding = Finding::warning(code::CLAIM_UNUSABLE, place, message);
                let remedy = format!("see that `{}` may be written to by every user (mode 1777)", folder.display());
                doubts.push(finding.remedy(remedy));
            }
        }
    }
    if !taken.is_empty() {
        return Err(taken);
    }
    for file in &mut files {
        // Whoever cannot be named still holds it.
        let _ = sign(file, holder);
    }
    Ok((Claims { _files: files }, doubts))
}

enum Locked {
    Ours(File),
    Others(Option<Holder>),
}

fn lock(folder: &Path, card: &str) -> io::Result<Locked> {
    make_folder(folder)?;
    let mut file = open(&folder.join(file_name(card)))?;
    match file.file().try_lock() {
        Ok(()) => Ok(Locked::Ours(file)),
        Err(std::fs::TryLockError::WouldBlock) => {
            let mut text = Vec::new();
            let _ = (&mut file).take(MOST).read_to_end(&mut text);
            Ok(Locked::Others(serde_json::from_slice(&text).ok()))
        }
        Err(std::fs::TryLockError::Error(error)) => Err(error),
    }
}

/// One file for every user: it stays when its holder ends, since removing it would let two hold it.
fn open(path: &Path) -> io::Result<File> {
    let flags = (OFlag::O_NOFOLLOW | OFlag::O_NONBLOCK).bits();
    let there = || OpenOptions::new().read(true).write(true).custom_flags(flags).open(path);
    let file = match there() {
        // Not made where it is there: in a folder of many users the kernel refuses to "make" another's file.
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            let made = OpenOptions::new().read(true).write(true).create_new(true).custom_flags(flags).open(path);
            match made {
                Ok(file) => {
                    file.set_permissions(std::fs::Permissions::from_mode(0o666))?;
                    file
                }
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => there()?,
                Err(error) => return Err(error),
            }
        }
        // One that only its maker may write to can be locked all the same.
        Err(error) if error.kind() == io::ErrorKind::PermissionDenied => {
            OpenOptions::new().read(true).custom_flags(flags).open(path)?
        }
        other => other?,
    };
    if file.metadata()?.is_file() { Ok(file) } else { Err(io::Error::other("it is no regular file")) }
}

fn make_folder(folder: &Path) -> io::Result<()> {
    match fs_err::create_dir(folder) {
        Ok(()) => fs_err::set_permissions(folder, std::fs::Permissions::from_mode(0o1777)),
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(()),
        Err(error) => Err(error),
    }
}

fn sign(file: &mut File, holder: &Holder) -> io::Result<()> {
    let text = serde_json::to_vec(holder)?;
    // Where only its maker may write, the text of an earlier holder would name the wrong one: there it stays as it is.
    ftruncate(&*file, 0).map_err(io::Error::from)?;
    file.seek(io::SeekFrom::Start(0))?;
    file.write_all(&text)
}

/// A file's name of it. What cannot stand in one is replaced, and a digest keeps it apart from others then.
fn file_name(card: &str) -> String {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.' | ':');
    let plain: String = card.chars().map(|c| if is_plain(c) { c } else { '_' }).take(MOST_NAME).collect();
    if plain == card {
        return format!("{plain}.lock");
    }
    let digest = Sha256::digest(card.as_bytes());
    let digest: String = digest.iter().take(8).map(|byte| format!("{byte:02x}")).collect();
    format!("{plain}-{digest}.lock")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::{Device, EnvValue, Program};

    fn wanted(host: &str, cards: &[&str]) -> Wanted {
        Wanted { host: host.to_owned(), cards: cards.iter().map(|card| (*card).to_owned()).collect() }
    }

    fn holder(run_id: &str) -> Holder {
        Holder { run_id: run_id.to_owned(), uid: 7, pid: 11 }
    }

    fn messages(taken: Result<(Claims, Vec<Finding>), Vec<Finding>>) -> Vec<String> {
        taken.unwrap_err().into_iter().map(|finding| finding.message).collect()
    }

    #[test]
    fn all_is_claimed_or_nothing_and_every_card_of_another_is_named_with_its_holder() {
        let folder = tempfile::tempdir().unwrap();
        let (one, _) = take(folder.path(), &[wanted("a", &["GPU-1", "GPU-2"])], &holder("first")).unwrap();
        let both = [wanted("a", &["GPU-0", "GPU-2"]), wanted("b", &["GPU-1", "GPU-0"])];
        assert_eq!(
            messages(take(folder.path(), &both, &holder("second"))),
            [
                "card `GPU-2` is claimed by run `first` of user 7 (process 11)",
                "card `GPU-1` is claimed by run `first` of user 7 (process 11)"
            ]
        );
        take(folder.path(), &[wanted("a", &["GPU-0"])], &holder("third")).unwrap();
        drop(one);
        take(folder.path(), &both, &holder("second")).unwrap();
    }

    #[test]
    fn hosts_of_one_run_may_share_a_card() {
        let folder = tempfile::tempdir().unwrap();
        let (_claims, doubts) =
            take(folder.path(), &[wanted("a", &["GPU-1"]), wanted("b", &["GPU-1"])], &holder("one")).unwrap();
        assert!(doubts.is_empty());
    }

    #[test]
    fn a_folder_that_cannot_be_used_is_a_doubt_and_no_refusal() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("file");
        fs_err::write(&file, "").unwrap();
        let (_, doubts) = take(&file, &[wanted("a", &["GPU-1"])], &holder("one")).unwrap();
        assert_eq!((doubts.len(), doubts[0].code.as_str(), doubts[0].is_error()), (1, code::CLAIM_UNUSABLE, false));
        let link = folder.path().join(file_name("GPU-1"));
        std::os::unix::fs::symlink(&file, link).unwrap();
        let (_, doubts) = take(folder.path(), &[wanted("a", &["GPU-1"])], &holder("one")).unwrap();
        assert_eq!(doubts.len(), 1, "a link leads to another's file");
        assert_eq!(fs_err::read(&file).unwrap(), b"");
    }

    #[test]
    fn what_ranks_see_is_claimed_and_cards_are_looked_for_only_then() {
        let wanted = |devices: &[Device], shown: Option<&str>, cards: &LazyCell<Vec<String>>| {
            let request = HostRequest {
                name: "a".to_owned(),
                path: "/".into(),
                program: Program::Plain { program: "/bin/true".into(), cwd: "/".into() },
                slots: 1,
                env: BTreeMap::new(),
                runner: Vec::new(),
                devices: devices.to_vec(),
            };
            let entry = |value: &str| {
                (env_vars::CUDA_VISIBLE_DEVICES.into(), EnvValue { value: value.into(), is_secret: false })
            };
            let plan = HostPlan {
                name: "a".to_owned(),
                program: "/bin/true".into(),
                args: Vec::new(),
                cwd: "/".into(),
                env: shown.map(entry).into_iter().collect(),
                ranks: Vec::new(),
            };
            Wanted::of(&request, &plan, cards).cards
        };
        let unread = LazyCell::new((|| panic!("nobody wants a card")) as fn() -> Vec<String>);
        assert!(wanted(&[], Some("0"), &unread).is_empty(), "inherited, and not chosen");
        let one = LazyCell::new((|| vec!["GPU-1".to_owned()]) as fn() -> Vec<String>);
        assert_eq!(wanted(&[Device::Index(0)], Some("0"), &one), ["GPU-1"]);
        assert_eq!(wanted(&[Device::Index(0)], Some("0,-1,1"), &one), ["GPU-1"], "as far as CUDA reads");
        assert!(wanted(&[Device::Index(0)], Some(""), &one).is_empty(), "they see none");
        assert_eq!(wanted(&[Device::Index(0)], None, &one), ["GPU-1"], "they see all");
    }

    #[test]
    fn a_folder_that_depends_on_where_one_stands_is_refused() {
        let folder = |own: &str| folder(&[(env_vars::TORCHLIFT_CLAIMS.into(), own.into())].into());
        assert!(folder("claims").unwrap_err().to_string().contains("`claims`"));
        assert_eq!(folder("/x").unwrap(), Path::new("/x"));
        assert_eq!(folder("").unwrap(), super::folder(&BTreeMap::new()).unwrap());
    }

    #[test]
    fn a_card_has_one_name_however_it_is_chosen() {
        let cards = ["GPU-aa1", "GPU-ab2"].map(str::to_owned);
        for (element, expected) in
            [("1", "GPU-ab2"), ("GPU-ab", "GPU-ab2"), ("GPU-a", "GPU-a"), (" 0 ", "GPU-aa1"), ("7", "nvidia-7")]
        {
            assert_eq!(on_machine(element, "nvidia", &cards), expected);
        }
        assert_eq!(on_machine("1", "amd", &cards), "amd-1");
        assert_eq!(file_name("GPU-a"), "GPU-a.lock");
        let odd = ["a/b", "a_b", "a\\b", &"x".repeat(500), &"x".repeat(501), "..", ""].map(file_name);
        assert_eq!(odd.iter().collect::<std::collections::BTreeSet<_>>().len(), odd.len());
        assert!(odd.iter().all(|name| name.len() < 200 && !name.contains('/') && name.ends_with(".lock")), "{odd:?}");
    }
}
