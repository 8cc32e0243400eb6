// Tidegate for C++20: tidegate.h with owners that close by themselves, spans and results. Nothing here throws, and nothing
// is compiled into the library: it is this header.
//
//   auto cache = tidegate::cache::build({.memory = 64 << 20});
//   if (!cache) die(cache.error().text);
//   auto file = cache->open("data", TG_CREATE);
//
// A destructor closes and cannot say that it failed: call close() to hear it.
#ifndef TIDEGATE_HPP
#define TIDEGATE_HPP

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "tidegate.h"

namespace tidegate {

// The error of a call.
struct failure {
	int code = TG_OK;
	int system = 0;          // errno, or 0
	std::uint64_t taken = 0; // of a write: bytes taken in before it
	std::string text;

	static failure last(int code) { return {code, tg_errno(), tg_taken(), tg_error()}; }
};

// A value or a failure; value() of a failure is undefined, as that of std::expected is.
template <class T> class [[nodiscard]] result {
	std::variant<T, failure> either;

public:
	result(T value) : either(std::in_place_index<0>, std::move(value)) {}
	result(failure why) : either(std::in_place_index<1>, std::move(why)) {}
	explicit operator bool() const noexcept { return either.index() == 0; }
	T &value() & noexcept { return *std::get_if<0>(&either); }
	T &&value() && noexcept { return std::move(*std::get_if<0>(&either)); }
	T &operator*() noexcept { return value(); }
	T *operator->() noexcept { return &value(); }
	const failure &error() const noexcept { return *std::get_if<1>(&either); }
};

struct nothing {};

namespace detail {
inline result<nothing> of(int code) {
	if (code < 0)
		return failure::last(code);
	return nothing{};
}

inline result<std::size_t> bytes_of(std::int64_t bytes) {
	if (bytes < 0)
		return failure::last(static_cast<int>(bytes));
	return static_cast<std::size_t>(bytes);
}

// A handle with one owner.
template <class H, int (*Close)(H)> class owner {
protected:
	H handle{};

public:
	owner() = default;
	explicit owner(H taken) noexcept : handle(taken) {}
	owner(owner &&other) noexcept : handle(std::exchange(other.handle, H{})) {}
	owner &operator=(owner &&other) noexcept {
		if (this != &other) {
			if (handle.id)
				Close(handle);
			handle = std::exchange(other.handle, H{});
		}
		return *this;
	}
	~owner() {
		if (handle.id)
			Close(handle);
	}
	// The handle, for the functions of tidegate.h; it stays this one's.
	H get() const noexcept { return handle; }
	// Closes; after a failure it is closed or still open, as the function of tidegate.h has it.
	result<nothing> close() { return ended(Close(handle)); }

protected:
	// After a failure it may still be open: the handle stays, as one that is closed does no harm.
	result<nothing> ended(int code) {
		if (code == TG_OK)
			handle = H{};
		return of(code);
	}
};
} // namespace detail

// Pinned pages: bytes() stays as it is while this lives.
class pin {
	tg_pin pinned{};

public:
	pin() = default;
	explicit pin(const tg_pin &taken) noexcept : pinned(taken) {}
	pin(pin &&other) noexcept : pinned(std::exchange(other.pinned, tg_pin{})) {}
	pin &operator=(pin &&other) noexcept {
		std::swap(pinned, other.pinned);
		return *this;
	}
	~pin() {
		if (pinned.data)
			tg_unpin(&pinned);
	}
	std::span<const std::byte> bytes() const noexcept { return {static_cast<const std::byte *>(pinned.data), pinned.len}; }
};

// A file's bytes as memory; bytes() ends with it.
class map : public detail::owner<tg_map, tg_map_free> {
public:
	using owner::owner;

	std::span<std::byte> bytes() const noexcept {
		void *data = tg_map_data(handle);
		return {static_cast<std::byte *>(data), data ? static_cast<std::size_t>(tg_map_len(handle)) : 0};
	}
	result<nothing> sync(std::uint64_t offset = 0, std::uint64_t len = 0) const { return detail::of(tg_map_sync(handle, offset, len)); }
	result<tg_map_stats> stats() const {
		tg_map_stats read{};
		read.size = sizeof read;
		if (const int code = tg_map_stats_of(handle, &read); code < 0)
			return failure::last(code);
		return read;
	}
};

// A client that is paced by itself.
using writer = detail::owner<tg_writer, tg_writer_free>;

class file : public detail::owner<tg_file, tg_file_close> {
public:
	using owner::owner;

