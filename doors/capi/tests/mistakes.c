/* Each mistake of a caller is answered with a code and words, and leaves the library as it was. */
#include <assert.h>
#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tidegate.h"

static char folder[4096];

static const char *path(const char *name)
{
	static _Thread_local char text[4200];
	snprintf(text, sizeof text, "%s/%s", folder, name);
	return text;
}

static void is(int64_t answer, int code, const char *words, int line)
{
	if (answer != code || (code < 0 && !strstr(tg_error(), words))) {
		fprintf(stderr, "line %d: %lld (%s), not %s: '%s', not '%s'\n", line, (long long)answer,
		        answer < 0 ? tg_code_name((int)answer) : "well", tg_code_name(code), tg_error(), words);
		exit(1);
	}
}
#define IS(call, code, words) is(call, code, words, __LINE__)
#define OK(call) is((call) < 0 ? (call) : 0, 0, "", __LINE__)

static tg_cache make(void)
{
	tg_cache_options options = { .size = sizeof options, .memory = 16 << 20 };
	tg_cache cache;
	OK(tg_cache_new(&options, &cache));
	return cache;
}

static tg_file make_file(tg_cache cache, const char *name)
{
	tg_file file;
	OK(tg_open(cache, path(name), TG_CREATE | TG_TRUNCATE, 0, &file));
	return file;
}

static void handles(void)
{
	char bytes[100] = "some bytes";
	tg_cache cache = make(), none = { 0 };
	tg_file file = make_file(cache, "handles"), closed = file, nothing = { 0 };

	IS(tg_pread(nothing, bytes, 1, 0), TG_NULL, "handle of the file is null");
	IS(tg_cache_sync(none), TG_NULL, "handle of the cache is null");
	IS(tg_cache_sync((tg_cache){ file.id }), TG_KIND, "a handle of a file stands where one of a cache is wanted");
	IS(tg_sync((tg_file){ 0x123456789abcdefu }), TG_KIND, "no handle of a file");
	IS(tg_pread(file, NULL, 1, 0), TG_NULL, "data is null");
	OK(tg_pread(file, NULL, 0, 0));
	IS(tg_open(cache, NULL, 0, 0, &file), TG_NULL, "path is null");
	IS(tg_open(cache, path("x"), 0, 0, NULL), TG_NULL, "file is null");
	IS(tg_open(cache, path("absent"), 0, 0, &file), TG_SYSTEM, "absent");
	assert(tg_errno() == ENOENT);
	IS(tg_open(cache, path("x"), 1 << 20, 0, &file), TG_INVALID, "flags");
	IS(tg_open(cache, path("x"), TG_RDONLY | TG_CREATE, 0, &file), TG_INVALID, "create");
	file = closed;

	OK(tg_pwrite(file, bytes, sizeof bytes, 0));
	OK(tg_file_close(file));
	IS(tg_file_close(file), TG_CLOSED, "the file is closed");
	IS(tg_pread(file, bytes, 1, 0), TG_CLOSED, "the file is closed");
	/* The slot is used again, the number is not. */
	tg_file other = make_file(cache, "handles");
	assert(other.id != closed.id);
	IS(tg_file_close(closed), TG_CLOSED, "the file is closed");
	OK(tg_len(other));

	tg_writer writer;
	OK(tg_writer_new(cache, &writer));
	OK(tg_pwrite_as(other, writer, bytes, 10, 0));
	OK(tg_writer_free(writer));
	IS(tg_writer_free(writer), TG_CLOSED, "the writer is closed");
	IS(tg_pwrite_as(other, writer, bytes, 10, 0), TG_CLOSED, "the writer is closed");

	/* A cache takes what is open in it along. */
	OK(tg_writer_new(cache, &writer));
	OK(tg_cache_close(cache));
	IS(tg_cache_close(cache), TG_CLOSED, "the cache is closed");
	IS(tg_len(other), TG_CLOSED, "the file is closed");
	IS(tg_writer_free(writer), TG_CLOSED, "the writer is closed");
}

