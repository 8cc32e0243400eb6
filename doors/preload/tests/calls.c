/* A program that knows nothing of Tidegate, under libtidegate-preload.so with 16 MiB: each call on a map of a file does what it
 * does with the kernel's, and the limit holds. With the word `nobody` it goes on as nobody, whose maps are the kernel's if nobody
 * may answer page faults; or, if that word is `allocator`, it does what an allocator in place of the C library's has a part in. */
#define _GNU_SOURCE
#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <unistd.h>

enum { MIB = 1 << 20, LEN = 48 * MIB, PAGE = 4096, LIMIT = 16 * MIB };

static const char path[] = "preload";
static int ours;

/* True if this process may answer page faults, those of system calls, too. */
static int has_rights(void)
{
	return open("/dev/userfaultfd", O_RDWR | O_CLOEXEC) >= 0 || syscall(SYS_userfaultfd, O_CLOEXEC) >= 0;
}

/* True if the memory is a map of the library's. */
static int is_ours(const void *at)
{
	char line[8192];
	unsigned long from, to;
	int found = 0;
	FILE *maps = fopen("/proc/self/maps", "r");
	while (fgets(line, sizeof line, maps))
		if (sscanf(line, "%lx-%lx", &from, &to) == 2 && from <= (unsigned long)at && (unsigned long)at < to)
			found = strstr(line, "memfd:tidegate-map") != NULL;
	fclose(maps);
	return found;
}

/* Bytes of the process that are in memory, each once. */
static size_t resident(void)
{
	char line[256];
	size_t kib = 0;
	FILE *file = fopen("/proc/self/smaps_rollup", "r");
	while (fgets(line, sizeof line, file))
		if (sscanf(line, "Pss: %zu", &kib) == 1)
			break;
	fclose(file);
	return kib << 10;
}

static int make(void)
{
	int fd = open(path, O_RDWR | O_CREAT | O_TRUNC, 0666);
	assert(fd >= 0 && ftruncate(fd, LEN) == 0);
	return fd;
}

static unsigned char *map(int fd, size_t len, int access, off_t offset)
{
	unsigned char *at = mmap(NULL, len, access, MAP_SHARED, fd, offset);
	assert(at != MAP_FAILED && is_ours(at) == ours);
	return at;
}

static unsigned char of(size_t page)
{
	return (unsigned char)(page * 7 + page / 256);
}

/* The file as the kernel has it, once nothing is mapped. */
static void file_is(size_t first, size_t end)
{
	unsigned char byte;
	int fd = open(path, O_RDONLY);
	for (size_t page = first; page < end; page++)
		assert(pread(fd, &byte, 1, (off_t)page * PAGE) == 1 && byte == of(page));
	close(fd);
}

