use std::collections::{BTreeMap, VecDeque};

use super::*;

/// The rule of docs/work/add-a-policy.md, as whoever adds it has it.
mod second_time;

/// Pages that go, in order, when these are accessed in a memory of `memory`: the rule's decisions,
/// without the clusters, dirty pages and clocks that a cache has beside. Each access is a tick.
pub(super) fn evicted(rule: &mut dyn PageRule, memory: usize, pages: &[u32]) -> Vec<u32> {
    let [mut young, mut main] = [VecDeque::new(), VecDeque::new()];
    let (mut words, mut ghosts, mut went) = (BTreeMap::new(), BTreeMap::new(), Vec::new());
    for (now, page) in (0..).zip(pages) {
        let word = words.entry(*page).or_insert(0);
        *word = used(*word, now);
        if young.contains(page) || main.contains(page) {
            continue;
        }
        let is_full = young.len() + main.len() == memory;
        let coming = Coming {
            ghost: ghosts.remove(page).map(|bits| Ghost::from_bits(bits, now)),
            has_room: !is_full,
            oldest: main.front().map(|oldest| Use::of(words[oldest], now)),
        };
        let to = rule.place(&coming);
        while young.len() + main.len() == memory {
            let len = |queue: &VecDeque<u32>| Pages(queue.len() as u64);
            let (from, end) = rule.next(&Queues {
                young: len(&young),
                main: len(&main),
                ahead: Pages::ZERO,
            });
            let queue = match from {
                Queue::Young => &mut young,
                Queue::Main => &mut main,
            };
            let looked = match end {
                End::Old => queue.pop_front(),
                End::New => queue.pop_back(),
            };
            let looked = looked.expect("a rule looks where a page is");
            let mut found = Use::of(words[&looked], now);
            match rule.look(from, &mut found) {
                Some(Queue::Young) => young.push_back(looked),
                Some(Queue::Main) => main.push_back(looked),
                None => {
                    went.push(looked);
                    if rule.went(from) {
                        ghosts.insert(looked, Ghost::of(found, from).bits(now));
                    }
                    words.remove(&looked);
                    continue;
                }
            }
            words.insert(looked, found.word(now));
        }
        match to {
            Queue::Young => young.push_back(*page),
            Queue::Main => main.push_back(*page),
        }
    }
    went
}

#[test]
fn the_rule_that_the_page_shows_is_the_one_that_is_tested() {
    let page = include_str!("../../../../docs/work/add-a-policy.md");
    let rule = include_str!("tests/second_time.rs");
    let added: String = rule.lines().map(|line| format!("+{line}\n")).collect();
    assert!(
        page.contains(&added),
        "docs/work/add-a-policy.md shows another second_time.rs"
    );
}

#[test]
fn a_name_finds_its_own_rule_alone() {
    for (name, _) in ALL {
        let of_that_name = ALL.iter().filter(|(other, _)| other == name);
        assert_eq!(of_that_name.count(), 1, "{name}");
        assert_eq!(RuleMaker::by_name(name).unwrap().name(), *name);
    }
    assert!(RuleMaker::by_name("lru-k").is_none());
}

#[test]
fn times_of_words_and_ghosts_wrap_and_differences_do_not() {
    for start in [0, 1 << 14, (1 << GONE_BITS) - 1, TIME_MASK - 5] {
        let word = used(0, start);
        let later = start.wrapping_add(9) & TIME_MASK;
        let at = Use::of(word, later);
        assert_eq!((at.idle, at.count), (9, 1), "{start}");
        assert_eq!(Use::of(at.word(later), later), at);
        let ghost = Ghost::of(at, Queue::Main);
        let bits = ghost.bits(later);
        assert_eq!(bits >> GHOST_BITS, 0);
        // Up to 32 memories of a thousand ticks.
        for gone in [0, 5000, 1 << 14, (1 << GONE_BITS) - 1] {
            let after = later.wrapping_add(gone) & TIME_MASK;
            let found = Ghost::from_bits(bits, after);
            assert_eq!((found.idle, found.gone), (9 + gone, gone), "{start}");
            assert_eq!(found.from, Queue::Main);
        }
    }
}

#[test]
fn a_page_idle_for_longer_than_a_ghost_can_say_was_idle_for_ever() {
    let says = |idle| {
        let used = Use { idle, count: 1 };
        let bits = Ghost::of(used, Queue::Young).bits(7);
        [0, 100].map(|gone| Ghost::from_bits(bits, 7 + gone).idle)
    };
    let longest = (1 << IDLE_BITS) - 2;
    assert_eq!(says(longest), [longest, longest + 100]);
    for longer in [longest + 1, 1 << 20] {
        assert_eq!(says(longer), [TIME_MASK; 2]);
    }
}

#[test]
fn uses_are_counted_once_a_tick_and_up_to_three() {
    let mut word = 0;
    let counts = [0, 0, 1, 1, 2, 3, 4].map(|now| {
        word = used(word, now);
        let found = Use::of(word, now);
        assert_eq!(found.idle, 0);
        found.count
    });
    assert_eq!(counts, [1, 1, 2, 2, 3, 3, 3]);
}

#[test]
fn a_tick_is_a_thousandth_of_memory_and_a_page_at_least() {
    for (memory, ticks) in [(256, 256), (1024, 1024), (2047, 2047), (1 << 20, 1024)] {
        let mut clock = Clock::new(Pages(memory));
        assert_eq!(clock.memory().ticks, ticks, "{memory}");
        clock.arrive(Pages(memory), false);
        assert_eq!(clock.now(), ticks, "{memory}");
    }
}

#[test]
fn what_is_read_ahead_has_two_windows_and_nothing_when_nothing_is() {
    let memory = Pages(16_000);
    let mut clock = Clock::new(memory);
    for _ in 0..1000 {
        clock.arrive(Pages(32), true);
    }
    let ahead = clock.ahead(memory);
    assert!(ahead > Pages(1600) && ahead <= Pages(2000), "{ahead:?}");
    assert_eq!(clock.ahead(Pages(8000)).0, ahead.0 / 2);
    for _ in 0..20_000 {
        clock.arrive(Pages(1), false);
    }
    assert_eq!(clock.ahead(memory), Pages::ZERO);
}

#[test]
fn the_young_go_while_they_have_their_part() {
    let queues = |young, main, ahead| Queues {
        young: Pages(young),
        main: Pages(main),
        ahead: Pages(ahead),
    };
    for (young, main, ahead, expected) in [
        (10, 990, 0, Queue::Young),
        (9, 991, 0, Queue::Main),
        (59, 941, 50, Queue::Main),
        (60, 940, 50, Queue::Young),
        (1, 0, 0, Queue::Young),
        // Of half of the memory, half as many.
        (5, 495, 0, Queue::Young),
        (4, 496, 0, Queue::Main),
    ] {
        let next = queues(young, main, ahead).next(Pages(10), Pages(1000));
        assert_eq!(next, expected, "{young} {main} {ahead}");
    }
}

#[test]
fn s3_fifo_remembers_what_left_its_small_queue_alone() {
    let memory = Memory {
        pages: Pages(1000),
        ticks: 1000,
    };
    let mut rule = s3_fifo::S3Fifo::new(memory);
    assert!(rule.went(Queue::Young), "what leaves it leaves its name");
    assert!(
        !rule.went(Queue::Main),
        "what was in the main queue does not"
    );
}
