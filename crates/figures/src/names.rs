//! Names that may have been meant.

/// The allowed word nearest to `word`, if one is near enough to be meant.
#[must_use]
pub fn nearest<S: AsRef<str>>(word: &str, allowed: impl IntoIterator<Item = S>) -> Option<S> {
    let likeness = |name: S| {
        (
            strsim::normalized_damerau_levenshtein(word, name.as_ref()),
            name,
        )
    };
    let near = allowed
        .into_iter()
        .map(likeness)
        .filter(|(likeness, _)| *likeness >= 0.5);
    let nearest = near.max_by(|left, right| left.0.total_cmp(&right.0));
    nearest.map(|(_, name)| name)
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
        let text = choices("lat_max", allowed);
        assert_eq!(
            text,
            "did you mean `lat_max_ms`? Allowed: lat_max_ms, pause_max_ms"
        );
        assert_eq!(choices("xyz", ["a", "b"]), "allowed: a, b");
    }
}
