//! A cache of one's own under a limit: an `LruCache` in a mutex, two closures, and reports of what
//! it evicts and misses.
//!
//! `cargo run --release -p tidegate-governor --example own_lru`

use std::sync::{Arc, Mutex, PoisonError};

use governor::{Governor, Member, Share};
use lru::LruCache;

type Cache = Arc<Mutex<LruCache<u64, Vec<u8>>>>;

/// Bytes of an entry: key, value, and what the list and the table take.
fn weight(value: &[u8]) -> u64 {
    value.len() as u64 + 96
}

/// The cache is unbounded; the governor bounds it.
struct Rows {
    cache: Cache,
    member: Arc<Member>,
}

impl Rows {
    fn register(governor: &Governor, name: &str, share: Share) -> Result<Self, governor::Error> {
        let cache: Cache = Arc::new(Mutex::new(LruCache::unbounded()));
        // The closures report to the member, which is there only afterwards.
        let slot: Arc<std::sync::OnceLock<std::sync::Weak<Member>>> = Arc::default();
        let (theirs, report_to) = (cache.clone(), slot.clone());
        let free = move |ask: &governor::Ask| {
            let Some(member) = report_to.get().and_then(std::sync::Weak::upgrade) else {
                return 0;
            };
            let mut freed = 0;
            // The lock is taken for each entry, so that readers come in between.
            while freed < ask.bytes && !ask.time_left().is_zero() {
                let gone = theirs
                    .lock()
                    .unwrap_or_else(PoisonError::into_inner)
                    .pop_lru();
                let Some((key, value)) = gone else { break };
                member.evicted(key, weight(&value));
                member.shrank(weight(&value));
                freed += weight(&value);
            }
            freed
        };
        let reported = slot.clone();
        let held = move || {
            reported
                .get()
                .and_then(std::sync::Weak::upgrade)
                .map_or(0, |m| m.held())
        };
        let member = Arc::new(governor.register(name, share, governor::by(held, free))?);
        let _ = slot.set(Arc::downgrade(&member));
        Ok(Self { cache, member })
    }

    fn get(&self, key: u64, load: impl FnOnce() -> Vec<u8>) -> Vec<u8> {
        let found = {
            let mut cache = self.cache.lock().unwrap_or_else(PoisonError::into_inner);
            cache.get(&key).cloned()
        };
        if let Some(value) = found {
            self.member.used();
            return value;
        }
        let began = std::time::Instant::now();
        let value = load();
        self.member.missed_at(key, began.elapsed());
        self.member.grew(weight(&value));
        let mut cache = self.cache.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((_, old)) = cache.push(key, value.clone()) {
            self.member.shrank(weight(&old));
        }
        value
    }
}

fn main() -> Result<(), governor::Error> {
    let governor = Governor::new(64 << 20)?;
    let hot = Rows::register(&governor, "hot", Share::default())?;
    let cold = Rows::register(&governor, "cold", Share::default().floor(4 << 20))?;
    let mut sum = 0;
    for step in 0..600_000_u64 {
        let key = step.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 40;
        sum += hot.get((key % 60_000) >> (key % 3), || vec![7; 1500]).len();
        if step % 50 == 0 {
            sum += cold.get(step, || vec![7; 1500]).len();
        }
    }
    println!("{}{sum} bytes read", governor.report());
    Ok(())
}
