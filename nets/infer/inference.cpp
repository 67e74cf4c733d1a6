// Segments volumes of any size: checks, windows, an array that survives interruptions, and the final file.
#include "convolume/inference.hpp"

#include <algorithm>
#include <chrono>
#include <cinttypes>
#include <cstdio>
#include <exception>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "convolume/cpu.hpp"
#include "convolume/memory.hpp"
#include "core/files.hpp"
#include "core/ownership.hpp"
#include "nets/base/memory_limit.hpp"
#include "nets/data/dataset.hpp"
#include "nets/data/intensity.hpp"
#include "nets/data/resampling.hpp"
#include "nets/data/summary_file.hpp"
#include "nets/files/tensor_files.hpp"
#include "nets/infer/inference_manifest.hpp"
#include "nets/infer/inference_options.hpp"
#include "nets/infer/inference_windows.hpp"
#include "nets/infer/part_sink.hpp"
#include "nets/infer/patch_choice.hpp"
#include "nets/infer/predictor.hpp"
#include "nets/io/copy_volume.hpp"
#include "nets/io/nan_source.hpp"
#include "nets/io/orientation.hpp"
#include "nets/io/stacked_source.hpp"
#include "nets/spec/checkpoint.hpp"

namespace convolume::nets {
namespace {

namespace fs = std::filesystem;

constexpr std::size_t mebibyte = std::size_t{1} << 20;

class Inference {
 public:
  Inference(const InferOptions& o, bool writes)
      : o_(o),
        limit_(memory_limit(o.memory)),
        target_(io::split_volume_path(o.output.string())),
        part_(part_of(target_)),
        memory_({.upstream = o.upstream}),
        scheduler_(o.threads > 0 ? o.threads : default_threads()),
        header_(read_checkpoint_header(o.checkpoint)),
        stored_(stored_of(o, header_.net)) {
    check_options();
    if (writes) take_output();
    check_part();
    Parameters parameters(header_.net, false, 0, &memory_);
    load_checkpoint(o.checkpoint, parameters);
    parameters_ = std::make_unique<Parameters>(std::move(parameters));
    open_source();
    check_channels();
    choose_grid();
    io::check_writable(target_, output_);
    patches_ = {.patch = o_.patch, .overlap = o_.overlap, .blend = o_.blend};
    if (o.resume) {
      zarr_ = io::PartialZarr::open(part_);
      manifest_ = InferenceManifest::from_text(part_, zarr_->manifest());
    }
    if (o.cheapest_patch) take_cheapest_patch();
    grid_ = make_patch_grid(header_.net, region_.extent, patches_);
    if (o.resume) {
      // Numerics are compared when there are plans.
      InferenceManifest now;
      now.facts = facts();
      now.numerics = manifest_->numerics;
      manifest_->require_equal(now, part_);
    }
    make_predictor();
    choose_columns();
    check_disk();
  }

