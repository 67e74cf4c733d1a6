#include "ops/gather.hpp"

#include <array>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "ops/gather.cpp"
#include "hwy/foreach_target.h"
// foreach_target.h must come first.
#include "hwy/highway.h"

#include "ops/layout-inl.hpp"
#include "ops/simd-inl.hpp"

#ifndef CONVOLUME_OPS_GATHER_KERNELS
#define CONVOLUME_OPS_GATHER_KERNELS
namespace convolume::ops {
namespace {

/// At most a block of channels, either lanes of a voxel or feature maps. `data` is the first voxel. z, y, x and channel
/// are the strides of plane, row, voxel and channel.
template <class T>
struct Channels {
  T* data;
  index_t z, y, x, channel;
  bool blocked() const { return x != 1; }
  T* at(index_t plane, index_t row, index_t voxel) const { return data + plane * z + row * y + voxel * x; }
};

/// Channels of a source, and their position in the target.
template <class T>
struct Piece {
  Channels<const T> from;
  index_t channels;
  index_t to;  // position of the first of these channels within the part
};

/// A part of a target and the pieces that it is written from.
template <class T>
struct Gather {
  Channels<T> target;
  index_t channels;
  Extent3 extent;
  bool add;
  std::array<Piece<T>, View<T>::lanes> pieces;  // each piece has at least one channel
  std::size_t count = 0;
};

template <class T>
struct GatherKernels {
  void (*gather)(const Gather<T>& job);
};

/// Number of voxels that are moved at once if lanes are permuted. They stay in the L1.
inline constexpr index_t run_voxels = 64;

/// Calls body(z, y, x, voxels) for runs of at most `most` voxels along X.
template <class Body>
void for_each_run(const Extent3& extent, index_t most, const Body& body) {
  for (index_t z = 0; z < extent.z; ++z) {
    for (index_t y = 0; y < extent.y; ++y) {
      for (index_t x = 0; x < extent.x; x += most) body(z, y, x, std::min(most, extent.x - x));
    }
  }
}

}  // namespace
}  // namespace convolume::ops
#endif

