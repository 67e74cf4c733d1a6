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

// What a block's guard says.
constexpr std::uint8_t fresh = 0, live = 1, freed = 2;

// No small integer, no number near 1 and no valid address when it is read as one.
constexpr int canary_byte = 0xC5, freed_byte = 0xDF;

/// The first byte is, and every other one equals the one before it.
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

std::size_t canary_at(std::size_t bytes, int size_class) {
  return std::min(block_bytes(size_class) - bytes, most_canary);
}

}  // namespace

// Guards are relaxed: a block comes to a thread through a list or a magazine, which order what was done to it; of two
// threads that free one block at once, the exchange lets one be first, and no more is asked of it.
void Hardening::check_in(std::byte* block, std::size_t bytes) noexcept {
  const Located found = central_.locate(block);
  const std::size_t size = block_bytes(found.size_class);
  unpoison(block, size);
  if (found.guard->load(std::memory_order_relaxed) == freed && !is_overwritten(block, size)) {
    report(block, bytes,
           "was written to after it was freed, as a block of the same size before; look for pointers and views that "
           "outlive their owner, with AddressSanitizer (-DCONVOLUME_SANITIZE=address)");
  }
  found.guard->store(live, std::memory_order_relaxed);
  std::memset(block + bytes, canary_byte, canary_at(bytes, found.size_class));
}

bool Hardening::check_out(void* pointer, std::size_t bytes, int size_class) noexcept {
  const Located found = central_.locate(pointer);
  if (found.begin == nullptr) {
    report(pointer, bytes,
           "is no block of this resource, or was freed before; free what allocate() returned, once, to the resource "
           "that it came from");
    return false;
  }
  if (found.size_class != size_class) {
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
  unpoison(found.begin, block_bytes(size_class));
  if (!all_are(found.begin + bytes, canary_at(bytes, size_class), canary_byte)) {
    report(pointer, bytes,
           "was written to behind its end, or is freed with another size than it was allocated with; look for the "
           "index that ran over, with AddressSanitizer (-DCONVOLUME_SANITIZE=address)");
  }
  overwrite(found.begin, block_bytes(size_class));
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
