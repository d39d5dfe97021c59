//! What a person asks a fetch for: `cpu`, `cu128`, `2.9.0`, `2.9.0+cu128`, or the id that it will have.

use std::str::FromStr;

use torchlift_schema::Accelerator;

/// An accelerator, a version, or both; what is missing is found out elsewhere.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Spec {
    /// With its toolkit's version.
    pub accelerator: Option<Accelerator>,
    /// Without a local part.
    pub version: Option<String>,
    /// As in a target triple; only an id can have it.
    pub cpu_arch: Option<String>,
}

/// A text that asks for nothing that there is.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{text}` is no libtorch: write `cpu`, `cu128`, `rocm6.4`, `2.9.0` or `2.9.0+cu128`")]
pub struct SpecError {
    /// The text.
    pub text: String,
}

impl FromStr for Spec {
    type Err = SpecError;

    fn from_str(text: &str) -> Result<Self, SpecError> {
        let error = || SpecError { text: text.escape_debug().to_string() };
        if let Some(name) = text.strip_prefix("precompiled/") {
            let mut parts = name.splitn(3, '-');
            let (Some(label), Some(version)) = (parts.next(), parts.next()) else { return Err(error()) };
            let accelerator = accelerator(label).ok_or_else(error)?;
            let version = is_version(version).then(|| version.to_owned()).ok_or_else(error)?;
            let cpu_arch = parts.next().map(str::to_owned);
            return Ok(Self { accelerator: Some(accelerator), version: Some(version), cpu_arch });
        }
        let (version, label) = match text.split_once('+') {
            Some((version, label)) => (Some(version), Some(label)),
            None if text.starts_with(|c: char| c.is_ascii_digit()) => (Some(text), None),
            None => (None, Some(text)),
        };
        let version = version.map(|version| is_version(version).then(|| version.to_owned()).ok_or_else(error));
        let accelerator = label.map(|label| accelerator(label).ok_or_else(error));
        Ok(Self { accelerator: accelerator.transpose()?, version: version.transpose()?, cpu_arch: None })
    }
}

/// Whether a text is a torch version: three numbers.
pub fn is_version(text: &str) -> bool {
    text.split('.').count() == 3
        && text.split('.').all(|part| !part.is_empty() && part.len() < 5 && part.bytes().all(|b| b.is_ascii_digit()))
}

/// The accelerator of a label: `cu128` is CUDA 12.8, `rocm6.4` is ROCm 6.4.
pub fn accelerator(label: &str) -> Option<Accelerator> {
    if label == "cpu" {
        return Some(Accelerator::Cpu);
    }
    let digits = |text: &str| {
        (2..=3).contains(&text.len()) && text.bytes().all(|b| b.is_ascii_digit()) && !text.starts_with('0')
    };
    // The last digit is the minor version.
    let split = |text: &str| format!("{}.{}", &text[..text.len() - 1], &text[text.len() - 1..]);
    if let Some(rest) = label.strip_prefix("cu").filter(|rest| digits(rest)) {
        return Some(Accelerator::Cuda(split(rest)));
    }
    let rest = label.strip_prefix("rocm")?;
    if digits(rest) {
        return Some(Accelerator::Rocm(split(rest)));
    }
    let is_number = |part: &str| !part.is_empty() && part.len() < 4 && part.bytes().all(|b| b.is_ascii_digit());
    let is_dotted = (2..=3).contains(&rest.split('.').count()) && rest.split('.').all(is_number);
    is_dotted.then(|| Accelerator::Rocm(rest.to_owned()))
}

/// The label of an accelerator, as wheels and their indexes write it: `cpu`, `cu128`, `rocm6.4`.
pub fn label(accelerator: &Accelerator) -> String {
    match accelerator {
        Accelerator::Cuda(toolkit) => format!("cu{}", toolkit.replace('.', "")),
        Accelerator::Rocm(toolkit) => format!("rocm{toolkit}"),
        _ => "cpu".to_owned(),
    }
}

/// The label of the wheels that package indexes have without a local version, by the beginning of torch's version; for
/// x86_64, elsewhere they are for a CPU. Only says where to look first: what came, its files say.
const PLAIN: [(&str, &str); 6] =
    [("2.9.", "cu128"), ("2.8.", "cu128"), ("2.7.", "cu126"), ("2.6.", "cu124"), ("2.5.", "cu124"), ("2.4.", "cu121")];

/// What a wheel without a local version is for; none where that is not known.
pub fn plain(version: &str, cpu_arch: &str) -> Option<&'static str> {
    let (_, label) = PLAIN.iter().find(|(prefix, _)| version.starts_with(prefix))?;
    Some(if cpu_arch == "x86_64" { label } else { "cpu" })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn spec(accelerator: Option<Accelerator>, version: Option<&str>) -> Spec {
        Spec { accelerator, version: version.map(str::to_owned), cpu_arch: None }
    }

    #[test]
    fn a_spec_is_an_accelerator_a_version_or_both() {
        let cuda = |toolkit: &str| Some(Accelerator::Cuda(toolkit.to_owned()));
        for (text, expected) in [
            ("cpu", spec(Some(Accelerator::Cpu), None)),
            ("cu128", spec(cuda("12.8"), None)),
            ("cu92", spec(cuda("9.2"), None)),
            ("rocm6.4", spec(Some(Accelerator::Rocm("6.4".into())), None)),
            ("rocm70", spec(Some(Accelerator::Rocm("7.0".into())), None)),
            ("2.9.0", spec(None, Some("2.9.0"))),
            ("2.10.0+cu126", spec(cuda("12.6"), Some("2.10.0"))),
        ] {
            assert_eq!(text.parse::<Spec>().unwrap(), expected, "{text}");
        }
        let id: Spec = "precompiled/cpu-2.9.0-aarch64".parse().unwrap();
        assert_eq!((id.version.unwrap(), id.cpu_arch.unwrap()), ("2.9.0".to_owned(), "aarch64".to_owned()));
        for wrong in
            ["", "2.9", "cuda", "cu", "cu1", "cu12.8", "2.9.0+", "+cu128", "2.9.0+gpu", "cu128 ", "a/b", "2.9.0-cu"]
        {
            assert!(wrong.parse::<Spec>().is_err(), "{wrong:?}");
        }
    }

    #[test]
    fn a_label_is_read_as_it_is_written() {
        for text in ["cpu", "cu128", "cu118", "rocm6.4"] {
            assert_eq!(label(&accelerator(text).unwrap()), text);
        }
        assert_eq!(
            (plain("2.9.1", "x86_64"), plain("2.9.0", "aarch64"), plain("3.0.0", "x86_64")),
            (Some("cu128"), Some("cpu"), None)
        );
    }
}
