//! Debian's kernel package and the other programs that a guest needs.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::{Result, at, steps};

/// Packages that only name the newest kernel of a line, best first: what 6.12 is called beside
/// Debian 12's own 6.1, and what each release calls its own.
const NEWEST: [&str; 2] = ["linux-image-6.12-cloud-amd64", "linux-image-cloud-amd64"];

/// Programs, how one asks for their version, and the package they come in.
const PROGRAMS: [(&str, &str, &str); 3] = [
    ("qemu-system-x86_64", "--version", "qemu-system-x86"),
    ("xz", "--version", "xz-utils"),
    ("dpkg-deb", "--version", "dpkg"),
];

/// The shell and its tools, in one program that needs no library. Like the kernel it is unpacked
/// and not installed: its package would drive out `busybox`, which a host may need.
const BUSYBOX: &str = "busybox-static";

/// An unpacked kernel package.
pub(super) struct Kernel {
    /// As `uname -r` says.
    pub(super) version: String,
    folder: PathBuf,
    /// Ticks of its clock per second.
    pub(super) hz: u32,
}

impl Kernel {
    /// The kernel of a package, or of the one that it only names; without one, what was fetched
    /// before, or the newest that the package archive has.
    ///
    /// # Errors
    /// It cannot be fetched; the message says what to do.
    pub(super) fn fetch(cache: &Path, package: Option<&str>) -> Result<Self> {
        let package = match (package, cached(cache)) {
            (Some(package), _) if cache.join(package).join("boot").exists() => package.to_owned(),
            (Some(package), _) => named_by(package).unwrap_or_else(|| package.to_owned()),
            (None, Some(package)) => package,
            (None, None) => newest()?,
        };
        let folder = cache.join(&package);
        if !folder.exists() {
            unpack(cache, &package, &folder)?;
        }
        Self::open(folder)
    }

    fn open(folder: PathBuf) -> Result<Self> {
        let boot = folder.join("boot");
        let version = entries(&boot)?
            .iter()
            .find_map(|name| name.strip_prefix("vmlinuz-").map(str::to_owned))
            .ok_or_else(|| format!("{}: no kernel in it; remove {0}", boot.display()))?;
        let config = boot.join(format!("config-{version}"));
        let text = fs::read_to_string(&config).map_err(at(&config))?;
        let hz = text
            .lines()
            .find_map(|line| line.strip_prefix("CONFIG_HZ="))
            .and_then(|hz| hz.parse().ok())
            .ok_or_else(|| format!("{}: no CONFIG_HZ", config.display()))?;
        Ok(Self {
            version,
            folder,
            hz,
        })
    }

    pub(super) fn image(&self) -> PathBuf {
        self.folder.join(format!("boot/vmlinuz-{}", self.version))
    }

    /// A module, unpacked; nothing if it is built into the kernel.
    ///
    /// # Errors
    /// The kernel does not have it.
    pub(super) fn module(&self, path: &str) -> Result<Option<Vec<u8>>> {
        let modules = self.folder.join("lib/modules").join(&self.version);
        let file = modules.join("kernel").join(path);
        if file.exists() {
            let content = fs::read(&file).map_err(at(&file))?;
            return Ok(Some(content));
        }
        let packed = file.with_extension("ko.xz");
        if packed.exists() {
            let output = Command::new("xz")
                .arg("-dc")
                .arg(&packed)
                .output()
                .map_err(|error| format!("xz: {error}"))?;
            if !output.status.success() {
                return Err(format!("xz -dc {}: {}", packed.display(), output.status));
            }
            return Ok(Some(output.stdout));
        }
        let list = modules.join("modules.builtin");
        let builtin = fs::read_to_string(&list).map_err(at(&list))?;
        if builtin.lines().any(|line| line == format!("kernel/{path}")) {
            Ok(None)
        } else {
            Err(format!("Linux {} has no {path}", self.version))
        }
    }
}

/// A busybox that needs no library: the one installed, or that of the package.
///
/// # Errors
/// It cannot be fetched.
pub(super) fn busybox(cache: &Path) -> Result<PathBuf> {
    let installed = Path::new("/bin/busybox");
    if installed.exists() && !steps::is_there("ldd", &["/bin/busybox"]) {
        return Ok(installed.to_owned());
    }
    let folder = cache.join(BUSYBOX);
    if !folder.exists() {
        unpack(cache, BUSYBOX, &folder).or_else(|_| {
            // An image of a container often has no lists at all.
            install("apt-get", &["update", "-q"])?;
            unpack(cache, BUSYBOX, &folder)
        })?;
    }
    let places = ["usr/bin/busybox", "bin/busybox"].map(|place| folder.join(place));
    let found = places.into_iter().find(|place| place.exists());
    found.ok_or_else(|| format!("{}: no busybox in it; remove it", folder.display()))
}

