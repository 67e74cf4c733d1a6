#include <algorithm>

#include <fmt/format.h>

#include "convolume/cpu.hpp"
#include "convolume/memory.hpp"
#include "convolume/nets.hpp"
#include "nets/checkpoint.hpp"
#include "nets/dataset.hpp"
#include "nets/io/volume.hpp"
#include "nets/predictor.hpp"
#include "nets/scores.hpp"

namespace convolume::nets {
namespace {

Tensor<float> read(const std::string& text, std::pmr::memory_resource* memory) {
  const auto [file, dataset] = io::split_volume_path(text);
  return io::read_volume(file, {.dataset = dataset}, memory);
}

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
  io::check_writable(o.output, infer_shapes(header.net, patch).output().channels);
  check_overlap(o.overlap, patch);
  Parameters parameters(header.net, false, 0, &memory);
  load_checkpoint(o.checkpoint, parameters);
  auto volume = read(o.volume, &memory);
  if (header.net.in_channels != 1) {
    throw Unsupported(fmt::format("{}: the net reads {} channels, but volumes have 1; use a net with one input channel",
                                  o.checkpoint.string(), header.net.in_channels));
  }
  normalise(volume, header.normalisation == "volume" ? Normalisation::volume : Normalisation::none);
  Predictor predictor(header.net, parameters, volume.shape().extent,
                      {.patch = o.patch, .overlap = o.overlap, .engine = o.engine}, scheduler, &memory);
  const auto probabilities = predictor.run(volume, o.on_progress, o.stop);
  if (!probabilities) return false;
  io::write_volume(o.output, probabilities.view(),
                   {.element_type = o.as_uint8 ? io::ElementType::uint8 : io::ElementType::float32});
  return true;
}

Scores evaluate_files(const std::string& prediction, const std::string& label, const std::vector<double>& positive,
                      double threshold, std::optional<std::pair<index_t, index_t>> slices) {
  SlabResource memory;
  auto probabilities = read(prediction, &memory);
  const auto [file, dataset] = io::split_volume_path(prediction);
  const bool bytes = io::inspect_volume(file, dataset).element_type == "uint8";
  for (index_t i = 0; i < probabilities.elements(); ++i) {
    float& p = probabilities.data()[i];
    if (bytes) p /= 255;
    if (p < 0 || p > 1) {
      throw FormatError(fmt::format("{}: voxel {} holds {}, not a probability; write 0..1 as float or 0..255 as uint8",
                                    prediction, i, p));
    }
  }
  auto labels = read(label, &memory);
  for (index_t i = 0; i < labels.elements() && !positive.empty(); ++i) {
    const bool hit =
        std::find(positive.begin(), positive.end(), static_cast<double>(labels.data()[i])) != positive.end();
    labels.data()[i] = hit ? 1.0f : 0.0f;
  }
  View<const float> part = std::as_const(labels).view();
  if (slices) {
    if (slices->first < 0 || slices->second <= slices->first || slices->second > part.shape.extent.z) {
      throw InvalidArgument(fmt::format("--slices {} {}: the range is not within the {} slices of {}", slices->first,
                                        slices->second, part.shape.extent.z, label));
    }
    part.data += slices->first * part.stride[2];
    part.shape.extent.z = slices->second - slices->first;
  }
  if (part.shape != probabilities.shape()) {
    throw ShapeMismatch(fmt::format("{} has {} voxels, but {} has {}; use --slices if only some slices were predicted",
                                    prediction, to_string(probabilities.shape().extent), label,
                                    to_string(part.shape.extent)));
  }
  const View<const float> predicted = std::as_const(probabilities).view(), none{};
  return score({&predicted, 1}, {&part, 1}, {&none, 1}, threshold, &memory);
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
  io::write_volume(image, list[0].image.view());
  io::write_volume(label, list[0].label.view(), {.element_type = io::ElementType::uint8});
}

}  // namespace convolume::nets
