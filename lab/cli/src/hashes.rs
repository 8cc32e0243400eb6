//! The runs' trace hashes against those that are stored (`experiments/hashes.txt`).

use experiment::outcome::Outcome;

const STORED: &str = include_str!("../../../experiments/hashes.txt");

/// The line for a run of a built-in experiment: how many of its traces are the stored ones; where
/// they are stored at another scale, the command that compares. Nothing of another scenario.
pub(crate) fn compared(name: &str, scale: f64, outcomes: &[Outcome]) -> Option<String> {
    let ran = outcomes.iter().filter(|outcome| outcome.replica == 0);
    let ran = ran.map(|outcome| {
        let cell = format!("{}/{}", outcome.case, outcome.policy);
        (cell, format!("{:016x}", outcome.trace_hash))
    });
    line(STORED, name, scale, &ran.collect::<Vec<_>>())
}

fn line(stored: &str, name: &str, scale: f64, ran: &[(String, String)]) -> Option<String> {
    let head = stored
        .lines()
        .filter_map(|line| line.strip_prefix("# At their own scale: "));
    let own = head
        .flat_map(|names| names.split(' '))
        .any(|one| one == name);
    let hash_of = |cell: &str| {
        let mut lines = stored
            .lines()
            .filter_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
        lines.find_map(|line| line.strip_prefix(cell)?.strip_prefix(' '))
    };
    let known: Vec<(&str, &String)> = ran
        .iter()
        .filter_map(|(cell, hash)| Some((hash_of(cell)?, hash)))
        .collect();
    if known.is_empty() {
        return None;
    }
    if !own && scale != 1.0 / 32.0 {
        return Some(format!(
            "Trace hashes are stored at 1/32: `tidegate run {name} --scale 1/32` compares with experiments/hashes.txt\n"
        ));
    }
    let same = known.iter().filter(|(stored, hash)| stored == hash).count();
    Some(format!(
        "Trace hashes: {same} of {} as in experiments/hashes.txt\n",
        known.len()
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIST: &str = "# At their own scale: ycsb get-scan\ndd one/linux-6.12 00ab\ndd one/tidegate 00cd\nycsb a/tidegate 00ef\n";

    #[test]
    fn each_run_says_what_its_hashes_are_or_the_command_that_does() {
        let ran = |cell: &str, hash: &str| vec![(cell.to_owned(), hash.to_owned())];
        let said = |name, scale, ran: &[_]| line(LIST, name, scale, ran).unwrap_or_default();
        let both = [ran("one/linux-6.12", "00ab"), ran("one/tidegate", "ffff")].concat();
        assert!(said("dd", 1.0 / 32.0, &both).contains("1 of 2 as in"));
        assert!(said("dd", 1.0 / 8.0, &both).contains("`tidegate run dd --scale 1/32`"));
        assert!(said("ycsb", 1.0, &ran("a/tidegate", "00ef")).contains("1 of 1 as in"));
        assert_eq!(line(LIST, "mine", 1.0, &both), None);
        assert_eq!(
            line(LIST, "d", 1.0 / 32.0, &both),
            None,
            "another's name begins so"
        );
    }

    #[test]
    fn the_list_says_its_scales() {
        assert!(STORED.contains("--scale 1/32") && STORED.contains("\n# At their own scale: "));
    }
}
