#include "nets/infer/inference_volume.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "nets/data/intensity.hpp"
#include "nets/data/summary_file.hpp"
#include "nets/infer/inference_options.hpp"
#include "nets/io/array_source.hpp"
#include "nets/io/copy_volume.hpp"
#include "nets/io/nan_source.hpp"
#include "nets/io/stacked_source.hpp"

namespace convolume::nets {
namespace {

constexpr std::size_t most_read = std::size_t{512} << 20;

}  // namespace

InferenceVolume::InferenceVolume(const InferOptions& options, const CheckpointHeader& header, std::size_t limit,
                                 const std::filesystem::path& folder)
    : o_(options), header_(header), limit_(limit) {
  std::vector<std::string> names{o_.volume};
  names.insert(names.end(), o_.channels.begin(), o_.channels.end());
  std::vector<std::unique_ptr<io::VolumeSource>> volumes;
  for (const std::string& name : names) {
    volumes.push_back(io::open_volume(io::split_volume_path(name),
                                      {.decode_in_memory = limit_ / (8 * names.size()), .temporary = folder}));
    io::tell_notes(name, volumes.back()->info(), o_.on_note);
    const auto nan = parse_intensity(header_.normalisation, o_.checkpoint.string()).first.nan;
    if (nan) volumes.back() = io::replace_nan(std::move(volumes.back()), *nan);
    if (volumes.size() == 1) file_ = volumes.back()->info();
    turn(volumes.back(), volumes.size() == 1);
  }
  source_ = io::stack_channels(std::move(volumes));
  check_channels();
}

/// Turns a volume to the orientation of the training.
void InferenceVolume::turn(std::unique_ptr<io::VolumeSource>& volume, bool first) {
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

void InferenceVolume::check_channels() const {
  const index_t channels = source_->info().channels;
  if (header_.net.in_channels == channels) return;
  throw ShapeMismatch(
      fmt::format("{}: the net reads {} channels, but {} has {}; use a volume with as many channels, or add volumes "
                  "with --channel",
                  o_.checkpoint.string(), header_.net.in_channels, o_.volume, channels));
}

void InferenceVolume::choose_region(Stored stored, index_t channels) {
  const io::VolumeInfo& info = source_->info();
  input_ = source_;
  const io::VoxelBox of_file = region_of(o_, file_.extent);
  const io::VoxelBox of_volume = map_.turned(of_file, file_.extent);
  region_ = of_volume;
  output_ = stored_as(stored, channels, of_file.extent);
  output_.spacing = file_.spacing;
  output_.geometry = io::geometry_of_part(file_.geometry, of_file.begin);
  kept_ = stored_as(stored, channels, region_.extent);
  kept_.spacing = info.spacing;
  kept_.geometry = io::geometry_of_part(info.geometry, region_.begin);
  if (!header_.spacing) {
    if (!o_.spacing) return;
    throw InvalidArgument(
        fmt::format("--spacing: {} was trained without [spacing]; leave the option out", o_.checkpoint.string()));
  }
  if (!o_.spacing && !info.spacing) {
    throw InvalidArgument(fmt::format("{}: has no spacing, and {} was trained with voxels of {}; give --spacing z,y,x",
                                      o_.volume, o_.checkpoint.string(), fmt::join(*header_.spacing, " x ")));
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
  kept_ = stored_as(stored, channels, region_.extent);
  kept_.spacing = input_->info().spacing;
}

void InferenceVolume::add_notes(const std::vector<std::pair<std::string, std::string>>& notes) {
  for (io::SinkOptions* options : {&kept_, &output_}) options->notes = notes;
}

std::shared_ptr<const io::VolumeSource> InferenceVolume::as_output(std::shared_ptr<const io::VolumeSource> kept) const {
  if (back_) kept = resampled(kept, *back_, false);
  if (!map_.identity()) kept = io::turned(kept, map_.inverse());
  return kept;
}

std::uint64_t InferenceVolume::decoded_bytes() const {
  const io::VolumeInfo& info = source_->info();
  if (source_->path().file.extension() != ".gz") return 0;
  return static_cast<std::uint64_t>(info.channels * info.extent.volume()) * info.bytes_per_voxel();
}

std::string InferenceVolume::states() const {
  std::vector<std::string> names{o_.volume}, texts;
  names.insert(names.end(), o_.channels.begin(), o_.channels.end());
  for (const std::string& name : names) {
    const FileState state = FileState::of(io::split_volume_path(name));
    texts.push_back(io::is_array_path(name) ? state.path : fmt::format("{} bytes at {}", state.bytes, state.modified));
  }
  return fmt::format("{}", fmt::join(texts, ", "));
}

std::shared_ptr<const VolumeScaling> InferenceVolume::scaling(Scheduler& scheduler,
                                                              std::pmr::memory_resource* memory) const {
  const auto [spec, of_dataset] = parse_intensity(header_.normalisation, o_.checkpoint.string());
  if (spec.normalise == Normalise::dataset) return std::make_shared<VolumeScaling>(of_dataset);
  const io::VoxelBox all{{0, 0, 0}, source_->info().extent};
  const auto pieces = pieces_of(source_->info(), all, std::min(limit_ / 4, most_read),
                                [&](const io::VoxelBox& box) { return StoredVolume::read(*source_, box, memory); });
  const bool scales = spec.normalise != Normalise::none || spec.clip;
  const auto found = scales ? intensity_statistics(pieces, spec, &scheduler, o_.stop) : IntensityStatistics{};
  if (!found) return nullptr;
  return std::make_shared<VolumeScaling>(scaling_of(*found, spec));
}

void InferenceVolume::check_scaling(const VolumeScaling& scaling, const std::string& origin,
                                    const std::string& remedy) const {
  const auto channels = static_cast<std::size_t>(source_->info().channels);
  const auto planes = static_cast<std::size_t>(scaling.planes);
  const bool fits = planes == 0
                        ? scaling.list.size() == channels
                        : scaling.planes == source_->info().extent.z && scaling.list.size() == channels * planes;
  if (scaling.list.empty() || fits) return;
  throw FormatError(
      fmt::format("{}: normalisation: {} scalings for {} channels; {}", origin, scaling.list.size(), channels, remedy));
}

}  // namespace convolume::nets
