//! Turns the death by SIGBUS that a mapped file can bring into a mark.
//!
//! A page that a file does not have any more, or that its disk or server does not give, cannot be read, and the kernel says so
//! by SIGBUS at the instruction that reads it. The handler here looks whether the address lies in a range that is watched. If so
//! it puts zeros into its place, marks the range as damaged and lets the instruction run again; whoever reads asks for the mark
//! afterwards. Every other SIGBUS is left to what handled it before: that of Rust's runtime, or the system's own.
//!
//! Owns the one table of ranges, which the handler reads without a lock, since it may interrupt anything. The handler is there
//! from the first range on and stays. A program that is started has none of this: `execve` takes handlers away.

use std::io;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering, compiler_fence};

use nix::errno::Errno;
use nix::libc;
use nix::sys::signal::{SaFlags, SigAction, SigHandler, SigSet, Signal, raise, sigaction};
use nix::unistd::{SysconfVar, sysconf};

/// Ranges that are watched at a time: a closure of libraries is mapped at once to be looked through for symbols, a large one has
/// a hundred. The handler goes through all of them, which takes microseconds.
const RANGES: usize = 1024;
/// What `start` is of a slot that nobody has; no range begins there.
const FREE: usize = 0;
/// What it is while its taker writes the rest; nor there.
const TAKEN: usize = 1;

static TABLE: Table<RANGES> = Table::new();
/// What was done at a SIGBUS before; none while that is not known.
static BEFORE: OnceLock<Option<SigAction>> = OnceLock::new();
/// Bytes of a page; 0 until it was asked for.
static PAGE: AtomicUsize = AtomicUsize::new(0);

/// A range of addresses in which a SIGBUS is a mark. It must be unwatched before it is unmapped: what is mapped at these
/// addresses next belongs to someone else.
#[derive(Debug)]
pub(super) struct Watch {
    slot: &'static Slot,
}

impl Watch {
    /// Watches the pages of `bytes`, which must be those of a map that is read-only and of this process alone.
    ///
    /// # Errors
    /// When as many as there can be are watched already, or the handler cannot be installed.
    pub(super) fn over(bytes: &[u8]) -> io::Result<Self> {
        install()?;
        TABLE.watch(bytes, PAGE.load(Ordering::SeqCst)).map(|slot| Self { slot }).ok_or_else(|| {
            io::Error::new(io::ErrorKind::ResourceBusy, format!("more than {RANGES} files are looked into at once"))
        })
    }

    /// Whether something in it could not be read since.
    pub(super) fn is_damaged(&self) -> bool {
        // What was read was read before: the handler runs in between as far as the compiler is concerned.
        compiler_fence(Ordering::SeqCst);
        self.slot.is_damaged.load(Ordering::SeqCst)
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        self.slot.start.store(FREE, Ordering::SeqCst);
    }
}

/// A fixed number of ranges.
#[derive(Debug)]
struct Table<const COUNT: usize> {
    slots: [Slot; COUNT],
}

#[derive(Debug)]
struct Slot {
    start: AtomicUsize,
    end: AtomicUsize,
    is_damaged: AtomicBool,
}

impl Slot {
    const fn new() -> Self {
        Self { start: AtomicUsize::new(FREE), end: AtomicUsize::new(0), is_damaged: AtomicBool::new(false) }
    }
}

impl<const COUNT: usize> Table<COUNT> {
    const fn new() -> Self {
        Self { slots: [const { Slot::new() }; COUNT] }
    }

    /// Takes a slot for the pages of `bytes`; none when there is none.
    fn watch(&self, bytes: &[u8], page: usize) -> Option<&Slot> {
        let take = |slot: &&Slot| slot.start.compare_exchange(FREE, TAKEN, Ordering::SeqCst, Ordering::SeqCst).is_ok();
        let slot = self.slots.iter().find(take)?;
        let start = bytes.as_ptr().expose_provenance();
        slot.end.store((start + bytes.len()).next_multiple_of(page), Ordering::SeqCst);
        slot.is_damaged.store(false, Ordering::SeqCst);
        slot.start.store(start, Ordering::SeqCst);
        Some(slot)
    }

