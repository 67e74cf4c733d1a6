#include "nets/data/dataset.hpp"

#include <algorithm>
#include <cmath>
#include <cstdlib>

#include <fmt/format.h>
#include <xxhash.h>

#include "core/files.hpp"
#include "nets/io/synthetic.hpp"
#include "nets/toml_reader.hpp"

namespace convolume::nets {
namespace {

constexpr std::uint32_t sampling = 0x20000000;  // purpose word in the keys of the random numbers drawn here

/// Replaces "${NAME}" by the environment variable. Relative paths are relative to the folder of the description.
std::string expand(TomlTable& t, const std::string& key, const std::string& value,
                   const std::filesystem::path& directory) {
  std::string result;
  std::size_t at = 0;
  for (std::size_t begin = value.find("${"); begin != std::string::npos; begin = value.find("${", at)) {
    const std::size_t end = value.find('}', begin);
    if (end == std::string::npos) t.fail("'" + value + "': a '${' is not closed; add a '}'", key);
    const std::string name = value.substr(begin + 2, end - begin - 2);
    const char* variable = std::getenv(name.c_str());
    if (variable == nullptr) {
      t.fail(fmt::format("the environment variable {} is not set; set it to the folder that holds '{}'", name,
                         value.substr(end + 1)),
             key);
    }
    // The variable's value is inserted as it is: a "${" in the value is not expanded again.
    result += value.substr(at, begin - at) + variable;
    at = end + 1;
  }
  result += value.substr(at);
  const std::filesystem::path path(result);
  return path.is_absolute() ? result : (directory / path).string();
}

class Loader {
 public:
  Loader(const std::filesystem::path& file, std::pmr::memory_resource* memory)
      : root_(TomlTable::parse(read_file(file, std::size_t{1} << 24), file.string())),
        directory_(file.has_parent_path() ? file.parent_path() : "."),
        memory_(memory) {}

  Dataset load() {
    data_.name = root_.text("name");
    if (auto label = root_.table("label")) {
      label_.positive = label->exact_numbers("positive");
      label_.classes = label->number_lists("classes");
      label_.ignore = label->exact_numbers("ignore");
      if (!label_.positive.empty() && !label_.classes.empty()) {
        label->fail("'positive' and 'classes' exclude each other; keep one", "positive");
      }
      label->finish();
    }
    if (auto intensity = root_.table("intensity")) {
      const std::string how = intensity->choice("normalise", {"volume", "none"}, "volume");
      data_.normalisation = how == "none" ? Normalisation::none : Normalisation::volume;
      intensity->finish();
    }
    if (auto augment = root_.table("augment")) read_augment(*augment);
    if (auto synthetic = root_.table("synthetic")) make_synthetic(*synthetic);
    read_split("train", data_.train);
    read_split("validation", data_.validation);
    root_.finish();
    if (data_.train.empty()) root_.fail("there is nothing to train on; add a [[train]] table");
    data_.digest = digest();
    return std::move(data_);
  }

 private:
  void read_augment(TomlTable& t) {
    for (const auto& axis : t.texts("flip")) {
      if (axis != "z" && axis != "y" && axis != "x") t.fail("'" + axis + "' is not an axis; use z, y, x", "flip");
      (axis == "z" ? data_.augment.flip_z : axis == "y" ? data_.augment.flip_y : data_.augment.flip_x) = true;
    }
    data_.augment.rotate = t.boolean("rotate90", false);
    t.finish();
  }

  void make_synthetic(TomlTable& t) {
    SyntheticOptions o;
    o.extent = t.extent("extent", 1, o.extent);
    o.seed = static_cast<std::uint64_t>(t.integer("seed", 0, 1));
    o.cell_diameter = t.number("cell_diameter", 2, 1e6, o.cell_diameter);
    o.anisotropy = t.number("anisotropy", 0.01, 1e3, o.anisotropy);
    o.membrane_width = t.number("membrane_width", 0, 1e3, o.membrane_width);
    o.noise = t.number("noise", 0, 1e3, o.noise);
    o.blur = t.number("blur", 0, 8, o.blur);
    t.finish();
    auto made = make_synthetic_volume(o, memory_);
    synthetic_ =
        LabelledVolume{StoredVolume(std::move(made.image)), StoredVolume(std::move(made.label)), {}, "synthetic"};
  }

  void read_split(const char* key, std::vector<LabelledVolume>& list) {
    for (TomlTable& t : root_.tables(key)) {
      LabelledVolume volume = synthetic_ ? from_synthetic(t) : from_files(t);
      t.finish();
      normalise(volume.image, data_.normalisation);
      list.push_back(std::move(volume));
    }
  }

