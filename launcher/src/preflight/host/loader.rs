//! Where the loader searches.

use torchlift_schema::host::LoaderFacts;

use super::Question;

/// Tells it.
pub(super) fn read(question: &Question<'_>) -> LoaderFacts {
    let host = question.libraries;
    let text = |path: &std::path::Path| path.to_string_lossy().into_owned();
    let mut facts = LoaderFacts::default();
    facts.program = host.loader.as_deref().map(text);
    facts.library_path = question.library_path.elements().iter().map(|folder| text(folder)).collect();
    facts.configured = host.configured_folders().iter().map(|folder| text(folder)).collect();
    facts.default_folders = host.default_folders.iter().map(|folder| text(folder)).collect();
    facts.hwcaps = host.hwcaps.clone();
    if !host.cache.is_empty() {
        facts.cached = u32::try_from(host.cache.len()).ok();
        facts.from.push(HOST_CACHE.to_owned());
    }
    if !facts.configured.is_empty() {
        facts.from.push(text(&host.configuration));
    }
    facts
}

const HOST_CACHE: &str = crate::preflight::loader::CACHE;
