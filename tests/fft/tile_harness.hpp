// Runs tiles in memory of exactly the needed size. Voxels that a transform must not use are NaN before a load and are
// checked after a store. The gaps between points of a spectrum are checked, too.
#pragma once

#include <array>
#include <string>
#include <vector>

#include "fft/tile_plan.hpp"
#include "tests/fft/fft_harness.hpp"

namespace convolume::test {

template <class T>
inline constexpr auto lanes_of = static_cast<std::size_t>(fft::tile_lanes<T>);

/// Positions of the voxels of every lane, as the source of a prologue or the target of an epilogue.
template <class T>
struct TileSpace {
  bool blocked = true;
  Extent3 stride{0, 0, 0};                    // elements between planes, rows, voxels
  std::array<index_t, lanes_of<T>> origin{};  // position of voxel 0, which may lie before the memory
  std::array<fft::TileBox, lanes_of<T>> boxes{};
  std::array<bool, lanes_of<T>> present{};
  index_t elements = 0;

  index_t at(std::size_t lane, index_t z, index_t y, index_t x) const {
    return origin[lane] + z * stride.z + y * stride.y + x * stride.x;
  }
  bool holds(std::size_t lane, index_t z, index_t y, index_t x) const {
    const auto& [begin, end] = boxes[lane];
    return present[lane] && z >= begin.z && z < end.z && y >= begin.y && y < end.y && x >= begin.x && x < end.x;
  }

