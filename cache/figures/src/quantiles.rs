//! Quantiles: one definition, by nearest rank. A quantile is a value that occurred: the smallest
//! that is not exceeded by the given thousandths of the values.
//!
//! Three others are called as the tool or the structure they come from: the floor percentiles of
//! mmtests (`experiment::stats::Stat::Max`), the histogram of `workload::Latencies`, and the upper
//! median by which `compare` reads settings out of a trace.

/// The smallest of the ascending values that is not exceeded by `thousandths` of them.
#[must_use]
pub fn quantile<T: Copy>(ascending: &[T], thousandths: usize) -> Option<T> {
    let rank = (ascending.len() * thousandths).div_ceil(1000);
    ascending.get(rank.max(1) - 1).copied()
}

/// The same of (value, how often it occurred), ascending.
#[must_use]
pub fn weighted<T>(
    ascending: impl IntoIterator<Item = (T, u64)> + Clone,
    thousandths: u64,
) -> Option<T> {
    let all: u64 = ascending.clone().into_iter().map(|(_, times)| times).sum();
    let rank = (all * thousandths).div_ceil(1000).max(1);
    let mut below = 0;
    let mut values = ascending.into_iter();
    values.find_map(|(value, times)| {
        below += times;
        (below >= rank).then_some(value)
    })
}

/// The middle one; the mean of the two middle ones of an even number.
#[must_use]
pub fn median(values: &mut [f64]) -> Option<f64> {
    values.sort_by(f64::total_cmp);
    let half = values.len() / 2;
    let upper = *values.get(half)?;
    Some(match values.len() % 2 {
        1 => upper,
        _ => f64::midpoint(values[half - 1], upper),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles_are_values_that_occurred() {
        let all: Vec<u32> = (1..=200).collect();
        let of = |values: &[u32]| [1, 500, 990, 1000].map(|part| quantile(values, part));
        assert_eq!(of(&all), [Some(1), Some(100), Some(198), Some(200)]);
        assert_eq!(of(&all[..1]), [Some(1); 4]);
        assert_eq!(of(&[]), [None; 4]);
    }

    #[test]
    fn a_weight_is_as_many_of_the_value() {
        let weights = [("a", 0), ("b", 3), ("c", 0), ("d", 97)];
        let each: Vec<&str> = weights
            .into_iter()
            .flat_map(|(value, times)| (0..times).map(move |_| value))
            .collect();
        for part in [0, 1, 29, 30, 31, 500, 1000] {
            let whole = usize::try_from(part).unwrap();
            assert_eq!(weighted(weights, part), quantile(&each, whole), "{part}");
        }
        assert_eq!(weighted([("a", 0)], 500), None);
    }

    #[test]
    fn a_median_of_an_even_number_lies_between_two() {
        assert_eq!(median(&mut [3.0, 1.0, 2.0]), Some(2.0));
        assert_eq!(median(&mut [4.0, 1.0, 2.0, 3.0]), Some(2.5));
        assert_eq!(median(&mut []), None);
    }
}
