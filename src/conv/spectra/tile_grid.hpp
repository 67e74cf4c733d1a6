// The tiles of one direction: what each covers, reads and writes.
#pragma once

#include <algorithm>
#include <string>
#include <vector>

#include <fmt/format.h>

#include "convolume/ready.hpp"
#include "convolume/scheduler.hpp"
#include "plan/tiled_cost.hpp"

namespace convolume::conv {

/// The tiles of one direction, numbered (sample, z, y, x, lattice of y), and their transforms.
struct TileGrid {
  plan::TiledWay way{};
  index_t batch = 1;
  plan::Lattices lattices{};

  /// What plans say of lattices, where there are several.
  std::string describe() const {
    if (lattices.residues() * lattices.phases() == 1) return {};
    const std::string layers = way.planes > 1 ? fmt::format(", {} layers together", way.planes) : "";
    return fmt::format(", {} lattices of y, {} phases of x{}", lattices.residues(), lattices.phases(), layers);
  }
  /// Of planes all frequencies are multiplied together: without lines along Z, blocks are single frequencies.
  bool planar() const { return way.tile.z == 1; }
  index_t layer() const { return way.count.y * way.count.x * lattices.residues(); }
  index_t per_sample() const { return way.count.z * layer(); }
  index_t tiles() const { return batch * per_sample(); }
  index_t sample(index_t tile) const { return tile / per_sample(); }
  /// The lattice of y that a tile covers a part of.
  Extent3 residue(index_t tile) const { return lattices.residue(tile % lattices.residues()); }
  /// First voxel of a tile's valid part, in the domain that is covered.
  Extent3 begin(index_t tile) const { return place(tile) * way.valid; }
  /// Where it stands among the tiles of its lattice.
  Extent3 place(index_t tile) const {
    const index_t i = tile % per_sample() / lattices.residues();
    return {i / (way.count.y * way.count.x), i / way.count.x % way.count.y, i % way.count.x};
  }

  /// Of a tile's lattices. A view of the whole tensor becomes one of the lattice; `phase` counts them.
  template <class T>
  View<T> y_lattice(const View<T>& y, index_t tile) const {
    return lattice(y, residue(tile), lattices.y_step);
  }
  template <class T>
  View<T> x_lattice(const View<T>& x, index_t tile, index_t phase) const {
    return lattice(x, lattices.x_first(residue(tile), lattices.phase(phase)), lattices.x_step);
  }
  template <class T>
  View<T> w_lattice(const View<T>& w, index_t phase) const {
    return lattice(w, lattices.phase(phase), lattices.w_step);
  }
  /// Voxel of x's lattice that the first voxel of a tile of y (first = begin(tile)) meets.
  Extent3 x_begin(index_t tile, index_t phase) const {
    return begin(tile) + lattices.x_shift(residue(tile), lattices.phase(phase));
  }
  /// Voxel of x's lattice that voxel begin(tile) of the domain is, where that is x's.
  Extent3 x_target(index_t tile, index_t phase) const { return x_begin(tile, phase) + lattices.dense.pad_before; }

  /// Where the source of a tile of x begins on y's lattice.
  Extent3 y_begin(index_t tile) const { return begin(tile) + lattices.dense.pad_before - margin(); }
  Extent3 margin() const { return lattices.dense.kernel - Extent3::all(1); }

  /// What planes [begin, end) of y on all lattices are, and what x they meet; `ready` tells who completes that.
  void collect_y(const Ready& ready, index_t n, index_t c0, index_t c1, index_t begin, index_t end,
                 std::vector<TaskId>& after) const {
    const index_t step = lattices.y_step.z;
    ready.collect(n, c0, c1, std::max<index_t>(0, begin * step), std::max<index_t>(1, end * step), after);
  }
  void collect_x(const Ready& ready, index_t n, index_t c0, index_t c1, index_t begin, index_t end,
                 std::vector<TaskId>& after) const {
    const index_t step = lattices.x_step.z, pad = lattices.dense.pad_before.z, range = lattices.shift_range.z;
    ready.collect(n, c0, c1, std::max<index_t>(0, (begin - pad - range) * step),
                  std::max<index_t>(1, (end - pad) * step), after);
  }
  /// What tiles whose valid planes are [begin, end) of the domain read, and what they write.
  void collect_source(bool domain_is_y, const Ready& ready, index_t n, index_t c0, index_t c1, index_t begin,
                      index_t end, std::vector<TaskId>& after) const {
    const index_t behind = end + way.tile.z - way.valid.z, offset = lattices.dense.pad_before.z - margin().z;
    if (way.overlap_add) return collect_y(ready, n, c0, c1, begin, end, after);
    if (domain_is_y) return collect_x(ready, n, c0, c1, begin, behind, after);
    collect_y(ready, n, c0, c1, begin + offset, behind + offset, after);
  }
  void collect_target(bool domain_is_y, const Ready& ready, index_t n, index_t c0, index_t c1, index_t begin,
                      index_t end, std::vector<TaskId>& after) const {
    const index_t pad = lattices.dense.pad_before.z;
    if (domain_is_y) return collect_y(ready, n, c0, c1, begin, end, after);
    collect_x(ready, n, c0, c1, begin + pad, end + pad, after);
  }
  /// Planes of the domain's tensor in one layer of tiles, and the first such slab that a layer writes to. Lattices of x
  /// begin at different planes: a share of them lies in slabs before.
  index_t slab_planes(bool domain_is_y) const {
    return way.valid.z * (domain_is_y ? lattices.y_step.z : lattices.x_step.z);
  }
  index_t first_slab(bool domain_is_y, index_t layer) const {
    return std::max<index_t>(0, layer * way.valid.z - (domain_is_y ? 0 : lattices.shift_range.z)) / way.valid.z;
  }

 private:
  /// Every step-th voxel from `first` on; none where that lies outside.
  template <class T>
  static View<T> lattice(View<T> tensor, const Extent3& first, const Extent3& step) {
    for (int axis = 0; axis < 3; ++axis) {
      index_t& stride = tensor.stride[static_cast<std::size_t>(axis + 2)];
      tensor.data += first[axis] * stride;
      stride *= step[axis];
      index_t& extent = tensor.shape.extent[axis];
      extent = std::max<index_t>(0, (extent - first[axis] + step[axis] - 1) / step[axis]);
    }
    return tensor;
  }
};

/// Adds a task for each slab of planes of a sample (TileGrid::slab_planes) behind the tiles that write there.
void append_slabs(TaskGraph& graph, const std::vector<std::vector<TaskId>>& of_slab, std::vector<TaskId>& done);

}  // namespace convolume::conv
