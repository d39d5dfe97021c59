//! An ELF file as the dynamic loader sees it: program headers, the dynamic section, and what that points at.
//!
//! Every address is turned into a bounded piece of the file, and every loop has a limit of its own, so that no
//! arrangement of bytes costs more than a small multiple of the limits below.

use std::ffi::CStr;

use object::elf;
use object::endian::Endianness;
use object::read::elf::{Dyn, FileHeader, ProgramHeader};
use object::read::{ReadRef, Result as ObjectResult};

use super::{ByteOrder, Class, ElfFacts, Kind, NeededVersion, VersionNeed};

/// Entries of a dynamic section that are read; real ones have fewer than a hundred, and one DT_NEEDED each library.
const MAX_DYNAMIC: usize = 4096;
/// Bytes of one name; the loader opens no path that is longer.
const MAX_NAME: usize = 4096;
/// Bytes of a DT_RPATH or DT_RUNPATH.
const MAX_SEARCH_PATH: usize = 64 * 1024;
/// Version records in one file; libc has about 50, and their index has 15 bits.
const MAX_VERSIONS: usize = 4096;
/// Bytes of all version names together: what bounds memory when many records point at one long name.
const MAX_VERSION_TEXT: usize = 1024 * 1024;
/// Notes that are looked at for the build id.
const MAX_NOTES: usize = 64;
/// Bytes of a build id; sha1 has 20.
const MAX_BUILD_ID: usize = 64;

/// What does not hold, as a fragment.
pub(in crate::preflight) type Damage = &'static str;

/// What a file needs of libraries by version, and the index by which its symbols name each version.
pub(in crate::preflight) type IndexedNeeds = (Vec<VersionNeed>, Vec<(u16, String)>);

/// An ELF file whose headers were read.
pub(in crate::preflight) struct Image<'d, H: FileHeader<Endian = Endianness>> {
    data: &'d [u8],
    header: &'d H,
    endian: Endianness,
    segments: &'d [H::ProgramHeader],
    dynamic: Vec<(elf::DynamicTag, u64)>,
    is_dynamic: bool,
    strings: &'d [u8],
}

/// Runs `$body` on the image of `$bytes`, which begin with the ELF magic, in the class that its header names.
macro_rules! with_image {
    ($bytes:expr, $image:ident => $body:expr) => {{
        use object::elf::{FileHeader32, FileHeader64};
        use object::endian::Endianness;
        match $bytes.get(4) {
            Some(1) => {
                let $image = $crate::preflight::elf::Image::<FileHeader32<Endianness>>::parse($bytes);
                $body
            }
            Some(2) => {
                let $image = $crate::preflight::elf::Image::<FileHeader64<Endianness>>::parse($bytes);
                $body
            }
            _ => Err("its class is neither 32 nor 64 bits"),
        }
    }};
}
pub(in crate::preflight) use with_image;

fn or<T, E>(result: Result<T, E>, what: Damage) -> Result<T, Damage> {
    result.map_err(|_| what)
}

impl<'d, H: FileHeader<Endian = Endianness>> Image<'d, H> {
    /// Reads the headers and the dynamic section of `data`.
    pub(in crate::preflight) fn parse(data: &'d [u8]) -> Result<Self, Damage> {
        let header: &H = or(H::parse(data), "its header is cut short or unknown")?;
        let endian = or(header.endian(), "its byte order is unknown")?;
        let segments: ObjectResult<&[H::ProgramHeader]> = header.program_headers(endian, data);
        let segments = or(segments, "its program headers lie outside the file")?;
        let mut image = Self {
            data,
            header,
            endian,
            segments,
            dynamic: Vec::new(),
            is_dynamic: false,
            strings: Default::default(),
        };
        image.read_dynamic()?;
        Ok(image)
    }

    fn read_dynamic(&mut self) -> Result<(), Damage> {
        for segment in self.segments {
            let entries = segment.dynamic(self.endian, self.data);
            let Some(entries) = or(entries, "its dynamic section lies outside the file")? else { continue };
            self.is_dynamic = true;
            for entry in entries.iter().take(MAX_DYNAMIC) {
                let tag = entry.tag(self.endian);
                if tag == elf::DT_NULL {
                    break;
                }
                self.dynamic.push((tag, entry.val(self.endian)));
            }
            break;
        }
        if let Some(address) = self.value(elf::DT_STRTAB) {
            let strings = self.at(address).ok_or("its string table lies outside the file")?;
            let size = self.value(elf::DT_STRSZ).unwrap_or(u64::MAX);
            self.strings = &strings[..strings.len().min(usize::try_from(size).unwrap_or(usize::MAX))];
        }
        Ok(())
    }

    /// Byte order of its values.
    pub(in crate::preflight) fn endian(&self) -> Endianness {
        self.endian
    }

