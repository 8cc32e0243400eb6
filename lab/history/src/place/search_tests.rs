//! Searches as series: what each law does with the same memory.

use policy::place::cache::ZonelistCache;
use policy::place::search::*;
use policy::place::trim::Outcome;
use policy::place::*;
use policy::units::*;

use super::*;

const SECOND: u64 = 1_000_000_000;
const START: Instant = Instant(100 * SECOND);

/// Zones of a machine: free frames above LOW and MIN, and what a trim finds.
struct Machine {
    law: PlaceLaw,
    cache: ZonelistCache,
    now: Instant,
    above_low: Vec<u32>,
    /// Between LOW and MIN.
    between: Vec<u32>,
    /// Pages that each trim of a zone frees; `None`: it is not begun.
    trims: Vec<Option<u32>>,
    /// Pages that the share of each zone's node lacks; no page is to be dirtied: `None`.
    lacks: Option<Vec<u32>>,
    log: Vec<String>,
    stale: u32,
}

impl Machine {
    fn new(law: PlaceLaw, above_low: &[u32], trims: &[Option<u32>]) -> Self {
        Self {
            law,
            cache: ZonelistCache::default(),
            now: START,
            above_low: above_low.to_vec(),
            between: vec![100; above_low.len()],
            trims: trims.to_vec(),
            lacks: None,
            log: Vec::new(),
            stale: 0,
        }
    }

    fn take(&mut self, place: usize, floor: Floor, most: u32) -> Took {
        let room = match floor {
            Floor::Low => self.above_low[place],
            Floor::Min => self.above_low[place] + self.between[place],
        };
        let took = room.min(most);
        let low = took.min(self.above_low[place]);
        self.above_low[place] -= low;
        self.between[place] -= took - low;
        match took {
            0 => Took::BelowMark,
            took => Took::Frames(took),
        }
    }

    /// One allocation; answers how many frames it got.
    fn alloc(&mut self, want: u32) -> u32 {
        let mut search = Search::begin(self.law, self.above_low.len(), want, false);
        if self.lacks.is_some() {
            search = search.for_dirty();
        }
        let mut got = 0;
        for _ in 0..1000 {
            match search.step(&self.cache) {
                Step::Take {
                    place,
                    floor,
                    most,
                    in_share,
                } => {
                    let lacks = self.lacks.as_ref().filter(|_| in_share);
                    let took = match lacks.map_or(most, |lacks| most.min(lacks[place])) {
                        0 => Took::OverShare,
                        most => self.take(place, floor, most),
                    };
                    let at = if floor == Floor::Low { "" } else { "!" };
                    match took {
                        Took::Frames(frames) => {
                            got += frames;
                            if let (true, Some(lacks)) = (in_share, &mut self.lacks) {
                                lacks[place] -= frames;
                            }
                            self.log.push(format!("{place}{at}+{frames}"));
                        }
                        Took::BelowMark | Took::Nothing => self.log.push(format!("{place}{at}-")),
                        Took::OverShare => self.log.push(format!("{place}{at}%")),
                    }
                    search.took(self.now, &mut self.cache, took);
                }
                Step::Trim { place } => {
                    self.log.push(format!("trim{place}"));
                    let outcome = match self.trims[place] {
                        None => Outcome::Full,
                        Some(0) => Outcome::Some,
                        Some(freed) => {
                            self.above_low[place] += freed;
                            Outcome::Success
                        }
                    };
                    search.trimmed(self.now, &mut self.cache, outcome);
                }
                Step::WakeReclaimers => self.log.push("wake".into()),
                Step::Done | Step::Exhausted => {
                    self.stale += search.passed_over().1;
                    return got;
                }
            }
        }
        panic!("a search that does not end: {:?}", self.log);
    }

    fn said(&mut self) -> String {
        core::mem::take(&mut self.log).join(" ")
    }
}

#[test]
fn while_another_zone_is_above_low_no_reclaimer_is_woken() {
    for law in ALL {
        let mut machine = Machine::new(law, &[0, 50], &[None, None]);
        assert_eq!(machine.alloc(1), 1, "{}", law.name);
        assert!(!machine.said().contains("wake"), "{}", law.name);
    }
}

#[test]
fn where_all_fail_at_low_the_reclaimers_are_woken_once_and_the_reserve_stays() {
    for law in ALL {
        let mut machine = Machine::new(law, &[0, 0], &[None, None]);
        assert_eq!(machine.alloc(1), 1, "{}", law.name);
        assert_eq!(machine.said().matches("wake").count(), 1, "{}", law.name);
        machine.between = vec![0, 0];
        assert_eq!(machine.alloc(1), 0, "{}", law.name);
    }
}

#[test]
fn without_trims_the_next_zone_is_taken_from_and_many_frames_come_at_once() {
    let mut machine = Machine::new(LINUX_6_12, &[3, 50], &[Some(9), None]);
    assert_eq!(machine.alloc(10), 10);
    assert_eq!(machine.said(), "0+3 0- 1+7");
}

#[test]
fn linux_3_0_trims_the_first_zone_again_for_every_page() {
    let mut machine = Machine::new(LINUX_3_0, &[0, 50], &[Some(0), None]);
    assert_eq!(machine.alloc(3), 3);
    assert_eq!(
        machine.said(),
        "0- trim0 0- 1+1 0- trim0 0- 1+1 0- trim0 0- 1+1"
    );
}

