#include "nets/data/dataset.hpp"

#include <algorithm>
#include <cmath>
#include <map>
#include <numeric>

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <xxhash.h>

#include "nets/data/summary_file.hpp"
#include "nets/io/nan_source.hpp"
#include "nets/io/orientation.hpp"
#include "nets/io/reopened_source.hpp"
#include "nets/io/stacked_source.hpp"

namespace convolume::nets {
namespace {

constexpr std::size_t statistics_bytes = std::size_t{64} << 20;  // that statistics read at once

/// A case whose files are open.
struct OpenCase {
  const CaseSpec* spec = nullptr;
  bool training = false;
  std::shared_ptr<VolumeFiles> files;  // null: built in
  LabelledVolume volume;
  std::vector<FileState> states;
  std::size_t bytes() const {
    if (!files) return 0;
    std::size_t voxel =
        static_cast<std::size_t>(files->image->info().channels) * files->image->info().bytes_per_voxel();
    if (files->label) voxel += files->label->info().bytes_per_voxel();
    if (files->mask) voxel += files->mask->info().bytes_per_voxel();
    return static_cast<std::size_t>(files->box.extent.volume()) * voxel;
  }
};

/// Returns everything that decides how stored labels become values.
std::string label_settings(const LabelSpec& label) {
  std::string text;
  const auto add = [&](const std::vector<ExactNumber>& list) {
    text += '[';
    for (const ExactNumber& number : list) text += text_of(number) + ' ';
    text += ']';
  };
  add(label.positive);
  for (const auto& one : label.classes) add(one);
  add(label.ignore);
  if (!label.regions.empty()) text += "regions";
  for (const auto& one : label.regions) add(one);
  return text;
}

class Loader {
 public:
  Loader(const std::filesystem::path& file, const DatasetOptions& options)
      : o_(options),
        spec_(options.text.empty() ? read_dataset_spec(file) : parse_dataset_spec(options.text, file)),
        summaries_(options.summaries) {}

  Dataset load() {
    data_.name = spec_.name;
    data_.intensity = spec_.intensity;
    data_.target_spacing = spec_.target_spacing;
    data_.cubic = spec_.cubic;
    data_.orientation = spec_.orientation;
    data_.sampling = spec_.sampling;
    data_.augment = spec_.augment;
    data_.regions = regions();
    data_.classes = static_cast<index_t>(spec_.label.classes.size());
    data_.class_names = spec_.class_names;
    if (spec_.synthetic) {
      auto made = make_synthetic_volume(*spec_.synthetic, o_.memory);
      synthetic_image_ = StoredVolume(std::move(made.image));
      synthetic_label_ = StoredVolume(std::move(made.label));
    }
    for (const CaseSpec& one : spec_.train) cases_.push_back(open(one, true));
    for (const CaseSpec& one : spec_.validation) cases_.push_back(open(one, false));
    add_notes();
    remark_orientations();
    check_unchanged();
    choose_memory();
    for (OpenCase& one : cases_) summarise(one);
    check_listed();
    if (spec_.intensity.normalise == Normalise::dataset) scale_by_dataset();
    summaries_.replace(kept_);
    for (std::size_t i = 0; i < cases_.size(); ++i) scale(cases_[i], found_[i]);
    data_.digest = digest(true);
    data_.validation_digest = digest(false);
    for (OpenCase& one : cases_) {
      LabelledVolume& volume = one.volume;
      if (!one.training && volume.resampling) {
        volume.resampled = resample(*volume.resampling, volume.image.floats(o_.memory).view(), o_.memory);
      }
      (one.training ? data_.train : data_.validation).push_back(std::move(one.volume));
    }
    return std::move(data_);
  }

 private:
  [[noreturn]] void fail(const CaseSpec& one, const std::string& message) const {
    fail_at(spec_.file, one.line, message);
  }

  index_t regions() const { return static_cast<index_t>(spec_.label.regions.size()); }

  // Opening -----------------------------------------------------------------------------------------------------------

