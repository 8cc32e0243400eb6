//! Members with analytic miss curves, in virtual time.
//!
//! A step of the model: each member asks so often, misses as its curve says for what it holds, and
//! what it brings in pushes something out of the member that has to give. A miss on what a member
//! with `x` more would have had is one at that distance.

use proptest::prelude::*;

use super::*;

/// All the memory.
const LIMIT: Bytes = Bytes(64 << 20);
/// The size of an entry.
const ENTRY: u64 = 4096;
const TICK: Nanos = Nanos::millis(5);
/// Of the steady hour: coarser.
const LONG_TICK: Nanos = Nanos::millis(20);
/// Fixed point of miss ratios.
const ONE: u64 = 1 << 20;

/// The misses among requests, by the memory held.
#[derive(Clone, Copy, Debug)]
enum Curve {
    /// Popularity falls as 1/rank over this many bytes: hits grow with the logarithm.
    Zipf(u64),
    /// Goes round this many bytes, under LRU: all or nothing.
    Loop(u64),
    /// Never the same again.
    Stream,
    /// Asks for nothing.
    Dead,
}

/// Binary logarithm in 1/65536, bit by bit.
fn log2(x: u64) -> u64 {
    let whole = x.max(1).ilog2();
    // In [1, 2), with 31 bits behind the point.
    let mut rest = (x.max(1) << 31) >> whole;
    let mut log = u64::from(whole);
    for _ in 0..16 {
        rest = (rest * rest) >> 31;
        let bit = rest >> 32;
        rest >>= bit;
        log = (log << 1) | bit;
    }
    log
}

impl Curve {
    /// Of `ONE`.
    fn missed(self, held: u64) -> u64 {
        match self {
            Self::Zipf(data) => {
                let hits = log2(1 + held.min(data) / ENTRY) * ONE / log2(1 + data / ENTRY);
                ONE - hits.min(ONE)
            }
            Self::Loop(data) => {
                if held >= data {
                    0
                } else {
                    ONE
                }
            }
            Self::Stream => ONE,
            Self::Dead => 0,
        }
    }
}

#[derive(Clone, Copy, Debug)]
struct User {
    curve: Curve,
    /// Requests a tick.
    rate: u64,
    cost: Nanos,
}

fn user(curve: Curve, rate: u64, cost_us: u64) -> User {
    User {
        curve,
        rate,
        cost: Nanos::micros(cost_us),
    }
}

const DEAD: User = User {
    curve: Curve::Dead,
    rate: 0,
    cost: Nanos::ZERO,
};

struct Model {
    shares: Shares,
    ids: Vec<MemberId>,
    users: Vec<User>,
    held: Vec<u64>,
    /// Of misses, by member and octave: what was not yet a whole one.
    rests: Vec<[u64; OCTAVES + 1]>,
    now: Instant,
    tick: Nanos,
    /// Members say whether they are used.
    telling: bool,
    transfers: Vec<Transfer>,
}

impl Model {
    fn new(users: &[User], terms: &[Terms]) -> Self {
        let mut shares = Shares::new(LIMIT, Mode::ByRegret, Instant(0));
        let join = |terms: &Terms| shares.join(*terms).unwrap();
        let ids = terms.iter().map(join).collect();
        Self {
            shares,
            ids,
            users: users.to_vec(),
            held: vec![0; users.len()],
            rests: vec![[0; OCTAVES + 1]; users.len()],
            now: Instant(0),
            tick: TICK,
            telling: true,
            transfers: Vec::new(),
        }
    }

    fn plain(users: &[User]) -> Self {
        Self::new(users, &vec![Terms::default(); users.len()])
    }

    /// One member gets `sixteenths` of the memory, the other the rest; both are full.
    fn split(users: &[User; 2], sixteenths: u64) -> Self {
        let mut model = Self::plain(users);
        let first = LIMIT.0 / 16 * sixteenths;
        for (at, target) in [first, LIMIT.0 - first].into_iter().enumerate() {
            model.shares.members[at].as_mut().unwrap().target = Bytes(target);
            model.held[at] = target;
        }
        model
    }

