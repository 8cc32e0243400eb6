// Every part of tidegate.hpp once: a file, a pin, a client of its own, a region, readings, and a failure as a value.
//
//   c++ -std=c++20 tour.cpp $(pkg-config --cflags --libs tidegate) -o tour && ./tour FOLDER
#include <array>
#include <cassert>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "tidegate.hpp"

template <class T> static T need(tidegate::result<T> answer, const char *what)
{
	if (!answer) {
		std::fprintf(stderr, "%s: %s (%s)\n", what, answer.error().text.c_str(), tg_code_name(answer.error().code));
		std::exit(1);
	}
	return std::move(answer).value();
}

int main(int argc, char **argv)
{
	const std::string folder = argc > 1 ? argv[1] : ".";
	const std::string swap = folder + "/tour.swap", path = folder + "/tour";
	auto cache = need(tidegate::cache::build({.memory = 32 << 20, .swap_path = swap.c_str(), .swap_bytes = 64 << 20, .on_error = TG_STOP}), "build");

	auto file = need(cache.open(path, TG_CREATE | TG_TRUNCATE), "open");
	need(file.write(tidegate::bytes("hello, page cache"), 0), "write");
	std::array<std::byte, 5> word;
	assert(need(file.read(word, 7), "read") == 5 && std::memcmp(word.data(), "page ", 5) == 0);

	auto page = need(file.pin_pages(0), "pin");
	auto client = need(cache.writer(), "a writer");
	need(file.write(client, tidegate::bytes("HELLO"), 0), "write as a client");
	assert(std::memcmp(page.bytes().data(), "hello", 5) == 0); // as it was
	need(file.sync(), "sync");

	auto busy = cache.close();
	assert(!busy && busy.error().code == TG_BUSY);
	page = tidegate::pin();

	auto table = need(cache.region(64 << 20), "a region"); // twice the limit
	need(table.write(tidegate::bytes("row 17"), 17 * 4096), "write to the region");
	std::array<std::byte, 6> row;
	need(table.read(row, 17 * 4096), "read from the region");
	assert(std::memcmp(row.data(), "row 17", 6) == 0);

	// A map, where the process may answer page faults.
	auto mapping = need(tidegate::cache::build({.memory = 16 << 20, .flags = TG_MAPS}), "build for a map");
	auto words = need(mapping.open(path + ".map", TG_CREATE | TG_TRUNCATE), "open for a map");
	need(words.set_len(64 << 20), "set_len");
	if (auto map = words.map(TG_MAP_WRITE)) {
		auto bytes = map->bytes();
		for (std::size_t at = 0; at < bytes.size(); at += 4096)
			bytes[at] = std::byte(at >> 12);
		assert(need(words.read(word, 5 << 12), "read beside a map") == 5 && word[0] == std::byte(5));
		need(map->sync(), "sync of a map");
		assert(need(map->stats(), "stats of a map").resident <= 16 << 20);
		need(map->close(), "end of a map");
	} else {
		std::printf("SKIPPED: a map: %s\n", map.error().text.c_str());
	}
	need(words.discard(), "discard");
	std::remove((path + ".map").c_str());

	assert(need(cache.stats(), "stats").cached <= 32 << 20);
	for (const tg_wait &wait : need(cache.waits(), "waits"))
		std::printf("%s: %llu waits\n", wait.cause, static_cast<unsigned long long>(wait.count));
	auto absent = cache.open(folder + "/absent");
	assert(!absent && absent.error().system == 2);
	auto moved = std::move(file);
	assert(file.read(word, 0).error().code == TG_NULL);
	need(moved.close(), "close");
	assert(moved.close().error().code == TG_NULL);
	return std::remove(path.c_str());
}
