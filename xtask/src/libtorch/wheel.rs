//! A Python wheel: its name, the digests of its `RECORD`, what its `METADATA` requires.
//!
//! Follows the binary distribution format and the core metadata specification as far as a libtorch needs them.

use std::collections::BTreeMap;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use camino::Utf8Path;

use super::archive::{Archive, ArchiveError};

/// An open wheel: every file that is read from it is held against its `RECORD`.
pub(super) struct Wheel {
    /// The zip archive.
    pub archive: Archive,
    /// `<name>-<version>.dist-info`.
    pub dist_info: String,
    /// `Version` of its metadata.
    pub version: String,
    /// `Requires-Dist` of its metadata.
    pub requires: Vec<Requirement>,
}

/// One `Requires-Dist` that pins a version.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Requirement {
    /// Normalised: lower case, `-` between words.
    pub name: String,
    /// What follows `==`; none where it pins no version.
    pub version: Option<String>,
    marker: String,
}

impl Wheel {
    /// Opens a wheel and reads its lists.
    pub(super) fn open(path: &Utf8Path) -> Result<Self, ArchiveError> {
        let mut archive = Archive::open(path)?;
        let absent = || ArchiveError::Absent { archive: path.to_owned(), entry: "*.dist-info/RECORD".to_owned() };
        let record = archive
            .files()
            .map(|(name, _)| name)
            .find(|name| name.ends_with(".dist-info/RECORD") && name.matches('/').count() == 1)
            .map(str::to_owned)
            .ok_or_else(absent)?;
        let dist_info = record.trim_end_matches("/RECORD").to_owned();
        let digests = parse_record(&String::from_utf8_lossy(&archive.read(&record)?));
        archive.require(digests);
        let metadata = archive.read(&format!("{dist_info}/METADATA"))?;
        let metadata = String::from_utf8_lossy(&metadata);
        // The header ends at the first empty line; below it is the project's own prose.
        let header = metadata.split("\n\n").next().unwrap_or_default();
        let values = |key: &str| {
            let key = format!("{key}: ");
            header.lines().filter_map(move |line| Some(line.strip_prefix(key.as_str())?.trim().to_owned())).collect()
        };
        let versions: Vec<String> = values("Version");
        let requires: Vec<String> = values("Requires-Dist");
        Ok(Self {
            archive,
            dist_info,
            version: versions.into_iter().next().unwrap_or_default(),
            requires: requires.iter().map(|text| Requirement::parse(text)).collect(),
        })
    }

    /// The version of a torch wheel with its local part, as its own `torch/version.py` has it; its metadata leaves that
    /// out.
    pub(super) fn torch_version(&mut self) -> Result<String, ArchiveError> {
        let text = match self.archive.has("torch/version.py") {
            true => self.archive.read("torch/version.py")?,
            false => Vec::new(),
        };
        let text = String::from_utf8_lossy(&text);
        let stated = text.lines().find_map(|line| line.strip_prefix("__version__ = "));
        Ok(stated.map_or_else(|| self.version.clone(), |version| version.trim().trim_matches(['\'', '"']).to_owned()))
    }

    /// The licence and notice files that it carries.
    pub(super) fn licences(&self) -> Vec<String> {
        let prefix = format!("{}/", self.dist_info);
        let is_licence = |name: &str| {
            let Some(rest) = name.strip_prefix(prefix.as_str()) else { return false };
            let upper = rest.to_ascii_uppercase();
            rest.starts_with("licenses/")
                || ["LICENSE", "LICENCE", "NOTICE", "COPYING"].iter().any(|word| upper.starts_with(word))
        };
        self.archive.files().map(|(name, _)| name).filter(|name| is_licence(name)).map(str::to_owned).collect()
    }
}

impl Requirement {
    fn parse(text: &str) -> Self {
        let (spec, marker) = text.split_once(';').unwrap_or((text, ""));
        let end = spec.find(|c: char| " [(=<>!~".contains(c)).unwrap_or(spec.len());
        let version = spec.split_once("==").map(|(_, rest)| {
            rest.trim_start_matches('=')
                .trim()
                .trim_end_matches(')')
                .split(',')
                .next()
                .unwrap_or_default()
                .trim()
                .to_owned()
        });
        Self { name: normalise(&spec[..end]), version, marker: marker.trim().to_owned() }
    }

    /// `name==version`, as pip takes it.
    pub(super) fn spec(&self) -> String {
        self.version.as_ref().map_or_else(|| self.name.clone(), |version| format!("{}=={version}", self.name))
    }

    /// Whether its marker lets it apply on Linux with this CPU architecture.
    ///
    /// Markers of torch are `and` lists of equalities; a clause of any other kind is taken to hold, since a package too
    /// many is only a download, and one too few is a program that does not start. Extras never apply.
    pub(super) fn applies(&self, cpu_arch: &str) -> bool {
        if self.marker.contains(" or ") {
            return !self.marker.contains("extra");
        }
        self.marker.split(" and ").all(|clause| {
            let clause = clause.trim().trim_matches(['(', ')']);
            let Some((name, value)) = clause.split_once("==") else { return !clause.starts_with("extra") };
            let value = value.trim().trim_matches(['"', '\'']);
            match name.trim() {
                "platform_system" => value == "Linux",
                "sys_platform" => value == "linux",
                "platform_machine" => value == cpu_arch,
                "extra" => false,
                _ => true,
            }
        })
    }
}

