//! Rank, age, shares and promises; a day of many hogs, a mapper and a bystander as a series.

use super::*;

fn at(ms: u64) -> Instant {
    Instant(0) + Nanos::millis(ms)
}

fn turns() -> Turns {
    Turns::new(64, 250)
}

fn join(turns: &mut Turns, ms: u64, need: u64, growth: u64) -> Ticket {
    turns
        .join(&Request {
            need: Pages(need),
            growth: Pages(growth),
            since: at(ms),
        })
        .expect("there is room")
}

/// Grants; answers which task got how much, in order.
fn grant(turns: &mut Turns, ms: u64, room: u64) -> Vec<(Ticket, u64)> {
    let mut woken = Vec::new();
    let left = turns.grant(at(ms), Pages(room), u32::MAX, |ticket| woken.push(ticket));
    let granted: Vec<_> = woken
        .into_iter()
        .map(|ticket| (ticket, turns.granted(ticket).expect("it was named").0))
        .collect();
    let sum: u64 = granted.iter().map(|(_, pages)| pages).sum();
    assert_eq!(sum + left.0, room);
    granted
}

#[test]
fn those_who_grow_least_come_first_and_as_many_as_there_are_pages() {
    let mut turns = turns();
    let hog = join(&mut turns, 0, 8, 5000);
    let writer = join(&mut turns, 1, 8, 300);
    let mapper = join(&mut turns, 2, 8, 0);
    assert_eq!((turns.waiting(), turns.wanted()), (3, Pages(24)));
    assert_eq!(grant(&mut turns, 3, 12), [(mapper, 8), (writer, 4)]);
    assert_eq!(
        (turns.waiting(), turns.wanted(), turns.promised()),
        (1, Pages(8), Pages(12))
    );
    assert_eq!(turns.granted(hog), None);
    assert_eq!(grant(&mut turns, 4, 0), []);
    assert_eq!(grant(&mut turns, 4, 100), [(hog, 8)]);
    assert_eq!(grant(&mut turns, 4, 100), [], "nobody is left");
}

#[test]
fn like_growth_takes_turns() {
    let mut turns = turns();
    // 1100 and 1500 are of one class, 1600 is not.
    let first = join(&mut turns, 0, 1, 1500);
    let third = join(&mut turns, 1, 1, 1600);
    let second = join(&mut turns, 2, 1, 1100);
    assert_eq!(
        grant(&mut turns, 3, 3),
        [(first, 1), (second, 1), (third, 1)]
    );
}

#[test]
fn classes_rise_with_growth_by_less_than_two_each() {
    assert_eq!(class_of(Pages(0)), 0);
    assert_eq!(class_of(Pages(1)), 1);
    let mut before = 0;
    for growth in 1..100_000 {
        let class = class_of(Pages(growth));
        assert!(
            class == before || class == before + 1 || growth < 4,
            "{growth}"
        );
        assert!(class >= before);
        before = class;
    }
    assert_eq!(class_of(Pages::MAX), 63);
    assert!(class_of(Pages(1 << 30)) < 63);
}

#[test]
fn a_ticket_gets_at_most_a_cluster_and_at_least_may_ask_for_one() {
    let mut turns = turns();
    let greedy = join(&mut turns, 0, 1000, 0);
    let modest = join(&mut turns, 0, 0, 0);
    assert_eq!(grant(&mut turns, 0, 1000), [(greedy, 32), (modest, 1)]);
}

#[test]
fn a_promise_lasts_until_the_ticket_is_given_back() {
    let mut turns = turns();
    let ticket = join(&mut turns, 0, 8, 0);
    grant(&mut turns, 0, 5);
    assert_eq!(turns.promised(), Pages(5));
    assert_eq!(turns.leave(ticket), Pages(5));
    assert_eq!((turns.promised(), turns.waiting()), (Pages(0), 0));
    assert_eq!(turns.leave(ticket), Pages::ZERO, "twice");
    // Its slot is used again: the old ticket is not the new one.
    let next = join(&mut turns, 1, 8, 0);
    assert_eq!(next.slot(), ticket.slot());
    grant(&mut turns, 1, 8);
    assert_eq!(turns.granted(ticket), None);
    assert_eq!(turns.leave(ticket), Pages::ZERO);
    assert_eq!(turns.granted(next), Some(Pages(8)));
}

