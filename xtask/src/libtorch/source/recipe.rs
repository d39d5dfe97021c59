//! The recipe: a script of steps, each with a stamp, and a manifest that says what it is for.
//!
//! A step's stamp holds a digest of the step's own text and of all before it. So a second run skips what is done, goes on
//! in the middle of what is not, and does over what a changed request concerns. Must not run anything.

use std::collections::BTreeMap;
use std::io::{self, Write as _};
use std::os::unix::fs::PermissionsExt as _;

use camino::{Utf8Path, Utf8PathBuf};
use sha2::{Digest as _, Sha256};
use torchlift::preflight::digest::hex;
use torchlift_schema::VariantId;

use super::Request;
use super::machine::Machine;

/// The script's file name.
pub const SCRIPT: &str = "recipe.sh";
/// The manifest's file name.
pub const MANIFEST: &str = "recipe.json";
/// A reader refuses a higher one.
const VERSION: u32 = 1;

/// A recipe.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize)]
pub struct Recipe {
    /// Of this format.
    pub version: u32,
    /// The variant that it makes.
    pub id: VariantId,
    /// Torch version, with the toolkit behind it: `2.9.0+cu128`.
    pub torch: String,
    /// As `TORCH_CUDA_ARCH_LIST` takes them.
    pub archs: String,
    /// The repository.
    pub source: String,
    /// Compilers at once.
    pub jobs: usize,
    /// Switches of torch's build.
    pub switches: BTreeMap<String, String>,
    /// Variables of every step.
    pub env: BTreeMap<String, String>,
    /// In their order.
    pub steps: Vec<Step>,
}

/// One step.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize)]
pub struct Step {
    /// One word.
    pub name: &'static str,
    /// Shell commands, run in the work folder.
    pub commands: Vec<String>,
    /// Of this step and all before it.
    pub stamp: String,
}

/// A recipe cannot be written.
#[derive(Debug, thiserror::Error)]
#[error("the recipe cannot be written to `{folder}`")]
pub struct RecipeError {
    /// The folder.
    pub folder: Utf8PathBuf,
    /// Why.
    #[source]
    pub source: io::Error,
}

impl Recipe {
    pub(super) fn new(request: &Request, machine: &Machine, id: &VariantId, jobs: usize) -> Self {
        let nvcc = machine.nvcc.as_ref();
        let label: String =
            nvcc.map(|nvcc| nvcc.tool.version.iter().take(2).map(u32::to_string).collect()).unwrap_or_default();
        let torch = match label.as_str() {
            "" => request.version.clone(),
            label => format!("{}+cu{label}", request.version),
        };
        let switches = switches(request, machine);
        let mut recipe = Self {
            version: VERSION,
            id: id.clone(),
            torch,
            archs: request.archs.to_string(),
            source: request.source.clone(),
            jobs,
            switches,
            env: environment(request, machine, jobs),
            steps: Vec::new(),
        };
        let steps = recipe.commands(&request.version);
        // Neither another number of jobs nor another folder is a reason to do a step over.
        let mut digest = Sha256::new();
        let counted = recipe.env.iter().filter(|(name, _)| name.as_str() != "MAX_JOBS");
        counted.for_each(|(name, value)| digest.update(format!("{name}={value}\0")));
        recipe.steps = steps
            .into_iter()
            .map(|(name, commands)| {
                digest.update(format!("{name}\0"));
                commands.iter().for_each(|command| digest.update(format!("{command}\0")));
                Step { name, commands, stamp: hex(&digest.clone().finalize())[..16].to_owned() }
            })
            .collect();
        recipe
    }

