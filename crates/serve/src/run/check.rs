//! A configuration is looked at without being served: before a start, before a reload.

use std::path::Path;

use crate::config::{BackendConfig, Config, show_size};

/// Whether a server could be started with it, and what there is to say of it, line by line. What
/// only shows when it is opened (a file in use, an object store that is silent) is not looked for.
#[must_use]
pub fn check(config: &Config) -> (String, bool) {
    let mut wrong = Vec::new();
    #[cfg(feature = "tls")]
    if let Some(tls) = &config.tls {
        match crate::tls::Acceptor::open(tls) {
            Ok(acceptor) => {
                wrong.extend(acceptor.warnings().iter().map(|it| (false, it.to_string())))
            }
            Err(error) => wrong.push((true, error.to_string())),
        }
    }
    for volume in &config.volumes {
        let missing = match &volume.backend {
            BackendConfig::File { path, .. } => (!path.exists())
                .then(|| format!("{} is not there; `new:` makes a file", path.display())),
            BackendConfig::New { path, .. } | BackendConfig::Embedded { path, .. } => {
                let folder = path.parent().filter(|folder| *folder != Path::new(""));
                folder
                    .filter(|folder| !folder.is_dir())
                    .map(|folder| format!("the folder {} is not there", folder.display()))
            }
            BackendConfig::Objects { url, .. } => url
                .strip_prefix("dir:")
                .filter(|folder| !Path::new(folder).is_dir())
                .map(|folder| format!("the folder {folder} is not there")),
        };
        let name = volume.name.escape_debug();
        wrong.extend(missing.map(|what| (true, format!("volume \"{name}\": {what}"))));
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