    /// The value of the last entry with `tag`, as the loader takes it.
    pub(in crate::preflight) fn value(&self, tag: elf::DynamicTag) -> Option<u64> {
        self.dynamic.iter().rev().find(|entry| entry.0 == tag).map(|entry| entry.1)
    }

    /// The bytes from virtual address `address` to the end of its loaded segment.
    pub(in crate::preflight) fn at(&self, address: u64) -> Option<&'d [u8]> {
        self.segments.iter().filter(|segment| segment.p_type(self.endian) == elf::PT_LOAD).find_map(|segment| {
            let offset = address.checked_sub(segment.p_vaddr(self.endian).into())?;
            let bytes = segment.data(self.endian, self.data).ok()?;
            bytes.get(usize::try_from(offset).ok()?..).filter(|rest| !rest.is_empty())
        })
    }

    /// The NUL-ended string at `offset` of the dynamic string table, without its NUL.
    pub(in crate::preflight) fn string(&self, offset: u64, limit: usize) -> Result<&'d [u8], Damage> {
        let rest = usize::try_from(offset).ok().and_then(|offset| self.strings.get(offset..));
        let rest = rest.ok_or("a name lies outside its string table")?;
        let window = &rest[..rest.len().min(limit.saturating_add(1))];
        let name = CStr::from_bytes_until_nul(window).map_err(|_| "a name in its string table has no end")?;
        Ok(name.to_bytes())
    }

    fn name(&self, offset: u64) -> Result<String, Damage> {
        self.string(offset, MAX_NAME).map(|name| String::from_utf8_lossy(name).into_owned())
    }

    fn search_path(&self, tag: elf::DynamicTag) -> Result<Option<Vec<String>>, Damage> {
        let Some(offset) = self.value(tag) else { return Ok(None) };
        let text = self.string(offset, MAX_SEARCH_PATH)?;
        Ok(Some(String::from_utf8_lossy(text).split(':').map(str::to_owned).collect()))
    }

    /// All facts of it.
    pub(super) fn facts(&self) -> Result<ElfFacts, Damage> {
        let needed = self.dynamic.iter().filter(|entry| entry.0 == elf::DT_NEEDED);
        let needed = needed.map(|entry| self.name(entry.1)).collect::<Result<_, _>>()?;
        let runpath = self.search_path(elf::DT_RUNPATH)?;
        let rpath = if runpath.is_some() { None } else { self.search_path(elf::DT_RPATH)? };
        let interpreter = self.interpreter()?;
        let flags = elf::DynamicFlags1(self.value(elf::DT_FLAGS_1).unwrap_or(0));
        let is_pie = interpreter.is_some() || flags.contains(elf::DF_1_PIE);
        Ok(ElfFacts {
            class: if self.header.is_type_64() { Class::Bits64 } else { Class::Bits32 },
            byte_order: if self.endian == Endianness::Little { ByteOrder::Little } else { ByteOrder::Big },
            arch: self.arch(),
            kind: match self.header.e_type(self.endian) {
                elf::ET_EXEC => Kind::Executable,
                elf::ET_DYN if is_pie => Kind::PositionIndependent,
                elf::ET_DYN => Kind::Shared,
                _ => Kind::Other,
            },
            is_dynamic: self.is_dynamic,
            soname: self.value(elf::DT_SONAME).map(|offset| self.name(offset)).transpose()?,
            needed,
            rpath: rpath.unwrap_or_default(),
            runpath,
            interpreter,
            build_id: self.build_id(),
            version_needs: self.version_needs()?,
            version_defs: self.version_defs()?.into_iter().map(|(_, name)| name).collect(),
            has_symbol_versions: self.value(elf::DT_VERSYM).is_some(),
            has_nodefaultlib: flags.contains(elf::DF_1_NODEFLIB),
        })
    }

    fn arch(&self) -> String {
        let is_64 = self.header.is_type_64();
        let is_little = self.endian == Endianness::Little;
        let machine = self.header.e_machine(self.endian);
        let name = match machine {
            elf::EM_X86_64 if is_64 => "x86_64",
            elf::EM_X86_64 => "x86_64-x32",
            elf::EM_386 => "i686",
            elf::EM_AARCH64 if is_little => "aarch64",
            elf::EM_AARCH64 => "aarch64_be",
            elf::EM_ARM => "arm",
            elf::EM_RISCV if is_64 => "riscv64",
            elf::EM_RISCV => "riscv32",
            elf::EM_PPC64 if is_little => "powerpc64le",
            elf::EM_PPC64 => "powerpc64",
            elf::EM_PPC => "powerpc",
            elf::EM_S390 if is_64 => "s390x",
            elf::EM_LOONGARCH => "loongarch64",
            other => return format!("machine-{}", other.0),
        };
        name.to_owned()
    }

    fn interpreter(&self) -> Result<Option<String>, Damage> {
        for segment in self.segments {
            let found = segment.interpreter(self.endian, self.data);
            if let Some(name) = or(found, "the name of its loader lies outside the file")? {
                let name = name.get(..MAX_NAME.min(name.len())).unwrap_or_default();
                return Ok(Some(String::from_utf8_lossy(name).into_owned()));
            }
        }
        Ok(None)
    }

    fn build_id(&self) -> Option<String> {
        // A damaged note is no reason to refuse a file: the loader does not look at this one.
        for segment in self.segments {
            let Ok(Some(mut notes)) = segment.notes(self.endian, self.data) else { continue };
            for _ in 0..MAX_NOTES {
                let Ok(Some(note)) = notes.next() else { break };
                if note.name() == elf::ELF_NOTE_GNU && note.n_type(self.endian) == elf::NT_GNU_BUILD_ID {
                    let bytes = note.desc();
                    return (!bytes.is_empty() && bytes.len() <= MAX_BUILD_ID)
                        .then(|| super::super::digest::hex(bytes));
                }
            }
        }
        None
    }

    fn version_needs(&self) -> Result<Vec<VersionNeed>, Damage> {
        Ok(self.version_needs_by_index()?.0)
    }

    /// The versions that it needs, and the index by which its symbols name each.
    pub(in crate::preflight) fn version_needs_by_index(&self) -> Result<IndexedNeeds, Damage> {
        const OUTSIDE: Damage = "its version needs lie outside the file";
        let Some(address) = self.value(elf::DT_VERNEED) else { return Ok(Default::default()) };
        let mut rest = self.at(address).ok_or(OUTSIDE)?;
        let mut needs = Vec::new();
        let mut indices = Vec::new();
        let mut budget = VersionBudget::default();
        loop {
            let need: &elf::Verneed<Endianness> = or(rest.read_at(0), OUTSIDE)?;
            let mut versions = Vec::new();
            let mut aux = forward(rest, need.vn_aux.get(self.endian)).ok_or(OUTSIDE)?;
            for _ in 0..need.vn_cnt.get(self.endian) {
                let entry: &elf::Vernaux<Endianness> = or(aux.read_at(0), OUTSIDE)?;
                let name = self.name(entry.vna_name.get(self.endian).into())?;
                budget.spend(&name)?;
                let is_weak = entry.vna_flags.get(self.endian).contains(elf::VER_FLG_WEAK);
                indices.push((entry.vna_other.get(self.endian).0, name.clone()));
                versions.push(NeededVersion { name, is_weak });
                match entry.vna_next.get(self.endian) {
                    0 => break,
                    next => aux = forward(aux, next).ok_or(OUTSIDE)?,
                }
            }
            let library = self.name(need.vn_file.get(self.endian).into())?;
            budget.spend(&library)?;
            needs.push(VersionNeed { library, versions });
            match need.vn_next.get(self.endian) {
                0 => return Ok((needs, indices)),
                next => rest = forward(rest, next).ok_or(OUTSIDE)?,
            }
        }
    }

    /// The versions that it offers with their index, without the base version.
    pub(in crate::preflight) fn version_defs(&self) -> Result<Vec<(u16, String)>, Damage> {
        const OUTSIDE: Damage = "its version definitions lie outside the file";
        let Some(address) = self.value(elf::DT_VERDEF) else { return Ok(Vec::new()) };
        let mut rest = self.at(address).ok_or(OUTSIDE)?;
        let mut defs = Vec::new();
        let mut budget = VersionBudget::default();
        loop {
            let def: &elf::Verdef<Endianness> = or(rest.read_at(0), OUTSIDE)?;
            let aux = forward(rest, def.vd_aux.get(self.endian)).ok_or(OUTSIDE)?;
            let aux: &elf::Verdaux<Endianness> = or(aux.read_at(0), OUTSIDE)?;
            let name = self.name(aux.vda_name.get(self.endian).into())?;
            budget.spend(&name)?;
            if !def.vd_flags.get(self.endian).contains(elf::VER_FLG_BASE) {
                defs.push((def.vd_ndx.get(self.endian).0, name));
            }
            match def.vd_next.get(self.endian) {
                0 => return Ok(defs),
                next => rest = forward(rest, next).ok_or(OUTSIDE)?,
            }
        }
    }
}

/// What remains of the limits on version records.
#[derive(Default)]
struct VersionBudget {
    records: usize,
    text: usize,
}

impl VersionBudget {
    fn spend(&mut self, name: &str) -> Result<(), Damage> {
        self.records += 1;
        self.text += name.len();
        if self.records > MAX_VERSIONS || self.text > MAX_VERSION_TEXT {
            return Err("it has more version records than any real file");
        }
        Ok(())
    }
}

fn forward(bytes: &[u8], by: u32) -> Option<&[u8]> {
    bytes.get(by as usize..)
}