#[test]
fn patch_1_trims_it_once_a_second() {
    let mut machine = Machine::new(LINUX_3_0_FIRST, &[0, 50], &[Some(0), None]);
    assert_eq!(machine.alloc(3), 3);
    assert_eq!(machine.said(), "0- trim0 0- 1+1 0- 1+1 0- 1+1");
    machine.now = Instant(START.0 + SECOND + 1);
    assert_eq!(machine.alloc(1), 1);
    assert_eq!(machine.said(), "0- trim0 0- 1+1");
}

#[test]
fn a_first_zone_that_has_memory_again_is_used_at_once() {
    let mut machine = Machine::new(LINUX_3_0_FIRST, &[0, 50], &[Some(0), None]);
    machine.alloc(1);
    machine.said();
    machine.above_low[0] = 1;
    machine.alloc(1);
    assert_eq!(machine.said(), "0+1");
}

#[test]
fn a_later_zone_stays_hidden_although_it_has_memory_again() {
    let mut machine = Machine::new(LINUX_3_0_FIRST, &[0, 0, 50], &[Some(0), Some(0), None]);
    machine.alloc(1);
    assert_eq!(machine.said(), "0- trim0 0- 1- trim1 1- 2+1");
    machine.above_low[1] = 10;
    machine.alloc(1);
    assert_eq!(machine.said(), "0- 2+1");
    assert_eq!(machine.stale, 0);
}

#[test]
fn patch_2_shows_it_again_once_direct_reclaim_has_freed_pages() {
    let zones = [0, 0, 50];
    for (law, told, stale) in [
        (LINUX_3_0_FIRST, "0- 2+1", 2),
        (LINUX_3_0_BOTH, "0- trim0 0- 1+1", 0),
    ] {
        let mut machine = Machine::new(law, &zones, &[Some(0), Some(0), None]);
        machine.alloc(1);
        machine.said();
        let rule = law.cache.expect("both have one");
        machine.now = Instant(START.0 + 1);
        machine.cache.reclaimed(rule, machine.now);
        machine.above_low[1] = 10;
        machine.alloc(1);
        assert_eq!(machine.said(), told, "{}", law.name);
        // Both that are passed over were marked before the reclaim.
        assert_eq!(machine.stale, stale, "{}", law.name);
    }
}

#[test]
fn a_trim_that_frees_enough_is_used_where_it_was_made() {
    for law in [LINUX_3_0, LINUX_3_0_BOTH] {
        let mut machine = Machine::new(law, &[0, 50], &[Some(32), None]);
        machine.alloc(2);
        assert_eq!(machine.said(), "0- trim0 0+2", "{}", law.name);
    }
}

#[test]
fn what_is_not_worth_a_scan_is_remembered_before_patch_1_only() {
    let mut before = Machine::new(LINUX_3_0, &[0, 0, 50], &[Some(0), None, None]);
    before.alloc(2);
    assert_eq!(before.said(), "0- trim0 0- 1- trim1 2+1 0- trim0 0- 2+1");
    let mut after = Machine::new(LINUX_3_0_FIRST, &[0, 0, 50], &[Some(0), None, None]);
    after.alloc(2);
    assert_eq!(after.said(), "0- trim0 0- 1- trim1 2+1 0- 1- trim1 2+1");
}

#[test]
fn where_all_are_hidden_the_list_is_walked_again_without_the_cache() {
    let mut machine = Machine::new(LINUX_3_0_BOTH, &[0, 0], &[Some(0), Some(0)]);
    machine.between = vec![0, 0];
    assert_eq!(machine.alloc(1), 0);
    // At LOW: a walk that marks both, one without the cache; the same at MIN, where the cache hides
    // both at first.
    assert_eq!(
        machine.said(),
        "0- trim0 0- 1- trim1 1- 0- trim0 0- 1- trim1 1- wake 0!- 0!- trim0 0!- 1!- trim1 1!-"
    );
}

#[test]
fn a_machine_of_one_zone_asks_no_cache() {
    let mut machine = Machine::new(LINUX_3_0_BOTH, &[0], &[Some(32)]);
    for _ in 0..2 {
        machine.above_low = vec![0];
        machine.alloc(1);
        assert_eq!(machine.said(), "0- trim0 0+1");
    }
}

#[test]
fn a_page_to_be_dirtied_passes_over_a_node_that_has_its_share() {
    for law in [LINUX_6_12, LINUX_6_12_RECLAIM] {
        let mut machine = Machine::new(law, &[50, 50], &[Some(9), None]);
        machine.lacks = Some(vec![3, 50]);
        assert_eq!(machine.alloc(5), 5);
        // Neither trimmed nor is anybody woken.
        let told = if law.trims.is_none() {
            "0+3 0% 1+2"
        } else {
            "0+3 0% 1+1 0% 1+1"
        };
        assert_eq!(machine.said(), told, "{}", law.name);
    }
}

#[test]
fn where_all_have_their_share_it_is_taken_from_the_first_all_the_same() {
    let mut machine = Machine::new(LINUX_6_12, &[50, 50], &[None, None]);
    machine.lacks = Some(vec![0, 0]);
    assert_eq!(machine.alloc(1), 1);
    assert_eq!(machine.said(), "0% 1% wake 0!+1");
}

#[test]
fn before_3_3_no_node_has_a_share() {
    for law in [LINUX_3_0, PlaceLaw::TIDEGATE] {
        let mut machine = Machine::new(law, &[50, 50], &[None, None]);
        machine.lacks = Some(vec![0, 0]);
        assert_eq!(machine.alloc(1), 1);
        assert_eq!(machine.said(), "0+1", "{}", law.name);
    }
}

#[test]
fn nothing_wanted_is_done() {
    let mut search = Search::begin(LINUX_3_0, 2, 0, false);
    assert_eq!(search.step(&ZonelistCache::default()), Step::Done);
}
