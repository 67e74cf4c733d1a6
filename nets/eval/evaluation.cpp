// Compares predictions with labels, and exports the volumes of a data set.
#include "convolume/evaluation.hpp"

#include <cmath>
#include <tuple>

#include <fmt/format.h>

#include "convolume/memory.hpp"
#include "nets/data/dataset.hpp"
#include "nets/eval/scores.hpp"
#include "nets/io/copy_volume.hpp"
#include "nets/io/volume.hpp"

namespace convolume::nets {
namespace {

/// Reads the boxes of a prediction as floats, and checks them.
class Prediction {
 public:
  explicit Prediction(const EvaluateOptions& o) : name_(o.prediction), source_(io::open_volume(o.prediction)) {
    bytes_ = info().type == io::VoxelType::uint8;
    o.regions.empty() ? choose_classes(o.classes, o.threshold.has_value()) : choose_regions(o);
  }

  const Targets& targets() const { return targets_; }
  const io::VolumeInfo& info() const { return source_->info(); }
  const io::VolumeSource& source() const { return *source_; }

  Tensor<float> read(const io::VoxelBox& box, std::pmr::memory_resource* memory) {
    auto values = StoredVolume::read(*source_, box, memory).floats(memory);
    for (index_t i = 0; i < values.elements() && content_ != Content::numbers; ++i) {
      float& p = values.data()[i];
      largest_ = std::max(largest_, p);
      if (bytes_ && content_ == Content::probabilities) p /= 255;
      if (content_ == Content::binary ? p == 0 || p == 1 : p >= 0 && p <= 1) continue;
      const Extent3& e = box.extent;
      throw FormatError(fmt::format("{}: voxel (z {}, y {}, x {}) holds {}, not {}", name_,
                                    box.begin.z + i / (e.y * e.x) % e.z, i / e.x % e.y, i % e.x, p, expected()));
    }
    return values;
  }

  /// Returns what a reader of the scores should know after all boxes were read.
  std::string note() const {
    if (targets_.regions == 0 || content_ != Content::probabilities || !bytes_ || largest_ != 1) return "";
    return "the prediction holds only 0 and 1, which were read as probabilities of 0 and 1/255; use --classes 2 if "
           "they "
           "are labels";
  }

 private:
  enum class Content {
    probabilities,  ///< of classes, of regions, or of one channel
    binary,         ///< 0 and 1 for each region
    numbers         ///< of classes, or any floats that a threshold divides
  };

  void choose_classes(index_t classes, bool threshold) {
    if (classes > 0 && info().channels > 1 && info().channels != classes) {
      throw InvalidArgument(fmt::format("--classes {}: {} has the probabilities of {}; leave the option out", classes,
                                        name_, info().channels));
    }
    targets_.classes = info().channels > 1 ? info().channels : classes;
    if (info().channels == 1 && classes > 0) content_ = Content::numbers;
    if (info().channels == 1 && classes == 0 && threshold && io::is_floating(info().type)) content_ = Content::numbers;
  }

  void choose_regions(const EvaluateOptions& o) {
    targets_.regions = static_cast<index_t>(o.regions.size());
    if (o.classes != 0 && o.classes != 2) {
      throw InvalidArgument(
          fmt::format("--classes {}: with --regions a prediction holds probabilities, or 0 and 1 with --classes 2; use "
                      "2, or leave the option out",
                      o.classes));
    }
    if (info().channels != targets_.regions) {
      throw InvalidArgument(
          fmt::format("--regions: {} regions are listed, but {} has {} channels; list the label values of as many "
                      "regions as the prediction has channels",
                      targets_.regions, name_, info().channels));
    }
    if (o.classes == 2) content_ = Content::binary;
  }

  std::string expected() const {
    if (content_ == Content::binary) return "0 or 1; leave --classes 2 out if the prediction holds probabilities";
    return std::string("a probability; write 0..1 as float or 0..255 as uint8, or ") +
           (targets_.regions > 0 ? "use --classes 2 if the prediction holds 0 and 1"
                                 : "name the number of classes with --classes, or what any floats are compared with "
                                   "by --threshold");
  }

