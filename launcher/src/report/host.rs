//! The facts of a host for people: a line a fact, what is not known left out.
//!
//! Pure. What could not be read, and why, is told as findings are ([`super::failure`]), on stderr.

use std::fmt::Write as _;

use torchlift_schema::HostFacts;
use torchlift_schema::host::{
    AmdDriver, Bound, CoreFacts, CpuFacts, DiskPurpose, Gpu, LibcFlavour, Limit, LimitFacts, NvidiaDriver,
    SystemLibrary, Vendor,
};

use super::words;

/// Columns of the name of a line.
const NAMES: usize = 9;
/// Prefixes of symbol versions, and libraries whose versions say what programs need of the system.
const OFFERS: [(&str, &[&str]); 3] =
    [("libc.so.6", &["GLIBC_"]), ("libstdc++.so.6", &["GLIBCXX_", "CXXABI_"]), ("libgcc_s.so.1", &["GCC_"])];

/// The text for people, with its final newline.
pub fn render(name: &str, facts: &HostFacts) -> String {
    let mut table = Table::default();
    table.line("host", format!("`{name}`, read {} by torchlift {}", facts.read_at, facts.torchlift));
    fill(facts, &mut table);
    let mut text = String::new();
    for row in &table.rows {
        for (index, value) in row.values.iter().enumerate() {
            let shown = if index == 0 { row.name.as_str() } else { "" };
            let _ = writeln!(text, "{shown:<NAMES$}{value}");
        }
    }
    text
}

/// The facts line by line, for whoever tells them beside others.
pub fn rows(facts: &HostFacts) -> Vec<Row> {
    let mut table = Table::default();
    fill(facts, &mut table);
    table.rows
}

/// What is known under one name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Row {
    /// The name: `cpu`, `limits`, `gpu 0`.
    pub name: String,
    /// What is known, a line each; at least one.
    pub values: Vec<String>,
}

fn fill(facts: &HostFacts, table: &mut Table) {
    let system = &facts.system;
    let kernel = system.kernel.as_ref().map(|kernel| format!("Linux {kernel}"));
    table.parts(
        "system",
        [system.distribution.clone(), kernel, system.hostname.as_ref().map(|name| format!("`{name}`"))],
    );
    table.parts("cpu", cpu(&facts.cpu));
    table.parts("cores", cores(&facts.cores));
    let memory = &facts.memory;
    table.parts(
        "memory",
        [
            memory.total.map(words::size),
            memory.limit.map(|limit| format!("{} for this process", words::size(limit))),
            memory.swap.filter(|swap| *swap > 0).map(|swap| format!("{} swap", words::size(swap))),
        ],
    );
    match &facts.libc {
        Some(libc) => {
            let flavour = match libc.flavour {
                LibcFlavour::Glibc => "glibc",
                LibcFlavour::Musl => "musl",
            };
            let version = libc.version.as_ref().map(|version| format!(" {version}")).unwrap_or_default();
            table.line("libc", format!("{flavour}{version}, `{}`", libc.from));
        }
        None => table.line("libc", "not found"),
    }
    for (name, prefixes) in OFFERS {
        if let Some(library) = facts.library(name) {
            table.more(offers(library, prefixes));
        }
    }
    loader(facts, table);
    for disk in &facts.disks {
        let purpose = match disk.purpose {
            DiskPurpose::Project => "project",
            DiskPurpose::Temporary => "temporary",
            DiskPurpose::Shared => "shared",
        };
        let filesystem = disk.filesystem.as_ref().map(|kind| format!(", {kind}")).unwrap_or_default();
        let (free, total) = (words::size(disk.free), words::size(disk.total));
        table.line("disk", format!("{free} free of {total} in `{}` ({purpose}{filesystem})", disk.path));
    }
    if let Some(limits) = &facts.limits {
        table.line("limits", self::limits(limits));
    }
    if let Some(driver) = &facts.nvidia {
        table.parts("nvidia", nvidia(driver));
    }
    if let Some(driver) = &facts.amd {
        table.parts("amd", amd(driver));
    }
    cards(facts, table);
}

/// Lines with their names.
#[derive(Default)]
struct Table {
    rows: Vec<Row>,
}

impl Table {
    fn line(&mut self, name: &str, value: impl AsRef<str>) {
        match self.rows.last_mut().filter(|row| row.name == name) {
            Some(row) => row.values.push(value.as_ref().to_owned()),
            None => self.rows.push(Row { name: name.to_owned(), values: vec![value.as_ref().to_owned()] }),
        }
    }

    fn more(&mut self, value: impl AsRef<str>) {
        if let Some(row) = self.rows.last_mut() {
            row.values.push(value.as_ref().to_owned());
        }
    }

    /// Those parts that are known; nothing at all where none is.
    fn parts(&mut self, name: &str, parts: impl IntoIterator<Item = Option<String>>) {
        let parts: Vec<String> = parts.into_iter().flatten().collect();
        if !parts.is_empty() {
            self.line(name, parts.join(", "));
        }
    }
}

fn cpu(cpu: &CpuFacts) -> [Option<String>; 3] {
    let level = cpu.level.clone().unwrap_or_else(|| "level not known".to_owned());
    [Some(cpu.arch.clone()), Some(level), cpu.model.clone()]
}

