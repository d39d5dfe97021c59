//! What many hosts cost above few, and an edit above cargo's own.
//!
//! The project is a copy of the demo's, with cluster files of its own. Warm figures use the builds that the demo has made;
//! cold ones make each build from nothing, which takes minutes.

use std::ffi::OsString;
use std::process::Command;
use std::time::Duration;

use camino::{Utf8Path, Utf8PathBuf};
use serde_json::Value;
use torchlift_schema::exit_code;

use super::build::{build, cargo_of_plan, time_of};
use super::{Bound, Figure, median_ms, timed};
use crate::commands::Context;
use crate::error::CommandError;

const ROUNDS: usize = 7;
/// Hosts of the larger cluster.
const MANY: usize = 32;

/// A copy of the demo's project in a scratch folder.
#[derive(Debug)]
pub struct Project {
    xtask: Utf8PathBuf,
    folder: Utf8PathBuf,
    /// Where the demo's builds are.
    builds: Utf8PathBuf,
    main: String,
}

impl Project {
    /// Copies it from the checkout at `root` into `scratch`.
    ///
    /// # Errors
    /// When a file cannot be copied.
    pub fn copy(xtask: &Utf8Path, root: &Utf8Path, scratch: &Utf8Path) -> Result<Self, CommandError> {
        let from = root.join("fixtures/projects/tch-train");
        let folder = scratch.join("many hosts");
        let cannot = |error: std::io::Error| {
            CommandError::new(exit_code::BUILD, "the demo's project cannot be copied").because(error)
        };
        let is_wanted = |entry: &walkdir::DirEntry| entry.file_name() != "target" && entry.file_name() != ".torchlift";
        for entry in walkdir::WalkDir::new(&from).into_iter().filter_entry(is_wanted) {
            let entry = entry.map_err(|error| cannot(error.into()))?;
            let Ok(path) = entry.path().strip_prefix(&from) else { continue };
            let to = folder.as_std_path().join(path);
            if entry.file_type().is_dir() {
                fs_err::create_dir_all(to).map_err(cannot)?;
            } else {
                fs_err::copy(entry.path(), to).map_err(cannot)?;
            }
        }
        let main = fs_err::read_to_string(folder.join("src/main.rs")).map_err(cannot)?;
        let builds = from.join("target/torchlift/builds");
        Ok(Self { xtask: xtask.to_owned(), folder, builds, main })
    }

    fn write(&self, file: &str, text: &str) -> Result<(), CommandError> {
        fs_err::write(self.folder.join(file), text)
            .map_err(|error| CommandError::new(exit_code::BUILD, format!("cannot write `{file}`")).because(error))
    }

    /// A cluster of `hosts` hosts, spread over `kinds` kinds that cannot share a build.
    fn cluster(&self, hosts: usize, kinds: usize) -> Result<(), CommandError> {
        let mut text = "schema = 1\n[job.train]\nbin = \"tch-train\"\n".to_owned();
        for kind in 0..kinds {
            text.push_str(&format!("[kind.k{kind}]\nlibtorch = \"auto\"\nbuild_env = {{ BENCH_KIND = \"{kind}\" }}\n"));
        }
        for host in 0..hosts {
            let kind = host % kinds;
            text.push_str(&format!("[[host]]\nname = \"h{host:02}\"\nkind = \"k{kind}\"\npath = \".\"\nslots = 1\n"));
        }
        self.write("cluster.toml", &text)
    }

    /// Makes the trainer another one, by one line.
    fn edit(&self, number: usize) -> Result<(), CommandError> {
        self.write("src/main.rs", &format!("{}\nconst _: usize = {number};\n", self.main))
    }

    fn build(&self, builds: &Utf8Path) -> Command {
        build(&self.xtask, &self.folder, &["--builds-dir", builds.as_str()])
    }

    /// Figures of builds that are there already.
    ///
    /// # Errors
    /// When a build fails.
    pub fn warm(&self, context: &Context) -> Result<Vec<Figure>, CommandError> {
        self.cluster(MANY, 1)?;
        time_of(&mut self.build(&self.builds))?;
        let options = ["--builds-dir", self.builds.as_str()];
        let mut bare = cargo_of_plan(&self.xtask, &self.folder, &options, context)?;
        let (mut ours, mut cargo) = (Vec::new(), Vec::new());
        for _ in 0..ROUNDS {
            cargo.push(time_of(&mut bare)?);
            ours.push(time_of(&mut self.build(&self.builds))?);
        }
        let idle = |bound| Figure {
            name: format!("xtask build with nothing to do, {MANY} hosts of one kind"),
            ours: median_ms(&ours),
            yardstick: Some(("the one cargo call in it".into(), median_ms(&cargo))),
            unit: "ms",
            bound,
        };
        let mut figures = vec![idle(Bound::Above(400.0)), idle(Bound::Absolute(1000.0))];
        let verified = self.verification(MANY)?;
        figures.push(Figure {
            name: format!("verification of one program for {MANY} hosts of one kind"),
            ours: verified,
            yardstick: None,
            unit: "ms",
            bound: Bound::Absolute(500.0),
        });
        self.cluster(2, 1)?;
        let (mut ours, mut cargo) = (Vec::new(), Vec::new());
        for round in 0..ROUNDS {
            self.edit(2 * round + 1)?;
            cargo.push(time_of(&mut bare)?);
            self.edit(2 * round + 2)?;
            ours.push(time_of(&mut self.build(&self.builds))?);
        }
        figures.push(Figure {
            name: "xtask build after an edit of one line, two hosts of one kind".into(),
            ours: median_ms(&ours),
            yardstick: Some(("the one cargo call in it, after such an edit".into(), median_ms(&cargo))),
            unit: "ms",
            bound: Bound::Above(500.0),
        });
        self.cluster(1, 1)?;
        time_of(&mut self.build(&self.builds))?;
        figures.push(Figure {
            name: "verification of one program against one libtorch".into(),
            ours: self.verification(1)?,
            yardstick: Some(("`ldd -r`, the loader itself".into(), self.loader()?)),
            unit: "ms",
            bound: Bound::Absolute(150.0),
        });
        Ok(figures)
    }

