//! `passes`: goes through a file again and again, to write or to read it.

use crate::keys::{May, keys};
use crate::limits::{BLOCK, FILE_MIB, MADE};
use crate::mistake::Mistake;
use crate::task::{Around, Ends, Files, Kind, Traits, Writes};
use toml::Spanned;

/// More are no plan.
const PASSES_MOST: usize = 64;

keys! {
    /// Goes through a file from front to end, once for each letter of `passes`. A task that begins
    /// with a pass that reads finds its file with its content.
    Keys:
        file_mib: Spanned<f64>, "Bytes of the file; scaled.", FILE_MIB;
        passes: May<String>, "A letter a pass: `w` writes, `r` reads. Without it, one pass that writes.";
        loops: May<u32>, "Times that it does all of them; without it, until `run_s` is over.", MADE;
        block_kib: May<f64>, "Bytes of one call.", BLOCK;
}

impl Keys {
    /// A letter a pass.
    #[must_use]
    pub fn letters(&self) -> &str {
        let given = self.passes.as_ref().map(|passes| passes.get_ref().as_str());
        given.unwrap_or("w")
    }
}

impl Kind for Keys {
    fn traits(&self) -> Traits {
        let (reads, writes) = (self.letters().contains('r'), self.letters().contains('w'));
        Traits {
            files: if self.letters().starts_with('r') {
                Files::Found
            } else {
                Files::Written
            },
            ends: Ends::Early,
            writes: if writes {
                Writes::Over
            } else {
                Writes::Nothing
            },
            reads: reads && !writes,
            ..Traits::NONE
        }
    }

    fn check(&self, _: &Around) -> Vec<Mistake> {
        let Some(passes) = &self.passes else {
            return Vec::new();
        };
        let letters = passes.get_ref();
        let known = letters.chars().all(|letter| matches!(letter, 'w' | 'r'));
        if known && (1..=PASSES_MOST).contains(&letters.len()) {
            return Vec::new();
        }
        let mistake = Mistake::new(
            format!("`{letters}` is no plan of passes"),
            passes.span(),
            format!("1 to {PASSES_MOST} letters"),
        );
        vec![mistake.help("write `w` for a pass that writes and `r` for one that reads: \"wrr\"")]
    }
}