fn cores(cores: &CoreFacts) -> [Option<String>; 3] {
    let there = match (cores.usable, cores.online) {
        (Some(usable), Some(online)) => Some(format!("{usable} of {online}")),
        (usable, online) => usable.or(online).map(|count| count.to_string()),
    };
    let quota = cores.quota_thousandths.map(|quota| format!("quota of {}.{:03}", quota / 1000, quota % 1000));
    let nodes = cores.numa.len();
    [there, quota, (nodes > 0).then(|| words::count(nodes, "NUMA node"))]
}

fn offers(library: &SystemLibrary, prefixes: &[&str]) -> String {
    let highest = prefixes.iter().filter_map(|prefix| Some(format!("{prefix}{}", library.highest(prefix)?)));
    let highest: Vec<String> = highest.collect();
    match highest.is_empty() {
        true => format!("{} offers no versions, `{}`", library.name, library.from),
        false => format!("{} up to {}", library.name, highest.join(", ")),
    }
}

fn loader(facts: &HostFacts, table: &mut Table) {
    let loader = &facts.loader;
    let list = |folders: &[String]| folders.iter().map(|folder| format!("`{folder}`")).collect::<Vec<_>>().join(", ");
    if !loader.library_path.is_empty() {
        table.line("loader", format!("LD_LIBRARY_PATH {}", list(&loader.library_path)));
    }
    if !loader.configured.is_empty() {
        table.line("loader", format!("ld.so.conf {}", list(&loader.configured)));
    }
    let cache = match loader.cached {
        Some(count) => words::count(count as usize, "library").replace("librarys", "libraries") + " in ld.so.cache",
        None => "no ld.so.cache".to_owned(),
    };
    match loader.default_folders.is_empty() {
        true => table.line("loader", cache),
        false => table.line("loader", format!("{cache}, then {}", list(&loader.default_folders))),
    }
}

fn limits(limits: &LimitFacts) -> String {
    let shown = |limit: Limit, unit: fn(u64) -> String| {
        let bound = |bound: Bound| match bound {
            Bound::Unlimited => "unlimited".to_owned(),
            Bound::At(value) => unit(value),
        };
        let (soft, hard) = (bound(limit.soft), bound(limit.hard));
        if soft == hard { soft } else { format!("{soft} (hard {hard})") }
    };
    let plain = |value: u64| value.to_string();
    format!(
        "files {}, processes {}, locked memory {}, core {}",
        shown(limits.nofile, plain),
        shown(limits.nproc, plain),
        shown(limits.memlock, words::size),
        shown(limits.core, words::size)
    )
}

fn nvidia(driver: &NvidiaDriver) -> Vec<Option<String>> {
    let version = match (&driver.version, driver.is_tegra) {
        (Some(version), _) => format!("driver {version}"),
        (None, true) => "driver of a Tegra".to_owned(),
        (None, false) => "driver of an unknown version".to_owned(),
    };
    let mut parts = vec![Some(version), driver.cuda.map(|cuda| format!("CUDA {cuda}"))];
    parts.extend(driver.compat.iter().map(|compat| {
        let place = if compat.is_loaded { "" } else { ", not in the library path" };
        Some(format!("cuda-compat {} in `{}`{place}", compat.driver, compat.folder))
    }));
    parts
}

fn amd(driver: &AmdDriver) -> [Option<String>; 2] {
    let version =
        driver.version.as_ref().map_or("driver of the kernel".to_owned(), |version| format!("driver {version}"));
    [Some(version), driver.rocm.as_ref().map(|rocm| format!("ROCm {rocm}"))]
}

fn cards(facts: &HostFacts, table: &mut Table) {
    if facts.gpus.is_empty() {
        let is_troubled = facts.problems.iter().any(|problem| problem.code.starts_with("gpu-"));
        table.line("gpus", if is_troubled { "none that can be used" } else { "none" });
    }
    // An index alone says which card only where all are of one maker.
    let is_mixed = facts.cards(Vendor::Nvidia).next().is_some() && facts.cards(Vendor::Amd).next().is_some();
    for gpu in &facts.gpus {
        let maker = match gpu.vendor {
            _ if !is_mixed => "",
            Vendor::Nvidia => "NVIDIA ",
            Vendor::Amd => "AMD ",
        };
        table.parts(
            &format!("gpu {}", gpu.index),
            [
                Some(format!("{maker}{}", gpu.name.as_deref().unwrap_or("without a name"))),
                Some(code(gpu)),
                gpu.memory.map(words::size),
                gpu.pci.clone(),
                gpu.uuid.clone(),
            ],
        );
        let Some(mig) = gpu.mig.as_ref().filter(|mig| mig.enabled) else { continue };
        if mig.devices.is_empty() {
            table.more("divided (MIG), and its parts are not known");
        }
        for part in &mig.devices {
            let known = [part.name.clone(), part.memory.map(words::size), Some(part.uuid.clone())];
            table.more(format!("  MIG {}", known.into_iter().flatten().collect::<Vec<_>>().join(", ")));
        }
    }
}

fn code(gpu: &Gpu) -> String {
    let known = gpu.capability.map(String::from).or_else(|| gpu.gfx.map(String::from));
    known.unwrap_or_else(|| "capability not known".to_owned())
}
