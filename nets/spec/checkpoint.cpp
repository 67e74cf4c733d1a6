#include "nets/spec/checkpoint.hpp"

#include <charconv>
#include <cstring>
#include <sstream>

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <nlohmann/json.hpp>

#include "core/json.hpp"
#include "nets/io/orientation.hpp"
#include "nets/io/safetensors.hpp"

namespace convolume::nets {
namespace {

constexpr const char* format_name = "convolume checkpoint 1";

const std::string& field(const io::SafetensorsFile& file, const std::filesystem::path& path, const char* key) {
  const auto found = file.metadata().find(key);
  if (found == file.metadata().end()) {
    throw FormatError(
        fmt::format("{}: metadata field '{}' is missing; is it a checkpoint of convolume?", path.string(), key));
  }
  return found->second;
}

template <class T>
T number(const io::SafetensorsFile& file, const std::filesystem::path& path, const char* key) {
  const std::string& text = field(file, path, key);
  T value{};
  const auto result = std::from_chars(text.data(), text.data() + text.size(), value);
  if (result.ec != std::errc() || result.ptr != text.data() + text.size() || value < T{0}) {
    throw FormatError(fmt::format("{}: metadata field '{}' is '{}', not a number", path.string(), key, text));
  }
  return value;
}

std::string classes_text(const CheckpointHeader& header) {
  return to_text(nlohmann::json{{"names", header.class_names}, {"pad", name_of(header.pad)}});
}

void read_classes(const std::string& text, const std::filesystem::path& path, CheckpointHeader& header) {
  try {
    const auto json = parse_json(text);
    header.class_names = json.at("names").get<std::vector<std::string>>();
    header.pad = pad_of(json.at("pad").get<std::string>());
    if (header.class_names.size() >= 2) return;
  } catch (const std::exception&) {
  }
  throw FormatError(
      fmt::format("{}: metadata field 'classes' is '{}', not the names of classes and a pad", path.string(), text));
}

struct Part {
  const char* prefix;
  Tensor<float> Parameter::*tensor;
};
constexpr Part parts[] = {
    {"", &Parameter::value}, {"moment1/", &Parameter::moment1}, {"moment2/", &Parameter::moment2}};

std::vector<index_t> dimensions(const Shape5& s) {
  // Vectors (biases, gamma, beta) are stored with one axis, weights with PyTorch's five axes.
  if (s.n == 1 && s.extent == Extent3{1, 1, 1}) return {s.c};
  return {s.n, s.c, s.extent.z, s.extent.y, s.extent.x};
}

}  // namespace

CheckpointHeader checkpoint_header(const io::SafetensorsFile& file, const std::filesystem::path& path) {
  const std::string& format = field(file, path, "format");
  if (format != format_name) {
    throw FormatError(
        fmt::format("{}: metadata field 'format' is '{}', expected '{}'", path.string(), format, format_name));
  }
  CheckpointHeader header;
  header.net = parse_net(field(file, path, "net"), path.string() + " (net)");
  header.iteration = number<std::int64_t>(file, path, "iteration");
  header.seed = number<std::uint64_t>(file, path, "seed");
  header.numerics = field(file, path, "numerics");
  header.data_digest = field(file, path, "data");
  header.normalisation = field(file, path, "normalisation");
  if (file.metadata().contains("spacing")) {
    std::istringstream text(field(file, path, "spacing"));
    VoxelLengths& spacing = header.spacing.emplace();
    for (double& length : spacing) {
      if (!(text >> length) || !(length > 0)) {
        throw FormatError(fmt::format("{}: metadata field 'spacing' is '{}', not three lengths", path.string(),
                                      field(file, path, "spacing")));
      }
    }
  }
  if (file.metadata().contains("interpolation")) {
    const std::string& text = field(file, path, "interpolation");
    if (text != "cubic") {
      throw FormatError(
          fmt::format("{}: metadata field 'interpolation' is '{}', expected 'cubic'", path.string(), text));
    }
    header.cubic = true;
  }
  if (file.metadata().contains("orientation")) {
    header.orientation = field(file, path, "orientation");
    try {
      io::check_orientation(header.orientation);
    } catch (const InvalidArgument& error) {
      throw FormatError(fmt::format("{}: metadata field 'orientation': {}", path.string(), error.what()));
    }
  }
  if (file.metadata().contains("classes")) read_classes(field(file, path, "classes"), path, header);
  if (const auto best = file.metadata().find("best"); best != file.metadata().end()) header.best = best->second;
  return header;
}

void save_checkpoint(const std::filesystem::path& file, const CheckpointHeader& header, const Parameters& parameters) {
  std::vector<io::NamedTensor> tensors;
  for (const Part& part : parts) {
    for (const Parameter& p : parameters.all()) {
      const Tensor<float>& tensor = p.*part.tensor;
      if (!tensor) continue;
      tensors.push_back(
          {.name = part.prefix + p.name,
           .type = io::StoredType::f32,
           .shape = dimensions(tensor.shape()),
           .bytes = std::as_bytes(std::span(tensor.data(), static_cast<std::size_t>(tensor.elements())))});
    }
  }
  std::map<std::string, std::string> metadata{{"format", format_name},
                                              {"net", header.net.source},
                                              {"iteration", std::to_string(header.iteration)},
                                              {"seed", std::to_string(header.seed)},
                                              {"numerics", header.numerics},
                                              {"data", header.data_digest},
                                              {"normalisation", header.normalisation}};
  if (header.spacing) metadata.emplace("spacing", fmt::format("{}", fmt::join(*header.spacing, " ")));
  if (header.cubic) metadata.emplace("interpolation", "cubic");
  if (!header.orientation.empty()) metadata.emplace("orientation", header.orientation);
  if (!header.class_names.empty()) metadata.emplace("classes", classes_text(header));
  if (!header.best.empty()) metadata.emplace("best", header.best);
  io::write_safetensors(file, tensors, metadata);
}

CheckpointHeader read_checkpoint_header(const std::filesystem::path& file) {
  return checkpoint_header(io::read_safetensors(file), file);
}

CheckpointHeader load_checkpoint(const std::filesystem::path& path, Parameters& parameters) {
  const auto file = io::read_safetensors(path);
  CheckpointHeader header = checkpoint_header(file, path);
  // The first pass checks everything and the second pass writes, so a rejected file leaves the parameters unchanged.
  for (const bool write : {false, true}) {
    for (const Part& part : parts) {
      for (Parameter& p : parameters.all()) {
        Tensor<float>& tensor = p.*part.tensor;
        if (!tensor) continue;
        const std::string name = part.prefix + p.name;
        const io::NamedTensor* stored = file.find(name);
        if (stored == nullptr || stored->type != io::StoredType::f32 || stored->shape != dimensions(tensor.shape())) {
          throw FormatError(fmt::format(
              "{}: tensor '{}' is {}, but the net expects {} numbers of type F32; the checkpoint "
              "belongs to another net",
              path.string(), name, stored == nullptr ? "missing" : "of another shape or type", tensor.elements()));
        }
        if (write) std::memcpy(tensor.data(), stored->bytes.data(), stored->bytes.size());
      }
    }
  }
  return header;
}

}  // namespace convolume::nets
