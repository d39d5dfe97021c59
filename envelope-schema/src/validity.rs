//! Which values an envelope may hold: every broken rule, not the first only.
//!
//! Owns the codes and words of value findings. The reader calls it after the digest holds; a writer calls it before it
//! writes. Must not touch a file: whether a path is there is preflight's question.

use std::collections::{BTreeMap, BTreeSet};

use crate::envelope::{Artifact, Envelope, PerHostEnvelope};
use crate::finding::{Finding, Place, Severity};
use crate::libtorch::{Accelerator, LibtorchRecord};
use crate::rule;
use crate::tree::shown;

impl PerHostEnvelope {
    /// Every value that breaks a rule of the format; empty when all hold.
    pub fn validate(&self) -> Vec<Finding> {
        let mut check = Check::default();
        check.run(self);
        check.findings
    }
}

impl Envelope {
    /// Every value that breaks a rule of the format; empty when all hold.
    ///
    /// Says nothing about whether `self_sha256` is the right digest, only about its form: see [`crate::read::envelope`].
    pub fn validate(&self) -> Vec<Finding> {
        let mut check = Check::default();
        if self.version != crate::version::VERSION {
            check.add("envelope-version", "version", format!("there is no envelope version {}", self.version));
        }
        if !rule::is_host(&self.host) {
            check.add(
                "envelope-host-name",
                "host",
                format!("`{}` is no DNS label: 1 to 63 letters, digits and inner dashes", shown(&self.host)),
            );
        }
        if let Some(kind) = &self.kind {
            check.rule(rule::is_text, "kind", kind, "envelope-text", "a name");
        }
        check.run(&self.per_host());
        check.artifact(&self.artifact);
        if let Some(libtorch) = &self.libtorch {
            check.libtorch(libtorch);
        }
        check.accepted(&self.findings);
        check.sha256("self_sha256", &self.self_sha256);
        check.findings
    }
}

/// Every broken rule of a plain map, hosts' labels included.
pub fn validate_map(map: &BTreeMap<String, PerHostEnvelope>) -> Vec<Finding> {
    let mut check = Check::default();
    for (host, envelope) in map {
        let shown_host = shown(host);
        if !rule::is_host_label(host) {
            check.prefix = String::new();
            check.add("envelope-host-name", &shown_host, format!("`{shown_host}` cannot be a host's label"));
        }
        check.prefix = format!("{shown_host}.");
        check.run(envelope);
    }
    check.findings
}

/// What the loader does not take as a character of a folder's name, and what it does instead.
const CHARACTERS: [(char, &str); 3] = [
    (';', "`;`, where the loader splits too"),
    ('$', "`$`, which the loader expands"),
    ('\0', "a NUL, where the loader stops"),
];

/// Collects findings; `prefix` stands in front of each key.
#[derive(Default)]
struct Check {
    prefix: String,
    findings: Vec<Finding>,
}

impl Check {
    fn add(&mut self, code: &str, key: &str, message: String) {
        let place = Place::default().key(format!("{}{key}", self.prefix));
        self.findings.push(Finding::error(code, place, message));
    }

    fn rule(&mut self, holds: fn(&str) -> bool, key: &str, text: &str, code: &str, wanted: &str) {
        if !holds(text) {
            self.add(code, key, format!("`{}` is not {wanted}", shown(text)));
        }
    }

    fn sha256(&mut self, key: &str, text: &str) {
        self.rule(rule::is_sha256, key, text, "envelope-digest-form", "64 lower-case hex digits");
    }

    fn size(&mut self, key: &str, size: u64) {
        if !(1..=rule::MAX_SIZE).contains(&size) {
            self.add("envelope-size", key, format!("{size} is no size of a file: 1 to {}", rule::MAX_SIZE));
        }
    }

    /// The published three fields.
    fn run(&mut self, run: &PerHostEnvelope) {
        if run.bin.is_empty() {
            self.add("envelope-path-empty", "bin", "is empty, and names no program".to_owned());
        } else {
            self.relative_path("bin", &run.bin);
        }
        self.library_path(&run.ld_library_path);
        if !run.cwd_subpath.is_empty() {
            self.relative_path("cwd_subpath", &run.cwd_subpath);
        }
    }

    fn relative_path(&mut self, key: &str, path: &str) {
        if path.contains('\0') {
            self.add("envelope-path-nul", key, format!("`{}` has a NUL", shown(path)));
        }
        if path.starts_with('/') {
            self.add(
                "envelope-path-absolute",
                key,
                format!("`{}` is absolute, and has to be relative to the host's `path`", shown(path)),
            );
        }
        // An absolute path is one finding; its first segment is empty only because of that.
        let below = path.trim_start_matches('/');
        let segments = || below.split('/').filter(|_| !below.is_empty());
        if segments().any(|segment| segment == "..") {
            self.add("envelope-path-parent", key, format!("`{}` has `..`, and has to stay below `path`", shown(path)));
        }
        if segments().any(|segment| matches!(segment, "" | ".")) {
            self.add(
                "envelope-path-spelling",
                key,
                format!("`{}` has a segment that is empty or `.`; a path has one spelling here", shown(path)),
            );
        }
    }

