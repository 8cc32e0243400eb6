/* A table of counters in a mapped file, larger than the memory that it may take.
 *
 * A slot is a key and its count; a key lies at its hash, or behind it. The table is plain memory here: the cache reads the
 * pages that are touched, keeps those that are used, writes those that were stored to, and holds its limit meanwhile.
 *
 *   cc -O2 counts.c $(pkg-config --cflags --libs tidegate) -o counts && ./counts FOLDER
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tidegate.h"

enum { SLOTS = 1 << 22, KEYS = 1 << 20, COUNTED = 200 * 1000, MEMORY = 16 << 20 };

struct slot {
	uint64_t key, count; /* a key of 0: free */
};

static uint64_t mixed(uint64_t key)
{
	key = (key ^ (key >> 31)) * 0x9e3779b97f4a7c15u;
	return key ^ (key >> 29);
}

static struct slot *find(struct slot *table, uint64_t key)
{
	uint64_t at = mixed(key) % SLOTS;
	while (table[at].key && table[at].key != key)
		at = (at + 1) % SLOTS;
	return &table[at];
}

static uint64_t key_of(uint64_t number)
{
	return 1 + mixed(number) % KEYS;
}

static int failed(const char *what)
{
	fprintf(stderr, "%s: %s\n", what, tg_error());
	return 1;
}

/* Counts into the file at `path`, which is made. */
static int count(const char *path)
{
	tg_cache_options options = { .size = sizeof options, .memory = MEMORY, .flags = TG_MAPS };
	tg_map_stats stats = { .size = sizeof stats };
	tg_cache cache;
	tg_file file;
	tg_map map;
	if (tg_cache_new(&options, &cache) < 0 || tg_open(cache, path, TG_CREATE | TG_TRUNCATE, 0, &file) < 0
	    || tg_set_len(file, SLOTS * sizeof(struct slot)) < 0)
		return failed(path);
	if (tg_map_new(file, 0, 0, TG_MAP_WRITE, &map) < 0)
		return failed("map");
	tg_map_advise(map, TG_RANDOM, 0, 0);
	struct slot *table = tg_map_data(map);
	for (uint64_t number = 0; number < COUNTED; number++) {
		struct slot *slot = find(table, key_of(number));
		slot->key = key_of(number);
		slot->count++;
	}
	/* Without this the counts would be lost with the process; tg_cache_close does it, too. */
	if (tg_map_sync(map, 0, 0) < 0)
		return failed("sync");
	tg_map_stats_of(map, &stats);
	printf("%zu MiB counted in with %llu MiB resident: %llu faults, %llu pages read\n", SLOTS * sizeof(struct slot) >> 20,
	       (unsigned long long)stats.resident >> 20, (unsigned long long)stats.faults_total,
	       (unsigned long long)stats.reads_total);
	if (stats.resident > MEMORY)
		return 1;
	return tg_map_free(map) < 0 || tg_cache_close(cache) < 0 ? failed("close") : 0;
}

int main(int argc, char **argv)
{
	static uint64_t wanted[KEYS + 1];
	char path[4096];
	struct slot slot;
	uint64_t wrong = 0;
	snprintf(path, sizeof path, "%s/counts", argc > 1 ? argv[1] : ".");
	if (count(path) != 0)
		return strstr(tg_error(), "answer no page faults") ? 0 : 1; /* the words have said what would let it */
	/* What another program reads in the file. */
	for (uint64_t number = 0; number < COUNTED; number++)
		wanted[key_of(number)]++;
	FILE *read = fopen(path, "rb");
	while (read && fread(&slot, sizeof slot, 1, read) == 1) {
		if (slot.key > KEYS || (slot.key && wanted[slot.key] != slot.count))
			wrong++;
		else
			wanted[slot.key] = 0;
	}
	for (uint64_t key = 1; key <= KEYS; key++)
		wrong += wanted[key] != 0;
	printf("%llu counts of the file are wrong\n", (unsigned long long)wrong);
	return !read || wrong || remove(path) != 0;
}
