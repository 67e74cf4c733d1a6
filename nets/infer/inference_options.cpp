#include "nets/infer/inference_options.hpp"

#include <algorithm>

#include <fmt/format.h>

namespace convolume::nets {
namespace {

void check_overlap(const std::optional<Extent3>& overlap, const Extent3& patch) {
  const index_t most = std::max({patch.z, patch.y, patch.x}) - 1;
  for (int axis = 0; axis < 3 && overlap; ++axis) {
    if ((*overlap)[axis] >= 0 && (*overlap)[axis] <= most) continue;
    throw InvalidArgument(fmt::format("--overlap {} along {} does not fit a patch of {}; use 0 to {}", (*overlap)[axis],
                                      "zyx"[axis], to_string(patch), most));
  }
}

}  // namespace

void check_patch_options(const InferOptions& o, const NetSpec& spec) {
  check_overlap(o.overlap, o.patch.value_or(spec.patch));
  if (o.cheapest_patch && (o.patch || o.overlap)) {
    throw InvalidArgument("--patch auto chooses the overlap too; leave --overlap out, or give the patch");
  }
  if (o.batch < 1) throw InvalidArgument(fmt::format("--batch is {}; at least 1 is needed", o.batch));
}

io::VoxelBox region_of(const InferOptions& o, const Extent3& extent) {
  const Extent3 begin = o.begin.value_or(Extent3{0, 0, 0}), end = o.end.value_or(extent);
  for (int axis = 0; axis < 3; ++axis) {
    if (begin[axis] >= 0 && begin[axis] < end[axis] && end[axis] <= extent[axis]) continue;
    throw InvalidArgument(fmt::format("--box {}:{} along {} is not within the {} voxels of {}", begin[axis], end[axis],
                                      "zyx"[axis], extent[axis], o.volume));
  }
  return {begin, end - begin};
}

std::filesystem::path part_of(const io::VolumePath& target) {
  const bool pattern = target.file.filename().string().find('*') != std::string::npos;
  std::filesystem::path whole = pattern ? target.file.parent_path() : target.file;
  if (!whole.has_filename()) whole = whole.parent_path();  // "out.zarr/"
  return whole.string() + ".part";
}

std::filesystem::path folder_of(const std::filesystem::path& file) {
  return file.has_parent_path() ? file.parent_path() : std::filesystem::path(".");
}

Stored stored_of(const InferOptions& o, const NetSpec& spec) {
  if (o.labels && o.as_uint8) {
    throw InvalidArgument("--labels and --uint8: labels are no probabilities; leave one of them out");
  }
  if (o.labels) return spec.softmax() ? Stored::classes : Stored::binary;
  return o.as_uint8 ? Stored::bytes : Stored::probabilities;
}

}  // namespace convolume::nets
