//! Credentials of a profile in a file, as Amazon's own tools have it: read again whenever the file
//! has changed, so that temporary ones can be renewed while a volume is open.

use std::path::PathBuf;
use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::time::SystemTime;

use object_store::aws::AwsCredential;
use object_store::client::CredentialProvider;

use crate::request::lock;

type Answer<'a> =
    Pin<Box<dyn Future<Output = object_store::Result<Arc<AwsCredential>>> + Send + 'a>>;

/// A profile.
#[derive(Debug)]
pub(crate) struct Profile {
    path: PathBuf,
    name: String,
    /// The last reading, and the time at which the file had changed by then.
    last: Mutex<Option<(SystemTime, Arc<AwsCredential>)>>,
}

/// Why there are no credentials.
#[derive(Debug, thiserror::Error)]
enum Missing {
    #[error("cannot read {}: {source}", path.display())]
    File {
        path: PathBuf,
        source: std::io::Error,
    },
    #[error("{}: [{name}] has no aws_access_key_id and aws_secret_access_key", path.display())]
    Keys { path: PathBuf, name: String },
}

impl Profile {
    /// The profile that the environment names by AWS_PROFILE or AWS_SHARED_CREDENTIALS_FILE; keys
    /// in the environment go before it.
    pub(crate) fn of_process() -> Option<Self> {
        let of = |name: &str| std::env::var_os(name).filter(|value| !value.is_empty());
        let (name, path) = (of("AWS_PROFILE"), of("AWS_SHARED_CREDENTIALS_FILE"));
        if of("AWS_ACCESS_KEY_ID").is_some() || (name.is_none() && path.is_none()) {
            return None;
        }
        let usual = || Some(PathBuf::from(of("HOME")?).join(".aws/credentials"));
        let name = name.and_then(|name| name.into_string().ok());
        Some(Self {
            path: path.map(PathBuf::from).or_else(usual)?,
            name: name.unwrap_or_else(|| "default".to_owned()),
            last: Mutex::default(),
        })
    }

    /// The credentials as the file has them by now. A file that cannot be read, or is just being
    /// written, changes nothing.
    fn read(&self) -> Result<Arc<AwsCredential>, Missing> {
        let mut last = lock(&self.last);
        let failed = |source| Missing::File {
            path: self.path.clone(),
            source,
        };
        let changed = std::fs::metadata(&self.path).and_then(|data| data.modified());
        let found = match (changed, &*last) {
            (Ok(changed), Some((seen, known))) if changed == *seen => return Ok(Arc::clone(known)),
            (Ok(changed), _) => std::fs::read_to_string(&self.path)
                .map_err(failed)
                .and_then(|text| self.find(&text))
                .map(|found| (changed, Arc::new(found))),
            (Err(source), _) => Err(failed(source)),
        };
        match found {
            Ok(found) => Ok(Arc::clone(&last.insert(found).1)),
            Err(missing) => {
                let known = last.as_ref().map(|(_, known)| Arc::clone(known));
                known.ok_or(missing)
            }
        }
    }

    fn find(&self, text: &str) -> Result<AwsCredential, Missing> {
        let header = format!("[{}]", self.name);
        let lines = text.lines().map(str::trim);
        let section = lines.skip_while(|line| *line != header).skip(1);
        let (mut key_id, mut secret_key, mut token) = (None, None, None);
        for line in section.take_while(|line| !line.starts_with('[')) {
            let Some((key, value)) = line.split_once('=') else {
                continue;
            };
            let value = Some(value.trim().to_owned()).filter(|value| !value.is_empty());
            match key.trim() {
                "aws_access_key_id" => key_id = value,
                "aws_secret_access_key" => secret_key = value,
                "aws_session_token" => token = value,
                _ => {}
            }
        }
        let (Some(key_id), Some(secret_key)) = (key_id, secret_key) else {
            let (path, name) = (self.path.clone(), self.name.clone());
            return Err(Missing::Keys { path, name });
        };
        Ok(AwsCredential {
            key_id,
            secret_key,
            token,
        })
    }
}

impl CredentialProvider for Profile {
    type Credential = AwsCredential;

    fn get_credential<'life, 'answer>(&'life self) -> Answer<'answer>
    where
        'life: 'answer,
        Self: 'answer,
    {
        Box::pin(async {
            self.read().map_err(|missing| object_store::Error::Generic {
                store: "S3",
                source: Box::new(missing),
            })
        })
    }
}

#[cfg(test)]
mod tests {
    use std::fs::{self, File};
    use std::time::{Duration, UNIX_EPOCH};

    use super::*;

    #[test]
    fn credentials_that_are_written_anew_are_read_anew() {
        let name = format!("tidegate-credentials-{}", std::process::id());
        let profile = Profile {
            path: std::env::temp_dir().join(name),
            name: "disks".to_owned(),
            last: Mutex::default(),
        };
        let write = |second: u64, text: &str| {
            fs::write(&profile.path, text).unwrap();
            let file = File::options().write(true).open(&profile.path).unwrap();
            file.set_modified(UNIX_EPOCH + Duration::from_secs(second))
                .unwrap();
        };
        assert!(matches!(profile.read(), Err(Missing::File { .. })));
        write(1, "[other]\naws_access_key_id=x\naws_secret_access_key=y\n");
        assert!(matches!(profile.read(), Err(Missing::Keys { .. })));
        let text = |key: &str| {
            format!(
                "[other]\naws_access_key_id=x\n[disks]\n# renewed\naws_access_key_id = {key}\n\
                 aws_secret_access_key=secret\naws_session_token = token\n[more]\naws_session_token = no\n"
            )
        };
        write(2, &text("first"));
        let found = profile.read().unwrap();
        assert_eq!(
            (
                found.key_id.as_str(),
                found.secret_key.as_str(),
                found.token.as_deref()
            ),
            ("first", "secret", Some("token"))
        );
        write(3, &text("second"));
        assert_eq!(profile.read().unwrap().key_id, "second");
        // Cut, to be written anew; gone.
        write(4, "");
        assert_eq!(profile.read().unwrap().key_id, "second");
        fs::remove_file(&profile.path).unwrap();
        assert_eq!(profile.read().unwrap().key_id, "second");
        write(5, &text("third"));
        assert_eq!(profile.read().unwrap().key_id, "third");
        fs::remove_file(&profile.path).unwrap();
    }
}
