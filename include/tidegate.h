/* Tidegate for C: a page cache with one memory limit that holds and writers that are paced, and a governor that has
 * several caches share one limit. A page with a whole program: docs/embed/c.md.
 *
 *   cc program.c $(pkg-config --cflags --libs tidegate)
 *
 * ANSWERS. A function that can fail answers a number below 0 when it does: a code below. tg_error() has the words, for
 * this thread: the thing, the value and the way out. tg_errno() has the system's number, if a system call or a device
 * gave one. A function that moves bytes answers how many; all others TG_OK.
 *
 * HANDLES. tg_cache, tg_file, ... are numbers in a struct, copied at will; {0} is none. Each is checked: one that was
 * closed, was closed twice, is of another kind, or is of the process before a fork is answered with a code. Closing
 * waits for the calls that other threads have under way with the handle.
 *
 * THREADS. Every function may be called from every thread, but from a signal handler none. There is nothing to set up
 * or tear down for a thread; one that ends leaves nothing behind. Sizes are bytes, times nanoseconds.
 *
 * UNCHECKED. Pointers: the caller promises that they point to as many bytes as it said, and that no other thread uses
 * these bytes during the call (of a request: until it is reaped). A tg_pin: that it was filled by tg_pin_pages or is {0},
 * and that no copy of it was given back; bytes of a pin after tg_unpin, memory of a map after tg_map_free. The effects of a
 * tg_shrinker's functions.
 */
#ifndef TIDEGATE_H
#define TIDEGATE_H

#include <stddef.h>
#include <stdint.h>
#include <sys/uio.h>