static void options(void)
{
	tg_cache cache;
	IS(tg_cache_new(NULL, NULL), TG_NULL, "cache is null");
	tg_cache_options options = { .size = 4 };
	IS(tg_cache_new(&options, &cache), TG_INVALID, "options.size is 4");
	options.size = sizeof options, options.memory = 4096;
	IS(tg_cache_new(&options, &cache), TG_INVALID, "too small");
	options.memory = 16 << 20, options.dirty_percent = 300;
	IS(tg_cache_new(&options, &cache), TG_INVALID, "dirty_percent is 300");
	options.dirty_percent = 20, options.dirty_bytes = 1;
	IS(tg_cache_new(&options, &cache), TG_INVALID, "both set");
	options.dirty_bytes = 0, options.flags = 1 << 30;
	IS(tg_cache_new(&options, &cache), TG_INVALID, "flags has 0x40000000");
	options.flags = 0, options.page_rule = "belady";
	IS(tg_cache_new(&options, &cache), TG_INVALID, "s3-fifo");
	options.page_rule = "lirs", options.layers = "slow:speed=1";
	IS(tg_cache_new(&options, &cache), TG_INVALID, "speed");
	/* A caller that knows only the first fields. */
	options.layers = "garbage", options.size = 16;
	OK(tg_cache_new(&options, &cache));
	OK(tg_cache_close(cache));
	uint64_t bytes;
	OK(tg_size("64MiB", &bytes));
	assert(bytes == 64 << 20);
	IS(tg_size("64 apples", &bytes), TG_INVALID, "apples");
}

static void pins(void)
{
	char bytes[3 * 4096 + 100];
	tg_cache cache = make();
	tg_file file = make_file(cache, "pins");
	memset(bytes, 'a', sizeof bytes);
	OK(tg_pwrite(file, bytes, sizeof bytes, 0));
	tg_pin pin = { 0 }, run, last;
	IS(tg_unpin(&pin), TG_CLOSED, "the pin is empty");
	IS(tg_unpin(NULL), TG_NULL, "pin is null");
	IS(tg_pin_pages(file, 0, 0, &pin), TG_INVALID, "");
	IS(tg_pin_pages(file, 77, 1, &pin), TG_INVALID, "");
	OK(tg_pin_pages(file, 0, 1, &pin));
	OK(tg_pin_pages(file, 0, 3, &run));
	OK(tg_pin_pages(file, 3, 1, &last));
	assert(pin.len == 4096 && run.len == 3 * 4096 && last.len == 100);
	/* A pin is a snapshot. */
	memset(bytes, 'b', sizeof bytes);
	OK(tg_pwrite(file, bytes, sizeof bytes, 0));
	for (size_t at = 0; at < run.len; at++)
		assert(((const char *)run.data)[at] == 'a');
	IS(tg_cache_close(cache), TG_BUSY, "pinned");
	OK(tg_sync(file));
	IS(tg_advise(file, 77, 0, 0), TG_INVALID, "advice is 77");
	OK(tg_advise(file, TG_DONT_NEED, 0, 0));
	OK(tg_advise(file, TG_WILL_NEED, 0, 0));
	/* The bytes outlive the file. */
	OK(tg_file_close(file));
	assert(((const char *)pin.data)[4095] == 'a' && ((const char *)last.data)[99] == 'a');
	IS(tg_cache_close(cache), TG_BUSY, "pinned");
	OK(tg_unpin(&run));
	OK(tg_unpin(&last));
	OK(tg_unpin(&pin));
	IS(tg_unpin(&pin), TG_CLOSED, "the pin is empty");
	OK(tg_cache_close(cache));
}

static void bad_disk(void)
{
	char bytes[4096] = { 1 };
	tg_cache_options options = { .size = sizeof options, .memory = 16 << 20, .layers = "faulty:eio_write_at=1" };
	tg_cache cache;
	OK(tg_cache_new(&options, &cache));
	tg_file file = make_file(cache, "bad");
	OK(tg_pwrite(file, bytes, sizeof bytes, 0));
	IS(tg_file_close(file), TG_IO, "bad");
	assert(tg_errno() == EIO);
	/* It is still open, and has lost nothing. */
	OK(tg_sync(file));
	OK(tg_file_close(file));
	OK(tg_open(cache, path("bad"), TG_RDONLY, 0, &file));
	IS(tg_pwrite(file, bytes, 1, 0), TG_READ_ONLY, "reading only");
	tg_stats stats = { .size = sizeof stats };
	OK(tg_cache_stats(cache, &stats));
	assert(stats.failed_total >= 4096 && stats.limit == 16 << 20);
	stats.size = 7;
	IS(tg_cache_stats(cache, &stats), TG_INVALID, "stats.size is 7");
	uint64_t value;
	OK(tg_cache_counter(cache, "pgscan_direct", &value));
	IS(tg_cache_counter(cache, "cats", &value), TG_INVALID, "cats");
	OK(tg_cache_close(cache));
}

