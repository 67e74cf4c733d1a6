// Describes the tiles of one direction: what each tile covers, reads and writes.
#pragma once

#include <algorithm>
#include <string>
#include <vector>

#include <fmt/format.h>

#include "convolume/ready.hpp"
#include "convolume/scheduler.hpp"
#include "plan/tiled_cost.hpp"

namespace convolume::conv {

/// The tiles of one direction, numbered in the order (sample, z, y, x, polyphase component of y). Below, "component"
/// means a polyphase component (plan/polyphase.hpp). "Domain" means the tensor that the tiles cover.
struct TileGrid {
  plan::Tiling tiling{};
  index_t batch = 1;
  plan::Polyphase polyphase{};

  /// Returns what plans say about components, or an empty string if there is only one component.
  std::string describe() const {
    if (polyphase.residues() * polyphase.phases() == 1) return {};
    const std::string layers = tiling.planes > 1 ? fmt::format(", {} layers together", tiling.planes) : "";
    return fmt::format(", {} components of y, {} phases of x{}", polyphase.residues(), polyphase.phases(), layers);
  }
  /// Returns whether tiles are planes. Then all frequencies are multiplied together, because there are no lines along Z
  /// and each frequency block is a single frequency.
  bool planar() const { return tiling.tile.z == 1; }
  index_t layer() const { return tiling.count.y * tiling.count.x * polyphase.residues(); }
  index_t per_sample() const { return tiling.count.z * layer(); }
  index_t tiles() const { return batch * per_sample(); }
  index_t sample(index_t tile) const { return tile / per_sample(); }
  /// Returns the residue that identifies the component of y which the tile covers in part.
  Extent3 residue(index_t tile) const { return polyphase.residue(tile % polyphase.residues()); }
  /// Returns the first voxel of the tile's valid part, in voxels of the domain's component.
  Extent3 begin(index_t tile) const { return place(tile) * tiling.valid; }
  /// Returns the position of the tile among the tiles of its component.
  Extent3 place(index_t tile) const {
    const index_t i = tile % per_sample() / polyphase.residues();
    return {i / (tiling.count.y * tiling.count.x), i / tiling.count.x % tiling.count.y, i % tiling.count.x};
  }

  /// Return a component as a view of every step-th voxel of a tensor. The tile identifies the component of y. The tile
  /// and the number of a phase identify the component of x. The phase alone identifies the component of w.
  template <class T>
  View<T> y_component(const View<T>& y, index_t tile) const {
    return component(y, residue(tile), polyphase.y_step);
  }
  template <class T>
  View<T> x_component(const View<T>& x, index_t tile, index_t phase) const {
    return component(x, polyphase.x_first(residue(tile), polyphase.phase(phase)), polyphase.x_step);
  }
  template <class T>
  View<T> w_component(const View<T>& w, index_t phase) const {
    return component(w, polyphase.phase(phase), polyphase.w_step);
  }
  /// Returns the voxel of x's component that the product of the tile's first voxel of y, begin(tile), and the first tap
  /// uses.
  Extent3 x_begin(index_t tile, index_t phase) const {
    return begin(tile) + polyphase.x_shift(residue(tile), polyphase.phase(phase));
  }
  /// Returns the voxel of x's component at which voxel begin(tile) of the domain lies, if the domain is x.
  Extent3 x_target(index_t tile, index_t phase) const { return x_begin(tile, phase) + polyphase.dense.pad_before; }

  /// Returns the first voxel of y's component that a tile of x reads.
  Extent3 y_begin(index_t tile) const { return begin(tile) + polyphase.dense.pad_before - margin(); }
  Extent3 margin() const { return polyphase.dense.kernel - Extent3::all(1); }

  /// Append the tasks that complete planes [begin, end) of all components of y, or of all components of the padded x.
  /// `ready` says which tasks these are.
  void collect_y(const Ready& ready, index_t n, index_t c0, index_t c1, index_t begin, index_t end,
                 std::vector<TaskId>& after) const {
    const index_t step = polyphase.y_step.z;
    ready.collect(n, c0, c1, std::max<index_t>(0, begin * step), std::max<index_t>(1, end * step), after);
  }
  void collect_x(const Ready& ready, index_t n, index_t c0, index_t c1, index_t begin, index_t end,
                 std::vector<TaskId>& after) const {
    const index_t step = polyphase.x_step.z, pad = polyphase.dense.pad_before.z, range = polyphase.shift_range.z;
    ready.collect(n, c0, c1, std::max<index_t>(0, (begin - pad - range) * step),
                  std::max<index_t>(1, (end - pad) * step), after);
  }
  /// Append the tasks that complete what tiles with the valid planes [begin, end) of the domain read, or what they
  /// write.
  void collect_source(bool domain_is_y, const Ready& ready, index_t n, index_t c0, index_t c1, index_t begin,
                      index_t end, std::vector<TaskId>& after) const {
    const index_t behind = end + tiling.tile.z - tiling.valid.z, offset = polyphase.dense.pad_before.z - margin().z;
    if (tiling.overlap_add) return collect_y(ready, n, c0, c1, begin, end, after);
    if (domain_is_y) return collect_x(ready, n, c0, c1, begin, behind, after);
    collect_y(ready, n, c0, c1, begin + offset, behind + offset, after);
  }
  void collect_target(bool domain_is_y, const Ready& ready, index_t n, index_t c0, index_t c1, index_t begin,
                      index_t end, std::vector<TaskId>& after) const {
    const index_t pad = polyphase.dense.pad_before.z;
    if (domain_is_y) return collect_y(ready, n, c0, c1, begin, end, after);
    collect_x(ready, n, c0, c1, begin + pad, end + pad, after);
  }
  /// Return how many planes of the domain's tensor one layer of tiles covers (a Z range), and the first Z range to
  /// which a layer writes. Components of x begin at different planes, so a layer can also write to earlier Z ranges.
  index_t z_range_planes(bool domain_is_y) const {
    return tiling.valid.z * (domain_is_y ? polyphase.y_step.z : polyphase.x_step.z);
  }
  index_t first_z_range(bool domain_is_y, index_t layer) const {
    return std::max<index_t>(0, layer * tiling.valid.z - (domain_is_y ? 0 : polyphase.shift_range.z)) / tiling.valid.z;
  }

 private:
  /// Returns a view of every step-th voxel from `first` on. The view is empty if `first` lies outside the tensor.
  template <class T>
  static View<T> component(View<T> tensor, const Extent3& first, const Extent3& step) {
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

/// Adds one task for each Z range of a sample (TileGrid::z_range_planes). The task follows the tiles that write to this
/// Z range. Appends the new tasks to `done`.
void append_z_ranges(TaskGraph& graph, const std::vector<std::vector<TaskId>>& of_z_range, std::vector<TaskId>& done);

}  // namespace convolume::conv
