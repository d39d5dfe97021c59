//! One end of the SOCK_SEQPACKET pair between a launcher and its guard.
//!
//! A frame is received whole or not at all, and its letter (a few bytes of any content) and descriptors arrive with it.
//! Every descriptor that comes in is CLOEXEC from the start, so that no rank ever inherits one.

use std::io::{IoSlice, IoSliceMut};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};

use nix::errno::Errno;
use nix::sys::socket::{
    AddressFamily, ControlMessage, ControlMessageOwned, MsgFlags, SockFlag, SockType, recvmsg, sendmsg, socketpair,
};

use super::message::Frame;

/// Descriptors that travel with one frame, at most: a command and two pipes.
const MAX_DESCRIPTORS: usize = 3;

/// Bytes of a letter, at most. With the kernel's own part a full message stays within a page, and a window of them within the
/// socket's buffer of 208 KiB.
pub(crate) const LETTER_MAX: usize = 3072;

/// One end.
#[derive(Debug)]
pub(crate) struct Channel(OwnedFd);

/// What a look at the channel gave.
#[derive(Debug)]
pub(crate) enum Received {
    /// A frame with its letter and its descriptors.
    Frame(Frame, Vec<u8>, Vec<OwnedFd>),
    /// Nothing is there now.
    Nothing,
    /// The other end is closed.
    Closed,
}

impl Channel {
    /// Both ends, CLOEXEC.
    pub(crate) fn pair() -> nix::Result<(Self, Self)> {
        let (ours, theirs) = socketpair(AddressFamily::Unix, SockType::SeqPacket, None, SockFlag::SOCK_CLOEXEC)?;
        Ok((Self(ours), Self(theirs)))
    }

    /// The end that a descriptor is.
    pub(crate) fn over(fd: OwnedFd) -> Self {
        Self(fd)
    }

    /// Sends a frame with a letter of at most [`LETTER_MAX`] bytes. Blocks unless `flags` says otherwise; never raises SIGPIPE.
    pub(crate) fn send(&self, frame: Frame, letter: &[u8], fds: &[BorrowedFd<'_>], flags: MsgFlags) -> nix::Result<()> {
        if letter.len() > LETTER_MAX {
            return Err(Errno::EMSGSIZE);
        }
        let bytes = bytes_of(frame);
        let raw: Vec<RawFd> = fds.iter().map(AsRawFd::as_raw_fd).collect();
        let rights = [ControlMessage::ScmRights(&raw)];
        let control: &[ControlMessage<'_>] = if raw.is_empty() { &[] } else { &rights };
        loop {
            match sendmsg::<()>(
                self.0.as_raw_fd(),
                &[IoSlice::new(&bytes), IoSlice::new(letter)],
                control,
                flags | MsgFlags::MSG_NOSIGNAL,
                None,
            ) {
                Err(Errno::EINTR) => {}
                Err(error) => return Err(error),
                Ok(_) => return Ok(()),
            }
        }
    }

    /// Takes the next frame without waiting.
    #[expect(unsafe_code, reason = "descriptors arrive as bare numbers")]
    pub(crate) fn receive(&self) -> nix::Result<Received> {
        let mut bytes = [0_u8; size_of::<Frame>()];
        let mut letter = [0_u8; LETTER_MAX];
        let mut space = nix::cmsg_space!([RawFd; MAX_DESCRIPTORS]);
        let mut fds = Vec::new();
        let length = loop {
            let mut slices = [IoSliceMut::new(&mut bytes), IoSliceMut::new(&mut letter)];
            let flags = MsgFlags::MSG_DONTWAIT | MsgFlags::MSG_CMSG_CLOEXEC;
            match recvmsg::<()>(self.0.as_raw_fd(), &mut slices, Some(&mut space), flags) {
                Ok(message) => {
                    for control in message.cmsgs()? {
                        if let ControlMessageOwned::ScmRights(raw) = control {
                            // SAFETY: the kernel has just made these descriptors for this process; nobody else knows them.
                            fds.extend(raw.into_iter().map(|fd| unsafe { OwnedFd::from_raw_fd(fd) }));
                        }
                    }
                    break message.bytes;
                }
                Err(Errno::EINTR) => {}
                Err(Errno::EAGAIN) => return Ok(Received::Nothing),
                // The other end was closed while it had frames unread.
                Err(Errno::ECONNRESET) => return Ok(Received::Closed),
                Err(error) => return Err(error),
            }
        };
        if length < bytes.len() {
            // No frame is empty or short: this is the end of file.
            return Ok(Received::Closed);
        }
        Ok(Received::Frame(frame_of(bytes), letter[..length - bytes.len()].to_vec(), fds))
    }
}

impl AsFd for Channel {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

fn bytes_of(frame: Frame) -> [u8; size_of::<Frame>()] {
    let mut bytes = [0; size_of::<Frame>()];
    for (chunk, word) in bytes.chunks_exact_mut(4).zip(frame) {
        chunk.copy_from_slice(&word.to_ne_bytes());
    }
    bytes
}

fn frame_of(bytes: [u8; size_of::<Frame>()]) -> Frame {
    let mut frame = Frame::default();
    for (word, chunk) in frame.iter_mut().zip(bytes.chunks_exact(4)) {
        let mut four = [0; 4];
        four.copy_from_slice(chunk);
        *word = u32::from_ne_bytes(four);
    }
    frame
}

#[cfg(test)]
mod tests {
    use std::io::{Read as _, Write as _};

    use super::*;

    #[test]
    fn a_frame_arrives_with_its_letter_and_descriptors() {
        let (left, right) = Channel::pair().unwrap();
        let (read, write) = std::io::pipe().unwrap();
        left.send([1, 2, 3, 4], b"a letter", &[write.as_fd()], MsgFlags::empty()).unwrap();
        drop(write);
        let Received::Frame(frame, letter, mut fds) = right.receive().unwrap() else { panic!("no frame") };
        assert_eq!((frame, letter.as_slice()), ([1, 2, 3, 4], b"a letter".as_slice()));
        assert_eq!(fds.len(), 1);
        let mut write = std::fs::File::from(fds.remove(0));
        write.write_all(b"through").unwrap();
        drop(write);
        let mut text = String::new();
        { read }.read_to_string(&mut text).unwrap();
        assert_eq!(text, "through");
    }

    #[test]
    fn the_longest_letter_arrives_whole_and_a_longer_one_is_refused() {
        let (left, right) = Channel::pair().unwrap();
        let longest: Vec<u8> = (0..LETTER_MAX).map(|index| index as u8).collect();
        left.send([1; 4], &longest, &[], MsgFlags::empty()).unwrap();
        let Received::Frame(_, letter, _) = right.receive().unwrap() else { panic!("no frame") };
        assert_eq!(letter, longest);
        let longer = vec![0; LETTER_MAX + 1];
        assert_eq!(left.send([1; 4], &longer, &[], MsgFlags::empty()), Err(Errno::EMSGSIZE));
    }

    #[test]
    fn an_empty_channel_and_a_closed_one_are_told_apart() {
        let (left, right) = Channel::pair().unwrap();
        assert!(matches!(right.receive().unwrap(), Received::Nothing));
        left.send([7; 4], b"", &[], MsgFlags::empty()).unwrap();
        drop(left);
        assert!(matches!(right.receive().unwrap(), Received::Frame([7, 7, 7, 7], ..)));
        assert!(matches!(right.receive().unwrap(), Received::Closed));
        assert_eq!(right.send([0; 4], b"", &[], MsgFlags::empty()), Err(Errno::EPIPE));
    }
}
