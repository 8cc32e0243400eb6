/* One memory limit for several caches: the C interface of crates/governor (feature `c`).
 *
 * Build the library:  cargo rustc --release -p tidegate-governor --features c --crate-type staticlib
 * Link a program:     cc program.c -Icrates/governor/include target/release/libgovernor.a -lpthread -ldl -lm
 *
 * Functions that can fail answer TG_OK or a code below 0; tg_last_error has the words, for this thread. No function may be given a
 * pointer that was freed. All may be called from any thread; what a shrinker is called from is the governor's thread, with no lock held.
 */
#ifndef TIDEGATE_GOVERNOR_H
#define TIDEGATE_GOVERNOR_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

enum {
	TG_OK = 0,
	TG_NULL = -1,      /* a pointer that must not be null, a function that is missing, or a struct of an unknown size */
	TG_INVALID = -2,   /* a limit, floor, ceiling, weight or name that does not fit; words in tg_last_error */
	TG_REGISTERED = -3,/* a member has that name */
	TG_FULL = -4,      /* no memory in time; tg_last_error names who is in the way */
	TG_IN_SCAN = -5,   /* tg_reserve inside a scan */
	TG_SYSTEM = -6,    /* no thread */
	TG_PANIC = -7      /* a bug of the library: it was caught */
};

typedef struct tg_governor tg_governor;
typedef struct tg_member tg_member;

/* A cache. `size` is sizeof(struct tg_shrinker). */
struct tg_shrinker {
	uint32_t size;
	/* Bytes that could go now; cheap, may be stale. */
	uint64_t (*count)(void *data);
	/* Gives back up to `bytes` within `left_ns`, and calls tg_shrank for what it gave; answers how much that was. Must not unwind or jump out. */
	uint64_t (*scan)(void *data, uint64_t bytes, uint64_t left_ns);
	/* `data` is not used any more; may be null. After tg_member_free, or later, from another thread, if a scan is under way then. */
	void (*drop)(void *data);
};

/* What a member may have. `size` is sizeof(struct tg_share); fields that are 0 mean the default. */
struct tg_share {
	uint32_t size;
	uint64_t floor;        /* bytes never taken; 0 */
	uint64_t ceiling;      /* bytes beyond which it gets nothing; none */
	double weight;         /* 1/16 to 16; 1 */
	uint64_t miss_cost_ns; /* of a miss whose cost is not told; 100 us */
};

/* A governor with a thread of its own. `limit`: bytes, for the resident memory of the process. */
int tg_governor_new(uint64_t limit, tg_governor **governor);
/* Members keep it going; free them first or after. */
void tg_governor_free(tg_governor *governor);
int tg_governor_set_limit(tg_governor *governor, uint64_t limit);
/* Writes a report of at most `size` bytes, a zero among them; answers how long it is without. */
size_t tg_report(const tg_governor *governor, char *text, size_t size);

/* `share` may be null. `data` is handed to the shrinker's functions; if this fails, drop is not called. */
int tg_register(const tg_governor *governor, const char *name, const struct tg_share *share,
                const struct tg_shrinker *shrinker, void *data, tg_member **member);
void tg_member_free(tg_member *member);

void tg_grew(const tg_member *member, uint64_t bytes);
void tg_shrank(const tg_member *member, uint64_t bytes);
uint64_t tg_held(const tg_member *member);
/* Memory before it is taken; counts as held until tg_release. Waits `timeout_ns` at most, and not above 10 s. */
int tg_reserve(const tg_member *member, uint64_t bytes, uint64_t timeout_ns);
void tg_release(const tg_member *member, uint64_t bytes);

/* The entry with this hash was evicted; was missed (`cost_ns`: 0 for that of the share); something was found. */
void tg_evicted(const tg_member *member, uint64_t hash, uint64_t bytes);
void tg_missed(const tg_member *member, uint64_t hash, uint64_t cost_ns);
void tg_used(const tg_member *member);

/* The words of the last error of this thread, as tg_report. */
size_t tg_last_error(char *text, size_t size);

#ifdef __cplusplus
}
#endif
#endif
