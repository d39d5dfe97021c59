//! Prints the GPU code of ELF files: each code, in how many of the regions it is, and in how many entries.
//!
//! The bench starts it to learn what reading the code of a large library costs a process of its own, so that it ends by saying what
//! memory it holds that is not the file's.

#![expect(clippy::print_stdout, clippy::print_stderr, reason = "printing is what it is for")]

use std::path::Path;
use std::process::ExitCode;

use torchlift::preflight::fatbin;

fn main() -> ExitCode {
    let mut code = ExitCode::SUCCESS;
    for argument in std::env::args_os().skip(1) {
        let path = Path::new(&argument);
        match fatbin::read(path) {
            Ok(None) => println!("{}: no GPU code", path.display()),
            Ok(Some(content)) => {
                println!("{}: {} regions", path.display(), content.count());
                for (code, regions) in content.coverage() {
                    println!("  {code} in {regions}");
                }
                for (code, count) in &content.entries {
                    println!("  entries of {code}: {count}");
                }
                for problem in &content.problems {
                    println!("  {problem}");
                }
                eprintln!("private memory: {} KiB", private_kib());
            }
            Err(error) => {
                eprintln!("{error}");
                code = ExitCode::FAILURE;
            }
        }
    }
    code
}

/// Memory of this process that is no file's, in KiB; 0 where the kernel does not say.
fn private_kib() -> u64 {
    let status = fs_err::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("RssAnon:"));
    line.and_then(|line| line.trim().trim_end_matches(" kB").parse().ok()).unwrap_or(0)
}