  OpenCase open(const CaseSpec& one, bool training) {
    OpenCase result{.spec = &one, .training = training, .files = {}, .volume = {}, .states = {}};
    result.volume.name = one.name;
    result.volume.weight = one.weight;
    result.volume.class_number = one.class_number;
    if (spec_.synthetic) {
      const io::VoxelBox box = box_of(one, synthetic_image_.shape().extent);
      if (one.box.size() == 3) fail(one, "box: the built-in volume is cut by 'slices' only");
      result.volume.image = synthetic_image_.cut(box.begin.z, box.end().z, o_.memory);
      result.volume.label = synthetic_label_.cut(box.begin.z, box.end().z, o_.memory);
      result.volume.label.map_labels(spec_.label);
      result.volume.spacing = {spec_.synthetic->anisotropy, 1, 1};
      set_resampling(one, result.volume, box.extent, true);
      return result;
    }
    auto files = std::make_shared<VolumeFiles>();
    std::vector<std::unique_ptr<io::VolumeSource>> channels;
    io::AxisMap map;  // of the first image
    for (const std::string& path : one.image) {
      channels.push_back(open_file(path, result, channels.empty() ? &map : nullptr));
      if (spec_.intensity.nan) channels.back() = io::replace_nan(std::move(channels.back()), *spec_.intensity.nan);
    }
    files->image = io::stack_channels(std::move(channels));
    if (!spec_.class_names.empty()) return with_image(one, std::move(result), std::move(files), map);
    files->label = open_file(one.label, result);
    if (!one.mask.empty()) files->mask = open_file(one.mask, result);
    check_equal(one, *files->image, *files->label, "label");
    if (files->mask) check_equal(one, *files->image, *files->mask, "mask");
    files->label_spec = spec_.label;
    result.volume.label_name = files->label->path().text();
    result.volume.label_scale = files->label->info().scale;
    result.volume.label_turned = files->label->info().turned;
    return with_image(one, std::move(result), std::move(files), map);
  }

  /// Adds open files to a case, with what their image decides. `map` is how it was turned.
  OpenCase with_image(const CaseSpec& one, OpenCase result, std::shared_ptr<VolumeFiles> files,
                      const io::AxisMap& map) const {
    const Extent3 stored = map.inverse().turned(files->image->info().extent);
    files->box = map.turned(box_of(one, stored), stored);
    result.volume.begin = files->box.begin;
    const auto& spacing = files->image->info().spacing;
    result.volume.spacing = one.spacing ? map.turned(*one.spacing) : spacing ? spacing->zyx : result.volume.spacing;
    set_resampling(one, result.volume, files->box.extent, one.spacing || spacing);
    result.files = std::move(files);
    return result;
  }

  /// Decides how a volume is brought to the spacing of [spacing].
  void set_resampling(const CaseSpec& one, LabelledVolume& volume, const Extent3& extent, bool known) const {
    if (!spec_.target_spacing) return;
    if (!known) {
      fail(one,
           fmt::format("[spacing] target: {} has no spacing; add spacing = [z, y, x] to the table", one.image.front()));
    }
    try {
      volume.resampling = resampling_of(extent, volume.spacing, *spec_.target_spacing);
      if (volume.resampling) volume.resampling->cubic = spec_.cubic;
    } catch (const InvalidArgument& error) {
      fail(one, error.what());
    }
  }

  /// Opens a file, and turns it if the data set has an orientation. `map` becomes how it is turned.
  std::unique_ptr<io::VolumeSource> open_file(const std::string& path, OpenCase& result, io::AxisMap* map = nullptr) {
    // There can be thousands of cases with classes, and only so many files can be open.
    auto source =
        spec_.class_names.empty() ? io::open_volume(path) : io::open_for_each_read(io::split_volume_path(path));
    result.states.push_back(FileState::of(source->path()));
    for (const std::string& note : source->info().notes) {
      ++notes_.try_emplace(note, Noted{path, 0}).first->second.files;
    }
    if (source->info().geometry) orientations_.try_emplace(io::orientation_of(*source->info().geometry), path);
    if (spec_.orientation.empty()) return source;
    try {
      const io::AxisMap own = io::turn_to(spec_.orientation, *source);
      if (map != nullptr) *map = own;
      return own.identity() ? std::move(source) : io::turned(std::move(source), own);
    } catch (const InvalidArgument& error) {
      fail(*result.spec, error.what());
    }
  }

  /// A note of hundreds of files is one line.
  void add_notes() {
    for (const auto& [note, noted] : notes_) {
      const std::string more = noted.files > 1 ? fmt::format(" (and {} other files)", noted.files - 1) : "";
      data_.notes.push_back(fmt::format("{}{}: {}", noted.path, more, note));
    }
  }

