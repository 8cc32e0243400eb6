//! `NAME=BACKEND[,KEY=VALUE..]`: a volume on the command line.
//!
//! A comma ends the backend and each value but that of `device`, which has commas of its own and
//! stands last. A path with a comma in it can be given in a file only.

use core::ops::Range;
use std::collections::BTreeMap;

use super::draft::{Draft, VolumeDraft};
use super::mistake::{Mistake, SourcePos, Word, choices};
use super::options::{VOLUME_KEYS, known};

/// Takes one volume into the draft.
pub(super) fn read(draft: &mut Draft, text: &str) {
    let source = draft.source("volume".to_owned(), text.to_owned());
    let word = |span: Range<usize>| Word {
        text: text[span.clone()].to_owned(),
        place: SourcePos { source, span },
    };
    let all = word(0..text.len());
    let Some(equals) = text.find('=') else {
        let help = match text.contains('/') {
            true => format!("give it a name: data={text}"),
            false => {
                "write NAME=BACKEND, as in data=/srv/data.img or data=new:/srv/data.img,size=10GiB"
                    .to_owned()
            }
        };
        let title = format!("the volume `{text}` has no backend");
        draft.mistakes.push(all.wrong(title, "no `=` in it", help));
        return;
    };
    let mut volume = VolumeDraft {
        name: word(0..equals),
        keys: BTreeMap::new(),
    };
    let mut at = equals + 1;
    let end = part_end(text, at);
    volume.keys.insert("backend", word(at..end));
    at = end;
    while at < text.len() {
        at += 1; // the comma
        let key_end = text[at..]
            .find(['=', ','])
            .map_or(text.len(), |found| at + found);
        let key = word(at..key_end);
        let has_value = text[key_end..].starts_with('=');
        let value = match (key.text.as_str(), has_value) {
            ("device", true) => key_end + 1..text.len(),
            (_, true) => key_end + 1..part_end(text, key_end + 1),
            (_, false) => key_end..key_end,
        };
        at = value.end;
        let mut value = word(value);
        let name = match key.text.as_str() {
            "ro" => "read_only",
            other => other,
        };
        if name == "read_only" && !has_value {
            value = key.clone();
            value.text = "true".to_owned();
        }
        match known(VOLUME_KEYS, name).filter(|known| *known != "backend") {
            None => draft.mistakes.push(unknown(&key)),
            Some(known) if value.text.is_empty() => draft.mistakes.push(key.wrong(
                format!("`{known}` has no value"),
                "no `=` behind it",
                format!("write {known}=VALUE"),
            )),
            Some(known) => {
                if volume.keys.insert(known, value).is_some() {
                    let title = format!("`{known}` is given twice");
                    let help = "leave one of them out";
                    draft
                        .mistakes
                        .push(key.wrong(title, "the second time", help));
                }
            }
        }
    }
    draft.volumes.push(volume);
}

fn part_end(text: &str, from: usize) -> usize {
    text[from..]
        .find(',')
        .map_or(text.len(), |comma| from + comma)
}

fn unknown(key: &Word) -> Mistake {
    let mut allowed = vec!["ro"];
    allowed.extend(VOLUME_KEYS.iter().filter(|key| **key != "backend"));
    let title = format!("unknown option `{}` of a volume", key.text);
    let help = choices(&key.text, &allowed) + " (a path with a comma belongs in a file: --config)";
    key.wrong(title, "not an option of a volume", help)
}
