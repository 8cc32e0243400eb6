//! `tidegate reproduce` from outside: what it prints, keeps and refuses, and its page in a real
//! browser.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

/// The cheapest experiment with published claims, as small as it gets: what it comes to does not
/// matter here.
const CHEAP: [&str; 4] = ["reproduce", "dd", "--scale", "0.015625"];

/// Time that anything may take before the test fails, on a machine that does much else.
const PATIENCE: Duration = Duration::from_secs(300);

fn folder(name: &str) -> PathBuf {
    let name = format!("tidegate-reproduce-{}-{name}", std::process::id());
    let path = std::env::temp_dir().join(name);
    let _ = std::fs::remove_dir_all(&path);
    std::fs::create_dir_all(&path).unwrap();
    path
}

fn command(folder: &Path, arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_tidegate"));
    command.current_dir(folder).args(arguments);
    command.env("NO_COLOR", "1").env_remove("COLUMNS");
    command
}

fn run(command: &mut Command) -> (i32, String, String) {
    let output = command.output().unwrap();
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
    (
        output.status.code().unwrap(),
        text(output.stdout),
        text(output.stderr),
    )
}

#[test]
fn a_scoreboard_is_printed_kept_and_not_made_twice() {
    let folder = folder("board");
    let arguments = [&CHEAP[..], &["--out", "o"]].concat();
    let (status, out, err) = run(&mut command(&folder, &arguments));
    assert!(status <= 1, "{err}");
    for line in [
        "IO-less balance_dirty_pages()",
        "dd at 1/64, 5 repetitions",
        " claims are reproduced: ",
    ] {
        assert!(out.contains(line), "{line}: {out}");
    }
    // Without a terminal a line has 100 letters at the most.
    assert!(out.lines().all(|line| line.chars().count() <= 100), "{out}");
    assert!(err.contains("runs of 1 experiments"), "{err}");
    for name in [
        "index.html",
        "scoreboard.txt",
        "scoreboard.json",
        "dd/report.html",
        "dd/runs.csv",
    ] {
        assert!(folder.join("o").join(name).exists(), "{name}");
    }
    let (again, _, err) = run(command(&folder, &arguments).env("COLUMNS", "60"));
    assert_eq!(again, status);
    assert!(err.contains("nothing is left to be run"), "{err}");
    let (_, narrow, _) = run(command(&folder, &arguments).env("COLUMNS", "60"));
    let wide = |line: &&str| line.chars().count() > 60 && !line.starts_with("Report: ");
    assert_eq!(narrow.lines().find(wide), None, "{narrow}");
    // Another number of repetitions is another result.
    let json = [&arguments[..], &["--replicas", "2", "--format", "json"]].concat();
    let (_, out, err) = run(&mut command(&folder, &json));
    assert!(!err.contains("nothing is left"), "{err}");
    let board: serde_json::Value = serde_json::from_str(&out).unwrap();
    assert_eq!(board["papers"][0]["parts"][0]["replicas"], 2);
    assert_eq!(
        board["papers"][0]["parts"][0]["claims"][0]["id"],
        "A7-13-p1"
    );
    let html = std::fs::read_to_string(folder.join("o/index.html")).unwrap();
    assert!(html.len() < 2_000_000 && html.contains("<table") && !html.contains("src="));
    std::fs::remove_dir_all(&folder).unwrap();
}

#[test]
fn what_it_cannot_do_is_status_2_and_says_what_it_can() {
    let folder = folder("refused");
    std::fs::create_dir(folder.join("other")).unwrap();
    std::fs::write(folder.join("other/letter.txt"), "dear").unwrap();
    let cases: [(&[&str], &str); 5] = [
        (
            &["reproduce", "p7"],
            "there is no paper or experiment `p7`; did you mean `p",
        ),
        (&["reproduce", "stuterp"], "did you mean `stutterp`?"),
        (
            &["reproduce", "burst"],
            "`burst` has no published claims; `tidegate run burst` runs it",
        ),
        (
            &["reproduce", "dd", "--out", "other"],
            "it holds files that are not results",
        ),
        (
            &["reproduce", "dd", "--scale", "0.3"],
            "not one over a whole number",
        ),
    ];
    for (arguments, says) in cases {
        let (status, out, err) = run(&mut command(&folder, arguments));
        assert_eq!((status, out.as_str()), (2, ""), "{arguments:?}: {err}");
        assert!(err.contains(says), "{arguments:?}: {err}");
    }
    std::fs::remove_dir_all(&folder).unwrap();
}

#[test]
fn an_interrupted_one_says_what_is_missing_and_the_next_goes_on() {
    let folder = folder("interrupt");
    let said = folder.join("err.txt");
    let scale = ["--scale", "0.015625", "--out", "o"];
    // The first is long enough for the signal, with the second behind it.
    let arguments = [
        &["reproduce", "dd", "cp-pauses", "--replicas", "3"][..],
        &scale,
    ]
    .concat();
    let mut child = command(&folder, &arguments)
        .stdout(Stdio::null())
        .stderr(std::fs::File::create(&said).unwrap())
        .spawn()
        .unwrap();
    let err = || std::fs::read_to_string(&said).unwrap();
    let patience = Instant::now() + PATIENCE;
    while !err().contains("[1/2]") {
        assert!(
            Instant::now() < patience && child.try_wait().unwrap().is_none(),
            "{}",
            err()
        );
        std::thread::sleep(Duration::from_millis(5));
    }
    let pid = rustix::process::Pid::from_child(&child);
    rustix::process::kill_process(pid, rustix::process::Signal::INT).unwrap();
    assert_eq!(child.wait().unwrap().code(), Some(130), "{}", err());
    let go_on = "Go on with: tidegate reproduce dd cp-pauses --replicas 3 --scale 0.015625 --out o";
    assert!(
        err().contains("interrupted; not run: ") && err().contains(go_on),
        "{}",
        err()
    );
    let board = std::fs::read_to_string(folder.join("o/scoreboard.txt")).unwrap();
    assert!(board.contains("INTERRUPTED: not run: "), "{board}");
    assert!(board.contains("not run    "), "{board}");
    let (status, out, err) = run(&mut command(&folder, &arguments));
    assert!(status <= 1, "{err}");
    assert!(
        err.contains("1 of 2 experiments are there from an earlier run"),
        "{err}"
    );
    assert!(!out.contains("INTERRUPTED"), "{out}");
    std::fs::remove_dir_all(&folder).unwrap();
}

