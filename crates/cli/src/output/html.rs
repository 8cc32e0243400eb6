//! The report: one HTML file with the table and all figures in it, without script or network.

use super::svg::{Figure, escape};
use super::tables::About;

/// The page.
pub(super) fn page(about: &About, printed: &str, figures: &[(String, Figure)]) -> String {
    let mut body = String::new();
    for (name, figure) in figures {
        body.push_str(&format!(
            "<figure id=\"{}\">\n{}</figure>\n",
            escape(name),
            figure.render()
        ));
    }
    let mode = if about.live {
        "live, on files"
    } else {
        "in virtual time"
    };
    format!(
        "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n\
         <title>{experiment}: {title}</title>\n<style>\n\
         body {{ font-family: sans-serif; margin: 2em; color: #222; max-width: 1300px }}\n\
         pre {{ overflow-x: auto; background: #f6f6f6; padding: 1em; font-size: 12px }}\n\
         figure {{ margin: 2em 0 }}\nsvg {{ max-width: 100%; height: auto }}\n\
         </style>\n</head>\n<body>\n<h1>{experiment}: {title}</h1>\n\
         <p>Run {mode}; seed {seed}; scenario {scenario} (sha256 {sha}). The tables beside this file \
         hold every number.</p>\n<pre>{printed}</pre>\n{body}\
         <details><summary>Scenario</summary><pre>{text}</pre></details>\n</body>\n</html>\n",
        experiment = escape(&about.experiment),
        title = escape(&about.title),
        seed = about.master_seed,
        scenario = escape(&about.scenario_id),
        sha = &about.scenario_sha256[..12],
        printed = escape(printed),
        text = escape(&about.scenario_text),
    )
}
