#include "nets/dataset.hpp"

#include <algorithm>
#include <cmath>
#include <cstdlib>

#include <fmt/format.h>
#include <xxhash.h>

#include "core/files.hpp"
#include "nets/io/synthetic.hpp"
#include "nets/io/volume.hpp"
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

Tensor<float> slices_of(const Tensor<float>& volume, index_t begin, index_t end, std::pmr::memory_resource* memory) {
  const Extent3 e = volume.shape().extent;
  Tensor<float> part({1, 1, {end - begin, e.y, e.x}}, memory);
  std::copy_n(volume.data() + begin * e.y * e.x, part.elements(), part.data());
  return part;
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
      label_.positive = label->numbers("positive");
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
    synthetic_ = LabelledVolume{std::move(made.image), std::move(made.label), {}, "synthetic"};
  }

  void read_split(const char* key, std::vector<LabelledVolume>& list) {
    for (TomlTable& t : root_.tables(key)) {
      LabelledVolume volume = synthetic_ ? from_synthetic() : from_files(t);
      cut(t, volume);
      t.finish();
      for (index_t i = 0; i < volume.label.elements(); ++i) map_label(volume.label.data()[i]);
      normalise(volume.image, data_.normalisation);
      list.push_back(std::move(volume));
    }
  }

  LabelledVolume from_synthetic() {
    const index_t planes = synthetic_->image.shape().extent.z;
    return {slices_of(synthetic_->image, 0, planes, memory_),
            slices_of(synthetic_->label, 0, planes, memory_),
            {},
            synthetic_->name};
  }

  LabelledVolume from_files(TomlTable& t) {
    LabelledVolume volume;
    const std::string image = t.text("image");
    volume.name = std::filesystem::path(image).filename().string();
    volume.image = read(t, "image", image);
    volume.label = read(t, "label", t.text("label"));
    if (t.has("mask")) volume.mask = read(t, "mask", t.text("mask"));
    for (const auto* other : {&volume.label, &volume.mask}) {
      if (*other && other->shape() != volume.image.shape()) {
        t.fail(fmt::format("{} has {} voxels, but '{}' has {}; they must be equal",
                           other == &volume.label ? "label" : "mask", to_string(other->shape().extent), image,
                           to_string(volume.image.shape().extent)));
      }
    }
    return volume;
  }

  Tensor<float> read(TomlTable& t, const std::string& key, const std::string& value) {
    const auto [file, dataset] = io::split_volume_path(expand(t, key, value, directory_));
    return io::read_volume(file, {.dataset = dataset}, memory_);
  }

  void cut(TomlTable& t, LabelledVolume& volume) {
    const auto slices = t.numbers("slices");
    if (slices.empty()) return;
    const index_t planes = volume.image.shape().extent.z;
    const bool good = slices.size() == 2 && slices[0] >= 0 && slices[1] > slices[0] &&
                      slices[1] <= static_cast<double>(planes) && std::trunc(slices[0]) == slices[0] &&
                      std::trunc(slices[1]) == slices[1];
    if (!good) t.fail(fmt::format("must be [first, end) within the {} slices of '{}'", planes, volume.name), "slices");
    const auto begin = static_cast<index_t>(slices[0]), end = static_cast<index_t>(slices[1]);
    for (auto* part : {&volume.image, &volume.label, &volume.mask}) {
      if (*part) *part = slices_of(*part, begin, end, memory_);
    }
  }

  void map_label(float& value) const {
    if (label_.positive.empty()) return;
    const auto& list = label_.positive;
    value = std::find(list.begin(), list.end(), static_cast<double>(value)) != list.end() ? 1.0f : 0.0f;
  }

  std::string digest() const {
    const std::string settings =
        fmt::format("{} {} {} {} {}", static_cast<int>(data_.normalisation), data_.augment.flip_z, data_.augment.flip_y,
                    data_.augment.flip_x, data_.augment.rotate);
    XXH64_hash_t hash = XXH3_64bits(settings.data(), settings.size());
    for (const LabelledVolume& volume : data_.train) {
      for (const auto* part : {&volume.image, &volume.label, &volume.mask}) {
        if (*part) {
          const std::string extent = to_string(part->shape().extent);
          hash = XXH3_64bits_withSeed(extent.data(), extent.size(), hash);
          hash = XXH3_64bits_withSeed(part->data(), static_cast<std::size_t>(part->elements()) * sizeof(float), hash);
        }
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

void normalise(Tensor<float>& volume, Normalisation how) {
  if (how == Normalisation::none) return;
  const auto count = static_cast<double>(volume.elements());
  double sum = 0, squares = 0;
  for (index_t i = 0; i < volume.elements(); ++i) sum += static_cast<double>(volume.data()[i]);
  const double mean = sum / count;
  for (index_t i = 0; i < volume.elements(); ++i) {
    const double d = static_cast<double>(volume.data()[i]) - mean;
    squares += d * d;
  }
  const double deviation = std::sqrt(squares / count);
  const double scale = deviation > 0 ? 1 / deviation : 1;
  for (index_t i = 0; i < volume.elements(); ++i) {
    volume.data()[i] = static_cast<float>((static_cast<double>(volume.data()[i]) - mean) * scale);
  }
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

void copy_patch(const Tensor<float>& volume, const PatchDraw& draw, const Extent3& patch, const Extent3& offset,
                const View<float>& target, index_t n) {
  const Extent3 e = volume.shape().extent;
  const index_t stride[3] = {e.y * e.x, e.x, 1};
  // Voxel (z, y, x) of the flipped and transposed patch is source + z * step[0] + y * step[1] + x * step[2].
  const float* source = volume.data();
  index_t step[3];
  for (int axis = 0; axis < 3; ++axis) {
    const index_t first = draw.origin[axis] + (draw.flip[axis] ? patch[axis] - 1 : 0);
    source += first * stride[axis];
    step[axis] = draw.flip[axis] ? -stride[axis] : stride[axis];
  }
  if (draw.transpose) std::swap(step[1], step[2]);
  const Extent3& out = target.shape.extent;
  for (index_t z = 0; z < out.z; ++z) {
    for (index_t y = 0; y < out.y; ++y) {
      const float* from = source + (z + offset.z) * step[0] + (y + offset.y) * step[1] + offset.x * step[2];
      float* to = &target(n, 0, z, y, 0);
      for (index_t x = 0; x < out.x; ++x) to[x] = from[x * step[2]];
    }
  }
}

void check_labels(const Dataset& data, index_t classes) {
  const auto check = [&](const LabelledVolume& volume, const Tensor<float>& values, const char* what, index_t limit) {
    const Extent3 e = values.shape().extent;
    for (index_t i = 0; i < values.elements(); ++i) {
      const float v = values.data()[i];
      const bool fits = limit == 0 ? v >= 0 && v <= 1 : v >= 0 && v < static_cast<float>(limit) && v == std::floor(v);
      if (fits) continue;
      throw ConfigError(fmt::format("data set '{}': {} of '{}' at voxel ({}, {}, {}) is {}; {}", data.name, what,
                                    volume.name, i / (e.y * e.x), i / e.x % e.y, i % e.x, v,
                                    limit == 0
                                        ? "it must lie in [0, 1]. Name the stored values that are positive: [label] "
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