static void a_slow_disk_has_names(void)
{
	static char bytes[4 << 20];
	tg_cache_options options = { .size = sizeof options, .memory = 16 << 20, .layers = "slow:rate=8MB" };
	tg_cache cache;
	OK(tg_cache_new(&options, &cache));
	tg_file file = make_file(cache, "slow");
	for (int at = 0; at < 2; at++)
		OK(tg_pwrite(file, bytes, sizeof bytes, (uint64_t)at * sizeof bytes));
	OK(tg_sync(file));
	tg_wait waits[32];
	int64_t count = tg_cache_waits(cache, waits, 32);
	assert(count > 0 && count == tg_cache_waits(cache, NULL, 0));
	int found = 0;
	for (int at = 0; at < count; at++)
		found |= waits[at].count > 0 && waits[at].max_ns > 0 && strlen(waits[at].cause) > 3;
	assert(found);
	OK(tg_cache_release_layers(cache));
	OK(tg_cache_close(cache));
}

static tg_file shared;

static void *reads(void *unused)
{
	char bytes[64];
	int64_t answer;
	while ((answer = tg_pread(shared, bytes, sizeof bytes, 0)) == sizeof bytes)
		;
	assert(answer == TG_CLOSED);
	return unused;
}

/* Threads that use a file while it is closed, and end with a writer of their own. */
static void *writes(void *data)
{
	tg_file *file = data;
	OK(tg_pwrite(*file, "thread", 6, 0));
	return NULL;
}

static void threads(void)
{
	char bytes[64] = { 0 };
	tg_cache cache = make();
	for (int round = 0; round < 200; round++) {
		pthread_t thread[3];
		shared = make_file(cache, "shared");
		OK(tg_pwrite(shared, bytes, sizeof bytes, 0));
		for (int at = 0; at < 3; at++)
			pthread_create(&thread[at], NULL, reads, NULL);
		OK(tg_file_close(shared));
		for (int at = 0; at < 3; at++)
			pthread_join(thread[at], NULL);
	}
	tg_file file = make_file(cache, "ends");
	for (int at = 0; at < 20; at++) {
		pthread_t thread;
		pthread_create(&thread, NULL, writes, &file);
		pthread_join(thread, NULL);
	}
	OK(tg_cache_close(cache));
}

static void forks(void)
{
	tg_cache cache = make();
	tg_file file = make_file(cache, "forks");
	pid_t child = fork();
	if (child == 0) {
		IS(tg_pwrite(file, "x", 1, 0), TG_FORKED, "before the fork");
		IS(tg_cache_close(cache), TG_FORKED, "before the fork");
		tg_cache own = make();
		tg_file other = make_file(own, "child");
		OK(tg_pwrite(other, "x", 1, 0));
		OK(tg_file_close(other));
		OK(tg_cache_close(own));
		_exit(0);
	}
	int status;
	waitpid(child, &status, 0);
	assert(status == 0);
	OK(tg_pwrite(file, "x", 1, 0));
	OK(tg_cache_close(cache));
}

static void queue(void)
{
	enum { MANY = 100 };
	static char out[MANY][4096], in[MANY][4096];
	tg_cache cache = make();
	tg_file file = make_file(cache, "queue");
	tg_queue queue;
	IS(tg_queue_new(cache, 0, 1000, &queue), TG_INVALID, "threads is 1000");
	OK(tg_queue_new(cache, MANY, 2, &queue));
	IS(tg_cache_close(cache), TG_BUSY, "queue");
	tg_request request = { .size = sizeof request, .operation = 9, .file = file };
	IS(tg_submit(queue, &request), TG_INVALID, "operation is 9");
	IS(tg_submit(queue, NULL), TG_NULL, "request is null");
	struct pollfd poll_queue = { tg_queue_fd(queue), POLLIN, 0 };
	assert(poll(&poll_queue, 1, 0) == 0);
	for (int phase = 0; phase < 3; phase++) {
		int count = phase == 1 ? 1 : MANY;
		for (int at = 0; at < count; at++) {
			memset(out[at], at, 4096);
			request.operation = phase == 0 ? TG_WRITE : phase == 1 ? TG_SYNC : TG_READ;
			request.data = phase == 0 ? out[at] : in[at];
			request.len = phase == 1 ? 0 : 4096;
			request.offset = (uint64_t)at * 4096;
			request.tag = (uint64_t)at;
			OK(tg_submit(queue, &request));
		}
		if (phase != 1)
			IS(tg_submit(queue, &request), TG_AGAIN, "under way");
		for (int left = count; left > 0;) {
			tg_done done[7];
			assert(poll(&poll_queue, 1, 20000) == 1);
			int64_t reaped = tg_reap(queue, done, 7);
			assert(reaped > 0);
			for (int at = 0; at < reaped; at++)
				assert(done[at].result == (phase == 1 ? 0 : 4096) && done[at].tag < MANY);
			left -= (int)reaped;
		}
		assert(poll(&poll_queue, 1, 0) == 0);
	}
	assert(memcmp(in, out, sizeof in) == 0);
	request.operation = TG_WRITE, request.file = (tg_file){ 0 };
	IS(tg_submit(queue, &request), TG_NULL, "file is null");
	OK(tg_queue_free(queue));
	OK(tg_cache_close(cache));
}

