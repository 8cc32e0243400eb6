//! Checks of paper p4's keys: file systems of a row, its reserve, patches, huge pages.

use history::compact::{Compaction, Patches};

use super::{Checker, SCALES};
use crate::document::{ColumnEntry, RowEntry, Scenario};
use crate::mistake::Mistake;
use crate::presets::by_name;

impl Checker {
    /// `file_systems` and `min_free_kib` of a row, `thp` where there is nothing to turn off.
    pub(super) fn runs_of_row(&mut self, scenario: &Scenario, row: &RowEntry) {
        let ids = scenario.devices.iter();
        let ids = ids.map(|device| device.id.get_ref().as_str());
        for (device, fs) in &row.file_systems {
            self.known("device", device, ids.clone());
            let first = scenario.devices.first();
            if let Some(own) = &row.fs
                && first.is_some_and(|first| first.id.get_ref() == device.get_ref())
            {
                self.list.push(
                    Mistake::new(
                        "`fs` and `file_systems` are both given for the first device",
                        fs.span(),
                        "one file system, said twice",
                    )
                    .also(own.span(), "the other")
                    .help("keep one of them"),
                );
            }
        }
        self.reserve(scenario, row.min_free_kib.as_ref());
        if let Some(thp) = &row.thp
            && scenario.machine.thp.is_none()
        {
            self.list.push(
                Mistake::new(
                    "a row about huge pages of a machine that does not say whether it has them",
                    thp.span(),
                    "`thp` of a row",
                )
                .help("add `thp = true` to the machine"),
            );
        }
    }

    /// `patches` name some, and of a kernel that they were made for; `defrag` is for a kernel that
    /// has it.
    pub(super) fn runs_of_column(&mut self, policy: &ColumnEntry) {
        self.defrag(policy);
        let Some(first) = policy.patches.first() else {
            return;
        };
        let joined = policy.patches_joined();
        if let Err(unknown) = Patches::by_name(&joined) {
            let mistake = Mistake::new(unknown.to_string(), first.span(), "these patches");
            self.list.push(
                mistake.help("write for example patches = [\"1-8\"], or [\"1-11\", \"-7b\"]"),
            );
        }
        let preset = policy.preset.as_ref().unwrap_or(&policy.name);
        let found = by_name(preset.get_ref());
        if let Some(found) =
            found.filter(|found| !matches!(found.laws.compaction, Compaction::Scans(_)))
        {
            self.list.push(
                Mistake::new(
                    format!("paper p4's patches on `{}`", found.name),
                    first.span(),
                    "it gets huge pages in another way",
                )
                .also(preset.span(), "this preset")
                .help("write preset = \"linux-3.2-rc5\""),
            );
        }
    }

    fn defrag(&mut self, policy: &ColumnEntry) {
        let Some(defrag) = &policy.defrag else { return };
        let preset = policy.preset.as_ref().unwrap_or(&policy.name);
        let found = by_name(preset.get_ref());
        if found.is_some_and(|found| !matches!(found.laws.compaction, Compaction::Background(_))) {
            self.list.push(
                Mistake::new(
                    format!("`defrag` of `{}`", preset.get_ref()),
                    defrag.span(),
                    "it has one way for all faults",
                )
                .also(preset.span(), "this preset")
                .help("write preset = \"linux-6.12\", or leave `defrag` out"),
            );
        }
    }