static void stores(void)
{
	size_t before = resident(), most = 0;
	int fd = make();
	unsigned char *at = map(fd, LEN, PROT_READ | PROT_WRITE, 0), byte = 0, two[2];
	close(fd);
	for (size_t page = 0; page < LEN / PAGE; page++) {
		at[page * PAGE] = of(page);
		if (page % 1024 == 0 && resident() > most)
			most = resident();
	}
	/* 2 MiB: page tables, threads, the library's own. */
	assert(!ours || most < before + LIMIT + 2 * MIB);

	/* Calls see what was stored, and the map what calls write. */
	fd = open(path, O_RDWR);
	at[77 * PAGE + 2] = 22; /* just now: it is in memory alone */
	assert(pread(fd, &byte, 1, 77 * PAGE) == 1 && byte == of(77));
	assert(pread(fd, &byte, 1, 77 * PAGE + 2) == 1 && byte == 22);
	byte = 0xaa;
	assert(pwrite(fd, &byte, 1, 77 * PAGE + 1) == 1 && at[77 * PAGE + 1] == 0xaa);
	assert(lseek(fd, 78 * PAGE, SEEK_SET) == 78 * PAGE && read(fd, &byte, 1) == 1 && byte == of(78));
	assert(write(fd, "x", 1) == 1 && at[78 * PAGE + 1] == 'x' && lseek(fd, 0, SEEK_CUR) == 78 * PAGE + 2);
	struct iovec parts[2] = { { two, 1 }, { two + 1, 1 } };
	assert(preadv(fd, parts, 2, 78 * PAGE) == 2 && two[0] == of(78) && two[1] == 'x');
	assert(pread(fd, at + 100 * PAGE, PAGE, 99 * PAGE) == PAGE && at[100 * PAGE] == of(99)); /* into the map itself */
	at[100 * PAGE] = of(100);
	assert(flock(fd, LOCK_EX | LOCK_NB) == 0 && flock(fd, LOCK_UN) == 0);

	/* A second map of a part is the same bytes, and ends by itself. */
	unsigned char *other = map(fd, 16 * MIB, PROT_READ, 8 * MIB);
	at[8 * MIB + 5] = 55;
	assert(other[5] == 55 && munmap(other, 16 * MIB) == 0 && at[8 * MIB + 5] == 55);

	assert(madvise(at, LEN, MADV_SEQUENTIAL) == 0 && madvise(at, LEN, MADV_HUGEPAGE) <= 0);
	assert(msync(at, LEN, MS_SYNC) == 0 && fsync(fd) == 0 && msync(at, PAGE, MS_ASYNC) == 0);
	assert(madvise(at, LEN, MADV_DONTNEED) == 0 && at[78 * PAGE] == of(78));
	assert(mprotect(at, LEN, PROT_READ | PROT_WRITE) == 0);

	/* The middle goes, the ends stay; then all of it at once. */
	assert(munmap(at + 16 * MIB, 16 * MIB) == 0);
	at[0] = of(0);
	at[40 * MIB] = of(40 * MIB / PAGE);
	assert(munmap(at, LEN) == 0);
	assert(!is_ours(at));
	close(fd);
	file_is(0, LEN / PAGE);
}

static void grows(void)
{
	int fd = make();
	unsigned char *at = map(fd, LEN, PROT_READ | PROT_WRITE, 0);
	for (size_t page = 0; page < LEN / PAGE; page++)
		at[page * PAGE] = of(page);
	at = mremap(at, LEN, LEN / 2, 0);
	assert(at != MAP_FAILED && at[PAGE] == of(1));
	assert(ftruncate(fd, 2 * LEN) == 0);
	if (ours) {
		/* A map that cannot be: the old one stays. */
		setenv("TIDEGATE_STRICT", "1", 1);
		assert(mremap(at, LEN / 2, 3 * (size_t)LEN, MREMAP_MAYMOVE) == MAP_FAILED && is_ours(at) && at[PAGE] == of(1));
		unsetenv("TIDEGATE_STRICT");
	}
	at = mremap(at, LEN / 2, 2 * LEN, MREMAP_MAYMOVE);
	assert(at != MAP_FAILED && is_ours(at) == ours && at[PAGE] == of(1) && at[LEN] == 0);
	for (size_t page = LEN / PAGE; page < 2 * LEN / PAGE; page++)
		at[page * PAGE] = of(page);
	assert(munmap(at, 2 * LEN) == 0);
	close(fd);
	file_is(0, 2 * LEN / PAGE);
}

static off_t length(int fd)
{
	struct stat is;
	assert(fstat(fd, &is) == 0 && lseek(fd, 0, SEEK_END) == is.st_size);
	return is.st_size;
}

enum { WRITERS = 4, LINES = 100, LINE = 100 };

static void *append(void *which)
{
	char line[LINE];
	int fd = open(path, O_WRONLY | O_APPEND);
	memset(line, *(char *)which, LINE);
	for (int n = 0; n < LINES; n++)
		assert(write(fd, line, LINE) == LINE);
	close(fd);
	return NULL;
}

/* Each in a place of its own, beyond the end, the last ones first. */
static void *extend(void *which)
{
	int fd = open(path, O_WRONLY);
	off_t first = LEN + (*(char *)which - 'a') * LINE;
	for (int n = 0; n < LINES; n++)
		assert(pwrite(fd, which, 1, first + (off_t)n * WRITERS * LINE) == 1);
	close(fd);
	return NULL;
}

