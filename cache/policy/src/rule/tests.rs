use super::*;

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