    fn tick(&mut self) {
        self.now = self.now + self.tick;
        let delta = self.shares.delta();
        for at in 0..self.users.len() {
            let User { curve, rate, cost } = self.users[at];
            let held = self.held[at];
            if self.telling && rate > 0 {
                self.shares.used(self.ids[at]);
            }
            let mut nearer = curve.missed(held);
            let mut brought = 0;
            for octave in 0..=OCTAVES {
                // Pages that one octave more would have kept, and in the end pages that nothing
                // would.
                let reach = delta.0 << octave;
                let beyond = if octave == OCTAVES {
                    0
                } else {
                    curve.missed(held + reach)
                };
                let rest = &mut self.rests[at][octave];
                *rest += (nearer - beyond) * rate;
                nearer = beyond;
                let misses = *rest / ONE;
                *rest %= ONE;
                brought += misses;
                if octave < OCTAVES {
                    for _ in 0..misses {
                        self.shares.missed(self.ids[at], Bytes(reach), cost);
                    }
                }
            }
            self.held[at] += brought * ENTRY;
        }
        self.give();
        if let Some(transfer) = self.shares.turn(self.now) {
            self.transfers.push(transfer);
        }
        self.check();
    }

    /// The excess is given back, as the asks say.
    fn give(&mut self) {
        for (at, held) in self.held.iter().enumerate() {
            self.shares.set_held(self.ids[at], Bytes(*held));
        }
        let total = self.held.iter().sum::<u64>();
        let wanted = Bytes(total).saturating_sub(self.shares.pool());
        let asks = self.shares.asks(wanted);
        let is_above = |(at, held): (usize, &u64)| *held > self.terms(at).floor.0;
        let someone_above = self.held.iter().enumerate().any(is_above);
        assert!(
            !someone_above || asks.iter().map(|(_, bytes)| *bytes).sum::<Bytes>() == wanted,
            "what is wanted is asked of somebody"
        );
        for (id, bytes) in asks {
            let at = id.at();
            let (before, floor) = (self.held[at], self.terms(at).floor.0);
            self.held[at] -= bytes.0;
            assert!(self.held[at] >= floor.min(before), "below its floor");
            assert!(before > floor, "asked although below its floor");
            self.shares.evicted(id, bytes);
            self.shares.set_held(id, Bytes(self.held[at]));
        }
    }

    fn check(&self) {
        let targets = self.views().map(|view| view.target).sum::<Bytes>();
        assert_eq!(targets + self.shares.spare(), self.shares.pool());
        for view in self.views() {
            assert!(view.target >= view.terms.floor, "{view:?}");
            assert!(view.target <= view.terms.ceiling, "{view:?}");
        }
        let allowances = self.shares.allowances();
        let all = allowances.iter().map(|(_, bytes)| *bytes).sum::<Bytes>();
        assert!(all <= self.shares.pool());
    }

    fn terms(&self, at: usize) -> Terms {
        self.shares.view(self.ids[at]).unwrap().terms
    }

    fn views(&self) -> impl Iterator<Item = View> {
        self.shares.views().map(|(_, view)| view)
    }

    fn target(&self, at: usize) -> u64 {
        self.shares.view(self.ids[at]).unwrap().target.0
    }

    /// Until `epochs` more have ended; a run without evictions ends after a minute.
    fn epochs(&mut self, epochs: u64) {
        let (until, stop) = (self.shares.epoch() + epochs, self.now + Nanos::secs(60));
        while self.shares.epoch() < until && self.now < stop {
            self.tick();
        }
    }

    fn percent(&self, at: usize) -> u64 {
        self.target(at) * 100 / LIMIT.0
    }
}

const fn mib(n: u64) -> u64 {
    n << 20
}

#[test]
fn equal_members_end_up_equal() {
    let zipf = user(Curve::Zipf(mib(256)), 200, 100);
    for sixteenths in [1, 4, 9, 15] {
        let mut model = Model::split(&[zipf, zipf], sixteenths);
        model.epochs(32);
        let (a, b) = (model.target(0), model.target(1));
        assert!(
            a.abs_diff(b) * 20 <= a.max(b),
            "from {sixteenths}/16: {a} and {b} after 32 epochs"
        );
    }
}