  template <class Element>
  fft::BlockedTile<Element> blocked_tile(Element* memory) const {
    return {memory + origin[0], stride.z, stride.y, stride.x, boxes[0]};
  }
  template <class Element>
  fft::PlainTile<Element> plain_tile(Element* memory) const {
    fft::PlainTile<Element> tile{{}, stride.z, stride.y, boxes};
    for (std::size_t lane = 0; lane < lanes_of<T>; ++lane) {
      tile.lanes[lane] = present[lane] ? memory + origin[lane] : nullptr;
    }
    return tile;
  }
};

inline fft::TileBox whole_box(const Extent3& extent) { return {{0, 0, 0}, extent}; }

namespace harness {

/// Returns the part of a box that lies within the support.
inline fft::TileBox clipped(const fft::TileBox& box, const Extent3& support) {
  fft::TileBox inside;
  for (int axis = 0; axis < 3; ++axis) {
    inside.begin[axis] = std::clamp<index_t>(box.begin[axis], 0, support[axis]);
    inside.end[axis] = std::clamp<index_t>(box.end[axis], inside.begin[axis], support[axis]);
  }
  return inside;
}

}  // namespace harness

/// Returns a blocked volume with `channel_blocks` channel blocks, of which the last one is used. It extends one voxel
/// beyond the used part of the box.
template <class T>
TileSpace<T> blocked_space(const Extent3& support, const fft::TileBox& box, index_t channel_blocks = 1) {
  const fft::TileBox inside = harness::clipped(box, support);
  const Extent3 volume{inside.end.z - inside.begin.z + 2, inside.end.y - inside.begin.y + 2,
                       inside.end.x - inside.begin.x + 2};
  TileSpace<T> space;
  space.stride.x = channel_blocks * fft::tile_lanes<T>;
  space.stride.y = (volume.x + channel_blocks - 1) * space.stride.x;
  space.stride.z = (volume.y + channel_blocks - 1) * space.stride.y;
  space.elements = volume.z * space.stride.z;
  for (std::size_t lane = 0; lane < lanes_of<T>; ++lane) {
    space.origin[lane] = (1 - inside.begin.z) * space.stride.z + (1 - inside.begin.y) * space.stride.y +
                         (1 - inside.begin.x) * space.stride.x + (channel_blocks - 1) * fft::tile_lanes<T> +
                         static_cast<index_t>(lane);
  }
  space.boxes.fill(box);
  space.present.fill(true);
  return space;
}

/// Returns `channels` channels of a plain tensor. The lanes behind them are null.
template <class T>
TileSpace<T> channel_space(const Extent3& support, const fft::TileBox& box, std::size_t channels) {
  const fft::TileBox inside = harness::clipped(box, support);
  const Extent3 volume{inside.end.z - inside.begin.z, inside.end.y - inside.begin.y, inside.end.x - inside.begin.x};
  TileSpace<T> space{.blocked = false};
  space.stride = {volume.y * volume.x + 3, volume.x, 1};
  const index_t channel_stride = volume.z * space.stride.z + 1;
  space.elements = static_cast<index_t>(channels) * channel_stride;
  for (std::size_t lane = 0; lane < channels; ++lane) {
    space.origin[lane] = static_cast<index_t>(lane) * channel_stride - inside.begin.z * space.stride.z -
                         inside.begin.y * space.stride.y - inside.begin.x;
    space.present[lane] = true;
  }
  space.boxes.fill(box);
  return space;
}

/// Returns tiles of one channel, cut from a volume at distance `step` and clipped at its borders. The first tile begins
/// before the volume, the last may lie behind it. Every seventh lane is null. If `apart` is set, boxes are clipped to
/// the step, so that tiles do not overlap, as stores require.
template <class T>
TileSpace<T> tiles_space(const Extent3& support, const Extent3& step, const Extent3& rest, bool apart) {
  constexpr Extent3 grid{static_cast<index_t>(lanes_of<T>) / 4, 2, 2};
  Extent3 volume;
  for (int axis = 0; axis < 3; ++axis) {
    volume[axis] = std::max<index_t>(1, (grid[axis] - 1) * step[axis] - 1 + std::min(rest[axis], support[axis]));
  }
  TileSpace<T> space{.blocked = false};
  space.stride = {volume.y * (volume.x + 1), volume.x + 1, 1};
  space.elements = volume.z * space.stride.z - 1;
  for (std::size_t lane = 0; lane < lanes_of<T>; ++lane) {
    const auto i = static_cast<index_t>(lane);
    const Extent3 position{i / 4 * step.z - 1, i / 2 % 2 * step.y - 1, i % 2 * step.x - 1};
    space.present[lane] = lane % 7 != 5;
    space.origin[lane] = position.z * space.stride.z + position.y * space.stride.y + position.x;
    for (int axis = 0; axis < 3; ++axis) {
      space.boxes[lane].begin[axis] = -position[axis];
      space.boxes[lane].end[axis] = volume[axis] - position[axis];
      if (!apart) continue;
      space.boxes[lane].begin[axis] = std::max<index_t>(space.boxes[lane].begin[axis], 0);
      space.boxes[lane].end[axis] = std::min(space.boxes[lane].end[axis], step[axis]);
    }
  }
  return space;
}

/// Memory for spectra of several tiles and channel blocks, of which one is transformed.
struct SpectrumLayout {
  const char* name = "";
  fft::TileStrides strides{};
  index_t elements = 0;
  index_t first = 0;  // position of the used tile and channel block
};

/// Returns layouts that engines use, and some unusual ones. The used spectrum is tile 1 of 2 and channel block 1 of 2
/// if there are several.
template <class T>
std::vector<SpectrumLayout> spectrum_layouts(const Extent3& e) {
  constexpr index_t lanes = fft::tile_lanes<T>;
  const index_t blocks = e.y * (e.x / 2 + 1);
  std::vector<SpectrumLayout> layouts;
  const auto add = [&](const char* name, const fft::TileStrides& s, index_t elements) {
    layouts.push_back({name, s, elements, s.tile + s.channel_block});
  };
  const index_t tile = e.z * 2 * lanes;
  add("{block, tile, kz, re/im, channel}",
      {.block = 2 * tile, .frequency = 2 * lanes, .tile = tile, .channel_block = 0, .re_im = lanes}, blocks * 2 * tile);
  add("{block, kz, tile, re/im, channel block, channel}",
      {.block = e.z * 8 * lanes, .frequency = 8 * lanes, .tile = 4 * lanes, .channel_block = lanes, .re_im = 2 * lanes},
      blocks * e.z * 8 * lanes);
  add("{re/im, channel block, kz, block, channel}",
      {.block = lanes,
       .frequency = blocks * lanes,
       .tile = 0,
       .channel_block = e.z * blocks * lanes,
       .re_im = 2 * e.z * blocks * lanes},
      4 * e.z * blocks * lanes);
  // Odd strides: nothing is aligned to a vector, and there are gaps everywhere.
  const index_t odd_frequency = 2 * (lanes + 3) + 1, odd_block = e.z * odd_frequency + 5;
  add("padded", {.block = odd_block, .frequency = odd_frequency, .tile = 9, .channel_block = 0, .re_im = lanes + 3},
      9 + blocks * odd_block);
  return layouts;
}

/// One tile plan, and its runs on buffers of exact size.
template <class T>
class TileRun {
 public:
  TileRun(const fft::TilePlan<T>& plan, const TileSpace<T>& space, const SpectrumLayout& layout)
      : plan_(plan), space_(space), layout_(layout) {}

