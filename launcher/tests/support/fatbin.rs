//! Writes fatbins, bundles and the ELF files around them, byte by byte: what no tool would make, too.
//!
//! Needs nothing but `std`, so that tests of other packages can take this file by its path. The formats are those that
//! `preflight::fatbin` describes; the tests that have NVIDIA's and LLVM's tools hold both against them.

/// Bit 13 of an entry's flags: packed with LZ4.
pub(crate) const LZ4: u64 = 1 << 13;
/// Bit 15: packed with zstd.
pub(crate) const ZSTD: u64 = 1 << 15;
/// Bit 20: for one architecture alone.
pub(crate) const ARCH: u64 = 1 << 20;
/// Bit 21: for a family.
pub(crate) const FAMILY: u64 = 1 << 21;

/// What stands in the header of an entry.
#[derive(Clone, Debug)]
pub(crate) struct Entry {
    /// 1 is PTX, 2 is SASS.
    pub(crate) kind: u16,
    /// 0x101.
    pub(crate) version: u16,
    /// Such as 90.
    pub(crate) arch: u32,
    /// See the constants above.
    pub(crate) flags: u64,
    /// Major and minor version of the code.
    pub(crate) code: (u16, u16),
    /// Options of the compiler, which follow in the header.
    pub(crate) options: Option<&'static str>,
    /// A name, which follows in the header.
    pub(crate) name: Option<&'static str>,
    /// What the entry carries.
    pub(crate) payload: Vec<u8>,
}

impl Entry {
    fn new(kind: u16, arch: u32, flags: u64, code: (u16, u16)) -> Self {
        let payload = vec![0x7f; 24];
        Self { kind, version: 0x101, arch, flags, code, options: None, name: None, payload }
    }

    /// Machine code for `arch`.
    pub(crate) fn sass(arch: u32, flags: u64) -> Self {
        Self::new(2, arch, flags, (1, 7))
    }

    /// PTX for `arch` in a version of its language.
    pub(crate) fn ptx(arch: u32, flags: u64, code: (u16, u16)) -> Self {
        Self { options: Some(""), ..Self::new(1, arch, flags, code) }
    }

    /// The header, with `second` where its own length stands, and a payload of `size` bytes.
    fn header(&self, second: Option<u32>, size: u64) -> Vec<u8> {
        let mut texts = Vec::new();
        let mut name = (0_u32, 0_u32);
        if let Some(text) = self.name {
            name = (64, u32::try_from(text.len()).unwrap());
            padded(&mut texts, text);
        }
        let mut options = 0;
        if let Some(text) = self.options {
            options = 64 + u32::try_from(texts.len()).unwrap();
            texts.extend((options + 8).to_le_bytes());
            texts.extend(u32::try_from(text.len()).unwrap().to_le_bytes());
            padded(&mut texts, text);
        }
        let length = 64 + u32::try_from(texts.len()).unwrap();
        let mut bytes = Vec::new();
        bytes.extend(self.kind.to_le_bytes());
        bytes.extend(self.version.to_le_bytes());
        bytes.extend(second.unwrap_or(length).to_le_bytes());
        bytes.extend(size.to_le_bytes());
        bytes.extend(0_u32.to_le_bytes());
        bytes.extend(options.to_le_bytes());
        bytes.extend(self.code.1.to_le_bytes());
        bytes.extend(self.code.0.to_le_bytes());
        bytes.extend(self.arch.to_le_bytes());
        bytes.extend(name.0.to_le_bytes());
        bytes.extend(name.1.to_le_bytes());
        bytes.extend(self.flags.to_le_bytes());
        bytes.extend([0; 16]);
        bytes.extend(texts);
        bytes
    }

    /// Header and payload.
    pub(crate) fn bytes(&self) -> Vec<u8> {
        let mut bytes = self.header(None, self.payload.len() as u64);
        bytes.extend(&self.payload);
        bytes
    }
}

/// `text`, a zero, and zeros up to a multiple of 8.
fn padded(bytes: &mut Vec<u8>, text: &str) {
    bytes.extend(text.as_bytes());
    bytes.push(0);
    bytes.resize(bytes.len().next_multiple_of(8), 0);
}

/// An entry that joins several, as `fatbinary --concat` does.
pub(crate) fn joined(entries: &[Entry]) -> Vec<u8> {
    let mut table = Vec::new();
    let mut payload: Vec<u8> = Vec::new();
    for entry in entries {
        table.extend(entry.header(Some(u32::try_from(payload.len()).unwrap()), entry.payload.len() as u64));
        payload.extend(&entry.payload);
    }
    let around = Entry { options: None, ..Entry::new(0x100, 0, ZSTD, (0, 1)) };
    let mut bytes = around.header(Some(u32::try_from(72 + table.len()).unwrap()), payload.len() as u64);
    bytes.extend(u32::try_from(entries.len()).unwrap().to_le_bytes());
    bytes.extend(u32::try_from(8 + table.len()).unwrap().to_le_bytes());
    bytes.extend(table);
    bytes.extend(payload);
    bytes
}

