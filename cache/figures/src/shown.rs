//! Text of others, as it can be printed: a name of a file, of a member, a line of a trace.

use std::fmt::{self, Display, Write as _};

/// True if a character could end a line, move the cursor, hide, or turn text around.
#[must_use]
pub fn is_unsafe(character: char) -> bool {
    character.is_control()
        || matches!(
            character,
            '\u{ad}'
                | '\u{61c}'
                | '\u{200b}'..='\u{200f}'
                | '\u{2028}'..='\u{202e}'
                | '\u{2060}'..='\u{206f}'
                | '\u{feff}'
                | '\u{fff9}'..='\u{fffb}'
                | '\u{e0000}'..='\u{e007f}'
        )
}

/// Text of others, with escapes in the place of what is unsafe to print: `\n`, `\u{1b}`.
pub fn shown<T: Display>(text: T) -> Shown<T> {
    Shown(text)
}

/// See [`shown`].
#[derive(Clone, Copy, Debug)]
pub struct Shown<T>(T);

impl<T: Display> Display for Shown<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if f.width().is_some() || f.precision().is_some() {
            // As long as what is printed.
            let mut text = String::new();
            write!(Escaping(&mut text), "{}", self.0)?;
            return f.pad(&text);
        }
        write!(Escaping(f), "{}", self.0)
    }
}

struct Escaping<W>(W);

impl<W: fmt::Write> fmt::Write for Escaping<W> {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        for character in text.chars() {
            if is_unsafe(character) {
                write!(self.0, "{}", character.escape_default())?;
            } else {
                self.0.write_char(character)?;
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_that_moves_a_cursor_or_hides_is_left_and_all_else_is() {
        for character in '\0'..=char::MAX {
            let text = shown(character).to_string();
            assert!(!text.chars().any(is_unsafe), "{character:?}");
            // Rust's own list of what cannot be seen has all of it.
            let plain = character.is_alphanumeric() || character == ' ' || character == '\'';
            assert!(!plain || text == character.to_string(), "{character:?}");
        }
        assert_eq!(shown("a\rb\u{1b}[2J").to_string(), "a\\rb\\u{1b}[2J");
        assert_eq!(
            format!("{:>6}|{:<4}|", shown("a\n"), shown("ü")),
            "   a\\n|ü   |"
        );
    }
}