  /// Names the orientations of the files if they have several and are not turned.
  void remark_orientations() {
    if (!spec_.orientation.empty() || orientations_.size() < 2) return;
    std::string list;
    for (const auto& [orientation, path] : orientations_) {
      list += fmt::format("{}{} ({})", list.empty() ? "" : ", ", orientation.empty() ? "none" : orientation, path);
    }
    // Files without an orientation cannot be turned.
    const std::string remedy =
        orientations_.contains("")
            ? ""
            : fmt::format("; orientation = \"{}\" turns them all, without resampling", orientations_.rbegin()->first);
    data_.notes.push_back(
        fmt::format("data set '{}': its volumes have different orientations: {}{}", spec_.name, list, remedy));
  }

  void check_equal(const CaseSpec& one, const io::VolumeSource& image, const io::VolumeSource& other,
                   const char* what) const {
    const io::VolumeInfo &a = image.info(), &b = other.info();
    if (a.extent != b.extent) {
      fail(one, fmt::format("{}: {} has {} voxels, but {} has {}; they must be equal", what, other.path().text(),
                            to_string(b.extent), image.path().text(), to_string(a.extent)));
    }
    if (b.channels != 1) {
      fail(one, fmt::format("{}: {} has {} channels, but a {} has one; copy one of them with convolume convert "
                            "--channel",
                            what, other.path().text(), b.channels, what));
    }
    constexpr double most = 1e-3;  // voxels
    if (!a.geometry || !b.geometry) return;
    const double distance = io::distance_in_voxels(*a.geometry, *b.geometry, a.extent);
    if (distance <= most) return;
    fail(one, fmt::format("{}: {} lies up to {:.3g} voxels away from {}, by the geometries of the files; resample it, "
                          "or correct its header",
                          what, other.path().text(), distance, image.path().text()));
  }

  /// Returns the box of the keys `box` and `slices`, or everything.
  io::VoxelBox box_of(const CaseSpec& one, const Extent3& extent) const {
    io::VoxelBox box{{0, 0, 0}, extent};
    for (std::size_t i = 0; i < one.box.size(); ++i) {
      const int axis = static_cast<int>(i);
      const auto [first, end] = one.box[i];
      if (end > extent[axis]) {
        const bool slices = one.box.size() == 1;
        fail_at(
            spec_.file, one.box_line,
            fmt::format("{}: [{}, {}] must be [first, end) within the {} {} of '{}'", slices ? "slices" : "box", first,
                        end, extent[axis], slices ? "slices" : fmt::format("voxels along {}", "zyx"[axis]), one.name));
      }
      box.begin[axis] = first;
      box.extent[axis] = end - first;
    }
    return box;
  }

  void check_unchanged() const {
    if (!o_.resume || o_.verify) return;
    for (const OpenCase& one : cases_) {
      for (const FileState& now : one.states) {
        const auto then = summaries_.changed(now);
        if (!then) continue;
        throw FormatError(
            fmt::format("{}: changed after the run had begun: it had {} bytes, and has {}{}; put the file back, or use "
                        "--verify-data, which reads it and continues if the voxels are the same",
                        now.path, then->bytes, now.bytes, then->bytes == now.bytes ? " written at another time" : ""));
      }
    }
  }

  [[noreturn]] void fail_validation(std::size_t needed) const {
    constexpr std::size_t mebibyte = std::size_t{1} << 20;
    throw InvalidArgument(fmt::format(
        "--memory leaves {}M for volumes, but the validation volumes of data set '{}' stay in memory and "
        "need {}M; raise --memory by {}M, or validate on a part of them (box)",
        o_.volume_bytes / mebibyte, spec_.name, needed / mebibyte + 1, (needed - o_.volume_bytes) / mebibyte + 1));
  }

  /// Decides which volumes are read into memory: validation volumes, then training volumes, small ones first.
  void choose_memory() {
    std::vector<OpenCase*> order;
    std::size_t validation = 0;
    for (OpenCase& one : cases_) {
      if (one.training) {
        order.push_back(&one);
      } else {
        const auto voxels = static_cast<std::size_t>(one.files ? one.files->box.extent.volume() : 0);
        validation += one.bytes() + voxels * o_.validation_bytes;
      }
    }
    if (o_.validation_must_fit && validation > o_.volume_bytes) fail_validation(validation);
    std::size_t left = o_.volume_bytes - std::min(validation, o_.volume_bytes);
    std::stable_sort(order.begin(), order.end(),
                     [](const OpenCase* a, const OpenCase* b) { return a->bytes() < b->bytes(); });
    for (OpenCase* one : order) {
      if (one->bytes() <= left) {
        left -= one->bytes();
      } else {
        one->volume.files = one->files;
      }
    }
  }

  // Statistics --------------------------------------------------------------------------------------------------------

