//! Pointers to a variant: `.active` in a store, or `.active.<case>` when `FDL_LIBTORCH_CASE` names a case.
//!
//! One line, a variant's id. A case that was named is never replaced by the plain pointer: whoever asks for one and
//! gets another would not notice. Must not decide whether the variant fits: that is [`super::find()`].

use std::ffi::OsStr;
use std::io::{self, Write as _};

use camino::{Utf8Path, Utf8PathBuf};
use torchlift::env_vars::FDL_LIBTORCH_CASE;
use torchlift_schema::VariantId;

use super::stage::{self, StageError};
use super::{Stores, small};
use crate::toolchain::Env;

/// The plain pointer's file name.
const FILE: &str = ".active";
/// Bytes of a pointer: an id is far shorter.
const LIMIT: u64 = 4096;

/// A pointer that was read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pointer {
    /// Where it lies.
    pub file: Utf8PathBuf,
    /// What it names.
    pub id: VariantId,
}

/// Why a pointer cannot be followed.
#[derive(Debug, thiserror::Error)]
pub enum ActiveError {
    /// The case's name is no part of a file name.
    #[error("`{FDL_LIBTORCH_CASE}` is `{case}`, which is no name of a case")]
    Case {
        /// The name, with replacement characters where it is no UTF-8.
        case: String,
    },
    /// A case was named, and no store has it.
    #[error("`{FDL_LIBTORCH_CASE}` is `{case}`, and there is no `{FILE}.{case}` in {}", places(roots))]
    NoCase {
        /// The case.
        case: String,
        /// The stores.
        roots: Vec<Utf8PathBuf>,
    },
    /// Its line is no id.
    #[error("`{file}` names no variant")]
    NotAnId {
        /// The file.
        file: Utf8PathBuf,
        /// Why.
        #[source]
        source: torchlift_schema::libtorch::VariantIdError,
    },
    /// It cannot be read or written.
    #[error("the pointer `{file}` cannot be used")]
    Unusable {
        /// The file.
        file: Utf8PathBuf,
        /// Why.
        #[source]
        source: io::Error,
    },
}

impl ActiveError {
    /// What to do next.
    pub fn hint(&self, invocation: &str) -> String {
        match self {
            Self::Case { .. } => "a case's name has letters, digits, `_`, `-`, `.` and `+`".to_owned(),
            Self::NoCase { case, .. } => {
                format!("`{invocation} libtorch use ID --case {case}` makes it; or unset `{FDL_LIBTORCH_CASE}`")
            }
            Self::NotAnId { file, .. } | Self::Unusable { file, .. } => {
                format!("delete `{file}`, or write it anew with `{invocation} libtorch use ID`")
            }
        }
    }
}

fn places(roots: &[Utf8PathBuf]) -> String {
    roots.iter().map(|root| format!("`{root}`")).collect::<Vec<_>>().join(" or ")
}

/// The case that the environment names; an empty variable names none.
///
/// # Errors
/// When it could not be a part of a file's name.
pub fn case(env: &Env) -> Result<Option<String>, ActiveError> {
    let Some(case) = env.get(OsStr::new(FDL_LIBTORCH_CASE)).filter(|case| !case.is_empty()) else { return Ok(None) };
    let case = case.to_string_lossy().into_owned();
    check_case(&case).map(|()| Some(case))
}

/// Whether a name can be a case.
///
/// # Errors
/// When it could not be a part of a file's name.
pub fn check_case(case: &str) -> Result<(), ActiveError> {
    // The rule of a variant's name, so that `.active.<case>` stays one plain file name.
    match format!("case/{case}").parse::<VariantId>() {
        Ok(_) => Ok(()),
        Err(_) => Err(ActiveError::Case { case: case.to_owned() }),
    }
}

/// The pointer that counts: that of the first store which has one.
///
/// # Errors
/// When a case is named that no store has, or the pointer is none.
pub fn read(stores: &Stores, case: Option<&str>) -> Result<Option<Pointer>, ActiveError> {
    for root in &stores.roots {
        if let Some(pointer) = read_in(root, case)? {
            return Ok(Some(pointer));
        }
    }
    match case {
        Some(case) => Err(ActiveError::NoCase { case: case.to_owned(), roots: stores.roots.clone() }),
        None => Ok(None),
    }
}

fn read_in(root: &Utf8Path, case: Option<&str>) -> Result<Option<Pointer>, ActiveError> {
    let file = file(root, case);
    let content = match small::read(&file, LIMIT) {
        Ok(Some(content)) => content,
        Ok(None) => return Ok(None),
        Err(source) => return Err(ActiveError::Unusable { file, source }),
    };
    match String::from_utf8_lossy(&content).trim().parse() {
        Ok(id) => Ok(Some(Pointer { file, id })),
        Err(source) => Err(ActiveError::NotAnId { file, source }),
    }
}

/// The store whose pointer has to name `id` so that it counts: the first that has the variant, or a pointer already.
pub fn place<'a>(stores: &'a Stores, case: Option<&str>, id: &VariantId) -> Option<&'a Utf8Path> {
    let has = |root: &&Utf8PathBuf| {
        root.join(id.as_str()).join("lib").is_dir() || fs_err::symlink_metadata(file(root, case)).is_ok()
    };
    stores.roots.iter().find(has).map(Utf8PathBuf::as_path)
}

