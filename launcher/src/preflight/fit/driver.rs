//! Which of NVIDIA's drivers serves code of which toolkit.
//!
//! Source: "CUDA Driver" in NVIDIA's *CUDA Toolkit Release Notes*
//! (<https://docs.nvidia.com/cuda/cuda-toolkit-release-notes/>, read for 13.2 and, for what is older, in its archive):
//! table 2, *Minimum Required Driver Version for Minor Version Compatibility*, and table 3, *Toolkit and Corresponding
//! Driver Versions*, Linux x86_64. A driver that serves the minimum of a major version runs machine code of every minor
//! version of it; PTX it compiles only from toolkits that are not newer than itself (*CUDA Compatibility*, "PTX/JIT").
//! That document also has the forward-compatibility packages, `cuda-compat`.

use std::fmt;
use std::str::FromStr;

use torchlift_schema::gpu::ToolkitVersion;

/// A driver's version, such as 550.54.14. Parts that are missing count as 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct DriverVersion([u32; 3]);

/// A text that is no driver's version.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{text}` is no version of NVIDIA's driver, which is written `550.54.14`")]
pub struct DriverVersionError {
    /// The text.
    pub text: String,
}

/// From which driver on machine code of a CUDA major version runs: table 2.
const MINIMUM: &[(u16, DriverVersion)] =
    &[(11, DriverVersion([450, 0, 0])), (12, DriverVersion([525, 0, 0])), (13, DriverVersion([580, 0, 0]))];

/// The driver that came with the first release of each toolkit: table 3. Its updates compile the same PTX.
/// 12.7 was never released, and its PTX 8.6 was; the drivers that call themselves 12.7 are those of branch 565.
const OF_TOOLKIT: &[(ToolkitVersion, DriverVersion)] = &[
    of(8, 0, [367, 48, 0]),
    of(9, 0, [384, 81, 0]),
    of(9, 1, [390, 46, 0]),
    of(9, 2, [396, 26, 0]),
    of(10, 0, [410, 48, 0]),
    of(10, 1, [418, 39, 0]),
    of(10, 2, [440, 33, 0]),
    of(11, 0, [450, 36, 6]),
    of(11, 1, [455, 23, 0]),
    of(11, 2, [460, 27, 3]),
    of(11, 3, [465, 19, 1]),
    of(11, 4, [470, 42, 1]),
    of(11, 5, [495, 29, 5]),
    of(11, 6, [510, 39, 1]),
    of(11, 7, [515, 43, 4]),
    of(11, 8, [520, 61, 5]),
    of(12, 0, [525, 60, 13]),
    of(12, 1, [530, 30, 2]),
    of(12, 2, [535, 54, 3]),
    of(12, 3, [545, 23, 6]),
    of(12, 4, [550, 54, 14]),
    of(12, 5, [555, 42, 2]),
    of(12, 6, [560, 28, 3]),
    of(12, 7, [565, 0, 0]),
    of(12, 8, [570, 26, 0]),
    of(12, 9, [575, 51, 3]),
    of(13, 0, [580, 65, 6]),
    of(13, 1, [590, 44, 1]),
    of(13, 2, [595, 45, 4]),
];

const fn of(major: u16, minor: u16, driver: [u32; 3]) -> (ToolkitVersion, DriverVersion) {
    (ToolkitVersion::new(major, minor), DriverVersion(driver))
}

/// From which driver on machine code that this toolkit made runs; none for a toolkit that is newer than the tables.
pub fn minimum(toolkit: ToolkitVersion) -> Option<DriverVersion> {
    // Before CUDA 11 there was no compatibility between minor versions: a toolkit needed its own driver.
    let by_major = MINIMUM.iter().find(|(major, _)| *major == toolkit.major).map(|(_, driver)| *driver);
    by_major.or_else(|| (toolkit.major < 11).then(|| of_toolkit(toolkit)).flatten())
}

/// The driver that came with a toolkit, from which on its PTX is compiled; none for one that is not in the table.
pub fn of_toolkit(toolkit: ToolkitVersion) -> Option<DriverVersion> {
    OF_TOOLKIT.iter().find(|(version, _)| *version == toolkit).map(|(_, driver)| *driver)
}

/// What is known of a host's driver.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Driver {
    /// The version of the kernel's part.
    pub version: Option<DriverVersion>,
    /// The newest CUDA that it states to serve, by itself.
    pub cuda: Option<ToolkitVersion>,
    /// The compatibility packages on the host.
    pub compat: Vec<Compat>,
}

