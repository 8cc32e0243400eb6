//! Governors and their members: caches of C's, and the cache of this library.

use std::ffi::{c_char, c_void};
use std::sync::Arc;
use std::time::Duration;

use governor::adapters::tidegate::Governed;
use governor::{Ask, Freeable, Governor, Member, Scanned, Share, Shrinker};

use crate::border::slots::{Handle, Kind, Table};
use crate::border::{Callbacks, CountFn, DropFn, In, Out, Result, ScanFn};
use crate::cache::{self, CacheOf};
use crate::failure::{Failure, TG_OK};
use crate::stats::ns;

/// Longest wait of `tg_reserve`.
const WAIT_MAX: Duration = Duration::from_secs(10);

/// A governor of C's.
pub(crate) struct GovernorOf(Governor);

/// A member.
pub(crate) enum MemberOf {
    Own(Member),
    Pages(Governed),
}

kind! { GovernorOf, GOVERNORS, 6 }
kind! { MemberOf, MEMBERS, 7 }

sized_struct! {
    /// A cache of C's.
    "tg_shrinker" TgShrinker {
        count: Option<CountFn>,
        scan: Option<ScanFn>,
        drop: Option<DropFn>,
    }
}

sized_struct! {
    /// A member's terms; zeroes mean the default.
    "tg_share" TgShare {
        floor: u64,
        ceiling: u64,
        weight: f64,
        miss_cost_ns: u64,
    }
}

impl Shrinker for Callbacks {
    fn count(&self) -> Freeable {
        Freeable::bytes(Callbacks::count(self))
    }

    fn scan(&self, ask: &Ask) -> Scanned {
        Scanned::freed(Callbacks::scan(self, ask.bytes, ns(ask.time_left())))
    }
}

fn share_of(share: &TgShare) -> Share {
    let mut made = Share::default().floor(share.floor);
    if share.ceiling > 0 {
        made = made.ceiling(share.ceiling);
    }
    if share.weight != 0.0 {
        made = made.weight(share.weight);
    }
    if share.miss_cost_ns > 0 {
        made = made.miss_cost(Duration::from_nanos(share.miss_cost_ns));
    }
    made
}

fn register(
    governor: &Governor,
    name: &str,
    share: &TgShare,
    shrinker: &TgShrinker,
    data: Out<c_void>,
) -> Result<Handle<MemberOf>> {
    let (Some(count), Some(scan)) = (shrinker.count, shrinker.scan) else {
        return Err(Failure::null(&format!(
            "{name}: count or scan of the shrinker"
        )));
    };
    let callbacks = Arc::new(Callbacks::new(count, scan, data));
    let member = governor.register(
        name,
        share_of(share),
        Arc::clone(&callbacks) as Arc<dyn Shrinker>,
    )?;
    let member = MEMBERS.insert(MemberOf::Own(member))?;
    callbacks.drop_by(shrinker.drop);
    Ok(member)
}

/// Does something with a member.
fn with<R>(member: Handle<MemberOf>, what: impl FnOnce(&Member) -> Result<R>) -> Result<R> {
    MEMBERS.with(member, |member| match member {
        MemberOf::Own(member) => what(member),
        MemberOf::Pages(pages) => what(pages.member()),
    })
}

fn tell(member: Handle<MemberOf>, what: impl FnOnce(&Member)) -> Result<i32> {
    with(member, |member| {
        what(member);
        Ok(TG_OK)
    })
}

border! {
    fn tg_governor_new(limit: u64, governor: Out<Handle<GovernorOf>>) -> i32 {
        let place = governor.there("governor")?;
        place.put(GOVERNORS.insert(GovernorOf(Governor::new(limit)?))?);
        Ok(TG_OK)
    }

    fn tg_governor_free(governor: Handle<GovernorOf>) -> i32 {
        drop(GOVERNORS.take(governor)?);
        Ok(TG_OK)
    }

    fn tg_governor_set_limit(governor: Handle<GovernorOf>, limit: u64) -> i32 {
        GOVERNORS.with(governor, |governor| Ok(governor.0.set_limit(limit)?)).map(|()| TG_OK)
    }

    fn tg_report(governor: Handle<GovernorOf>, text: Out<c_char>, size: usize) -> usize {
        let report = GOVERNORS.with(governor, |governor| Ok(governor.0.report().to_string()))?;
        Ok(text.put_text(&report, size))
    }

    fn tg_register(
        governor: Handle<GovernorOf>,
        name: In<c_char>,
        share: In<TgShare>,
        shrinker: In<TgShrinker>,
        data: Out<c_void>,
        member: Out<Handle<MemberOf>>,
    ) -> i32 {
        let (name, place) = (name.text("name")?, member.there("member")?);
        let (share, shrinker) = (share.read_sized("share")?, shrinker.read_sized("shrinker")?);
        let made = GOVERNORS.with(governor, |governor| register(&governor.0, name, &share, &shrinker, data));
        place.put(made?);
        Ok(TG_OK)
    }

    fn tg_join(
        governor: Handle<GovernorOf>,
        cache: Handle<CacheOf>,
        name: In<c_char>,
        share: In<TgShare>,
        member: Out<Handle<MemberOf>>,
    ) -> i32 {
        let (name, place) = (name.text("name")?, member.there("member")?);
        let share = share_of(&share.read_sized("share")?);
        let made = GOVERNORS.with(governor, |governor| {
            cache::with(cache, |cache| {
                let pages = Governed::new(&governor.0, name, share, cache)?;
                MEMBERS.insert(MemberOf::Pages(pages))
            })
        });
        place.put(made?);
        Ok(TG_OK)
    }

    fn tg_member_free(member: Handle<MemberOf>) -> i32 {
        drop(MEMBERS.take(member)?);
        Ok(TG_OK)
    }

    fn tg_grew(member: Handle<MemberOf>, bytes: u64) -> i32 {
        tell(member, |member| member.grew(bytes))
    }

    fn tg_shrank(member: Handle<MemberOf>, bytes: u64) -> i32 {
        tell(member, |member| member.shrank(bytes))
    }

    fn tg_held(member: Handle<MemberOf>) -> u64 {
        with(member, |member| Ok(member.held()))
    }

    fn tg_reserve(member: Handle<MemberOf>, bytes: u64, timeout_ns: u64) -> i32 {
        with(member, |member| {
            let at_most = Duration::from_nanos(timeout_ns).min(WAIT_MAX);
            member.reserve_within(bytes, at_most)?.keep();
            Ok(TG_OK)
        })
    }

    fn tg_release(member: Handle<MemberOf>, bytes: u64) -> i32 {
        tell(member, |member| member.shrank(bytes))
    }

    fn tg_evicted(member: Handle<MemberOf>, hash: u64, bytes: u64) -> i32 {
        tell(member, |member| member.evicted(hash, bytes))
    }

    fn tg_missed(member: Handle<MemberOf>, hash: u64, cost_ns: u64) -> i32 {
        tell(member, |member| match cost_ns {
            0 => member.missed(hash),
            _ => member.missed_at(hash, Duration::from_nanos(cost_ns)),
        })
    }

    fn tg_used(member: Handle<MemberOf>) -> i32 {
        tell(member, Member::used)
    }
}
