/* Two caches of C under one limit: a table of buffers each, the oldest out first.
 *
 *   cc -O2 own_cache.c $(pkg-config --cflags --libs tidegate) -o own_cache
 */
#include <assert.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tidegate.h"

enum { SLOTS = 1 << 15, VALUE = 4096 };
static const uint64_t LIMIT = 48u << 20;

struct cache {
	pthread_mutex_t lock;
	tg_member member;
	char *slot[SLOTS];
	uint64_t oldest[SLOTS]; /* keys in the order in which they came */
	size_t first, entries;
};

/* With the lock: the oldest entry goes. */
static uint64_t pop(struct cache *cache)
{
	uint64_t key = cache->oldest[cache->first];
	cache->first = (cache->first + 1) % SLOTS;
	cache->entries--;
	free(cache->slot[key]);
	cache->slot[key] = NULL;
	tg_evicted(cache->member, key, VALUE);
	tg_shrank(cache->member, VALUE);
	return VALUE;
}

static uint64_t count(void *data)
{
	struct cache *cache = data;
	pthread_mutex_lock(&cache->lock);
	uint64_t bytes = (uint64_t)cache->entries * VALUE;
	pthread_mutex_unlock(&cache->lock);
	return bytes;
}

static uint64_t scan(void *data, uint64_t bytes, uint64_t left_ns)
{
	struct cache *cache = data;
	uint64_t freed = 0;
	(void)left_ns; /* A few microseconds a batch. */
	pthread_mutex_lock(&cache->lock);
	while (freed < bytes && cache->entries)
		freed += pop(cache);
	pthread_mutex_unlock(&cache->lock);
	return freed;
}

/* Answers whether it was there. */
static int get(struct cache *cache, uint64_t key)
{
	pthread_mutex_lock(&cache->lock);
	int found = cache->slot[key] != NULL;
	pthread_mutex_unlock(&cache->lock);
	if (found) {
		tg_used(cache->member);
		return 1;
	}
	tg_missed(cache->member, key, 100000);
	if (tg_reserve(cache->member, VALUE, 200000000) != TG_OK) {
		fprintf(stderr, "not cached: %s\n", tg_error());
		return 0;
	}
	char *value = malloc(VALUE);
	memset(value, 7, VALUE);
	pthread_mutex_lock(&cache->lock);
	cache->slot[key] = value;
	cache->oldest[(cache->first + cache->entries++) % SLOTS] = key;
	pthread_mutex_unlock(&cache->lock);
	return 0;
}

static void make(struct cache *cache, tg_governor governor, const char *name)
{
	tg_shrinker shrinker = { sizeof shrinker, count, scan, NULL };
	tg_share share = { .size = sizeof share, .floor = 1 << 20 };
	pthread_mutex_init(&cache->lock, NULL);
	int code = tg_register(governor, name, &share, &shrinker, cache, &cache->member);
	assert(code == TG_OK);
}

int main(void)
{
	static struct cache busy, idle;
	tg_governor governor;
	char text[2048];

	/* Bad input has a code and words. */
	assert(tg_governor_new(0, &governor) == TG_INVALID);
	assert(strstr(tg_error(), "limit"));
	assert(tg_governor_new(LIMIT, NULL) == TG_NULL);

	assert(tg_governor_new(LIMIT, &governor) == TG_OK);
	make(&busy, governor, "busy");
	make(&idle, governor, "idle");
	tg_shrinker twice = { sizeof twice, count, scan, NULL };
	tg_member none = { 0 };
	assert(tg_register(governor, "idle", NULL, &twice, NULL, &none) == TG_REGISTERED);
	tg_shrinker wrong = { 1, count, scan, NULL };
	assert(tg_register(governor, "wrong", NULL, &wrong, NULL, &none) == TG_INVALID);

	for (uint64_t key = 0; key < SLOTS / 4; key++)
		get(&idle, key);
	uint64_t random = 1, found = 0, gets = 400000;
	for (uint64_t n = 0; n < gets; n++) {
		random = random * 6364136223846793005u + 1;
		found += (uint64_t)get(&busy, (random >> 40) % ((SLOTS / 2) >> (random >> 61)));
		assert(tg_held(busy.member) + tg_held(idle.member) <= LIMIT);
	}
	tg_report(governor, text, sizeof text);
	printf("%llu of %llu found\n%s", (unsigned long long)found, (unsigned long long)gets, text);

	assert(tg_member_free(busy.member) == TG_OK && tg_member_free(idle.member) == TG_OK);
	assert(tg_member_free(idle.member) == TG_CLOSED && tg_grew(idle.member, 1) == TG_CLOSED);
	return tg_governor_free(governor);
}
