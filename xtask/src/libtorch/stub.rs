//! The `libtorch.so` of a cut variant: an empty shared library that needs `libtorch_cpu.so`.
//!
//! The one in a CUDA wheel needs `libtorch_cuda.so`, and a program that keeps it would die in the loader with 127.
//! It is written here byte by byte, so that no compiler is needed. A linker script would serve `-ltorch` as well, but
//! not a program that was linked elsewhere and finds `libtorch.so` only at run time.

use object::write::StringId;
use object::write::elf::{FileHeader, ProgramHeader, Writer};
use object::{Endianness, elf};

/// Memory is protected by pages; 64 KiB is the largest that any supported CPU uses.
const PAGE: u64 = 0x10000;

/// The bytes of the library for a CPU architecture as in a target triple; none for one it cannot be written for.
pub(super) fn libtorch_so(cpu_arch: &str) -> Option<Vec<u8>> {
    let machine = match cpu_arch {
        "x86_64" => elf::EM_X86_64,
        "aarch64" => elf::EM_AARCH64,
        _ => return None,
    };
    let mut bytes = Vec::new();
    let mut writer = Writer::new(Endianness::Little, true, &mut bytes);
    // Everything gets its place before anything is written, in the same order.
    let places = reserve(&mut writer)?;
    write_headers(&mut writer, machine, &places)?;
    write_tables(&mut writer, &places)?;
    Some(bytes)
}

/// Where the parts of the file lie, in bytes from its beginning, and the names in its dynamic table.
struct Places {
    soname: StringId,
    needed: StringId,
    origin: StringId,
    hash: u64,
    dynsym: u64,
    dynstr: u64,
    dynstr_end: u64,
    dynamic: u64,
    /// The end of what the loader maps.
    loaded_end: u64,
}

fn reserve(writer: &mut Writer<'_>) -> Option<Places> {
    writer.reserve_file_header();
    writer.reserve_program_headers(3);
    writer.reserve_null_section_index();
    writer.reserve_hash_section_index();
    writer.reserve_dynsym_section_index();
    writer.reserve_dynstr_section_index();
    writer.reserve_dynamic_section_index();
    writer.reserve_shstrtab_section_index();
    writer.reserve_null_dynamic_symbol_index();
    let soname = writer.add_dynamic_string(b"libtorch.so");
    let needed = writer.add_dynamic_string(b"libtorch_cpu.so");
    let origin = writer.add_dynamic_string(b"$ORIGIN");
    let hash = writer.reserve_hash(1, 1);
    let dynsym = writer.reserve_dynsym();
    let dynstr = writer.reserve_dynstr().ok()?;
    let dynstr_end = writer.reserved_len();
    let dynamic = writer.reserve_dynamic(9);
    let loaded_end = writer.reserved_len();
    writer.reserve_shstrtab().ok()?;
    writer.reserve_section_headers();
    Some(Places { soname, needed, origin, hash, dynsym, dynstr, dynstr_end, dynamic, loaded_end })
}

/// The file's own header, and what the loader is told of its segments.
fn write_headers(writer: &mut Writer<'_>, machine: elf::Machine, places: &Places) -> Option<()> {
    let header = FileHeader {
        os_abi: elf::ELFOSABI_SYSV,
        abi_version: 0,
        e_type: elf::ET_DYN,
        e_machine: machine,
        e_entry: 0,
        e_flags: elf::FileFlags(0),
    };
    writer.write_file_header(&header).ok()?;
    writer.write_align_program_headers();
    // One segment holds everything: the loader writes into the dynamic table, and nothing here is code.
    writer.write_program_header(&segment(elf::PT_LOAD, 0, places.loaded_end, PAGE));
    let size = places.loaded_end - places.dynamic;
    writer.write_program_header(&segment(elf::PT_DYNAMIC, places.dynamic, size, 8));
    // Without it the loader would make every program's stack executable.
    writer.write_program_header(&segment(elf::PT_GNU_STACK, 0, 0, 16));
    Some(())
}

