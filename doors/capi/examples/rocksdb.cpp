// RocksDB whose tables lie in a Tidegate cache, and a load on it: a database is filled, then read at random by two threads
// while a third one writes (4000 puts a second, if not told otherwise), so that tables are compacted.
//
//   c++ -std=c++20 -O2 rocksdb.cpp $(pkg-config --cflags --libs tidegate) -lrocksdb -o rocksdb
//   ./rocksdb tidegate|direct|kernel [--keys N] [--gets N] [--rate PUTS] [--memory SIZE] FOLDER
//
// tidegate: tables are read and written through the cache, which has all of the memory; RocksDB's own block cache has 4 MiB.
// direct:   O_DIRECT, and the block cache has all of the memory.
// kernel:   the kernel's page cache; run it in a memory cgroup of that size. The block cache has 4 MiB.
#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>
#include <mutex>
#include <random>
#include <thread>

#include <rocksdb/cache.h>
#include <rocksdb/db.h>
#include <rocksdb/env.h>
#include <rocksdb/file_system.h>
#include <rocksdb/table.h>

#include "tidegate.hpp"

using rocksdb::IOStatus;

static IOStatus status_of(const tidegate::failure &why)
{
	return why.system == 28 ? IOStatus::NoSpace(why.text) : IOStatus::IOError(why.text);
}

// A table that is open in the cache, for whoever reads or writes it. Closed, a file leaves the cache, so it stays open until it
// is deleted.
using table = std::shared_ptr<tidegate::file>;

class reader : public rocksdb::FSRandomAccessFile {
	table file;

public:
	explicit reader(table opened) : file(std::move(opened)) {}

	IOStatus Read(std::uint64_t offset, std::size_t n, const rocksdb::IOOptions &, rocksdb::Slice *result, char *scratch,
	              rocksdb::IODebugContext *) const override
	{
		auto read = file->read(std::as_writable_bytes(std::span(scratch, n)), offset);
		*result = rocksdb::Slice(scratch, read ? *read : 0);
		return read ? IOStatus::OK() : status_of(read.error());
	}
};

class writer : public rocksdb::FSWritableFile {
	table file;
	std::uint64_t end = 0;

public:
	using FSWritableFile::Append;

	explicit writer(table opened) : file(std::move(opened)) {}

	IOStatus Append(const rocksdb::Slice &data, const rocksdb::IOOptions &, rocksdb::IODebugContext *) override
	{
		auto written = file->write(std::as_bytes(std::span(data.data(), data.size())), end);
		if (!written)
			return status_of(written.error());
		end += *written;
		return IOStatus::OK();
	}
	IOStatus Truncate(std::uint64_t size, const rocksdb::IOOptions &, rocksdb::IODebugContext *) override
	{
		auto cut = file->set_len(size);
		end = size;
		return cut ? IOStatus::OK() : status_of(cut.error());
	}
	IOStatus Sync(const rocksdb::IOOptions &, rocksdb::IODebugContext *) override
	{
		auto synced = file->sync();
		return synced ? IOStatus::OK() : status_of(synced.error());
	}
	IOStatus Flush(const rocksdb::IOOptions &, rocksdb::IODebugContext *) override { return IOStatus::OK(); }
	IOStatus Close(const rocksdb::IOOptions &, rocksdb::IODebugContext *) override { return IOStatus::OK(); }
	std::uint64_t GetFileSize(const rocksdb::IOOptions &, rocksdb::IODebugContext *) override { return end; }
};

// Tables go through the cache; the log, the manifest and all names go to the file system below.
class cached_files : public rocksdb::FileSystemWrapper {
	tidegate::cache &cache;
	std::mutex lock;
	std::map<std::string, table> tables;

	static bool is_table(const std::string &path) { return path.ends_with(".sst"); }

	IOStatus open(const std::string &path, std::uint32_t flags, table *opened)
	{
		std::lock_guard held(lock);
		if (auto known = tables.find(path); known != tables.end()) {
			*opened = known->second;
			return IOStatus::OK();
		}
		auto file = cache.open(path, flags);
		if (!file)
			return status_of(file.error());
		tables[path] = *opened = std::make_shared<tidegate::file>(std::move(file).value());
		return IOStatus::OK();
	}

public:
	cached_files(std::shared_ptr<rocksdb::FileSystem> below, tidegate::cache &in)
	    : FileSystemWrapper(std::move(below)), cache(in)
	{
	}
	static const char *kClassName() { return "tidegate"; }
	const char *Name() const override { return kClassName(); }