#[test]
fn who_regrets_and_has_too_little_gets_memory_within_sixteen_epochs() {
    let poor = user(Curve::Zipf(mib(256)), 200, 100);
    let rich = [
        DEAD,
        user(Curve::Stream, 400, 100),
        user(Curve::Stream, 6_000, 100),
        user(Curve::Loop(mib(16)), 400, 100),
        user(Curve::Zipf(mib(256)), 20, 100),
        user(Curve::Zipf(mib(256)), 200, 10),
    ];
    for rich in rich {
        let mut model = Model::split(&[poor, rich], 3);
        let before = model.target(0);
        model.epochs(16);
        assert!(model.target(0) > before + LIMIT.0 / 16, "{rich:?}");
    }
}

#[test]
fn a_slow_and_dear_member_is_not_forgotten_beside_a_fast_stream() {
    // The stream ends an epoch every 50 ms; of its 40 requests in that time, three miss what memory
    // could have kept.
    let dear = user(Curve::Zipf(mib(256)), 4, 10_000);
    let mut model = Model::split(&[dear, user(Curve::Stream, 6_000, 10)], 3);
    model.epochs(16);
    assert!(model.percent(0) > 18, "{}", model.percent(0));
    // It takes 60 epochs to fill what one gives it, and only then asks for more.
    model.epochs(400);
    assert!(model.percent(0) > 40, "{}", model.percent(0));
}

#[test]
fn a_change_of_phase_is_followed_within_sixteen_epochs() {
    let hot = user(Curve::Zipf(mib(256)), 400, 100);
    let cold = user(Curve::Zipf(mib(256)), 4, 100);
    for other in [DEAD, cold] {
        let mut model = Model::plain(&[hot, other]);
        model.epochs(64);
        let settled = model.target(0);
        assert!(settled > LIMIT.0 / 16 * 13, "{other:?}: {settled}");
        model.users = vec![other, hot];
        model.epochs(16);
        // By symmetry the other one should have now what this one had.
        let (way, gone) = (2 * settled - LIMIT.0, settled - model.target(0));
        assert!(gone * 10 >= way * 9, "{other:?}: {gone} of {way}");
    }
}

#[test]
fn a_loop_that_does_not_fit_gets_all_that_it_lacks() {
    // Eight deltas more and it never misses again; the other has half of what it wants and a slope
    // everywhere.
    let looping = user(Curve::Loop(mib(40)), 300, 100);
    let mut model = Model::split(&[looping, user(Curve::Zipf(mib(512)), 200, 100)], 8);
    model.epochs(48);
    assert!(model.target(0) >= mib(40), "{}", model.target(0));
}

/// An hour of virtual time, and how often a transfer was taken back by the next.
fn back_and_forth(users: &[User; 2], telling: bool) -> (usize, u64) {
    let mut model = Model::plain(users);
    (model.telling, model.tick) = (telling, LONG_TICK);
    model.epochs(128);
    model.transfers.clear();
    let (end, before) = (model.now + Nanos::secs(3600), model.shares.epoch());
    while model.now < end {
        model.tick();
    }
    let mut taken_back = 0;
    let mut transfers = model.transfers.as_slice();
    while let [first, second, ..] = transfers {
        let is_back = first.to == second.from;
        taken_back += usize::from(is_back);
        transfers = &transfers[1 + usize::from(is_back)..];
    }
    (taken_back, model.shares.epoch() - before)
}

#[test]
fn in_a_steady_hour_memory_does_not_flutter() {
    let zipf = |rate| user(Curve::Zipf(mib(256)), rate, 100);
    let fitting = user(Curve::Loop(mib(24)), 160, 100);
    let table = [
        [zipf(160), zipf(160)],
        [zipf(160), zipf(100)],
        [zipf(160), user(Curve::Stream, 160, 100)],
        [zipf(160), fitting],
    ];
    for users in table {
        let (taken_back, epochs) = back_and_forth(&users, true);
        assert!(epochs > 4_000, "{epochs}");
        assert!(taken_back <= 2, "{users:?}: {taken_back}");
    }
    // A member that does not tell that it is used is tried again now and then, as its use may have
    // ended.
    let (taken_back, epochs) = back_and_forth(&[zipf(160), fitting], false);
    // A delta that a member took may come back in two transfers.
    let trials = usize::try_from(epochs / 1024).unwrap() + 2;
    assert!((3..=2 * trials).contains(&taken_back), "{taken_back}");
}

