#include "nets/base/memory_limit.hpp"

#include "core/processors.hpp"

namespace convolume::nets {

std::size_t memory_limit(std::size_t asked) {
  if (asked > 0) return asked;
  const std::uint64_t usable = usable_memory("/");
  return usable > 0 ? static_cast<std::size_t>(usable / 4 * 3) : std::size_t{4} << 30;
}

}  // namespace convolume::nets