	IOStatus NewRandomAccessFile(const std::string &path, const rocksdb::FileOptions &options,
	                             std::unique_ptr<rocksdb::FSRandomAccessFile> *result, rocksdb::IODebugContext *debug) override
	{
		if (!is_table(path))
			return target()->NewRandomAccessFile(path, options, result, debug);
		table file;
		IOStatus status = open(path, 0, &file);
		if (status.ok())
			*result = std::make_unique<reader>(std::move(file));
		return status;
	}
	IOStatus NewWritableFile(const std::string &path, const rocksdb::FileOptions &options,
	                         std::unique_ptr<rocksdb::FSWritableFile> *result, rocksdb::IODebugContext *debug) override
	{
		if (!is_table(path))
			return target()->NewWritableFile(path, options, result, debug);
		table file;
		IOStatus status = open(path, TG_CREATE | TG_TRUNCATE, &file);
		if (status.ok())
			*result = std::make_unique<writer>(std::move(file));
		return status;
	}
	IOStatus GetFileSize(const std::string &path, const rocksdb::IOOptions &options, std::uint64_t *size,
	                     rocksdb::IODebugContext *debug) override
	{
		table file;
		{
			std::lock_guard held(lock);
			if (auto known = tables.find(path); known != tables.end())
				file = known->second;
		}
		if (!file)
			return target()->GetFileSize(path, options, size, debug);
		auto len = file->len();
		*size = len ? *len : 0;
		return len ? IOStatus::OK() : status_of(len.error());
	}
	IOStatus DeleteFile(const std::string &path, const rocksdb::IOOptions &options, rocksdb::IODebugContext *debug) override
	{
		table file;
		{
			std::lock_guard held(lock);
			if (auto known = tables.find(path); known != tables.end()) {
				file = std::move(known->second);
				tables.erase(known);
			}
		}
		// Its dirty pages need not be written. A table that is still read is closed by its last reader.
		if (file && file.use_count() == 1)
			(void)file->discard();
		return target()->DeleteFile(path, options, debug);
	}
};

// ---- The load ----

static void need(const rocksdb::Status &status, const char *what)
{
	if (status.ok())
		return;
	std::fprintf(stderr, "%s: %s\n", what, status.ToString().c_str());
	std::exit(1);
}

static std::string key_of(std::uint64_t number)
{
	char key[21];
	std::snprintf(key, sizeof key, "%020llu", static_cast<unsigned long long>(number));
	return key;
}

using clock_type = std::chrono::steady_clock;

struct times {
	std::vector<double> us;

	void add(clock_type::time_point began)
	{
		us.push_back(std::chrono::duration<double, std::micro>(clock_type::now() - began).count());
	}
	double quantile(double share)
	{
		if (us.empty())
			return 0;
		std::sort(us.begin(), us.end());
		return us[std::min(us.size() - 1, static_cast<std::size_t>(share * static_cast<double>(us.size())))];
	}
};

static double resident_mib()
{
	long pages = 0, resident = 0;
	if (std::FILE *file = std::fopen("/proc/self/statm", "r")) {
		if (std::fscanf(file, "%ld %ld", &pages, &resident) != 2)
			resident = 0;
		std::fclose(file);
	}
	return static_cast<double>(resident) * 4096 / (1 << 20);
}

