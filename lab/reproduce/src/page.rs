//! The scoreboard as a page: a section for each paper with its claims, the picture that shows them,
//! and what our own policy makes of it.

use std::fmt::Write as _;

use super::board::{Causes, Claim, Part, Side, TradeOff, Verdict, figure};
use super::grade::Grade;
use super::scoreboard::{Board, PaperBoard, Sum};
use super::text::said_behind;
use report::output::web::{Cell, Page, details, escape, marks, table};

const TITLE: &str = "Five papers, held against their claims";

pub(super) fn page(board: &Board, picture: &str) -> String {
    let mut sections = Vec::new();
    let mut body = format!("<div class=\"scroll\">{picture}</div>\n");
    body.push_str(&overview(board));
    for paper in &board.papers {
        sections.push((paper.id.clone(), format!("{}: {}", paper.id, paper.subject)));
        body.push_str(&section(paper));
    }
    if board.parts().any(|part| !part.trade_offs.is_empty()) {
        sections.push(("own".into(), "Tidegate's own policy".into()));
        body.push_str(&trade_offs(board));
    }
    let page = Page {
        title: TITLE,
        head: head(board),
        sections,
        body,
    };
    page.render()
}

fn count<'a>(claims: impl Iterator<Item = &'a Claim>, verdict: Verdict) -> usize {
    claims.filter(|claim| claim.verdict == verdict).count()
}

fn head(board: &Board) -> String {
    let mut html = String::new();
    if !board.missing.is_empty() {
        let _ = writeln!(
            html,
            "<p class=\"bad\">Interrupted; not run: {}.</p>",
            escape(&board.missing.join(", "))
        );
    }
    let _ = writeln!(
        html,
        "<p>{}.</p>\n<p>Each row is a published claim: what the paper measured, what came out here, the band in which it holds, and what \
         comes out in the run in which it must not hold. In the last column the band is shaded, the paper is a ring and we are a dot. A miss \
         says its cause as measured.</p>\n<p class=\"faint\">tidegate {}. Same program, same scenario, same figures, on every machine.</p>",
        escape(&board.sum().said()),
        escape(&board.version)
    );
    html
}

/// The class of a claim's word.
const fn class(claim: &Claim) -> &'static str {
    match (claim.grade, claim.verdict) {
        (Some(Grade::A | Grade::B), _) => "good",
        (None, Verdict::Missed) => "bad",
        _ => "other",
    }
}

fn overview(board: &Board) -> String {
    let heads = ["paper", "its idea", "A", "B", "C", "D", "missed"].map(str::to_owned);
    let rows = board.papers.iter().map(|paper| {
        let graded = Sum::of(paper.claims());
        let missed = count(paper.claims(), Verdict::Missed);
        let link = format!(
            "<a href=\"#{0}\">{0}</a> {1}",
            escape(&paper.id),
            escape(&paper.name)
        );
        let numbers = Grade::ALL.map(|grade| graded.graded(grade)).into_iter();
        let numbers = numbers.chain([missed]);
        let texts = [link, escape(&paper.idea)].map(|text| Cell::html(text, "text long"));
        let cells = texts.into_iter();
        cells
            .chain(numbers.map(|number| Cell::number(&number.to_string(), None)))
            .collect()
    });
    table(&heads, &[0, 1], rows)
}

fn section(paper: &PaperBoard) -> String {
    let id = escape(&paper.id);
    let mut html = format!(
        "<section id=\"{id}\">\n<h2>{id}: {}</h2>\n<p>{}</p>\n<p class=\"faint\">{}</p>\n",
        escape(&paper.name),
        escape(&paper.idea),
        escape(&paper.who)
    );
    for part in &paper.parts {
        html.push_str(&experiment(part));
    }
    let others: Vec<&Claim> = paper.not_run.iter().chain(&paper.not_built).collect();
    if !others.is_empty() {
        html.push_str("<h3>Without a result</h3>\n");
        html.push_str(&claims(others.into_iter()));
    }
    html.push_str("</section>\n");
    html
}

fn experiment(part: &Part) -> String {
    let name = escape(&part.experiment);
    let of = if part.replicas < part.replicas_asked {
        format!(
            " of {}; a figure may stray from its mean",
            part.replicas_asked
        )
    } else {
        String::new()
    };
    let left_out = if part.left_out.is_empty() {
        String::new()
    } else {
        format!("; left out here: {}", escape(&part.left_out.join(", ")))
    };
    let set = if part.set.is_empty() {
        String::new()
    } else {
        format!(" with {}", escape(&part.set.join(", ")))
    };
    let mut html = format!(
        "<h3 id=\"{name}\">{}</h3>\n<p class=\"faint\"><code>tidegate run {name}</code> at 1/{:.0}{set}; {} runs, repetitions: {}{of}{left_out}. \
         <a href=\"{name}/report.html\">All of it</a></p>\n",
        escape(&part.title),
        1.0 / part.scale,
        part.runs,
        part.replicas
    );
    html.push_str(&claims(part.published()));
    if let Some((_, figure)) = &part.figure {
        html.push_str(figure);
    }
    let own = part.own().count();
    if own > 0 {
        let holds = count(part.own(), Verdict::Holds);
        let words = format!("Bands of our own: {holds} of {own} hold");
        html.push_str(&details(
            &format!("own-{name}"),
            &words,
            &claims(part.own()),
        ));
    }
    html
}

