#include "nets/data/dataset.hpp"

#include <algorithm>
#include <cmath>
#include <numeric>

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <xxhash.h>

#include "nets/data/summary_file.hpp"
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
    voxel += files->label->info().bytes_per_voxel();
    if (files->mask) voxel += files->mask->info().bytes_per_voxel();
    return static_cast<std::size_t>(files->box.extent.volume()) * voxel;
  }
};

std::string text_of(const ExactNumber& number) {
  return std::visit([](auto v) { return fmt::format("{}", v); }, number);
}

/// Returns everything that decides how stored labels become values.
std::string text_of(const LabelSpec& label) {
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
      : o_(options), spec_(read_dataset_spec(file)), summaries_(options.summaries) {}

  Dataset load() {
    data_.name = spec_.name;
    data_.intensity = spec_.intensity;
    data_.target_spacing = spec_.target_spacing;
    data_.cubic = spec_.cubic;
    data_.sampling = spec_.sampling;
    data_.augment = spec_.augment;
    data_.regions = regions();
    if (spec_.synthetic) {
      auto made = make_synthetic_volume(*spec_.synthetic, o_.memory);
      synthetic_image_ = StoredVolume(std::move(made.image));
      synthetic_label_ = StoredVolume(std::move(made.label));
    }
    for (const CaseSpec& one : spec_.train) cases_.push_back(open(one, true));
    for (const CaseSpec& one : spec_.validation) cases_.push_back(open(one, false));
    check_unchanged();
    choose_memory();
    for (OpenCase& one : cases_) summarise(one);
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
    for (const std::string& path : one.image) channels.push_back(open_file(path, result));
    files->image = io::stack_channels(std::move(channels));
    files->label = open_file(one.label, result);
    if (!one.mask.empty()) files->mask = open_file(one.mask, result);
    check_equal(one, *files->image, *files->label, "label");
    if (files->mask) check_equal(one, *files->image, *files->mask, "mask");
    files->box = box_of(one, files->image->info().extent);
    files->label_spec = spec_.label;
    result.volume.begin = files->box.begin;
    const auto& spacing = files->image->info().spacing;
    result.volume.spacing = one.spacing ? *one.spacing : spacing ? spacing->zyx : result.volume.spacing;
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

  std::unique_ptr<io::VolumeSource> open_file(const std::string& path, OpenCase& result) const {
    auto source = io::open_volume(path);
    result.states.push_back(FileState::of(source->path()));
    return source;
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
    return fmt::format("{} + {}; {} {} {} {}; {}", to_string(box.begin), to_string(box.extent), name_of(i.normalise),
                       i.needs_percentiles() ? fmt::format("{}", fmt::join(i.percentiles, " ")) : "-", i.clip,
                       i.nonzero, text_of(spec_.label));
  }

  void read(OpenCase& one) const {
    if (!one.files || one.volume.files) return;
    const io::VoxelBox all{{0, 0, 0}, one.files->box.extent};
    one.volume.image = one.files->read_image(all, o_.memory);
    one.volume.label = one.files->read_label(all, o_.memory);
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
           (slices == 0 || slices == channels * static_cast<std::size_t>(one.volume.extent().z));
  }

  CaseSummary compute(const OpenCase& one, const std::string& settings) const {
    CaseSummary summary{.files = one.states, .settings = settings, .image = {}, .label = {}};
    IntensitySpec own = spec_.intensity;
    if (own.normalise == Normalise::dataset) own.clip = false;  // its percentiles need all volumes
    auto image = intensity_statistics(image_pieces(one), own, o_.scheduler, o_.stop);
    const io::VolumeSource* const label_file = one.files ? one.files->label.get() : nullptr;
    auto label = summarise_labels(pieces(one, one.volume.label, label_file, &VolumeFiles::read_label), regions(),
                                  o_.scheduler, o_.stop);
    if (!image || !label) throw StopRequested();
    summary.image = std::move(*image);
    summary.label = std::move(*label);
    if (!one.volume.has_mask() && !(one.files && one.files->mask)) return summary;
    const auto mask = summarise_labels(pieces(one, one.volume.mask, one.files->mask.get(), &VolumeFiles::read_mask), 0,
                                       o_.scheduler, o_.stop);
    if (!mask) throw StopRequested();
    if (mask->not_unit)
      fail_voxel(one, "the mask", *mask->not_unit, fmt::format("{}", mask->not_unit->value), "it must lie in [0, 1]");
    summary.mask_digest = mask->digest;
    return summary;
  }

  [[noreturn]] void fail_voxel(const OpenCase& one, const char* what, const FoundVoxel& voxel, const std::string& value,
                               const std::string& remedy) const {
    const Extent3 e = one.volume.extent();
    const Extent3 begin = one.files ? one.files->box.begin : Extent3{0, 0, 0};
    const auto i = static_cast<index_t>(voxel.index);
    throw ConfigError(fmt::format("data set '{}': {} of '{}' at voxel ({}, {}, {}) is {}; {}", spec_.name, what,
                                  one.volume.name, begin.z + i / (e.y * e.x), begin.y + i / e.x % e.y,
                                  begin.x + i % e.x, value, remedy));
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
    fail_voxel(one, "the label", *label.not_listed, stored, "list it in [label] classes, or in ignore");
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
    if (regions() > 0) text += fmt::format(" {}", text_of(spec_.label));
    for (std::size_t i = 0; i < cases_.size(); ++i) {
      const OpenCase& one = cases_[i];
      if (one.training != training) continue;
      text += fmt::format("\n{:016x} {:016x} {:016x} {} {}", found_[i].image.voxels.digest, one.volume.labels->digest,
                          found_[i].mask_digest, one.volume.weight, fmt::join(one.volume.spacing, " "));
    }
    return fmt::format("{:016x}", XXH3_64bits(text.data(), text.size()));
  }

  const DatasetOptions& o_;
  DatasetSpec spec_;
  SummaryFile summaries_;
  StoredVolume synthetic_image_, synthetic_label_;
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

void check_labels(const Dataset& data, index_t classes) {
  std::vector<std::uint64_t> voxels(static_cast<std::size_t>(std::max<index_t>(classes, 0)));
  const auto check = [&](const LabelledVolume& volume, bool training) {
    const auto summary =
        volume.labels ? volume.labels
                      : std::make_shared<const LabelSummary>(*summarise_labels(pieces_of(volume.label), 0, nullptr));
    const auto fail = [&](const FoundVoxel& voxel, const std::string& remedy) {
      const Extent3 e = volume.extent(), begin = volume.begin;
      const auto i = static_cast<index_t>(voxel.index);
      throw ConfigError(fmt::format("data set '{}': the label of '{}' at voxel ({}, {}, {}) is {}; {}", data.name,
                                    volume.name, begin.z + i / (e.y * e.x), begin.y + i / e.x % e.y, begin.x + i % e.x,
                                    voxel.value, remedy));
    };
    if (classes == 0) {
      if (summary->not_unit) {
        fail(*summary->not_unit,
             "it must lie in [0, 1]. Name the stored values that are positive: [label] positive = [...]");
      }
      return;
    }
    const std::string remedy = fmt::format("it must be a class from 0 to {}", classes - 1);
    if (summary->not_whole) fail(*summary->not_whole, remedy);
    if (summary->largest && !(summary->largest->value < static_cast<float>(classes))) fail(*summary->largest, remedy);
    if (summary->negative) fail(*summary->negative, remedy);
    for (std::size_t c = 0; training && c < std::min(voxels.size(), summary->classes.size()); ++c) {
      voxels[c] += summary->classes[c].count;
    }
  };
  for (const LabelledVolume& volume : data.train) check(volume, true);
  for (const LabelledVolume& volume : data.validation) check(volume, false);
  for (std::size_t c = 0; c < voxels.size(); ++c) {
    if (voxels[c] > 0) continue;
    throw ConfigError(fmt::format(
        "data set '{}': class {} occurs in no training volume, so it cannot be learned; add a volume that has it, or "
        "remove it from [label] classes and from the net's outputs",
        data.name, c));
  }
}

void check_regions(const Dataset& data) {
  for (index_t r = 1; r <= data.regions; ++r) {
    const bool found = std::any_of(data.train.begin(), data.train.end(), [&](const LabelledVolume& volume) {
      const auto of_region = static_cast<std::size_t>(r);
      return volume.labels && of_region < volume.labels->classes.size() && volume.labels->classes[of_region].count > 0;
    });
    if (found) continue;
    throw ConfigError(fmt::format(
        "data set '{}': region {} of [label] regions occurs in no training volume, so it cannot be learned; correct "
        "its stored values, add a volume that has it, or remove it there and from the net's outputs",
        data.name, r));
  }
}

void check_channels(const Dataset& data, index_t channels) {
  for (const auto* list : {&data.train, &data.validation}) {
    for (const LabelledVolume& volume : *list) {
      if (volume.channels() == channels) continue;
      throw ConfigError(
          fmt::format("data set '{}': '{}' has {} channels, but the net reads {} channels; set input.channels",
                      data.name, volume.name, volume.channels(), channels));
    }
  }
}

void check_patch(const Dataset& data, const Extent3& patch) {
  bool foreground = false;
  for (const LabelledVolume& volume : data.train) {
    const Extent3 e = volume.grid();
    if (data.sampling.pad == Pad::none && (patch.z > e.z || patch.y > e.y || patch.x > e.x)) {
      throw ConfigError(
          fmt::format("training volume '{}' has {} voxels, but the net's patch has {}; use a smaller input.patch, or "
                      "set [sampling] pad = \"mirror\"",
                      volume.name, to_string(e), to_string(patch)));
    }
    for (std::size_t c = 1; volume.labels && c < volume.labels->classes.size(); ++c) {
      foreground = foreground || volume.labels->classes[c].count > 0;
    }
  }
  if (data.sampling.foreground > 0 && !foreground) {
    throw ConfigError(
        fmt::format("data set '{}': [sampling] foreground = {}, but no training volume has a voxel of a {}; correct "
                    "[label], or leave 'foreground' out",
                    data.name, data.sampling.foreground, data.regions > 0 ? "region" : "class above 0"));
  }
  if (data.augment.rotate90 && patch.y != patch.x) {
    throw ConfigError(fmt::format("data set '{}' rotates by 90 degrees, which needs square patches; the net's is {}",
                                  data.name, to_string(patch)));
  }
}

}  // namespace convolume::nets
