#include "nets/data/dataset_spec.hpp"

#include <algorithm>
#include <cmath>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "core/files.hpp"
#include "nets/data/case_paths.hpp"
#include "nets/data/class_cases.hpp"
#include "nets/io/csv.hpp"
#include "nets/io/orientation.hpp"

namespace convolume::nets {
namespace {

constexpr double most = 1e6;

double read_probability(TomlTable& t) { return t.number("probability", 0, 1); }

/// Reads [first, second], or one number for both.
Range read_range(TomlTable& t, const std::string& key, double least, double largest) {
  const auto numbers = t.numbers(key);
  const bool ordered = numbers.size() == 2 && numbers[0] <= numbers[1] && numbers[0] >= least && numbers[1] <= largest;
  if (!ordered) {
    t.fail(fmt::format("must be [least, largest] between {} and {}", least, largest), key);
  }
  return {numbers[0], numbers[1]};
}

std::array<double, 3> read_three(TomlTable& t, const std::string& key, double least, double largest) {
  const auto numbers = t.numbers(key);
  std::array<double, 3> three{};
  for (std::size_t axis = 0; axis < 3; ++axis) {
    if (numbers.size() != 3 || !(numbers[axis] >= least) || !(numbers[axis] <= largest)) {
      t.fail(fmt::format("must be [z, y, x], three numbers between {} and {}", least, largest), key);
    }
    three[axis] = numbers[axis];
  }
  return three;
}

void check_region_lists(const TomlTable& t, const LabelSpec& label) {
  if (!t.has("regions")) return;
  for (const char* other : {"positive", "classes"}) {
    if (t.has(other)) t.fail(fmt::format("'regions' and '{}' exclude each other; keep one", other), "regions");
  }
  const std::size_t count = label.regions.size();
  if (count == 0 || count > most_regions) {
    t.fail(fmt::format("there are {} regions; list the stored values of 1 to {} regions, for example [[1, 2], [2]]",
                       count, most_regions),
           "regions");
  }
  for (std::size_t r = 0; r < count; ++r) {
    if (label.regions[r].empty()) {
      t.fail(fmt::format("region {} is empty; list its stored values, or leave it out", r + 1), "regions");
    }
  }
}

bool equal(const ExactNumber& a, const ExactNumber& b) {
  const auto* const i = std::get_if<std::int64_t>(&a);
  const auto* const j = std::get_if<std::int64_t>(&b);
  if (i != nullptr && j != nullptr) return *i == *j;
  const auto number = [](auto value) { return static_cast<double>(value); };
  return std::visit(number, a) == std::visit(number, b);
}

/// Refuses a value that two classes list, or that is ignored and listed as well: only one of them could count.
void check_values_once(const TomlTable& t, const LabelSpec& label) {
  const auto lists = [](const std::vector<ExactNumber>& list, const ExactNumber& number) {
    return std::any_of(list.begin(), list.end(), [&](const ExactNumber& other) { return equal(other, number); });
  };
  for (std::size_t c = 0; c < label.classes.size(); ++c) {
    for (std::size_t other = 0; other < c; ++other) {
      for (const ExactNumber& number : label.classes[c]) {
        if (!lists(label.classes[other], number)) continue;
        t.fail(fmt::format("the value {} is listed for class {} and for class {}; keep one", text_of(number), other, c),
               "classes");
      }
    }
  }
  const auto all = label.listed();
  for (std::size_t i = 0; i + label.ignore.size() < all.size(); ++i) {
    if (!lists(label.ignore, all[i])) continue;
    const char* const key = t.has("positive") ? "positive" : t.has("classes") ? "classes" : "regions";
    t.fail(fmt::format("the value {} is listed in '{}' too, and an ignored value does not count; keep one",
                       text_of(all[i]), key),
           "ignore");
  }
}

LabelSpec read_label(TomlTable& t) {
  LabelSpec label;
  label.positive = t.exact_numbers("positive");
  label.classes = t.number_lists("classes");
  label.regions = t.number_lists("regions");
  label.ignore = t.exact_numbers("ignore");
  if (!label.positive.empty() && !label.classes.empty()) {
    t.fail("'positive' and 'classes' exclude each other; keep one", "positive");
  }
  check_region_lists(t, label);
  check_values_once(t, label);
  t.finish();
  return label;
}

/// Reads [label] of a data set whose cases have classes.
ClassTable read_class_label(TomlTable& t, DatasetSpec& spec, const std::filesystem::path& directory) {
  for (const char* key : {"positive", "regions", "ignore"}) {
    if (t.has(key)) t.fail("it is for labels with voxels; leave it out, or 'class_of'", key);
  }
  ClassTable table(t, directory);
  spec.class_names = t.texts("classes");
  for (auto name = spec.class_names.begin(); name != spec.class_names.end(); ++name) {
    if (std::find(spec.class_names.begin(), name, *name) == name && !name->empty()) continue;
    t.fail(fmt::format("'{}' is listed twice, or is empty; keep one", *name), "classes");
  }
  t.finish();
  return table;
}

SamplingSpec read_sampling(TomlTable& t) {
  SamplingSpec sampling;
  const std::string volumes = t.choice("volumes", {"equal", "by_size", "weights"}, "equal");
  sampling.volumes = volumes == "equal"     ? VolumeChoice::equal
                     : volumes == "by_size" ? VolumeChoice::by_size
                                            : VolumeChoice::weights;
  sampling.foreground = t.number("foreground", 0, 1, 0.0);
  sampling.pad = pad_of(t.choice("pad", {"none", "mirror", "zero"}, "none"));
  t.finish();
  return sampling;
}

void read_spacing(TomlTable& t, DatasetSpec& spec) {
  spec.target_spacing = read_three(t, "target", 1e-9, 1e9);
  spec.cubic = t.choice("image", {"linear", "cubic"}, "linear") == "cubic";
  t.finish();
}

/// Calls read(table) for a change that the description has.
template <class Read>
void with_change(TomlTable& t, const char* key, const Read& read) {
  auto change = t.table(key);
  if (!change) return;
  read(*change);
  change->finish();
}

AugmentSpec::Intensity read_intensity_change(TomlTable& t, const char* key, double least, double largest) {
  return {read_probability(t), read_range(t, key, least, largest)};
}

AugmentSpec read_augment(TomlTable& t) {
  AugmentSpec a;
  for (const auto& axis : t.texts("flip")) {
    if (axis != "z" && axis != "y" && axis != "x") t.fail("'" + axis + "' is not an axis; use z, y, x", "flip");
    (axis == "z" ? a.flip_z : axis == "y" ? a.flip_y : a.flip_x) = true;
  }
  a.rotate90 = t.boolean("rotate90", false);
  with_change(t, "rotate", [&](TomlTable& c) { a.rotate = {read_probability(c), read_three(c, "degrees", 0, 180)}; });
  with_change(t, "scale", [&](TomlTable& c) { a.scale = {read_probability(c), read_range(c, "range", 0.25, 4)}; });
  with_change(t, "elastic", [&](TomlTable& c) {
    a.elastic = {read_probability(c), c.extent("grid", 4), c.number("sigma", 0, 64)};
  });
  with_change(t, "misalign", [&](TomlTable& c) {
    a.misalign = {read_probability(c), c.integer("pixels", 1)};
    if (a.misalign.pixels > 65536) c.fail("at most 65536 are possible", "pixels");
  });
  const auto change = [&](const char* name, const char* key, double least, double largest) {
    AugmentSpec::Intensity result;
    with_change(t, name, [&](TomlTable& c) { result = read_intensity_change(c, key, least, largest); });
    return result;
  };
  a.brightness = change("brightness", "range", -most, most);
  a.contrast = change("contrast", "range", 0, most);
  a.gamma = change("gamma", "range", 0.01, 100);
  a.noise = change("noise", "sigma", 0, most);
  a.blur = change("blur", "sigma", 0, 8);
  a.low_resolution = change("low_resolution", "factor", 1, 16);
  a.blurred_section = change("blurred_section", "sigma", 0, 8);
  with_change(t, "missing_section", [&](TomlTable& c) {
    a.missing_section = {read_probability(c), c.integer("sections", 1, 1)};
  });
  with_change(t, "cut_out", [&](TomlTable& c) { a.cut_out = {read_probability(c), c.extent("extent", 1)}; });
  t.finish();
  return a;
}

SyntheticOptions read_synthetic(TomlTable& t) {
  SyntheticOptions o;
  o.extent = t.extent("extent", 1, o.extent);
  constexpr index_t most_voxels = index_t{1} << 32;
  if (o.extent.z > most_voxels || o.extent.y > most_voxels / o.extent.z ||
      o.extent.x > most_voxels / o.extent.z / o.extent.y) {
    t.fail(fmt::format("{} are more than 2^32 voxels, which are made in memory; use fewer", to_string(o.extent)),
           "extent");
  }
  o.seed = static_cast<std::uint64_t>(t.integer("seed", 0, 1));
  o.cell_diameter = t.number("cell_diameter", 2, 1e6, o.cell_diameter);
  o.anisotropy = t.number("anisotropy", 0.01, 1e3, o.anisotropy);
  o.membrane_width = t.number("membrane_width", 0, 1e3, o.membrane_width);
  o.noise = t.number("noise", 0, 1e3, o.noise);
  o.blur = t.number("blur", 0, 8, o.blur);
  t.finish();
  return o;
}

/// Reads what the cases of a table share.
void read_case_options(TomlTable& t, CaseSpec& shared, VolumeChoice choice) {
  shared.line = t.line();
  if (t.has("box") && t.has("slices")) t.fail("'box' and 'slices' exclude each other; keep one", "slices");
  const char* const key = t.has("box") ? "box" : "slices";
  const std::string form = t.has("box") ? "must be [[z0, z1], [y0, y1], [x0, x1]]" : "must be [first, end)";
  shared.box_line = t.line(key);
  auto ranges = t.number_lists("box");
  if (t.has("slices")) ranges = {t.exact_numbers("slices")};
  if (t.has("box") && ranges.size() != 3) t.fail(form, key);
  for (const auto& range : ranges) {
    const auto whole = [&](std::size_t i) { return std::get_if<std::int64_t>(&range[i]); };
    if (range.size() != 2 || whole(0) == nullptr || whole(1) == nullptr || *whole(0) < 0 || *whole(1) <= *whole(0)) {
      t.fail(form + ", with whole numbers, 0 <= first < end", key);
    }
    shared.box.push_back({*whole(0), *whole(1)});
  }
  if (t.has("spacing")) shared.spacing = read_three(t, "spacing", 1e-9, 1e9);
  if (t.has("weight") && choice != VolumeChoice::weights) {
    t.fail("it is used with [sampling] volumes = \"weights\" only; set that, or leave it out", "weight");
  }
  shared.weight = t.number("weight", 0, 1e9, 1.0);
}

/// Refuses what has no meaning for cases with classes.
void check_class_settings(TomlTable& root, const DatasetSpec& spec) {
  if (spec.synthetic)
    root.fail("the built-in volume has labels; leave [synthetic] out, or [label] class_of", "synthetic");
  if (spec.sampling.foreground > 0) {
    root.fail("[sampling] foreground: cases with classes have no foreground; leave it out, or [label] class_of",
              "sampling");
  }
}

std::vector<CaseSpec> read_cases(TomlTable& root, const char* key, const DatasetSpec& spec,
                                 const std::filesystem::path& directory, const ClassTable* classes) {
  std::vector<CaseSpec> cases;
  for (TomlTable& t : root.tables(key)) {
    CaseSpec shared;
    read_case_options(t, shared, spec.sampling.volumes);
    if (spec.synthetic) {
      shared.name = "synthetic";
      cases.push_back(shared);
    } else {
      for (CaseSpec& one :
           classes != nullptr ? read_class_cases(t, directory, *classes) : read_case_paths(t, directory)) {
        one.box = shared.box;
        one.box_line = shared.box_line;
        one.spacing = shared.spacing;
        one.weight = shared.weight;
        one.line = shared.line;
        cases.push_back(std::move(one));
      }
    }
    t.finish();
  }
  return cases;
}

}  // namespace

std::string name_of(Normalise normalise) {
  constexpr const char* names[] = {"none", "volume", "slice", "dataset", "percentiles", "min_max"};
  return names[static_cast<std::size_t>(normalise)];
}

std::string name_of(Pad pad) { return pad == Pad::none ? "none" : pad == Pad::mirror ? "mirror" : "zero"; }

Pad pad_of(const std::string& name) {
  for (const Pad pad : {Pad::none, Pad::mirror, Pad::zero}) {
    if (name_of(pad) == name) return pad;
  }
  throw InvalidArgument(fmt::format("'{}' is no way to pad; use none, mirror or zero", name));
}

IntensitySpec read_intensity(TomlTable& t) {
  IntensitySpec intensity;
  const std::string how =
      t.choice("normalise", {"volume", "slice", "dataset", "percentiles", "min_max", "none"}, "volume");
  for (int i = 0; i <= static_cast<int>(Normalise::min_max); ++i) {
    if (name_of(static_cast<Normalise>(i)) == how) intensity.normalise = static_cast<Normalise>(i);
  }
  intensity.clip = t.boolean("clip", false);
  intensity.nonzero = t.boolean("nonzero", false);
  if (t.has("nan")) intensity.nan = t.number("nan", -1e30, 1e30);
  if (t.has("percentiles")) {
    if (!intensity.needs_percentiles()) {
      t.fail("it is used with clip = true or normalise = \"percentiles\" only; set one, or leave it out",
             "percentiles");
    }
    intensity.percentiles = read_range(t, "percentiles", 0, 100);
    if (intensity.percentiles[0] == intensity.percentiles[1]) t.fail("both are equal", "percentiles");
  }
  t.finish();
  return intensity;
}

DatasetSpec read_dataset_spec(const std::filesystem::path& file) {
  return parse_dataset_spec(read_file(file, std::size_t{1} << 24), file);
}

DatasetSpec parse_dataset_spec(const std::string& text, const std::filesystem::path& file) {
  TomlTable root = TomlTable::parse(text, file.string());
  const std::filesystem::path directory = file.has_parent_path() ? file.parent_path() : ".";
  DatasetSpec spec{.file = file.string(), .name = root.text("name"), .train = {}, .validation = {}};
  if (root.has("orientation")) {
    spec.orientation = root.text("orientation");
    try {
      io::check_orientation(spec.orientation);
    } catch (const InvalidArgument& error) {
      root.fail(error.what(), "orientation");
    }
  }
  std::optional<ClassTable> classes;
  if (auto label = root.table("label")) {
    if (label->has("class_of")) {
      classes.emplace(read_class_label(*label, spec, directory));
    } else {
      spec.label = read_label(*label);
    }
  }
  if (auto intensity = root.table("intensity")) spec.intensity = read_intensity(*intensity);
  if (auto spacing = root.table("spacing")) {
    read_spacing(*spacing, spec);
    if (spec.intensity.normalise == Normalise::slice) {
      spacing->fail(
          "slices of another spacing have no normalisation of their own; use [intensity] normalise = "
          "\"volume\"");
    }
  }
  if (auto sampling = root.table("sampling")) spec.sampling = read_sampling(*sampling);
  if (auto augment = root.table("augment")) spec.augment = read_augment(*augment);
  if (auto synthetic = root.table("synthetic")) spec.synthetic = read_synthetic(*synthetic);
  if (classes) check_class_settings(root, spec);
  const ClassTable* const of_cases = classes ? &*classes : nullptr;
  spec.train = read_cases(root, "train", spec, directory, of_cases);
  spec.validation = read_cases(root, "validation", spec, directory, of_cases);
  root.finish();
  if (spec.train.empty()) root.fail("there is nothing to train on; add a [[train]] table");
  if (classes) number_classes(spec);
  double weights = 0;
  for (const CaseSpec& one : spec.train) weights += one.weight;
  if (weights == 0) root.fail("the weight of every training volume is 0; give one of them a weight");
  return spec;
}

std::string DatasetSpec::settings() const {
  const AugmentSpec& a = augment;
  std::string text =
      fmt::format("{} {} {} {} {} {} {} {}", name_of(intensity.normalise), intensity.percentiles[0],
                  intensity.percentiles[1], intensity.clip, intensity.nonzero, static_cast<int>(sampling.volumes),
                  sampling.foreground, static_cast<int>(sampling.pad));
  if (target_spacing) text += fmt::format(" spacing {}", fmt::join(*target_spacing, " "));
  if (cubic) text += " cubic";
  text += fmt::format(" flip {} {} {} {}", a.flip_z, a.flip_y, a.flip_x, a.rotate90);
  text += fmt::format(" rotate {} {}", a.rotate.probability, fmt::join(a.rotate.degrees, " "));
  text += fmt::format(" scale {} {}", a.scale.probability, fmt::join(a.scale.range, " "));
  text += fmt::format(" elastic {} {} {}", a.elastic.probability, to_string(a.elastic.grid), a.elastic.sigma);
  text += fmt::format(" misalign {} {}", a.misalign.probability, a.misalign.pixels);
  for (const auto* one : {&a.brightness, &a.contrast, &a.gamma, &a.noise, &a.blur, &a.blurred_section}) {
    text += fmt::format(" {} {}", one->probability, fmt::join(one->range, " "));
  }
  text += fmt::format(" missing {} {}", a.missing_section.probability, a.missing_section.sections);
  text += fmt::format(" cut {} {}", a.cut_out.probability, to_string(a.cut_out.extent));
  // Data sets without the keys below keep the digests that they had before these keys existed.
  if (a.low_resolution.probability > 0) {
    text += fmt::format(" low_resolution {} {}", a.low_resolution.probability, fmt::join(a.low_resolution.range, " "));
  }
  if (intensity.nan) text += fmt::format(" nan {}", *intensity.nan);
  if (!orientation.empty()) text += " orientation " + orientation;
  if (!class_names.empty()) text += " classes " + io::csv_line(class_names);
  return text;
}

void fail_at(const std::string& file, int line, const std::string& message) {
  throw ConfigError(fmt::format("{}:{}: {}", file, line, message));
}

}  // namespace convolume::nets
