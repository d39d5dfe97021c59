//! What an image is and has: its id from the engine, cargo, rustc, compilers and C library from a look inside.
//!
//! The look is remembered by the image's id, never by its name, which may mean another image tomorrow. Everything that would
//! end a build later, and can be known before it, is a finding here, with the engine's own words.

use std::io;
use std::process::Output;
use std::time::Duration;

use camino::{Utf8Path, Utf8PathBuf};
use sha2::{Digest as _, Sha256};
use torchlift::preflight::digest::hex;
use torchlift_schema::{Finding, Place};

use super::mounts::{Mount, Sources, of_variant};
use super::{ContainerFacts, Engine, search_path};
use crate::cluster::{Container, Kind};
use crate::libtorch::Variant;
use crate::toolchain::{Env, RustcFacts};

/// How long the engine may take to say what an image is.
const INSPECTION: Duration = Duration::from_secs(120);
/// How long the look inside may take: an image's first start unpacks it on some file systems.
const LOOK: Duration = Duration::from_secs(120);
/// Which look was taken: a remembered one of another number is not believed.
const LOOK_REVISION: &str = "look 1";
/// Lines of an engine's words that a finding has.
const MOST_LINES: usize = 4;

/// What a look inside says, one fact a line: a name, a tab, a value. `$1` is this machine's toolchain, `$2` the target, the
/// rest are compilers to look for.
const SCRIPT: &str = r#"
say() { printf '%s\t%s\n' "$1" "$2"; }
toolchain=$1 target=$2
shift 2
cargo=$(command -v cargo) && command -v rustc >/dev/null || cargo=
say cargo "$cargo"
if [ -z "$cargo" ] && [ -n "$toolchain" ]; then PATH=$toolchain/bin:$PATH; fi
say glibc "$(getconf GNU_LIBC_VERSION 2>/dev/null)"
for tool; do command -v "$tool" >/dev/null || say missing "$tool"; done
if command -v rustc >/dev/null; then
  libdir=$(rustc --print target-libdir --target "$target" 2>/dev/null)
  for file in "$libdir"/libstd-*; do [ -e "$file" ] && say std yes; done
  said=$(rustc -vV 2>&1) || say fault "$said"
  say rustc "$(printf '%s' "$said" | tr '\n' '\036')"
fi
exit 0
"#;

/// What is asked about the container of one kind.
#[derive(Debug)]
pub struct Question<'a> {
    /// The kind.
    pub kind: &'a Kind,
    /// Its container.
    pub container: &'a Container,
    /// Its libtorch.
    pub variant: Option<&'a Variant>,
    /// What all builds of the workspace need.
    pub sources: &'a Sources,
    /// This machine's rustc.
    pub rustc: &'a RustcFacts,
    /// The folder of this machine's toolchain; none where it has none that could be mounted.
    pub toolchain: Option<&'a Utf8Path>,
    /// The caller's environment.
    pub env: &'a Env,
    /// The folder in which looks are remembered.
    pub cache: Option<&'a Utf8Path>,
}

/// What the engine says of an image.
struct Inspected {
    id: String,
    search_path: Option<String>,
}

/// What a look inside said.
#[derive(Default)]
struct Look {
    cargo: Option<String>,
    glibc: Option<String>,
    missing: Vec<String>,
    has_std: bool,
    fault: Option<String>,
    rustc: Option<RustcFacts>,
}