    /// What `xtask verify` takes for its checks, of so many hosts that were built.
    fn verification(&self, hosts: usize) -> Result<f64, CommandError> {
        let mut command = Command::new(&self.xtask);
        command.args(["verify", "--format", "json"]).current_dir(&self.folder);
        let unexpected =
            || CommandError::new(exit_code::BUILD, format!("`xtask verify` told nothing of {hosts} hosts"));
        let mut times = Vec::new();
        for _ in 0..ROUNDS {
            let (output, _) = timed(&mut command)?;
            let report: Value = serde_json::from_slice(&output.stdout).map_err(|error| unexpected().because(error))?;
            if report["hosts"].as_array().map_or(0, Vec::len) != hosts {
                return Err(unexpected());
            }
            times.push(Duration::from_millis(report["elapsed_ms"].as_u64().ok_or_else(unexpected)?));
        }
        Ok(median_ms(&times))
    }

    /// What the dynamic loader itself takes to load the first host's program and to look up every symbol of it.
    fn loader(&self) -> Result<f64, CommandError> {
        let file = self.folder.join("target/cluster/h00/envelope.json");
        let unreadable =
            || CommandError::new(exit_code::BUILD, format!("`{file}` says nothing of the program that was built"));
        let text = fs_err::read(&file).map_err(|error| unreadable().because(error))?;
        let envelope: Value = serde_json::from_slice(&text).map_err(|error| unreadable().because(error))?;
        let word = |key: &str| envelope[key].as_str().ok_or_else(unreadable);
        let mut command = Command::new("ldd");
        command.arg("-r").arg(self.folder.join(word("bin")?)).env("LD_LIBRARY_PATH", word("ld_library_path")?);
        let times = (0..ROUNDS).map(|_| time_of(&mut command)).collect::<Result<Vec<_>, _>>()?;
        Ok(median_ms(&times))
    }

    /// Figures of builds from nothing.
    ///
    /// # Errors
    /// When a build fails.
    pub fn cold(&self, context: &Context) -> Result<Vec<Figure>, CommandError> {
        let mut figures = Vec::new();
        let mut many_of_one = None;
        for (few, kinds, limit) in [(1, 1, 1.03), (2, 2, 1.05)] {
            let few_hosts = self.build_from_nothing(few, kinds)?;
            let many_hosts = self.build_from_nothing(MANY, kinds)?;
            many_of_one.get_or_insert(many_hosts);
            figures.push(Figure {
                name: format!("xtask build from nothing, {MANY} hosts with {kinds} distinct build(s)"),
                ours: median_ms(&[many_hosts]),
                yardstick: Some((format!("{few} host(s) with as many"), median_ms(&[few_hosts]))),
                unit: "ms",
                bound: Bound::Ratio(limit),
            });
        }
        if let Some(ours) = many_of_one {
            let theirs = self.per_host_from_nothing(2, context)?;
            figures.push(Figure {
                name: format!("xtask build from nothing, {MANY} hosts of one kind"),
                ours: median_ms(&[ours]),
                yardstick: Some((
                    "the first 2 of them as `fdl` builds, cargo once a host".into(),
                    median_ms(&[theirs]),
                )),
                unit: "ms",
                bound: Bound::Ratio(0.6),
            });
        }
        Ok(figures)
    }

    /// The command lines that `fdl` 0.8 runs for its hosts, one after the other, each into a folder of its own. Its launch part
    /// wants hosts to reach, so that the commands are run without it.
    fn per_host_from_nothing(&self, hosts: usize, context: &Context) -> Result<Duration, CommandError> {
        self.cluster(hosts, 1)?;
        let options = ["--builds-dir", self.builds.as_str()];
        let plan = cargo_of_plan(&self.xtask, &self.folder, &options, context)?;
        let env: Vec<(OsString, OsString)> =
            plan.get_envs().filter_map(|(name, value)| Some((name.to_owned(), value?.to_owned()))).collect();
        let mut taken = Duration::ZERO;
        for host in 0..hosts {
            let target = self.folder.join("one a host").join(host.to_string());
            let mut command = Command::new("sh");
            command.args(["-c", "cargo build --release --bin tch-train"]).current_dir(&self.folder);
            command.env_clear().envs(env.iter().cloned()).env("CARGO_TARGET_DIR", target);
            if let Some((_, libtorch)) = env.iter().find(|(name, _)| name == "LIBTORCH") {
                command.env("LIBTORCH_PATH", libtorch);
            }
            taken += time_of(&mut command)?;
        }
        Ok(taken)
    }

    fn build_from_nothing(&self, hosts: usize, kinds: usize) -> Result<Duration, CommandError> {
        self.cluster(hosts, kinds)?;
        let folder = self.folder.join("builds from nothing");
        let published = self.folder.join("target/cluster");
        for made in [&folder, &published] {
            if made.exists() {
                fs_err::remove_dir_all(made).map_err(|error| {
                    CommandError::new(exit_code::BUILD, "what the last figure left cannot be removed").because(error)
                })?;
            }
        }
        time_of(&mut self.build(&folder))
    }
}
