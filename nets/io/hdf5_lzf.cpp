#include "nets/io/hdf5_lzf.hpp"

#include <cstdlib>

#include <lzf.h>

namespace convolume::nets::io::detail {
namespace {

constexpr std::size_t largest_ratio = 264 / 3;  // a reference takes three bytes and stands for at most 264

/// Decodes a chunk, as H5Z_func_t says. Its third value is the size of a decoded chunk. Returns 0 if it is damaged.
std::size_t decode(unsigned flags, std::size_t count, const unsigned* values, std::size_t bytes, std::size_t* size,
                   void** buffer) {
  if ((flags & H5Z_FLAG_REVERSE) == 0) return 0;  // it is not written
  const std::size_t wanted = count >= 3 ? values[2] : 0;
  if (wanted == 0 || wanted / largest_ratio > bytes) return 0;
  void* const decoded = std::malloc(wanted);
  if (decoded == nullptr) return 0;
  const unsigned got = lzf_decompress(*buffer, static_cast<unsigned>(bytes), decoded, static_cast<unsigned>(wanted));
  if (got != wanted) {
    std::free(decoded);
    return 0;
  }
  std::free(*buffer);
  *buffer = decoded;
  *size = wanted;
  return got;
}

}  // namespace

void register_lzf() {
  if (H5Zfilter_avail(lzf_filter) > 0) return;
  const H5Z_class2_t filter{H5Z_CLASS_T_VERS, lzf_filter, 0, 1, "lzf", nullptr, nullptr, decode};
  H5Zregister(&filter);
}

}  // namespace convolume::nets::io::detail
