// Segments volumes of any size: checks, windows, an array that survives interruptions, and the final file.
#include "convolume/inference.hpp"

#include <algorithm>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "convolume/cpu.hpp"
#include "convolume/memory.hpp"
#include "core/files.hpp"
#include "core/ownership.hpp"
#include "nets/base/memory_limit.hpp"
#include "nets/infer/classification.hpp"
#include "nets/infer/inference_manifest.hpp"
#include "nets/infer/inference_options.hpp"
#include "nets/infer/inference_planner.hpp"
#include "nets/infer/inference_volume.hpp"
#include "nets/infer/part_sink.hpp"
#include "nets/io/copy_volume.hpp"
#include "nets/spec/checkpoint.hpp"

namespace convolume::nets {
namespace {

namespace fs = std::filesystem;

constexpr std::size_t mebibyte = std::size_t{1} << 20;

/// An inference from its options to its output. The steps are called in the order in which they are declared.
class Inference {
 public:
  Inference(const InferOptions& o, CheckpointHeader header)
      : o_(o),
        limit_(memory_limit(o.memory)),
        target_(io::split_volume_path(o.output.string())),
        part_(part_of(target_)),
        memory_({.upstream = o.upstream}),
        scheduler_(o.threads > 0 ? o.threads : default_threads(), {.change_affinity = o.change_affinity}),
        header_(std::move(header)),
        stored_(stored_of(o, header_.net)) {}

  /// Checks what needs no volume. After the inference these errors could come hours later.
  void check_options() {
    refuse_classifier_options(o_);
    check_output();
    const Extent3 patch = o_.patch.value_or(header_.net.patch);
    channels_ = infer_shapes(header_.net, patch).output().channels;
    io::check_writable(target_, stored_as(stored_, channels_, Extent3::all(1)));
    check_patch_options(o_, header_.net);
  }

  /// Makes sure that no other process writes this output meanwhile.
  void take_output() {
    std::vector<fs::path> files{io::owner_file({target_.file, ""})};  // all arrays of a Zarr share a folder of parts
    if (const fs::path array = io::owner_file(target_); array != files.front()) files.push_back(array);
    for (const fs::path& file : files) {
      owners_.push_back(std::make_unique<Ownership>(file, target_.text(), o_.take_over));
      if (o_.on_note && !owners_.back()->taken_over().empty()) o_.on_note(owners_.back()->taken_over());
    }
  }

  /// Opens the volume and the folder of an interrupted inference, and plans.
  void prepare() {
    check_part();
    parameters_.emplace(header_.net, false, 0, &memory_);
    load_checkpoint(o_.checkpoint, *parameters_);
    volume_ = std::make_unique<InferenceVolume>(o_, header_, limit_, folder_of(part_));
    volume_->choose_region(stored_, channels_);
    io::check_writable(target_, volume_->output());
    if (o_.resume) {
      zarr_ = io::PartialZarr::open(part_);
      manifest_ = InferenceManifest::from_text(part_, zarr_->manifest());
    }
    const InferenceManifest* const continued = manifest_ ? &*manifest_ : nullptr;
    planner_ = std::make_unique<InferencePlanner>(o_, header_.net, *parameters_, *volume_, channels_, limit_,
                                                  scheduler_, &memory_);
    planner_->choose_patches(continued, part_);
    if (manifest_) {
      // Numerics are compared when there are plans.
      InferenceManifest now;
      now.facts = facts();
      now.numerics = manifest_->numerics;
      manifest_->require_equal(now, part_);
    }
    planner_->make_plans(continued, part_);
    check_disk();
  }

  InferencePlan plan() {
    InferencePlan plan = planner_->costs();
    plan.disk_bytes = disk_needed();
    plan.disk_free = fs::space(folder_of(part_)).available;
    return plan;
  }

  bool run() {
    if (!o_.trace.empty()) write_file_atomically(o_.trace, chrome_trace({}));  // it may end hours later
    if (!find_scaling()) return false;
    open_part();
    try {
      if (!predict()) return false;
      finish();
    } catch (const StopRequested&) {
      return false;
    } catch (const IoError& error) {
      const index_t finished = zarr_->finished();
      if (finished == 0) throw;
      throw IoError(fmt::format("{}; {} keeps {} of {} parts, continue with --resume", error.what(), part_.string(),
                                finished, zarr_->grid().count()));
    }
    return true;
  }

  ~Inference() {
    if (!fresh_ || !zarr_ || zarr_->finished() > 0) return;
    try {
      zarr_->remove();  // nothing in it is worth a later --resume
    } catch (const Error&) {
      // It stays, and the next run names it.
    }
  }
  Inference(const Inference&) = delete;
  Inference& operator=(const Inference&) = delete;

