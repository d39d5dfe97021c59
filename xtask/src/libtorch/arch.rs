//! `.arch`: what a variant is said to be, in lines of `key=value` that other tools read and write too.
//!
//! Facts are read from the libraries and always win; a line that says otherwise is a finding. Must not be used to decide
//! anything.

use std::collections::BTreeSet;
use std::io;

use camino::Utf8Path;
use torchlift::preflight::fatbin::GpuContent;
use torchlift_schema::gpu::{Capability, CudaArch, GpuCode};
use torchlift_schema::{Accelerator, Finding, Place, VariantId};

use super::{VariantFacts, small};

/// The file's name in a variant's folder.
pub(super) const FILE: &str = ".arch";
/// Bytes: the longest that other tools write has some 200.
const LIMIT: u64 = 64 * 1024;

/// What a `.arch` file says; a key that is missing or empty says nothing, and an unknown one is passed over.
#[derive(Clone, Debug, Default, PartialEq, Eq, serde::Serialize)]
pub struct ArchFile {
    /// Torch version.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub torch: Option<String>,
    /// CUDA toolkit, or `none`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cuda: Option<String>,
    /// GPU architectures as they stand there, or `cpu`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub archs: Option<String>,
    /// `precompiled` or `compiled`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub source: Option<String>,
    /// The variant's id.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub variant: Option<String>,
    /// CPU architecture, as `uname -m` says it, or with the system in front: `linux-aarch64`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub platform: Option<String>,
}

/// Whether a variant came as binaries or was built here: the value of `source`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Making {
    /// Somebody else's binaries.
    Precompiled,
    /// Built from source.
    Compiled,
}

/// The code for GPUs that torch's own kernels have nearly everywhere; none where a library for GPUs has none at all.
pub fn gpu_codes(facts: &VariantFacts) -> Option<BTreeSet<GpuCode>> {
    let library = match facts.accelerator {
        Accelerator::Cuda(_) => "libtorch_cuda.so",
        Accelerator::Rocm(_) => "libtorch_hip.so",
        _ => return Some(BTreeSet::new()),
    };
    facts.gpu_code.get(library).map(GpuContent::archs)
}

/// The architecture of machine code for NVIDIA's cards.
pub(super) fn sass(code: &GpuCode) -> Option<CudaArch> {
    match code {
        GpuCode::Sass(arch) => Some(*arch),
        _ => None,
    }
}

impl ArchFile {
    /// Reads the one of the variant in `root`; none when it has none.
    ///
    /// # Errors
    /// When there is something of that name that is no small file.
    pub fn read(root: &Utf8Path) -> io::Result<Option<Self>> {
        Ok(small::read(&root.join(FILE), LIMIT)?.map(|content| Self::parse(&String::from_utf8_lossy(&content))))
    }

    fn parse(text: &str) -> Self {
        let mut file = Self::default();
        for line in text.trim_start_matches('\u{feff}').lines() {
            let Some((key, value)) = line.split_once('=') else { continue };
            let value = value.trim().trim_matches('"');
            let slot = match key.trim() {
                "torch" => &mut file.torch,
                "cuda" => &mut file.cuda,
                "archs" => &mut file.archs,
                "source" => &mut file.source,
                "variant" => &mut file.variant,
                "platform" => &mut file.platform,
                _ => continue,
            };
            *slot = (!value.is_empty()).then(|| value.to_owned());
        }
        file
    }