#[test]
fn a_member_that_was_spared_gives_when_its_use_ends() {
    let fitting = user(Curve::Loop(mib(24)), 40, 100);
    let mut model = Model::plain(&[user(Curve::Zipf(mib(256)), 40, 100), fitting]);
    model.epochs(1024);
    assert!(model.target(1) >= mib(24), "{}", model.target(1));
    model.users[1] = DEAD;
    model.epochs(32);
    assert!(model.target(1) < mib(8), "{}", model.target(1));
}

#[test]
fn nobody_is_emptied_before_the_next_is_touched() {
    // redpanda#8147: the first of the list was emptied, the others were not asked.
    let zipf = user(Curve::Zipf(mib(256)), 100, 100);
    let mut model = Model::plain(&[zipf, zipf, zipf]);
    model.epochs(8);
    let asks = model.shares.asks(Bytes(LIMIT.0 / 2));
    assert_eq!(asks.len(), 3);
    let (least, most) = asks
        .iter()
        .fold((u64::MAX, 0), |(least, most), (_, bytes)| {
            (bytes.0.min(least), bytes.0.max(most))
        });
    assert!(most <= least + least / 10, "{asks:?}");
}

#[test]
fn what_is_not_used_is_lent_and_comes_back() {
    let zipf = user(Curve::Zipf(mib(256)), 200, 100);
    let mut model = Model::plain(&[zipf, DEAD]);
    while model.held[0] < mib(60) {
        model.tick();
    }
    // Before regret has moved everything: it holds more than its target, and what bounds itself
    // may.
    let allowances = model.shares.allowances();
    assert!(allowances[0].1.0 >= model.target(0));
    assert!(model.target(0) + model.target(1) == LIMIT.0);
    model.users = vec![DEAD, zipf];
    model.epochs(32);
    assert!(model.held[1] > LIMIT.0 / 4 * 3, "{}", model.held[1]);
}

#[test]
fn the_carried_give_first_as_long_as_nobody_regrets() {
    let carried = Terms {
        floor: Bytes(mib(8)),
        carried_by: Some(MemberId::of(1)),
        ..Terms::default()
    };
    let stream = user(Curve::Stream, 400, 100);
    let mut model = Model::new(&[stream, stream], &[carried, Terms::default()]);
    model.epochs(64);
    assert_eq!(model.target(0), mib(8), "down to its floor");
    let all_tie = model.transfers.iter().all(|t| t.why == Why::Carried);
    assert!(all_tie, "{:?}", model.transfers);
    // It begins to regret: memory comes back.
    model.users[0] = user(Curve::Zipf(mib(256)), 400, 100);
    model.epochs(16);
    assert!(model.percent(0) > 60, "{}", model.percent(0));
}

#[test]
fn weights_count_and_a_ceiling_ends_it() {
    let zipf = user(Curve::Zipf(mib(256)), 200, 100);
    let heavy = Terms {
        weight: Weight::in_sixteenths(64).unwrap(),
        ..Terms::default()
    };
    let mut model = Model::new(&[zipf, zipf], &[heavy, Terms::default()]);
    assert_eq!(model.percent(0), 80);
    model.epochs(64);
    assert!(
        (72..=88).contains(&model.percent(0)),
        "{}",
        model.percent(0)
    );
    let capped = Terms {
        ceiling: Bytes(mib(16)),
        ..heavy
    };
    model.shares.set_terms(model.ids[0], capped).unwrap();
    model.epochs(16);
    assert_eq!((model.target(0), model.target(1)), (mib(16), mib(48)));
}

#[test]
fn a_member_below_its_own_cap_never_asks_for_more() {
    // It thrashes in what it bounds itself to: a quarter of its target.
    let mut shares = Shares::new(LIMIT, Mode::ByRegret, Instant(0));
    let (small, other) = (
        shares.join(Terms::default()).unwrap(),
        shares.join(Terms::default()).unwrap(),
    );
    shares.set_held(small, Bytes(mib(8)));
    shares.set_held(other, Bytes(mib(32)));
    for epoch in 1..=32 {
        for _ in 0..1000 {
            shares.missed(small, Bytes(1), Nanos::millis(1));
        }
        shares.evicted(small, LIMIT);
        assert_eq!(shares.turn(Instant(epoch * 100_000_000)), None);
    }
}

