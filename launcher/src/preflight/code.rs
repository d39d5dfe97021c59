//! The codes of the findings that `preflight` makes: the one place where they are named.
//!
//! A code is kebab-case and stays for ever, for people accept findings by it. When you add one: say its meaning here,
//! decide whether it belongs to [`INTEGRITY`], and name it in the docs.

use torchlift_schema::{Finding, exit_code};

/// The program is not there.
pub const PROGRAM_MISSING: &str = "program-missing";
/// The program is a folder, a device, a pipe.
pub const PROGRAM_NOT_A_FILE: &str = "program-not-a-file";
/// The program may not be executed.
pub const PROGRAM_NOT_EXECUTABLE: &str = "program-not-executable";
/// The program may be executed and not read, so that what it loads was not looked at: a warning.
pub const PROGRAM_UNREADABLE: &str = "program-unreadable";
/// The program cannot be mapped, or is neither a whole ELF file nor a script with a `#!` line.
pub const PROGRAM_UNUSABLE: &str = "program-unusable";
/// The program's bytes are not those that the envelope names.
pub const PROGRAM_CHANGED: &str = "program-changed";
/// The program, or every candidate for one of its libraries, is for another CPU.
pub const WRONG_ARCHITECTURE: &str = "wrong-architecture";
/// The program's loader, or a script's interpreter, is not there.
pub const INTERPRETER_MISSING: &str = "interpreter-missing";
/// The loader would not find a library.
pub const LIBRARY_MISSING: &str = "library-missing";
/// The loader would take a file for a library and die of it.
pub const LIBRARY_UNUSABLE: &str = "library-unusable";
/// A library's bytes are not those that the envelope names.
pub const LIBRARY_CHANGED: &str = "library-changed";
/// A library that the variant has would be loaded from another place.
pub const LIBRARY_FROM_ELSEWHERE: &str = "library-from-elsewhere";
/// A library is there and lacks a symbol version, such as `GLIBC_2.38`.
pub const VERSION_MISSING: &str = "version-missing";
/// Something that is loaded refers to a symbol that nothing loaded offers: an error when the start needs it, else a
/// warning.
pub const SYMBOL_MISSING: &str = "symbol-missing";
/// The variant has `libtorch_cuda` or `libtorch_hip`, and the program does not load it.
pub const ACCELERATOR_NOT_LINKED: &str = "accelerator-not-linked";
/// The program and its libtorch have `std::string` in two forms.
pub const CXX_ABI_DIFFERS: &str = "cxx-abi-differs";
/// The program uses another C++ library than its libtorch, or would.
pub const CXX_LIBRARY_DIFFERS: &str = "cxx-library-differs";
/// The program needs a newer glibc than its toolchain's `glibc` allows.
pub const GLIBC_ABOVE_FLOOR: &str = "glibc-above-floor";
/// A library that is loaded loads another one by its name, which is not there.
pub const LOADED_BY_NAME_MISSING: &str = "loaded-by-name-missing";
/// Hosts of one run would load NCCL or RCCL of different versions.
pub const NCCL_DIFFERS: &str = "nccl-differs";
/// The library path has an empty element, for which the loader searches the working directory.
pub const EMPTY_LIBRARY_PATH_ELEMENT: &str = "empty-library-path-element";
/// The program or a library without which nothing works lacks code for a card.
pub const GPU_CODE_MISSING: &str = "gpu-code-missing";
/// A library that some calls need lacks code for a card: a warning.
pub const GPU_CODE_PARTIAL: &str = "gpu-code-partial";
/// A card runs code that the driver compiles first: a warning.
pub const GPU_PTX_ONLY: &str = "gpu-ptx-only";
/// `HSA_OVERRIDE_GFX_VERSION` has a value that ROCm does not take.
pub const GFX_OVERRIDE: &str = "gfx-override";
/// Another run has a card that this one is to use.
pub const CARD_CLAIMED: &str = "card-claimed";
/// A process that no run claimed it for uses a card that this one is to use: a warning.
pub const CARD_IN_USE: &str = "card-in-use";
/// A card cannot be claimed, so that another run may use it too: a warning.
pub const CLAIM_UNUSABLE: &str = "claim-unusable";
/// The driver is older than the code needs.
pub const DRIVER_TOO_OLD: &str = "driver-too-old";
/// The driver serves the code by a compatibility package alone: a warning.
pub const DRIVER_BY_COMPAT: &str = "driver-by-compat";
/// Whether the driver serves the code is not known: a warning.
pub const DRIVER_UNKNOWN: &str = "driver-unknown";
/// The code uses what the host's CPU cannot do.
pub const CPU_LACKS: &str = "cpu-lacks";
/// A fact of a host could not be read.
pub const HOST_FACT_UNREAD: &str = "host-fact-unread";
/// A GPU driver is there and cannot be used.
pub const GPU_DRIVER_BROKEN: &str = "gpu-driver-broken";
/// A card is there and does not say what it is, or may not be used.
pub const GPU_UNREADABLE: &str = "gpu-unreadable";
/// Cards are plugged in and have no driver.
pub const GPU_WITHOUT_DRIVER: &str = "gpu-without-driver";

