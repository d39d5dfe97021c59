//! Which torch version a tree states, and where.

use camino::{Utf8Path, Utf8PathBuf};

/// Largest text that is read for a version; real ones have some lines, a wheel's METADATA 30 kB.
const MOST_BYTES: u64 = 1 << 20;

/// A file that states a version.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct StatedVersion {
    /// The file, below the tree or beside it.
    pub file: Utf8PathBuf,
    /// What it states, such as `2.9.0+cu128`.
    pub version: String,
    /// The CUDA version that the same file states.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cuda: Option<String>,
    /// The ROCm version that the same file states.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hip: Option<String>,
}

impl StatedVersion {
    fn of(file: impl Into<Utf8PathBuf>, version: impl Into<String>) -> Self {
        Self { file: file.into(), version: version.into(), cuda: None, hip: None }
    }

    fn local(&self) -> Option<&str> {
        Some(self.version.split_once('+')?.1)
    }

    /// The CUDA version: stated as such, or by the local part, where `cu128` is 12.8 and `cu118` 11.8.
    pub(super) fn cuda(&self) -> Option<String> {
        let from_local = || {
            let digits = self.local()?.strip_prefix("cu")?.split('.').next()?;
            let is_number = digits.len() >= 2 && digits.bytes().all(|byte| byte.is_ascii_digit());
            let (major, minor) = digits.split_at_checked(digits.len().checked_sub(1)?)?;
            is_number.then(|| format!("{major}.{minor}"))
        };
        self.cuda.clone().or_else(from_local)
    }

    /// The ROCm version: `rocm6.3` is 6.3; of `6.3.42131-fa1d09cbd` the first two numbers.
    pub(super) fn rocm(&self) -> Option<String> {
        let stated = self.local().and_then(|local| local.strip_prefix("rocm")).or(self.hip.as_deref())?;
        let numbers: Vec<&str> = stated.split('.').take(2).collect();
        Some(numbers.join("."))
    }
}

/// All of them: `build-version` of the official archive, `version.py` of a wheel, the wheel's metadata beside the tree, the
/// numbers of `version.h`.
pub fn stated_versions(root: &Utf8Path) -> Vec<StatedVersion> {
    [build_version(root), version_py(root), metadata(root), header(root)].into_iter().flatten().collect()
}

fn text(path: &Utf8Path) -> Option<String> {
    let metadata = fs_err::metadata(path).ok()?;
    (metadata.is_file() && metadata.len() <= MOST_BYTES).then(|| fs_err::read_to_string(path).ok())?
}

fn build_version(root: &Utf8Path) -> Option<StatedVersion> {
    let text = text(&root.join("build-version"))?;
    let version = text.trim();
    (!version.is_empty()).then(|| StatedVersion::of("build-version", version))
}

fn version_py(root: &Utf8Path) -> Option<StatedVersion> {
    let text = text(&root.join("version.py"))?;
    // `cuda: Optional[str] = '12.8'`, and `None` without quotes where there is none.
    let value = |name: &str| {
        let mut lines = text.lines().filter_map(|line| line.strip_prefix(name)?.split_once('='));
        let (kind, value) = lines.find(|(kind, _)| kind.trim().is_empty() || kind.starts_with(':'))?;
        let (_, value) = (kind, value.trim());
        let quote = value.chars().next().filter(|first| ['\'', '"'].contains(first))?;
        Some(value.trim_matches(quote).to_owned())
    };
    let mut stated = StatedVersion::of("version.py", value("__version__")?);
    stated.cuda = value("cuda");
    stated.hip = value("hip");
    Some(stated)
}

/// `torch-2.9.0.dist-info/METADATA` beside a `torch` folder, as pip lays it down.
fn metadata(root: &Utf8Path) -> Option<StatedVersion> {
    let parent = root.parent().filter(|_| root.file_name() == Some("torch"))?;
    let mut folders: Vec<String> = parent
        .read_dir_utf8()
        .ok()?
        .flatten()
        .map(|entry| entry.file_name().to_owned())
        .filter(|name| name.starts_with("torch-") && name.ends_with(".dist-info"))
        .collect();
    folders.sort_unstable();
    let file = Utf8PathBuf::from("..").join(folders.first()?).join("METADATA");
    let text = text(&root.join(&file))?;
    // Headers end at the first empty line; what follows is the project's description.
    let version = text.lines().take_while(|line| !line.is_empty()).find_map(|line| line.strip_prefix("Version: "))?;
    Some(StatedVersion::of(file, version.trim()))
}

fn header(root: &Utf8Path) -> Option<StatedVersion> {
    ["include/torch/headeronly/version.h", "include/torch/csrc/api/include/torch/version.h"].iter().find_map(|file| {
        let text = text(&root.join(file))?;
        let number = |name: &str| {
            text.lines()
                .find_map(|line| line.strip_prefix("#define TORCH_VERSION_")?.strip_prefix(name)?.trim().parse().ok())
        };
        let [major, minor, patch]: [u32; 3] = [number("MAJOR ")?, number("MINOR ")?, number("PATCH ")?];
        Some(StatedVersion::of(*file, format!("{major}.{minor}.{patch}")))
    })
}