/// A package's name as all spellings of it agree: lower case, runs of `-`, `_` and `.` as one `-`.
pub(super) fn normalise(name: &str) -> String {
    let mut text = String::with_capacity(name.len());
    for c in name.trim().chars() {
        if matches!(c, '-' | '_' | '.') {
            if !text.ends_with('-') {
                text.push('-');
            }
        } else {
            text.push(c.to_ascii_lowercase());
        }
    }
    text
}

/// What a wheel's file name says, when it is one: `name-version(-build)-python-abi-platform.whl`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct FileName {
    /// Normalised.
    pub name: String,
    /// With its local part.
    pub version: String,
    /// Such as `manylinux_2_28_x86_64`; several are joined with dots.
    pub platform: String,
}

impl FileName {
    /// Reads one.
    pub(super) fn parse(file: &str) -> Option<Self> {
        let parts: Vec<&str> = file.strip_suffix(".whl")?.split('-').collect();
        if !(5..=6).contains(&parts.len()) {
            return None;
        }
        // Some indexes write the `+` of a local version as `%2B` in file names.
        let version = parts[1].replace("%2B", "+").replace('_', "+");
        Some(Self { name: normalise(parts[0]), version, platform: parts[parts.len() - 1].to_owned() })
    }

    /// Whether it is for Linux on this CPU architecture.
    pub(super) fn is_for(&self, cpu_arch: &str) -> bool {
        self.platform.split('.').any(|tag| tag.contains("linux") && tag.ends_with(cpu_arch))
    }
}

/// The sha256 digests of a `RECORD`: lines of `path,sha256=<base64url>,size`, a path quoted where it holds a comma.
fn parse_record(text: &str) -> BTreeMap<String, [u8; 32]> {
    let parse = |line: &str| -> Option<(String, [u8; 32])> {
        let (rest, _size) = line.trim_end().rsplit_once(',')?;
        let (path, digest) = rest.rsplit_once(',')?;
        let path = match path.strip_prefix('"').and_then(|path| path.strip_suffix('"')) {
            Some(quoted) => quoted.replace("\"\"", "\""),
            None => path.to_owned(),
        };
        let digest = URL_SAFE_NO_PAD.decode(digest.strip_prefix("sha256=")?).ok()?;
        Some((path, digest.try_into().ok()?))
    };
    text.lines().filter_map(parse).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_requirement_applies_by_its_marker() {
        let text = r#"nvidia-cuda-runtime-cu12==12.8.90; platform_system == "Linux" and platform_machine == "x86_64""#;
        let requirement = Requirement::parse(text);
        assert_eq!(requirement.spec(), "nvidia-cuda-runtime-cu12==12.8.90");
        assert!(requirement.applies("x86_64"));
        assert!(!requirement.applies("aarch64"));
        assert!(!Requirement::parse(r#"pyyaml; extra == "pyyaml""#).applies("x86_64"));
        assert!(!Requirement::parse(r#"setuptools; platform_system == "Windows""#).applies("x86_64"));
        let bracketed = Requirement::parse("NVIDIA_cuBLAS[all] (==12.8.4.1)");
        assert_eq!((bracketed.spec().as_str(), bracketed.applies("aarch64")), ("nvidia-cublas==12.8.4.1", true));
        assert_eq!(Requirement::parse("filelock>=3").spec(), "filelock");
    }

    #[test]
    fn a_record_gives_the_digest_of_each_path() {
        let empty = "47DEQpj8HBSa-_TImW-5JCeuQeRkm5NMpJWZG3hSuFU";
        let text = format!("a/b.h,sha256={empty},0\r\n\"a,\"\"b\",sha256={empty},0\nx.dist-info/RECORD,,\n");
        let record = parse_record(&text);
        assert_eq!(record.keys().collect::<Vec<_>>(), ["a,\"b", "a/b.h"]);
        assert_eq!(torchlift::preflight::digest::hex(&record["a/b.h"])[..8], *"e3b0c442");
    }

    #[test]
    fn a_wheels_file_name_says_what_it_is_for() {
        let name = FileName::parse("torch-2.9.0%2Bcpu-cp311-cp311-manylinux_2_28_x86_64.whl").unwrap();
        assert_eq!((name.name.as_str(), name.version.as_str()), ("torch", "2.9.0+cpu"));
        assert!(name.is_for("x86_64") && !name.is_for("aarch64"));
        let two = "nvidia_cuda_cupti_cu12-12.8.90-py3-none-manylinux2014_x86_64.manylinux_2_17_x86_64.whl";
        assert_eq!(FileName::parse(two).unwrap().name, "nvidia-cuda-cupti-cu12");
        assert_eq!(FileName::parse("torch-2.9.0.tar.gz"), None);
        assert!(!FileName::parse("torch-2.9.0-cp311-none-macosx_11_0_arm64.whl").unwrap().is_for("arm64"));
    }
}