	result<std::size_t> read(std::span<std::byte> data, std::uint64_t offset) const {
		return detail::bytes_of(tg_pread(handle, data.data(), data.size(), offset));
	}
	result<std::size_t> write(std::span<const std::byte> data, std::uint64_t offset) const {
		return detail::bytes_of(tg_pwrite(handle, data.data(), data.size(), offset));
	}
	result<std::size_t> write(const writer &as, std::span<const std::byte> data, std::uint64_t offset) const {
		return detail::bytes_of(tg_pwrite_as(handle, as.get(), data.data(), data.size(), offset));
	}
	result<pin> pin_pages(std::uint32_t page, std::uint32_t pages = 1) const {
		tg_pin pinned{};
		if (const int code = tg_pin_pages(handle, page, pages, &pinned); code < 0)
			return failure::last(code);
		return pin(pinned);
	}
	result<tidegate::map> map(std::uint32_t flags = 0, std::uint64_t offset = 0, std::uint64_t len = 0) const {
		tg_map made{};
		if (const int code = tg_map_new(handle, offset, len, flags, &made); code < 0)
			return failure::last(code);
		return tidegate::map(made);
	}
	result<nothing> sync() const { return detail::of(tg_sync(handle)); }
	result<nothing> set_len(std::uint64_t len) const { return detail::of(tg_set_len(handle, len)); }
	result<std::size_t> len() const { return detail::bytes_of(tg_len(handle)); }
	// Closes without writing what is dirty.
	result<nothing> discard() { return ended(tg_file_discard(handle)); }
};

class region : public detail::owner<tg_region, tg_region_free> {
public:
	using owner::owner;

	result<nothing> read(std::span<std::byte> data, std::uint64_t offset) const {
		return detail::of(tg_region_read(handle, data.data(), data.size(), offset));
	}
	result<nothing> write(std::span<const std::byte> data, std::uint64_t offset) const {
		return detail::of(tg_region_write(handle, data.data(), data.size(), offset));
	}
};

// As tg_cache_options without its size, in an order for designated initializers.
struct options {
	std::uint64_t memory = 0;
	std::uint64_t beside = 0;
	std::uint64_t dirty_bytes = 0;
	std::uint64_t background_bytes = 0;
	std::uint32_t dirty_percent = 0;
	std::uint32_t background_percent = 0;
	std::uint64_t readahead = 0;
	std::uint32_t flags = 0;
	const char *swap_path = nullptr;
	std::uint64_t swap_bytes = 0;
	std::uint32_t swappiness = 0;
	std::uint32_t devices = 0;
	std::uint32_t on_error = 0;
	const char *page_rule = nullptr;
	const char *layers = nullptr;
};

class cache : public detail::owner<tg_cache, tg_cache_close> {
public:
	using owner::owner;

	static result<cache> build(const options &asked) {
		tg_cache_options given{};
		given.size = sizeof given;
		given.memory = asked.memory;
		given.beside = asked.beside;
		given.dirty_bytes = asked.dirty_bytes;
		given.background_bytes = asked.background_bytes;
		given.dirty_percent = asked.dirty_percent;
		given.background_percent = asked.background_percent;
		given.readahead = asked.readahead;
		given.flags = asked.flags;
		given.swap_path = asked.swap_path;
		given.swap_bytes = asked.swap_bytes;
		given.swappiness = asked.swappiness;
		given.devices = asked.devices;
		given.on_error = asked.on_error;
		given.page_rule = asked.page_rule;
		given.layers = asked.layers;
		tg_cache made{};
		if (const int code = tg_cache_new(&given, &made); code < 0)
			return failure::last(code);
		return cache(made);
	}
	result<file> open(const std::string &path, std::uint32_t flags = 0, std::uint64_t preallocate = 0) const {
		tg_file opened{};
		if (const int code = tg_open(handle, path.c_str(), flags, preallocate, &opened); code < 0)
			return failure::last(code);
		return file(opened);
	}
	result<tidegate::writer> writer() const {
		tg_writer made{};
		if (const int code = tg_writer_new(handle, &made); code < 0)
			return failure::last(code);
		return tidegate::writer(made);
	}
	result<tidegate::region> region(std::uint64_t bytes) const {
		tg_region made{};
		if (const int code = tg_region_new(handle, bytes, &made); code < 0)
			return failure::last(code);
		return tidegate::region(made);
	}
	result<nothing> sync() const { return detail::of(tg_cache_sync(handle)); }
	result<nothing> set_limit(std::uint64_t bytes) const { return detail::of(tg_cache_set_limit(handle, bytes)); }
	result<tg_stats> stats() const {
		tg_stats read{};
		read.size = sizeof read;
		if (const int code = tg_cache_stats(handle, &read); code < 0)
			return failure::last(code);
		return read;
	}
	// All waits by cause.
	result<std::vector<tg_wait>> waits() const {
		std::vector<tg_wait> all(64);
		const std::int64_t count = tg_cache_waits(handle, all.data(), all.size());
		if (count < 0)
			return failure::last(static_cast<int>(count));
		all.resize(static_cast<std::size_t>(count));
		return all;
	}
};

inline std::span<const std::byte> bytes(std::string_view text) noexcept { return std::as_bytes(std::span(text)); }

} // namespace tidegate
#endif
