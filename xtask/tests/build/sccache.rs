//! A compiler cache that is configured serves the builds, for their C++ part too.

use std::net::TcpListener;
use std::process::Command;

use serde_json::Value;

use crate::skip::skip;
use crate::support::Project;

/// A server of sccache's with a cache of its own.
struct Server {
    port: String,
    folder: String,
}

impl Server {
    /// Starts one; none where there is no sccache.
    fn start(project: &Project) -> Option<Self> {
        let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port().to_string();
        let folder = project.beside("sccache").to_str().unwrap().to_owned();
        let server = Self { port, folder };
        server.command("--start-server").output().is_ok_and(|output| output.status.success()).then_some(server)
    }

    fn env(&self) -> [(&str, &str); 4] {
        [
            ("SCCACHE_SERVER_PORT", &self.port),
            ("SCCACHE_DIR", &self.folder),
            ("SCCACHE_IDLE_TIMEOUT", "0"),
            // It caches no incremental compilation.
            ("CARGO_INCREMENTAL", "0"),
        ]
    }

    fn command(&self, argument: &str) -> Command {
        let mut command = Command::new("sccache");
        command.arg(argument).envs(self.env());
        command
    }

    /// How often something of a language was found in the cache.
    fn hits(&self, language: &str) -> u64 {
        let output = self.command("--show-stats").arg("--stats-format=json").output().unwrap();
        let stats: Value = serde_json::from_slice(&output.stdout).unwrap();
        stats["stats"]["cache_hits"]["counts"][language].as_u64().unwrap_or_default()
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.command("--stop-server").output();
    }
}

/// A project whose build script compiles C++ with the crate that all shims use.
fn with_shim() -> Project {
    let project = Project::linked();
    let manifest = fs_err::read_to_string(project.root.join("Cargo.toml")).unwrap();
    project.write("Cargo.toml", &format!("{manifest}\n[build-dependencies]\ncc = \"1\"\n"));
    fs_err::remove_file(project.root.join("Cargo.lock")).unwrap();
    project.write("src/shim.cpp", "extern \"C\" int shim() { return 42; }\n");
    let script = fs_err::read_to_string(project.root.join("build.rs")).unwrap();
    let compile = "fn main() {\n    cc::Build::new().cpp(true).file(\"src/shim.cpp\").compile(\"shim\");";
    project.write("build.rs", &script.replace("fn main() {", compile));
    project
}

#[test]
fn a_configured_sccache_serves_rust_and_cxx_of_another_build() {
    let project = with_shim();
    let Some(server) = Server::start(&project) else {
        skip(
            "a_configured_sccache_serves_rust_and_cxx_of_another_build",
            "there is no `sccache`",
            "`apt-get install sccache`, or `cargo install sccache`",
        );
        return;
    };
    project.write(".cargo/config.toml", "[build]\nrustc-wrapper = \"sccache\"\n");
    project.run_with(&["build"], &server.env()).ok();
    let before = (server.hits("Rust"), server.hits("C/C++"));
    let elsewhere = project.beside("elsewhere");
    let ran = project.run_with(&["build", "--builds-dir", elsewhere.to_str().unwrap()], &server.env()).ok();
    let after = (server.hits("Rust"), server.hits("C/C++"));
    assert!(after.0 > before.0 && after.1 > before.1, "{before:?} {after:?}\n{}", ran.stderr);
}