#[test]
fn one_who_leaves_is_passed_over() {
    let mut turns = turns();
    let tickets = [0, 1, 2, 3].map(|ms| join(&mut turns, ms, 1, 7));
    for gone in [tickets[0], tickets[2]] {
        assert_eq!(turns.leave(gone), Pages::ZERO);
    }
    assert_eq!(turns.waiting(), 2);
    assert_eq!(grant(&mut turns, 5, 9), [(tickets[1], 1), (tickets[3], 1)]);
}

#[test]
fn all_tickets_can_be_out() {
    let mut turns = Turns::new(3, 250);
    let request = Request {
        need: Pages(1),
        growth: Pages(0),
        since: at(0),
    };
    let tickets = [(); 3].map(|()| turns.join(&request).expect("there are three"));
    assert_eq!(turns.join(&request), None);
    turns.leave(tickets[1]);
    assert!(turns.join(&request).is_some());
    assert_eq!(Turns::new(0, 250).join(&request), None);
}

/// A task that grows most is passed by newcomers, but gets one page in four once it is overdue.
#[test]
fn the_overdue_get_a_quarter() {
    let mut turns = turns();
    let mut hogs: Vec<_> = (0..40).map(|_| join(&mut turns, 0, 4, 100_000)).collect();
    let (mut ranked, mut overdue) = (0, 0);
    for ms in 0..1000 {
        let mapper = join(&mut turns, ms, 4, 0);
        for (ticket, pages) in grant(&mut turns, ms, 4) {
            if ticket == mapper {
                ranked += pages;
            } else {
                assert!(ms >= 100, "{ms}: not before it is overdue");
                overdue += pages;
                hogs.retain(|hog| *hog != ticket);
                hogs.push(join(&mut turns, ms, 4, 100_000));
            }
            turns.leave(ticket);
        }
        turns.leave(mapper);
    }
    assert_eq!(ranked + overdue, 4000);
    assert!((850..=950).contains(&overdue), "{overdue} of 3600");
}

#[test]
fn the_overdue_are_served_by_age() {
    let mut turns = turns();
    let young = join(&mut turns, 50, 1, 100);
    let old = join(&mut turns, 10, 1, 100_000);
    let oldest = join(&mut turns, 5, 1, 3000);
    let mapper = join(&mut turns, 200, 32, 0);
    let order: Vec<_> = grant(&mut turns, 300, 100);
    assert_eq!(order, [(mapper, 32), (oldest, 1), (old, 1), (young, 1)]);
}

#[test]
fn a_wait_ends_with_a_tick_at_its_bound() {
    let turns = turns();
    assert_eq!(turns.bound(), BOUND);
    let deadline = turns.deadline(Instant(3));
    assert_eq!(
        deadline,
        Instant(0) + Nanos::millis(204),
        "a tick later at most"
    );
    assert_eq!(turns.delayed(Instant(3), deadline), BOUND);
    assert_eq!(
        turns.delayed(Instant(3), Instant(9_000_000)),
        Nanos::millis(8)
    );
}

#[test]
fn what_is_given_back_stays_for_a_moment() {
    let mut kept = Kept::new(Pages(16_000));
    kept.note(at(0), Pages(0), Pages(600));
    assert_eq!(kept.pages(at(24)), Pages(600));
    assert_eq!(kept.pages(at(25)), Pages(0));
    kept.note(at(10), Pages(100), Pages(0));
    assert_eq!(kept.pages(at(10)), Pages(500));
    kept.note(at(20), Pages(0), Pages(900));
    assert_eq!(kept.pages(at(44)), Pages(1000), "a sixteenth at most");
    kept.note(at(50), Pages(10), Pages(5));
    assert_eq!(kept.pages(at(50)), Pages(5), "what is over is gone");
    kept.note(at(51), Pages(10), Pages(0));
    assert_eq!(kept.pages(at(51)), Pages(0));
    kept.note(at(100), Pages(0), Pages(600));
    for ms in (110..300).step_by(10) {
        kept.note(at(ms), Pages(10), Pages(0));
    }
    assert_eq!(
        kept.pages(at(290)),
        Pages(410),
        "as long as its round is under way"
    );
    assert_eq!(kept.pages(at(315)), Pages(0));
}