    /// What would be written for a variant with these facts, and this code for GPUs where it was read.
    pub fn of(id: &VariantId, facts: &VariantFacts, making: Making, codes: &BTreeSet<GpuCode>) -> Self {
        let cuda = if let Accelerator::Cuda(toolkit) = &facts.accelerator { toolkit.as_str() } else { "none" };
        let archs = match &facts.accelerator {
            Accelerator::Cpu => Some("cpu".to_owned()),
            // They are not guessed from a version: without the key, a reader looks into the libraries.
            _ => {
                let listed = listed(codes);
                (!listed.is_empty()).then(|| listed.join(" "))
            }
        };
        let source = match making {
            Making::Precompiled => "precompiled",
            Making::Compiled => "compiled",
        };
        Self {
            torch: Some(facts.version.clone()),
            cuda: (!cuda.is_empty()).then(|| cuda.to_owned()),
            archs,
            source: Some(source.to_owned()),
            variant: Some(id.to_string()),
            platform: Some(facts.cpu_arch.clone()),
        }
    }

    /// The file's content.
    pub fn text(&self) -> String {
        let lines = [
            ("torch", &self.torch),
            ("cuda", &self.cuda),
            ("archs", &self.archs),
            ("source", &self.source),
            ("variant", &self.variant),
            ("platform", &self.platform),
        ];
        let line = |(key, value): (&str, &Option<String>)| value.as_ref().map(|value| format!("{key}={value}\n"));
        lines.into_iter().filter_map(line).collect()
    }

    /// Whether it says that the variant was built from source.
    pub fn is_compiled(&self) -> bool {
        self.source.as_deref() == Some("compiled")
    }

    /// A warning for each line that the facts contradict. `codes` is the code for GPUs that was read; none where it was
    /// not.
    pub fn disagreements(
        &self,
        root: &Utf8Path,
        id: Option<&VariantId>,
        facts: &VariantFacts,
        codes: Option<&BTreeSet<GpuCode>>,
    ) -> Vec<Finding> {
        let file = root.join(FILE);
        let mut findings = Vec::new();
        let mut wrong = |key: &str, said: &str, is: &str| {
            let message = format!("`{key}={said}`, and its libraries say {is}");
            findings.push(
                Finding::warning("libtorch-arch-file", Place::file(file.as_str()).key(key), message)
                    .remedy("the libraries count; correct or delete the line"),
            );
        };
        if let Some(torch) = &self.torch {
            // Other tools write the version without its local part.
            let is_same = *torch == facts.version || torch == facts.public_version();
            if !is_same {
                wrong("torch", torch, &facts.version);
            }
        }
        if let Some(cuda) = self.cuda.as_deref() {
            match &facts.accelerator {
                // `12` is all that a library's name tells where the version has no local part.
                Accelerator::Cuda(toolkit) => {
                    let is_part = |long: &str, short: &str| long == short || long.starts_with(&format!("{short}."));
                    if !toolkit.is_empty() && !is_part(cuda, toolkit) && !is_part(toolkit, cuda) {
                        wrong("cuda", cuda, toolkit);
                    }
                }
                _ if cuda != "none" => wrong("cuda", cuda, "that there is none"),
                _ => {}
            }
        }
        if let Some(said) = &self.archs {
            match (&facts.accelerator, codes) {
                (Accelerator::Cpu, _) if said != "cpu" => wrong("archs", said, "that they are for a CPU"),
                (Accelerator::Cpu, _) | (_, None) => {}
                (_, Some(codes)) => {
                    let said_set = GpuCode::list(said).map(|said| listed(&said));
                    let listed = listed(codes);
                    if said_set.as_ref() != Ok(&listed) {
                        wrong("archs", said, &format!("`{}`", listed.join(" ")));
                    }
                }
            }
        }
        if let Some(platform) = &self.platform {
            // `arm64` is what some call it, and the system may stand in front.
            let cpu = platform.rsplit('-').next().unwrap_or(platform).replace("arm64", "aarch64");
            if cpu.replace("amd64", "x86_64") != facts.cpu_arch {
                wrong("platform", platform, &facts.cpu_arch);
            }
        }
        if let (Some(variant), Some(id)) = (&self.variant, id)
            && variant != id.as_str()
        {
            let message = format!("`variant={variant}`, and it lies in the store as `{id}`");
            findings.push(
                Finding::warning("libtorch-arch-file", Place::file(file.as_str()).key("variant"), message)
                    .remedy("the folder counts; correct or delete the line"),
            );
        }
        findings
    }
}

