/* A store of keys and values as a log: one file in a Tidegate cache, an index in memory.
 *
 * A put appends a record; the newest record of a key counts. A get reads the value where it lies in the cache, without a
 * copy, if it does not cross a page. After a crash the log is read from its beginning, and ends at the first record whose
 * sum is wrong. When more than half of the log is of no use it is written anew, and the new file takes the old one's name.
 *
 *   cc -O2 store.c $(pkg-config --cflags --libs tidegate) -o store && ./store FOLDER
 */
#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tidegate.h"

enum { BUCKETS = 1 << 10, KEY_MAX = 64, VALUE_MAX = 1 << 20, DEAD = 0xffffffffu };

struct record { /* followed by the key and the value */
	uint32_t sum, key_len, value_len; /* value_len: DEAD for a key that was removed */
};

struct entry {
	struct entry *next;
	uint64_t at; /* of its record */
	uint32_t key_len, value_len;
	char key[];
};

struct store {
	tg_cache cache;
	tg_file log;
	char path[4096];
	uint64_t end, useful; /* bytes of the log, and of records that count */
	struct entry *buckets[BUCKETS];
};

/* Says what failed, for callers that cannot go on. */
static void need(int64_t answer, const char *what)
{
	if (answer >= 0)
		return;
	fprintf(stderr, "%s: %s (%s)\n", what, tg_error(), tg_code_name((int)answer));
	exit(1);
}

static uint32_t sum(uint32_t sum, const void *data, size_t len)
{
	for (const unsigned char *byte = data; len--; byte++)
		sum = (sum ^ *byte) * 16777619u;
	return sum;
}

static uint32_t sum_of(const struct record *record, const void *key, const void *value)
{
	uint32_t all = sum(2166136261u, &record->key_len, 8);
	all = sum(all, key, record->key_len);
	return record->value_len == DEAD ? all : sum(all, value, record->value_len);
}

static struct entry **find(struct store *store, const char *key, uint32_t len)
{
	struct entry **at = &store->buckets[sum(0, key, len) % BUCKETS];
	while (*at && ((*at)->key_len != len || memcmp((*at)->key, key, len)))
		at = &(*at)->next;
	return at;
}

static uint64_t size_of(const struct entry *entry)
{
	return sizeof(struct record) + entry->key_len + entry->value_len;
}

/* The index learns of a record at `at`. */
static void learn(struct store *store, const struct record *record, const char *key, uint64_t at)
{
	struct entry **place = find(store, key, record->key_len), *old = *place;
	if (old) {
		store->useful -= size_of(old);
		*place = old->next;
		free(old);
	}
	if (record->value_len == DEAD)
		return;
	struct entry *entry = malloc(sizeof *entry + record->key_len);
	*entry = (struct entry){ store->buckets[sum(0, key, record->key_len) % BUCKETS], at, record->key_len, record->value_len };
	memcpy(entry->key, key, record->key_len);
	store->buckets[sum(0, key, record->key_len) % BUCKETS] = entry;
	store->useful += size_of(entry);
}

/* Reads the log from its beginning; bytes behind the last whole record are cut off. */
static void recover(struct store *store)
{
	char key[KEY_MAX], *value = malloc(VALUE_MAX);
	struct record record;
	uint64_t end = 0;
	while (tg_pread(store->log, &record, sizeof record, end) == sizeof record) {
		uint32_t value_len = record.value_len == DEAD ? 0 : record.value_len;
		if (record.key_len > KEY_MAX || value_len > VALUE_MAX)
			break;
		struct iovec parts[2] = { { key, record.key_len }, { value, value_len } };
		int64_t len = (int64_t)record.key_len + value_len;
		if (tg_preadv(store->log, parts, 2, end + sizeof record) != len || sum_of(&record, key, value) != record.sum)
			break;
		learn(store, &record, key, end);
		end += sizeof record + (uint64_t)len;
	}
	free(value);
	need(tg_set_len(store->log, end), "cut the log");
	store->end = end;
}

static void append(struct store *store, const char *key, const void *value, uint32_t value_len)
{
	struct record record = { 0, (uint32_t)strlen(key), value_len };
	record.sum = sum_of(&record, key, value);
	struct iovec parts[3] = { { &record, sizeof record },
		{ (void *)key, record.key_len },
		{ (void *)value, value_len == DEAD ? 0 : value_len } };
	int64_t written = tg_pwritev(store->log, parts, 3, store->end);
	need(written, "append");
	learn(store, &record, key, store->end);
	store->end += (uint64_t)written;
}

/* Calls `show` with the value of a key; answers whether there is one. */
static int get(struct store *store, const char *key, void (*show)(void *with, const char *value, size_t len), void *with)
{
	struct entry *entry = *find(store, key, (uint32_t)strlen(key));
	if (!entry)
		return 0;
	uint64_t at = entry->at + sizeof(struct record) + entry->key_len;
	if (entry->value_len && at / 4096 == (at + entry->value_len - 1) / 4096) {
		tg_pin pin;
		need(tg_pin_pages(store->log, (uint32_t)(at / 4096), 1, &pin), "pin");
		show(with, (const char *)pin.data + at % 4096, entry->value_len);
		tg_unpin(&pin);
	} else {
		char *copy = malloc(entry->value_len);
		need(tg_pread(store->log, copy, entry->value_len, at), "read");
		show(with, copy, entry->value_len);
		free(copy);
	}
	return 1;
}

