#include <algorithm>
#include <tuple>

#include <fmt/format.h>

#include "convolume/cpu.hpp"
#include "convolume/memory.hpp"
#include "convolume/nets.hpp"
#include "nets/checkpoint.hpp"
#include "nets/dataset.hpp"
#include "nets/io/volume.hpp"
#include "nets/io/volume_sink.hpp"
#include "nets/predictor.hpp"
#include "nets/scores.hpp"

namespace convolume::nets {
namespace {

/// Checks the overlap against the longest axis of the patch. One number may stand for all axes, so a thin patch is no
/// error as long as some axis can hold the overlap.
void check_overlap(const std::optional<Extent3>& overlap, const Extent3& patch) {
  const index_t most = std::max({patch.z, patch.y, patch.x}) - 1;
  for (int axis = 0; axis < 3 && overlap; ++axis) {
    if ((*overlap)[axis] >= 0 && (*overlap)[axis] <= most) continue;
    throw InvalidArgument(fmt::format("--overlap {} along {} does not fit a patch of {}; use 0 to {}", (*overlap)[axis],
                                      "zyx"[axis], to_string(patch), most));
  }
}

}  // namespace

bool infer(const InferOptions& o) {
  SlabResource memory({.upstream = o.upstream});
  Scheduler scheduler(o.threads > 0 ? o.threads : default_threads());
  const CheckpointHeader header = read_checkpoint_header(o.checkpoint);
  const Extent3 patch = o.patch.value_or(header.net.patch);
  // These checks come first: after the inference they could come hours later.
  const io::VolumePath target = io::split_volume_path(o.output.string());
  io::check_writable(target, {.channels = infer_shapes(header.net, patch).output().channels});
  check_overlap(o.overlap, patch);
  Parameters parameters(header.net, false, 0, &memory);
  load_checkpoint(o.checkpoint, parameters);
  const auto source = io::open_volume(o.volume);
  const index_t channels = source->info().channels;
  if (header.net.in_channels != channels) {
    throw ShapeMismatch(fmt::format("{}: the net reads {} channels, but {} has {}; use a volume with as many channels",
                                    o.checkpoint.string(), header.net.in_channels, o.volume, channels));
  }
  auto volume = StoredVolume::read(*source, {{0, 0, 0}, source->info().extent}, &memory);
  normalise(volume, header.normalisation == "volume" ? Normalisation::volume : Normalisation::none);
  Predictor predictor(header.net, parameters, {.patches = {.patch = o.patch, .overlap = o.overlap}, .engine = o.engine},
                      scheduler, &memory);
  const auto probabilities = predictor.run(volume, o.on_progress, o.stop);
  if (!probabilities) return false;
  io::write_volume(target, probabilities.view(),
                   {.element_type = o.as_uint8 ? io::ElementType::uint8 : io::ElementType::float32});
  return true;
}

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
  const Dataset data = load_dataset(data_file, &memory);
  const auto& list = split == "train" ? data.train : data.validation;
  if (list.size() != 1) {
    throw InvalidArgument(fmt::format("{}: split '{}' has {} volumes, but only a split with 1 volume can be exported",
                                      data_file.string(), split, list.size()));
  }
  io::write_volume(image, list[0].image.floats(&memory).view());
  io::write_volume(label, list[0].label.floats(&memory).view(), {.element_type = io::ElementType::uint8});
}

}  // namespace convolume::nets