  LabelledVolume from_synthetic(TomlTable& t) {
    const auto [begin, end] = slices(t, synthetic_->image.shape().extent.z, synthetic_->name);
    LabelledVolume volume{
        synthetic_->image.cut(begin, end, memory_), synthetic_->label.cut(begin, end, memory_), {}, synthetic_->name};
    volume.label.map_labels(label_);
    return volume;
  }

  LabelledVolume from_files(TomlTable& t) {
    LabelledVolume volume;
    const std::string name = t.text("image");
    volume.name = std::filesystem::path(name).filename().string();
    const auto image = open(t, "image", name), label = open(t, "label", t.text("label"));
    const auto mask = t.has("mask") ? open(t, "mask", t.text("mask")) : nullptr;
    for (const io::VolumeSource* other : {label.get(), mask.get()}) {
      if (other != nullptr) check_equal(t, *image, *other, other == label.get() ? "label" : "mask", name);
    }
    const Extent3& e = image->info().extent;
    const auto [begin, end] = slices(t, e.z, volume.name);
    const io::VoxelBox box{{begin, 0, 0}, {end - begin, e.y, e.x}};
    volume.image = StoredVolume::read(*image, box, memory_);
    volume.label = StoredVolume::read_labels(*label, box, label_, memory_);
    if (mask) volume.mask = StoredVolume::read_labels(*mask, box, {}, memory_);
    return volume;
  }

  std::unique_ptr<io::VolumeSource> open(TomlTable& t, const std::string& key, const std::string& value) {
    return io::open_volume(expand(t, key, value, directory_));
  }

  static void check_equal(TomlTable& t, const io::VolumeSource& image, const io::VolumeSource& other, const char* what,
                          const std::string& name) {
    const io::VolumeInfo &a = image.info(), &b = other.info();
    if (a.extent != b.extent) {
      t.fail(fmt::format("{} has {} voxels, but '{}' has {}; they must be equal", what, to_string(b.extent), name,
                         to_string(a.extent)));
    }
    constexpr double most = 1e-3;  // voxels
    if (!a.geometry || !b.geometry) return;
    const double distance = io::distance_in_voxels(*a.geometry, *b.geometry, a.extent);
    if (distance > most) {
      t.fail(
          fmt::format("{} lies up to {:.3g} voxels away from '{}', by the geometries of the files; resample it, or "
                      "correct its header",
                      what, distance, name));
    }
  }

  /// Returns the range of the key `slices`, or all planes.
  static std::pair<index_t, index_t> slices(TomlTable& t, index_t planes, const std::string& name) {
    const auto slices = t.numbers("slices");
    if (slices.empty()) return {0, planes};
    const bool good = slices.size() == 2 && slices[0] >= 0 && slices[1] > slices[0] &&
                      slices[1] <= static_cast<double>(planes) && std::trunc(slices[0]) == slices[0] &&
                      std::trunc(slices[1]) == slices[1];
    if (!good) t.fail(fmt::format("must be [first, end) within the {} slices of '{}'", planes, name), "slices");
    return {static_cast<index_t>(slices[0]), static_cast<index_t>(slices[1])};
  }

  std::string digest() const {
    const std::string settings =
        fmt::format("{} {} {} {} {}", static_cast<int>(data_.normalisation), data_.augment.flip_z, data_.augment.flip_y,
                    data_.augment.flip_x, data_.augment.rotate);
    XXH64_hash_t hash = XXH3_64bits(settings.data(), settings.size());
    for (const LabelledVolume& volume : data_.train) {
      for (const auto* part : {&volume.image, &volume.label, &volume.mask}) {
        if (*part) hash = part->digest(hash);
      }
    }
    return fmt::format("{:016x}", hash);
  }

