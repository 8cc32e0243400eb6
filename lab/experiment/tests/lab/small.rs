//! Small files come and go in the lab: bit by bit the same, and p3's patch as it was merged.

use experiment::Stop;
use experiment::outcome::Outcome;
use experiment::run::{self, Cell, World};

#[path = "../common/small.rs"]
mod scenario;

use scenario::{cell, check};

fn run(cell: &Cell) -> Outcome {
    let orders = run::orders(core::slice::from_ref(cell), 1, 1);
    run::run_one(&orders[0], &World::Lab, &Stop::default()).unwrap()
}

#[test]
fn small_files_come_and_go_in_the_lab() {
    for policy in 0..3 {
        let cell = cell(policy);
        let run = run(&cell);
        check(&run);
        let again = self::run(&cell);
        assert_eq!(run.trace_hash, again.trace_hash, "{}", cell.policy);
    }
}

#[test]
fn paper_p3s_patch_is_what_was_merged_and_both_differ_from_5_0() {
    let run = |policy| {
        let run = run(&cell(policy));
        check(&run);
        run.trace_hash
    };
    let [before, patched, merged, by_key] = [3, 4, 5, 6].map(run);
    assert_eq!(patched, merged);
    assert_eq!(patched, by_key);
    assert_ne!(before, patched);
}