  std::string settings_of(const OpenCase& one) const {
    const IntensitySpec& i = spec_.intensity;
    const io::VoxelBox box = one.files ? one.files->box : io::VoxelBox{{0, 0, 0}, one.volume.extent()};
    std::string text =
        fmt::format("{} + {}; {} {} {} {}; {}", to_string(box.begin), to_string(box.extent), name_of(i.normalise),
                    i.needs_percentiles() ? fmt::format("{}", fmt::join(i.percentiles, " ")) : "-", i.clip, i.nonzero,
                    label_settings(spec_.label));
    if (i.nan) text += fmt::format("; nan {}", *i.nan);
    if (!spec_.orientation.empty()) text += "; orientation " + spec_.orientation;
    return text;
  }

  void read(OpenCase& one) const {
    if (!one.files || one.volume.files) return;
    const io::VoxelBox all{{0, 0, 0}, one.files->box.extent};
    one.volume.image = one.files->read_image(all, o_.memory);
    if (one.files->label) one.volume.label = one.files->read_label(all, o_.memory);
    if (one.files->mask) one.volume.mask = one.files->read_mask(all, o_.memory);
  }

  VoxelPieces pieces(const OpenCase& one, const StoredVolume& stored, const io::VolumeSource* source,
                     StoredVolume (VolumeFiles::*read)(const io::VoxelBox&, std::pmr::memory_resource*) const) const {
    if (!one.volume.files) return pieces_of(stored);
    const VolumeFiles* const files = one.volume.files.get();
    return pieces_of(
        source->info(), {{0, 0, 0}, files->box.extent}, statistics_bytes,
        [files, read, memory = o_.memory](const io::VoxelBox& box) { return (files->*read)(box, memory); });
  }
  VoxelPieces image_pieces(const OpenCase& one) const {
    return pieces(one, one.volume.image, one.files ? one.files->image.get() : nullptr, &VolumeFiles::read_image);
  }

  void summarise(OpenCase& one) {
    read(one);
    const std::string settings = settings_of(one);
    const CaseSummary* known = o_.verify || !one.files ? nullptr : summaries_.find(one.states, settings);
    CaseSummary summary = known != nullptr && fits(*known, one) ? *known : compute(one, settings);
    check_label(one, summary.label);
    one.volume.labels = std::make_shared<LabelSummary>(summary.label);
    found_.push_back({summary.image, summary.mask_digest});
    if (one.files) kept_.push_back(std::move(summary));
  }

  /// Returns whether a kept summary has an entry for everything, as one that was written by this program does.
  static bool fits(const CaseSummary& summary, const OpenCase& one) {
    const auto channels = static_cast<std::size_t>(one.volume.channels());
    const std::size_t slices = summary.image.voxels.slices.size();
    return summary.image.voxels.channels.size() == channels &&
           summary.label.listed.size() == one.files->label_spec.listed().size() &&
           (slices == 0 || slices == channels * static_cast<std::size_t>(one.volume.extent().z));
  }

  CaseSummary compute(const OpenCase& one, const std::string& settings) const {
    CaseSummary summary{.files = one.states, .settings = settings, .image = {}, .label = {}};
    IntensitySpec own = spec_.intensity;
    if (own.normalise == Normalise::dataset) own.clip = false;  // its percentiles need all volumes
    auto image = intensity_statistics(image_pieces(one), own, o_.scheduler, o_.stop);
    const io::VolumeSource* const label_file = one.files ? one.files->label.get() : nullptr;
    auto label = spec_.class_names.empty()
                     ? summarise_labels(pieces(one, one.volume.label, label_file, &VolumeFiles::read_label),
                                        spec_.label, o_.scheduler, o_.stop)
                     : LabelSummary{};
    if (!image || !label) throw StopRequested();
    summary.image = std::move(*image);
    summary.label = std::move(*label);
    if (!one.volume.has_mask() && !(one.files && one.files->mask)) return summary;
    const auto mask = summarise_labels(pieces(one, one.volume.mask, one.files->mask.get(), &VolumeFiles::read_mask), {},
                                       o_.scheduler, o_.stop);
    if (!mask) throw StopRequested();
    if (mask->not_unit) fail_mask(one, *mask->not_unit);
    summary.mask_digest = mask->digest;
    return summary;
  }