HWY_BEFORE_NAMESPACE();
namespace convolume::ops::HWY_NAMESPACE {
namespace {

/// Copies `channels` lanes of each voxel.
template <class T>
void move_lanes(const T* from, T* to, index_t channels, index_t voxels) {
  constexpr index_t width = View<T>::lanes;
  const hn::CappedTag<T, width> d;
  const index_t lanes = lanes_of(d);
  for (index_t c = 0; c < channels; c += lanes) {
    const index_t part = std::min(lanes, channels - c);
    for (index_t i = c; i < voxels * width; i += width) store_lanes(load_lanes(d, from + i, part), d, to + i, part);
  }
}

template <class T>
void move_row(const T* from, T* to, index_t n, bool add) {
  if (add) {
    const hn::ScalableTag<T> d;
    using V = hn::Vec<decltype(d)>;
    map_elements(
        d, to, n, [](V before, V more) HWY_ATTR { return hn::Add(before, more); }, static_cast<const T*>(to), from);
  } else {
    std::memcpy(to, from, static_cast<std::size_t>(n) * sizeof(T));
  }
}

/// Copies or adds a run of voxels of a piece into plain feature maps. `from` and `to` point to its first channel.
template <class T>
void move_to_maps(const Piece<T>& piece, const T* from, T* to, index_t to_channel, index_t voxels, bool add) {
  if (piece.from.blocked() && !add) {
    from_lanes(from, piece.channels, voxels, to, to_channel);
  } else if (piece.from.blocked()) {
    HWY_ALIGN T maps[View<T>::lanes * run_voxels];
    from_lanes(from, piece.channels, voxels, maps, run_voxels);
    for (index_t c = 0; c < piece.channels; ++c) {
      move_row(static_cast<const T*>(maps + c * run_voxels), to + c * to_channel, voxels, true);
    }
  } else {
    for (index_t c = 0; c < piece.channels; ++c) {
      move_row(from + c * piece.from.channel, to + c * to_channel, voxels, add);
    }
  }
}

/// Writes a target of plain feature maps.
template <class T>
void gather_maps(const Gather<T>& job) {
  bool lanes = false;
  for (std::size_t i = 0; i < job.count; ++i) lanes = lanes || job.pieces[i].from.blocked();
  const index_t most = lanes ? run_voxels : job.extent.x;
  for_each_run(job.extent, most, [&](index_t z, index_t y, index_t x, index_t voxels) HWY_ATTR {
    for (std::size_t i = 0; i < job.count; ++i) {
      const Piece<T>& piece = job.pieces[i];
      move_to_maps(piece, piece.from.at(z, y, x), job.target.at(z, y, x) + piece.to * job.target.channel,
                   job.target.channel, voxels, job.add);
    }
  });
}

/// Writes a target of whole lanes from the same lanes of a source.
template <class T>
void gather_block(const Gather<T>& job) {
  for_each_run(job.extent, job.extent.x, [&](index_t z, index_t y, index_t x, index_t voxels) HWY_ATTR {
    move_row(job.pieces[0].from.at(z, y, x), job.target.at(z, y, x), voxels * View<T>::lanes, job.add);
  });
}

/// Writes a target of lanes from as many feature maps.
template <class T>
void gather_from_maps(const Gather<T>& job) {
  const Piece<T>& piece = job.pieces[0];
  for_each_run(job.extent, job.extent.x, [&](index_t z, index_t y, index_t x, index_t voxels) HWY_ATTR {
    to_lanes(piece.from.at(z, y, x), piece.from.channel, piece.channels, voxels, job.target.at(z, y, x),
             View<T>::lanes);
  });
}

/// Writes a target of lanes that come from several sources. Voxels are assembled in the L1 and written whole, because
/// stores of single lanes would wait for their cache line.
template <class T>
void gather_lanes(const Gather<T>& job) {
  constexpr index_t width = View<T>::lanes;
  HWY_ALIGN T lanes[width * run_voxels] = {};  // no piece writes the pad lanes
  for_each_run(job.extent, run_voxels, [&](index_t z, index_t y, index_t x, index_t voxels) HWY_ATTR {
    for (std::size_t i = 0; i < job.count; ++i) {
      const Piece<T>& piece = job.pieces[i];
      if (piece.from.blocked()) {
        move_lanes(piece.from.at(z, y, x), lanes + piece.to, piece.channels, voxels);
      } else {
        to_lanes(piece.from.at(z, y, x), piece.from.channel, piece.channels, voxels, lanes + piece.to, piece.channels);
      }
    }
    T* to = job.target.at(z, y, x);
    move_row(static_cast<const T*>(lanes), to, voxels * width, job.add);
    if (job.add && job.channels < width) clear_pad_lanes(to, job.channels, voxels);
  });
}

template <class T>
void gather_part(const Gather<T>& job) {
  if (!job.target.blocked()) {
    gather_maps(job);
  } else if (job.pieces[0].from.blocked() && job.pieces[0].channels == View<T>::lanes) {
    gather_block(job);
  } else if (!job.pieces[0].from.blocked() && job.count == 1 && !job.add) {
    gather_from_maps(job);
  } else {
    gather_lanes(job);
  }
}

GatherKernels<float> gather_kernels_f32() { return {gather_part<float>}; }
GatherKernels<double> gather_kernels_f64() { return {gather_part<double>}; }

}  // namespace
}  // namespace convolume::ops::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace convolume::ops {
namespace {

HWY_EXPORT(gather_kernels_f32);
HWY_EXPORT(gather_kernels_f64);

template <class T>
GatherKernels<T> kernels() {
  if constexpr (std::is_same_v<T, float>) {
    return HWY_DYNAMIC_DISPATCH(gather_kernels_f32)();
  } else {
    return HWY_DYNAMIC_DISPATCH(gather_kernels_f64)();
  }
}

template <class T>
Channels<T> channels_of(const View<T>& view, index_t n, index_t channel, index_t plane) {
  return {view.channel(n, channel) + plane * view.stride[2], view.stride[2], view.stride[3], view.stride[4],
          view.layout == Layout::plain ? view.stride[1] : 1};
}

/// Adds the pieces of channels [c0, c1) of the target that come from `origin`, one piece per channel block of the
/// origin.
template <class T>
void add_pieces(Gather<T>& job, const Origin<T>& origin, const Part& part) {
  const View<const T>& view = origin.view;
  const index_t end = std::min(part.c1 - origin.first, view.shape.c);
  index_t c = std::max<index_t>(0, part.c0 - origin.first);
  while (c < end) {
    const index_t next = view.layout == Layout::plain ? end : std::min(end, (c / View<T>::lanes + 1) * View<T>::lanes);
    job.pieces[job.count++] = {channels_of(view, part.n, c, part.z0), next - c, c + origin.first - part.c0};
    c = next;
  }
}

}  // namespace

template <class T>
Cut gather_cut(std::span<const Origin<T>> origins, const View<T>& target) {
  bool plain = target.layout == Layout::plain;
  for (const Origin<T>& origin : origins) plain = plain && origin.view.layout == Layout::plain;
  const index_t block = plain ? 1 : View<T>::lanes;
  return cut(target.shape, block, target.shape.extent.volume() * block);
}

template <class T>
void gather(std::span<const Origin<T>> origins, const View<T>& target, const Part& part, bool add) noexcept {
  Gather<T> job{.target = channels_of(target, part.n, part.c0, part.z0),
                .channels = part.c1 - part.c0,
                .extent = target.shape.extent,
                .add = add,
                .pieces = {}};
  job.extent.z = part.z1 - part.z0;
  bool dense = target.dense_blocks();
  for (const Origin<T>& origin : origins) {
    add_pieces(job, origin, part);
    dense = dense && origin.view.dense_blocks();
  }
  if (dense) job.extent = {1, 1, job.extent.z * job.extent.y * job.extent.x};  // one long row
  kernels<T>().gather(job);
}

template Cut gather_cut(std::span<const Origin<float>>, const View<float>&);
template Cut gather_cut(std::span<const Origin<double>>, const View<double>&);
template void gather(std::span<const Origin<float>>, const View<float>&, const Part&, bool) noexcept;
template void gather(std::span<const Origin<double>>, const View<double>&, const Part&, bool) noexcept;

}  // namespace convolume::ops
#endif  // HWY_ONCE
