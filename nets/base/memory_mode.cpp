#include "nets/base/memory_mode.hpp"

namespace convolume::nets {

const char* name_of(MemoryMode mode) noexcept {
  switch (mode) {
    case MemoryMode::arena:
      return "arena";
    case MemoryMode::slab:
      return "slab";
    case MemoryMode::separate:
      return "separate";
  }
  return "unknown";
}

}  // namespace convolume::nets