  InferencePlan plan() {
    PatchNetwork& net = predictor_->network(grid_);
    net.prepare(scheduler_);
    net.run_alone(scheduler_);
    const auto start = std::chrono::steady_clock::now();
    net.run_alone(scheduler_);
    const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
    const auto computed = windows_.patches * static_cast<index_t>(predictor_->forms());
    const PatchDemand demand = patch_demand();
    const PatchCost chosen = cost_of(demand, grid_, windows_);
    PatchDemand to_raw_files = demand;
    to_raw_files.price = StreamPrices::file;
    const LayerwiseCost layerwise = layerwise_cost(to_raw_files).value_or(LayerwiseCost{});
    const PatchChoice choice = o_.cheapest_patch ? PatchChoice{.cheapest = chosen} : choose_patch(demand, chosen);
    return {.patch = grid_.patch,
            .overlap = grid_.overlap,
            .patches = grid_.patches(),
            .computed = computed,
            .windows = static_cast<std::int64_t>(windows_.columns.size()),
            .memory_bytes = windows_.bytes,
            .memory_limit = limit_,
            .disk_bytes = disk_needed(),
            .disk_free = fs::space(folder_of(part_)).available,
            .seconds = seconds * static_cast<double>(computed) / static_cast<double>(net.batch()),
            .chosen = estimate_of(chosen),
            .cheapest = estimate_of(*choice.cheapest),
            .layerwise_compute_seconds = layerwise.compute_seconds,
            .layerwise_transfer_seconds = layerwise.transfer_seconds,
            .patch_note = choice.reason};
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
  static constexpr std::size_t most_read = 512 * mebibyte;

  /// Finds how intensities are scaled: as the data set was, or by statistics of this volume. Returns false if a stop
  /// request came first.
  bool find_scaling() {
    if (scaling_) return true;
    const auto [spec, of_dataset] = parse_intensity(header_.normalisation, o_.checkpoint.string());
    if (manifest_) {
      scaling_ = std::make_shared<VolumeScaling>(manifest_->scaling);
    } else if (spec.normalise == Normalise::dataset) {
      scaling_ = std::make_shared<VolumeScaling>(of_dataset);
    } else {
      const io::VoxelBox all{{0, 0, 0}, source_->info().extent};
      const auto pieces =
          pieces_of(source_->info(), all, std::min(limit_ / 4, most_read),
                    [this](const io::VoxelBox& box) { return StoredVolume::read(*source_, box, &memory_); });
      const bool scales = spec.normalise != Normalise::none || spec.clip;
      const auto found = scales ? intensity_statistics(pieces, spec, &scheduler_, o_.stop) : IntensityStatistics{};
      if (!found) return false;
      scaling_ = std::make_shared<VolumeScaling>(scaling_of(*found, spec));
    }
    const auto channels = static_cast<std::size_t>(source_->info().channels);
    const auto planes = static_cast<std::size_t>(scaling_->planes);
    const bool fits = planes == 0
                          ? scaling_->list.size() == channels
                          : scaling_->planes == source_->info().extent.z && scaling_->list.size() == channels * planes;
    if (scaling_->list.empty() || fits) return true;
    throw FormatError(fmt::format("{}: normalisation: {} scalings for {} channels; {}",
                                  manifest_ ? part_.string() : o_.checkpoint.string(), scaling_->list.size(), channels,
                                  manifest_ ? "remove the folder and begin again" : "train again"));
  }

  /// Checks what needs no volume. After the inference these errors could come hours later.
  void check_options() {
    check_output();
    const Extent3 patch = o_.patch.value_or(header_.net.patch);
    channels_ = infer_shapes(header_.net, patch).output().channels;
    io::check_writable(target_, stored_as(stored_, channels_, Extent3::all(1)));
    check_overlap(o_.overlap, patch);
    if (o_.cheapest_patch && (o_.patch || o_.overlap)) {
      throw InvalidArgument("--patch auto chooses the overlap too; leave --overlap out, or give the patch");
    }
    if (o_.batch < 1) throw InvalidArgument(fmt::format("--batch is {}; at least 1 is needed", o_.batch));
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

  void open_source() {
    std::vector<std::string> names{o_.volume};
    names.insert(names.end(), o_.channels.begin(), o_.channels.end());
    std::vector<std::unique_ptr<io::VolumeSource>> volumes;
    for (const std::string& name : names) {
      volumes.push_back(io::open_volume(io::split_volume_path(name), {.decode_in_memory = limit_ / (8 * names.size()),
                                                                      .temporary = folder_of(part_)}));
      io::tell_notes(name, volumes.back()->info(), o_.on_note);
      const auto nan = parse_intensity(header_.normalisation, o_.checkpoint.string()).first.nan;
      if (nan) volumes.back() = io::replace_nan(std::move(volumes.back()), *nan);
      if (volumes.size() == 1) file_ = volumes.back()->info();
      turn(volumes.back(), volumes.size() == 1);
    }
    source_ = io::stack_channels(std::move(volumes));
  }

  /// Turns a volume to the orientation of the training.
  void turn(std::unique_ptr<io::VolumeSource>& volume, bool first) {
    orientation_ = o_.orientation.empty() ? header_.orientation : o_.orientation == "none" ? "" : o_.orientation;
    if (orientation_.empty()) return;
    io::check_orientation(orientation_);
    try {
      const io::AxisMap map = io::turn_to(orientation_, *volume);
      if (first) map_ = map;
      if (!map.identity()) volume = io::turned(std::move(volume), map);
    } catch (const InvalidArgument& error) {
      throw InvalidArgument(fmt::format("{}, by --orientation none", error.what()));
    }
  }

  void check_channels() const {
    const index_t channels = source_->info().channels;
    if (header_.net.in_channels == channels) return;
    throw ShapeMismatch(
        fmt::format("{}: the net reads {} channels, but {} has {}; use a volume with as many channels, or add volumes "
                    "with --channel",
                    o_.checkpoint.string(), header_.net.in_channels, o_.volume, channels));
  }

  /// Decides which voxels the net reads: those of the volume, or those of a grid with the spacing of the training.
  void choose_grid() {
    const io::VolumeInfo& info = source_->info();
    input_ = source_;
    const io::VoxelBox of_file = region_of(o_, file_.extent);
    const io::VoxelBox of_volume = map_.turned(of_file, file_.extent);
    region_ = of_volume;
    output_ = stored_as(stored_, channels_, of_file.extent);
    output_.spacing = file_.spacing;
    output_.geometry = io::geometry_of_part(file_.geometry, of_file.begin);
    sink_ = stored_as(stored_, channels_, region_.extent);
    sink_.spacing = info.spacing;
    sink_.geometry = io::geometry_of_part(info.geometry, region_.begin);
    if (!header_.spacing) {
      if (!o_.spacing) return;
      throw InvalidArgument(
          fmt::format("--spacing: {} was trained without [spacing]; leave the option out", o_.checkpoint.string()));
    }
    if (!o_.spacing && !info.spacing) {
      throw InvalidArgument(
          fmt::format("{}: has no spacing, and {} was trained with voxels of {}; give --spacing z,y,x", o_.volume,
                      o_.checkpoint.string(), fmt::join(*header_.spacing, " x ")));
    }
    std::optional<Resampling> how;
    try {
      how = resampling_of(info.extent, o_.spacing ? map_.turned(*o_.spacing) : info.spacing->zyx, *header_.spacing);
    } catch (const InvalidArgument& error) {
      throw InvalidArgument(fmt::format("{}: {}", o_.volume, error.what()));
    }
    if (!how) return;
    how->cubic = header_.cubic;
    input_ = resampled(source_, *how, true);
    Resampling back = how->inverse();
    back.nearest = o_.labels;
    region_ = back.needed(region_);
    back_ = back.cut(of_volume);
    sink_ = stored_as(stored_, channels_, region_.extent);
    sink_.spacing = input_->info().spacing;
  }

  void make_predictor() {
    PredictorOptions options = predictor_options();
    if (manifest_) options.recorded = recorded_plans(NumericsRecord::from_text(manifest_->numerics));
    predictor_ = std::make_unique<Predictor>(header_.net, *parameters_, options, scheduler_, &memory_);
    try {
      predictor_->network(grid_);
    } catch (const Error& error) {
      if (!manifest_) throw;
      throw InvalidArgument(fmt::format("{}: its plans cannot be made here: {}", part_.string(), error.what()));
    }
  }

  PredictorOptions predictor_options() const {
    return {.patches = patches_,
            .mirror = o_.flip,
            .batch = o_.batch,
            .engine = o_.engine,
            // Weights that are not kept as spectra are transformed again, with the same bits.
            .memory_budget = std::min(usual_memory_budget, limit_ / 2)};
  }

  void choose_columns() { windows_ = windows_for(grid_, predictor_->network(grid_).bytes(scheduler_.threads())); }

  /// Returns the columns for a grid, beside a net of so many bytes.
  InferenceWindows windows_for(const PatchGrid& grid, std::size_t net_bytes) const {
    constexpr std::size_t resampled_at_once = 48 * mebibyte;
    std::size_t fixed = program_bytes + net_bytes + static_cast<std::size_t>(parameters_->count()) * sizeof(float);
    if (back_) fixed += resampled_at_once * static_cast<std::size_t>(scheduler_.threads());
    if (decoded_bytes() == 0 && !source_->info().planes_of_chunks) {
      const io::VolumeInfo& info = source_->info();  // a chunk as it is stored, and decoded
      fixed += 2 * static_cast<std::size_t>(scheduler_.threads() * info.chunk_channels * info.chunk.volume()) *
               info.bytes_per_voxel();
    }
    if (decoded_bytes() <= limit_ / 8) fixed += static_cast<std::size_t>(decoded_bytes());
    return choose_windows({.grid = grid,
                           .region = region_,
                           .volume = input_->info(),
                           .channels = channels_,
                           .stored = sink_,
                           .threads = scheduler_.threads(),
                           .fixed = fixed},
                          limit_);
  }

  PatchDemand patch_demand() {
    const io::VolumeInfo& info = input_->info();
    return {.spec = header_.net,
            .blend = o_.blend,
            .region = region_.extent,
            .batch = o_.batch,
            .forms = forms_of(o_.flip),
            .threads = scheduler_.threads(),
            .engine = o_.engine,
            .price = price_of_reading(info),
            .windows = [this](const PatchGrid& grid,
                              bool net_too) { return windows_for(grid, net_too ? net_bytes(grid) : 0); },
            .read_box =
                [this](const PatchGrid& grid, const io::VoxelBox& column) {
                  return Blender::input_box(grid, region_, input_->info().extent, column);
                },
            .channels = info.channels,
            .bytes_per_voxel = info.bytes_per_voxel()};
  }

  /// Plans a net to learn its memory.
  std::size_t net_bytes(const PatchGrid& grid) {
    if (o_.stop.stop_requested()) throw StopRequested();
    PredictorOptions options = predictor_options();
    options.patches = {.patch = grid.patch, .overlap = grid.overlap, .blend = o_.blend};
    return Predictor(header_.net, *parameters_, options, scheduler_, &memory_)
        .network(grid)
        .bytes(scheduler_.threads());
  }

  /// Returns the grid of the cheapest patch. If no patch fits, the error is that of the usual one.
  static PatchGrid cheapest_grid(const PatchDemand& demand, const PatchGrid& usual) {
    std::optional<PatchCost> cost;
    std::exception_ptr reason;
    try {
      cost = cost_of(demand, usual, demand.windows(usual, true));
    } catch (const InvalidArgument&) {
      reason = std::current_exception();
    }
    const PatchChoice choice = choose_patch(demand, cost);
    if (!choice.cheapest) std::rethrow_exception(reason);
    return choice.cheapest->grid;
  }

  /// Takes the patch that costs least, or that of the inference that is continued.
  void take_cheapest_patch() {
    if (manifest_) {
      patches_.patch = parse_extent(manifest_->fact("--patch"));
      patches_.overlap = parse_extent(manifest_->fact("--overlap"));
    } else {
      const PatchDemand demand = patch_demand();
      const PatchGrid usual = make_patch_grid(header_.net, region_.extent, patches_);
      const PatchGrid grid = cheapest_grid(demand, usual);
      patches_.patch = grid.patch;
      patches_.overlap = grid.overlap;
    }
    for (io::SinkOptions* options : {&sink_, &output_}) {
      options->notes = {{"patch", to_string(*patches_.patch)}, {"overlap", to_string(*patches_.overlap)}};
    }
  }

  /// Reads the text of an extent, as to_string() writes it.
  Extent3 parse_extent(const std::string& text) const {
    Extent3 extent;
    char rest = 0;
    if (std::sscanf(text.c_str(), "%" SCNd64 " x %" SCNd64 " x %" SCNd64 "%c", &extent.z, &extent.y, &extent.x,
                    &rest) == 3) {
      return extent;
    }
    throw FormatError(
        fmt::format("{}: manifest: '{}' is no extent; remove the folder and begin again", part_.string(), text));
  }

  PatchEstimate estimate_of(const PatchCost& cost) const {
    return {.patch = cost.grid.patch,
            .overlap = cost.grid.overlap,
            .windows = static_cast<std::int64_t>(cost.windows.columns.size()),
            .computed = cost.windows.patches * static_cast<index_t>(predictor_->forms()),
            .halo = cost.halo,
            .compute_seconds = cost.compute_seconds,
            .read_seconds = cost.transfer_seconds};
  }

  /// Returns the bytes of a volume that is decoded before it is read: in memory, or in a temporary file.
  std::uint64_t decoded_bytes() const {
    const io::VolumeInfo& info = source_->info();
    if (source_->path().file.extension() != ".gz") return 0;
    return static_cast<std::uint64_t>(info.channels * info.extent.volume()) * info.bytes_per_voxel();
  }

  /// Returns the bytes that are written besides those that an interrupted inference has written.
  std::uint64_t disk_needed() const {
    const auto bytes_of = [](const io::SinkOptions& voxels) {
      return static_cast<std::uint64_t>(voxels.channels * voxels.extent.volume()) * io::size_of(voxels.type);
    };
    const std::uint64_t bytes = bytes_of(sink_);
    std::uint64_t needed = bytes;
    if (zarr_) {
      const auto all = static_cast<double>(zarr_->grid().count());
      needed -= static_cast<std::uint64_t>(static_cast<double>(bytes) * static_cast<double>(zarr_->finished()) / all);
    }
    if (decoded_bytes() > limit_ / 8) needed += decoded_bytes();
    return renames() ? needed : needed + bytes_of(output_);
  }

  void check_disk() const {
    std::error_code error;
    const auto space = fs::space(folder_of(part_), error);
    if (error || disk_needed() <= space.available) return;
    throw IoError(
        fmt::format("{}: up to {} KiB are written for {}{}, but {} KiB are free; free some space{}",
                    folder_of(part_).string(), (disk_needed() + 1023) / 1024, part_.filename().string(),
                    renames() ? "" : " and for the file itself", space.available / 1024,
                    renames() || back_ || !map_.identity() ? "" : ", or write a .zarr, which needs half of that"));
  }

  /// Returns whether the array of finished chunks is the output.
  bool renames() const { return target_.file.extension() == ".zarr" && !back_ && map_.identity(); }

  /// Makes the folder of finished chunks, or checks that the folder of an interrupted inference fits this one.
  void open_part() {
    InferenceManifest now{.scaling = *scaling_};
    auto numerics = NumericsRecord::of_this_build();
    predictor_->network(grid_).network().add_numerics(numerics);
    now.numerics = numerics.to_text();
    now.facts = facts();
    if (manifest_) return manifest_->require_equal(now, part_);
    io::SinkOptions kept = sink_;
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
        {"volume", digest_of(*source_)},
        {"state of its files", states()},
        {"--patch", to_string(grid_.patch)},
        {"--overlap", to_string(grid_.overlap)},
        {"--box", fmt::format("{} + {}", to_string(region_.begin), to_string(region_.extent))},
        {"--blend", blends[static_cast<int>(o_.blend)]},
        {"--flip", fmt::format("{}{}{}", o_.flip[0] ? "z" : "", o_.flip[1] ? "y" : "", o_.flip[2] ? "x" : "")},
        {"--batch", std::to_string(o_.batch)},
        {"--engine", name_of(o_.engine)},
        {"voxels", kinds[static_cast<int>(stored_)]},
        {"normalisation", header_.normalisation}};
    if (back_) all.emplace_back("--spacing", fmt::format("{}", fmt::join(back_->zoom, " ")));
    if (!orientation_.empty()) all.emplace_back("--orientation", orientation_);
    if (back_ && header_.cubic) all.emplace_back("interpolation", "cubic");
    return all;
  }

  /// Returns the sizes and times of the files that are read.
  std::string states() const {
    std::vector<std::string> names{o_.volume}, texts;
    names.insert(names.end(), o_.channels.begin(), o_.channels.end());
    for (const std::string& name : names) {
      const FileState state = FileState::of(io::split_volume_path(name));
      texts.push_back(fmt::format("{} bytes at {}", state.bytes, state.modified));
    }
    return fmt::format("{}", fmt::join(texts, ", "));
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
      VolumeWindow window(*input_, scaling_, &memory_);
      complete = predictor_->run(window, grid_, region_, windows_.columns, sink, progress, o_.stop);
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
    predictor_.reset();  // its memory
    if (renames()) {
      zarr_->move_to(target_);
      zarr_.reset();
      return;
    }
    if (o_.resume) remove_leftovers();
    io::SinkOptions options = output_;
    options.memory = std::clamp(limit_ / 8, 4 * mebibyte, 64 * mebibyte);
    std::shared_ptr<const io::VolumeSource> from = io::open_volume(io::VolumePath{part_, ""});
    if (back_) from = resampled(from, *back_, false);
    if (!map_.identity()) from = io::turned(from, map_.inverse());
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
  std::unique_ptr<Parameters> parameters_;
  io::VolumeInfo file_;                             // of the first volume, as it is stored
  std::string orientation_;                         // to which it is turned; empty: it is not
  io::AxisMap map_{};                               // how the first volume is turned
  std::shared_ptr<const io::VolumeSource> source_;  // the volume, turned
  std::shared_ptr<const io::VolumeSource> input_;   // what the net reads: the volume, maybe with another spacing
  std::optional<Resampling> back_;                  // from the region that is predicted to the output
  io::VoxelBox region_{};                           // of the input
  io::SinkOptions sink_, output_;                   // what is kept in the folder, and what is written at the end
  std::unique_ptr<io::PartialZarr> zarr_;
  bool fresh_ = false;                            // this call has made the folder
  std::optional<InferenceManifest> manifest_;     // of the inference that is continued
  std::shared_ptr<const VolumeScaling> scaling_;  // null before find_scaling()
  std::unique_ptr<Predictor> predictor_;
  PatchOptions patches_{};
  PatchGrid grid_;
  InferenceWindows windows_;
};

}  // namespace

bool infer(const InferOptions& options) {
  try {
    return Inference(options, true).run();
  } catch (const StopRequested&) {
    return false;  // while patches were chosen
  }
}

InferencePlan plan_inference(const InferOptions& options) { return Inference(options, false).plan(); }

}  // namespace convolume::nets
