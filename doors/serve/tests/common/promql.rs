//! Expressions of Prometheus over scrapes of a server: the part of the language that our rules use.
//!
//! Ranges (`[5m]`) are all scrapes that there are: a test does not wait for minutes. An expression
//! that cannot be read is a panic, so that a rule which uses more is seen.
//!
//! Source: prometheus.io/docs/prometheus/latest/querying (operators, functions).

use std::collections::BTreeMap;

type Labels = BTreeMap<String, String>;

/// A scrape: when, in seconds since 1970, and its samples.
pub(crate) struct Scrape {
    pub(crate) at: f64,
    samples: Vec<(String, Labels, f64)>,
}

/// A value of an expression.
#[derive(Clone, Debug)]
pub(crate) enum Value {
    Scalar(f64),
    Vector(Vec<(Labels, f64)>),
}

impl Scrape {
    /// Of a server's text; none: it did not answer.
    pub(crate) fn new(at: f64, text: Option<&str>) -> Self {
        let up = if text.is_some() { 1.0 } else { 0.0 };
        let job = || Labels::from([("job".to_owned(), "tidegate".to_owned())]);
        let mut samples = vec![("up".to_owned(), job(), up)];
        let lines = text.unwrap_or_default().lines();
        for line in lines.filter(|line| !line.starts_with('#')) {
            let (series, value) = line.rsplit_once(' ').unwrap();
            let (name, inside) = series.split_once('{').unwrap_or((series, "}"));
            let mut labels = job();
            for (key, value) in matchers(inside.strip_suffix('}').unwrap()) {
                labels.insert(key, value.1);
            }
            samples.push((name.to_owned(), labels, value.parse().unwrap()));
        }
        Self { at, samples }
    }

    fn of<'a>(&'a self, name: &'a str) -> impl Iterator<Item = &'a (String, Labels, f64)> {
        self.samples.iter().filter(move |sample| sample.0 == name)
    }
}

/// `key="value",...`, each with its operator (`=`, `=~`). No value here has a quote in it.
fn matchers(inside: &str) -> Vec<(String, (String, String))> {
    let mut all = Vec::new();
    let mut rest = inside;
    while let Some((key, after)) = rest.split_once('"') {
        let (value, after) = after.split_once('"').unwrap();
        let operator = key.trim_start_matches(|c: char| {
            c == ',' || c == ' ' || c == '_' || c.is_ascii_alphanumeric()
        });
        let name = key
            .strip_suffix(operator)
            .unwrap()
            .trim_start_matches([',', ' ']);
        all.push((name.to_owned(), (operator.to_owned(), value.to_owned())));
        rest = after;
    }
    all
}

/// The value of an expression at the last scrape.
pub(crate) fn evaluate(text: &str, scrapes: &[Scrape]) -> Value {
    let mut reader = Reader {
        rest: text,
        scrapes,
    };
    let value = reader.either();
    assert_eq!(reader.rest.trim(), "", "not read: {text}");
    value
}

struct Reader<'a> {
    rest: &'a str,
    scrapes: &'a [Scrape],
}

