//! From byte offsets to lines and columns.

/// Where the lines of a text begin.
#[derive(Debug)]
pub(super) struct Lines<'a> {
    text: &'a str,
    starts: Vec<usize>,
}

impl<'a> Lines<'a> {
    /// Indexes a text; `\r\n` counts as one end of line.
    pub(super) fn new(text: &'a str) -> Self {
        let starts = std::iter::once(0).chain(text.match_indices('\n').map(|(at, _)| at + 1)).collect();
        Self { text, starts }
    }

    /// The line that an offset lies in, from 0.
    pub(super) fn line(&self, offset: usize) -> usize {
        self.starts.partition_point(|start| *start <= offset).saturating_sub(1)
    }

    /// Line and column of an offset, both from 1; columns count characters, a tab is one.
    ///
    /// An offset past the end is the end.
    pub(super) fn position(&self, offset: usize) -> (u32, u32) {
        let mut offset = offset.min(self.text.len());
        while !self.text.is_char_boundary(offset) {
            offset -= 1;
        }
        let line = self.line(offset);
        let column = self.text[self.starts[line]..offset].chars().count();
        (u32::try_from(line + 1).unwrap_or(u32::MAX), u32::try_from(column + 1).unwrap_or(u32::MAX))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_count_characters_and_lines_end_with_either_newline() {
        let lines = Lines::new("ä = 1\r\n\tßß = 2\n");
        assert_eq!(lines.position(0), (1, 1));
        assert_eq!(lines.position("ä ".len()), (1, 3));
        assert_eq!(lines.position("ä = 1\r\n\tßß".len()), (2, 4));
        assert_eq!(lines.position(10_000), (3, 1));
    }

    #[test]
    fn an_offset_inside_a_character_is_that_character() {
        assert_eq!(Lines::new("aä").position(2), (1, 2));
    }
}
