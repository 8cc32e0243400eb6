//! The control groups that a process is in: what memory they allow, and how pressed they are.
//!
//! ```text
//!   /proc/self/cgroup:     which group            0::/a/b            4:memory:/a/b
//!   /proc/self/mountinfo:  where groups are seen  cgroup2 at /sys/fs/cgroup, of which `/a` is the root
//!   folders, inside out:   /sys/fs/cgroup/b, /sys/fs/cgroup
//! ```
//! The smallest limit of the own group and of every parent that can be seen counts. Groups outside
//! of a container's own tree cannot be seen: of version 1 the kernel tells the smallest limit all
//! the same (`memory.stat`), of version 2 the folder where the tree is mounted is the container's
//! own group, with its limit.
//!
//! Vocabulary: *limit*, bytes over which the kernel kills (`memory.max`, `memory.limit_in_bytes`)
//! or holds up (`memory.high`); *unmovable*, memory of the group that the kernel cannot take
//! without swap; *pressure*, time that somebody of the group was stalled for memory (PSI).
//!
//! All of it is read under a root path, so that a test has a tree of its own.
//!
//! Source: cgroup_namespaces(7), proc_pid_mountinfo(5); Linux v6.6
//! Documentation/admin-guide/cgroup-v2.rst and cgroup-v1/memory.rst,
//! Documentation/accounting/psi.rst.

use std::path::{Path, PathBuf};
use std::time::Duration;

/// More than any machine has: "no limit" of version 1.
const UNLIMITED: u64 = 1 << 60;
/// Files that hold a limit.
const V2_LIMITS: [&str; 2] = ["memory.max", "memory.high"];
const V1_LIMIT: &str = "memory.limit_in_bytes";
const STAT: &str = "memory.stat";

/// A limit of a group.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GroupLimit {
    /// Its size.
    pub bytes: u64,
    /// The file that says so.
    pub file: PathBuf,
}

/// The control groups of a process, as they can be seen from it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Groups {
    /// Folders of version 2, the own group first.
    unified: Vec<PathBuf>,
    /// Folders of the memory controller of version 1.
    legacy: Vec<PathBuf>,
}

impl Groups {
    /// Those of this process.
    #[must_use]
    pub fn of_process() -> Self {
        Self::under(Path::new("/"))
    }

    /// Those of the process whose /proc and /sys are under `root`.
    #[must_use]
    pub fn under(root: &Path) -> Self {
        let read = |name: &str| std::fs::read_to_string(root.join(name)).unwrap_or_default();
        let (own, mounts) = (read("proc/self/cgroup"), read("proc/self/mountinfo"));
        let mut found = Self::default();
        for line in own.lines() {
            let mut fields = line.splitn(3, ':').skip(1);
            let (Some(controllers), Some(path)) = (fields.next(), fields.next()) else {
                continue;
            };
            let is_unified = controllers.is_empty();
            if !is_unified && controllers.split(',').all(|name| name != "memory") {
                continue;
            }
            let mount = mounts.lines().filter_map(Mount::read);
            let mut mount = mount.filter(|mount| mount.is_unified == is_unified);
            let Some(mount) = mount.next() else { continue };
            let folders = mount.folders(root, path);
            match is_unified {
                true => found.unified = folders,
                false => found.legacy = folders,
            }
        }
        found
    }

    /// True if the process is in a group that could have a limit.
    #[must_use]
    pub fn is_bounded(&self) -> bool {
        let mut files = self.unified.iter().map(|folder| folder.join(V2_LIMITS[0]));
        !self.legacy.is_empty() || files.any(|file| file.exists())
    }

    /// The smallest limit of all of them, now.
    #[must_use]
    pub fn limit(&self) -> Option<GroupLimit> {
        let unified = self.unified.iter();
        let unified = unified.flat_map(|folder| V2_LIMITS.map(|name| folder.join(name)));
        // Without `use_hierarchy` a parent's limit is not for its children.
        let is_alone = self.legacy.first().is_some_and(|own| {
            number(&own.join("memory.use_hierarchy")).is_some_and(|hierarchy| hierarchy == 0)
        });
        let seen = if is_alone { 1 } else { usize::MAX };
        let legacy = self.legacy.iter().take(seen);
        let legacy = legacy.map(|folder| folder.join(V1_LIMIT));
        let told = unified.chain(legacy).filter_map(|file| {
            let bytes = number(&file)?;
            Some(GroupLimit { bytes, file })
        });
        let beyond = self.legacy.first().into_iter().filter_map(|own| {
            let file = own.join(STAT);
            let bytes = field(&file, "hierarchical_memory_limit")?;
            Some(GroupLimit { bytes, file })
        });
        told.chain(beyond)
            .filter(|limit| limit.bytes < UNLIMITED)
            .min_by_key(|limit| limit.bytes)
    }

