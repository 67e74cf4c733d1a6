#include "nets/infer/inference_manifest.hpp"

#include <algorithm>

#include <fmt/format.h>
#include <nlohmann/json.hpp>
#include <xxhash.h>

#include "convolume/error.hpp"
#include "core/json.hpp"
#include "core/numerics_record.hpp"
#include "nets/data/scaling_json.hpp"

namespace convolume::nets {

using SortedJson = nlohmann::json;

std::string InferenceManifest::fact(const std::string& name) const {
  for (const auto& [key, text] : facts) {
    if (key == name) return text;
  }
  return {};
}

std::string InferenceManifest::to_text() const {
  SortedJson json;
  json["inference"] = 1;
  for (const auto& [name, value] : facts) json["facts"].push_back({name, value});
  json["scaling"] = to_json(scaling);
  json["numerics"] = numerics;
  return convolume::to_text(json, 2) + "\n";
}

InferenceManifest InferenceManifest::from_text(const std::filesystem::path& folder, const std::string& text) {
  try {
    const SortedJson json = parse_json(text);
    InferenceManifest manifest;
    if (json.at("inference") != 1) throw FormatError("unknown version");
    for (const SortedJson& fact : json.at("facts")) manifest.facts.emplace_back(fact.at(0), fact.at(1));
    manifest.scaling = scaling_from_json(json.at("scaling"));
    manifest.numerics = json.at("numerics").get<std::string>();
    return manifest;
  } catch (const std::exception& error) {
    throw FormatError(fmt::format("{}: its manifest cannot be read ({}); remove the folder and run without --resume",
                                  folder.string(), error.what()));
  }
}

void InferenceManifest::require_equal(const InferenceManifest& other, const std::filesystem::path& folder) const {
  for (std::size_t i = 0; i < std::max(facts.size(), other.facts.size()); ++i) {
    if (i < facts.size() && i < other.facts.size() && facts[i] == other.facts[i]) continue;
    const auto text = [&](const auto& list) {
      return i < list.size() ? fmt::format("{} '{}'", list[i].first, list[i].second) : "nothing";
    };
    throw InvalidArgument(fmt::format(
        "{}: was begun with {}, but this inference has {}; resume with the same net, volume and options, or "
        "remove the folder and begin again",
        folder.string(), text(facts), text(other.facts)));
  }
  const auto difference =
      NumericsRecord::from_text(other.numerics).first_difference(NumericsRecord::from_text(numerics));
  if (!difference) return;
  throw InvalidArgument(
      fmt::format("{}: this program would round differently ({}); resume with the program that began it, or remove the "
                  "folder and begin again",
                  folder.string(), *difference));
}

std::string digest_of(const NetSpec& spec, const Parameters& parameters) {
  const std::string text = spec.architecture() + fmt::format("{}", static_cast<int>(spec.loss.kind));
  std::uint64_t hash = XXH3_64bits(text.data(), text.size());
  for (const Parameter& p : parameters.all()) {
    hash = XXH3_64bits_withSeed(p.value.data(), static_cast<std::size_t>(p.value.elements()) * sizeof(float), hash);
  }
  return fmt::format("{:016x}", hash);
}

std::string digest_of(const io::VolumeSource& source) {
  const io::VolumeInfo& info = source.info();
  const Extent3& e = info.extent;
  const std::string kind = fmt::format("{} {} {}", info.channels, to_string(e), name_of(info.type));
  std::uint64_t hash = XXH3_64bits(kind.data(), kind.size());
  // Some rows at a time, because a plane may be larger than the memory of the inference.
  constexpr index_t most_bytes = index_t{4} << 20;
  const index_t row = info.channels * e.x * static_cast<index_t>(info.bytes_per_voxel());
  const index_t rows = std::clamp<index_t>(most_bytes / row, 1, e.y);
  const index_t planes = std::min<index_t>(8, e.z);
  for (index_t i = 0; i < planes; ++i) {
    const index_t z = i * (e.z - 1) / std::max<index_t>(1, planes - 1);
    for (index_t y = 0; y < e.y; y += rows) {
      const io::VoxelBox part{{z, y, 0}, {1, std::min(rows, e.y - y), e.x}};
      const StoredVolume voxels = StoredVolume::read(source, part, std::pmr::new_delete_resource());
      hash = XXH3_64bits_withSeed(voxels.stored(0), voxels.bytes(), hash);
    }
  }
  return fmt::format("{:016x}", hash);
}

}  // namespace convolume::nets
