#include "ops/layout.hpp"

#include <limits>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "ops/layout.cpp"
#include "hwy/foreach_target.h"
// foreach_target comes first.
#include "hwy/highway.h"

#include "ops/simd-inl.hpp"

#ifndef CONVOLUME_OPS_LAYOUT_KERNELS
#define CONVOLUME_OPS_LAYOUT_KERNELS
namespace convolume::ops {
namespace {
template <class T>
constexpr index_t block_of() {
  return channel_block(data_type_of<T>());
}
template <class T>
struct LayoutKernels {
  void (*block)(const T* plain, index_t channel_stride, index_t channels, index_t voxels, T* blocked);
  void (*unblock)(const T* blocked, index_t channels, index_t voxels, T* plain, index_t channel_stride);
};
}  // namespace
}  // namespace convolume::ops
#endif

HWY_BEFORE_NAMESPACE();
namespace convolume::ops::HWY_NAMESPACE {
namespace {

// Squares of one 128-bit vector per row (4 x 4 floats, 2 x 2 doubles) are transposed in registers; wider vectors would
// need shuffles across 128-bit blocks and gain nothing over the bandwidth of L2.

/// to[j * to_stride + i] = from[i * from_stride + j] for i, j below the side of a square.
template <class T>
HWY_INLINE void transpose_square(const T* from, index_t from_stride, T* to, index_t to_stride) {
#if HWY_TARGET == HWY_SCALAR
  constexpr index_t side = 16 / sizeof(T);
  for (index_t i = 0; i < side; ++i) {
    for (index_t j = 0; j < side; ++j) to[j * to_stride + i] = from[i * from_stride + j];
  }
#else
  const hn::CappedTag<T, 16 / sizeof(T)> d;
  const auto row0 = hn::LoadU(d, from), row1 = hn::LoadU(d, from + from_stride);
  const auto low01 = hn::InterleaveLower(d, row0, row1), high01 = hn::InterleaveUpper(d, row0, row1);
  if constexpr (sizeof(T) == 8) {
    hn::StoreU(low01, d, to);
    hn::StoreU(high01, d, to + to_stride);
  } else {
    const hn::Repartition<double, decltype(d)> pairs;
    const auto row2 = hn::LoadU(d, from + 2 * from_stride), row3 = hn::LoadU(d, from + 3 * from_stride);
    const auto low23 = hn::InterleaveLower(d, row2, row3), high23 = hn::InterleaveUpper(d, row2, row3);
    const auto store = [&](auto lower, auto upper, index_t column) HWY_ATTR {
      const auto a = hn::BitCast(pairs, lower), b = hn::BitCast(pairs, upper);
      hn::StoreU(hn::BitCast(d, hn::InterleaveLower(pairs, a, b)), d, to + column * to_stride);
      hn::StoreU(hn::BitCast(d, hn::InterleaveUpper(pairs, a, b)), d, to + (column + 1) * to_stride);
    };
    store(low01, low23, 0);
    store(high01, high23, 2);
  }
#endif
}

template <class T>
void block(const T* plain, index_t channel_stride, index_t channels, index_t voxels, T* blocked) {
  constexpr index_t width = block_of<T>(), side = 16 / sizeof(T);
  index_t v = 0;
  for (; v + side <= voxels; v += side) {
    index_t c = 0;
    for (; c + side <= channels; c += side) {
      transpose_square(plain + c * channel_stride + v, channel_stride, blocked + v * width + c, width);
    }
    for (index_t i = 0; i < side; ++i) {
      T* to = blocked + (v + i) * width;
      for (index_t lane = c; lane < width; ++lane)
        to[lane] = lane < channels ? plain[lane * channel_stride + v + i] : 0;
    }
  }
  for (; v < voxels; ++v) {
    for (index_t c = 0; c < width; ++c) blocked[v * width + c] = c < channels ? plain[c * channel_stride + v] : 0;
  }
}

template <class T>
void unblock(const T* blocked, index_t channels, index_t voxels, T* plain, index_t channel_stride) {
  constexpr index_t width = block_of<T>(), side = 16 / sizeof(T);
  index_t v = 0;
  for (; v + side <= voxels; v += side) {
    index_t c = 0;
    for (; c + side <= channels; c += side) {
      transpose_square(blocked + v * width + c, width, plain + c * channel_stride + v, channel_stride);
    }
    for (; c < channels; ++c) {
      for (index_t i = 0; i < side; ++i) plain[c * channel_stride + v + i] = blocked[(v + i) * width + c];
    }
  }
  for (; v < voxels; ++v) {
    for (index_t c = 0; c < channels; ++c) plain[c * channel_stride + v] = blocked[v * width + c];
  }
}

LayoutKernels<float> layout_kernels_f32() { return {block<float>, unblock<float>}; }
LayoutKernels<double> layout_kernels_f64() { return {block<double>, unblock<double>}; }

}  // namespace
}  // namespace convolume::ops::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace convolume::ops {
namespace {

HWY_EXPORT(layout_kernels_f32);
HWY_EXPORT(layout_kernels_f64);

template <class T>
LayoutKernels<T> kernels() {
  if constexpr (std::is_same_v<T, float>) {
    return HWY_DYNAMIC_DISPATCH(layout_kernels_f32)();
  } else {
    return HWY_DYNAMIC_DISPATCH(layout_kernels_f64)();
  }
}

index_t blocks_of(const Shape5& shape, DataType type) {
  const index_t width = channel_block(type);
  return shape.c / width + (shape.c % width != 0);
}

/// Where a channel block of a tensor lies in both layouts.
template <class T>
struct Block {
  index_t first_channel, channels, voxels, offset;
  Block(const Shape5& shape, index_t n, index_t block)
      : first_channel(block * block_of<T>()),
        channels(std::min(block_of<T>(), shape.c - first_channel)),
        voxels(shape.extent.volume()),
        offset((n * blocks_of(shape, data_type_of<T>()) + block) * voxels * block_of<T>()) {}
};

template <class T>
void block_part(const View<const T>& plain, T* blocked, index_t n, index_t b) {
  const Block<T> at(plain.shape, n, b);
  block_channels(plain.channel(n, at.first_channel), plain.stride[1], at.channels, at.voxels, blocked + at.offset);
}

template <class T>
void unblock_part(const T* blocked, const View<T>& plain, index_t n, index_t b) {
  const Block<T> at(plain.shape, n, b);
  unblock_channels(blocked + at.offset, at.channels, at.voxels, plain.channel(n, at.first_channel), plain.stride[1]);
}

template <class T>
void require_layout(const char* op, const View<T>& plain, const void* blocked) {
  require_dense(op, "plain", plain);
  require_data(op, "blocked", blocked, plain.shape);
}

/// One task per channel block, each after its channels.
template <class T, class Body>
Ready append_blocks(TaskGraph& graph, const Ready& ready, const Shape5& shape, const char* name, const Body& body) {
  const index_t blocks = blocks_of(shape, data_type_of<T>()), width = block_of<T>();
  const double cost = map_bytes<T>(shape.extent, 2 * static_cast<double>(width));
  std::vector<TaskId> tasks, after;
  for (index_t n = 0; n < shape.n; ++n) {
    for (index_t b = 0; b < blocks; ++b) {
      after.clear();
      ready.collect(n, b * width, std::min(shape.c, (b + 1) * width), after);
      tasks.push_back(graph.add(
          {.name = name, .cost = cost}, [body, n, b] { body(n, b); }, after));
    }
  }
  return {std::move(tasks), blocks, 1, width, std::numeric_limits<index_t>::max()};
}

}  // namespace