  /// Returns `values` (dense, [lane][z][y][x]) with zeros wherever the space holds no voxel of the support.
  template <class Value>
  std::vector<Value> held(std::vector<Value> values) const {
    for_voxels([&](std::size_t i, std::size_t lane, index_t z, index_t y, index_t x) {
      if (!held_at(lane, z, y, x)) values[i] = 0;
    });
    return values;
  }
  index_t voxels_held() const {
    index_t count = 0;
    for_voxels([&](std::size_t, std::size_t lane, index_t z, index_t y, index_t x) {
      count += held_at(lane, z, y, x) ? 1 : 0;
    });
    return count;
  }

  /// Runs forward on memory that holds `values` at voxels of the space and NaN elsewhere. If lanes share a voxel, it
  /// holds the value of the last lane.
  Outcome<T> forward(const std::vector<std::complex<T>>& values) const {
    const Buffer<T> memory(bytes(space_.elements)), spectrum(bytes(layout_.elements));
    for_voxels([&](std::size_t i, std::size_t lane, index_t z, index_t y, index_t x) {
      if (held_at(lane, z, y, x)) memory[space_.at(lane, z, y, x)] = values[i].real();
    });
    const Buffer<T> before(bytes(space_.elements));
    std::memcpy(before.data(), memory.data(), bytes(space_.elements));
    const std::vector<bool> points = watch_gaps(spectrum);
    const Buffer<T> scratch(plan_.scratch_bytes());
    const T* source = memory.data();
    T* first = spectrum.data() + layout_.first;
    if (space_.blocked) {
      plan_.forward(space_.blocked_tile(source), first, layout_.strides, scratch.data());
    } else {
      plan_.forward(space_.plain_tile(source), first, layout_.strides, scratch.data());
    }
    Outcome<T> outcome{gather(spectrum), gaps(spectrum, points, "spectrum")};
    if (std::memcmp(before.data(), memory.data(), bytes(space_.elements)) != 0) {
      outcome.complaint += " the source was written";
    }
    return outcome;
  }

  /// Makes values equal in lanes that share a voxel, so that forward() can place them.
  void share(std::vector<std::complex<T>>& values) const {
    std::vector<std::complex<T>> memory(static_cast<std::size_t>(space_.elements));
    for_voxels([&](std::size_t i, std::size_t lane, index_t z, index_t y, index_t x) {
      if (held_at(lane, z, y, x)) memory[static_cast<std::size_t>(space_.at(lane, z, y, x))] = values[i];
    });
    for_voxels([&](std::size_t i, std::size_t lane, index_t z, index_t y, index_t x) {
      if (held_at(lane, z, y, x)) values[i] = memory[static_cast<std::size_t>(space_.at(lane, z, y, x))];
    });
  }