#ifdef __cplusplus
extern "C" {
#endif

#define TG_VERSION "0.1.0"

enum {
	TG_OK = 0,
	TG_NULL = -1,        /* a pointer or handle that must not be null is, or a function is missing */
	TG_INVALID = -2,     /* a number, a name, a text that does not fit */
	TG_REGISTERED = -3,  /* a member has that name */
	TG_FULL = -4,        /* no room: memory within the time, pins, files, handles; tg_error() names what is in the way */
	TG_IN_SCAN = -5,     /* tg_reserve inside a scan */
	TG_SYSTEM = -6,      /* the system refused: memory, a thread, a file that cannot be opened */
	TG_PANIC = -7,       /* a bug of the library: it was caught */
	TG_CLOSED = -8,      /* the handle, or the cache that it belongs to, is closed; a pin was given back */
	TG_KIND = -9,        /* the handle is of another kind, or none */
	TG_BUSY = -10,       /* in use: a file by another program or cache, by a map, by requests; a cache by pins, maps or a queue */
	TG_IO = -11,         /* the device failed */
	TG_NO_MEMORY = -12,  /* no page can be freed */
	TG_READ_ONLY = -13,  /* the file was opened with TG_RDONLY */
	TG_AGAIN = -14,      /* it would have to wait: try later, or call the function that waits */
	TG_FORKED = -15      /* the handle belongs to the parent of this process */
};

/* The words of the last failure of this thread, as long as none comes after it; "" if there was none. */
const char *tg_error(void);
/* The system's number of that failure (errno(3)), or 0. */
int tg_errno(void);
/* Bytes of a write that had been taken in before that failure: they are part of the file. */
uint64_t tg_taken(void);
/* "TG_CLOSED" for -8. */
const char *tg_code_name(int code);
/* "64MiB", "1.5GiB", "4096B": as the options of the program take sizes. */
int tg_size(const char *text, uint64_t *bytes);

typedef struct tg_cache { uint64_t id; } tg_cache;
typedef struct tg_file { uint64_t id; } tg_file;
typedef struct tg_writer { uint64_t id; } tg_writer;
typedef struct tg_map { uint64_t id; } tg_map;
typedef struct tg_region { uint64_t id; } tg_region;
typedef struct tg_queue { uint64_t id; } tg_queue;
typedef struct tg_governor { uint64_t id; } tg_governor;
typedef struct tg_member { uint64_t id; } tg_member;

/* ---- A cache ---------------------------------------------------------------------------------------------------- */

enum {                          /* tg_cache_options.flags */
	TG_WHOLE_PROCESS = 1,   /* the limit is for the process: what is resident when the cache is built comes off it */
	TG_PREFAULT = 2,        /* all memory is taken now */
	TG_NO_IO_URING = 4,
	TG_IGNORE_GROUP = 8,    /* do not take less while the control group runs short */
	TG_CORE_DUMP = 16,      /* core dumps include cached pages */
	TG_MAPS = 32            /* files can be mapped: memory in pages of 4 KiB, which is not registered with io_uring */
};

enum {                          /* tg_cache_options.on_error: what writers get while writes to the device fail */
	TG_RETRY = 1,           /* nothing: they wait when memory is full */
	TG_REPORT = 2,          /* the error once (default) */
	TG_STOP = 3             /* the error for each write, until tg_cache_reopen_device */
};

/* `size` is sizeof(tg_cache_options); a field of 0 means the default. */
typedef struct tg_cache_options {
	uint32_t size;
	uint32_t flags;
	uint64_t memory;             /* the limit: pages, metadata and pins together; 256 MiB */
	uint64_t beside;             /* of it, what the program needs for itself */
	uint64_t dirty_bytes;        /* written and not on the device: over this, writers are paced; or */
	uint64_t background_bytes;   /* over this, writing back begins; or */
	uint32_t dirty_percent;      /* ... as a share of the cache; 20 */
	uint32_t background_percent; /* ... 10 */
	uint64_t readahead;          /* largest window; 8 MiB, at most a sixteenth of the cache; 1 turns it off */
	const char *swap_path;       /* a new file for regions to spill to; its name is removed at once */
	uint64_t swap_bytes;
	uint32_t swappiness;         /* 1 to 200; 60 */
	uint32_t devices;            /* most disks; 16 */
	uint32_t on_error;
	uint32_t reserved;
	const char *page_rule;       /* rule that picks the page of a file to evict: "reuse", "lirs", "s3-fifo", "mru"; the cache's own rule */
	const char *layers;          /* for tests, a bad disk: "slow:rate=16MB,latency=2ms+faulty:eio_writes=0.01,seed=7" */
} tg_cache_options;

/* `options` may be null. */
int tg_cache_new(const tg_cache_options *options, tg_cache *cache);
/* Makes everything written so far durable, in all files; the first file's error. */
int tg_cache_sync(tg_cache cache);
/* Syncs everything and ends the cache, with its files, writers and regions: their handles are closed. TG_BUSY, and nothing
 * has changed, while pages are pinned, or a queue or a map is there. Any other error: bytes that could not be written are lost; to
 * try again instead, call tg_cache_sync first. */
int tg_cache_close(tg_cache cache);
/* Up to the limit that it was built with; a lower one is reached in the background. */
int tg_cache_set_limit(tg_cache cache, uint64_t bytes);
/* Gives memory that no page needs back to the system; answers how much. */
int64_t tg_cache_trim(tg_cache cache);
/* For the end of a test: requests that layers hold up end, and `slow` and `hang` do nothing any more. Faults stay: one that
 * passes is an `eio_write_at`. */
int tg_cache_release_layers(tg_cache cache);
/* The disk that `path` is on works again, and the caller answers for it. */
int tg_cache_reopen_device(tg_cache cache, const char *path);

/* ---- Files ------------------------------------------------------------------------------------------------------ */

enum {                      /* of tg_open */
	TG_CREATE = 1,      /* make it if it is not there */
	TG_TRUNCATE = 2,
	TG_RDONLY = 4,
	TG_DIRECT = 8,      /* refuse a file system without O_DIRECT instead of going through the kernel's page cache */
	TG_UNLOCKED = 16    /* go without the lock that keeps other caches and QEMU away */
};

/* A file or block device. Opened again, under whatever name, it is the same file with the same pages. `preallocate`:
 * bytes to take space for now; 0 for none. */
int tg_open(tg_cache cache, const char *path, uint32_t flags, uint64_t preallocate, tg_file *file);
/* Syncs and closes. After an error the file is still open and has lost nothing: sync again, or discard it. */
int tg_file_close(tg_file file);
/* Closes without writing dirty pages: for a file that is about to be removed. */
int tg_file_discard(tg_file file);

/* Bytes, fewer at the end of the file. */
int64_t tg_pread(tg_file file, void *data, size_t len, uint64_t offset);
/* Never waits: bytes up to the first page that is not in the cache; TG_AGAIN if that is the first one, which is being read
 * then if there is memory. */
int64_t tg_try_pread(tg_file file, void *data, size_t len, uint64_t offset);
/* All of it, into memory; sleeps for a short, even time while the device is behind. Each thread is paced by itself. */
int64_t tg_pwrite(tg_file file, const void *data, size_t len, uint64_t offset);
int64_t tg_preadv(tg_file file, const struct iovec *iov, int iovcnt, uint64_t offset);
int64_t tg_pwritev(tg_file file, const struct iovec *iov, int iovcnt, uint64_t offset);
/* On the device, and the device flushed. */
int tg_sync(tg_file file);
int tg_sync_range(tg_file file, uint64_t offset, uint64_t len);
enum {                          /* of tg_advise, as of posix_fadvise(2) */
	TG_NORMAL = 0,
	TG_SEQUENTIAL = 1,      /* read twice as far ahead */
	TG_RANDOM = 2,          /* nothing ahead */
	TG_WILL_NEED = 3,       /* begin to read the range */
	TG_DONT_NEED = 4,       /* drop the range's whole pages that are clean and not pinned: sync before it */
	TG_NO_REUSE = 5         /* reads by this handle are no uses: pages that nobody else uses are evicted first */
};

/* Advises on the reads of this handle, or on a range (`len` of 0: to the end of the file). */
int tg_advise(tg_file file, uint32_t advice, uint64_t offset, uint64_t len);
int tg_set_len(tg_file file, uint64_t len);
int64_t tg_len(tg_file file);
/* 1: its I/O bypasses the kernel's page cache; 0: it does not. */
int tg_is_direct(tg_file file);

/* A client of the program that is to be paced by itself; used by one thread at a time (TG_BUSY). */
int tg_writer_new(tg_cache cache, tg_writer *writer);
int tg_writer_free(tg_writer writer);
int64_t tg_pwrite_as(tg_file file, tg_writer writer, const void *data, size_t len, uint64_t offset);

/* Pages in the cache, without a copy: `len` bytes at `data` stay as they are until tg_unpin; a write to these pages goes to
 * other memory meanwhile. They count against the limit, at most a quarter of it: give them back soon. */
typedef struct tg_pin {
	const void *data; /* null: nothing is pinned */
	size_t len;
	uint64_t words[6];
} tg_pin;

/* `pages` pages (4096 bytes each) from `page` on, 1 to 512, in one piece; reads those that are missing. `len` is less
 * where the file ends in them. */
int tg_pin_pages(tg_file file, uint32_t page, uint32_t pages, tg_pin *pin);
/* Never waits: TG_AGAIN if they are not in the cache in one piece. */
int tg_try_pin_pages(tg_file file, uint32_t page, uint32_t pages, tg_pin *pin);
/* Gives them back; `data` is null then. The file may be closed by then. */
int tg_unpin(tg_pin *pin);

/* ---- Maps: a file's bytes as memory, within the limit and paced (docs/embed/map.md) ------------------------------ */

enum {                          /* of tg_map_new */
	TG_MAP_WRITE = 1,       /* for stores, too */
	TG_MAP_USER_MODE = 2    /* take less than full rights where the process has no more: loads and stores work; a system call
	                         * that is given memory of the map which is not there answers EFAULT */
};

/* Bytes of a file from a multiple of 4096 on (`len` of 0: to its end), in a cache with TG_MAPS; one map of a file at a time
 * (TG_BUSY). TG_SYSTEM: the process may not answer page faults, and tg_error() names what would let it.
 *
 * Calls on the file see what is stored at once; it is on the device when tg_map_sync or tg_sync has answered, and what was
 * not synced when the process ends is lost. An access that cannot be answered (the device fails or is full, the file was
 * cut) ends in SIGBUS. A child of a fork does not have the memory. Pages of a file that is mapped are not pinned (TG_BUSY). */
int tg_map_new(tg_file file, uint64_t offset, uint64_t len, uint32_t flags, tg_map *map);
/* The memory is no more; its stores are part of the file. The file may be closed before. */
int tg_map_free(tg_map map);
/* The first byte, or null. Whatever is loaded and stored, the cache's limit holds. */
void *tg_map_data(tg_map map);
int64_t tg_map_len(tg_map map);
/* What was stored in the range before the call is on the device, and the device flushed. Here and below a `len` of 0 means: to
 * the end of the map. */
int tg_map_sync(tg_map map, uint64_t offset, uint64_t len);
/* Brings the range into memory, as far as there is room. */
int tg_map_populate(tg_map map, uint64_t offset, uint64_t len);
/* As tg_advise, on the map's accesses. */
int tg_map_advise(tg_map map, uint32_t advice, uint64_t offset, uint64_t len);

/* `size` is sizeof(tg_map_stats), set by the caller. */
typedef struct tg_map_stats {
	uint32_t size;
	uint32_t user_mode;    /* 1: less than full rights, see TG_MAP_USER_MODE */
	uint64_t faults_total; /* accesses that had to be answered; of these: */
	uint64_t reads_total;  /* ... whose page was read from the device */
	uint64_t stores_total;
	uint64_t waited_total; /* ... for the device, for memory, for the end of a pause */
	uint64_t pages_total;  /* that they were answered with */
	uint64_t failed_total; /* that ended in SIGBUS */
	uint64_t resident;     /* bytes of the map in memory */
} tg_map_stats;

int tg_map_stats_of(tg_map map, tg_map_stats *stats);

/* ---- Regions: memory of the program under the same limit, which spills to the swap file ------------------------- */

int tg_region_new(tg_cache cache, uint64_t bytes, tg_region *region);
int tg_region_free(tg_region region);
int tg_region_read(tg_region region, void *data, size_t len, uint64_t offset);
int tg_region_write(tg_region region, const void *data, size_t len, uint64_t offset);
/* Whole pages; they read as zeroes again. */
int tg_region_discard(tg_region region, uint64_t offset, uint64_t len);

/* ---- For an event loop ------------------------------------------------------------------------------------------ */

enum { /* tg_request.operation */
	TG_READ = 1,
	TG_WRITE = 2,
	TG_SYNC = 3
};

typedef struct tg_request {
	uint32_t size;      /* sizeof(tg_request) */
	uint32_t operation;
	tg_file file;
	void *data;         /* the library's until the request is reaped; a write only reads it */
	size_t len;
	uint64_t offset;
	uint64_t tag;       /* comes back with the result */
} tg_request;

typedef struct tg_done {
	uint64_t tag;
	int64_t result; /* as of tg_pread, tg_pwrite, tg_sync */
	int system;     /* as tg_errno */
	int reserved;
} tg_done;

/* `depth`: requests at one time, 0 for 128. `threads`: as many that read, and as many that write; 0 for 4. */
int tg_queue_new(tg_cache cache, uint32_t depth, uint32_t threads, tg_queue *queue);
/* Waits for requests under way. */
int tg_queue_free(tg_queue queue);
/* An eventfd(2) of the queue's: readable while something is done and not reaped. Only to be waited for. */
int tg_queue_fd(tg_queue queue);
/* Never waits. TG_AGAIN: `depth` requests are under way. Requests end in any order. */
int tg_submit(tg_queue queue, const tg_request *request);
/* Never waits; answers how many it put there. tg_error() is that of the last one that failed. */
int64_t tg_reap(tg_queue queue, tg_done *done, size_t max);

/* ---- Readings --------------------------------------------------------------------------------------------------- */

/* `size` is sizeof(tg_stats), set by the caller. */
typedef struct tg_stats {
	uint32_t size;
	uint32_t reserved;
	uint64_t limit;
	uint64_t over_limit; /* memory beyond a limit that was lowered */
	uint64_t cached;
	uint64_t free;
	uint64_t pinned;
	uint64_t dirty;      /* written and not yet on its way to a device */
	uint64_t writeback;  /* on its way */
	uint64_t dirty_limit;
	uint64_t background_limit;
	uint64_t metadata;
	uint64_t anonymous;  /* regions */
	uint64_t swap_total;
	uint64_t swap_free;
	uint64_t dirtied_total;
	uint64_t written_total;
	uint64_t read_total;
	uint64_t reclaimed_total;
	uint64_t failed_total;
	uint64_t stalled_some_ns; /* for how long at least one caller was stalled for memory, and all were */
	uint64_t stalled_full_ns;
} tg_stats;

int tg_cache_stats(tg_cache cache, tg_stats *stats);

typedef struct tg_file_stats {
	uint32_t size;
	uint32_t reserved;
	uint64_t cached;
	uint64_t dirty;
	uint64_t writeback;
	uint64_t hits_total; /* pages, pins apart */
	uint64_t misses_total;
} tg_file_stats;

/* Counts the file's pages: some 10 ms for a GiB. */
int tg_file_stats_of(tg_file file, tg_file_stats *stats);

/* All waits of one cause: those of callers, and those of the cache's own threads ("room in flight" is the flusher's, and a
 * sync's that writes). The causes: docs/embed/why-did-my-program-wait.md. */
typedef struct tg_wait {
	char cause[32]; /* "dirty pause", "read", "memory", ... */
	uint64_t count;
	uint64_t timed_out; /* ended by a timeout that is only a safety net */
	uint64_t total_ns;
	uint64_t p50_ns;    /* at most twice the true value */
	uint64_t p99_ns;
	uint64_t max_ns;
} tg_wait;

/* Fills up to `max`; answers how many causes there are (`max` of 0: only that). Waits of the cache's own threads are among
 * them: "room in flight" is its flusher's, and normal. */
int64_t tg_cache_waits(tg_cache cache, tg_wait *waits, size_t max);
/* A counter by its name in /proc/vmstat: "pswpin", "workingset_refault_file", ... in pages. */
int tg_cache_counter(tg_cache cache, const char *name, uint64_t *value);

/* ---- One limit for several caches, of any author ---------------------------------------------------------------- */

/* A cache of the program's. `size` is sizeof(tg_shrinker). Its functions are called from the governor's thread, one call at a
 * time, with no lock of the governor's held; they must return. */
typedef struct tg_shrinker {
	uint32_t size;
	/* Bytes that could go now; cheap, may be stale. */
	uint64_t (*count)(void *data);
	/* Gives back up to `bytes` within `left_ns`, and calls tg_shrank for what it gave; answers how much that was. */
	uint64_t (*scan)(void *data, uint64_t bytes, uint64_t left_ns);
	/* `data` is not used any more; may be null. After tg_member_free, or later, from another thread, if a scan is under way. */
	void (*drop)(void *data);
} tg_shrinker;

/* Terms of a member. `size` is sizeof(tg_share); a field of 0 means the default. */
typedef struct tg_share {
	uint32_t size;
	uint64_t floor;        /* bytes never taken; 0 */
	uint64_t ceiling;      /* bytes beyond which it gets nothing; none */
	double weight;         /* 1/16 to 16; 1 */
	uint64_t miss_cost_ns; /* of a miss whose cost is not told; 100 us */
} tg_share;

/* A governor with a thread of its own. `limit`: for the resident memory of the process. */
int tg_governor_new(uint64_t limit, tg_governor *governor);
/* Members keep it going; free them first or after. */
int tg_governor_free(tg_governor governor);
int tg_governor_set_limit(tg_governor governor, uint64_t limit);
/* Writes a report of at most `size` bytes, a zero among them; answers how long it is without, 0 for an error. */
size_t tg_report(tg_governor governor, char *text, size_t size);

/* `share` may be null. If this fails, `drop` is not called. */
int tg_register(tg_governor governor, const char *name, const tg_share *share, const tg_shrinker *shrinker, void *data,
                tg_member *member);
/* The pages of a cache of this library as a member, with a floor of 16 MiB at least. Build it with as much memory as it shall
 * ever have, and do not set its limit from then on. The cache may be closed before tg_member_free. */
int tg_join(tg_governor governor, tg_cache cache, const char *name, const tg_share *share, tg_member *member);
int tg_member_free(tg_member member);

int tg_grew(tg_member member, uint64_t bytes);
int tg_shrank(tg_member member, uint64_t bytes);
uint64_t tg_held(tg_member member);
/* Memory before it is taken; counts as held until tg_release. Waits `timeout_ns` at most, and not above 10 s. */
int tg_reserve(tg_member member, uint64_t bytes, uint64_t timeout_ns);
int tg_release(tg_member member, uint64_t bytes);

/* The entry with this hash was evicted; was missed (`cost_ns`: 0 for that of the share); something was found. */
int tg_evicted(tg_member member, uint64_t hash, uint64_t bytes);
int tg_missed(tg_member member, uint64_t hash, uint64_t cost_ns);
int tg_used(tg_member member);

#ifdef __cplusplus
}
#endif
#endif