static void by_threads(void *(*work)(void *))
{
	pthread_t threads[WRITERS];
	for (int n = 0; n < WRITERS; n++)
		assert(pthread_create(&threads[n], NULL, work, "abcd" + n) == 0);
	for (int n = 0; n < WRITERS; n++)
		pthread_join(threads[n], NULL);
}

/* Calls that make the file longer: nothing is overwritten or cut off, and the system knows the length at once. */
static void extends(void)
{
	char line[LINE];
	int fd = make(), counts[WRITERS] = { 0 };
	unsigned char *at = map(fd, LEN, PROT_READ | PROT_WRITE, 0);
	at[0] = 1;
	by_threads(append);
	assert(length(fd) == LEN + WRITERS * LINES * LINE);
	for (int n = 0; n < WRITERS * LINES; n++) {
		assert(pread(fd, line, LINE, LEN + (off_t)n * LINE) == LINE);
		assert(memcmp(line, line + 1, LINE - 1) == 0);
		counts[line[0] - 'a']++;
	}
	for (int n = 0; n < WRITERS; n++)
		assert(counts[n] == LINES);
	assert(ftruncate(fd, LEN) == 0 && length(fd) == LEN);
	by_threads(extend);
	assert(length(fd) == LEN + (WRITERS * LINES - 1) * LINE + 1);
	for (int n = 0; n < WRITERS * LINES; n++)
		assert(pread(fd, line, 1, LEN + (off_t)n * LINE) == 1 && line[0] == 'a' + n % WRITERS);

	assert(ftruncate(fd, LEN + 5) == 0 && length(fd) == LEN + 5);
	assert(posix_fallocate(fd, LEN, 1000) == 0 && length(fd) == LEN + 1000);
	assert(fallocate(fd, 0, LEN, 2000) == 0 && length(fd) == LEN + 2000);
	if (ours)
		assert(fallocate(fd, FALLOC_FL_KEEP_SIZE, 0, PAGE) == -1 && errno == EOPNOTSUPP);
	at[PAGE] = of(1);
	assert(msync(at, LEN, MS_SYNC) == 0 && munmap(at, LEN) == 0 && length(fd) == LEN + 2000);
	close(fd);
	file_is(1, 2);
}

/* Further maps of a mapped file, that cannot be the library's: they have all stores, or are refused. */
static void seconds(void)
{
	int fd = make();
	unsigned char *at = map(fd, LEN, PROT_READ | PROT_WRITE, 0);
	at[5 * PAGE] = 9;
	assert(ftruncate(fd, 2 * LEN) == 0 && pwrite(fd, "end", 3, 2 * LEN - 3) == 3);
	unsigned char *private = mmap(NULL, 2 * LEN, PROT_READ | PROT_WRITE, MAP_PRIVATE, fd, 0);
	assert(private != MAP_FAILED && private[5 * PAGE] == 9 && memcmp(private + 2 * LEN - 3, "end", 3) == 0);
	munmap(private, 2 * LEN);
	unsigned char *longer = mmap(NULL, 2 * LEN, PROT_READ, MAP_SHARED, fd, 0);
	if (ours)
		assert(longer == MAP_FAILED && errno == ENOTSUP);
	else
		munmap(longer, 2 * LEN);
	assert(at[5 * PAGE] == 9 && munmap(at, LEN) == 0);
	close(fd);
}

/* What the system says is not possible. */
static void refusals(void)
{
	struct iovec parts[1025] = { 0 };
	int fd = make();
	unsigned char *at = map(fd, LEN, PROT_READ | PROT_WRITE, 0);
	assert(readv(fd, parts, 1025) == -1 && errno == EINVAL && readv(fd, parts, 0) == 0);
	assert(mmap(NULL, LEN / 2, PROT_READ, MAP_SHARED, fd, 5) == MAP_FAILED && errno == EINVAL);
	assert(munmap(at, LEN) == 0);
	close(fd);
}

static volatile int reading;

static void *use(void *pages)
{
	char to[PAGE];
	int fd = open(path, O_RDONLY);
	for (int n = 0; reading; n++) {
		memcpy(to, (char *)pages + n % 4 * PAGE, PAGE);
		assert(pread(fd, to, PAGE, (64 + n % 4) * PAGE) == PAGE);
	}
	close(fd);
	return NULL;
}