  TomlTable root_;
  std::filesystem::path directory_;
  std::pmr::memory_resource* memory_;
  LabelSpec label_;
  std::optional<LabelledVolume> synthetic_;
  Dataset data_;
};

}  // namespace

Dataset load_dataset(const std::filesystem::path& file, std::pmr::memory_resource* memory) {
  return Loader(file, memory).load();
}

void normalise(StoredVolume& volume, Normalisation how) {
  if (how == Normalisation::volume) volume.normalise();
}

PatchDraw PatchDraw::draw(const Dataset& data, const Extent3& patch, std::uint64_t seed, std::uint64_t iteration,
                          index_t sample) {
  const RandomKey key{.seed = seed, .a = static_cast<std::uint32_t>(iteration), .b = sampling};
  std::uint64_t counter = static_cast<std::uint64_t>(sample) * 16;
  const auto below = [&](index_t n) {
    return static_cast<index_t>(uniform_below(key, counter++, static_cast<std::uint64_t>(n)));
  };
  PatchDraw draw;
  // A volume is drawn with a probability proportional to the number of patches that it holds.
  const auto places_of = [&](const LabelledVolume& volume) {
    return volume.image.shape().extent - patch + Extent3::all(1);
  };
  index_t total = 0;
  for (const LabelledVolume& volume : data.train) total += places_of(volume).volume();
  index_t place = below(total);
  while (place >= places_of(data.train[draw.volume]).volume()) place -= places_of(data.train[draw.volume++]).volume();
  const Extent3 places = places_of(data.train[draw.volume]);
  for (int axis = 0; axis < 3; ++axis) draw.origin[axis] = below(places[axis]);
  const bool allowed[3] = {data.augment.flip_z, data.augment.flip_y, data.augment.flip_x};
  for (int axis = 0; axis < 3; ++axis)
    draw.flip[axis] = below(2) == 1 && (allowed[axis] || (axis > 0 && data.augment.rotate));
  draw.transpose = below(2) == 1 && data.augment.rotate;
  return draw;
}

void copy_patch(const StoredVolume& volume, const PatchDraw& draw, const Extent3& patch, const Extent3& offset,
                const View<float>& target, index_t n) {
  const Extent3 e = volume.shape().extent;
  const index_t stride[3] = {e.y * e.x, e.x, 1};
  // Voxel (z, y, x) of the flipped and transposed patch is source + z * step[0] + y * step[1] + x * step[2].
  index_t source = 0;
  index_t step[3];
  for (int axis = 0; axis < 3; ++axis) {
    const index_t first = draw.origin[axis] + (draw.flip[axis] ? patch[axis] - 1 : 0);
    source += first * stride[axis];
    step[axis] = draw.flip[axis] ? -stride[axis] : stride[axis];
  }
  if (draw.transpose) std::swap(step[1], step[2]);
  const Extent3& out = target.shape.extent;
  for (index_t c = 0; c < target.shape.c; ++c) {
    for (index_t z = 0; z < out.z; ++z) {
      for (index_t y = 0; y < out.y; ++y) {
        const index_t from = source + (z + offset.z) * step[0] + (y + offset.y) * step[1] + offset.x * step[2];
        volume.gather(c * e.volume() + from, step[2], out.x, &target(n, c, z, y, 0));
      }
    }
  }
}

void check_labels(const Dataset& data, index_t classes) {
  const auto check = [&](const LabelledVolume& volume, const StoredVolume& values, const char* what, index_t limit) {
    const Extent3 e = values.shape().extent;
    std::vector<float> row(static_cast<std::size_t>(e.x));
    for (index_t i = 0; i < values.elements(); ++i) {
      if (i % e.x == 0) values.gather(i, 1, e.x, row.data());
      const float v = row[static_cast<std::size_t>(i % e.x)];
      if (v == ignored_label && &values == &volume.label) continue;
      const bool fits = limit == 0 ? v >= 0 && v <= 1 : v >= 0 && v < static_cast<float>(limit) && v == std::floor(v);
      if (fits) continue;
      throw ConfigError(fmt::format(
          "data set '{}': {} of '{}' at voxel ({}, {}, {}) is {}; {}", data.name, what, volume.name, i / (e.y * e.x),
          i / e.x % e.y, i % e.x, std::isnan(v) ? values.stored_text(i) : fmt::format("{}", v),
          std::isnan(v) ? "list it in [label] classes, or in ignore"
          : limit == 0  ? "it must lie in [0, 1]. Name the stored values that are positive: [label] "
                          "positive = [...]"
                        : fmt::format("it must be a class from 0 to {}", limit - 1)));
    }
  };
  for (const auto* list : {&data.train, &data.validation}) {
    for (const LabelledVolume& volume : *list) {
      check(volume, volume.label, "the label", classes);
      if (volume.mask) check(volume, volume.mask, "the mask", 0);
    }
  }
}

void check_channels(const Dataset& data, index_t channels) {
  for (const auto* list : {&data.train, &data.validation}) {
    for (const LabelledVolume& volume : *list) {
      if (volume.image.shape().c == channels) continue;
      throw ConfigError(
          fmt::format("data set '{}': '{}' has {} channels, but the net reads {} channels; set input.channels",
                      data.name, volume.name, volume.image.shape().c, channels));
    }
  }
}

void check_patch(const Dataset& data, const Extent3& patch) {
  for (const LabelledVolume& volume : data.train) {
    const Extent3 e = volume.image.shape().extent;
    if (patch.z > e.z || patch.y > e.y || patch.x > e.x) {
      throw ConfigError(
          fmt::format("training volume '{}' has {} voxels, but the net's patch has {}; use a smaller input.patch",
                      volume.name, to_string(e), to_string(patch)));
    }
  }
  if (data.augment.rotate && patch.y != patch.x) {
    throw ConfigError(fmt::format("data set '{}' rotates by 90 degrees, which needs square patches; the net's is {}",
                                  data.name, to_string(patch)));
  }
}

}  // namespace convolume::nets
