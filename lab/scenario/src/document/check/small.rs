//! Checks of small files: the caches of their objects, and what fits the memory.

use toml::Spanned;

use super::Checker;
use crate::document::small::{self, CACHES_MOST};
use crate::document::{RoleKind, Scenario, TaskEntry};
use crate::mistake::Mistake;
use crate::task::Files;

/// Most files of one directory, so of one task: the first pages of the largest file that there is.
const DIRECTORY_MOST: f64 = 268_435_456.0;

impl Checker {
    /// The caches of objects of the machine.
    pub(super) fn object_caches(&mut self, scenario: &Scenario) {
        let machine = &scenario.machine;
        let Some(caches) = &machine.object_cache else {
            return;
        };
        for (role, name) in [(RoleKind::Entry, "entry"), (RoleKind::Inode, "inode")] {
            let of = caches
                .get_ref()
                .iter()
                .filter(|cache| *cache.role.get_ref() == role)
                .count();
            if of != 1 {
                self.list.push(
                    Mistake::new(
                        format!("{of} caches of objects have the role `{name}`"),
                        caches.span(),
                        "a file has one",
                    )
                    .help(format!(
                        "give one cache `role = \"{name}\"`, and the others `beside`"
                    )),
                );
            }
        }
        if caches.get_ref().len() > CACHES_MOST {
            self.list.push(
                Mistake::new(
                    format!("{} caches of objects", caches.get_ref().len()),
                    caches.span(),
                    format!("at most {CACHES_MOST}"),
                )
                .help("put objects together that have the same role and mobility"),
            );
        }
    }

    /// Small files of all tasks: of one file system, and their objects fit the memory that they are
    /// said to fill.
    pub(super) fn small_files(&mut self, scenario: &Scenario) {
        let files = |task: &&TaskEntry| task.kind.get_ref().traits().files;
        let tasks = || scenario.tasks.iter();
        let first = tasks().find(|task| files(task) == Files::SmallMade);
        for task in tasks().filter(|task| files(task).are_small()) {
            let Some(first) = first else {
                self.list.push(
                    Mistake::new(
                        format!(
                            "a {} without a task that makes small files",
                            task.kind.get_ref().name()
                        ),
                        task.kind.span(),
                        "there is nothing to look at",
                    )
                    .help("add a task with `kind = \"make_small\"`"),
                );
                continue;
            };
            self.same_files(first, task);
            self.small_numbers(scenario, task);
        }
    }

    /// All small files of a scenario lie on one device, and are of one size.
    fn same_files(&mut self, first: &TaskEntry, task: &TaskEntry) {
        let (Some(one), Some(other)) = (&first.device, &task.device) else {
            return;
        };
        if one.get_ref() != other.get_ref() {
            self.list.push(
                Mistake::new(
                    "small files on two devices",
                    other.span(),
                    "not where the others are",
                )
                .also(one.span(), "the others")
                .help("a scenario has one file system of small files: name the same device"),
            );
        }
        if let (Some(one), Some(other)) = (first.key("file_kib"), task.key("file_kib"))
            && (one.get_ref() - other.get_ref()).abs() > f64::EPSILON
        {
            self.list.push(
                Mistake::new(
                    "small files of two sizes",
                    other.span(),
                    "not as the others",
                )
                .also(one.span(), "the others")
                .help("give all tasks that make small files the same `file_kib`"),
            );
        }
    }

    fn small_numbers(&mut self, scenario: &Scenario, task: &TaskEntry) {
        let number = |task: &TaskEntry, key| task.key(key).map_or(1.0, Spanned::into_inner);
        if let Some(size) = task.key("file_kib") {
            let pages = size.get_ref() / 4.0;
            if pages.fract() != 0.0 || !(1.0..=256.0).contains(&pages) {
                self.list.push(
                    Mistake::new(
                        format!("a small file of {} KiB", size.get_ref()),
                        size.span(),
                        "must be whole pages of 4 KiB, at most 256",
                    )
                    .help("write a multiple of 4"),
                );
            }
            let files = number(task, "files_per_loop") * number(task, "loops") * pages.max(1.0);
            if let Some(loops) = task.key("loops")
                && files > DIRECTORY_MOST
            {
                self.list.push(
                    Mistake::new(
                        format!("{files:.0} pages of small files in one directory"),
                        loops.span(),
                        format!("one task may make {DIRECTORY_MOST}"),
                    )
                    .help("lower `loops` or `files_per_loop`, or raise `count`"),
                );
            }
        }
        // Files that are looked at again have to have been made.
        let Some(part) = task.key("memory_part") else {
            return;
        };
        let memory = scenario.machine.memory_mib.get_ref() * 1_048_576.0;
        let wanted = part.get_ref() * memory / small::bytes_a_file(&scenario.machine);
        let made: f64 = scenario
            .tasks
            .iter()
            .filter(|task| task.kind.get_ref().traits().files == Files::SmallMade)
            .map(|task| ["files_per_loop", "loops", "count"].map(|key| number(task, key)))
            .map(|numbers| numbers.iter().product::<f64>())
            .sum();
        if wanted > made {
            self.list.push(
                Mistake::new(
                    format!("{wanted:.0} files are to be looked at, and {made:.0} are made"),
                    part.span(),
                    "files whose objects fill this part of the memory",
                )
                .help("lower `memory_part`, or make more files (`loops`)"),
            );
        }
    }
}