/// Writes a pointer; a reader sees the old or the new one, whole.
///
/// # Errors
/// When the store cannot be written.
pub fn write(root: &Utf8Path, case: Option<&str>, id: &VariantId) -> Result<Utf8PathBuf, ActiveError> {
    let file = file(root, case);
    let unusable = |source| ActiveError::Unusable { file: file.clone(), source };
    // Whoever changes the store takes away what killed processes left, ours among it.
    let _lock = stage::lock(root, &mut |_| {}).map_err(|error| match error {
        StageError::Store { source, .. } => unusable(source),
        other => unusable(io::Error::other(other)),
    })?;
    let mut temporary = tempfile::Builder::new()
        .prefix(stage::USE)
        // Other users of the machine may read a store; the umask still has its word.
        .permissions(std::os::unix::fs::PermissionsExt::from_mode(0o666))
        .tempfile_in(root)
        .map_err(unusable)?;
    temporary.write_all(format!("{id}\n").as_bytes()).map_err(unusable)?;
    temporary.persist(&file).map_err(|error| unusable(error.error))?;
    Ok(file)
}

/// All pointers of a store that name `id`, with and without a case.
pub(super) fn naming(root: &Utf8Path, id: &VariantId) -> Vec<Utf8PathBuf> {
    let Ok(entries) = root.read_dir_utf8() else { return Vec::new() };
    let mut found: Vec<Utf8PathBuf> = entries
        .flatten()
        .filter_map(|entry| {
            let case = entry.file_name().strip_prefix(FILE)?;
            let case = if case.is_empty() { None } else { Some(case.strip_prefix('.')?.to_owned()) };
            let pointer = read_in(root, case.as_deref()).ok()??;
            (pointer.id == *id).then_some(pointer.file)
        })
        .collect();
    found.sort();
    found
}

fn file(root: &Utf8Path, case: Option<&str>) -> Utf8PathBuf {
    match case {
        Some(case) => root.join(format!("{FILE}.{case}")),
        None => root.join(FILE),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Scene {
        _temp: tempfile::TempDir,
        stores: Stores,
    }

    fn scene() -> Scene {
        let temp = tempfile::tempdir().unwrap();
        let base = Utf8Path::from_path(temp.path()).unwrap();
        let roots = vec![base.join("mein Projekt/libtorch"), base.join("héim/libtorch")];
        roots.iter().for_each(|root| fs_err::create_dir_all(root).unwrap());
        Scene { _temp: temp, stores: Stores { roots } }
    }

    fn id(text: &str) -> VariantId {
        text.parse().unwrap()
    }

    #[test]
    fn the_first_store_with_a_pointer_counts() {
        let Scene { _temp, stores } = scene();
        assert_eq!(read(&stores, None).unwrap(), None);
        write(&stores.roots[1], None, &id("precompiled/cpu-2.9.0")).unwrap();
        assert_eq!(read(&stores, None).unwrap().unwrap().id, id("precompiled/cpu-2.9.0"));
        // As other tools write it.
        fs_err::write(stores.roots[0].join(".active"), " builds/sm61-sm120 \r\n").unwrap();
        let pointer = read(&stores, None).unwrap().unwrap();
        assert_eq!((pointer.id, pointer.file), (id("builds/sm61-sm120"), stores.roots[0].join(".active")));
    }

    #[test]
    fn a_case_that_is_named_is_never_replaced_by_the_plain_pointer() {
        let Scene { _temp, stores } = scene();
        write(&stores.roots[0], None, &id("precompiled/cpu-2.9.0")).unwrap();
        let error = read(&stores, Some("gpu")).unwrap_err().to_string();
        assert!(error.contains("no `.active.gpu` in `"), "{error}");
        write(&stores.roots[1], Some("gpu"), &id("precompiled/cu128-2.9.0")).unwrap();
        assert_eq!(read(&stores, Some("gpu")).unwrap().unwrap().id, id("precompiled/cu128-2.9.0"));
        assert_eq!(naming(&stores.roots[1], &id("precompiled/cu128-2.9.0")), [stores.roots[1].join(".active.gpu")]);
        for wrong in ["", "../x", "a/b", "a b", ".x"] {
            assert!(check_case(wrong).is_err(), "{wrong:?}");
        }
    }

    #[test]
    fn what_names_no_variant_is_an_error_and_so_is_a_pipe() {
        let Scene { _temp, stores } = scene();
        let file = stores.roots[0].join(".active");
        for wrong in ["", "cu128", "../../etc", "a/b\nc/d", "\u{fffd}/b"] {
            fs_err::write(&file, wrong).unwrap();
            assert!(matches!(read(&stores, None), Err(ActiveError::NotAnId { .. })), "{wrong:?}");
        }
        fs_err::remove_file(&file).unwrap();
        nix::unistd::mkfifo(file.as_std_path(), nix::sys::stat::Mode::S_IRWXU).unwrap();
        assert!(matches!(read(&stores, None), Err(ActiveError::Unusable { .. })));
    }

    #[test]
    fn a_pointer_is_written_where_it_counts() {
        let Scene { _temp, stores } = scene();
        let shared = id("precompiled/cpu-2.9.0");
        assert_eq!(place(&stores, None, &shared), None);
        fs_err::create_dir_all(stores.roots[1].join("precompiled/cpu-2.9.0/lib")).unwrap();
        assert_eq!(place(&stores, None, &shared).unwrap(), stores.roots[1]);
        // A pointer of the workspace would hide the user's.
        fs_err::write(stores.roots[0].join(".active"), "a/b").unwrap();
        assert_eq!(place(&stores, None, &shared).unwrap(), stores.roots[0]);
    }
}