fn claims<'a>(claims: impl Iterator<Item = &'a Claim>) -> String {
    let heads = [
        "grade",
        "claim",
        "published",
        "ours",
        "ratio",
        "band",
        "without",
        "marks",
    ]
    .map(str::to_owned);
    let mut causes = Causes::default();
    let rows = claims.map(|claim| {
        let verdict = format!(
            "<span class=\"verdict {}\">{}</span>",
            class(claim),
            claim.word()
        );
        let mut words = escape(&claim.claim);
        for more in causes.below(claim) {
            let _ = write!(words, "<br><span class=\"faint\">{}</span>", escape(&more));
        }
        let all = &claim.marks;
        let first = |values: &[f64]| values.first().copied();
        vec![
            Cell::html(verdict, "text"),
            Cell::html(words, "text long"),
            Cell::number(
                claim.published.as_deref().unwrap_or("-"),
                first(&all.published),
            ),
            Cell::number(claim.ours.as_deref().unwrap_or("-"), first(&all.ours)),
            Cell::number(&claim.ratio_said(), claim.ratio),
            Cell::number(&claim.band, all.min.or(all.max)),
            Cell::number(&claim.knocked(), None),
            Cell::html(marks(&all.published, &all.ours, (all.min, all.max)), "text"),
        ]
    });
    table(&heads, &[0, 1, 7], rows)
}

fn trade_offs(board: &Board) -> String {
    let mut html = String::from(
        "<section id=\"own\">\n<h2>Tidegate's own policy</h2>\n<p>Beside both sides of each paper: before its change and after it. \
         Two per cent are no difference. Below each table: where it is more than 3 % behind linux-6.12.</p>\n",
    );
    for part in board.parts().filter(|part| !part.trade_offs.is_empty()) {
        let heads = [
            "metric",
            part.before.as_deref().unwrap_or("before"),
            part.after.as_deref().unwrap_or("after"),
            "tidegate",
            "",
        ];
        let _ = writeln!(html, "<h3>{}</h3>", escape(&part.title));
        let rows = part.trade_offs.iter().map(trade_off);
        html.push_str(&table(&heads.map(str::to_owned), &[0, 4], rows));
        if let Some(behind) = said_behind(part) {
            let _ = writeln!(html, "<p>{}</p>", escape(&behind));
        }
    }
    html.push_str("</section>\n");
    html
}

fn trade_off(one: &TradeOff) -> Vec<Cell> {
    let unit = if one.unit.is_empty() {
        String::new()
    } else {
        format!(" ({})", escape(&one.unit))
    };
    let name = format!(
        "{}{unit}<br><span class=\"faint\">{}</span>",
        escape(&one.metric),
        escape(&one.about)
    );
    let class = match one.outcome {
        Side::BetterThanBoth => "good",
        Side::Between => "other",
        Side::WorseThanBoth => "bad",
    };
    let word = format!(
        "<span class=\"verdict {class}\">{}</span>",
        one.outcome.word()
    );
    let number = |value: f64| Cell::number(&figure(value), Some(value));
    vec![
        Cell::html(name, "text long"),
        number(one.before),
        number(one.after),
        number(one.ours),
        Cell::html(word, "text"),
    ]
}

#[cfg(test)]
mod tests {
    use super::super::board::Seeds;
    use super::*;

    #[test]
    fn a_cause_is_said_once_with_its_claims_name_and_so_are_seeds() {
        let missed = |id: &str, why: &str, hold| Claim {
            id: id.to_owned(),
            why: Some(why.to_owned()),
            seeds: Some(Seeds { hold, of: 4 }),
            ..Claim::example(Verdict::Missed, &[1.0], &[2.0])
        };
        let (disk, cpu) = ("the disk is busy", "the CPU is idle");
        let all = [
            missed("A7-18", disk, 2),
            missed("A7-19", cpu, 0),
            missed("A7-20", disk, 1),
        ];
        let html = claims(all.iter());
        // Rows can be sorted: "above" would be wrong then.
        assert_eq!(html.matches(disk).count(), 1, "{html}");
        let third = html.split("<tr>").nth(4).unwrap();
        assert!(third.contains("cause: see A7-18"), "{third}");
        for said in ["in 2 of 4 seeds, by chance", "in 0 of 4 seeds"] {
            assert!(html.contains(said), "{html}");
        }
    }
}
