/* nbdkit tidegate file=disk.img [memory=1GiB] [dirty=64MiB] [readahead=SIZE] [layers=LAYERS]
 *
 * A file or a disk behind nbdkit's protocol, TLS and filters, cached by Tidegate: memory has a limit, writers are paced,
 * a flush is durable.
 *
 *   cc -fPIC -shared tidegate.c $(pkg-config --cflags --libs tidegate) $(pkg-config --cflags nbdkit) -o nbdkit-tidegate-plugin.so
 *
 * nbdkit's threads block in the cache; it has 16 for a connection (nbdkit -t).
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "tidegate.h"

#define NBDKIT_API_VERSION 2
#include <nbdkit-plugin.h>

#define THREAD_MODEL NBDKIT_THREAD_MODEL_PARALLEL

static char *file_path;
static const char *layers;
static tg_cache_options options = { .size = sizeof options, .memory = 1u << 30 };
static tg_cache cache;

/* One for each connection: the cache has one set of pages for them all. */
struct client {
	tg_file file;
};

static int refused(int64_t code)
{
	nbdkit_error("%s", tg_error());
	nbdkit_set_error(tg_errno() ? tg_errno() : code == TG_NO_MEMORY ? ENOMEM : EIO);
	return -1;
}

static int size_of(const char *key, const char *value, uint64_t *bytes)
{
	if (tg_size(value, bytes) == TG_OK)
		return 0;
	nbdkit_error("%s: %s", key, tg_error());
	return -1;
}

static int tidegate_config(const char *key, const char *value)
{
	if (strcmp(key, "file") == 0) {
		free(file_path);
		file_path = nbdkit_realpath(value);
		return file_path ? 0 : -1;
	}
	if (strcmp(key, "memory") == 0)
		return size_of(key, value, &options.memory);
	if (strcmp(key, "dirty") == 0)
		return size_of(key, value, &options.dirty_bytes);
	if (strcmp(key, "readahead") == 0)
		return size_of(key, value, &options.readahead);
	if (strcmp(key, "layers") == 0) {
		layers = value;
		return 0;
	}
	nbdkit_error("there is no parameter '%s'; file, memory, dirty, readahead and layers are possible", key);
	return -1;
}

static int tidegate_config_complete(void)
{
	if (file_path)
		return 0;
	nbdkit_error("file=PATH is missing");
	return -1;
}

/* Not before: nbdkit has forked into the background by now, and threads do not follow. */
static int tidegate_after_fork(void)
{
	options.layers = layers;
	int code = tg_cache_new(&options, &cache);
	return code == TG_OK ? 0 : refused(code);
}

static void *tidegate_open(int readonly)
{
	struct client *client = calloc(1, sizeof *client);
	if (!client) {
		nbdkit_error("calloc: %m");
		return NULL;
	}
	int code = tg_open(cache, file_path, readonly ? TG_RDONLY : 0, 0, &client->file);
	if (code != TG_OK) {
		refused(code);
		free(client);
		return NULL;
	}
	return client;
}

static void tidegate_close(void *handle)
{
	struct client *client = handle;
	/* With its last client the file is synced and leaves the cache. */
	if (tg_file_close(client->file) != TG_OK)
		nbdkit_error("%s", tg_error());
	free(client);
}

static void tidegate_cleanup(void)
{
	if (cache.id && tg_cache_close(cache) != TG_OK)
		nbdkit_error("not durable: %s", tg_error());
	cache = (tg_cache){ 0 };
}

static void tidegate_unload(void)
{
	free(file_path);
}

static int64_t tidegate_get_size(void *handle)
{
	struct client *client = handle;
	int64_t len = tg_len(client->file);
	return len < 0 ? refused(len) : len;
}

static int yes(void *handle)
{
	(void)handle;
	return 1;
}

static int fua(void *handle)
{
	(void)handle;
	return NBDKIT_FUA_NATIVE;
}

static int emulated_cache(void *handle)
{
	(void)handle;
	return NBDKIT_CACHE_EMULATE; /* nbdkit reads, and reads are cached */
}

static int tidegate_pread(void *handle, void *data, uint32_t count, uint64_t offset, uint32_t flags)
{
	struct client *client = handle;
	(void)flags;
	int64_t read = tg_pread(client->file, data, count, offset);
	if (read < 0)
		return refused(read);
	/* A last part of a sector. */
	memset((char *)data + read, 0, count - (size_t)read);
	return 0;
}

static int tidegate_pwrite(void *handle, const void *data, uint32_t count, uint64_t offset, uint32_t flags)
{
	struct client *client = handle;
	int64_t done = tg_pwrite(client->file, data, count, offset);
	if (done >= 0 && flags & NBDKIT_FLAG_FUA)
		done = tg_sync_range(client->file, offset, count);
	return done < 0 ? refused(done) : 0;
}

static int tidegate_flush(void *handle, uint32_t flags)
{
	struct client *client = handle;
	(void)flags;
	int code = tg_sync(client->file);
	return code == TG_OK ? 0 : refused(code);
}

static struct nbdkit_plugin plugin = {
	.name = "tidegate",
	.longname = "Tidegate: a file or a disk, cached in bounded memory",
	.version = TG_VERSION,
	.config = tidegate_config,
	.config_complete = tidegate_config_complete,
	.config_help = "file=PATH        the file or block device to serve\n"
		       "memory=SIZE      limit of the cache (default: 1GiB)\n"
		       "dirty=SIZE       written and not on the disk: over it, writers are paced (default: a fifth of memory)\n"
		       "readahead=SIZE   largest window\n"
		       "layers=LAYERS    for trials, a bad disk: slow:rate=16MB",
	.magic_config_key = "file",
	.after_fork = tidegate_after_fork,
	.open = tidegate_open,
	.close = tidegate_close,
	.cleanup = tidegate_cleanup,
	.unload = tidegate_unload,
	.get_size = tidegate_get_size,
	.can_multi_conn = yes,
	.can_fua = fua,
	.can_cache = emulated_cache,
	.pread = tidegate_pread,
	.pwrite = tidegate_pwrite,
	.flush = tidegate_flush,
	.errno_is_preserved = 0,
};

NBDKIT_REGISTER_PLUGIN(plugin)
