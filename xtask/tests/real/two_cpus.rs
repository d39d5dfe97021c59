//! One run across an x86_64 and an aarch64 host: the trainer built for both, each against its own libtorch, and QEMU as the
//! runner of the second.

use serde_json::Value;
use torchlift_schema::read;

use crate::machine::{self, TARGET};
use crate::skip;
use crate::trainer::{RANKS, after, project, text, xtask};

#[test]
fn one_run_across_two_cpus_trains_all_ranks_to_one_set_of_weights() {
    let test = "one_run_across_two_cpus_trains_all_ranks_to_one_set_of_weights";
    let cross = match machine::find() {
        Ok(cross) => cross,
        Err((reason, remedy)) => return skip::skip(test, &reason, remedy),
    };
    for arch in ["x86_64", "aarch64"] {
        let fetched = xtask(&["libtorch", "fetch", "--arch", arch]);
        let told = text(&fetched.stderr);
        if told.contains("could not be fetched") {
            let reason = told.lines().find(|line| line.contains("caused by")).unwrap_or_default().trim().to_owned();
            return skip::skip(test, &reason, "make `python3 -m pip` able to reach a package index");
        }
        assert!(fetched.status.success(), "{told}");
    }
    // The kind of this machine is the demo's, and shares its build.
    let folder = tempfile::tempdir().unwrap();
    let cluster = folder.path().join("two cpus.toml");
    let cluster = cluster.to_str().unwrap();
    let host = |name: &str, kind: &str| {
        format!("[[host]]\nname = \"{name}\"\nkind = \"{kind}\"\npath = \"{}\"\nslots = 2\n", project())
    };
    let file = format!(
        "schema = 1\n[job.train]\nbin = \"tch-train\"\n[kind.here]\nlibtorch = \"auto\"\n\
         [kind.arm]\nlibtorch = \"auto\"\ntarget = \"{TARGET}\"\n{}{}{}",
        host("node-x86", "here"),
        host("node-arm", "arm"),
        cross.emulated()
    );
    fs_err::write(cluster, file).unwrap();

    let built = xtask(&["build", "--locked", "--cluster", cluster]);
    assert!(built.status.success(), "{}", built.status);
    for (node, arch) in [("node-x86", "x86_64"), ("node-arm", "aarch64")] {
        let file = project().join(format!("target/cluster/{node}/envelope.json"));
        let envelope = read::envelope(&fs_err::read(&file).unwrap()).unwrap();
        assert!(envelope.artifact.target.starts_with(arch), "{}", envelope.artifact.target);
        assert!(envelope.libtorch.unwrap().libraries.iter().any(|library| library.file == "libtorch_cpu.so"));
    }
    let verified = xtask(&["verify", "--cluster", cluster, "--format", "json"]);
    let report: Value = serde_json::from_slice(&verified.stdout).unwrap();
    assert_eq!(report["verdict"], "holds", "{report:#}");

    // Under an emulator a rank takes a while to load its libtorch.
    let launch = ["launch", "--no-build", "--cluster", cluster, "--", "--epochs", "2", "--timeout", "600"];
    let ran = xtask(&launch);
    assert!(ran.status.success(), "{}", ran.status);
    let stdout = text(&ran.stdout);
    let weights = after(&stdout, ": weights sha256 ");
    assert_eq!(weights.len(), RANKS, "each rank tells the digest of its weights");
    assert!(weights.iter().all(|digest| digest.len() == 64 && *digest == weights[0]), "{weights:?}");
    assert!(["node-x86", "node-arm"].iter().all(|host| stdout.contains(host)), "lines carry their hosts");
}
