#include "conv/caches/source_hash.hpp"

#include <cstdlib>
#include <string_view>

#include <xxhash.h>

namespace convolume::conv {
namespace {

/// It is read while the library is loaded, because all graphs of a process must agree.
const bool checked = [] {
#ifdef NDEBUG
  const char* value = std::getenv("CONVOLUME_CHECK_WEIGHTS");
  return value != nullptr && std::string_view(value) == "1";
#else
  return true;
#endif
}();

}  // namespace

bool checks_sources() noexcept { return checked; }

std::uint64_t hash_map(const ConstTensorView& tensor, index_t n, index_t c) {
  // Strides may be negative.
  const auto size = static_cast<index_t>(size_of(tensor.type));
  const index_t voxel = tensor.layout == Layout::blocked ? channel_block(tensor.type) : 1;
  const auto* base =
      tensor.data.template as<const std::byte>().get() + (n * tensor.stride[0] + c * tensor.stride[1]) * size;
  std::uint64_t hash = 0;
  const Extent3& e = tensor.shape.extent;
  for (index_t z = 0; z < e.z; ++z) {
    for (index_t y = 0; y < e.y; ++y) {
      const index_t offset = (z * tensor.stride[2] + y * tensor.stride[3]) * size;
      hash = XXH3_64bits_withSeed(base + offset, static_cast<std::size_t>(e.x * voxel * size), hash);
    }
  }
  return hash;
}

std::uint64_t hash_tensor(const ConstTensorView& tensor) {
  const index_t block = tensor.layout == Layout::blocked ? channel_block(tensor.type) : 1;
  std::uint64_t hash = 0;
  for (index_t n = 0; n < tensor.shape.n; ++n) {
    for (index_t c = 0; c * block < tensor.shape.c; ++c) hash = hash * 0x9e3779b97f4a7c15u + hash_map(tensor, n, c);
  }
  return hash;
}

}  // namespace convolume::conv