impl Question<'_> {
    /// Asks the engine, and looks inside where that was not done before.
    ///
    /// # Errors
    /// With a finding, placed at `container` of the kind.
    pub fn ask(&self, place: &Place) -> Result<ContainerFacts, Box<Finding>> {
        let engine = Engine::of(self.container);
        let inspected = self.inspect(&engine, place)?;
        let mut mounts = self.mounts(place)?;
        let mut options = engine.run_options();
        options.extend(self.container.args.iter().cloned());
        let look = self.look(&engine, &inspected, &options, place)?;
        let toolchain = self.toolchain.filter(|_| look.cargo.is_none());
        let image = &self.container.image;
        let has_rust = look.fault.is_none() && (look.cargo.is_some() || toolchain.is_some());
        let Some(rustc) = look.rustc.clone().filter(|_| has_rust) else {
            return Err(self.no_rust(image, &look, place));
        };
        toolchain.into_iter().for_each(|folder| super::mounts::add(&mut mounts, Mount::read_only(folder)));
        Ok(ContainerFacts {
            engine,
            image: image.clone(),
            id: inspected.id,
            options,
            search_path: search_path(inspected.search_path.as_deref(), toolchain),
            cargo_home: self.sources.cargo_home.clone(),
            cargo: match (&look.cargo, toolchain) {
                (Some(cargo), _) => cargo.clone(),
                (None, Some(toolchain)) => toolchain.join("bin/cargo").into_string(),
                (None, None) => "cargo".to_owned(),
            },
            rustc,
            has_std: look.has_std,
            toolchain: toolchain.map(Utf8Path::to_owned),
            glibc: look.glibc,
            missing: look.missing,
            mounts,
            has_sources: self.sources.is_whole,
        })
    }

    fn inspect(&self, engine: &Engine, place: &Place) -> Result<Inspected, Box<Finding>> {
        let image = &self.container.image;
        let shown = engine.words().join(" ");
        let args = ["image", "inspect", image].map(str::to_owned);
        let output = engine.ask(self.env, &args, INSPECTION).map_err(|error| self.no_engine(engine, &error, place))?;
        let fails = |words: String| {
            let message = format!("`{shown} image inspect {image}` failed: {words}");
            let remedy =
                "mend what it names; `engine` takes the engine's own options too: `[\"podman\", \"--runtime=runc\"]`";
            Box::new(Finding::error("container-engine-fails", place.clone(), message).remedy(remedy))
        };
        if !output.status.success() {
            let words = words(&output);
            let is_missing = ["no such image", "image not known", "no such object"];
            if is_missing.iter().any(|text| words.to_lowercase().contains(text)) {
                let message = format!("the image `{image}` is not on this machine: {words}");
                let remedy = format!(
                    "`{shown} pull {image}`, or make it: nothing is pulled unasked (docs/containers.md makes one without a registry)"
                );
                return Err(Box::new(Finding::error("container-image-missing", place.clone(), message).remedy(remedy)));
            }
            return Err(fails(words));
        }
        Inspected::parse(&output.stdout).ok_or_else(|| fails("it names no id".to_owned()))
    }

    fn no_engine(&self, engine: &Engine, error: &io::Error, place: &Place) -> Box<Finding> {
        let program = engine.program();
        if error.kind() != io::ErrorKind::NotFound {
            let message = format!("`{program}` cannot be asked: {error}");
            let finding = Finding::error("container-engine-fails", place.clone(), message);
            return Box::new(finding.remedy(format!("see what `{program} info` says")));
        }
        let message = format!("the engine `{program}` is not on this machine");
        let remedy = if engine.is_podman() {
            "install it: `apt-get install podman runc`, or your system's package"
        } else {
            "install it from your system's packages, or use `engine = \"podman\"`, which needs no daemon"
        };
        Box::new(Finding::error("container-engine-missing", place.clone(), message).remedy(remedy))
    }

    /// All that is seen inside, or a finding for what no engine can mount.
    fn mounts(&self, place: &Place) -> Result<Vec<Mount>, Box<Finding>> {
        let mut mounts = self.sources.mounts.clone();
        self.variant.into_iter().flat_map(of_variant).for_each(|mount| super::mounts::add(&mut mounts, mount));
        let toolchain = self.toolchain.map(Mount::read_only);
        let bad = mounts.iter().chain(&toolchain).find(|mount| mount.volume().is_none());
        let Some(bad) = bad.map(|mount| mount.path.clone()) else { return Ok(mounts) };
        let message = format!("`{bad}` cannot be mounted in a container: engines split at `:`");
        let finding = Finding::error("container-path", place.clone(), message);
        Err(Box::new(finding.remedy("move it to a path without `:`")))
    }

    fn look(
        &self,
        engine: &Engine,
        inspected: &Inspected,
        options: &[String],
        place: &Place,
    ) -> Result<Look, Box<Finding>> {
        let toolchain = self.toolchain.map(Utf8Path::as_str).unwrap_or_default();
        let target = self.kind.target.as_ref().unwrap_or(&self.rustc.host);
        let mut args = vec!["run".to_owned(), "--rm".to_owned(), "--pull=never".to_owned()];
        args.extend(options.iter().cloned());
        args.extend(
            self.toolchain.map(Mount::read_only).as_ref().and_then(Mount::volume).map(|it| format!("--volume={it}")),
        );
        args.extend(["--workdir=/", "--entrypoint=/bin/sh", &inspected.id, "-c", SCRIPT, "sh"].map(str::to_owned));
        args.extend([toolchain, target].map(str::to_owned));
        args.extend(self.compilers());
        let remembered = self.remembered(engine, &args);
        if let Some(text) = remembered.as_deref().and_then(|file| crate::file::read_to_string(file).ok()) {
            return Ok(Look::parse(&text));
        }
        let output = engine.ask(self.env, &args, LOOK);
        let said = match &output {
            Ok(output) if output.status.success() => Ok(String::from_utf8_lossy(&output.stdout).into_owned()),
            Ok(output) => Err(words(output)),
            Err(error) => Err(error.to_string()),
        };
        let said = said.map_err(|words| {
            let message = format!("no container of `{}` can be run: {words}", self.container.image);
            let remedy = "mend what it names: `args` of the container are options of `run`, `engine = [\"podman\", \"--runtime=runc\"]` \
                          has those of the engine, and the image needs a `/bin/sh`";
            Box::new(Finding::error("container-run-fails", place.clone(), message).remedy(remedy))
        })?;
        if let Some(file) = &remembered {
            remember(file, &said);
        }
        Ok(Look::parse(&said))
    }

    /// The compilers that a build asks for: the linker of every Rust program, and what compiles C++ where there is a libtorch.
    fn compilers(&self) -> Vec<String> {
        let named =
            |name: &str, usual: &str| self.kind.build_env.get(name).cloned().unwrap_or_else(|| usual.to_owned());
        let mut compilers = vec!["cc".to_owned()];
        if self.variant.is_some() {
            compilers.push(named("CXX", "c++"));
        }
        compilers
    }

    /// Where a look is remembered: by the image's id and everything else that it depends on.
    fn remembered(&self, engine: &Engine, args: &[String]) -> Option<Utf8PathBuf> {
        let mut digest = Sha256::new();
        let words = engine.words().iter().chain(args).map(String::as_str);
        for word in words.chain([self.rustc.verbose_version.as_str(), LOOK_REVISION]) {
            digest.update((word.len() as u64).to_le_bytes());
            digest.update(word);
        }
        Some(self.cache?.join("containers").join(&hex(&digest.finalize())[..32]))
    }

    fn no_rust(&self, image: &str, look: &Look, place: &Place) -> Box<Finding> {
        let (message, remedy) = match (&look.fault, self.toolchain) {
            (Some(fault), Some(toolchain)) if look.cargo.is_none() => (
                format!("this machine's toolchain `{toolchain}` does not run in `{image}`: {}", first_lines(fault)),
                "use an image with a cargo of its own, or with a C library that this toolchain runs on (glibc 2.17 for rustup's)",
            ),
            (Some(fault), _) => (
                format!("`rustc` of `{image}` says nothing of itself: {}", first_lines(fault)),
                "mend the image: `rustc -vV` has to answer in it",
            ),
            (None, _) => (
                format!("`{image}` has no `cargo` and `rustc`, and this machine's toolchain is part of its system"),
                "use an image with both, or install Rust here from https://rustup.rs: such a toolchain can be mounted",
            ),
        };
        Box::new(Finding::error("container-cargo-missing", place.clone(), message).remedy(remedy))
    }
}

