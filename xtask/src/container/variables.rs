//! Which variables of the caller reach the inside of a container, and where programs are looked for there.
//!
//! What names a tool, a folder or a flag of this machine stays outside: the image has its own. A kind's `build_env` and
//! `rustflags` are for the inside, and are passed whole by the plan.

use camino::Utf8Path;
use torchlift::env_vars::TORCHLIFT_INTERNAL_BUILD_LOCK;

use crate::toolchain::Env;

/// What steers cargo and is true on every machine, by how the name begins.
const PASSED_PREFIXES: &[&str] = &["CARGO_HTTP_", "CARGO_NET_", "CARGO_PROFILE_", "CARGO_TERM_"];

/// The same, whole names. The network is this machine's, and so are the proxies to it.
const PASSED: &[&str] = &[
    "ALL_PROXY",
    "CARGO_BUILD_JOBS",
    "CARGO_INCREMENTAL",
    "HTTPS_PROXY",
    "HTTP_PROXY",
    "NO_COLOR",
    "NO_PROXY",
    "RUST_BACKTRACE",
    "SOURCE_DATE_EPOCH",
    TORCHLIFT_INTERNAL_BUILD_LOCK,
    "all_proxy",
    "http_proxy",
    "https_proxy",
    "no_proxy",
];

/// Where programs are looked for in an image that does not say, as engines have it.
const DEFAULT_PATH: &str = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";

/// What of the caller's environment a build in a container sees.
pub fn passed(env: &Env) -> Env {
    let is_passed =
        |name: &str| PASSED.contains(&name) || PASSED_PREFIXES.iter().any(|prefix| name.starts_with(prefix));
    let kept = env.iter().filter(|(name, _)| name.to_str().is_some_and(is_passed));
    kept.map(|(name, value)| (name.clone(), value.clone())).collect()
}

/// The `PATH` inside: the image's own, and a mounted toolchain in front.
pub fn search_path(of_image: Option<&str>, toolchain: Option<&Utf8Path>) -> String {
    let own = of_image.filter(|path| !path.is_empty()).unwrap_or(DEFAULT_PATH);
    toolchain.map_or_else(|| own.to_owned(), |toolchain| format!("{toolchain}/bin:{own}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_names_a_tool_or_a_flag_of_this_machine_stays_outside() {
        let env: Env =
            ["CC", "RUSTFLAGS", "PATH", "HOME", "MY_SECRET", "LD_LIBRARY_PATH", "CARGO_REGISTRY_TOKEN", "NO_COLOR"]
                .into_iter()
                .chain(["CARGO_NET_OFFLINE", "CARGO_PROFILE_RELEASE_LTO", "RUSTC_WRAPPER", "CARGO_TARGET_DIR"])
                .map(|name| (name.into(), "x".into()))
                .collect();
        let passed = passed(&env);
        let names: Vec<_> = passed.keys().map(|name| name.to_string_lossy().into_owned()).collect();
        assert_eq!(names, ["CARGO_NET_OFFLINE", "CARGO_PROFILE_RELEASE_LTO", "NO_COLOR"]);
    }

    #[test]
    fn a_mounted_toolchain_stands_before_what_the_image_has() {
        assert_eq!(search_path(Some("/a:/b"), Some(Utf8Path::new("/t"))), "/t/bin:/a:/b");
        assert_eq!(search_path(Some(""), None), DEFAULT_PATH);
    }
}