static void region(void)
{
	static char bytes[1 << 20], back[1 << 20];
	tg_cache_options options = { .size = sizeof options, .memory = 16 << 20, .swap_path = path("swap"), .swap_bytes = 64 << 20 };
	tg_cache cache;
	OK(tg_cache_new(&options, &cache));
	tg_region region;
	OK(tg_region_new(cache, 32 << 20, &region));
	for (int at = 0; at < 32; at++) {
		memset(bytes, at, sizeof bytes);
		OK(tg_region_write(region, bytes, sizeof bytes, (uint64_t)at << 20));
	}
	OK(tg_region_read(region, back, sizeof back, 3 << 20));
	assert(back[0] == 3 && back[sizeof back - 1] == 3);
	IS(tg_region_read(region, back, sizeof back, 32 << 20), TG_INVALID, "");
	OK(tg_region_discard(region, 0, 32 << 20));
	OK(tg_region_free(region));
	IS(tg_region_free(region), TG_CLOSED, "the region is closed");
	OK(tg_cache_close(cache));
}

/* A child that has no right to answer page faults is told the ways out; one of them works. */
static void map_without_rights(void)
{
	pid_t child = fork();
	if (child == 0) {
		tg_cache_options options = { .size = sizeof options, .memory = 16 << 20, .flags = TG_MAPS };
		tg_cache cache;
		OK(tg_cache_new(&options, &cache));
		tg_file file = make_file(cache, "nobody");
		OK(tg_set_len(file, 1 << 20));
		if (setuid(65534) != 0)
			_exit(0);
		tg_map map = { 0 };
		if (access("/dev/userfaultfd", R_OK | W_OK) == 0 || tg_map_new(file, 0, 0, TG_MAP_WRITE, &map) == TG_OK)
			_exit(0); /* everybody has it here */
		IS(tg_map_new(file, 0, 0, TG_MAP_WRITE, &map), TG_SYSTEM, "vm.unprivileged_userfaultfd=1");
		assert(map.id == 0 && (tg_errno() == EPERM || tg_errno() == EACCES) && strstr(tg_error(), "--device /dev/userfaultfd"));
		if (tg_map_new(file, 0, 0, TG_MAP_WRITE | TG_MAP_USER_MODE, &map) == TG_OK) {
			tg_map_stats stats = { .size = sizeof stats };
			((volatile char *)tg_map_data(map))[5000] = 'u';
			OK(tg_map_stats_of(map, &stats));
			assert(stats.user_mode == 1 && stats.stores_total > 0);
			OK(tg_map_free(map));
		}
		OK(tg_file_discard(file));
		OK(tg_cache_close(cache));
		_exit(0);
	}
	int status;
	waitpid(child, &status, 0);
	assert(status == 0);
}

