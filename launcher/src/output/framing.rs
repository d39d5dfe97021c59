//! Lines out of a stream that is cut anywhere.
//!
//! Pure and bounded: a framer holds at most [`LINE_LIMIT`] bytes whatever a rank writes.
//! It only serves the console; files get the bytes as they come.

use std::time::Duration;

use crate::clock::Moment;

/// Bytes of one line that are shown, and held, at most: a rank that never ends a line must not grow the launcher.
pub(crate) const LINE_LIMIT: usize = 64 * 1024;

/// A line that was begun and not ended is shown after this pause, so that a question or a bar does not stay hidden.
/// Long enough that a busy machine does not tear a line that is merely written in two parts.
pub(crate) const PAUSE: Duration = Duration::from_secs(1);

/// A progress bar, redrawn with `\r` many times a second, is shown this often at most.
const BAR_INTERVAL: Duration = Duration::from_secs(1);

/// One line as the console gets it, without its end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Line<'a> {
    /// Its bytes, at most [`LINE_LIMIT`].
    pub bytes: &'a [u8],
    /// Whether it was longer, and the rest is left out.
    pub is_cut: bool,
}

/// Puts together the lines of one stream.
#[derive(Debug, Default)]
pub(crate) struct Framer {
    pending: Vec<u8>,
    /// A `\r` came after `pending`: what comes next ends the line (`\n`) or draws over it.
    is_returned: bool,
    /// The line was cut, and its rest is passed over.
    is_skipping: bool,
    last_bytes: Option<Moment>,
    last_bar: Option<Moment>,
}

