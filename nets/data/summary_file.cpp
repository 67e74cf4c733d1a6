#include "nets/data/summary_file.hpp"

#include <algorithm>
#include <chrono>

#include <fmt/format.h>
#include <nlohmann/json.hpp>
#include <sys/stat.h>
#include <xxhash.h>

#include "convolume/error.hpp"
#include "core/files.hpp"
#include "core/json.hpp"
#include "nets/io/array_source.hpp"

namespace convolume::nets {
namespace {

using SortedJson = nlohmann::json;
constexpr int summary_version = 3;

SortedJson to_json(const Moments& m) { return {m.count, m.mean, m.squares}; }
Moments moments_from(const SortedJson& j) { return {j.at(0), j.at(1), j.at(2)}; }

SortedJson to_json(const std::optional<FoundVoxel>& found) {
  return found ? SortedJson{found->index, found->value} : SortedJson();
}
std::optional<FoundVoxel> found_from(const SortedJson& j) {
  if (j.is_null()) return std::nullopt;
  return FoundVoxel{j.at(0), j.at(1)};
}

SortedJson to_json(const IntensityStatistics& image) {
  SortedJson json{{"digest", image.voxels.digest}, {"channels", SortedJson::array()}, {"slices", SortedJson::array()}};
  for (const auto& c : image.voxels.channels) {
    json["channels"].push_back({{"moments", to_json(c.moments)}, {"least", c.least}, {"largest", c.largest}});
  }
  for (const Moments& slice : image.voxels.slices) json["slices"].push_back(to_json(slice));
  json["percentiles"] = image.percentiles;
  return json;
}

IntensityStatistics image_from(const SortedJson& json) {
  IntensityStatistics image;
  image.voxels.digest = json.at("digest");
  for (const SortedJson& c : json.at("channels")) {
    image.voxels.channels.push_back({moments_from(c.at("moments")), c.at("least"), c.at("largest")});
  }
  for (const SortedJson& slice : json.at("slices")) image.voxels.slices.push_back(moments_from(slice));
  image.percentiles = json.at("percentiles").get<std::vector<std::array<double, 2>>>();
  return image;
}

SortedJson to_json(const LabelSummary& label) {
  SortedJson json{{"digest", label.digest},
                  {"ignored", label.ignored},
                  {"listed", label.listed},
                  {"not_whole", to_json(label.not_whole)},
                  {"not_unit", to_json(label.not_unit)},
                  {"largest", to_json(label.largest)},
                  {"negative", to_json(label.negative)},
                  {"classes", SortedJson::array()}};
  for (const ClassVoxels& c : label.classes) {
    json["classes"].push_back({{"count", c.count}, {"positions", c.positions}});
  }
  return json;
}

LabelSummary label_from(const SortedJson& json) {
  LabelSummary label;
  label.digest = json.at("digest");
  label.ignored = json.at("ignored");
  label.listed = json.at("listed").get<std::vector<bool>>();
  label.not_whole = found_from(json.at("not_whole"));
  label.not_unit = found_from(json.at("not_unit"));
  label.largest = found_from(json.at("largest"));
  label.negative = found_from(json.at("negative"));
  for (const SortedJson& c : json.at("classes")) {
    label.classes.push_back({c.at("count"), c.at("positions").get<std::vector<std::uint64_t>>()});
  }
  return label;
}

CaseSummary case_from(const SortedJson& json) {
  CaseSummary one;
  for (const SortedJson& f : json.at("files")) one.files.push_back({f.at("path"), f.at("bytes"), f.at("modified")});
  one.settings = json.at("settings");
  one.image = image_from(json.at("image"));
  one.label = label_from(json.at("label"));
  one.mask_digest = json.at("mask_digest");
  return one;
}

/// Adds the size and the time of a file or of what a folder holds.
void add_state(const std::filesystem::path& path, FileState& state) {
  struct stat info {};
  if (::stat(path.c_str(), &info) != 0) return;  // whoever opens it says so
  const std::int64_t modified = std::int64_t{info.st_mtim.tv_sec} * 1000000000 + info.st_mtim.tv_nsec;
  state.modified = std::max(state.modified, modified);
  if (S_ISREG(info.st_mode)) state.bytes += static_cast<std::uint64_t>(info.st_size);
}

/// Adds the states of the files that a pattern with one `*` stands for.
void add_slices(const std::filesystem::path& pattern, FileState& state) {
  const std::string name = pattern.filename().string();
  const std::string begin = name.substr(0, name.find('*')), end = name.substr(name.find('*') + 1);
  const auto folder = pattern.has_parent_path() ? pattern.parent_path() : std::filesystem::path(".");
  std::error_code error;
  for (std::filesystem::directory_iterator at(folder, error), last; !error && at != last; at.increment(error)) {
    const std::string file = at->path().filename().string();
    const bool matches = file.size() >= begin.size() + end.size() && file.starts_with(begin) && file.ends_with(end);
    if (matches) add_state(at->path(), state);
  }
}

/// Returns the state of an array. Its path has a hash of its voxels, because another process gives other arrays the
/// same paths.
FileState state_of_array(const io::VolumeSource& array) {
  const io::VolumeInfo& info = array.info();
  std::vector<std::byte> plane(static_cast<std::size_t>(info.extent.y * info.extent.x) * info.bytes_per_voxel());
  std::uint64_t hash = 0;
  for (index_t c = 0; c < info.channels; ++c) {
    for (index_t z = 0; z < info.extent.z; ++z) {
      array.read({c, 1}, {{z, 0, 0}, {1, info.extent.y, info.extent.x}}, plane);
      hash = XXH3_64bits_withSeed(plane.data(), plane.size(), hash);
    }
  }
  return {.path = fmt::format("array {} {} {:016x}", info.element_type, to_string(info.extent), hash),
          .bytes = info.stored_bytes};
}

}  // namespace

FileState FileState::of(const io::VolumePath& volume) {
  if (io::is_array_path(volume.text())) return state_of_array(*io::open_volume(volume));
  std::error_code error;
  const io::VolumePath whole{std::filesystem::absolute(volume.file, error).lexically_normal(), volume.inside};
  FileState state{.path = whole.text()};
  if (volume.file.filename().string().find('*') != std::string::npos) {
    add_slices(volume.file, state);
    return state;
  }
  add_state(volume.file, state);
  if (volume.file.extension() == ".hdr") add_state(std::filesystem::path(volume.file).replace_extension(".img"), state);
  if (!std::filesystem::is_directory(volume.file, error)) return state;
  for (std::filesystem::recursive_directory_iterator at(volume.file, error), last; !error && at != last;
       at.increment(error)) {
    add_state(at->path(), state);
  }
  return state;
}

SummaryFile::SummaryFile(std::filesystem::path file) : file_(std::move(file)) {
  std::error_code error;
  if (file_.empty() || !std::filesystem::exists(file_, error)) return;
  try {
    const SortedJson json = parse_json(read_file(file_));
    if (json.at("version") != summary_version) return;
    for (const SortedJson& one : json.at("cases")) cases_.push_back(case_from(one));
  } catch (const std::exception&) {
    cases_.clear();
  }
}

const CaseSummary* SummaryFile::find(const std::vector<FileState>& files, const std::string& settings) const {
  for (const CaseSummary& one : cases_) {
    if (one.files == files && one.settings == settings) return &one;
  }
  return nullptr;
}

std::optional<FileState> SummaryFile::changed(const FileState& now) const {
  std::optional<FileState> other;
  for (const CaseSummary& one : cases_) {
    for (const FileState& then : one.files) {
      if (then.path != now.path) continue;
      if (then == now) return std::nullopt;
      other = then;
    }
  }
  return other;
}

void SummaryFile::replace(std::vector<CaseSummary> cases) {
  cases_ = std::move(cases);
  if (file_.empty()) return;
  SortedJson json{{"version", summary_version}, {"cases", SortedJson::array()}};
  for (const CaseSummary& one : cases_) {
    SortedJson files = SortedJson::array();
    for (const FileState& f : one.files) {
      files.push_back({{"path", f.path}, {"bytes", f.bytes}, {"modified", f.modified}});
    }
    json["cases"].push_back({{"files", std::move(files)},
                             {"settings", one.settings},
                             {"image", to_json(one.image)},
                             {"label", to_json(one.label)},
                             {"mask_digest", one.mask_digest}});
  }
  write_file_atomically(file_, to_text(json));
}

}  // namespace convolume::nets