/// A `libcuda` of a newer driver, from a `cuda-compat` package.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Compat {
    /// The folder that it lies in.
    pub folder: String,
    /// The driver that it is a part of.
    pub version: DriverVersion,
    /// Whether the loader takes it in place of the driver's own.
    pub is_loaded: bool,
}

/// What code asks of a driver.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Need {
    /// To run machine code that this toolkit made.
    Native(ToolkitVersion),
    /// To compile PTX that this toolkit made.
    Ptx(ToolkitVersion),
}

/// Whether a driver serves a need.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Answer {
    /// It does.
    Serves,
    /// It does with the compatibility package in this folder, which the loader takes.
    ServesByCompat(String),
    /// It does not.
    TooOld {
        /// The driver that would; none where the tables do not know.
        needs: Option<DriverVersion>,
        /// The folder of a compatibility package that would do, if the loader took it.
        compat: Option<String>,
    },
    /// What is known of the driver, or of drivers, does not say.
    Unknown,
}

impl Need {
    /// The driver from which on it is served; none where the tables do not know.
    pub fn driver(self) -> Option<DriverVersion> {
        match self {
            Self::Native(toolkit) => minimum(toolkit),
            Self::Ptx(toolkit) => of_toolkit(toolkit),
        }
    }

    /// By the version of a driver alone.
    fn by_version(self, version: DriverVersion) -> Option<bool> {
        match self.driver() {
            Some(needs) => Some(version >= needs),
            // A toolkit newer than the tables: a driver that is older than their last line does not know it.
            None => {
                let toolkit = self.toolkit();
                let (newest, driver) = OF_TOOLKIT.last()?;
                (toolkit > *newest && version < *driver).then_some(false)
            }
        }
    }

    /// By the newest CUDA that a driver states to serve.
    fn by_cuda(self, cuda: ToolkitVersion) -> bool {
        match self {
            Self::Native(toolkit) if toolkit.major >= 11 => cuda.major >= toolkit.major,
            Self::Native(toolkit) | Self::Ptx(toolkit) => cuda >= toolkit,
        }
    }

    /// The toolkit that it is about.
    pub fn toolkit(self) -> ToolkitVersion {
        match self {
            Self::Native(toolkit) | Self::Ptx(toolkit) => toolkit,
        }
    }
}

impl Driver {
    /// Whether it serves this.
    pub fn serves(&self, need: Need) -> Answer {
        let by_version = self.version.and_then(|version| need.by_version(version));
        let by_cuda = self.cuda.map(|cuda| need.by_cuda(cuda));
        if by_version == Some(true) || by_cuda == Some(true) {
            return Answer::Serves;
        }
        let would = |compat: &&Compat| need.by_version(compat.version) == Some(true);
        if let Some(loaded) = self.compat.iter().filter(|compat| compat.is_loaded).find(would) {
            return Answer::ServesByCompat(loaded.folder.clone());
        }
        match by_version.or(by_cuda) {
            Some(_) => Answer::TooOld {
                needs: need.driver(),
                compat: self.compat.iter().find(would).map(|compat| compat.folder.clone()),
            },
            None => Answer::Unknown,
        }
    }
}

impl FromStr for DriverVersion {
    type Err = DriverVersionError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let wrong = || DriverVersionError { text: text.to_owned() };
        let mut version = [0; 3];
        for (index, part) in text.split('.').enumerate() {
            let is_number = !part.is_empty() && part.bytes().all(|byte| byte.is_ascii_digit());
            let number = is_number.then(|| part.parse().ok()).flatten();
            *version.get_mut(index).ok_or_else(wrong)? = number.ok_or_else(wrong)?;
        }
        Ok(Self(version))
    }
}

impl fmt::Display for DriverVersion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [branch, major, minor] = self.0;
        match (major, minor) {
            (0, 0) => write!(f, "{branch}"),
            (_, 0) => write!(f, "{branch}.{major:02}"),
            _ => write!(f, "{branch}.{major:02}.{minor:02}"),
        }
    }
}

impl fmt::Display for Need {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Native(toolkit) => write!(f, "machine code of CUDA {toolkit}"),
            Self::Ptx(toolkit) => write!(f, "PTX of CUDA {toolkit}"),
        }
    }
}
