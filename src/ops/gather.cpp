#include "ops/gather.hpp"

#include <array>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "ops/gather.cpp"
#include "hwy/foreach_target.h"
// foreach_target comes first.
#include "hwy/highway.h"

#include "ops/layout-inl.hpp"
#include "ops/simd-inl.hpp"

#ifndef CONVOLUME_OPS_GATHER_KERNELS
#define CONVOLUME_OPS_GATHER_KERNELS
namespace convolume::ops {
namespace {

/// At most a block of channels, from the first voxel on: lanes of a voxel, or feature maps. Strides of plane, row,
/// voxel and channel.
template <class T>
struct Channels {
  T* data;
  index_t z, y, x, channel;
  bool blocked() const { return x != 1; }
  T* at(index_t plane, index_t row) const { return data + plane * z + row * y; }
};

/// Channels of a source, and where they go.
template <class T>
struct Piece {
  Channels<const T> from;
  index_t channels;
  index_t to;  // the first of them, within the part
};

/// A part of a target with all that goes there.
template <class T>
struct Gather {
  Channels<T> target;
  index_t channels;
  Extent3 extent;
  bool add;
  std::array<Piece<T>, View<T>::lanes> pieces;  // each has a channel at least
  std::size_t count = 0;
};

/// Voxels that are moved at once where lanes are exchanged with feature maps: they stay in L1.
inline constexpr index_t run_voxels = 64;

}  // namespace
}  // namespace convolume::ops
#endif

HWY_BEFORE_NAMESPACE();
namespace convolume::ops::HWY_NAMESPACE {
namespace {

/// Copies or adds `channels` lanes of each voxel.
template <class T>
void move_lanes(const T* from, T* to, index_t channels, index_t voxels, bool add) {
  constexpr index_t width = View<T>::lanes;
  const hn::CappedTag<T, width> d;
  const index_t lanes = lanes_of(d);
  if (channels == width && !add) {
    std::memcpy(to, from, static_cast<std::size_t>(voxels * width) * sizeof(T));
    return;
  }
  for (index_t c = 0; c < channels; c += lanes) {
    const index_t part = std::min(lanes, channels - c);
    if (add) {
      for (index_t i = c; i < voxels * width; i += width) {
        store_lanes(hn::Add(load_lanes(d, static_cast<const T*>(to + i), part), load_lanes(d, from + i, part)), d,
                    to + i, part);
      }
    } else {
      for (index_t i = c; i < voxels * width; i += width) store_lanes(load_lanes(d, from + i, part), d, to + i, part);
    }
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

/// A run of voxels of one piece; `from` and `to` are its first channel at the first of them.
template <class T>
void move_run(const Piece<T>& piece, const Channels<T>& target, const T* from, T* to, index_t voxels, bool add) {
  constexpr index_t width = View<T>::lanes;
  HWY_ALIGN T buffer[width * run_voxels];
  const index_t channels = piece.channels;
  if (piece.from.blocked() && target.blocked()) {
    move_lanes(from, to, channels, voxels, add);
  } else if (target.blocked()) {
    if (add) {
      to_lanes(from, piece.from.channel, channels, voxels, buffer, channels);
      move_lanes(static_cast<const T*>(buffer), to, channels, voxels, true);
    } else {
      to_lanes(from, piece.from.channel, channels, voxels, to, channels);
    }
  } else if (piece.from.blocked()) {
    if (add) {
      from_lanes(from, channels, voxels, buffer, run_voxels);
      for (index_t c = 0; c < channels; ++c) {
        move_row(static_cast<const T*>(buffer + c * run_voxels), to + c * target.channel, voxels, true);
      }
    } else {
      from_lanes(from, channels, voxels, to, target.channel);
    }
  } else {
    for (index_t c = 0; c < channels; ++c) {
      move_row(from + c * piece.from.channel, to + c * target.channel, voxels, add);
    }
  }
}

template <class T>
void gather_part(const Gather<T>& job) {
  constexpr index_t width = View<T>::lanes;
  bool plain = !job.target.blocked();
  for (std::size_t i = 0; i < job.count; ++i) plain = plain && !job.pieces[i].from.blocked();
  const index_t most = plain ? job.extent.x : run_voxels;
  for (index_t z = 0; z < job.extent.z; ++z) {
    for (index_t y = 0; y < job.extent.y; ++y) {
      for (index_t x = 0; x < job.extent.x; x += most) {
        const index_t voxels = std::min(most, job.extent.x - x);
        T* to = job.target.at(z, y) + x * job.target.x;
        for (std::size_t i = 0; i < job.count; ++i) {
          const Piece<T>& piece = job.pieces[i];
          move_run(piece, job.target, piece.from.at(z, y) + x * piece.from.x, to + piece.to * job.target.channel,
                   voxels, job.add);
        }
        if (job.target.blocked() && job.channels < width) clear_pad_lanes(to, job.channels, voxels);
      }
    }
  }
}

void gather_f32(const Gather<float>& job) { gather_part(job); }
void gather_f64(const Gather<double>& job) { gather_part(job); }

}  // namespace
}  // namespace convolume::ops::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace convolume::ops {
namespace {

HWY_EXPORT(gather_f32);
HWY_EXPORT(gather_f64);

template <class T>
Channels<T> channels_of(const View<T>& view, index_t n, index_t channel, index_t plane) {
  return {view.channel(n, channel) + plane * view.stride[2], view.stride[2], view.stride[3], view.stride[4],
          view.layout == Layout::plain ? view.stride[1] : 1};
}

/// The channels [c0, c1) of the target that come from `origin`; one piece per channel block of the origin.
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
  if constexpr (std::is_same_v<T, float>) {
    HWY_DYNAMIC_DISPATCH(gather_f32)(job);
  } else {
    HWY_DYNAMIC_DISPATCH(gather_f64)(job);
  }
}

template Cut gather_cut(std::span<const Origin<float>>, const View<float>&);
template Cut gather_cut(std::span<const Origin<double>>, const View<double>&);
template void gather(std::span<const Origin<float>>, const View<float>&, const Part&, bool) noexcept;
template void gather(std::span<const Origin<double>>, const View<double>&, const Part&, bool) noexcept;

}  // namespace convolume::ops
#endif  // HWY_ONCE