/// A page's account of itself in frames of three widths: that it is no wider than its frame, that a
/// click on a head sorts, and how light its ground is.
const PROBE: &str = "
addEventListener('load', () => {
  const said = [];
  for (const frame of document.querySelectorAll('iframe')) {
    const page = frame.contentDocument, root = page.documentElement;
    for (const one of page.querySelectorAll('details')) one.open = true;
    said.push(`${frame.width}: over ${Math.max(0, root.scrollWidth - root.clientWidth)}`);
    const ground = getComputedStyle(page.body).backgroundColor.match(/[0-9]+/g).map(Number);
    said.push(`${frame.width}: ground ${ground[0] < 128 ? 'dark' : 'light'}`);
    const narrow = [...page.querySelectorAll('.panels svg')].map(one => one.clientWidth);
    said.push(`${frame.width}: narrowest ${Math.min(9999, ...narrow)}`);
    const table = page.querySelector('table.sort'), head = table.tHead.rows[0].cells[0];
    const first = () => [...table.tBodies[0].rows].map(row => row.cells[0].textContent).join('|');
    head.querySelector('button').click();
    const up = first();
    head.querySelector('button').click();
    const turned = up.split('|').reverse().join('|') === first() || new Set(up.split('|')).size === 1;
    said.push(`${frame.width}: sorts ${turned && head.ariaSort === 'descending'}`);
  }
  document.getElementById('said').textContent = said.join('\\n');
});
";

/// The page in frames as wide as a telephone, a tablet and a screen, in a real browser; what it
/// said of itself.
fn in_browser(folder: &Path, page: &Path, dark: bool) -> String {
    let html = std::fs::read_to_string(page).unwrap();
    let srcdoc = html.replace('&', "&amp;").replace('"', "&quot;");
    let frames = [390, 820, 1400].map(|width| {
        format!("<iframe width=\"{width}\" height=\"900\" srcdoc=\"{srcdoc}\"></iframe>")
    });
    let probe = folder.join("probe.html");
    let text = format!(
        "<!DOCTYPE html><meta name=\"color-scheme\" content=\"light dark\"><pre id=\"said\"></pre>{}<script>{PROBE}</script>",
        frames.concat()
    );
    std::fs::write(&probe, text).unwrap();
    let mut chromium = Command::new("chromium");
    chromium.args([
        "--headless",
        "--no-sandbox",
        "--disable-gpu",
        "--virtual-time-budget=20000",
    ]);
    chromium.arg(format!(
        "--user-data-dir={}",
        folder.join("profile").display()
    ));
    if dark {
        chromium.arg("--force-dark-mode");
    }
    chromium.args(["--window-size=1500,1000", "--dump-dom"]);
    chromium
        .arg(format!("file://{}", probe.display()))
        .stderr(Stdio::null());
    let output = chromium.output().unwrap();
    let dom = String::from_utf8(output.stdout).unwrap();
    let said = dom.split("<pre id=\"said\">").nth(1);
    let said = said.and_then(|rest| rest.split("</pre>").next());
    said.unwrap_or_default().to_owned()
}

#[test]
fn the_pages_are_whole_on_a_phone_and_a_screen_in_light_and_dark() {
    let is_there = Command::new("chromium")
        .arg("--version")
        .stdout(Stdio::null())
        .status();
    if !is_there.is_ok_and(|status| status.success()) {
        eprintln!(
            "SKIPPED: chromium is not installed (apt-get install chromium): no page was looked at"
        );
        return;
    }
    let folder = folder("browser");
    let arguments = [&CHEAP[..], &["--out", "o"]].concat();
    let (status, _, err) = run(&mut command(&folder, &arguments));
    assert!(status <= 1, "{err}");
    for page in ["o/index.html", "o/dd/report.html"] {
        for dark in [false, true] {
            let said = in_browser(&folder, &folder.join(page), dark);
            let ground = if dark { "dark" } else { "light" };
            for width in [390, 820, 1400] {
                for line in [
                    format!("{width}: over 0"),
                    format!("{width}: ground {ground}"),
                    format!("{width}: sorts true"),
                ] {
                    assert!(
                        said.lines().any(|one| one == line),
                        "{page}, {ground}: {line}: {said}"
                    );
                }
                // A panel is 400 wide and is to be read at three quarters of that.
                let narrowest = said.lines().find_map(|line| {
                    line.strip_prefix(&format!("{width}: narrowest "))
                        .map(|px| px.parse::<u32>().unwrap())
                });
                assert!(narrowest.is_some_and(|px| px >= 300), "{page}: {said}");
            }
        }
    }
    std::fs::remove_dir_all(&folder).unwrap();
}
