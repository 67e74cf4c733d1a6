// Covers a volume with overlapping patches, and weights their outputs.
#pragma once

#include <array>
#include <optional>
#include <vector>

#include "convolume/inference.hpp"
#include "nets/spec/net_shapes.hpp"

namespace convolume::nets {

/// What decides where patches lie, and how they are blended.
struct PatchOptions {
  std::optional<Extent3> patch{};    ///< input extent; if absent, the net's training patch
  std::optional<Extent3> overlap{};  ///< of neighbouring outputs; if absent, 0 for a net without padding, otherwise a
                                     ///< field of view but at most half a patch
  Blend blend = Blend::ramp;
};

/// The patches along one axis. Positions are output voxels, counted from the first voxel of the region.
struct AxisPatches {
  index_t patch = 0, output = 0;  ///< input and output voxels of a patch
  index_t offset = 0;             ///< position of output voxel 0 in the patch
  std::vector<index_t> starts;    ///< first output voxel of each patch, ascending
  /// Weights of the output voxels of each patch, and the same for patches that are mirrored along this axis. The
  /// weights of all patches that cover a voxel sum up to 1.
  std::vector<std::vector<float>> weights, mirrored_weights;

  index_t count() const noexcept { return static_cast<index_t>(starts.size()); }
  /// Returns the patches [first, end) whose outputs have voxels in [begin, behind).
  std::pair<index_t, index_t> touching(index_t begin, index_t behind) const;
};

/// The patches that cover a region, along Z, Y and X.
struct PatchGrid {
  Extent3 region{}, patch{}, overlap{};
  std::array<AxisPatches, 3> axes;

  const AxisPatches& axis(int a) const { return axes[static_cast<std::size_t>(a)]; }
  index_t patches() const { return axes[0].count() * axes[1].count() * axes[2].count(); }
};

/// Returns the patches for a region. A patch is no larger than the region needs. If a net pads, the outermost output
/// voxels of a patch depend on padding that does not exist in the volume. They count only at the faces of the region,
/// or if the overlap is too small to do without them. Throws ConfigError if the patch does not fit the net.
PatchGrid make_patch_grid(const NetSpec& spec, const Extent3& region, const PatchOptions& options);

}  // namespace convolume::nets