    fn commands(&self, version: &str) -> Vec<(&'static str, Vec<String>)> {
        let (source, tag) = (quoted(&self.source), format!("refs/tags/v{version}"));
        let defines: String =
            self.switches.iter().map(|(name, value)| format!(" {}", quoted(&format!("-D{name}={value}")))).collect();
        vec![
            (
                "checkout",
                vec![
                    "[ -d source/.git ] || git init --quiet source".to_owned(),
                    // Locks of a git that was killed: nobody else works here, that is what the lock above is for.
                    "find source/.git -name '*.lock' -type f -delete".to_owned(),
                    format!("git -C source fetch --quiet --force --depth 1 -- {source} {tag}:{tag}"),
                    format!("git -C source checkout --quiet --force --detach {tag}"),
                ],
            ),
            (
                "submodules",
                vec![
                    "find source/.git -name '*.lock' -type f -delete".to_owned(),
                    "git -C source submodule --quiet sync --recursive".to_owned(),
                    "git -C source submodule --quiet update --init --recursive --force --depth 1 --jobs \"$MAX_JOBS\""
                        .to_owned(),
                ],
            ),
            (
                "configure",
                vec![
                    // What an earlier configuration remembered must not stay.
                    "rm -rf build".to_owned(),
                    format!("cmake -S source -B build -G Ninja -DCMAKE_INSTALL_PREFIX=\"$PWD/install\"{defines}"),
                ],
            ),
            ("compile", vec!["ninja -C build -j \"$MAX_JOBS\"".to_owned()]),
            (
                "install",
                vec![
                    "rm -rf install".to_owned(),
                    "cmake --install build".to_owned(),
                    format!("printf '%s\\n' {} > install/build-version", quoted(&self.torch)),
                ],
            ),
        ]
    }

    /// The script: runs on its own, in whatever folder it lies in.
    pub fn script(&self) -> String {
        let mut text = format!(
            "#!/bin/sh\n\
             # Builds libtorch {} for the GPU architectures {} as the variant {}.\n\
             # Written by Torchlift. Run it again, and it goes on where it stopped; `stamps` says what is done.\n\
             set -eu\n\
             cd \"$(dirname \"$0\")\"\n\
             mkdir -p stamps\n\n\
             exec 9> .lock\n\
             flock --nonblock 9 || {{ echo 'waiting for another run of this recipe' >&2; flock 9; }}\n\n\
             step() {{\n\
             \x20   if [ \"$(cat \"stamps/$1\" 2> /dev/null)\" = \"$2\" ]; then echo \"step $1: done before\" >&2; return 1; fi\n\
             \x20   echo \"step $1\" >&2\n\
             \x20   echo \"$1\" > stamps/.at\n\
             }}\n\
             stamp() {{\n\
             \x20   echo \"$2\" > \"stamps/.$1\"\n\
             \x20   mv \"stamps/.$1\" \"stamps/$1\"\n\
             }}\n\n",
            self.torch,
            self.archs.replace(';', " "),
            self.id
        );
        for (name, value) in &self.env {
            text.push_str(&format!("export {name}={}\n", quoted(value)));
        }
        for Step { name, commands, stamp } in &self.steps {
            let lines: String = commands.iter().map(|command| format!("    {command}\n")).collect();
            text.push_str(&format!("\nif step {name} {stamp}; then\n{lines}    stamp {name} {stamp}\nfi\n"));
        }
        text
    }

    /// Writes script and manifest, each whole or not at all: one that is running now keeps the script it began with.
    ///
    /// # Errors
    /// When the folder cannot be made or written.
    pub fn write(&self, folder: &Utf8Path) -> Result<(), RecipeError> {
        let failed = |source| RecipeError { folder: folder.to_owned(), source };
        fs_err::create_dir_all(folder).map_err(failed)?;
        let manifest = serde_json::to_string_pretty(self).map_err(|error| failed(error.into()))?;
        for (name, content, mode) in [(SCRIPT, self.script(), 0o777), (MANIFEST, format!("{manifest}\n"), 0o666)] {
            let mut temporary = tempfile::Builder::new()
                .prefix(".recipe-")
                .permissions(std::fs::Permissions::from_mode(mode))
                .tempfile_in(folder)
                .map_err(failed)?;
            temporary.write_all(content.as_bytes()).map_err(failed)?;
            temporary.persist(folder.join(name)).map_err(|error| failed(error.error))?;
        }
        Ok(())
    }
}

/// Our switches, and then those of the request.
fn switches(request: &Request, machine: &Machine) -> BTreeMap<String, String> {
    let mut switches: BTreeMap<String, String> = [
        ("BUILD_PYTHON", "OFF"),
        ("BUILD_SHARED_LIBS", "ON"),
        ("BUILD_TEST", "OFF"),
        ("CMAKE_BUILD_TYPE", "Release"),
        ("USE_CUDA", "ON"),
        ("USE_DISTRIBUTED", "ON"),
        ("USE_NCCL", "ON"),
        ("USE_NUMPY", "OFF"),
        ("USE_ROCM", "OFF"),
        ("USE_XPU", "OFF"),
    ]
    .map(|(name, value)| (name.to_owned(), value.to_owned()))
    .into();
    if let Some(nvcc) = &machine.nvcc {
        switches.insert("CMAKE_CUDA_COMPILER".to_owned(), nvcc.tool.path.to_string());
        switches.insert("CUDAToolkit_ROOT".to_owned(), nvcc.toolkit.to_string());
    }
    let tools = [("CMAKE_C_COMPILER", "gcc"), ("CMAKE_CXX_COMPILER", "g++"), ("Python_EXECUTABLE", "python3")];
    for (name, tool) in tools {
        if let Some(tool) = machine.tool(tool) {
            switches.insert(name.to_owned(), tool.path.to_string());
        }
    }
    switches.extend(request.switches.iter().cloned());
    switches
}