/// Data that lies in memory as it lies in the file.
fn segment(kind: elf::ProgramType, offset: u64, size: u64, align: u64) -> ProgramHeader {
    ProgramHeader {
        p_type: kind,
        p_flags: elf::PF_R | elf::PF_W,
        p_offset: offset,
        p_vaddr: offset,
        p_paddr: offset,
        p_filesz: size,
        p_memsz: size,
        p_align: align,
    }
}

/// What the loader reads, then what linkers and people's tools read.
fn write_tables(writer: &mut Writer<'_>, places: &Places) -> Option<()> {
    writer.write_hash(1, 1, |_| None);
    writer.write_null_dynamic_symbol();
    writer.write_dynstr();
    writer.write_align_dynamic();
    writer.write_dynamic_string(elf::DT_NEEDED, places.needed).ok()?;
    writer.write_dynamic_string(elf::DT_SONAME, places.soname).ok()?;
    writer.write_dynamic_string(elf::DT_RUNPATH, places.origin).ok()?;
    writer.write_dynamic(elf::DT_HASH, places.hash).ok()?;
    writer.write_dynamic(elf::DT_STRTAB, places.dynstr).ok()?;
    writer.write_dynamic(elf::DT_SYMTAB, places.dynsym).ok()?;
    writer.write_dynamic(elf::DT_STRSZ, places.dynstr_end - places.dynstr).ok()?;
    writer.write_dynamic(elf::DT_SYMENT, 24).ok()?;
    writer.write_dynamic(elf::DT_NULL, 0).ok()?;
    writer.write_shstrtab();
    writer.write_null_section_header();
    writer.write_hash_section_header(places.hash);
    writer.write_dynsym_section_header(places.dynsym, 1);
    writer.write_dynstr_section_header(places.dynstr);
    writer.write_dynamic_section_header(places.dynamic);
    writer.write_shstrtab_section_header();
    Some(())
}

#[cfg(test)]
mod tests {
    use camino::Utf8Path;
    use torchlift::preflight::elf;

    use super::*;

    #[test]
    fn it_is_a_library_that_needs_libtorch_cpu_on_every_supported_cpu() {
        for arch in ["x86_64", "aarch64"] {
            let facts = elf::parse(&libtorch_so(arch).unwrap(), "libtorch.so".as_ref()).unwrap();
            assert_eq!((facts.arch.as_str(), facts.soname.as_deref()), (arch, Some("libtorch.so")));
            assert_eq!(facts.needed, ["libtorch_cpu.so"]);
            assert_eq!(facts.runpath, Some(vec!["$ORIGIN".to_owned()]));
        }
        assert_eq!(libtorch_so("riscv64gc"), None);
    }

    #[test]
    fn a_program_that_keeps_it_links_and_starts() {
        let temp = tempfile::tempdir().unwrap();
        let folder = Utf8Path::from_path(temp.path()).unwrap().join("mit Leerzeichen é");
        fs_err::create_dir(&folder).unwrap();
        let run = |args: &[&str]| duct::cmd("cc", args).dir(&folder).run().unwrap();
        fs_err::write(folder.join("cpu.c"), "int answer(void) { return 7; }").unwrap();
        fs_err::write(folder.join("main.c"), "int answer(void); int main(void) { return answer() - 7; }").unwrap();
        fs_err::write(folder.join("libtorch.so"), libtorch_so(std::env::consts::ARCH).unwrap()).unwrap();
        run(&["-shared", "-fPIC", "-Wl,-soname,libtorch_cpu.so", "-o", "libtorch_cpu.so", "cpu.c"]);
        let link = ["-L.", "-Wl,--no-as-needed", "-ltorch", "-Wl,--as-needed", "-ltorch_cpu"];
        run(&[&["-o", "main", "main.c"], &link[..]].concat());
        let needed = elf::read(folder.join("main").as_std_path()).unwrap().needed;
        assert!(needed.contains(&"libtorch.so".to_owned()), "{needed:?}");
        let started = duct::cmd!(folder.join("main").as_std_path()).env("LD_LIBRARY_PATH", folder.as_str()).run();
        assert!(started.is_ok(), "{started:?}");
    }
}