impl Reader<'_> {
    fn takes(&mut self, word: &str) -> bool {
        let rest = self.rest.trim_start();
        let is_word = word.chars().all(char::is_alphanumeric);
        let ends = |rest: &str| !rest.starts_with(|c: char| c.is_alphanumeric() || c == '_');
        match rest.strip_prefix(word) {
            Some(after) if !is_word || ends(after) => {
                self.rest = after;
                true
            }
            _ => false,
        }
    }

    fn expects(&mut self, word: &str) {
        assert!(
            self.takes(word),
            "`{word}` should stand before: {}",
            self.rest
        );
    }

    fn either(&mut self) -> Value {
        let mut value = self.both();
        while self.takes("or") {
            let (mut left, right) = (vector(value), vector(self.both()));
            let more: Vec<_> = right
                .into_iter()
                .filter(|(labels, _)| !has(&left, labels))
                .collect();
            left.extend(more);
            value = Value::Vector(left);
        }
        value
    }

    fn both(&mut self) -> Value {
        let mut value = self.compared();
        while self.takes("and") {
            let (mut left, right) = (vector(value), vector(self.compared()));
            left.retain(|(labels, _)| has(&right, labels));
            value = Value::Vector(left);
        }
        value
    }

    fn compared(&mut self) -> Value {
        let left = self.sum();
        for (word, holds) in [
            ("==", (|a, b| a == b) as fn(f64, f64) -> bool),
            (">", |a, b| a > b),
            ("<", |a, b| a < b),
        ] {
            if self.takes(word) {
                let right = self.sum();
                return joined(left, right, |a, b| holds(a, b).then_some(a));
            }
        }
        left
    }

    fn sum(&mut self) -> Value {
        let mut value = self.product();
        loop {
            let is_minus = self.takes("-");
            if !is_minus && !self.takes("+") {
                return value;
            }
            let sign = if is_minus { -1.0 } else { 1.0 };
            value = joined(value, self.product(), |a, b| Some(a + sign * b));
        }
    }

    fn product(&mut self) -> Value {
        let mut value = self.one();
        loop {
            if self.takes("*") {
                value = joined(value, self.one(), |a, b| Some(a * b));
            } else if self.takes("/") {
                value = joined(value, self.one(), |a, b| Some(a / b));
            } else {
                return value;
            }
        }
    }

    fn one(&mut self) -> Value {
        if self.takes("(") {
            let value = self.either();
            self.expects(")");
            return value;
        }
        let rest = self.rest.trim_start();
        let end = rest.find(|c: char| !(c.is_ascii_alphanumeric() || c == '_' || c == '.'));
        let (word, after) = rest.split_at(end.unwrap_or(rest.len()));
        if let Ok(number) = word.parse() {
            self.rest = after;
            return Value::Scalar(number);
        }
        self.rest = after;
        let last = self.scrapes.last().unwrap();
        match word {
            "time" => {
                self.expects("(");
                self.expects(")");
                Value::Scalar(last.at)
            }
            "rate" | "increase" => {
                self.expects("(");
                let grown = self.grown(word == "rate");
                self.expects(")");
                Value::Vector(grown)
            }
            "histogram_quantile" => {
                self.expects("(");
                let Value::Scalar(quantile) = self.one() else {
                    panic!("a number belongs before {}", self.rest);
                };
                self.expects(",");
                let buckets = vector(self.either());
                self.expects(")");
                Value::Vector(quantiles(quantile, &buckets))
            }
            "sum" => {
                self.expects("by");
                self.expects("(");
                let (keys, after) = self.rest.split_once(')').unwrap();
                let keys: Vec<String> = keys.split(',').map(|key| key.trim().to_owned()).collect();
                self.rest = after;
                self.expects("(");
                let all = vector(self.either());
                self.expects(")");
                let mut sums = BTreeMap::<Labels, f64>::new();
                for (mut labels, value) in all {
                    labels.retain(|key, _| keys.contains(key));
                    *sums.entry(labels).or_default() += value;
                }
                Value::Vector(sums.into_iter().collect())
            }
            name => {
                let wanted = self.selector();
                let fits = last.of(name).filter(|(_, labels, _)| wanted(labels));
                Value::Vector(
                    fits.map(|(_, labels, value)| (labels.clone(), *value))
                        .collect(),
                )
            }
        }
    }

    /// The matchers behind a name, if there are any.
    fn selector(&mut self) -> impl Fn(&Labels) -> bool + use<> {
        let mut wanted = Vec::new();
        if self.rest.starts_with('{') {
            let (inside, after) = self.rest[1..].split_once('}').unwrap();
            wanted = matchers(inside);
            self.rest = after;
        }
        move |labels| {
            wanted.iter().all(|(key, (operator, value))| {
                let has = labels.get(key).map_or("", String::as_str);
                match operator.as_str() {
                    "=" => has == value,
                    "=~" => value.split('|').any(|value| has == value),
                    other => panic!("no operator: {other}"),
                }
            })
        }
    }

    /// `name{...}[range]`: how much each series has grown, in all or a second.
    fn grown(&mut self, by_second: bool) -> Vec<(Labels, f64)> {
        let rest = self.rest.trim_start();
        let end = rest.find(['{', '[']).unwrap();
        let name = &rest[..end];
        self.rest = &rest[end..];
        let wanted = self.selector();
        self.rest = self.rest.split_once(']').unwrap().1;
        let (first, last) = (&self.scrapes[0], self.scrapes.last().unwrap());
        let time = if by_second { last.at - first.at } else { 1.0 };
        let series = last.of(name).filter(|(_, labels, _)| wanted(labels));
        let grown = series.filter_map(|(_, labels, value)| {
            // A series that is new began at nothing here: nobody else counts in it.
            let before = first.of(name).find(|(_, other, _)| other == labels);
            let before = before.map_or(0.0, |(.., before)| *before);
            (self.scrapes.len() > 1).then(|| (labels.clone(), (value - before) / time))
        });
        grown.collect()
    }
}

