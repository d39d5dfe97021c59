//! From a host's cards and the code of a program's libraries to findings.

use std::collections::{BTreeMap, BTreeSet};

use torchlift_schema::gpu::GpuCode;
use torchlift_schema::{Finding, Place};

use super::device::{Device, Isa};
use super::driver::{Answer, Driver, Need};
use super::gfx::Override;
use super::library::{LibraryCode, LibraryFit, fit};
use super::{Level, Role};
use crate::preflight::code;
use crate::preflight::fatbin::GpuContent;

/// What is asked.
#[derive(Clone, Debug)]
pub struct Question<'a> {
    /// Where findings are: the host, or the key of a kind.
    pub place: Place,
    /// The chosen cards. All of them have to be served; each library is held against those of its own vendor.
    pub devices: &'a [Device],
    /// NVIDIA's driver; none where nothing is known of it.
    pub driver: Option<&'a Driver>,
    /// `HSA_OVERRIDE_GFX_VERSION` as the ranks will have it.
    pub gfx_override: Option<&'a str>,
    /// The program and the libraries that it would load.
    pub libraries: &'a [LibraryCode<'a>],
}

/// How the cards are served.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Verdict {
    /// Each card with the worst level of the decisive libraries of its vendor; native where none of them has code.
    pub cards: Vec<(Device, Level)>,
    /// Errors and warnings, in the order of the libraries and the cards.
    pub findings: Vec<Finding>,
}

impl Verdict {
    /// The worst level of all cards; native where there is none.
    pub fn level(&self) -> Level {
        self.cards.iter().map(|(_, level)| *level).min().unwrap_or(Level::Native)
    }
}

/// Holds every library against every card of its vendor.
pub fn check(question: &Question<'_>) -> Verdict {
    let mut check = Check { question, findings: Vec::new() };
    let devices = check.overridden();
    let fits: Vec<CardFit<'_>> = devices.iter().map(|device| CardFit::new(question, device)).collect();
    for card in &fits {
        check.unserved(card);
        check.compiled(card);
    }
    check.partial(&fits);
    check.driver(&fits);
    let cards = fits.iter().map(|card| (card.device.clone(), card.level())).collect();
    Verdict { cards, findings: check.findings }
}

/// A card, and how it runs each library that has code of its vendor.
struct CardFit<'a> {
    device: &'a Device,
    fits: Vec<(&'a LibraryCode<'a>, LibraryFit)>,
}

impl<'a> CardFit<'a> {
    fn new(question: &Question<'a>, device: &'a Device) -> Self {
        let libraries = question.libraries.iter().filter(|library| is_for(library, device));
        Self { device, fits: libraries.map(|library| (library, fit(library, device, question.driver))).collect() }
    }

    fn decisive(&self) -> impl Iterator<Item = &(&'a LibraryCode<'a>, LibraryFit)> {
        self.fits.iter().filter(|(library, _)| library.role == Role::Decisive)
    }

    fn level(&self) -> Level {
        self.decisive().map(|(_, fit)| fit.level()).min().unwrap_or(Level::Native)
    }
}

/// Whether a library has code of the vendor of this card.
fn is_for(library: &LibraryCode<'_>, device: &Device) -> bool {
    library.content.regions.iter().flat_map(|group| &group.codes).any(|code| {
        matches!(
            (code, device.isa),
            (GpuCode::Gfx(_), Isa::Gfx(_)) | (GpuCode::Sass(_) | GpuCode::Ptx(..), Isa::Cuda(_))
        )
    })
}

struct Check<'q, 'a> {
    question: &'q Question<'a>,
    findings: Vec<Finding>,
}

impl Check<'_, '_> {
    fn place(&self) -> Place {
        self.question.place.clone()
    }

    /// The cards as ROCm takes them with the override.
    fn overridden(&mut self) -> Vec<Device> {
        let mut devices = self.question.devices.to_vec();
        let is_amd = devices.iter().any(|device| !device.is_cuda());
        let Some(text) = self.question.gfx_override.filter(|text| is_amd && !text.is_empty()) else { return devices };
        match text.parse::<Override>() {
            Ok(taken_for) => {
                for device in &mut devices {
                    if let Isa::Gfx(target) = &mut device.isa {
                        *target = taken_for.on(*target);
                    }
                }
            }
            Err(error) => self.findings.push(
                Finding::error(code::GFX_OVERRIDE, self.place(), format!("{error}: ROCm shows no card with it"))
                    .remedy("write it as `10.3.0`, or leave the variable out"),
            ),
        }
        devices
    }

    /// Decisive libraries without enough code for a card.
    fn unserved(&mut self, card: &CardFit<'_>) {
        let device = card.device;
        for (library, fit) in card.decisive() {
            if fit.level() != Level::None || fit.is_for_a_newer_driver() {
                continue;
            }
            let message = format!(
                "`{}` has no code for {device}: {} of its {} regions run there; it has {}",
                library.name,
                fit.native + fit.ptx,
                fit.regions,
                offer(library.content),
            );
            let remedy = format!(
                "choose a libtorch that has {0} (`libtorch = \"auto\"` does), build for {0} what is not torch's, or leave the \
                 card out with `devices`",
                wanted(device),
            );
            self.findings.push(Finding::error(code::GPU_CODE_MISSING, self.place(), message).remedy(remedy));
        }
    }