    /// Scaling of requests is of a machine whose pages cost more; huge pages keep at least two
    /// pages.
    pub(super) fn runs_of_machine(&mut self, scenario: &Scenario) {
        let machine = &scenario.machine;
        let whole_costs = !machine.scale_costs;
        if let Some(scales) = machine.scale_requests.as_ref().filter(|_| whole_costs) {
            self.list.push(
                Mistake::new(
                    "`scale_requests` without `scale_costs`",
                    scales.span(),
                    "requests of fewer pages, whose pages cost the same",
                )
                .help("add `scale_costs = true`, or leave `scale_requests` out"),
            );
        }
        let scale = *scenario.run.scale.get_ref();
        let is_power = (1.0 / scale).log2().fract().abs() < 1e-6;
        if let Some(thp) = machine.thp.as_ref().filter(|thp| *thp.get_ref())
            && SCALES.contains(&scale)
            && !is_power
        {
            self.list.push(
                Mistake::new(
                    format!("huge pages do not shrink by {}", 1.0 / scale),
                    thp.span(),
                    "a run of 512 pages stands for one of 512 / scale",
                )
                .also(scenario.run.scale.span(), "the scale")
                .help("write a scale of one over a power of two, for example 0.0625"),
            );
        }
    }
}

#[cfg(test)]
mod tests {
    use crate::document::{Scenario, Source};

    const TEXT: &str = r#"
        schema = "tidegate-exp/1"
        name = "runs"
        [run]
        scale = 0.25
        [machine]
        cpus = 2
        memory_mib = 64
        scale_costs = true
        scale_requests = true
        thp = true
        swap = { device = "sda", mib = 64 }
        [[device]]
        id = "sda"
        model = "sata2010"
        fs = "raw"
        [[device]]
        id = "usb"
        model = "usb_stick"
        fs = "vfat"
        [[task]]
        id = "test"
        kind = "thpavail"
        device = "usb"
        from = "sda"
        file_mib = 256
        total_mib = 64
        loops = 2
        [[row]]
        name = "off"
        thp = false
        min_free_kib = 2048
        file_systems = { usb = "ext4" }
        [[column]]
        name = "linux-3.2-rc5"
        [[column]]
        name = "linux-3.2-rc5+p4.1-8"
        [[column]]
        name = "by-key"
        preset = "linux-3.2-rc5"
        patches = ["1-11", "-7b"]
    "#;

    /// The complaint about the text with one thing changed.
    fn said(from: &str, to: &str) -> String {
        let text = TEXT.replacen(from, to, 1);
        let source = Source {
            origin: "test".into(),
            text,
        };
        match Scenario::load(source, &[]) {
            Ok(_) => String::new(),
            Err(error) => error.to_string(),
        }
    }

    #[test]
    fn what_makes_no_sense_of_huge_pages_is_shown_with_a_way_out() {
        assert_eq!(said("", ""), "");
        for (from, to, about, help) in [
            ("\"1-11\"", "\"1-14\"", "14", "patches = [\"1-8\"]"),
            (
                "preset = \"linux-3.2-rc5\"",
                "preset = \"tidegate\"",
                "`tidegate`",
                "preset = \"linux-3.2-rc5\"",
            ),
            (
                "patches = [\"1-11\", \"-7b\"]",
                "defrag = \"always\"",
                "`defrag` of `linux-3.2-rc5`",
                "preset = \"linux-6.12\"",
            ),
            ("p4.1-8", "p4.1-80", "unknown preset", "linux-3.2-rc5"),
            ("scale_costs = true", "", "`scale_requests`", "scale_costs"),
            (
                "scale = 0.25",
                "scale = 0.2",
                "do not shrink",
                "power of two",
            ),
            ("thp = true", "", "huge pages", "`thp = true`"),
            ("usb = \"ext4\"", "stick = \"ext4\"", "`stick`", "usb"),
            ("usb = \"ext4\"", "usb = \"ext5\"", "`ext5`", "ext4"),
            (
                "min_free_kib = 2048",
                "min_free_kib = 1",
                "min_free_kib",
                "128",
            ),
            (
                "swap = { device = \"sda\", mib = 64 }",
                "",
                "no swap file",
                "add `swap",
            ),
            ("loops = 2", "", "`loops`", "add `loops"),
            (
                "usb = \"ext4\" }",
                "sda = \"ext4\" }\n        fs = \"xfs\"",
                "both given",
                "keep one",
            ),
        ] {
            let text = said(from, to);
            assert!(
                text.contains(about) && text.contains(help),
                "{from} -> {to}: {text}"
            );
        }
    }
}