#[test]
fn without_regret_only_weights_speak() {
    let mut shares = Shares::new(LIMIT, Mode::Fixed, Instant(0));
    let a = shares.join(Terms::default()).unwrap();
    let b = shares.join(Terms::default()).unwrap();
    shares.set_held(a, Bytes(mib(32)));
    for epoch in 1..=8 {
        for _ in 0..1000 {
            shares.missed(a, Bytes(1), Nanos::millis(1));
        }
        shares.evicted(a, LIMIT);
        assert_eq!(shares.turn(Instant(epoch * 100_000_000)), None);
        assert_eq!(shares.epoch(), epoch);
    }
    assert_eq!(shares.view(b).unwrap().target, Bytes(mib(32)));
}

#[test]
fn an_epoch_is_a_sixteenth_of_the_limit_and_fifty_milliseconds() {
    let mut shares = Shares::new(LIMIT, Mode::ByRegret, Instant(0));
    let id = shares.join(Terms::default()).unwrap();
    shares.evicted(id, LIMIT);
    shares.turn(Instant(49_999_999));
    assert_eq!(shares.epoch(), 0, "too early");
    shares.turn(Instant(50_000_000));
    assert_eq!(shares.epoch(), 1);
    shares.evicted(id, Bytes(LIMIT.0 / 16 - 1));
    shares.turn(Instant(u64::MAX));
    assert_eq!(shares.epoch(), 1, "too little");
    assert_eq!(shares.epoch_left(), Bytes(1));
}

#[test]
fn terms_that_do_not_fit_are_refused_and_change_nothing() {
    let mut shares = Shares::new(Bytes(100), Mode::ByRegret, Instant(0));
    let floor = |floor| Terms {
        floor: Bytes(floor),
        ..Terms::default()
    };
    let id = shares.join(floor(60)).unwrap();
    let too_much = Refused::Floors {
        floors: Bytes(101),
        pool: Bytes(100),
    };
    assert_eq!(shares.join(floor(41)), Err(too_much));
    assert_eq!(shares.set_terms(id, floor(101)), Err(too_much));
    assert_eq!(
        shares.set_limit(Bytes(59), Bytes(0)),
        Err(Refused::Floors {
            floors: Bytes(60),
            pool: Bytes(59),
        })
    );
    let upside_down = Terms {
        ceiling: Bytes(59),
        ..floor(60)
    };
    assert_eq!(shares.set_terms(id, upside_down), Err(Refused::Ceiling));
    assert_eq!(shares.view(id).unwrap().target, Bytes(100));
    shares.leave(id);
    assert_eq!(shares.set_terms(id, floor(1)), Err(Refused::Unknown));
    assert_eq!(shares.spare(), Bytes(100));
}

#[test]
fn a_limit_that_goes_up_and_down_leaves_the_targets_as_they_were() {
    let mut model = Model::split(&[DEAD, DEAD], 2);
    for _ in 0..1000 {
        let less = Bytes(LIMIT.0 / 100);
        model.shares.set_limit(LIMIT, less).unwrap();
        model.check();
        model.shares.set_limit(LIMIT, Bytes(0)).unwrap();
    }
    assert!(
        model.target(0) < LIMIT.0 / 16 * 2 + 4096,
        "{}",
        model.target(0)
    );
}

#[test]
fn a_weight_has_bounds() {
    assert_eq!(Weight::in_sixteenths(0), None);
    assert_eq!(Weight::in_sixteenths(257), None);
    assert_eq!(Weight::in_sixteenths(16), Some(Weight::ONE));
}