static void open_log(struct store *store, const char *path, uint32_t flags)
{
	need(tg_open(store->cache, path, TG_CREATE | flags, 0, &store->log), "open");
}

struct copy {
	struct store *to;
	const char *key;
};

static void copy_value(void *with, const char *value, size_t len)
{
	struct copy *copy = with;
	append(copy->to, copy->key, value, (uint32_t)len);
}

/* Writes what counts into a new log, which takes the old one's name when it is durable. */
static void rewrite(struct store *store)
{
	char path[4200];
	snprintf(path, sizeof path, "%s.new", store->path);
	struct store *fresh = calloc(1, sizeof *fresh);
	fresh->cache = store->cache;
	open_log(fresh, path, TG_TRUNCATE);
	for (size_t bucket = 0; bucket < BUCKETS; bucket++)
		for (struct entry *entry = store->buckets[bucket], *next; entry; entry = next) {
			char key[KEY_MAX + 1] = { 0 };
			memcpy(key, entry->key, entry->key_len);
			struct copy copy = { fresh, key };
			get(store, key, copy_value, &copy);
			store->buckets[bucket] = next = entry->next;
			free(entry);
		}
	need(tg_sync(fresh->log), "sync the new log");
	need(tg_file_discard(store->log), "discard the old log");
	if (rename(path, store->path))
		perror("rename"), exit(1);
	memcpy(store->buckets, fresh->buckets, sizeof store->buckets);
	store->log = fresh->log, store->end = fresh->end, store->useful = fresh->useful;
	free(fresh);
}

static void put(struct store *store, const char *key, const void *value, uint32_t len)
{
	assert(strlen(key) <= KEY_MAX && len <= VALUE_MAX);
	append(store, key, value, len);
	if (store->end > 1 << 20 && store->end > 2 * store->useful)
		rewrite(store);
}

static struct store *open_store(tg_cache cache, const char *path)
{
	struct store *store = calloc(1, sizeof *store);
	store->cache = cache;
	snprintf(store->path, sizeof store->path, "%s", path);
	open_log(store, path, 0);
	recover(store);
	return store;
}

static void close_store(struct store *store)
{
	need(tg_file_close(store->log), "close");
	for (size_t bucket = 0; bucket < BUCKETS; bucket++)
		for (struct entry *entry = store->buckets[bucket], *next; entry; entry = next)
			next = entry->next, free(entry);
	free(store);
}

/* ---- A run that checks it ---- */

static void is_of(void *with, const char *value, size_t len)
{
	unsigned number = *(unsigned *)with, first;
	assert(len == 100 + number % 5000);
	memcpy(&first, value, sizeof first);
	assert(first == number);
}

static void check(struct store *store, unsigned keys, unsigned round)
{
	for (unsigned number = 0; number < keys; number++) {
		char key[32];
		snprintf(key, sizeof key, "key %u", number);
		unsigned is = number + round;
		int there = get(store, key, is_of, &is);
		assert(there == (number % 7 != 3));
	}
}

int main(int argc, char **argv)
{
	enum { KEYS = 500, ROUNDS = 6 };
	char path[4096], value[8192] = { 0 };
	snprintf(path, sizeof path, "%s/store.log", argc > 1 ? argv[1] : ".");
	tg_cache_options options = { .size = sizeof options, .memory = 32 << 20 };
	tg_cache cache;
	need(tg_cache_new(&options, &cache), "build a cache");
	struct store *store = open_store(cache, path);
	for (unsigned round = 0; round < ROUNDS; round++)
		for (unsigned number = 0; number < KEYS; number++) {
			char key[32];
			snprintf(key, sizeof key, "key %u", number);
			unsigned is = number + round;
			memcpy(value, &is, sizeof is);
			put(store, key, value, 100 + is % 5000);
			if (number % 7 == 3)
				append(store, key, NULL, DEAD);
		}
	check(store, KEYS, ROUNDS - 1);
	/* As after a crash: half a record lies at the end. */
	need(tg_pwrite(store->log, value, 17, store->end), "write half a record");
	uint64_t end = store->end;
	close_store(store);
	store = open_store(cache, path);
	assert(store->end == end);
	check(store, KEYS, ROUNDS - 1);
	tg_stats stats = { .size = sizeof stats };
	need(tg_cache_stats(cache, &stats), "stats");
	printf("%u keys in %llu bytes of log, %llu bytes cached of %llu\n", KEYS, (unsigned long long)store->end,
	       (unsigned long long)stats.cached, (unsigned long long)stats.limit);
	close_store(store);
	need(tg_cache_close(cache), "close the cache");
	return remove(path) != 0;
}
