#include "allocator/hardening.hpp"

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string_view>

#include <fmt/format.h>

#include "allocator/poison.hpp"
#include "convolume/error.hpp"

namespace convolume {

void abort_on_memory_fault(const char* message) noexcept {
  std::fputs(message, stderr);
  std::fputc('\n', stderr);
  std::abort();
}

}  // namespace convolume

namespace convolume::allocator {
namespace {

// States of a block, stored in its guard.
constexpr std::uint8_t fresh = 0, live = 1, freed = 2;

// Bits of a page's note: a freed block began on the page, or one ended there, and its first or last bytes are
// overwritten. Notes are needed because free runs are joined and cut, so that a freed large block may not come back as
// the same block.
constexpr std::uint8_t freed_begin = 1, freed_end = 2;

// As an integer, a floating-point number or an address, these bytes give a value that is unlikely to be valid.
constexpr int canary_byte = 0xC5, freed_byte = 0xDF;

/// Returns whether all bytes equal `value`: the first byte does, and every other byte equals the byte before it.
bool all_are(const std::byte* begin, std::size_t bytes, int value) {
  return begin[0] == static_cast<std::byte>(value) && std::memcmp(begin, begin + 1, bytes - 1) == 0;
}

struct Ends {
  explicit Ends(std::size_t block)
      : head(std::min(block, poisoned_ends)), tail(std::min(block - head, poisoned_ends)), tail_at(block - tail) {}
  std::size_t head, tail, tail_at;
};

void overwrite(std::byte* block, std::size_t bytes) {
  const Ends ends(bytes);
  std::memset(block, freed_byte, ends.head);
  std::memset(block + ends.tail_at, freed_byte, ends.tail);
}

bool is_overwritten(const std::byte* block, std::size_t bytes) {
  const Ends ends(bytes);
  return all_are(block, ends.head, freed_byte) &&
         (ends.tail == 0 || all_are(block + ends.tail_at, ends.tail, freed_byte));
}

/// Returns whether pages that were parts of other blocks before are still overwritten. Clears their notes.
bool are_overwritten(const Located& found) {
  bool all = true;
  for (std::size_t i = 0; i < found.notes.size(); ++i) {
    const std::uint8_t note = found.notes[i].load(std::memory_order_relaxed);
    if (note == 0) continue;
    const std::byte* begin = found.begin + i * page;
    if (note & freed_begin) all = all_are(begin, poisoned_ends, freed_byte) && all;
    if (note & freed_end) all = all_are(begin + page - poisoned_ends, poisoned_ends, freed_byte) && all;
    found.notes[i].store(0, std::memory_order_relaxed);
  }
  return all;
}

bool began_freed_block(const Located& found) {
  return !found.notes.empty() && (found.notes[0].load(std::memory_order_relaxed) & freed_begin) != 0;
}

std::size_t canary_at(std::size_t bytes, std::size_t block) { return std::min(block - bytes, most_canary); }

}  // namespace

// Guards are relaxed. A block reaches a thread through a list or a magazine, and these order all accesses to the block.
// If two threads free one block at the same time, the exchange lets only one of them be first; nothing more is
// required.
void Hardening::check_in(std::byte* block, std::size_t bytes) noexcept {
  const Located found = central_.locate(block);
  unpoison(block, found.bytes);
  const bool untouched =
      found.notes.empty() ? found.guard->load(std::memory_order_relaxed) != freed || is_overwritten(block, found.bytes)
                          : are_overwritten(found);
  if (!untouched) {
    report(block, bytes,
           "was written to after it was freed, as another block or part of one; look for pointers and views that "
           "outlive their owner, with AddressSanitizer (-DCONVOLUME_SANITIZE=address)");
  }
  found.guard->store(live, std::memory_order_relaxed);
  std::memset(block + bytes, canary_byte, canary_at(bytes, found.bytes));
}

bool Hardening::check_out(void* pointer, std::size_t bytes, std::size_t block_bytes) noexcept {
  const Located found = central_.locate(pointer);
  if (found.begin == nullptr) {
    report(pointer, bytes,
           began_freed_block(found)
               ? "is freed a second time; look for two owners of one block"
               : "is no block of this resource, or was freed before; free what allocate() returned, once, to the "
                 "resource that it came from");
    return false;
  }
  if (found.bytes != block_bytes) {
    report(pointer, bytes, "was allocated with another size; free it with the size that it was allocated with");
    return false;
  }
  const std::uint8_t before = found.guard->exchange(freed, std::memory_order_relaxed);
  if (before != live) {
    if (before == fresh) found.guard->store(fresh, std::memory_order_relaxed);
    report(pointer, bytes,
           before == freed ? "is freed a second time; look for two owners of one block"
                           : "was never handed out; free what allocate() returned");
    return false;
  }
  unpoison(found.begin, block_bytes);
  if (!all_are(found.begin + bytes, canary_at(bytes, block_bytes), canary_byte)) {
    report(pointer, bytes,
           "was written to behind its end, or is freed with another size than it was allocated with; look for the "
           "index that ran over, with AddressSanitizer (-DCONVOLUME_SANITIZE=address)");
  }
  overwrite(found.begin, block_bytes);
  if (!found.notes.empty()) {
    found.notes.front().store(freed_begin, std::memory_order_relaxed);
    found.notes.back().store(freed_end, std::memory_order_relaxed);
  }
  return true;
}

void Hardening::report(const void* block, std::size_t bytes, const char* what) const noexcept {
  char message[400];
  const auto end =
      fmt::format_to_n(message, sizeof message - 1, "SlabResource: the block of {} bytes at {} {}", bytes, block, what);
  message[std::min(end.size, sizeof message - 1)] = '\0';
  handler_(message);
}

bool hardened_by_environment() {
  const char* value = std::getenv("CONVOLUME_HARDENED_MEMORY");
  const std::string_view text = value == nullptr ? "" : value;
  if (text.empty() || text == "0") return false;
  if (text == "1") return true;
  throw InvalidArgument(
      fmt::format("CONVOLUME_HARDENED_MEMORY: '{}' is neither 0 nor 1; set it to 1 for checks, or unset it", text));
}

}  // namespace convolume::allocator