int main(int argc, char **argv)
{
	std::string mode, folder;
	std::uint64_t keys = 200000, gets = 200000, rate = 4000, memory = 64 << 20;
	for (int at = 1; at < argc; at++) {
		const std::string word = argv[at];
		if (word == "--keys" && at + 1 < argc)
			keys = std::strtoull(argv[++at], nullptr, 10);
		else if (word == "--gets" && at + 1 < argc)
			gets = std::strtoull(argv[++at], nullptr, 10);
		else if (word == "--rate" && at + 1 < argc)
			rate = std::max<std::uint64_t>(1, std::strtoull(argv[++at], nullptr, 10));
		else if (word == "--memory" && at + 1 < argc && tg_size(argv[at + 1], &memory) == TG_OK)
			at++;
		else if (mode.empty())
			mode = word;
		else
			folder = word;
	}
	if (folder.empty() || keys == 0 || (mode != "tidegate" && mode != "direct" && mode != "kernel")) {
		std::fprintf(stderr, "usage: rocksdb tidegate|direct|kernel [--keys N] [--gets N] [--rate PUTS] [--memory SIZE] FOLDER\n");
		return 2;
	}

	tidegate::cache cache;
	std::unique_ptr<rocksdb::Env> env;
	rocksdb::Options options;
	rocksdb::BlockBasedTableOptions blocks;
	blocks.block_cache = rocksdb::NewLRUCache(mode == "direct" ? memory - (16 << 20) : 4 << 20);
	if (mode == "tidegate") {
		auto built = tidegate::cache::build({.memory = memory - (16 << 20)});
		if (!built) {
			std::fprintf(stderr, "%s\n", built.error().text.c_str());
			return 1;
		}
		cache = std::move(built).value();
		env = rocksdb::NewCompositeEnv(std::make_shared<cached_files>(rocksdb::FileSystem::Default(), cache));
		options.env = env.get();
	}
	options.create_if_missing = true;
	options.error_if_exists = true;
	options.compression = rocksdb::kNoCompression;
	options.write_buffer_size = 4 << 20;
	options.target_file_size_base = 8 << 20;
	options.max_bytes_for_level_base = 32 << 20;
	options.max_background_jobs = 2;
	options.use_direct_reads = options.use_direct_io_for_flush_and_compaction = mode == "direct";
	options.table_factory.reset(rocksdb::NewBlockBasedTableFactory(blocks));
	rocksdb::WriteOptions without_log;
	without_log.disableWAL = true;

	rocksdb::DB *opened = nullptr;
	need(rocksdb::DB::Open(options, folder + "/db", &opened), "open");
	std::unique_ptr<rocksdb::DB> db(opened);
	const std::string value(1000, 'v');
	auto put = [&](std::uint64_t number) { need(db->Put(without_log, key_of(number), key_of(number) + value), "put"); };

	auto began = clock_type::now();
	std::vector<std::uint64_t> order(keys);
	for (std::uint64_t at = 0; at < keys; at++)
		order[at] = at;
	std::shuffle(order.begin(), order.end(), std::mt19937_64(1));
	for (std::uint64_t number : order)
		put(number);
	need(db->Flush(rocksdb::FlushOptions()), "flush");
	const double filled = std::chrono::duration<double>(clock_type::now() - began).count();

	std::atomic<bool> over = false;
	times puts;
	std::thread writes([&] {
		std::mt19937_64 random(2);
		// A put that comes late because the one before it was held counts from when it was due.
		for (auto due = clock_type::now(); !over; due += std::chrono::microseconds(1000000 / rate)) {
			std::this_thread::sleep_until(due);
			put(random() % keys);
			puts.add(due);
		}
	});
	began = clock_type::now();
	times found[2];
	std::vector<std::thread> readers;
	for (int at = 0; at < 2; at++)
		readers.emplace_back([&, at] {
			std::mt19937_64 random(3 + static_cast<unsigned>(at));
			std::string got;
			for (std::uint64_t count = 0; count < gets / 2; count++) {
				// Nine of ten gets are for a tenth of the keys.
				const std::uint64_t number = random() % (random() % 10 ? std::max<std::uint64_t>(1, keys / 10) : keys);
				const auto before = clock_type::now();
				need(db->Get({}, key_of(number), &got), "get");
				found[at].add(before);
				if (got.compare(0, 20, key_of(number)) != 0)
					std::fprintf(stderr, "key %llu has another's value\n", static_cast<unsigned long long>(number)), std::exit(1);
			}
		});
	for (auto &thread : readers)
		thread.join();
	const double read = std::chrono::duration<double>(clock_type::now() - began).count();
	over = true;
	writes.join();
	found[0].us.insert(found[0].us.end(), found[1].us.begin(), found[1].us.end());
	std::printf("%s: filled %.0f puts/s; %.0f gets/s, p50 %.0f us, p99 %.0f us; beside them %.0f puts/s, p99 %.0f us, longest %.0f ms; "
	            "resident %.0f MiB\n",
	            mode.c_str(), static_cast<double>(keys) / filled, static_cast<double>(found[0].us.size()) / read,
	            found[0].quantile(0.5), found[0].quantile(0.99), static_cast<double>(puts.us.size()) / read, puts.quantile(0.99),
	            puts.quantile(1) / 1000, resident_mib());

	// Every key is there when the database is opened again.
	need(db->Flush(rocksdb::FlushOptions()), "flush");
	db.reset();
	options.error_if_exists = false;
	need(rocksdb::DB::Open(options, folder + "/db", &opened), "open again");
	db.reset(opened);
	std::string got;
	for (std::uint64_t number = 0; number < keys; number += 1 + keys / 1000) {
		need(db->Get({}, key_of(number), &got), "get after it was opened again");
	}
	db.reset();
	need(rocksdb::DestroyDB(folder + "/db", options), "destroy");
	return 0;
}