impl Inspected {
    /// What both engines say alike: an array of one image.
    fn parse(text: &[u8]) -> Option<Self> {
        let said: serde_json::Value = serde_json::from_slice(text).ok()?;
        let image = said.get(0)?;
        let id = image.get("Id")?.as_str()?;
        let env = image.pointer("/Config/Env").and_then(serde_json::Value::as_array);
        let search_path = env.into_iter().flatten().filter_map(serde_json::Value::as_str);
        let search_path = search_path.filter_map(|variable| variable.strip_prefix("PATH=")).next_back();
        let id = id.rsplit(':').next().unwrap_or(id);
        let is_id = !id.is_empty() && id.bytes().all(|byte| byte.is_ascii_hexdigit());
        is_id.then(|| Self { id: id.to_owned(), search_path: search_path.map(str::to_owned) })
    }
}

impl Look {
    fn parse(text: &str) -> Self {
        let mut look = Self::default();
        for (name, value) in text.lines().filter_map(|line| line.split_once('\t')) {
            let value = value.trim();
            match name {
                "cargo" if value.starts_with('/') => look.cargo = Some(value.to_owned()),
                "glibc" => look.glibc = value.strip_prefix("glibc ").map(str::to_owned),
                "missing" => look.missing.push(value.to_owned()),
                "std" => look.has_std = true,
                "fault" => look.fault = Some(value.to_owned()),
                "rustc" => look.rustc = RustcFacts::parse(&value.replace('\u{1e}', "\n")),
                _ => {}
            }
        }
        look
    }
}