    fn library_path(&mut self, text: &str) {
        if text.is_empty() {
            return;
        }
        for (index, element) in text.split(':').enumerate() {
            let number = index + 1;
            if element.is_empty() {
                self.add(
                    "envelope-library-path-empty",
                    "ld_library_path",
                    format!("element {number} is empty: the loader would search the working directory"),
                );
            } else if !element.starts_with('/') {
                self.add(
                    "envelope-library-path-relative",
                    "ld_library_path",
                    format!("element {number}, `{}`, is not absolute", shown(element)),
                );
            }
            for (character, name) in CHARACTERS {
                if element.contains(character) {
                    self.add(
                        "envelope-library-path-character",
                        "ld_library_path",
                        format!("element {number}, `{}`, has {name}", shown(element)),
                    );
                }
            }
        }
    }

    fn artifact(&mut self, artifact: &Artifact) {
        self.rule(rule::is_target, "artifact.target", &artifact.target, "envelope-target", "a target triple");
        self.size("artifact.size", artifact.size);
        self.sha256("artifact.sha256", &artifact.sha256);
        if let Some(id) = &artifact.build_id {
            self.rule(rule::is_hex_bytes, "artifact.build_id", id, "envelope-digest-form", "bytes in lower-case hex");
        }
        self.rule(rule::is_hex, "artifact.build_key", &artifact.build_key, "envelope-digest-form", "lower-case hex");
        self.rule(rule::is_text, "artifact.source_id", &artifact.source_id, "envelope-text", "a text");
        for (key, floor) in [("artifact.glibc", &artifact.glibc), ("artifact.libstdcxx", &artifact.libstdcxx)] {
            if let Some(floor) = floor {
                self.rule(rule::is_symbol_version, key, floor, "envelope-number", "a version such as `2.31`");
            }
        }
        if let Some(level) = &artifact.cpu_level {
            let wanted = "a CPU level such as `x86-64-v3` or `armv8-a`";
            self.rule(rule::is_cpu_level, "artifact.cpu_level", level, "envelope-cpu-level", wanted);
        }
        for (index, library) in artifact.needed.iter().enumerate() {
            self.rule(
                rule::is_text,
                &format!("artifact.needed[{index}]"),
                library,
                "envelope-text",
                "a library's name",
            );
        }
    }

    fn libtorch(&mut self, record: &LibtorchRecord) {
        self.rule(rule::is_text, "libtorch.version", &record.version, "envelope-text", "a version");
        let toolkit = match &record.accelerator {
            Accelerator::Cpu => None,
            Accelerator::Cuda(version) => Some(("libtorch.accelerator.cuda", version)),
            Accelerator::Rocm(version) => Some(("libtorch.accelerator.rocm", version)),
        };
        if let Some((key, version)) = toolkit {
            self.rule(rule::is_toolkit_version, key, version, "envelope-number", "a version such as `12.8`");
        }
        for (index, arch) in record.archs.iter().enumerate() {
            self.rule(rule::is_text, &format!("libtorch.archs[{index}]"), arch, "envelope-text", "an architecture");
        }
        let mut seen = BTreeSet::new();
        for (index, library) in record.libraries.iter().enumerate() {
            let key = |field: &str| format!("libtorch.libraries[{index}].{field}");
            self.rule(rule::is_file_name, &key("file"), &library.file, "envelope-file-name", "the name of a file");
            self.size(&key("size"), library.size);
            self.sha256(&key("sha256"), &library.sha256);
            if !seen.insert(&library.file) {
                self.add("envelope-library-twice", &key("file"), format!("`{}` is listed twice", shown(&library.file)));
            }
        }
    }

    /// Findings of an envelope are those that were accepted: an error that stands leaves no envelope.
    fn accepted(&mut self, findings: &[Finding]) {
        for (index, finding) in findings.iter().enumerate() {
            let key = |field: &str| format!("findings[{index}].{field}");
            self.rule(rule::is_code, &key("code"), &finding.code, "envelope-text", "a kebab-case code");
            if finding.severity != Severity::Warning {
                let message = "is `error`, and an envelope has accepted findings only".to_owned();
                self.add("envelope-finding-severity", &key("severity"), message);
            }
            self.rule(rule::is_text, &key("message"), &finding.message, "envelope-text", "a text");
        }
    }
}