/// A bystander that takes a few pages and gives them back all the time keeps a few, not what
/// somebody else gave back once.
#[test]
fn what_nobody_takes_is_not_kept_however_busy_the_others_are() {
    let mut kept = Kept::new(Pages(16_000));
    kept.note(at(0), Pages(0), Pages(600));
    for ms in (10..5000).step_by(10) {
        kept.note(at(ms), Pages(4), Pages(0));
        kept.note(at(ms), Pages(0), Pages(4));
        let found = kept.pages(at(ms)).0;
        let wanted = if ms < 1000 { 604 } else { 4 };
        assert!(ms >= 1000 || found >= 600, "{ms}: {found}");
        assert!(found <= wanted || ms < 2010, "{ms}: {found}");
    }
    // A task that takes all of it in each of its rounds has it kept.
    let mut kept = Kept::new(Pages(16_000));
    for round in 0..500 {
        kept.note(at(10 * round), Pages(0), Pages(600));
        assert_eq!(kept.pages(at(10 * round)), Pages(600), "round {round}");
        kept.note(at(10 * round + 5), Pages(600), Pages(0));
    }
}

#[test]
fn no_more_is_kept_than_a_part_of_what_memory_there_is_now() {
    let mut kept = Kept::new(Pages(16_000));
    kept.note(at(0), Pages(0), Pages(900));
    kept.resize(Pages(3200));
    assert_eq!(kept.pages(at(0)), Pages(200));
    kept.note(at(1), Pages(0), Pages(900));
    assert_eq!(kept.pages(at(1)), Pages(200));
    kept.resize(Pages(16_000));
    kept.note(at(2), Pages(0), Pages(900));
    assert_eq!(kept.pages(at(2)), Pages(1000));
}

/// A task that got nothing for a second does not grow either, but stands behind those that gave
/// back.
#[test]
fn who_got_nothing_is_not_ranked_with_those_who_give_back() {
    let mut hog = Growth::new(at(0));
    hog.note(at(2000), Pages(1000), Pages::ZERO);
    assert_eq!(rank(&mut hog, at(5000)), Pages(1));
    let mut mapper = Growth::new(at(0));
    mapper.note(at(1000), Pages(900), Pages::ZERO);
    mapper.note(at(3000), Pages::ZERO, Pages(900));
    assert_eq!(rank(&mut mapper, at(5000)), Pages::ZERO);
}

/// Hands out; answers which task got how much, in order.
fn hand_out(turns: &mut Turns, stock: Stock) -> Vec<(Ticket, u64)> {
    let mut woken = Vec::new();
    let _ = turns.hand_out(at(1), &stock, (32, 8), |ticket| woken.push(ticket));
    let pages = |ticket| turns.granted(ticket).expect("it was named").0;
    woken
        .iter()
        .map(|ticket| (*ticket, pages(*ticket)))
        .collect()
}

/// Kept pages are for the first class alone, and come from the upper half of the reserve if need
/// be. Nobody else's room is the larger by it.
#[test]
fn what_is_kept_is_granted_to_whom_it_is_kept_for() {
    let mut turns = turns();
    let stock = |free, kept| Stock {
        free: Pages(free),
        kept: Pages(kept),
        min: Pages(100),
    };
    let hog = join(&mut turns, 0, 30, 1000);
    assert_eq!(hand_out(&mut turns, stock(140, 40)), []);
    let mappers = [0, 1].map(|ms| join(&mut turns, ms, 30, 0));
    let given = hand_out(&mut turns, stock(90, 40));
    assert_eq!(given, [(mappers[0], 30), (mappers[1], 10)]);
    let third = join(&mut turns, 1, 30, 0);
    assert_eq!(hand_out(&mut turns, stock(90, 40)), [], "half the reserve");
    // Taken, it is neither kept nor promised.
    for (ticket, _) in given {
        turns.leave(ticket);
    }
    assert_eq!(turns.promised(), Pages(0));
    assert_eq!(hand_out(&mut turns, stock(50, 0)), []);
    assert_eq!(
        hand_out(&mut turns, stock(150, 0)),
        [(third, 30), (hog, 20)]
    );
}

/// A thousand wait, each for a page, and all are of one growth: none is served twice before all
/// have been.
#[test]
fn a_thousand_hogs_take_turns() {
    let mut turns = Turns::new(1000, 250);
    let mut served = [0u32; 1000];
    let mut tickets: Vec<(Ticket, usize)> = (0..1000)
        .map(|task| (join(&mut turns, 0, 1, 500), task))
        .collect();
    for ms in 0..2000 {
        for (ticket, _) in grant(&mut turns, ms, 5) {
            let place = tickets.iter().position(|(other, _)| *other == ticket);
            let (_, task) = tickets.swap_remove(place.expect("it waits"));
            turns.leave(ticket);
            served[task] += 1;
            tickets.push((join(&mut turns, ms, 1, 500), task));
        }
    }
    assert!(served.iter().all(|count| *count == 10), "{served:?}");
}