/// Every code with its meaning, for docs and tests.
pub const TABLE: &[(&str, &str)] = &[
    (PROGRAM_MISSING, "the program is not there"),
    (PROGRAM_NOT_A_FILE, "the program is a folder, a device or a pipe"),
    (PROGRAM_NOT_EXECUTABLE, "the program may not be executed"),
    (PROGRAM_UNREADABLE, "the program may be executed and not read, so what it loads was not checked"),
    (PROGRAM_UNUSABLE, "the program is neither a whole ELF file nor a script with a `#!` line"),
    (PROGRAM_CHANGED, "the program is not the one that the envelope names"),
    (WRONG_ARCHITECTURE, "the program or a library is for another CPU"),
    (INTERPRETER_MISSING, "the program's loader or a script's interpreter is not there"),
    (LIBRARY_MISSING, "the loader would not find a library"),
    (LIBRARY_UNUSABLE, "the loader would take a file for a library and die of it"),
    (LIBRARY_CHANGED, "a library is not the one that the envelope names"),
    (LIBRARY_FROM_ELSEWHERE, "a library of the variant would be loaded from another place"),
    (VERSION_MISSING, "a library lacks a symbol version that is needed"),
    (SYMBOL_MISSING, "nothing that is loaded offers a symbol that is needed"),
    (ACCELERATOR_NOT_LINKED, "the variant has a GPU library that the program does not load"),
    (CXX_ABI_DIFFERS, "the program and its libtorch have `std::string` in two forms"),
    (CXX_LIBRARY_DIFFERS, "the program uses another C++ library than its libtorch"),
    (GLIBC_ABOVE_FLOOR, "the program needs a newer glibc than its toolchain allows"),
    (LOADED_BY_NAME_MISSING, "a library that another one loads by its name is not there"),
    (NCCL_DIFFERS, "hosts of one run would load NCCL or RCCL of different versions"),
    (EMPTY_LIBRARY_PATH_ELEMENT, "the library path has an empty element"),
    (GPU_CODE_MISSING, "the program or a library that nothing works without has no code for a card"),
    (GPU_CODE_PARTIAL, "a library that some calls need has no code for a card"),
    (GPU_PTX_ONLY, "a card runs code that the driver compiles first"),
    (GFX_OVERRIDE, "`HSA_OVERRIDE_GFX_VERSION` has a value that ROCm does not take"),
    (CARD_CLAIMED, "another run has a card that this one is to use"),
    (CARD_IN_USE, "a process uses a card that this run is to use"),
    (CLAIM_UNUSABLE, "a card cannot be claimed for one run"),
    (DRIVER_TOO_OLD, "the driver is older than the code needs"),
    (DRIVER_BY_COMPAT, "the driver serves the code by a compatibility package alone"),
    (DRIVER_UNKNOWN, "whether the driver serves the code is not known"),
    (CPU_LACKS, "the code uses what the host's CPU cannot do"),
    (HOST_FACT_UNREAD, "a fact of a host could not be read"),
    (GPU_DRIVER_BROKEN, "a GPU driver is there and cannot be used"),
    (GPU_UNREADABLE, "a card does not say what it is, or may not be used"),
    (GPU_WITHOUT_DRIVER, "cards are plugged in and have no driver"),
];

/// Codes that say: these are not the bytes that were verified. They cannot be accepted.
pub const INTEGRITY: &[&str] = &[PROGRAM_CHANGED, LIBRARY_CHANGED];

/// The exit code for findings; none when no error stands. Integrity goes before the rest, for what other bytes
/// would need says nothing.
pub fn exit_code(findings: &[Finding]) -> Option<u8> {
    let mut errors = findings.iter().filter(|finding| finding.is_error()).peekable();
    errors.peek()?;
    let is_integrity = errors.any(|finding| INTEGRITY.contains(&finding.code.as_str()));
    Some(if is_integrity { exit_code::INTEGRITY } else { exit_code::VERIFY })
}

#[cfg(test)]
mod tests {
    use torchlift_schema::Place;

    use super::*;

    #[test]
    fn integrity_goes_before_verify_and_warnings_give_no_exit_code() {
        let error = |code| Finding::error(code, Place::default(), "x");
        assert_eq!(exit_code(&[]), None);
        assert_eq!(exit_code(&[Finding::warning(LIBRARY_CHANGED, Place::default(), "x")]), None);
        assert_eq!(exit_code(&[error(LIBRARY_MISSING)]), Some(exit_code::VERIFY));
        assert_eq!(exit_code(&[error(LIBRARY_MISSING), error(LIBRARY_CHANGED)]), Some(exit_code::INTEGRITY));
    }

    #[test]
    fn every_code_is_kebab_case_and_stands_once() {
        for (index, (code, _)) in TABLE.iter().enumerate() {
            assert!(code.bytes().all(|byte| byte.is_ascii_lowercase() || byte == b'-'), "{code}");
            assert!(TABLE[..index].iter().all(|(other, _)| other != code), "{code}");
        }
    }
}