/* A descriptor for loads, beside another that writes past the map. */
static void loads(void)
{
	int writer = open(path, O_RDWR), fd = open(path, O_RDONLY);
	unsigned char *at = map(fd, LEN, PROT_READ, 0);
	assert(at[3 * PAGE] == of(3));
	assert(pwrite(writer, "new", 3, 3 * PAGE) == 3 && memcmp(at + 3 * PAGE, "new", 3) == 0);
	/* Also into pages that others are reading. */
	pthread_t users[2];
	reading = 1;
	for (int n = 0; n < 2; n++)
		assert(pthread_create(&users[n], NULL, use, at + 64 * PAGE) == 0);
	for (int n = 0; n < 200; n++) {
		char word[4 * PAGE];
		memset(word, n, sizeof word);
		assert(pwrite(writer, word, sizeof word, 64 * PAGE) == sizeof word);
		assert(memcmp(at + 64 * PAGE, word, sizeof word) == 0);
	}
	reading = 0;
	for (int n = 0; n < 2; n++)
		pthread_join(users[n], NULL);
	assert(mmap(NULL, LEN, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0) == MAP_FAILED);
	assert(munmap(at, LEN) == 0);
	close(fd);
	close(writer);
}

static void forks(void)
{
	int fd = make(), status;
	unsigned char *at = map(fd, LEN, PROT_READ | PROT_WRITE, 0);
	for (size_t page = 0; page < LEN / PAGE; page++)
		at[page * PAGE] = of(page);
	pid_t child = fork();
	if (child == 0) {
		for (size_t page = 0; page < LEN / PAGE; page++)
			if (at[page * PAGE] != of(page))
				_exit(1);
		/* A child of its own. */
		alarm(20);
		pid_t second = fork();
		if (second == 0)
			_exit(at[PAGE] != of(1));
		if (waitpid(second, &status, 0) != second || status != 0)
			_exit(1);
		exit(is_ours(at));
	}
	assert(waitpid(child, &status, 0) == child && status == 0);
	assert(at[5 * PAGE] == of(5) && munmap(at, LEN) == 0);
	close(fd);
}

/* Blocks as large as those that allocators give back to the system: they call munmap and madvise with locks of theirs held. */
static void *allocate(void *unused)
{
	(void)unused;
	while (reading) {
		char *blocks[32];
		for (int n = 0; n < 32; n++) {
			blocks[n] = malloc((size_t)(n % 8 + 1) * 300000);
			assert(blocks[n] && memset(blocks[n], n, PAGE));
		}
		for (int n = 0; n < 32; n++)
			free(blocks[n]);
	}
	return NULL;
}

/* As an allocator that gives memory back with a lock held which it takes before a fork, too. */
static pthread_mutex_t allocator = PTHREAD_MUTEX_INITIALIZER;

static void take(void)
{
	pthread_mutex_lock(&allocator);
}

static void give(void)
{
	pthread_mutex_unlock(&allocator);
}

static void *give_back(void *memory)
{
	while (reading) {
		take();
		assert(madvise(memory, PAGE, MADV_DONTNEED) == 0);
		give();
	}
	return NULL;
}

/* A file of its own, mapped over and over. */
static void *map_often(void *which)
{
	const char name[] = { 'm', 'a', 'p', *(char *)which, 0 };
	int fd = open(name, O_RDWR | O_CREAT | O_TRUNC, 0666);
	assert(fd >= 0 && ftruncate(fd, LIMIT) == 0);
	while (reading) {
		unsigned char *at = map(fd, LIMIT, PROT_READ | PROT_WRITE, 0);
		for (size_t page = 0; page < LIMIT / PAGE; page += 100)
			at[page * PAGE]++;
		assert(munmap(at, LIMIT) == 0);
	}
	close(fd);
	unlink(name);
	return NULL;
}