/// A region of what is already bytes.
pub(crate) fn region_of(entries: &[u8]) -> Vec<u8> {
    let mut bytes = 0xBA55_ED50_u32.to_le_bytes().to_vec();
    bytes.extend(1_u16.to_le_bytes());
    bytes.extend(16_u16.to_le_bytes());
    bytes.extend((entries.len() as u64).to_le_bytes());
    bytes.extend(entries);
    bytes
}

/// A region of entries.
pub(crate) fn region(entries: &[Entry]) -> Vec<u8> {
    region_of(&entries.iter().flat_map(Entry::bytes).collect::<Vec<_>>())
}

/// An offload bundle of targets, each with its code.
pub(crate) fn bundle(targets: &[(&str, &[u8])]) -> Vec<u8> {
    let list = 32 + targets.iter().map(|(name, _)| 24 + name.len()).sum::<usize>();
    let mut offset = list.next_multiple_of(4096);
    let mut bytes = b"__CLANG_OFFLOAD_BUNDLE__".to_vec();
    bytes.extend((targets.len() as u64).to_le_bytes());
    let mut code = Vec::new();
    for (name, payload) in targets {
        for number in [offset, payload.len(), name.len()] {
            bytes.extend((number as u64).to_le_bytes());
        }
        bytes.extend(name.as_bytes());
        code.push((offset, payload));
        offset = (offset + payload.len()).next_multiple_of(4096);
    }
    for (offset, payload) in code {
        bytes.resize(offset, 0);
        bytes.extend(*payload);
    }
    bytes
}

/// A compressed bundle whose packed bytes are `packed`, and which says that they unpack to `unpacked` bytes.
pub(crate) fn compressed(version: u16, method: u16, packed: &[u8], unpacked: usize) -> Vec<u8> {
    let mut bytes = b"CCOB".to_vec();
    bytes.extend(version.to_le_bytes());
    bytes.extend(method.to_le_bytes());
    let header: usize = [20, 24, 32][usize::from(version) - 1];
    let mut lengths = vec![unpacked];
    if version > 1 {
        lengths.insert(0, header + packed.len());
    }
    for length in lengths {
        let eight = (length as u64).to_le_bytes();
        bytes.extend(if version == 3 { &eight[..] } else { &eight[..4] });
    }
    bytes.extend([0xaa; 8]);
    assert_eq!(bytes.len(), header);
    bytes.extend(packed);
    bytes
}

/// A 64-bit little-endian shared library with these sections and a segment of all of it.
pub(crate) fn elf(sections: &[(&str, &[u8])]) -> Vec<u8> {
    Elf::default().with(sections)
}

/// What of an ELF file is to be written otherwise.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Elf {
    /// Leaves the section headers out, as `llvm-strip --strip-sections` does.
    pub(crate) is_stripped: bool,
    /// Makes all sections SHT_NOBITS, as in a file of debug information.
    pub(crate) is_without_bits: bool,
    /// Is added to the size that each section is said to have.
    pub(crate) excess: u64,
}

impl Elf {
    /// The file.
    pub(crate) fn with(self, sections: &[(&str, &[u8])]) -> Vec<u8> {
        let mut bytes = vec![0; 64 + 56];
        let mut names = vec![0];
        // Name, offset, size.
        let mut places = Vec::new();
        for (name, content) in sections {
            bytes.resize(bytes.len().next_multiple_of(16), 0);
            places.push((names.len(), bytes.len(), content.len() as u64 + self.excess));
            names.extend(name.as_bytes());
            names.push(0);
            bytes.extend(*content);
        }
        let loaded = bytes.len() as u64;
        places.push((names.len(), bytes.len(), names.len() as u64 + 10));
        names.extend(b".shstrtab\0");
        bytes.extend(&names);
        bytes.resize(bytes.len().next_multiple_of(8), 0);
        let table = bytes.len() as u64;
        if !self.is_stripped {
            bytes.extend([0; 64]);
            for (index, (name, offset, size)) in places.iter().enumerate() {
                let is_names = index + 1 == places.len();
                let kind = if is_names {
                    3_u32
                } else if self.is_without_bits {
                    8
                } else {
                    1
                };
                bytes.extend(u32::try_from(*name).unwrap().to_le_bytes());
                bytes.extend(kind.to_le_bytes());
                for value in [2, *offset as u64, *offset as u64, *size, 0, 8, 0] {
                    bytes.extend(value.to_le_bytes());
                }
            }
        }
        let put = |bytes: &mut [u8], at: usize, value: &[u8]| bytes[at..at + value.len()].copy_from_slice(value);
        put(&mut bytes, 0, b"\x7fELF\x02\x01\x01");
        put(&mut bytes, 16, &[3, 0, 62, 0, 1]);
        put(&mut bytes, 32, &64_u64.to_le_bytes());
        put(&mut bytes, 52, &[64, 0, 56, 0, 1, 0]);
        if !self.is_stripped {
            put(&mut bytes, 40, &table.to_le_bytes());
            let number = u8::try_from(places.len() + 1).expect("few sections");
            put(&mut bytes, 58, &[64, 0, number, 0, number - 1, 0]);
        }
        // One PT_LOAD.
        put(&mut bytes, 64, &[1, 0, 0, 0, 4]);
        put(&mut bytes, 96, &loaded.to_le_bytes());
        put(&mut bytes, 104, &loaded.to_le_bytes());
        bytes
    }
}