 private:
  /// Finds how intensities are scaled. Returns false if a stop request came first.
  bool find_scaling() {
    scaling_ =
        manifest_ ? std::make_shared<const VolumeScaling>(manifest_->scaling) : volume_->scaling(scheduler_, &memory_);
    if (!scaling_) return false;
    volume_->check_scaling(*scaling_, manifest_ ? part_.string() : o_.checkpoint.string(),
                           manifest_ ? "remove the folder and begin again" : "train again");
    return true;
  }

  void check_part() const {
    std::error_code error;
    if (!o_.resume && fs::exists(part_, error)) {
      throw IoError(
          fmt::format("{}: is left from an interrupted inference; continue it with --resume, or remove the folder",
                      part_.string()));
    }
  }

  /// Refuses an output that would replace what is read.
  void check_output() const {
    std::vector<std::string> inputs{o_.volume, o_.checkpoint.string()};
    inputs.insert(inputs.end(), o_.channels.begin(), o_.channels.end());
    for (const std::string& name : inputs) {
      const io::VolumePath input = io::split_volume_path(name);
      std::error_code error;
      if (!fs::equivalent(target_.file, input.file, error) || error) continue;
      const bool another_array = target_.file.extension() == ".zarr" && !target_.inside.empty() &&
                                 !input.inside.empty() && target_.inside != input.inside;
      if (another_array) continue;
      throw InvalidArgument(fmt::format("{}: input and output are the same file; use another name", name));
    }
  }

  /// Returns the bytes that are written besides those that an interrupted inference has written.
  std::uint64_t disk_needed() const {
    const auto bytes_of = [](const io::SinkOptions& voxels) {
      return static_cast<std::uint64_t>(voxels.channels * voxels.extent.volume()) * io::size_of(voxels.type);
    };
    const std::uint64_t bytes = bytes_of(volume_->kept());
    std::uint64_t needed = bytes;
    if (zarr_) {
      const auto all = static_cast<double>(zarr_->grid().count());
      needed -= static_cast<std::uint64_t>(static_cast<double>(bytes) * static_cast<double>(zarr_->finished()) / all);
    }
    if (volume_->decoded_bytes() > limit_ / 8) needed += volume_->decoded_bytes();
    return renames() ? needed : needed + bytes_of(volume_->output());
  }

  void check_disk() const {
    std::error_code error;
    const auto space = fs::space(folder_of(part_), error);
    if (error || disk_needed() <= space.available) return;
    throw IoError(
        fmt::format("{}: up to {} KiB are written for {}{}, but {} KiB are free; free some space{}",
                    folder_of(part_).string(), (disk_needed() + 1023) / 1024, part_.filename().string(),
                    renames() ? "" : " and for the file itself", space.available / 1024,
                    renames() || !volume_->keeps_output() ? "" : ", or write a .zarr, which needs half of that"));
  }

  /// Returns whether the array of finished chunks is the output.
  bool renames() const { return target_.file.extension() == ".zarr" && volume_->keeps_output(); }

  /// Makes the folder of finished chunks, or checks that the folder of an interrupted inference fits this one.
  void open_part() {
    InferenceManifest now{.scaling = *scaling_};
    auto numerics = NumericsRecord::of_this_build();
    planner_->predictor().network(planner_->grid()).network().add_numerics(numerics);
    now.numerics = numerics.to_text();
    now.facts = facts();
    if (manifest_) return manifest_->require_equal(now, part_);
    io::SinkOptions kept = volume_->kept();
    // Floats hardly shrink. If another file is made from them, compressing them twice would take longer than it saves.
    if (!renames() && io::is_floating(kept.type)) kept.codec = io::Codec::raw;
    zarr_ = io::PartialZarr::create(part_, kept, now.to_text());
    fresh_ = true;
  }

  /// Returns everything but the numerics that decides the result, by name.
  std::vector<std::pair<std::string, std::string>> facts() const {
    constexpr const char* blends[] = {"ramp", "gaussian", "uniform"};
    constexpr const char* kinds[] = {"float32", "uint8", "labels", "labels"};
    std::vector<std::pair<std::string, std::string>> all{
        {"net", digest_of(header_.net, *parameters_)},
        {"volume", digest_of(volume_->source())},
        {"state of its files", volume_->states()},
        {"--patch", to_string(planner_->grid().patch)},
        {"--overlap", to_string(planner_->grid().overlap)},
        {"--box", fmt::format("{} + {}", to_string(volume_->region().begin), to_string(volume_->region().extent))},
        {"--blend", blends[static_cast<int>(o_.blend)]},
        {"--flip", fmt::format("{}{}{}", o_.flip[0] ? "z" : "", o_.flip[1] ? "y" : "", o_.flip[2] ? "x" : "")},
        {"--batch", std::to_string(o_.batch)},
        {"--engine", name_of(o_.engine)},
        {"voxels", kinds[static_cast<int>(stored_)]},
        {"normalisation", header_.normalisation}};
    if (o_.low_error) all.emplace_back("--low-error", "yes");
    if (volume_->back()) all.emplace_back("--spacing", fmt::format("{}", fmt::join(volume_->back()->zoom, " ")));
    if (!volume_->orientation().empty()) all.emplace_back("--orientation", volume_->orientation());
    if (volume_->back() && header_.cubic) all.emplace_back("interpolation", "cubic");
    return all;
  }

