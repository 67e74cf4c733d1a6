#include "ops/pooling.hpp"

#include <fmt/format.h>

#include "convolume/error.hpp"
#include "ops/pool_kernels.hpp"

namespace convolume::ops {
namespace {

constexpr index_t max_window = 256;

Shape5 pooled_shape(const Shape5& input, const MaxPool& pool) {
  return {input.n, input.c, pooled_extent(input.extent, pool)};
}

void require_taps(const char* op, const Address<const std::uint8_t>& taps) {
  if (!taps.bound()) throw InvalidArgument(fmt::format("{}: taps has no data: bind a byte per stored element", op));
}

/// Returns the offset of the argmax indices of a channel block of y.
template <class T>
index_t first_tap(const View<T>& y, const Part& part) {
  return (part.n * y.blocks() + part.block) * y.shape.extent.volume() * y.block_channels();
}

}  // namespace

Extent3 pooled_extent(const Extent3& input, const MaxPool& pool) {
  Extent3 output;
  for (int axis = 0; axis < 3; ++axis) {
    if (pool.window[axis] < 1 || pool.stride[axis] < 1 || pool.dilation[axis] < 1) {
      throw InvalidArgument(fmt::format("max_pool: window {}, stride {} and dilation {} must be positive on every axis",
                                        to_string(pool.window), to_string(pool.stride), to_string(pool.dilation)));
    }
    if (pool.window[axis] > max_window) break;
    index_t reach = 0;
    if (__builtin_mul_overflow(pool.window[axis] - 1, pool.dilation[axis], &reach) || reach >= input[axis]) {
      throw ShapeMismatch(fmt::format("max_pool: a window of {} with dilation {} does not fit into an input of {}",
                                      to_string(pool.window), to_string(pool.dilation), to_string(input)));
    }
    output[axis] = (input[axis] - reach - 1) / pool.stride[axis] + 1;
  }
  if (pool.window.z > max_window || pool.window.y > max_window || pool.window.x > max_window ||
      pool.window.volume() > max_window) {
    throw InvalidArgument(fmt::format("max_pool: a window of {} has more than {} voxels; pool twice instead",
                                      to_string(pool.window), max_window));
  }
  return output;
}

template <class T>
Ready append_max_pool_forward(TaskGraph& graph, const Ready& ready, const ConstView<T>& x, const View<T>& y,
                              Address<std::uint8_t> taps, const MaxPool& pool) {
  require_dense("max_pool", "x", x);
  require_dense("max_pool", "y", y);
  require_shape("max_pool", "y", y.shape, pooled_shape(x.shape, pool));
  require_layout("max_pool", "y", y.layout, x.layout);
  require_taps("max_pool", taps);
  const Cut parts = cut(y.shape, y.block_channels(), x.shape.extent.volume() * x.block_channels());
  const auto collect = [&](const Part& part, std::vector<TaskId>& after) {
    const index_t reach = (pool.window.z - 1) * pool.dilation.z;
    collect_planes(ready, x, part, part.z0 * pool.stride.z, (part.z1 - 1) * pool.stride.z + reach + 1, after);
  };
  const PoolSlab whole{pool, x.shape.extent, y.shape.extent, 0, 0};
  auto tasks = append_parts(graph, parts, "max_pool", bytes_of<T>(1), collect, [=](const Part& part) {
    PoolSlab slab = whole;
    slab.z0 = part.z0;
    slab.z1 = part.z1;
    pool_kernels<T>(x.layout).forward(slab, x.block(part.n, part.block), y.block(part.n, part.block),
                                      taps + first_tap(y, part));
  });
  return ready_of(graph, parts, std::move(tasks), y);
}

template <class T>
Ready append_max_pool_backward(TaskGraph& graph, const Ready& ready, const ConstView<T>& dy,
                               Address<const std::uint8_t> taps, const View<T>& dx, const MaxPool& pool, bool add) {
  require_dense("max_pool gradient", "dy", dy);
  require_dense("max_pool gradient", "dx", dx);
  require_shape("max_pool gradient", "dy", dy.shape, pooled_shape(dx.shape, pool));
  require_layout("max_pool gradient", "dy", dy.layout, dx.layout);
  require_taps("max_pool gradient", taps);
  const Cut parts = cut(dx);
  const auto collect = [&](const Part& part, std::vector<TaskId>& after) {
    const PoolPlanes read = outputs_touching(pool, dy.shape.extent.z, part.z0, part.z1);
    if (read.begin < read.end) collect_planes(ready, dy, part, read.begin, read.end, after);
    collect_planes(ready, dx, part, part.z0, part.z1, after);
  };
  const PoolSlab whole{pool, dx.shape.extent, dy.shape.extent, 0, 0};
  auto tasks = append_parts(graph, parts, "max_pool_gradient", bytes_of<T>(1), collect, [=](const Part& part) {
    PoolSlab slab = whole;
    slab.z0 = part.z0;
    slab.z1 = part.z1;
    pool_kernels<T>(dx.layout).backward(slab, dy.block(part.n, part.block), taps + first_tap(dy, part),
                                        dx.block(part.n, part.block), add);
  });
  return ready_of(graph, parts, std::move(tasks), dx);
}

template Ready append_max_pool_forward<float>(TaskGraph&, const Ready&, const ConstView<float>&, const View<float>&,
                                              Address<std::uint8_t>, const MaxPool&);
template Ready append_max_pool_forward<double>(TaskGraph&, const Ready&, const ConstView<double>&, const View<double>&,
                                               Address<std::uint8_t>, const MaxPool&);
template Ready append_max_pool_backward<float>(TaskGraph&, const Ready&, const ConstView<float>&,
                                               Address<const std::uint8_t>, const View<float>&, const MaxPool&, bool);
template Ready append_max_pool_backward<double>(TaskGraph&, const Ready&, const ConstView<double>&,
                                                Address<const std::uint8_t>, const View<double>&, const MaxPool&, bool);

}  // namespace convolume::ops