    /// Decisive libraries that a card runs from PTX alone.
    fn compiled(&mut self, card: &CardFit<'_>) {
        let compiled = card.decisive().filter(|(_, fit)| fit.level() == Level::Ptx);
        let names: Vec<String> = compiled.map(|(library, _)| format!("`{}`", library.name)).collect();
        if names.is_empty() {
            return;
        }
        let message =
            format!("{} runs {} from PTX: the first call compiles it, for minutes", card.device, names.join(" and "));
        let remedy = format!("a libtorch that has {} starts at once", wanted(card.device));
        self.findings.push(Finding::warning(code::GPU_PTX_ONLY, self.place(), message).remedy(remedy));
    }

    /// Other libraries with too little code, each with the cards that lack it.
    fn partial(&mut self, cards: &[CardFit<'_>]) {
        for library in self.question.libraries.iter().filter(|library| library.role == Role::Further) {
            let lacks = |card: &&CardFit<'_>| {
                card.fits.iter().any(|(other, fit)| std::ptr::eq(*other, library) && fit.level() == Level::None)
            };
            let lacking: Vec<String> = cards.iter().filter(lacks).map(|card| card.device.to_string()).collect();
            if lacking.is_empty() {
                continue;
            }
            let message = format!(
                "`{}` has too little code for {}: it has {}",
                library.name,
                lacking.join(" and "),
                offer(library.content)
            );
            let remedy = "what calls it fails there; all else works";
            self.findings.push(Finding::warning(code::GPU_CODE_PARTIAL, self.place(), message).remedy(remedy));
        }
    }

    /// What the code asks of NVIDIA's driver, each thing once.
    fn driver(&mut self, cards: &[CardFit<'_>]) {
        let Some(driver) = self.question.driver else { return };
        let mut needs: BTreeMap<Need, BTreeSet<&str>> = BTreeMap::new();
        for card in cards.iter().filter(|card| card.device.is_cuda()) {
            for (library, fit) in card.decisive() {
                for need in needs_of(library, fit) {
                    needs.entry(need).or_default().insert(library.name);
                }
            }
        }
        for (need, names) in needs {
            let names: Vec<String> = names.iter().map(|name| format!("`{name}`")).collect();
            self.answer(driver, need, &names.join(" and "));
        }
    }

    fn answer(&mut self, driver: &Driver, need: Need, names: &str) {
        let place = self.place();
        let has = version_of(driver);
        match driver.serves(need) {
            Answer::Serves => {}
            Answer::ServesByCompat(folder) => self.findings.push(
                Finding::warning(
                    code::DRIVER_BY_COMPAT,
                    place,
                    format!("{has} serves {need} in {names} only with the compatibility package in `{folder}`"),
                )
                .remedy("NVIDIA supports that on data-centre cards alone; a newer driver needs no package"),
            ),
            Answer::TooOld { needs, compat } => {
                let wanted =
                    needs.map_or_else(|| format!("one for CUDA {}", need.toolkit()), |driver| driver.to_string());
                let message = format!("{has} does not serve {need} in {names}, which needs {wanted} or newer");
                let compat = compat.map(|folder| {
                    format!("; or put the compatibility package that is in `{folder}` in front (`library_path.before`)")
                });
                let remedy = format!(
                    "install a newer driver, or choose a libtorch of an older CUDA{}",
                    compat.unwrap_or_default()
                );
                self.findings.push(Finding::error(code::DRIVER_TOO_OLD, place, message).remedy(remedy));
            }
            Answer::Unknown => self.findings.push(
                Finding::warning(
                    code::DRIVER_UNKNOWN,
                    place,
                    format!("whether {has} serves {need} in {names} is not known"),
                )
                .remedy("look into the release notes of that CUDA"),
            ),
        }
    }
}

/// What the code of a library that a card would run asks of the driver.
fn needs_of(library: &LibraryCode<'_>, fit: &LibraryFit) -> Vec<Need> {
    let is_run = fit.level() != Level::None && fit.native > 0;
    let native = library.toolkit.filter(|_| is_run).map(Need::Native);
    let newer = fit.needs.filter(|_| fit.is_for_a_newer_driver()).map(Need::Ptx);
    native.into_iter().chain(newer).chain(fit.by_compat.map(Need::Ptx)).collect()
}

fn version_of(driver: &Driver) -> String {
    match (driver.version, driver.cuda) {
        (Some(version), _) => format!("the driver {version}"),
        (None, Some(cuda)) => format!("the driver, which is for CUDA {cuda},"),
        (None, None) => "the driver, whose version is not known,".to_owned(),
    }
}

/// What a card would run as it is, for a remedy.
fn wanted(device: &Device) -> String {
    match device.isa {
        Isa::Cuda(capability) => format!("`sm_{}`", capability.number()),
        Isa::Gfx(target) => format!("`{}`", target.processor),
    }
}

/// What a library has, such as `sm_70, sm_75; in a few regions also sm_89`.
fn offer(content: &GpuContent) -> String {
    let list = |codes: BTreeSet<GpuCode>| codes.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ");
    let (archs, partial) = (list(content.archs()), list(content.partial()));
    match (archs.is_empty(), partial.is_empty()) {
        (true, true) => "none".to_owned(),
        (false, true) => archs,
        (true, false) => format!("in some regions {partial}"),
        (false, false) => format!("{archs}; in some regions also {partial}"),
    }
}