impl Framer {
    /// Takes what was read at `now` and gives each line that it ended to `emit`.
    pub(crate) fn push(&mut self, now: Moment, bytes: &[u8], emit: &mut dyn FnMut(Line<'_>)) {
        self.last_bytes = Some(now);
        let mut rest = bytes;
        while let Some(first) = rest.first() {
            if self.is_returned {
                match first {
                    b'\r' => rest = &rest[1..],
                    b'\n' => {
                        rest = &rest[1..];
                        self.end_line(&[], emit);
                    }
                    _ => self.draw_over(now, emit),
                }
                continue;
            }
            let end = rest.iter().position(|byte| matches!(byte, b'\n' | b'\r'));
            let (part, mark) = (&rest[..end.unwrap_or(rest.len())], end.map(|at| rest[at]));
            rest = &rest[(part.len() + usize::from(mark.is_some()))..];
            match mark {
                Some(b'\n') => self.end_line(part, emit),
                Some(_) => {
                    self.extend(part, emit);
                    self.is_returned = true;
                }
                None => self.extend(part, emit),
            }
        }
    }

    /// When [`Self::pause`] wants to be called; none when nothing waits to be shown.
    pub(crate) fn deadline(&self) -> Option<Moment> {
        let has_text = self.pending.len() > incomplete_tail(&self.pending);
        self.last_bytes.filter(|_| has_text).map(|last| last.plus(PAUSE))
    }

    /// Shows what waits if the pause is over at `now`. A character that is not whole yet waits on.
    pub(crate) fn pause(&mut self, now: Moment, emit: &mut dyn FnMut(Line<'_>)) {
        if self.deadline().is_none_or(|deadline| now < deadline) {
            return;
        }
        let tail = self.pending.split_off(self.pending.len() - incomplete_tail(&self.pending));
        emit(Line { bytes: &self.pending, is_cut: false });
        self.pending = tail;
        self.last_bar = Some(now);
    }

    /// Shows what is left: the stream is over.
    pub(crate) fn close(&mut self, emit: &mut dyn FnMut(Line<'_>)) {
        if !self.pending.is_empty() {
            emit(Line { bytes: &self.pending, is_cut: false });
        }
        *self = Self::default();
    }

    fn end_line(&mut self, part: &[u8], emit: &mut dyn FnMut(Line<'_>)) {
        if self.pending.is_empty() && part.len() <= LINE_LIMIT && !self.is_skipping {
            emit(Line { bytes: part, is_cut: false });
        } else {
            self.extend(part, emit);
            if !self.is_skipping {
                emit(Line { bytes: &self.pending, is_cut: false });
            }
        }
        self.start_line();
    }

    fn draw_over(&mut self, now: Moment, emit: &mut dyn FnMut(Line<'_>)) {
        let is_due = self.last_bar.is_none_or(|last| now.since(last) >= BAR_INTERVAL);
        if is_due && !self.pending.is_empty() {
            emit(Line { bytes: &self.pending, is_cut: false });
            self.last_bar = Some(now);
        }
        self.start_line();
    }

    fn start_line(&mut self) {
        self.pending.clear();
        self.is_returned = false;
        self.is_skipping = false;
    }

    fn extend(&mut self, part: &[u8], emit: &mut dyn FnMut(Line<'_>)) {
        if self.is_skipping {
            return;
        }
        let room = LINE_LIMIT - self.pending.len();
        if part.len() <= room {
            self.pending.extend_from_slice(part);
            return;
        }
        self.pending.extend_from_slice(&part[..room]);
        let end = self.pending.len() - incomplete_tail(&self.pending);
        emit(Line { bytes: &self.pending[..end], is_cut: true });
        self.pending.clear();
        self.is_skipping = true;
    }
}

/// How many bytes at the end of `bytes` are the beginning of a UTF-8 character whose rest is missing.
fn incomplete_tail(bytes: &[u8]) -> usize {
    for length in 1..=bytes.len().min(3) {
        let wanted = match bytes[bytes.len() - length] {
            0b1100_0000..=0b1101_1111 => 2,
            0b1110_0000..=0b1110_1111 => 3,
            0b1111_0000..=0b1111_0111 => 4,
            0b1000_0000..=0b1011_1111 => continue,
            _ => return 0,
        };
        return if wanted > length { length } else { 0 };
    }
    0
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn at(millis: u64) -> Moment {
        Moment::after_zero(Duration::from_millis(millis))
    }

    /// Feeds chunks at their times and gives the lines, a cut one with `<cut>` behind it.
    fn lines(chunks: &[(u64, &[u8])]) -> Vec<String> {
        let mut framer = Framer::default();
        let mut shown = Vec::new();
        let mut emit = |line: Line<'_>| {
            shown.push(String::from_utf8_lossy(line.bytes).into_owned() + if line.is_cut { "<cut>" } else { "" });
        };
        for (millis, chunk) in chunks {
            framer.pause(at(*millis), &mut emit);
            framer.push(at(*millis), chunk, &mut emit);
        }
        framer.close(&mut emit);
        shown
    }

    #[test]
    fn lines_are_whole_wherever_the_stream_is_cut() {
        assert_eq!(lines(&[(0, b"a\nb"), (1, b"c\n\nd\n")]), ["a", "bc", "", "d"]);
        assert_eq!(lines(&[(0, b"a\r"), (1, b"\nb\r\n")]), ["a", "b"]);
        assert_eq!(lines(&[(0, b"a\r\r\nb")]), ["a", "b"]);
        assert_eq!(lines(&[(0, b"nul\0byte\n")]), ["nul\0byte"]);
    }

    #[test]
    fn a_line_without_an_end_is_shown_after_a_pause_and_at_the_close() {
        assert_eq!(lines(&[(0, b"ready? "), (999, b"yes\n")]), ["ready? yes"]);
        assert_eq!(lines(&[(0, b"ready? "), (1_000, b"yes\n")]), ["ready? ", "yes"]);
        assert_eq!(lines(&[(0, b"last")]), ["last"]);
    }

    #[test]
    fn a_pause_waits_for_the_rest_of_a_character() {
        let (head, tail) = "caf\u{e9}\n".as_bytes().split_at(4);
        assert_eq!(lines(&[(0, head), (2_000, tail)]), ["caf", "\u{e9}"]);
        let mut framer = Framer::default();
        framer.push(at(0), &head[3..], &mut |_| {});
        assert_eq!(framer.deadline(), None);
    }

    #[test]
    fn a_progress_bar_is_shown_once_a_second_and_at_its_end() {
        let mut chunks: Vec<(u64, Vec<u8>)> =
            (0..30).map(|step| (step * 100, format!("\rstep {step}").into_bytes())).collect();
        chunks.push((2_950, b"\rdone\n".to_vec()));
        let chunks: Vec<(u64, &[u8])> = chunks.iter().map(|(millis, bytes)| (*millis, bytes.as_slice())).collect();
        assert_eq!(lines(&chunks), ["step 0", "step 10", "step 20", "done"]);
    }

    #[test]
    fn a_bar_that_rests_is_shown() {
        assert_eq!(lines(&[(0, b"\r10%"), (100, b"\r20%"), (1_200, b"\r30%\n")]), ["10%", "20%", "30%"]);
    }

    #[test]
    fn a_line_beyond_the_limit_is_cut_once_and_the_next_is_whole() {
        let mut framer = Framer::default();
        let mut shown: Vec<(usize, bool)> = Vec::new();
        let mut emit = |line: Line<'_>| shown.push((line.bytes.len(), line.is_cut));
        for _ in 0..3_200 {
            framer.push(at(0), &[b'x'; 65_536], &mut emit);
        }
        assert!(framer.pending.capacity() <= 2 * LINE_LIMIT);
        framer.push(at(0), b"y\nnext\n", &mut emit);
        framer.push(at(0), &[&[b'z'; LINE_LIMIT][..], b"\n"].concat(), &mut emit);
        assert_eq!(shown, [(LINE_LIMIT, true), (4, false), (LINE_LIMIT, false)]);
    }

    #[test]
    fn a_cut_does_not_halve_a_character() {
        let mut text = vec![b'x'; LINE_LIMIT - 1];
        text.extend("\u{e9}tail\n".as_bytes());
        let mut shown = Vec::new();
        Framer::default().push(at(0), &text, &mut |line| shown.push((line.bytes.len(), line.is_cut)));
        assert_eq!(shown, [(LINE_LIMIT - 1, true)]);
    }

    proptest! {
        #[test]
        fn the_way_a_stream_is_cut_changes_no_line(
            bytes in proptest::collection::vec(prop_oneof![Just(b'\n'), Just(b'\r'), Just(0xe2), any::<u8>()], 0..200),
            cuts in proptest::collection::vec(0usize..200, 0..8),
        ) {
            let mut cuts: Vec<usize> = cuts.into_iter().map(|cut| cut.min(bytes.len())).chain([0, bytes.len()]).collect();
            cuts.sort_unstable();
            let chunks: Vec<(u64, &[u8])> = cuts.windows(2).map(|pair| (0, &bytes[pair[0]..pair[1]])).collect();
            prop_assert_eq!(lines(&chunks), lines(&[(0, bytes.as_slice())]));
        }
    }
}