/* Forks while other threads map and allocate; the child allocates, too. */
static void forks_of_many(void)
{
	enum { EACH = 2, FORKS = 40 };
	pthread_t threads[2 * EACH], giver;
	void *memory = mmap(NULL, PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	int fd = make(), status;
	unsigned char *at = map(fd, LEN, PROT_READ | PROT_WRITE, 0);
	reading = 1;
	assert(pthread_create(&giver, NULL, give_back, memory) == 0);
	for (int n = 0; n < 2 * EACH; n++)
		assert(pthread_create(&threads[n], NULL, n < EACH ? allocate : map_often, "abcd" + n) == 0);
	for (int n = 0; n < FORKS; n++) {
		at[n * PAGE] = of(n);
		pid_t child = fork();
		if (child == 0) {
			alarm(20);
			for (int m = 0; m < 100; m++) {
				char *block = malloc(m * 30000 + 1);
				block[0] = 1;
				free(block);
			}
			_exit(at[n * PAGE] != of(n));
		}
		assert(waitpid(child, &status, 0) == child && status == 0);
	}
	reading = 0;
	pthread_join(giver, NULL);
	for (int n = 0; n < 2 * EACH; n++)
		pthread_join(threads[n], NULL);
	assert(munmap(at, LEN) == 0);
	close(fd);
}

/* Small maps, private ones and anonymous ones are the kernel's. */
static void others(void)
{
	int fd = make();
	void *small = mmap(NULL, MIB, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	void *private = mmap(NULL, LEN, PROT_READ | PROT_WRITE, MAP_PRIVATE, fd, 0);
	void *anonymous = mmap(NULL, LEN, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	assert(!is_ours(small) && !is_ours(private) && !is_ours(anonymous));
	/* Two maps of different makers would not see each other. */
	void *large = mmap(NULL, LEN, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	assert(large != MAP_FAILED && !is_ours(large));
	munmap(small, MIB), munmap(private, LEN), munmap(anonymous, LEN), munmap(large, LEN);
	void *longer = mmap(NULL, 2 * LEN, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	assert(longer != MAP_FAILED && !is_ours(longer));
	munmap(longer, 2 * LEN);
	void *fixed = mmap(NULL, LEN, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	assert(mmap(fixed, LEN, PROT_READ, MAP_SHARED | MAP_FIXED, fd, 0) == fixed && !is_ours(fixed));
	munmap(fixed, LEN);
	close(fd);
}

/* What is in the file after an end of the process: `exit`, where all is there; and a kill, where what was synced is. */
static void ends(int by_kill)
{
	int status, fd = make();
	close(fd);
	pid_t child = fork();
	if (child == 0) {
		fd = open(path, O_RDWR);
		unsigned char *at = map(fd, LEN, PROT_READ | PROT_WRITE, 0);
		for (size_t page = 0; page < LEN / PAGE; page++)
			at[page * PAGE] = of(page);
		if (!by_kill)
			exit(0);
		msync(at, LEN / 2, MS_SYNC);
		kill(getpid(), SIGKILL);
	}
	assert(waitpid(child, &status, 0) == child && (by_kill ? WIFSIGNALED(status) : status == 0));
	file_is(0, LEN / PAGE / (by_kill ? 2 : 1));
}

int main(int argc, char **argv)
{
	assert(argc > 1 && chdir(argv[1]) == 0);
	unlink(path);
	/* Before the library's, as allocators do: after it at a fork. */
	pthread_atfork(take, give, give);
	if (argc > 2 && strcmp(argv[2], "nobody") == 0 && geteuid() == 0)
		assert(chmod(".", 0777) == 0 && setuid(65534) == 0);
	ours = has_rights();
	if (!ours)
		puts("the maps are the kernel's here: no rights to answer page faults");
	if (!ours && getenv("TIDEGATE_STRICT")) {
		assert(mmap(NULL, LEN, PROT_READ, MAP_SHARED, make(), 0) == MAP_FAILED && errno == EPERM);
		return unlink(path) != 0;
	}
	if (argc > 2 && strcmp(argv[2], "allocator") == 0) {
		alarm(120);
		forks_of_many();
		return unlink(path) != 0;
	}
	/* Before the process has a cache of its own. */
	ends(0);
	ends(1);
	stores();
	grows();
	loads();
	extends();
	seconds();
	refusals();
	others();
	forks();
	forks_of_many();
	return unlink(path) != 0;
}