  /// Runs the inverse of a spectrum (dense, [lane][kz][ky][kx]). The target memory holds `before` if results are added,
  /// NaN otherwise. Voxels outside the space are zero in the result.
  Outcome<T> inverse(const std::vector<std::complex<T>>& values, const fft::TileStore<T>& store = {},
                     const std::vector<std::complex<T>>& before = {}) const {
    const Buffer<T> memory(bytes(space_.elements)), spectrum(bytes(layout_.elements));
    memory.fill(harness::sentinel<T>);
    std::vector<bool> voxels(static_cast<std::size_t>(space_.elements));
    for_voxels([&](std::size_t i, std::size_t lane, index_t z, index_t y, index_t x) {
      if (!held_at(lane, z, y, x)) return;
      const index_t at = space_.at(lane, z, y, x);
      voxels.at(static_cast<std::size_t>(at)) = true;
      memory[at] = store.add ? before[i].real() : std::numeric_limits<T>::quiet_NaN();
    });
    const std::vector<bool> points = watch_gaps(spectrum);
    for_points([&](std::size_t i, index_t at) {
      spectrum[at] = values[i].real();
      spectrum[at + layout_.strides.re_im] = values[i].imag();
    });
    const Buffer<T> scratch(plan_.scratch_bytes());
    T* first = spectrum.data() + layout_.first;
    if (space_.blocked) {
      plan_.inverse(first, layout_.strides, space_.blocked_tile(memory.data()), store, scratch.data());
    } else {
      plan_.inverse(first, layout_.strides, space_.plain_tile(memory.data()), store, scratch.data());
    }
    Outcome<T> outcome{{}, gaps(spectrum, points, "spectrum") + gaps(memory, voxels, "target")};
    for_voxels([&](std::size_t, std::size_t lane, index_t z, index_t y, index_t x) {
      outcome.out.emplace_back(held_at(lane, z, y, x) ? memory[space_.at(lane, z, y, x)] : T{0});
    });
    return outcome;
  }

 private:
  static std::size_t bytes(index_t elements) { return static_cast<std::size_t>(elements) * sizeof(T); }

  bool held_at(std::size_t lane, index_t z, index_t y, index_t x) const {
    const Extent3& s = plan_.support();
    return z < s.z && y < s.y && x < s.x && space_.holds(lane, z, y, x);
  }
  template <class Visit>
  void for_voxels(const Visit& visit) const {
    test::for_points(fft::tile_lanes<T>, plan_.extent(),
                     [&](std::size_t i, index_t lane, index_t z, index_t y, index_t x) {
                       visit(i, static_cast<std::size_t>(lane), z, y, x);
                     });
  }
  /// Calls visit(i, element of the real part) for all points of the spectrum.
  template <class Visit>
  void for_points(const Visit& visit) const {
    const Extent3& e = plan_.extent();
    const Extent3 half{e.z, e.y, plan_.x_star()};
    test::for_points(fft::tile_lanes<T>, half, [&](std::size_t i, index_t lane, index_t z, index_t y, index_t x) {
      visit(i, layout_.first + lane + (y * half.x + x) * layout_.strides.block + z * layout_.strides.frequency);
    });
  }
  /// Sets points to NaN and the gaps between them to sentinels. Returns the positions of points.
  std::vector<bool> watch_gaps(const Buffer<T>& spectrum) const {
    std::vector<bool> points(static_cast<std::size_t>(layout_.elements));
    for_points([&](std::size_t, index_t at) {
      points.at(static_cast<std::size_t>(at)) = true;
      points.at(static_cast<std::size_t>(at + layout_.strides.re_im)) = true;
    });
    for (index_t i = 0; i < layout_.elements; ++i) {
      if (!points[static_cast<std::size_t>(i)]) spectrum[i] = harness::sentinel<T>;
    }
    return points;
  }
  std::vector<std::complex<T>> gather(const Buffer<T>& spectrum) const {
    std::vector<std::complex<T>> values;
    for_points(
        [&](std::size_t, index_t at) { values.emplace_back(spectrum[at], spectrum[at + layout_.strides.re_im]); });
    return values;
  }
  static std::string gaps(const Buffer<T>& buffer, const std::vector<bool>& used, const char* name) {
    const std::string text = harness::look_at_gaps(buffer, used, std::vector<bool>(used.size()));
    return text.empty() ? text : std::string(" ") + name + ": " + text;
  }

  const fft::TilePlan<T>& plan_;
  const TileSpace<T>& space_;
  const SpectrumLayout& layout_;
};

}  // namespace convolume::test
