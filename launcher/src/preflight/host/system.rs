//! Name, kernel and distribution.

use torchlift_schema::host::SystemFacts;

use super::{Problems, Roots};

const HOSTNAME: &str = "/proc/sys/kernel/hostname";
const KERNEL: &str = "/proc/sys/kernel/osrelease";
/// The second is for images that were made without the first, which is a link to it.
const DISTRIBUTION: [&str; 2] = ["/etc/os-release", "/usr/lib/os-release"];

/// Reads them.
pub(super) fn read(roots: &Roots, problems: &mut Problems) -> SystemFacts {
    let mut facts = SystemFacts::default();
    let mut note = |path: &str| facts.from.push(path.to_owned());
    let hostname = roots.line(HOSTNAME).inspect(|_| note(HOSTNAME));
    let kernel = roots.line(KERNEL).inspect(|_| note(KERNEL));
    let distribution = DISTRIBUTION.into_iter().find_map(|path| {
        let text = roots.text(path).ok()?;
        Some((path, pretty_name(&text)?))
    });
    facts.distribution = distribution.map(|(path, name)| {
        facts.from.push(path.to_owned());
        name
    });
    (facts.hostname, facts.kernel) = (hostname, kernel);
    if facts.kernel.is_none() {
        problems.unread("system.kernel", format!("`{KERNEL}` cannot be read, so that the kernel is not known"));
    }
    facts
}

/// `PRETTY_NAME` of an os-release, without its shell quotes.
fn pretty_name(text: &str) -> Option<String> {
    let value = text.lines().find_map(|line| line.trim().strip_prefix("PRETTY_NAME="))?;
    let name = shlex::split(value)?.into_iter().next()?;
    (!name.is_empty()).then_some(name)
}

#[cfg(test)]
mod tests {
    use super::pretty_name;

    #[test]
    fn a_distribution_is_named_without_quotes() {
        assert_eq!(
            pretty_name("NAME=x\nPRETTY_NAME=\"Debian GNU/Linux 12 (bookworm)\"\n").as_deref(),
            Some("Debian GNU/Linux 12 (bookworm)")
        );
        assert_eq!(pretty_name("PRETTY_NAME='Alpine Linux v3.20'").as_deref(), Some("Alpine Linux v3.20"));
        assert_eq!(pretty_name("PRETTY_NAME=Arch\n").as_deref(), Some("Arch"));
        assert_eq!(pretty_name("PRETTY_NAME=\"\"\nID=x"), None);
        assert_eq!(pretty_name("PRETTY_NAME=\"no end"), None);
    }
}