  const std::string& name_;
  std::unique_ptr<io::VolumeSource> source_;
  Targets targets_;
  Content content_ = Content::probabilities;
  bool bytes_ = false;
  float largest_ = 0;  // largest stored number so far
};

/// Checks the options that say what a label value means, and returns them.
LabelSpec label_spec(const EvaluateOptions& o, const Targets& targets) {
  if (!o.positive.empty() && targets.regions > 0) {
    throw InvalidArgument("--positive and --regions exclude each other; keep one");
  }
  if (!o.positive.empty() && targets.classes > 0) {
    throw InvalidArgument("--positive is for binary predictions, and this one has classes; leave it out");
  }
  if (o.regions.size() > most_regions) {
    throw InvalidArgument(
        fmt::format("--regions: {} regions are listed; list at most {}", o.regions.size(), most_regions));
  }
  LabelSpec spec;
  spec.positive.assign(o.positive.begin(), o.positive.end());
  spec.ignore.assign(o.ignore.begin(), o.ignore.end());
  for (const std::vector<double>& region : o.regions) {
    if (region.empty()) {
      throw InvalidArgument(fmt::format("--regions: region {} is empty; list its label values, or leave it out",
                                        spec.regions.size() + 1));
    }
    spec.regions.emplace_back(region.begin(), region.end());
  }
  return spec;
}

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

/// Makes numbers of classes whole that are hardly off (LabelSpec), and refuses others by file, voxel and value.
void require_classes(Tensor<float>& numbers, index_t classes, const io::VolumeSource& file, const Extent3& begin) {
  const Extent3& e = numbers.shape().extent;
  for (index_t i = 0; i < numbers.elements(); ++i) {
    float& number = numbers.data()[i];
    if (number == ignored_label) continue;
    const float whole = std::round(number);
    if (std::abs(number - whole) <= static_cast<float>(label_tolerance) && whole >= 0 &&
        whole < static_cast<float>(classes)) {
      number = whole;
      continue;
    }
    const std::string scaling = io::scaling_text(file.info().scale, static_cast<double>(number));
    throw FormatError(fmt::format(
        "{}: voxel (z {}, y {}, x {}) is {}, but there are the classes 0 to {}; {}name other values with --ignore",
        file.path().text(), begin.z + i / (e.y * e.x), begin.y + i / e.x % e.y, begin.x + i % e.x, number, classes - 1,
        scaling.empty() ? ""
                        : fmt::format("it is {}. Store whole numbers ({}), or ", scaling,
                                      io::whole_numbers_command(file.path().text(), *file.info().scale))));
  }
}

/// Returns labels of a data set with regions as one channel of 0 and 1 per region. Ignored voxels become 0.
Tensor<float> region_channels(const Tensor<float>& labels, index_t regions, std::pmr::memory_resource* memory) {
  Tensor<float> channels({1, regions, labels.shape().extent}, memory);
  const index_t voxels = labels.elements();
  for (index_t r = 0; r < regions; ++r) {
    for (index_t v = 0; v < voxels; ++v) {
      const float label = labels.data()[v];
      channels.data()[r * voxels + v] = label != ignored_label && in_region(label, r) ? 1.0f : 0.0f;
    }
  }
  return channels;
}

}  // namespace

Scores evaluate_files(const EvaluateOptions& o) {
  SlabResource memory;
  Prediction prediction(o);
  const LabelSpec spec = label_spec(o, prediction.targets());
  const auto label = io::open_volume(o.label);
  const io::VoxelBox box = label_box(o, label->info().extent);
  if (box.extent != prediction.info().extent) {
    throw ShapeMismatch(
        fmt::format("{} has {} voxels, but {} has {}; use --slices or --box if only a part was predicted", o.prediction,
                    to_string(prediction.info().extent), o.label, to_string(box.extent)));
  }
  check_geometry(o, prediction.info(), label->info(), box);
  io::tell_notes(o.prediction, prediction.info(), o.on_note);
  io::tell_notes(o.label, label->info(), o.on_note);
  ScoreSums sums(prediction.targets(), o.threshold.value_or(0.5));
  constexpr index_t voxels = index_t{1} << 24;  // at a time
  const index_t planes = std::max<index_t>(1, voxels / (box.extent.y * box.extent.x));
  for (index_t z = 0; z < box.extent.z && !o.stop.stop_requested(); z += planes) {
    const Extent3 part{std::min(planes, box.extent.z - z), box.extent.y, box.extent.x};
    auto predicted = prediction.read({{z, 0, 0}, part}, &memory);
    const Extent3 begin = box.begin + Extent3{z, 0, 0};
    auto labels = StoredVolume::read_labels(*label, {begin, part}, spec, &memory).floats(&memory);
    if (const index_t classes = prediction.targets().classes; classes > 0) {
      require_classes(labels, classes, *label, begin);
      if (prediction.info().channels == 1) require_classes(predicted, classes, prediction.source(), {z, 0, 0});
    }
    sums.add(std::as_const(predicted).view(), std::as_const(labels).view(), {});
  }
  Scores scores = sums.result();
  if (scores.note.empty()) scores.note = prediction.note();
  return scores;
}

void export_split(const std::filesystem::path& data_file, const std::string& split, const std::filesystem::path& image,
                  const std::filesystem::path& label) {
  SlabResource memory;
  if (split != "train" && split != "validation") {
    throw InvalidArgument(fmt::format("split '{}' is unknown; use train or validation", split));
  }
  const Dataset data = load_dataset(data_file, {.memory = &memory});
  if (data.classifies()) {
    throw InvalidArgument(
        fmt::format("{}: its cases have classes, and no labels that could be exported; use convolume "
                    "convert to copy an image",
                    data_file.string()));
  }
  const auto& list = split == "train" ? data.train : data.validation;
  if (list.size() != 1) {
    throw InvalidArgument(fmt::format("{}: split '{}' has {} volumes, but only a split with 1 volume can be exported",
                                      data_file.string(), split, list.size()));
  }
  io::write_volume(image, list[0].image.floats(&memory).view());
  const Tensor<float> labels = list[0].label.floats(&memory);
  const Tensor<float> regions = data.regions > 0 ? region_channels(labels, data.regions, &memory) : Tensor<float>();
  io::write_volume(label, (regions ? regions : labels).view(), {.element_type = io::ElementType::uint8});
}

}  // namespace convolume::nets
