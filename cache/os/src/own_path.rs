//! Paths that were made here and are taken away again, unless they have become somebody else's.

use std::fs::{self, File, Metadata};
use std::io;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

/// Which file it is, whatever its name: device and inode.
pub type Identity = (u64, u64);

/// Of what these data are of.
#[must_use]
pub fn identity(data: &Metadata) -> Identity {
    (data.dev(), data.ino())
}

/// True if `path` leads to that file.
///
/// # Errors
/// Those of the system but that nothing is there.
pub fn leads_to(path: &Path, file: &File) -> io::Result<bool> {
    match fs::metadata(path) {
        Ok(there) => Ok(identity(&there) == identity(&file.metadata()?)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
        Err(error) => Err(error),
    }
}

/// A path that was made here; removed when dropped, if it is still the same, and empty if it is a
/// folder.
#[derive(Debug, Default)]
pub struct OwnPath {
    path: PathBuf,
    /// None: it is not removed.
    identity: Option<Identity>,
}

impl OwnPath {
    /// The file that `path` leads to was made here, and is that.
    #[must_use]
    pub fn new(path: &Path, identity: Option<Identity>) -> Self {
        Self {
            path: path.into(),
            identity,
        }
    }

    /// The file just made at `path`.
    #[must_use]
    pub fn found(path: &Path) -> Self {
        Self::new(path, identity_at(path))
    }

    /// It stays.
    pub fn keep(mut self) {
        self.identity = None;
    }
}

impl Drop for OwnPath {
    fn drop(&mut self) {
        if self.identity.is_some() && identity_at(&self.path) == self.identity {
            // A file, or else an empty folder.
            let _ = fs::remove_file(&self.path).or_else(|_| fs::remove_dir(&self.path));
        }
    }
}

/// Paths that were made here, in that order; removed when dropped, the last one first.
#[derive(Debug, Default)]
pub struct OwnPaths(Vec<OwnPath>);

impl OwnPaths {
    /// One more was made.
    pub fn push(&mut self, made: OwnPath) {
        self.0.push(made);
    }

    /// Makes a folder, and those that it is in, as far as they are missing.
    ///
    /// # Errors
    /// Those of the system.
    pub fn make_folders(&mut self, path: &Path) -> io::Result<()> {
        match self.make_missing(path) {
            // A folder that was there a moment ago was taken away by a program that was refused.
            Err(error) if error.kind() == io::ErrorKind::NotFound => self.make_missing(path),
            made => made,
        }
    }

    fn make_missing(&mut self, path: &Path) -> io::Result<()> {
        let ancestors = path.ancestors().filter(|at| !at.as_os_str().is_empty());
        let missing: Vec<&Path> = ancestors.take_while(|at| !at.exists()).collect();
        for at in missing.into_iter().rev() {
            match fs::create_dir(at) {
                Ok(()) => self.push(OwnPath::found(at)),
                // Somebody else made it just now, or it is a `..`.
                Err(_) if at.is_dir() => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    /// They stay.
    pub fn keep(mut self) {
        self.0.drain(..).for_each(OwnPath::keep);
    }
}

impl Drop for OwnPaths {
    fn drop(&mut self) {
        while let Some(last) = self.0.pop() {
            drop(last);
        }
    }
}

fn identity_at(path: &Path) -> Option<Identity> {
    fs::symlink_metadata(path).ok().map(|data| identity(&data))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_that_lost_its_name_is_told_from_one_that_has_it() {
        let name = format!("tidegate-leads-to-{}", std::process::id());
        let path = std::env::temp_dir().join(name);
        let file = File::create(&path).unwrap();
        assert!(leads_to(&path, &file).unwrap());
        fs::remove_file(&path).unwrap();
        assert!(!leads_to(&path, &file).unwrap());
        fs::write(&path, "").unwrap();
        assert!(!leads_to(&path, &file).unwrap());
        assert!(leads_to(&path.join("below"), &file).is_err());
        fs::remove_file(&path).unwrap();
    }

    #[test]
    fn folders_that_were_made_go_again_and_others_stay() {
        let name = format!("tidegate-own-path-{}", std::process::id());
        let folder = std::env::temp_dir().join(name);
        let mut all = OwnPaths::default();
        all.make_folders(&folder).unwrap();
        let mut made = OwnPaths::default();
        made.make_folders(&folder.join("a/b/../c")).unwrap();
        made.make_folders(&folder.join("d/e")).unwrap();
        assert!(folder.join("a/c").is_dir() && folder.join("a/b").is_dir());
        // Somebody else has put something there.
        let others = OwnPath::new(&folder.join("d/others"), None);
        fs::write(folder.join("d/others"), "").unwrap();
        drop(made);
        assert!(!folder.join("a").exists());
        assert!(!folder.join("d/e").exists() && folder.join("d").is_dir());
        drop(others);
        fs::remove_dir_all(folder.join("d")).unwrap();
        let mut kept = OwnPaths::default();
        kept.make_folders(&folder.join("f")).unwrap();
        let file = folder.join("f/file");
        fs::write(&file, "").unwrap();
        assert!(kept.make_folders(&file.join("below")).is_err());
        kept.keep();
        assert!(file.exists());
        fs::remove_dir_all(&folder).unwrap();
        drop(all);
    }
}
