// Predicts volumes in memory: the steps of infer() without files.
#include "convolume/cpu.hpp"
#include "convolume/inference.hpp"
#include "nets/base/memory_limit.hpp"
#include "nets/files/array_voxels.hpp"
#include "nets/infer/classification.hpp"
#include "nets/infer/inference_options.hpp"
#include "nets/infer/inference_planner.hpp"
#include "nets/infer/inference_volume.hpp"
#include "nets/spec/checkpoint.hpp"
#include "nets/spec/net_shapes.hpp"

namespace convolume::nets {
namespace {

/// Writes finished planes to an array of the region.
class ArraySink final : public PredictionSink {
 public:
  ArraySink(Stored stored, index_t channels, const io::SinkOptions& voxels, std::byte* to)
      : stored_(stored), channels_(channels), voxels_(voxels), to_(to) {}

  bool needs(const io::VoxelBox&) const override { return true; }
  void begin(const io::VoxelBox& column) override { column_ = column; }
  index_t layer_end(index_t z) const override { return z + 1; }
  void put(index_t z, const float* values, index_t stride) override {
    const Extent3& e = voxels_.extent;
    const std::size_t voxel = io::size_of(voxels_.type);
    for (index_t y = 0; y < column_.extent.y; ++y) {
      const Extent3 first{z, column_.begin.y + y, column_.begin.x};
      const ProbabilityRow row{values + y * column_.extent.x, stride, channels_, column_.extent.x};
      for (index_t c = 0; c < voxels_.channels; ++c) {
        const index_t at = ((c * e.z + first.z) * e.y + first.y) * e.x + first.x;
        const index_t nan = store_row(row, c, stored_, voxels_.type, to_ + static_cast<std::size_t>(at) * voxel);
        if (nan < row.count) fail_nan("prediction", {first.z, first.y, first.x + nan}, voxels_.type);
      }
    }
  }
  void finished(index_t, Scheduler&) override {}

 private:
  Stored stored_;
  index_t channels_;
  const io::SinkOptions& voxels_;
  std::byte* to_;
  io::VoxelBox column_{};
};

std::size_t bytes_of(const io::SinkOptions& voxels) {
  return static_cast<std::size_t>(voxels.channels * voxels.extent.volume()) * io::size_of(voxels.type);
}

}  // namespace

struct VolumePredictor::Impl {
  explicit Impl(const InferOptions& o)
      : options(o),
        limit(memory_limit(o.memory)),
        memory({.upstream = o.upstream}),
        scheduler(o.threads > 0 ? o.threads : default_threads(), {.change_affinity = o.change_affinity}),
        header(read_checkpoint_header(o.checkpoint)),
        stored(stored_of(o, header.net)),
        parameters(header.net, false, 0, &memory) {
    refuse_classifier(header, o.checkpoint, "VolumePredictor predicts volumes");
    check_patch_options(o, header.net);
    channels = infer_shapes(header.net, o.patch.value_or(header.net.patch)).output().channels;
    load_checkpoint(o.checkpoint, parameters);
  }

  /// A volume that is open, and options that name it.
  struct Opened {
    Opened(const Impl& own, const ArrayView& view) : array(view), options(own.options) {
      options.volume = array.path();
      options.channels.clear();
      volume.emplace(options, own.header, own.limit, std::filesystem::path());
      volume->choose_region(own.stored, own.channels);
    }
    ArrayVolume array;
    InferOptions options;
    std::optional<InferenceVolume> volume;
  };

  bool predict(Opened& opened, std::byte* prediction) {
    InferenceVolume& volume = *opened.volume;
    const auto scaling = volume.scaling(scheduler, &memory);
    if (!scaling) return false;
    volume.check_scaling(*scaling, options.checkpoint.string(), "train again");
    InferencePlanner planner(opened.options, header.net, parameters, volume, channels, limit, scheduler, &memory);
    planner.choose_patches(nullptr, {});
    if (planner.grid().patch != patch) predictor.reset();
    planner.use(std::move(predictor));
    planner.make_plans(nullptr, {});
    patch = planner.grid().patch;

    std::vector<std::byte> kept;  // if the output has other voxels than the net
    if (!volume.keeps_output()) kept.resize(bytes_of(volume.kept()));
    ArraySink sink(stored, channels, volume.kept(), kept.empty() ? prediction : kept.data());
    VolumeWindow window(volume.input(), scaling, &memory);
    const bool complete = planner.predictor().run(window, planner.grid(), volume.region(), planner.windows().columns,
                                                  sink, opened.options.on_progress, opened.options.stop);
    predictor = planner.take_predictor();
    if (!complete || kept.empty()) return complete;
    const io::SinkOptions& voxels = volume.kept();
    const auto result = volume.as_output(io::array_source({.voxels = kept.data(),
                                                           .type = voxels.type,
                                                           .channels = voxels.channels,
                                                           .extent = voxels.extent,
                                                           .stride = io::dense_strides(voxels.type, voxels.extent),
                                                           .spacing = voxels.spacing},
                                                          io::VolumePath{"prediction", ""}));
    result->read({0, result->info().channels}, {{0, 0, 0}, result->info().extent},
                 {prediction, bytes_of(volume.output())});
    return true;
  }

  InferOptions options;
  std::size_t limit;
  SlabResource memory;
  Scheduler scheduler;
  CheckpointHeader header;
  Stored stored;
  Parameters parameters;
  index_t channels = 1;
  Extent3 patch{0, 0, 0};  // of the predictor
  std::unique_ptr<Predictor> predictor;
};

VolumePredictor::VolumePredictor(const InferOptions& options) : impl_(std::make_unique<Impl>(options)) {}
VolumePredictor::~VolumePredictor() = default;
VolumePredictor::VolumePredictor(VolumePredictor&&) noexcept = default;
VolumePredictor& VolumePredictor::operator=(VolumePredictor&&) noexcept = default;

VolumePredictor::Output VolumePredictor::output_for(const ArrayView& volume) const {
  const Impl::Opened opened(*impl_, volume);
  const io::SinkOptions& voxels = opened.volume->output();
  return {std::string(io::name_of(voxels.type)), voxels.channels, voxels.extent};
}

bool VolumePredictor::predict(const ArrayView& volume, void* prediction, const std::stop_token& stop) {
  if (prediction == nullptr) throw InvalidArgument("prediction: null; pass memory for output_for() of this volume");
  Impl::Opened opened(*impl_, volume);
  opened.options.stop = stop;
  try {
    return impl_->predict(opened, static_cast<std::byte*>(prediction));
  } catch (const StopRequested&) {
    return false;  // while patches were chosen
  }
}

}  // namespace convolume::nets