/// An event on the table of members.
#[derive(Clone, Debug)]
enum Step {
    Join(u64, u64, u32),
    Leave(usize),
    Terms(usize, u64, u64),
    Limit(u64, u64),
    Run(u16),
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let bytes = 0..LIMIT.0 / 2;
    let step = prop_oneof![
        (bytes.clone(), bytes.clone(), 1..=256_u32).prop_map(|(f, c, w)| Step::Join(f, c, w)),
        (0..6_usize).prop_map(Step::Leave),
        (0..6_usize, bytes.clone(), bytes.clone()).prop_map(|(at, f, c)| Step::Terms(at, f, c)),
        (LIMIT.0 / 4..LIMIT.0, bytes).prop_map(|(limit, kept)| Step::Limit(limit, kept)),
        (1..200_u16).prop_map(Step::Run),
    ];
    prop::collection::vec(step, 1..24)
}

fn curve(at: usize) -> User {
    match at % 4 {
        0 => user(Curve::Zipf(mib(256)), 300, 100),
        1 => user(Curve::Loop(mib(20)), 300, 50),
        2 => user(Curve::Stream, 300, 100),
        _ => DEAD,
    }
}

proptest! {
    #[test]
    fn whatever_happens_the_sum_holds_and_floors_do(steps in steps()) {
        let mut model = Model::plain(&[]);
        for step in steps {
            match step {
                Step::Join(floor, room, weight) => {
                    let terms = Terms {
                        floor: Bytes(floor / 4),
                        ceiling: Bytes(floor / 4 + room),
                        weight: Weight::in_sixteenths(weight).unwrap(),
                        carried_by: model.ids.first().copied(),
                    };
                    if let Ok(id) = model.shares.join(terms) {
                        // Numbers are given again.
                        if id.at() == model.ids.len() {
                            model.ids.push(id);
                            model.users.push(curve(id.at()));
                            model.held.push(0);
                            model.rests.push([0; OCTAVES + 1]);
                        } else {
                            model.users[id.at()] = curve(id.at());
                        }
                    }
                }
                Step::Leave(at) => {
                    if let Some(id) = model.ids.get(at).copied() {
                        model.shares.leave(id);
                        model.held[at] = 0;
                        model.users[at] = DEAD;
                    }
                }
                Step::Terms(at, floor, room) => {
                    if let Some(id) = model.ids.get(at).copied() {
                        let terms = Terms {
                            floor: Bytes(floor / 2),
                            ceiling: Bytes(floor / 2 + room),
                            ..Terms::default()
                        };
                        let _ = model.shares.set_terms(id, terms);
                    }
                }
                Step::Limit(limit, kept_back) => {
                    let _ = model.shares.set_limit(Bytes(limit), Bytes(kept_back));
                }
                Step::Run(ticks) => {
                    // A member that has left has no floor to look at.
                    if model.ids.iter().all(|id| model.shares.view(*id).is_some()) {
                        (0..ticks).for_each(|_| model.tick());
                    }
                }
            }
            model.check();
        }
    }
}

/// Gives in one epoch what it wins back in the next, and is spared for `span` epochs then.
fn repents(member: &mut Member, epoch: u64, span: u64) {
    member.has_given(epoch, 10);
    member.has_won(epoch + 1);
    let ends = epoch + 1 + span;
    assert!(member.is_spared(ends - 1, 20), "{epoch}: as long as {span}");
    assert!(!member.is_spared(ends, 0), "{epoch}: no longer than {span}");
    assert!(
        !member.is_spared(ends - 1, 21),
        "not from who would save twice as much"
    );
}

#[test]
fn who_wins_back_what_it_gave_is_spared_longer_each_time_until_a_gift_stood() {
    let mut member = Member::new(Terms::default(), Bytes(1 << 20));
    repents(&mut member, 100, 8);
    repents(&mut member, 200, 128);
    // A gift that it does not win back within 16 epochs stood: it begins again.
    let stood = |member: &mut Member, after: u64| {
        member.has_given(1000, 10);
        member.has_given(1000 + after, 10);
        member.has_won(1000 + after + 1);
        (1..)
            .find(|epoch| !member.is_spared(1000 + after + 1 + epoch, 0))
            .unwrap()
    };
    for (after, span) in [(1, 1024), (16, 1024), (17, 8), (100, 8)] {
        assert_eq!(
            stood(&mut member.clone(), after),
            span,
            "{after} epochs later"
        );
    }
    // Won later than 8 epochs after it gave: it was no mistake.
    member.has_given(2000, 10);
    member.has_won(2009);
    assert!(!member.is_spared(2009, 0));
}
