//! `large_dd`: downloads a source, copies it and removes all (mmtests' largedd).

use crate::keys::{May, keys};
use crate::limits::{BLOCK, FILE_MIB, RATE};
use crate::mistake::Mistake;
use crate::task::{Around, Files, Kind, Traits, Writes};
use toml::Spanned;

/// Most copies of one source.
const COPIES_MOST: f64 = 4096.0;

keys! {
    /// Makes its files: a source that comes in over a network, copies of it one after the other;
    /// then it removes all.
    Keys:
        file_mib: Spanned<f64>, "Bytes of the source; scaled.", FILE_MIB;
        total_mib: Spanned<f64>, "It begins another copy as long as source and copies together have less; scaled.", FILE_MIB;
        rate_mib: May<f64>, "The rate at which the source arrives; scaled. Without it, as fast as it can be written.", RATE;
        block_kib: May<f64>, "Bytes of one call; scaled, as a read-ahead window is.", BLOCK;
}

impl Kind for Keys {
    fn traits(&self) -> Traits {
        Traits {
            files: Files::Made,
            writes: Writes::Once,
            heavy: true,
            ..Traits::NONE
        }
    }

    fn check(&self, _: &Around) -> Vec<Mistake> {
        let files = self.total_mib.get_ref() / self.file_mib.get_ref();
        if files <= COPIES_MOST {
            return Vec::new();
        }
        let mistake = Mistake::new(
            format!("{files:.0} copies are more than a run keeps"),
            self.total_mib.span(),
            format!("at most {COPIES_MOST} times the source"),
        );
        let mistake = mistake.also(self.file_mib.span(), "the source");
        vec![mistake.help("lower `total_mib`, or raise `file_mib`")]
    }
}