    /// Memory of the group that has the smallest limit which the kernel cannot take from it: not
    /// the page cache, which it evicts by itself.
    #[must_use]
    pub fn unmovable(&self, limit: &GroupLimit) -> Option<u64> {
        let file = limit.file.with_file_name(STAT);
        let folder = limit.file.parent()?;
        let fields: &[&str] = match self.legacy.iter().any(|legacy| legacy == folder) {
            true => &["total_rss", "total_shmem"],
            false => &["anon", "shmem", "kernel"],
        };
        let found: Vec<u64> = fields
            .iter()
            .filter_map(|name| field(&file, name))
            .collect();
        (!found.is_empty()).then(|| found.iter().sum())
    }

    /// For how long somebody of the own group was stalled for memory so far; of version 2 with PSI
    /// only.
    #[must_use]
    pub fn stalled(&self) -> Option<Duration> {
        let text = std::fs::read_to_string(self.unified.first()?.join("memory.pressure")).ok()?;
        let some = text.lines().find_map(|line| line.strip_prefix("some "))?;
        let total = some
            .split_whitespace()
            .find_map(|field| field.strip_prefix("total="))?;
        Some(Duration::from_micros(total.parse().ok()?))
    }
}

/// The mount of a hierarchy of groups.
struct Mount<'a> {
    is_unified: bool,
    /// Which group stands at the mount point.
    root: &'a str,
    point: &'a str,
}

impl<'a> Mount<'a> {
    /// A line of mountinfo, if it is of groups that control memory.
    fn read(line: &'a str) -> Option<Self> {
        let (before, after) = line.split_once(" - ")?;
        let mut before = before.split(' ').skip(3);
        let (root, point) = (before.next()?, before.next()?);
        let mut after = after.split(' ');
        let kind = after.next()?;
        let mut options = after.nth(1).unwrap_or_default().split(',');
        let is_unified = kind == "cgroup2";
        let has_memory = kind == "cgroup" && options.any(|option| option == "memory");
        (is_unified || has_memory).then_some(Self {
            is_unified,
            root,
            point,
        })
    }

    /// The folders of a group and of all its parents that are seen here, inside out.
    fn folders(&self, root: &Path, group: &str) -> Vec<PathBuf> {
        let point = root.join(self.point.trim_start_matches('/'));
        let seen = match self.root {
            "/" => Some(group),
            at => group.strip_prefix(at),
        };
        // A group outside of what is mounted (`/../x`, another container's) is seen at the mount
        // point, if anywhere.
        let seen = seen.filter(|path| !path.contains("..")).unwrap_or("");
        let own = point.join(seen.trim_start_matches('/'));
        let within = own.ancestors().take_while(|at| at.starts_with(&point));
        within
            .filter(|at| at.is_dir())
            .map(Path::to_path_buf)
            .collect()
    }
}

/// A file that holds a number; none if it says `max`, or is not there.
fn number(file: &Path) -> Option<u64> {
    let text = std::fs::read_to_string(file).ok()?;
    text.trim().parse().ok()
}

