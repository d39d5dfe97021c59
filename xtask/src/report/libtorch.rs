//! A libtorch tree in words.

use std::fmt::Write as _;

use torchlift::preflight::fatbin::GpuContent;
use torchlift::preflight::symbols::CxxAbi;
use torchlift_schema::Accelerator;
use torchlift_schema::gpu::GpuCode;

use crate::libtorch::event::human_size;
use crate::libtorch::survey::{Library, LibraryKind, Survey};

/// Below this share of regions a library's code for an architecture is told apart: some kernels have it, most have not.
const WHOLE: f64 = 0.9995;

/// All that the files say, a line each.
pub fn describe(survey: &Survey, abi_digest: Option<&str>) -> String {
    let mut text = String::new();
    let mut line = |name: &str, value: &str| {
        let _ = writeln!(text, "{name:<12} {value}");
    };
    line("folder", survey.root.as_str());
    for stated in &survey.versions {
        line("version", &format!("{} ({})", stated.version, stated.file));
    }
    line("accelerator", &accelerator(&survey.accelerator));
    line("CPU", &survey.cpu_arch);
    line("C++ ABI", abi(survey.cxx_abi));
    if let Some(glibc) = &survey.glibc {
        line("glibc", &format!("{glibc} or newer"));
    }
    if let Some(libstdcxx) = &survey.libstdcxx {
        line("libstdc++", &format!("GLIBCXX_{libstdcxx} or newer"));
    }
    line("ABI digest", abi_digest.unwrap_or("not known: a library is damaged"));
    let files = survey.libraries.iter().filter(|library| library.kind == LibraryKind::Library).count();
    line("libraries", &format!("{files}, {}", human_size(survey.size)));
    if let Some(gpu) = survey.kernels().and_then(|library| library.gpu.as_ref()) {
        line("GPU code", &names(gpu.archs()));
        for (code, covered) in gpu.coverage().into_iter().filter(|(code, _)| gpu.partial().contains(code)) {
            line("", &format!("{code} only in {covered} of {} regions", gpu.count()));
        }
    }
    text.push('\n');
    for library in &survey.libraries {
        describe_library(library, &mut text);
    }
    if !survey.loaded_by_name.is_empty() {
        text.push_str("\nloaded by name while a program runs\n");
    }
    for loaded in &survey.loaded_by_name {
        let state = match (&loaded.found, loaded.is_required) {
            (Some(_), _) => "there",
            (None, true) => "MISSING",
            (None, false) => "not there",
        };
        let file = loaded.found.as_ref().unwrap_or(&loaded.loads);
        let _ = writeln!(text, "  {file} by {}: {state} ({})", loaded.loader, loaded.purpose);
    }
    text
}

fn describe_library(library: &Library, text: &mut String) {
    let what = match library.kind {
        LibraryKind::Library => human_size(library.size),
        LibraryKind::Link => format!("-> {}", library.target.as_deref().unwrap_or_default()),
        LibraryKind::LinkerScript => "a script for the linker".to_owned(),
        LibraryKind::Unreadable => "cannot be read".to_owned(),
    };
    let _ = writeln!(text, "{} {what}", library.file);
    if library.kind != LibraryKind::Library {
        return;
    }
    let mut line = |name: &str, value: &str| {
        let _ = writeln!(text, "    {name:<8} {value}");
    };
    match &library.soname {
        Some(soname) if *soname == library.file => {}
        Some(soname) => line("soname", soname),
        None => line("soname", "none"),
    }
    if !library.needed.is_empty() {
        line("needed", &library.needed.join(" "));
    }
    if !library.rpath.is_empty() {
        line("rpath", &library.rpath.join(":"));
    }
    if let Some(runpath) = &library.runpath {
        line("runpath", &runpath.join(":"));
    }
    let floors = [("glibc", &library.glibc), ("GLIBCXX", &library.libstdcxx)];
    let floors: Vec<String> =
        floors.iter().filter_map(|(name, floor)| Some(format!("{name} {}", floor.as_ref()?))).collect();
    if !floors.is_empty() {
        line("needs", &floors.join(", "));
    }
    if let Some(gpu) = &library.gpu {
        line("GPU code", &shares(gpu));
    }
}

/// `397 regions: sm_70 sm_75 …; sm_89 0.3 %`.
fn shares(gpu: &GpuContent) -> String {
    let (whole, part): (Vec<_>, Vec<_>) =
        gpu.coverage().into_keys().map(|code| (code, gpu.share(code))).partition(|(_, share)| *share >= WHOLE);
    let regions = if gpu.count() == 1 { "1 region".to_owned() } else { format!("{} regions", gpu.count()) };
    let parts = part.iter().map(|(code, share)| format!("{code} {:.1} %", share * 100.0));
    let groups = [names(whole.into_iter().map(|(code, _)| code)), parts.collect::<Vec<_>>().join(", ")];
    let groups: Vec<String> = groups.into_iter().filter(|group| !group.is_empty()).collect();
    if groups.is_empty() {
        format!("{regions} without code for a card")
    } else {
        format!("{regions}: {}", groups.join("; "))
    }
}

fn names(codes: impl IntoIterator<Item = GpuCode>) -> String {
    codes.into_iter().map(|code| code.to_string()).collect::<Vec<_>>().join(" ")
}

fn accelerator(accelerator: &Accelerator) -> String {
    let named =
        |name: &str, version: &str| if version.is_empty() { name.to_owned() } else { format!("{name} {version}") };
    match accelerator {
        Accelerator::Cuda(version) => named("CUDA", version),
        Accelerator::Rocm(version) => named("ROCm", version),
        _ => "CPU only".to_owned(),
    }
}

fn abi(abi: CxxAbi) -> &'static str {
    match abi {
        CxxAbi::Cxx11 => "C++11 strings (_GLIBCXX_USE_CXX11_ABI=1)",
        CxxAbi::PreCxx11 => "old strings (_GLIBCXX_USE_CXX11_ABI=0)",
        CxxAbi::Unknown => "its symbols do not tell",
    }
}