fn vector(value: Value) -> Vec<(Labels, f64)> {
    match value {
        Value::Vector(all) => all,
        Value::Scalar(number) => panic!("{number} is no vector"),
    }
}

fn has(all: &[(Labels, f64)], labels: &Labels) -> bool {
    all.iter().any(|(other, _)| other == labels)
}

/// Both sides put together, series by series; those of which nothing comes are left out.
fn joined(left: Value, right: Value, put: impl Fn(f64, f64) -> Option<f64>) -> Value {
    match (left, right) {
        (Value::Scalar(a), Value::Scalar(b)) => Value::Scalar(put(a, b).unwrap()),
        (Value::Vector(all), Value::Scalar(b)) => {
            let put = |(labels, a)| Some((labels, put(a, b)?));
            Value::Vector(all.into_iter().filter_map(put).collect())
        }
        (Value::Scalar(a), Value::Vector(all)) => {
            let put = |(labels, b)| Some((labels, put(a, b)?));
            Value::Vector(all.into_iter().filter_map(put).collect())
        }
        (Value::Vector(left), Value::Vector(right)) => {
            let put = |(labels, a): (Labels, f64)| {
                let (_, b) = right.iter().find(|(other, _)| *other == labels)?;
                let value = put(a, *b)?;
                Some((labels, value))
            };
            Value::Vector(left.into_iter().filter_map(put).collect())
        }
    }
}

/// The quantile of each histogram, on a line between the ends of its bucket.
fn quantiles(quantile: f64, buckets: &[(Labels, f64)]) -> Vec<(Labels, f64)> {
    let mut histograms = BTreeMap::<Labels, Vec<(f64, f64)>>::new();
    for (labels, count) in buckets {
        let mut labels = labels.clone();
        let end = labels.remove("le").unwrap().parse().unwrap();
        histograms.entry(labels).or_default().push((end, *count));
    }
    let one = |(labels, mut buckets): (Labels, Vec<(f64, f64)>)| {
        buckets.sort_by(|a, b| a.0.total_cmp(&b.0));
        let rank = quantile * buckets.last()?.1;
        if rank == 0.0 {
            return None;
        }
        let at = buckets.iter().position(|(_, count)| *count >= rank)?;
        let (from, before) = at.checked_sub(1).map_or((0.0, 0.0), |at| buckets[at]);
        let (end, count) = buckets[at];
        let value = match end.is_infinite() {
            true => from,
            false => from + (end - from) * (rank - before) / (count - before),
        };
        Some((labels, value))
    };
    histograms.into_iter().filter_map(one).collect()
}

#[test]
fn expressions_are_read_as_prometheus_reads_them() {
    let texts = [
        "a{v=\"1\"} 2\na{v=\"2\"} 8\nb{v=\"1\"} 4\nt_total 1\nh_bucket{le=\"1\"} 0\nh_bucket{le=\"2\"} 0\nh_bucket{le=\"+Inf\"} 0\n# EOF",
        "a{v=\"1\"} 2\na{v=\"2\"} 8\nb{v=\"1\"} 4\nt_total 21\nh_bucket{le=\"1\"} 2\nh_bucket{le=\"2\"} 8\nh_bucket{le=\"+Inf\"} 8\n# EOF",
    ];
    let scrapes: Vec<Scrape> = (0..2)
        .map(|at| Scrape::new(10.0 * at as f64 + 100.0, Some(texts[at])))
        .collect();
    for (text, wanted) in [
        ("a", vec![2.0, 8.0]),
        ("a{v=\"2\"} / 4", vec![2.0]),
        ("a{v=~\"1|3\"} + a", vec![4.0]),
        ("a > 2", vec![8.0]),
        ("0.5 * a < b", vec![1.0]),
        ("a < 3 or b > 3", vec![2.0]),
        ("a > 3 or b > 3", vec![8.0, 4.0]),
        ("a and b", vec![2.0]),
        ("a - time() < 14 * 2 and a == 2", vec![-108.0]),
        ("rate(t_total[5m])", vec![2.0]),
        ("increase(t_total{job=\"tidegate\"}[1h]) > 0", vec![20.0]),
        ("sum by (job) (a)", vec![10.0]),
        (
            "histogram_quantile(0.5, sum by (le) (rate(h_bucket[1m])))",
            vec![1.0 + 2.0 / 6.0],
        ),
        ("up == 0", vec![]),
    ] {
        let all: Vec<f64> = vector(evaluate(text, &scrapes))
            .into_iter()
            .map(|(_, value)| value)
            .collect();
        assert_eq!(all, wanted, "{text}");
    }
}