/// The number behind a name, in a file of lines of both.
fn field(file: &Path, name: &str) -> Option<u64> {
    let text = std::fs::read_to_string(file).ok()?;
    let mut lines = text.lines();
    lines.find_map(|line| {
        line.strip_prefix(name)?
            .strip_prefix(' ')?
            .trim()
            .parse()
            .ok()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A made-up /proc and /sys.
    struct Tree(crate::TestDir);

    const V2: &str = "29 23 0:26 / /sys/fs/cgroup rw,nosuid - cgroup2 cgroup2 rw,nsdelegate\n";
    const V1: &str = "32 31 0:29 / /sys/fs/cgroup/cpu rw - cgroup cgroup rw,cpu\n\
                      35 31 0:32 / /sys/fs/cgroup/memory rw,relatime shared:9 - cgroup cgroup rw,memory\n";
    const NONE: &str = "9223372036854771712\n";

    impl Tree {
        fn new(name: &str, cgroup: &str, mounts: &str) -> Self {
            let tree = Self(crate::TestDir::new(name));
            tree.put("proc/self/cgroup", cgroup);
            tree.put("proc/self/mountinfo", mounts);
            tree
        }

        fn put(&self, path: &str, text: &str) -> PathBuf {
            let path = self.0.join(path);
            std::fs::create_dir_all(path.parent().expect("it has one")).expect("it is ours");
            std::fs::write(&path, text).expect("it is ours");
            path
        }

        fn groups(&self) -> Groups {
            Groups::under(&self.0.0)
        }

        /// The limit, and the file below the tree.
        fn limit(&self) -> Option<(u64, String)> {
            self.groups().limit().map(|limit| {
                let file = limit.file.strip_prefix(&self.0.0).expect("it is below");
                (limit.bytes, file.display().to_string())
            })
        }
    }

    fn told(bytes: u64, file: &str) -> Option<(u64, String)> {
        Some((bytes, file.to_owned()))
    }

    #[test]
    fn the_smallest_of_the_own_group_and_of_every_parent_counts() {
        let tree = Tree::new("group-v2", "0::/a/b/c\n", V2);
        tree.put("sys/fs/cgroup/a/b/c/memory.max", "max\n");
        assert_eq!(tree.limit(), None);
        tree.put("sys/fs/cgroup/a/b/c/memory.max", "400\n");
        assert_eq!(tree.limit(), told(400, "sys/fs/cgroup/a/b/c/memory.max"));
        tree.put("sys/fs/cgroup/a/memory.max", "300\n");
        assert_eq!(tree.limit(), told(300, "sys/fs/cgroup/a/memory.max"));
        tree.put("sys/fs/cgroup/a/b/memory.high", "200\n");
        assert_eq!(tree.limit(), told(200, "sys/fs/cgroup/a/b/memory.high"));
        // A sibling's is not ours.
        tree.put("sys/fs/cgroup/a/x/memory.max", "1\n");
        assert_eq!(tree.limit(), told(200, "sys/fs/cgroup/a/b/memory.high"));
        assert!(tree.groups().is_bounded());
    }

    #[test]
    fn version_1_has_its_own_files_and_knows_of_parents_that_are_not_seen() {
        let tree = Tree::new("group-v1", "5:cpu:/\n4:memory:/a/b\n0::/\n", V1);
        let at = |name: &str| format!("sys/fs/cgroup/memory/{name}");
        tree.put(&at("a/b/memory.limit_in_bytes"), NONE);
        tree.put(&at("memory.limit_in_bytes"), NONE);
        assert_eq!(tree.limit(), None, "no limit is a very large number");
        tree.put(&at("a/memory.limit_in_bytes"), "500\n");
        assert_eq!(tree.limit(), told(500, &at("a/memory.limit_in_bytes")));
        let stat = "cache 7\nhierarchical_memory_limit 400\ntotal_cache 9\ntotal_rss 30\n";
        tree.put(&at("a/b/memory.stat"), stat);
        assert_eq!(tree.limit(), told(400, &at("a/b/memory.stat")));
        tree.put(&at("a/b/memory.limit_in_bytes"), "450\n");
        tree.put(&at("a/b/memory.use_hierarchy"), "0\n");
        tree.put(&at("a/memory.limit_in_bytes"), "1\n");
        tree.put(&at("a/b/memory.stat"), "total_rss 30\n");
        let own = tree.groups().limit().expect("there is one");
        assert_eq!(own.bytes, 450, "a parent's is not for its children");
        assert_eq!(tree.groups().unmovable(&own), Some(30));
    }

    #[test]
    fn a_container_that_does_not_see_the_tree_of_the_host_has_the_limit_of_its_mount() {
        // A namespace of its own: the group is the root.
        let tree = Tree::new("group-ns", "0::/\n", V2);
        tree.put("sys/fs/cgroup/memory.max", "100\n");
        assert_eq!(tree.limit(), told(100, "sys/fs/cgroup/memory.max"));
        // None, and the host's path: a part of the tree is mounted.
        let mounts = "35 31 0:32 /docker/0a /sys/fs/cgroup/memory ro - cgroup cgroup rw,memory\n";
        let tree = Tree::new("group-part", "4:memory:/docker/0a\n", mounts);
        let file = "sys/fs/cgroup/memory/memory.limit_in_bytes";
        tree.put(file, "200\n");
        assert_eq!(tree.limit(), told(200, file));
        // A path that is not there at all, and a path that leads out.
        for group in ["/docker/other", "/../../x", "/docker/0a/gone"] {
            tree.put("proc/self/cgroup", &format!("4:memory:{group}\n"));
            assert_eq!(tree.limit(), told(200, file), "{group}");
        }
    }

    #[test]
    fn pressure_and_what_cannot_be_taken_are_read_and_nothing_is_no_error() {
        let tree = Tree::new("group-psi", "0::/a\n", V2);
        assert_eq!(tree.groups().stalled(), None);
        tree.put("sys/fs/cgroup/a/memory.max", "1000\n");
        let pressure = "some avg10=1.00 avg60=0.10 avg300=0.00 total=1500\nfull avg10=0.00 avg60=0.00 avg300=0.00 total=1\n";
        tree.put("sys/fs/cgroup/a/memory.pressure", pressure);
        tree.put(
            "sys/fs/cgroup/a/memory.stat",
            "anon 600\nfile 300\nkernel 50\nshmem 0\n",
        );
        let groups = tree.groups();
        assert_eq!(groups.stalled(), Some(Duration::from_micros(1500)));
        let limit = groups.limit().expect("there is one");
        assert_eq!(groups.unmovable(&limit), Some(650));
        let nothing = crate::TestDir::new("group-none");
        let groups = Groups::under(&nothing.0);
        assert_eq!((groups.limit(), groups.is_bounded()), (None, false));
    }
}