fn entries(folder: &Path) -> Result<Vec<String>> {
    let entries = fs::read_dir(folder).map_err(at(folder))?;
    let mut names: Vec<String> = entries
        .flatten()
        .map(|entry| entry.file_name().to_string_lossy().into_owned())
        .collect();
    names.sort();
    Ok(names)
}

fn cached(cache: &Path) -> Option<String> {
    let names = entries(cache).ok()?;
    // Unpacked, and of a line that we know: 6.12 comes before 6.1.
    let unpacked = |line: &str| {
        let name = names.iter().rfind(|name| name.starts_with(line))?;
        cache.join(name).join("boot").exists().then(|| name.clone())
    };
    unpacked("linux-image-6.12.").or_else(|| unpacked("linux-image-6.1."))
}

/// The package that the newest kernel is in.
fn newest() -> Result<String> {
    let known = || {
        let lines = ["linux-image-6.12.", "linux-image-6.1."];
        let mut named = NEWEST.into_iter().filter_map(named_by);
        named.find(|package| lines.iter().any(|line| package.starts_with(line)))
    };
    if let Some(package) = known() {
        return Ok(package);
    }
    // An image of a container often has no lists at all.
    install("apt-get", &["update", "-q"])?;
    known().ok_or_else(|| {
        format!(
            "the package archive has no kernel: none of {} leads to one; add Debian's archive, or name a package with --kernel",
            NEWEST.join(", ")
        )
    })
}

/// The package of a kernel that another one only names; a kernel's own names none.
fn named_by(package: &str) -> Option<String> {
    let text = steps::output(Command::new("apt-cache").args(["depends", package])).ok()?;
    named_in(&text).map(str::to_owned)
}

/// The kernel among the lines of `apt-cache depends`.
fn named_in(text: &str) -> Option<&str> {
    let mut needs = text
        .lines()
        .filter_map(|line| line.trim().strip_prefix("Depends: "));
    needs.find(|package| package.starts_with("linux-image-"))
}

fn unpack(cache: &Path, package: &str, folder: &Path) -> Result<()> {
    let download = cache.join("download");
    let _ = fs::remove_dir_all(&download);
    fs::create_dir_all(&download).map_err(at(&download))?;
    let mut apt = Command::new("apt-get");
    apt.args(["download", "-q", package]).current_dir(&download);
    steps::output(&mut apt)?;
    let file = entries(&download)?
        .into_iter()
        .find(|name| name.ends_with(".deb"))
        .ok_or_else(|| format!("apt-get download {package} left no package"))?;
    // Whole or not at all: the folder gets its name when it is complete.
    let unpacked = download.join("unpacked");
    let mut dpkg = Command::new("dpkg-deb");
    dpkg.arg("-x").arg(download.join(file)).arg(&unpacked);
    steps::output(&mut dpkg)?;
    fs::rename(&unpacked, folder).map_err(at(folder))?;
    fs::remove_dir_all(&download).map_err(at(&download))
}

/// The packages whose programs are not there.
pub(super) fn missing() -> Vec<&'static str> {
    let gone = |program: &str, asked: &str| !steps::is_there(program, &[asked]);
    PROGRAMS
        .iter()
        .filter(|(program, asked, _)| gone(program, asked))
        .map(|(_, _, package)| *package)
        .collect()
}

/// Installs what is missing, or says what to install.
///
/// # Errors
/// It cannot be installed.
pub(super) fn provide() -> Result<()> {
    let missing = missing();
    if missing.is_empty() {
        return Ok(());
    }
    let mut words = vec!["install", "-y", "-q", "--no-install-recommends"];
    words.extend(&missing);
    if install("apt-get", &words).is_err() {
        install("apt-get", &["update", "-q"])?;
        install("apt-get", &words)?;
    }
    Ok(())
}

fn install(program: &str, words: &[&str]) -> Result<()> {
    let output = steps::output(
        Command::new(program)
            .args(words)
            .env("DEBIAN_FRONTEND", "noninteractive"),
    );
    output.map(drop).map_err(|problem| {
        format!(
            "a guest needs programs that are not there. As root: {program} {}\n{problem}",
            words.join(" ")
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_package_that_only_names_a_kernel_leads_to_it() {
        let names = "linux-image-cloud-amd64\n  Depends: linux-image-6.1.0-56-cloud-amd64\n";
        assert_eq!(named_in(names), Some("linux-image-6.1.0-56-cloud-amd64"));
        let own = "linux-image-6.1.0-56-cloud-amd64\n  Depends: kmod\n |Depends: initramfs-tools\n  Suggests: linux-doc-6.1\n";
        assert_eq!(named_in(own), None);
    }
}
