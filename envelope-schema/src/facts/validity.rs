//! Which values a file of facts may hold: every broken rule, not the first only.
//!
//! Owns the codes and words of these findings. Must not judge what was read: a host without a libc is a fact.

use std::collections::BTreeSet;

use super::ClusterFacts;
use crate::finding::{Finding, Place};
use crate::host::{Bound, CoreFacts, Gpu, HostFacts, Limit, LoaderFacts, MemoryFacts, NvidiaDriver};
use crate::rule;
use crate::tree::{push_key, shown};

/// Every broken rule.
pub(super) fn check(facts: &ClusterFacts) -> Vec<Finding> {
    let mut check = Check::default();
    if facts.version != super::VERSION {
        check.add("facts-version", "version", format!("there is no facts version {}", facts.version));
    }
    for (host, of_host) in &facts.hosts {
        check.prefix = "hosts".to_owned();
        push_key(&mut check.prefix, host);
        if !rule::is_host_label(host) {
            check.add("facts-host-name", "", format!("`{}` cannot be a host's label", shown(host)));
        }
        check.host(of_host);
    }
    check.findings
}

/// Collects findings; `prefix` stands in front of each key.
#[derive(Default)]
struct Check {
    prefix: String,
    findings: Vec<Finding>,
}

impl Check {
    fn add(&mut self, code: &str, key: &str, message: String) {
        let key = match (self.prefix.as_str(), key) {
            ("", key) => key.to_owned(),
            (prefix, "") => prefix.to_owned(),
            (prefix, key) => format!("{prefix}.{key}"),
        };
        self.findings.push(Finding::error(code, Place::default().key(key), message));
    }

    fn rule(&mut self, holds: fn(&str) -> bool, key: &str, text: &str, code: &str, wanted: &str) {
        if !holds(text) {
            self.add(code, key, format!("`{}` is not {wanted}", shown(text)));
        }
    }

    fn text(&mut self, key: &str, text: &str) {
        self.rule(rule::is_text, key, text, "facts-text", "a text");
    }

    fn maybe_text(&mut self, key: &str, text: Option<&String>) {
        if let Some(text) = text {
            self.text(key, text);
        }
    }

    fn texts(&mut self, key: &str, texts: &[String]) {
        for (index, text) in texts.iter().enumerate() {
            self.text(&format!("{key}[{index}]"), text);
        }
    }

    fn version(&mut self, key: &str, text: Option<&String>) {
        if let Some(text) = text {
            self.rule(rule::is_symbol_version, key, text, "facts-number", "a version such as `2.31`");
        }
    }

    fn size(&mut self, key: &str, size: Option<u64>) {
        if let Some(size) = size.filter(|size| *size > rule::MAX_SIZE) {
            self.add("facts-size", key, format!("{size} is beyond {}", rule::MAX_SIZE));
        }
    }

    fn host(&mut self, facts: &HostFacts) {
        self.rule(rule::is_stamp, "read_at", &facts.read_at, "facts-stamp", "a time such as `2026-11-30T14:23:05Z`");
        self.text("torchlift", &facts.torchlift);
        let system = &facts.system;
        self.maybe_text("system.hostname", system.hostname.as_ref());
        self.maybe_text("system.kernel", system.kernel.as_ref());
        self.maybe_text("system.distribution", system.distribution.as_ref());
        self.texts("system.from", &system.from);
        let cpu = &facts.cpu;
        self.text("cpu.arch", &cpu.arch);
        if let Some(level) = &cpu.level {
            let wanted = "a CPU level such as `x86-64-v3` or `armv8-a`";
            self.rule(rule::is_cpu_level, "cpu.level", level, "facts-cpu-level", wanted);
        }
        self.texts("cpu.features", &cpu.features);
        self.maybe_text("cpu.model", cpu.model.as_ref());
        self.texts("cpu.from", &cpu.from);
        self.cores(&facts.cores);
        self.memory(&facts.memory);
        if let Some(libc) = &facts.libc {
            self.version("libc.version", libc.version.as_ref());
            self.text("libc.from", &libc.from);
        }
        for (index, library) in facts.libraries.iter().enumerate() {
            let key = |field: &str| format!("libraries[{index}].{field}");
            self.rule(rule::is_file_name, &key("name"), &library.name, "facts-file-name", "the name of a file");
            self.texts(&key("versions"), &library.versions);
            self.text(&key("from"), &library.from);
        }
        self.loader(&facts.loader);
        for (index, disk) in facts.disks.iter().enumerate() {
            let key = |field: &str| format!("disks[{index}].{field}");
            self.text(&key("path"), &disk.path);
            self.size(&key("total"), Some(disk.total));
            self.size(&key("free"), Some(disk.free));
            self.maybe_text(&key("filesystem"), disk.filesystem.as_ref());
            self.texts(&key("from"), &disk.from);
        }
        if let Some(limits) = &facts.limits {
            let named = [
                ("nofile", limits.nofile),
                ("nproc", limits.nproc),
                ("memlock", limits.memlock),
                ("core", limits.core),
            ];
            for (name, limit) in named {
                self.limit(name, limit);
            }
        }
        if let Some(nvidia) = &facts.nvidia {
            self.nvidia(nvidia);
        }
        if let Some(amd) = &facts.amd {
            self.maybe_text("amd.version", amd.version.as_ref());
            self.maybe_text("amd.rocm", amd.rocm.as_ref());
            self.texts("amd.from", &amd.from);
        }
        self.gpus(&facts.gpus);
        for (index, problem) in facts.problems.iter().enumerate() {
            let key = |field: &str| format!("problems[{index}].{field}");
            self.rule(rule::is_code, &key("code"), &problem.code, "facts-text", "a kebab-case code");
            self.text(&key("message"), &problem.message);
        }
    }