  bool predict() {
    int patches = 0;
    constexpr int first_traced = 1, last_traced = 4;
    const double share_of_net = renames() ? 1 : 0.97;
    const auto progress = [&](double share) {
      if (!o_.trace.empty() && ++patches == first_traced) scheduler_.record(&trace_);
      if (patches == last_traced) scheduler_.record(nullptr);
      if (o_.on_progress) o_.on_progress(share * share_of_net);
    };
    bool complete = false;
    {
      PartSink sink(*zarr_, stored_, channels_, o_.output.string());
      VolumeWindow window(volume_->input(), scaling_, &memory_);
      complete = planner_->predictor().run(window, planner_->grid(), volume_->region(), planner_->windows().columns,
                                           sink, progress, o_.stop);
    }
    scheduler_.record(nullptr);
    if (!o_.trace.empty()) write_file_atomically(o_.trace, chrome_trace({{"inference", trace_.events()}}));
    return complete;
  }

  /// Removes files that an earlier process began to make from the finished chunks before it was killed.
  void remove_leftovers() const {
    const std::string begin = target_.file.filename().string() + ".tmp-";
    std::vector<fs::path> found;
    std::error_code ignored;
    for (fs::directory_iterator at(folder_of(target_.file), ignored), last; !ignored && at != last;
         at.increment(ignored)) {
      if (at->path().filename().string().starts_with(begin)) found.push_back(at->path());
    }
    for (const fs::path& path : found) fs::remove_all(path, ignored);
  }

  /// Makes the output from the finished chunks.
  void finish() {
    planner_->take_predictor().reset();  // its memory is not needed any more
    if (renames()) {
      zarr_->move_to(target_);
      zarr_.reset();
      return;
    }
    if (o_.resume) remove_leftovers();
    io::SinkOptions options = volume_->output();
    options.memory = std::clamp(limit_ / 8, 4 * mebibyte, 64 * mebibyte);
    const auto from = volume_->as_output(io::open_volume(io::VolumePath{part_, ""}));
    const auto to = io::create_volume(target_, options);
    const auto progress = [&](double share) {
      if (o_.stop.stop_requested()) throw StopRequested();
      if (o_.on_progress) o_.on_progress(0.97 + 0.03 * share);
    };
    io::copy_volume(*from, *to, {0, 0, 0}, 0, progress, options.memory);
    to->finish();
    zarr_->remove();
    zarr_.reset();
  }

  const InferOptions& o_;
  std::size_t limit_;
  io::VolumePath target_;
  std::vector<std::unique_ptr<Ownership>> owners_;  // none if nothing is written
  fs::path part_;
  SlabResource memory_;
  Trace trace_;
  Scheduler scheduler_;
  CheckpointHeader header_;
  Stored stored_;
  index_t channels_ = 1;
  std::optional<Parameters> parameters_;
  std::unique_ptr<InferenceVolume> volume_;
  std::unique_ptr<InferencePlanner> planner_;
  std::unique_ptr<io::PartialZarr> zarr_;
  bool fresh_ = false;                            // this call has made the folder
  std::optional<InferenceManifest> manifest_;     // of the inference that is continued
  std::shared_ptr<const VolumeScaling> scaling_;  // null before find_scaling()
};

}  // namespace

bool infer(const InferOptions& options) {
  CheckpointHeader header = read_checkpoint_header(options.checkpoint);
  if (!header.class_names.empty()) return classify(options, header);
  try {
    Inference inference(options, std::move(header));
    inference.check_options();
    inference.take_output();
    inference.prepare();
    return inference.run();
  } catch (const StopRequested&) {
    return false;  // while patches were chosen
  }
}

InferencePlan plan_inference(const InferOptions& options) {
  CheckpointHeader header = read_checkpoint_header(options.checkpoint);
  refuse_classifier(header, options.checkpoint, "--dry-run plans the patches of a volume");
  Inference inference(options, std::move(header));
  inference.check_options();
  inference.prepare();
  return inference.plan();
}

}  // namespace convolume::nets
