/* The twin in C of cache/tidegate/benches/hit.rs: a page hit (pin and unpin), a read and a write of 4 KiB that are in the
 * cache, on one thread.
 *
 *   cc -O2 hit.c $(pkg-config --cflags --libs tidegate) -o hit && ./hit FOLDER
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "tidegate.h"

enum { PAGES = 4096, ROUNDS = 2000000 };

static void need(int64_t answer)
{
	if (answer >= 0)
		return;
	fprintf(stderr, "%s\n", tg_error());
	exit(1);
}

static double now(void)
{
	struct timespec time;
	clock_gettime(CLOCK_MONOTONIC, &time);
	return (double)time.tv_sec * 1e9 + (double)time.tv_nsec;
}

/* Pages in an order that no prefetcher guesses. */
static uint32_t scatter(uint32_t at)
{
	return at * 2654435761u % PAGES;
}

int main(int argc, char **argv)
{
	static char page[4096], all[PAGES * 4096];
	volatile char seen;
	char path[4096];
	tg_cache_options options = { .size = sizeof options, .memory = 64 << 20 };
	tg_cache cache;
	tg_file file;
	snprintf(path, sizeof path, "%s/hit", argc > 1 ? argv[1] : ".");
	memset(all, 1, sizeof all);
	need(tg_cache_new(&options, &cache));
	need(tg_open(cache, path, TG_CREATE, 0, &file));
	need(tg_pwrite(file, all, sizeof all, 0));
	need(tg_sync(file));
	for (int round = 0; round < 5; round++) {
		double began = now();
		for (uint32_t at = 0; at < ROUNDS; at++) {
			tg_pin pin;
			need(tg_try_pin_pages(file, scatter(at), 1, &pin));
			seen = *(const char *)pin.data;
			tg_unpin(&pin);
		}
		double pinned = now();
		for (uint32_t at = 0; at < ROUNDS; at++)
			need(tg_pread(file, page, sizeof page, (uint64_t)scatter(at) * 4096));
		double read = now();
		for (uint32_t at = 0; at < ROUNDS / 4; at++)
			need(tg_pwrite(file, page, sizeof page, (uint64_t)scatter(at) % 512 * 4096));
		double written = now();
		printf("hit (pin + unpin) %.1f ns; pread 4 KiB %.1f ns; pwrite 4 KiB %.1f ns\n", (pinned - began) / ROUNDS,
		       (read - pinned) / ROUNDS, (written - read) / (ROUNDS / 4));
	}
	(void)seen;
	need(tg_cache_close(cache));
	return remove(path);
}