static void maps(void)
{
	enum { LEN = 32 << 20, LIMIT = 16 << 20 };
	char byte = 0;
	tg_map map, other = { 0 };
	tg_cache without = make();
	tg_file file = make_file(without, "maps");
	OK(tg_set_len(file, LEN));
	IS(tg_map_new(file, 0, 0, 0, &map), TG_INVALID, "option `maps` is 0");
	OK(tg_cache_close(without));

	tg_cache_options options = { .size = sizeof options, .memory = LIMIT, .flags = TG_MAPS };
	tg_cache cache;
	OK(tg_cache_new(&options, &cache));
	OK(tg_open(cache, path("maps"), TG_RDONLY, 0, &file));
	IS(tg_map_new(file, 0, 0, TG_MAP_WRITE, &map), TG_READ_ONLY, "reading only");
	OK(tg_file_close(file));
	OK(tg_open(cache, path("maps"), 0, 0, &file));
	IS(tg_map_new(file, 0, 0, 0, NULL), TG_NULL, "map is null");
	IS(tg_map_new(file, 0, 0, 4, &map), TG_INVALID, "flags has 0x4");
	IS(tg_map_new(file, 100, 0, 0, &map), TG_INVALID, "4096");
	IS(tg_map_new(file, 0, LEN + 1, 0, &map), TG_INVALID, "");
	IS(tg_map_new(file, 0, UINT64_MAX, 0, &map), TG_INVALID, "");
	IS(tg_map_new(file, LEN, 0, 0, &map), TG_INVALID, "");
	IS(tg_map_sync(other, 0, 0), TG_NULL, "handle of the map is null");
	int code = tg_map_new(file, 4096, 0, TG_MAP_WRITE, &map);
	if (code == TG_SYSTEM) {
		printf("SKIPPED: maps: %s\n", tg_error());
		OK(tg_cache_close(cache));
		return;
	}
	OK(code);
	volatile char *bytes = tg_map_data(map);
	assert(bytes && tg_map_len(map) == LEN - 4096);
	IS(tg_map_new(file, 0, 0, 0, &other), TG_BUSY, "the file is mapped");
	tg_pin pin = { 0 };
	IS(tg_pin_pages(file, 1, 1, &pin), TG_BUSY, "the file is mapped");
	IS(tg_map_sync((tg_map){ file.id }, 0, 0), TG_KIND, "a handle of a file stands where one of a map is wanted");
	IS(tg_map_sync(map, 0, LEN), TG_INVALID, "");
	IS(tg_map_populate(map, LEN, 1), TG_INVALID, "");
	IS(tg_map_advise(map, 77, 0, 0), TG_INVALID, "advice is 77");

	/* All of it is stored to, and the limit holds; calls see it at once. */
	for (size_t at = 0; at < LEN - 4096; at += 4096)
		bytes[at] = (char)(at >> 12);
	tg_map_stats stats = { .size = sizeof stats };
	OK(tg_map_stats_of(map, &stats));
	assert(stats.resident > 0 && stats.resident <= LIMIT && stats.stores_total > 0 && !stats.failed_total && !stats.user_mode);
	stats.size = 7;
	IS(tg_map_stats_of(map, &stats), TG_INVALID, "stats.size is 7");
	OK(tg_pread(file, &byte, 1, 4096 + (77 << 12)));
	assert(byte == 77);
	OK(tg_pwrite(file, (const void *)(bytes + 4096), 1, 4096)); /* from the map to itself */
	assert(bytes[0] == 1);
	OK(tg_map_sync(map, 0, 0));
	OK(tg_map_advise(map, TG_DONT_NEED, 0, 0));
	OK(tg_map_advise(map, TG_RANDOM, 0, 0));
	OK(tg_map_populate(map, 0, 1 << 20));

	IS(tg_cache_close(cache), TG_BUSY, "maps: the file is mapped");
	OK(tg_file_close(file));
	bytes[5 << 12] = 'x';
	pid_t child = fork();
	if (child == 0) {
		IS(tg_map_sync(map, 0, 0), TG_FORKED, "before the fork");
		assert(tg_map_data(map) == NULL);
		_exit(0);
	}
	int status;
	waitpid(child, &status, 0);
	assert(status == 0 && bytes[5 << 12] == 'x');
	OK(tg_map_free(map));
	IS(tg_map_free(map), TG_CLOSED, "the map is closed");
	assert(tg_map_data(map) == NULL);
	IS(tg_map_len(map), TG_CLOSED, "the map is closed");
	OK(tg_cache_close(cache));

	FILE *read = fopen(path("maps"), "rb");
	assert(read && fseek(read, 4096 + (5 << 12), SEEK_SET) == 0 && fgetc(read) == 'x');
	fclose(read);
	map_without_rights();
}

int main(int argc, char **argv)
{
	snprintf(folder, sizeof folder, "%s", argc > 1 ? argv[1] : ".");
	assert(strcmp(tg_error(), "") == 0);
	options();
	handles();
	pins();
	bad_disk();
	a_slow_disk_has_names();
	threads();
	queue();
	region();
	maps();
	forks();
	puts("all mistakes were told");
	return 0;
}
