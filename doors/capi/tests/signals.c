/* A signal that the program reads by itself, as an event loop does, comes to the program: threads of the library block it. */
#include <assert.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include "tidegate.h"

int main(void)
{
	char folder[] = "signals-XXXXXX", path[64];
	assert(mkdtemp(folder));
	snprintf(path, sizeof path, "%s/data", folder);
	tg_cache_options options = { .size = sizeof options, .memory = 64 << 20 };
	tg_cache cache;
	tg_governor governor;
	tg_file file;
	/* The library first: its threads do not have the program's mask. */
	assert(!tg_governor_new(128 << 20, &governor) && !tg_cache_new(&options, &cache));
	assert(!tg_open(cache, path, TG_CREATE | TG_TRUNCATE, 0, &file));
	assert(tg_pwrite(file, "hello", 5, 0) == 5);
	sigset_t signals;
	sigemptyset(&signals);
	sigaddset(&signals, SIGTERM);
	sigaddset(&signals, SIGUSR1);
	assert(!pthread_sigmask(SIG_BLOCK, &signals, 0));
	int read_from = signalfd(-1, &signals, 0);
	assert(read_from >= 0);
	int sent[] = { SIGUSR1, SIGTERM };
	for (int round = 0; round < 100; round++) {
		struct signalfd_siginfo got;
		struct pollfd waits = { read_from, POLLIN, 0 };
		kill(getpid(), sent[round % 2]);
		assert(poll(&waits, 1, 3000) == 1 && read(read_from, &got, sizeof got) == sizeof got);
		assert((int)got.ssi_signo == sent[round % 2]);
	}
	assert(!tg_file_close(file) && !tg_cache_close(cache));
	tg_governor_free(governor);
	unlink(path);
	rmdir(folder);
	return 0;
}