  [[noreturn]] void fail_mask(const OpenCase& one, const FoundVoxel& voxel) const {
    const Extent3 e = one.volume.extent(), begin = one.volume.begin;
    const auto i = static_cast<index_t>(voxel.index);
    throw ConfigError(fmt::format("data set '{}': {} at voxel ({}, {}, {}){} is {}; a mask must lie in [0, 1]",
                                  spec_.name, one.files->mask->path().text(), begin.z + i / (e.y * e.x),
                                  begin.y + i / e.x % e.y, begin.x + i % e.x,
                                  one.files->mask->info().turned ? io::turned_text : "", voxel.value));
  }

  void check_label(const OpenCase& one, const LabelSummary& label) const {
    if (!label.not_listed) return;
    const auto i = static_cast<index_t>(label.not_listed->index);
    std::string stored = "not listed";
    if (!one.volume.files) {
      stored = one.volume.label.stored_text(i);
    } else {
      const Extent3 e = one.volume.extent();
      const io::VoxelBox voxel{{i / (e.y * e.x), i / e.x % e.y, i % e.x}, Extent3::all(1)};
      stored = one.volume.files->read_label(voxel, o_.memory).stored_text(0);
    }
    fail_label(spec_.name, one.volume, label.not_listed->index, stored, "list it in [label] classes, or in ignore");
  }

  /// Throws ConfigError if a value that [label] lists occurs in no training volume. Training on it would learn nothing.
  void check_listed() {
    const std::vector<ExactNumber> listed = spec_.label.listed();
    for (std::size_t i = 0; i < listed.size(); ++i) {
      const bool found = std::any_of(cases_.begin(), cases_.end(),
                                     [&](const OpenCase& one) { return one.training && one.volume.labels->listed[i]; });
      if (found) continue;
      const std::string text = text_of(listed[i]);
      if (i + spec_.label.ignore.size() >= listed.size()) {
        data_.notes.push_back(
            fmt::format("data set '{}': [label] ignore lists {}, which no training volume has", spec_.name, text));
        continue;
      }
      throw ConfigError(fmt::format(
          "data set '{}': [label] {}: the value {}{} occurs in no training volume, so it cannot be learned; "
          "correct the value, add a volume that has it, or leave it out{}",
          spec_.name, key_of_values(), text, place_of(i), scaled_label(listed[i])));
    }
  }

  const char* key_of_values() const {
    return !spec_.label.positive.empty() ? "positive" : !spec_.label.classes.empty() ? "classes" : "regions";
  }

  /// Returns " of class 2", or " of region 1", for an entry of LabelSpec::listed(); an empty text for positive values.
  std::string place_of(std::size_t entry) const {
    const bool classes = !spec_.label.classes.empty();
    const auto& lists = classes ? spec_.label.classes : spec_.label.regions;
    for (std::size_t i = 0; i < lists.size(); ++i) {
      if (entry < lists[i].size()) return fmt::format(" of {} {}", classes ? "class" : "region", classes ? i : i + 1);
      entry -= lists[i].size();
    }
    return "";
  }

  /// Returns a sentence on the first training label whose header scales its numbers, or an empty text.
  std::string scaled_label(const ExactNumber& number) const {
    const double value = std::visit([](auto v) { return static_cast<double>(v); }, number);
    for (const OpenCase& one : cases_) {
      const auto& scale = one.volume.label_scale;
      if (!one.training || !scale) continue;
      const double stored = std::round((value - scale->intercept) / scale->slope);
      return fmt::format(". {} is {}. Store whole numbers: {}", one.volume.label_name,
                         io::scaling_text(scale, stored * scale->slope + scale->intercept),
                         io::whole_numbers_command(one.volume.label_name, *scale));
    }
    return "";
  }