struct Task {
    name: &'static str,
    growth: Growth,
    ticket: Option<(Ticket, u64)>,
    ready_at: u64,
    round: u64,
    taken: u64,
    waits: Vec<u64>,
}

/// 24 hogs of 8 pages each 4 ms, a mapper that takes 1024 pages and gives them back, and a
/// bystander of 4 pages each 10 ms, against a reclaimer that frees 3 pages a millisecond. Pages
/// that any of them gives back are handed out too.
#[test]
fn a_crowd_as_a_series() {
    use std::fmt::Write as _;
    const MAP: u64 = 1024;
    let min = Pages(256);
    let task = |name, ms| Task {
        name,
        growth: Growth::new(at(0)),
        ticket: None,
        ready_at: ms,
        round: 0,
        taken: 0,
        waits: Vec::new(),
    };
    let mut tasks: Vec<Task> = (0..24).map(|ms| task("hog", ms % 4)).collect();
    tasks.push(task("mapper", 0));
    tasks.push(task("bystander", 5));
    let mut turns = turns();
    let mut free = 6000u64;
    let (mut passes, mut pass_began, mut longest_pass) = (0u64, 0u64, 0u64);
    for ms in 0..60_000u64 {
        free += 3;
        for task in &mut tasks {
            if let Some((ticket, since)) = task.ticket {
                let Some(pages) = turns.granted(ticket) else {
                    continue;
                };
                free -= pages.0;
                turns.leave(ticket);
                task.growth.note(at(ms), pages, Pages::ZERO);
                task.taken += pages.0;
                task.round += pages.0;
                task.ticket = None;
                task.waits.push(ms - since);
            }
            while task.ticket.is_none() && task.ready_at <= ms {
                let (need, size) = match task.name {
                    "hog" => (8, 8),
                    "mapper" => (32, MAP),
                    _ => (4, 4),
                };
                if task.round >= size {
                    let gives = task.name != "hog";
                    if gives {
                        task.growth.note(at(ms), Pages::ZERO, Pages(task.round));
                        free += task.round;
                    }
                    if task.name == "mapper" {
                        passes += 1;
                        longest_pass = longest_pass.max(ms - pass_began);
                        pass_began = ms + 5;
                    }
                    task.round = 0;
                    task.ready_at = ms
                        + match task.name {
                            "hog" => 4,
                            "mapper" => 5,
                            _ => 10,
                        };
                    continue;
                }
                let floor = min + turns.promised();
                if free >= floor.0 + need {
                    free -= need;
                    task.growth.note(at(ms), Pages(need), Pages::ZERO);
                    task.taken += need;
                    task.round += need;
                    task.waits.push(0);
                } else {
                    let growth = rank(&mut task.growth, at(ms));
                    task.ticket = Some((join(&mut turns, ms, need, growth.0), ms));
                }
            }
        }
        let room = free.saturating_sub(min.0 + turns.promised().0);
        turns.grant(at(ms), Pages(room), u32::MAX, |_| ());
    }
    let mut text = format!("mapper: {passes} passes, the longest {longest_pass} ms\n");
    text.push_str("task       pages taken   waits of 0 ms   p50   p99  p100\n");
    let mut hogs: Vec<_> = tasks.iter().filter(|task| task.name == "hog").collect();
    hogs.sort_by_key(|task| task.taken);
    let (least, most) = (hogs[0], hogs[hogs.len() - 1]);
    for task in [least, most, &tasks[24], &tasks[25]] {
        let mut waits = task.waits.clone();
        waits.sort_unstable();
        let share = |per_mille: usize| waits[(waits.len() - 1) * per_mille / 1000];
        let none = waits.iter().filter(|wait| **wait == 0).count() * 100 / waits.len();
        let (name, taken) = (task.name, task.taken);
        let (p50, p99, p100) = (share(500), share(990), share(1000));
        writeln!(
            text,
            "{name:<10} {taken:>11} {none:>13} % {p50:>5} {p99:>5} {p100:>5}"
        )
        .unwrap();
    }
    let bystander = tasks[25].waits.iter().max();
    assert!(bystander <= Some(&10), "first in line: {bystander:?}");
    assert!(most.taken * 3 <= least.taken * 4, "hogs get about the same");
    let stored = include_str!("../snapshots/turns.txt");
    assert_eq!(text, stored, "the series has changed; it is now:\n{text}");
}