fn environment(request: &Request, machine: &Machine, jobs: usize) -> BTreeMap<String, String> {
    let mut env = BTreeMap::from([
        ("MAX_JOBS".to_owned(), jobs.to_string()),
        ("PYTORCH_BUILD_NUMBER".to_owned(), "1".to_owned()),
        ("PYTORCH_BUILD_VERSION".to_owned(), request.version.clone()),
        ("TORCH_CUDA_ARCH_LIST".to_owned(), request.archs.to_string()),
    ]);
    if let Some(nvcc) = &machine.nvcc {
        env.insert("CUDA_HOME".to_owned(), nvcc.toolkit.to_string());
    }
    env
}

/// One word for a shell, whatever is in it.
fn quoted(text: &str) -> String {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "-_./:=+@%,".contains(c);
    if !text.is_empty() && text.chars().all(is_plain) {
        return text.to_owned();
    }
    format!("'{}'", text.replace('\'', "'\\''"))
}

#[cfg(test)]
mod tests {
    use super::super::Archs;
    use super::*;

    fn request(archs: &str) -> Request {
        Request {
            archs: archs.parse::<Archs>().unwrap(),
            version: "2.9.0".to_owned(),
            id: None,
            source: "/srv/mein Spiegel's.git".to_owned(),
            work: "/work".into(),
            jobs: None,
            switches: vec![("USE_NCCL".to_owned(), "OFF".to_owned())],
        }
    }

    fn recipe(archs: &str, jobs: usize) -> Recipe {
        Recipe::new(&request(archs), &Machine::default(), &"builds/x".parse().unwrap(), jobs)
    }

    #[test]
    fn a_step_is_done_over_when_it_or_one_before_it_changes_and_not_for_other_jobs() {
        let stamps = |recipe: &Recipe| recipe.steps.iter().map(|step| step.stamp.clone()).collect::<Vec<_>>();
        let first = recipe("6.1;12.0", 2);
        assert_eq!(stamps(&first), stamps(&recipe("6.1;12.0", 16)));
        let other = recipe("6.1", 2);
        assert!(stamps(&first).iter().zip(stamps(&other)).all(|(a, b)| *a != b));
        let mut switched = request("6.1;12.0");
        switched.switches.clear();
        let switched = Recipe::new(&switched, &Machine::default(), &"builds/x".parse().unwrap(), 2);
        assert_eq!(stamps(&switched)[..2], stamps(&first)[..2], "a checkout does not depend on switches");
        assert_ne!(stamps(&switched)[2], stamps(&first)[2]);
    }

    #[test]
    fn words_reach_the_steps_as_they_are() {
        let recipe = recipe("6.1;12.0", 3);
        let script = recipe.script();
        assert!(script.contains("'/srv/mein Spiegel'\\''s.git' refs/tags/v2.9.0:refs/tags/v2.9.0"), "{script}");
        assert!(script.contains("export TORCH_CUDA_ARCH_LIST='6.1;12.0'\n"), "{script}");
        assert!(script.contains(" -DUSE_NCCL=OFF"), "a switch of the request is the last word: {script}");
        assert!(script.contains("export MAX_JOBS=3\n"), "{script}");
        let folder = tempfile::tempdir().unwrap();
        let folder = Utf8Path::from_path(folder.path()).unwrap();
        recipe.write(folder).unwrap();
        duct::cmd!("sh", "-n", folder.join(SCRIPT).as_std_path()).run().unwrap();
        let manifest = fs_err::read_to_string(folder.join(MANIFEST)).unwrap();
        let manifest: serde_json::Value = serde_json::from_str(&manifest).unwrap();
        assert_eq!(
            (manifest["steps"][0]["name"].as_str(), manifest["archs"].as_str()),
            (Some("checkout"), Some("6.1;12.0"))
        );
    }
}
