// Compares predictions with labels, and exports the volumes of a data set.
#include <tuple>

#include <fmt/format.h>

#include "convolume/memory.hpp"
#include "convolume/nets.hpp"
#include "nets/data/dataset.hpp"
#include "nets/io/copy_volume.hpp"
#include "nets/io/volume.hpp"
#include "nets/scores.hpp"

namespace convolume::nets {
namespace {

/// Reads the boxes of a prediction as floats, and checks them.
class Prediction {
 public:
  Prediction(const std::string& name, index_t classes) : name_(name), source_(io::open_volume(name)) {
    const io::VolumeInfo& info = source_->info();
    if (classes > 0 && info.channels > 1 && info.channels != classes) {
      throw InvalidArgument(fmt::format("--classes {}: {} has the probabilities of {}; leave the option out", classes,
                                        name, info.channels));
    }
    classes_ = info.channels > 1 ? info.channels : classes;
    probabilities_ = info.channels > 1 || classes == 0;
    bytes_ = info.type == io::VoxelType::uint8;
  }

  index_t classes() const { return classes_; }  ///< 0 for binary predictions
  const io::VolumeInfo& info() const { return source_->info(); }

  Tensor<float> read(const io::VoxelBox& box, std::pmr::memory_resource* memory) const {
    auto values = StoredVolume::read(*source_, box, memory).floats(memory);
    for (index_t i = 0; i < values.elements() && probabilities_; ++i) {
      float& p = values.data()[i];
      if (bytes_) p /= 255;
      if (p >= 0 && p <= 1) continue;
      const Extent3& e = box.extent;
      throw FormatError(
          fmt::format("{}: voxel (z {}, y {}, x {}) holds {}, not a probability; write 0..1 as float or "
                      "0..255 as uint8, or name the number of classes with --classes",
                      name_, box.begin.z + i / (e.y * e.x) % e.z, i / e.x % e.y, i % e.x, p));
    }
    return values;
  }

 private:
  const std::string& name_;
  std::unique_ptr<io::VolumeSource> source_;
  index_t classes_ = 0;
  bool probabilities_ = true, bytes_ = false;
};

io::VoxelBox label_box(const EvaluateOptions& o, const Extent3& extent) {
  Extent3 begin = o.begin.value_or(Extent3{0, 0, 0}), end = o.end.value_or(extent);
  if (o.slices) {
    std::tie(begin.z, end.z) = *o.slices;
    if (begin.z < 0 || end.z <= begin.z || end.z > extent.z) {
      throw InvalidArgument(fmt::format("--slices {} {}: the range is not within the {} slices of {}", begin.z, end.z,
                                        extent.z, o.label));
    }
  }
  for (int axis = 0; axis < 3; ++axis) {
    if (begin[axis] >= 0 && begin[axis] < end[axis] && end[axis] <= extent[axis]) continue;
    throw InvalidArgument(fmt::format("--box {}:{} along {} is not within the {} voxels of {}", begin[axis], end[axis],
                                      "zyx"[axis], extent[axis], o.label));
  }
  return {begin, end - begin};
}

/// Throws ShapeMismatch if the files say that the prediction and its part of the label lie elsewhere in space.
void check_geometry(const EvaluateOptions& o, const io::VolumeInfo& prediction, const io::VolumeInfo& label,
                    const io::VoxelBox& box) {
  const auto part = io::geometry_of_part(label.geometry, box.begin);
  if (!prediction.geometry || !part) return;
  constexpr double most = 1e-3;  // voxels
  const double distance = io::distance_in_voxels(*prediction.geometry, *part, box.extent);
  if (distance <= most) return;
  throw ShapeMismatch(fmt::format(
      "{} lies up to {:.3g} voxels away from {}, by the geometries of the files; resample it, or correct its "
      "header",
      o.prediction, distance, o.label));
}

}  // namespace

Scores evaluate_files(const EvaluateOptions& o) {
  SlabResource memory;
  const Prediction prediction(o.prediction, o.classes);
  if (prediction.classes() > 0 && !o.positive.empty()) {
    throw InvalidArgument("--positive is for binary predictions, and this one has classes; leave it out");
  }
  const auto label = io::open_volume(o.label);
  const io::VoxelBox box = label_box(o, label->info().extent);
  if (box.extent != prediction.info().extent) {
    throw ShapeMismatch(
        fmt::format("{} has {} voxels, but {} has {}; use --slices or --box if only a part was predicted", o.prediction,
                    to_string(prediction.info().extent), o.label, to_string(box.extent)));
  }
  check_geometry(o, prediction.info(), label->info(), box);
  LabelSpec spec;
  spec.positive.assign(o.positive.begin(), o.positive.end());
  spec.ignore.assign(o.ignore.begin(), o.ignore.end());
  ScoreSums sums(prediction.classes(), o.threshold);
  constexpr index_t voxels = index_t{1} << 24;  // at a time
  const index_t planes = std::max<index_t>(1, voxels / (box.extent.y * box.extent.x));
  for (index_t z = 0; z < box.extent.z; z += planes) {
    const Extent3 part{std::min(planes, box.extent.z - z), box.extent.y, box.extent.x};
    const auto predicted = prediction.read({{z, 0, 0}, part}, &memory);
    const auto labels =
        StoredVolume::read_labels(*label, {box.begin + Extent3{z, 0, 0}, part}, spec, &memory).floats(&memory);
    sums.add(predicted.view(), labels.view(), {});
  }
  return sums.result();
}

void export_split(const std::filesystem::path& data_file, const std::string& split, const std::filesystem::path& image,
                  const std::filesystem::path& label) {
  SlabResource memory;
  if (split != "train" && split != "validation") {
    throw InvalidArgument(fmt::format("split '{}' is unknown; use train or validation", split));
  }
  const Dataset data = load_dataset(data_file, {.memory = &memory});
  const auto& list = split == "train" ? data.train : data.validation;
  if (list.size() != 1) {
    throw InvalidArgument(fmt::format("{}: split '{}' has {} volumes, but only a split with 1 volume can be exported",
                                      data_file.string(), split, list.size()));
  }
  io::write_volume(image, list[0].image.floats(&memory).view());
  io::write_volume(label, list[0].label.floats(&memory).view(), {.element_type = io::ElementType::uint8});
}

}  // namespace convolume::nets
