//! Findings that a person has accepted become warnings with the reason; others stay what they are.

use torchlift_schema::{Finding, Severity};

use crate::cluster::Accept;

/// Turns accepted errors into warnings. `is_acceptable` says which codes may be accepted at all.
pub fn accept(findings: Vec<Finding>, accepted: &[Accept], is_acceptable: impl Fn(&str) -> bool) -> Vec<Finding> {
    findings
        .into_iter()
        .map(|mut finding| {
            let covers = |accept: &&Accept| {
                accept.code == finding.code
                    && accept.host.as_ref().is_none_or(|host| finding.place.host.as_ref() == Some(host))
            };
            let Some(accept) = accepted.iter().find(covers).filter(|_| finding.is_error()) else { return finding };
            if is_acceptable(&finding.code) {
                finding.severity = Severity::Warning;
                finding.message = format!("{} (accepted: {})", finding.message, accept.reason);
            } else {
                finding.message = format!("{} (`{}` cannot be accepted)", finding.message, finding.code);
            }
            finding
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use torchlift_schema::Place;

    use super::*;

    fn accepted(code: &str, host: Option<&str>) -> Accept {
        Accept { code: code.to_owned(), host: host.map(str::to_owned), reason: "we know".to_owned() }
    }

    fn error(code: &str, host: &str) -> Finding {
        Finding::error(code, Place::host(host), "wrong")
    }

    #[test]
    fn an_accepted_finding_becomes_a_warning_with_its_reason_on_its_host_only() {
        let findings = vec![error("library-missing", "a"), error("library-missing", "b"), error("other", "a")];
        let after = accept(findings, &[accepted("library-missing", Some("a"))], |_| true);
        let shown: Vec<_> = after.iter().map(|finding| (finding.severity, finding.message.as_str())).collect();
        assert_eq!(
            shown,
            [(Severity::Warning, "wrong (accepted: we know)"), (Severity::Error, "wrong"), (Severity::Error, "wrong")]
        );
    }

    #[test]
    fn what_cannot_be_accepted_stays_an_error_and_says_so() {
        let after = accept(vec![error("program-changed", "a")], &[accepted("program-changed", None)], |_| false);
        assert!(after[0].is_error());
        assert_eq!(after[0].message, "wrong (`program-changed` cannot be accepted)");
    }
}
