//! A configuration is looked at without being served: before a start, before a reload.

use super::{ServeError, start};
use crate::backend::BackendError;
use crate::config::{Config, show_size};

/// Checks that the user who asks could start a server with it, and reports line by line. Nothing is
/// opened: a file in use, or an object store that is silent, only shows at the start.
#[must_use]
pub fn check(config: &Config) -> (String, bool) {
    let mut wrong = Vec::new();
    if let Some(tls) = &config.tls {
        match crate::tls::Acceptor::open(tls) {
            Ok(acceptor) => {
                wrong.extend(acceptor.warnings().iter().map(|it| (false, it.to_string())))
            }
            Err(error) => wrong.push((true, error.to_string())),
        }
    }
    if let Some(record) = &config.record
        && let Err(cause) = crate::record::look(&record.path)
    {
        let path = record.path.clone();
        wrong.push((true, ServeError::Record { path, cause }.to_string()));
    }
    for volume in &config.volumes {
        let Err(cause) = crate::backend::look(volume) else {
            continue;
        };
        let grows = matches!(&cause, BackendError::OtherSize { has, wanted, .. } if wanted > has);
        let is_served = grows && crate::backend::is_in_use(volume);
        let name = volume.name.clone();
        let told = ServeError::Volume { name, cause }.to_string();
        wrong.push(match is_served {
            true => (
                false,
                format!(
                    "{told}; a reload of the server that has it makes it longer, a start refuses it"
                ),
            ),
            false => (true, told),
        });
    }
    let limits = start::limits_of(&config.limits, u64::MAX, 0);
    if let Err(error) = start::cache(config, &limits) {
        wrong.push((true, error.to_string()));
    }
    let mut told: String = wrong
        .iter()
        .map(|(grave, what)| format!("{}: {what}\n", if *grave { "error" } else { "warning" }))
        .collect();
    let is_right = wrong.iter().all(|(grave, _)| !grave);
    if is_right {
        let count = config.volumes.len();
        let s = if count == 1 { "" } else { "s" };
        let memory = show_size(config.memory);
        told.push_str(&format!("right: {count} volume{s}, {memory} of memory\n"));
    }
    (told, is_right)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Asked;

    #[test]
    fn a_folder_may_be_missing_where_a_start_makes_it() {
        let name = format!("tidegate-check-{}", std::process::id());
        let missing = std::env::temp_dir().join(name);
        let missing = missing.display();
        for (volume, starts) in [
            (format!("a=dir:{missing},size=1MiB"), true),
            (format!("a=dir:{missing},size=1MiB,ro"), false),
            (format!("a=dir:{missing}"), false),
            (format!("a=new:{missing}/a,size=1MiB"), false),
        ] {
            let asked = Asked {
                volumes: vec![volume.clone()],
                ..Asked::default()
            };
            let (told, is_right) = check(&asked.config().unwrap());
            assert_eq!(is_right, starts, "{volume}: {told}");
            assert_eq!(told.contains("is not there"), !starts, "{volume}: {told}");
        }
    }
}