    /// The slot that has `address`, and the end of its range. Runs in the handler.
    fn find(&self, address: usize) -> Option<(&Slot, usize)> {
        self.slots.iter().find_map(|slot| {
            let start = slot.start.load(Ordering::SeqCst);
            let end = slot.end.load(Ordering::SeqCst);
            // Another thread may have given this slot to another range between the two.
            let is_one = start > TAKEN && slot.start.load(Ordering::SeqCst) == start;
            (is_one && (start..end).contains(&address)).then_some((slot, end))
        })
    }
}

/// Installs the handler, once.
fn install() -> io::Result<()> {
    let before = BEFORE.get_or_init(|| {
        let page = sysconf(SysconfVar::PAGE_SIZE).ok().flatten().and_then(|size| usize::try_from(size).ok())?;
        PAGE.store(page, Ordering::SeqCst);
        // On the thread's own stack for signals where it has one: Rust's handler, which may come next, finds it needful.
        let flags = SaFlags::SA_SIGINFO | SaFlags::SA_ONSTACK;
        let ours = SigAction::new(SigHandler::SigAction(handle), flags, SigSet::empty());
        // SAFETY: `handle` uses atomics and `mmap`, `sigaction` and `raise`, all of which are bare system calls.
        unsafe { sigaction(Signal::SIGBUS, &ours) }.ok()
    });
    match before {
        Some(_) => Ok(()),
        None => Err(io::Error::new(io::ErrorKind::Unsupported, "what a damaged file does cannot be caught here")),
    }
}

/// Runs as a signal handler.
extern "C" fn handle(_: libc::c_int, info: *mut libc::siginfo_t, _: *mut libc::c_void) {
    let saved = Errno::last_raw();
    // SAFETY: the kernel gives a handler with SA_SIGINFO a whole `siginfo_t`; what it holds for a signal that another process
    // sent is no address, and then the code says so.
    let (code, address) = unsafe { ((*info).si_code, (*info).si_addr().addr()) };
    if !(is_access(code) && mend(address)) {
        step_aside(code);
    }
    Errno::set_raw(saved);
}

/// Whether the signal tells of an access of this thread, which is tried again when the handler returns.
fn is_access(code: libc::c_int) -> bool {
    /// The last of the codes that tell of an address of this thread's own access; the next is of memory that failed and that
    /// nobody has touched yet.
    const LAST: libc::c_int = libc::BUS_MCEERR_AR;
    (libc::BUS_ADRALN..=LAST).contains(&code)
}

/// Puts zeros where nothing can be read, if that is in a watched range. Runs in the handler.
fn mend(address: usize) -> bool {
    let page = PAGE.load(Ordering::SeqCst);
    let Some((slot, end)) = TABLE.find(address).filter(|_| page.is_power_of_two()) else { return false };
    // To the end of the range: a file that was cut short lacks all of that, and one mark spoils the whole range anyway. Page by
    // page it would be a signal and a map each, and of those a process has no more than some 60,000.
    let from = address & !(page - 1);
    let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_FIXED;
    let place = std::ptr::with_exposed_provenance_mut(from);
    // SAFETY: the pages are those of a read-only map that is ours while its range is watched, and nothing of Rust's lies in them
    // but bytes that are looked at as untrusted; they are replaced as a whole, by pages that can be read just as well.
    let placed = unsafe { libc::mmap(place, end - from, libc::PROT_READ, flags, -1, 0) };
    let is_mended = placed != libc::MAP_FAILED;
    if is_mended {
        slot.is_damaged.store(true, Ordering::SeqCst);
    }
    is_mended
}

/// Gives the signal to what handled it before, from now on. Runs in the handler.
fn step_aside(code: libc::c_int) {
    let default = SigAction::new(SigHandler::SigDfl, SaFlags::empty(), SigSet::empty());
    let before = BEFORE.get().copied().flatten().unwrap_or(default);
    // SAFETY: puts back what was there.
    let _ = unsafe { sigaction(Signal::SIGBUS, &before) };
    // An access is tried again and fails again. A signal that was sent is sent again, and waits for this handler to return.
    if !is_access(code) && code != libc::SI_KERNEL {
        let _ = raise(Signal::SIGBUS);
    }
}

#[cfg(test)]
mod tests;