    fn cores(&mut self, cores: &CoreFacts) {
        self.size("cores.quota_thousandths", cores.quota_thousandths);
        for (index, node) in cores.numa.iter().enumerate() {
            let key = |field: &str| format!("cores.numa[{index}].{field}");
            self.rule(rule::has_no_nul, &key("cpus"), &node.cpus, "facts-text", "a text without a NUL");
            self.size(&key("memory"), node.memory);
        }
        self.texts("cores.from", &cores.from);
    }

    fn memory(&mut self, memory: &MemoryFacts) {
        self.size("memory.total", memory.total);
        self.size("memory.limit", memory.limit);
        self.size("memory.swap", memory.swap);
        self.texts("memory.from", &memory.from);
    }

    fn loader(&mut self, loader: &LoaderFacts) {
        self.maybe_text("loader.program", loader.program.as_ref());
        for (index, element) in loader.library_path.iter().enumerate() {
            let key = format!("loader.library_path[{index}]");
            self.rule(rule::has_no_nul, &key, element, "facts-text", "a text without a NUL");
        }
        self.texts("loader.configured", &loader.configured);
        self.texts("loader.default_folders", &loader.default_folders);
        self.texts("loader.hwcaps", &loader.hwcaps);
        self.texts("loader.from", &loader.from);
    }

    fn limit(&mut self, name: &str, limit: Limit) {
        for (side, bound) in [("soft", limit.soft), ("hard", limit.hard)] {
            if let Bound::At(value) = bound {
                self.size(&format!("limits.{name}.{side}.at"), Some(value));
            }
        }
    }

    fn nvidia(&mut self, driver: &NvidiaDriver) {
        self.version("nvidia.version", driver.version.as_ref());
        for (index, compat) in driver.compat.iter().enumerate() {
            self.text(&format!("nvidia.compat[{index}].folder"), &compat.folder);
            self.version(&format!("nvidia.compat[{index}].driver"), Some(&compat.driver));
        }
        self.texts("nvidia.from", &driver.from);
    }

    fn gpus(&mut self, gpus: &[Gpu]) {
        let mut indices = BTreeSet::new();
        let mut uuids = BTreeSet::new();
        for (index, gpu) in gpus.iter().enumerate() {
            let key = |field: &str| format!("gpus[{index}].{field}");
            self.maybe_text(&key("name"), gpu.name.as_ref());
            self.size(&key("memory"), gpu.memory);
            self.maybe_text(&key("uuid"), gpu.uuid.as_ref());
            if let Some(pci) = &gpu.pci {
                let wanted = "a place on the bus such as `0000:65:00.0`";
                self.rule(rule::is_pci_address, &key("pci"), pci, "facts-pci-address", wanted);
            }
            self.texts(&key("from"), &gpu.from);
            if !indices.insert((gpu.vendor, gpu.index)) {
                self.add("facts-card-twice", &key("index"), format!("two cards have the index {}", gpu.index));
            }
            let parts = gpu.mig.iter().flat_map(|mig| &mig.devices).enumerate();
            for (part, device) in parts {
                let key = |field: &str| format!("gpus[{index}].mig.devices[{part}].{field}");
                self.text(&key("uuid"), &device.uuid);
                self.maybe_text(&key("name"), device.name.as_ref());
                self.size(&key("memory"), device.memory);
                if !uuids.insert(&device.uuid) {
                    self.add("facts-card-twice", &key("uuid"), format!("`{}` stands twice", shown(&device.uuid)));
                }
            }
            if let Some(uuid) = gpu.uuid.as_ref().filter(|uuid| !uuids.insert(*uuid)) {
                self.add("facts-card-twice", &key("uuid"), format!("`{}` stands twice", shown(uuid)));
            }
        }
    }
}