/// Writes what a look said; a look that cannot be remembered is taken again.
fn remember(file: &Utf8Path, text: &str) {
    let write = || -> io::Result<()> {
        let folder = file.parent().unwrap_or(Utf8Path::new("."));
        fs_err::create_dir_all(folder)?;
        let mut temp = tempfile::NamedTempFile::new_in(folder)?;
        io::Write::write_all(&mut temp, text.as_bytes())?;
        temp.persist(file).map(drop).map_err(|error| error.error)
    };
    let _ = write();
}

/// What an engine said, the end of it in one line.
fn words(output: &Output) -> String {
    let said = [&output.stderr, &output.stdout].map(|bytes| String::from_utf8_lossy(bytes).trim().to_owned());
    let said = said.into_iter().find(|text| !text.is_empty());
    said.map_or_else(|| format!("it said nothing and ended with {}", output.status), |text| last_lines(&text))
}

fn lines(text: &str) -> Vec<&str> {
    text.lines().map(str::trim).filter(|line| !line.is_empty()).collect()
}

fn last_lines(text: &str) -> String {
    let lines = lines(text);
    lines[lines.len().saturating_sub(MOST_LINES)..].join("; ")
}

fn first_lines(text: &str) -> String {
    lines(text).into_iter().take(MOST_LINES).collect::<Vec<_>>().join("; ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_words_of_both_engines_about_an_image_are_understood() {
        let podman = br#"[{"Id": "ab12", "Config": {"Env": ["A=1", "PATH=/x:/y"]}}]"#;
        let docker = br#"[{"Id": "sha256:ab12", "Config": {"Env": null}}]"#;
        let both = [&podman[..], &docker[..]].map(|text| Inspected::parse(text).unwrap());
        assert!(both.iter().all(|image| image.id == "ab12"));
        assert_eq!(both[0].search_path.as_deref(), Some("/x:/y"));
        assert_eq!(both[1].search_path, None);
        for bad in [&b"[]"[..], b"{}", b"", br#"[{"Id": "sha256:"}]"#, br#"[{"Id": "a b"}]"#] {
            assert!(Inspected::parse(bad).is_none());
        }
    }

    #[test]
    fn a_look_inside_tells_tools_the_c_library_and_what_is_missing() {
        let text = "cargo\t\nglibc\tglibc 2.31\nmissing\tc++\nstd\tyes\nnoise\nrustc\trustc 1.95.0\u{1e}host: a-b-linux-gnu\u{1e}\n";
        let look = Look::parse(text);
        assert_eq!((look.cargo, look.glibc.as_deref(), look.has_std), (None, Some("2.31"), true));
        assert_eq!(look.missing, ["c++"]);
        assert_eq!(look.rustc.unwrap().host, "a-b-linux-gnu");
        assert!(Look::parse("fault\tFATAL: kernel too old\n").fault.is_some());
    }
}
