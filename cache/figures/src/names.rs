//! Names that may have been meant.

/// Names that are at least so like a word are near it.
const NEAR: f64 = 0.5;
/// Fewer letters are a part of too many names.
const PART_LEAST: usize = 3;

/// The allowed word nearest to `word`, if one is near enough to be meant.
#[must_use]
pub fn nearest<S: AsRef<str>>(word: &str, allowed: impl IntoIterator<Item = S>) -> Option<S> {
    let near = allowed
        .into_iter()
        .map(|name| (likeness(word, name.as_ref()), name))
        .filter(|(likeness, _)| *likeness >= NEAR);
    let nearest = near.max_by(|left, right| left.0.total_cmp(&right.0));
    nearest.map(|(_, name)| name)
}

/// The likeness of a word to a name, from 0 to 1. A word that is a part of the name is near it, the
/// nearer the more of the name it is.
fn likeness(word: &str, name: &str) -> f64 {
    let by_letters = strsim::normalized_damerau_levenshtein(word, name);
    let is_part = word.len() >= PART_LEAST && name.contains(&word.to_lowercase());
    match is_part {
        true => NEAR + by_letters * (1.0 - NEAR),
        false => by_letters,
    }
}

/// "did you mean `x`? Allowed: x, y, z".
#[must_use]
pub fn choices<S: AsRef<str>>(word: &str, allowed: impl IntoIterator<Item = S>) -> String {
    let allowed: Vec<S> = allowed.into_iter().collect();
    let names: Vec<&str> = allowed.iter().map(AsRef::as_ref).collect();
    let list = names.join(", ");
    match nearest(word, names) {
        Some(near) => format!("did you mean `{near}`? Allowed: {list}"),
        None => format!("allowed: {list}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_nearest_name_is_proposed_and_all_are_said() {
        let allowed = ["lat_max_ms", "pause_max_ms"];
        assert_eq!(nearest("pause_max", allowed), Some("pause_max_ms"));
        assert_eq!(nearest("xyz", allowed), None);
        let columns = ["linux-2.6.36", "linux-6.12-mglru", "linux-6.12", "tidegate"];
        for (part, of) in [
            ("mglru", "linux-6.12-mglru"),
            ("MGLRU", "linux-6.12-mglru"),
            ("6.12", "linux-6.12"),
            ("tidgate", "tidegate"),
        ] {
            assert_eq!(nearest(part, columns), Some(of));
        }
        assert_eq!(nearest("gl", columns), None);
        let text = choices("lat_max", allowed);
        assert_eq!(
            text,
            "did you mean `lat_max_ms`? Allowed: lat_max_ms, pause_max_ms"
        );
        assert_eq!(choices("xyz", ["a", "b"]), "allowed: a, b");
    }
}