/// As a list has them: capabilities of NVIDIA's cards that there is machine code for, whether or not some of it is for that
/// very card; AMD's targets by their processors.
fn listed(codes: &BTreeSet<GpuCode>) -> Vec<String> {
    let mut nvidia: Vec<Capability> = codes.iter().filter_map(sass).map(|arch| arch.capability).collect();
    nvidia.dedup();
    let gfx = codes.iter().filter(|code| matches!(code, GpuCode::Gfx(_))).map(GpuCode::to_string);
    nvidia.iter().map(Capability::to_string).chain(gfx).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn facts(version: &str, accelerator: Accelerator) -> VariantFacts {
        let mut facts: VariantFacts = serde_json::from_value(serde_json::json!({
            "version": version, "accelerator": "cpu", "cpu_arch": "x86_64", "is_cxx11_abi": true, "abi_digest": "0",
            "libraries": [], "gpu_code": {}, "glibc": null, "size": 0,
        }))
        .unwrap();
        facts.accelerator = accelerator;
        facts
    }

    fn keys(text: &str, facts: &VariantFacts, archs: Option<&str>) -> Vec<String> {
        let archs = archs.map(|list| GpuCode::list(list).unwrap());
        let archs = archs.as_ref();
        let id = "precompiled/cu128".parse().unwrap();
        let findings = ArchFile::parse(text).disagreements("/v".into(), Some(&id), facts, archs);
        assert!(findings.iter().all(|finding| !finding.is_error()));
        findings.into_iter().map(|finding| finding.place.key.unwrap()).collect()
    }

    #[test]
    fn what_is_written_is_read_again_and_agrees() {
        let facts = facts("2.9.0+cu128", Accelerator::Cuda("12.8".into()));
        let archs = GpuCode::list("7.0 9.0 9.0a 12.0+PTX").unwrap();
        let file = ArchFile::of(&"precompiled/cu128".parse().unwrap(), &facts, Making::Precompiled, &archs);
        assert_eq!(
            file.text(),
            "torch=2.9.0+cu128\ncuda=12.8\narchs=7.0 9.0 12.0\nsource=precompiled\nvariant=precompiled/cu128\nplatform=x86_64\n"
        );
        assert_eq!(ArchFile::parse(&file.text()), file);
        assert_eq!(keys(&file.text(), &facts, Some("7.0 9.0 9.0a 12.0+PTX")), [""; 0]);
    }

    #[test]
    fn the_lines_of_other_tools_agree_when_they_mean_the_same() {
        let facts = facts("2.9.0+cu128", Accelerator::Cuda("12".into()));
        let text =
            "\u{feff}torch=2.9.0\r\ncuda=12.8\narchs=sm_70;9.0+PTX\nplatform=linux-x86_64\nmore=x\nno line\nsource=\n";
        assert_eq!(keys(text, &facts, Some("7.0 9.0")), [""; 0]);
        assert_eq!(keys("archs=7.0", &facts, None), [""; 0], "what was not read contradicts nothing");
    }

    #[test]
    fn every_line_that_the_libraries_contradict_is_a_warning_of_its_own() {
        let cuda = facts("2.9.0+cu128", Accelerator::Cuda("12.8".into()));
        let text = "torch=2.8.0\ncuda=12.6\narchs=5.0\nplatform=aarch64\nvariant=precompiled/cu126\n";
        let all = ["torch", "cuda", "archs", "platform", "variant"];
        assert_eq!(keys(text, &cuda, Some("7.0")), all);
        let cpu = facts("2.9.0", Accelerator::Cpu);
        assert_eq!(keys("cuda=12.8\narchs=7.0", &cpu, None), ["cuda", "archs"]);
        assert_eq!(keys("cuda=none\narchs=cpu", &cpu, None), [""; 0]);
    }
}