  /// Computes the scaling of all training volumes together.
  void scale_by_dataset() {
    std::vector<VoxelPieces> volumes;
    std::vector<std::size_t> numbers;
    for (std::size_t i = 0; i < cases_.size(); ++i) {
      if (!cases_[i].training) continue;
      volumes.push_back(image_pieces(cases_[i]));
      numbers.push_back(i);
    }
    const index_t channels = volumes.front().channels;
    for (const std::size_t i : numbers) {
      if (cases_[i].volume.channels() == channels) continue;
      fail(*cases_[i].spec,
           fmt::format("image: '{}' has {} channels, but '{}' has {}; volumes of a data set that is "
                       "normalised as a whole must have as many",
                       cases_[i].volume.name, cases_[i].volume.channels(), cases_[0].volume.name, channels));
    }
    IntensityStatistics all;
    StatisticsOptions options{.nonzero = spec_.intensity.nonzero};
    for (index_t c = 0; c < channels && spec_.intensity.clip; ++c) {
      const auto found =
          percentiles_of(volumes, c, spec_.intensity.percentiles, spec_.intensity.nonzero, o_.scheduler, o_.stop);
      if (!found) throw StopRequested();
      all.percentiles.push_back({(*found)[0], (*found)[1]});
      options.clip.emplace_back((*found)[0], (*found)[1]);
    }
    for (std::size_t v = 0; v < volumes.size(); ++v) {
      const auto clipped = spec_.intensity.clip ? statistics_of(volumes[v], options, o_.scheduler, o_.stop)
                                                : std::optional(found_[numbers[v]].image.voxels);
      if (!clipped) throw StopRequested();
      if (v == 0) {
        all.voxels.channels = clipped->channels;
        continue;
      }
      for (std::size_t c = 0; c < all.voxels.channels.size(); ++c) {
        auto& to = all.voxels.channels[c];
        to.moments = to.moments.joined(clipped->channels[c].moments);
        to.least = std::min(to.least, clipped->channels[c].least);
        to.largest = std::max(to.largest, clipped->channels[c].largest);
      }
    }
    data_.scaling = scaling_of(all, spec_.intensity, fmt::format("data set '{}'", spec_.name));
  }

  struct Found {
    IntensityStatistics image;
    std::uint64_t mask_digest = 0;
  };

  void scale(OpenCase& one, const Found& found) const {
    const bool common = spec_.intensity.normalise == Normalise::dataset;
    auto scaling = std::make_shared<const VolumeScaling>(
        common
            ? data_.scaling
            : scaling_of(found.image, spec_.intensity, fmt::format("data set '{}': '{}'", spec_.name, one.spec->name)));
    if (one.volume.files) {
      one.files->scaling = std::move(scaling);
    } else {
      one.volume.image.scale(std::move(scaling));
    }
  }

  /// Returns the digest of the training volumes, or of the validation volumes.
  std::string digest(bool training) const {
    std::string text = spec_.settings();
    // Other regions are other data, even if no voxel tells them apart.
    if (regions() > 0) text += fmt::format(" {}", label_settings(spec_.label));
    for (std::size_t i = 0; i < cases_.size(); ++i) {
      const OpenCase& one = cases_[i];
      if (one.training != training) continue;
      text += fmt::format("\n{:016x} {:016x} {:016x} {} {}", found_[i].image.voxels.digest, one.volume.labels->digest,
                          found_[i].mask_digest, one.volume.weight, fmt::join(one.volume.spacing, " "));
      if (!spec_.class_names.empty()) text += fmt::format(" class {}", one.volume.class_number);
    }
    return fmt::format("{:016x}", XXH3_64bits(text.data(), text.size()));
  }

  const DatasetOptions& o_;
  DatasetSpec spec_;
  SummaryFile summaries_;
  StoredVolume synthetic_image_, synthetic_label_;
  struct Noted {
    std::string path;  // of the first file
    int files = 0;
  };
  std::map<std::string, Noted> notes_;               // of the files
  std::map<std::string, std::string> orientations_;  // of the files, with the first file of each
  std::vector<OpenCase> cases_;
  std::vector<Found> found_;       // of each case
  std::vector<CaseSummary> kept_;  // of the cases with files
  Dataset data_;
};

}  // namespace

StoredVolume VolumeFiles::read_image(const io::VoxelBox& part, std::pmr::memory_resource* memory) const {
  StoredVolume voxels = StoredVolume::read(*image, {box.begin + part.begin, part.extent}, memory);
  voxels.scale(scaling, part.begin.z);
  return voxels;
}

StoredVolume VolumeFiles::read_label(const io::VoxelBox& part, std::pmr::memory_resource* memory) const {
  return StoredVolume::read_labels(*label, {box.begin + part.begin, part.extent}, label_spec, memory);
}

StoredVolume VolumeFiles::read_mask(const io::VoxelBox& part, std::pmr::memory_resource* memory) const {
  return StoredVolume::read_labels(*mask, {box.begin + part.begin, part.extent}, {}, memory);
}

std::size_t Dataset::bytes() const {
  std::size_t sum = 0;
  for (const auto* list : {&train, &validation}) {
    for (const LabelledVolume& volume : *list) sum += volume.image.bytes() + volume.label.bytes() + volume.mask.bytes();
  }
  return sum;
}

Dataset load_dataset(const std::filesystem::path& file, const DatasetOptions& options) {
  return Loader(file, options).load();
}

}  // namespace convolume::nets