template <class T>
void block_channels(const T* plain, index_t channel_stride, index_t channels, index_t voxels, T* blocked) noexcept {
  kernels<T>().block(plain, channel_stride, channels, voxels, blocked);
}

template <class T>
void unblock_channels(const T* blocked, index_t channels, index_t voxels, T* plain, index_t channel_stride) noexcept {
  kernels<T>().unblock(blocked, channels, voxels, plain, channel_stride);
}

template <class T>
void to_blocked(const ConstView<T>& plain, T* blocked) {
  require_layout("to_blocked", plain, blocked);
  for (index_t n = 0; n < plain.shape.n; ++n) {
    for (index_t b = 0; b < blocks_of(plain.shape, data_type_of<T>()); ++b) block_part(plain, blocked, n, b);
  }
}

template <class T>
void to_plain(const T* blocked, const View<T>& plain) {
  require_layout("to_plain", plain, blocked);
  for (index_t n = 0; n < plain.shape.n; ++n) {
    for (index_t b = 0; b < blocks_of(plain.shape, data_type_of<T>()); ++b) unblock_part(blocked, plain, n, b);
  }
}

template <class T>
Ready append_to_blocked(TaskGraph& graph, const Ready& ready, const ConstView<T>& plain, T* blocked) {
  require_layout("to_blocked", plain, blocked);
  return append_blocks<T>(graph, ready, plain.shape, "to_blocked",
                          [=](index_t n, index_t b) { block_part(plain, blocked, n, b); });
}

template <class T>
Ready append_to_plain(TaskGraph& graph, const Ready& ready, const T* blocked, const View<T>& plain) {
  require_layout("to_plain", plain, blocked);
  return append_blocks<T>(graph, ready, plain.shape, "to_plain",
                          [=](index_t n, index_t b) { unblock_part(blocked, plain, n, b); });
}

template void block_channels(const float*, index_t, index_t, index_t, float*) noexcept;
template void block_channels(const double*, index_t, index_t, index_t, double*) noexcept;
template void unblock_channels(const float*, index_t, index_t, float*, index_t) noexcept;
template void unblock_channels(const double*, index_t, index_t, double*, index_t) noexcept;
template void to_blocked<float>(const ConstView<float>&, float*);
template void to_blocked<double>(const ConstView<double>&, double*);
template void to_plain(const float*, const View<float>&);
template void to_plain(const double*, const View<double>&);
template Ready append_to_blocked<float>(TaskGraph&, const Ready&, const ConstView<float>&, float*);
template Ready append_to_blocked<double>(TaskGraph&, const Ready&, const ConstView<double>&, double*);
template Ready append_to_plain(TaskGraph&, const Ready&, const float*, const View<float>&);
template Ready append_to_plain(TaskGraph&, const Ready&, const double*, const View<double>&);

}  // namespace convolume::ops
#endif  // HWY_ONCE
