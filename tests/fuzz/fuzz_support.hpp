// What the fuzz targets share: files in memory, and reading whatever a source says.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include <unistd.h>

#include "convolume/error.hpp"
#include "nets/io/orientation.hpp"
#include "nets/io/volume_source.hpp"

namespace convolume::fuzz {

/// A folder of this process on a file system in memory.
inline const std::filesystem::path& folder() {
  static const std::filesystem::path path = [] {
    std::string name = "/dev/shm/convolume-fuzz-XXXXXX";
    if (::mkdtemp(name.data()) == nullptr) std::abort();
    static std::string kept = name;
    std::atexit([] {
      std::error_code ignored;
      std::filesystem::remove_all(kept, ignored);
    });
    return std::filesystem::path(name);
  }();
  return path;
}

inline void write(const std::filesystem::path& file, std::string_view bytes) {
  std::ofstream(file, std::ios::binary).write(bytes.data(), static_cast<std::streamsize>(bytes.size()));
}

/// Splits an input that stands for several files.
inline std::vector<std::string_view> sections(std::string_view input) {
  constexpr std::string_view separator = "\n====\n";
  std::vector<std::string_view> parts;
  for (std::size_t at = input.find(separator); at != std::string_view::npos; at = input.find(separator)) {
    parts.push_back(input.substr(0, at));
    input.remove_prefix(at + separator.size());
  }
  parts.push_back(input);
  return parts;
}

/// Opens a volume and reads boxes at both ends. Only our own errors may come out.
inline void read_ends(const std::filesystem::path& file) {
  using namespace nets;
  try {
    const std::shared_ptr<const io::VolumeSource> source = io::open_volume(io::VolumePath{file, ""});
    const io::VolumeInfo& info = source->info();
    static_cast<void>(source->stored_bytes());
    if (info.geometry && !io::orientation_of(*info.geometry).empty()) {
      const auto turned = io::turned(source, io::turn_to("PIL", *source));
      const Extent3 one = Extent3::all(1);
      std::vector<std::byte> voxel(info.bytes_per_voxel());
      turned->read({0, 1}, {turned->info().extent - one, one}, voxel);
    }
    Extent3 extent;
    for (int axis = 0; axis < 3; ++axis) extent[axis] = std::min<index_t>(info.extent[axis], 32);
    std::vector<std::byte> voxels(static_cast<std::size_t>(extent.volume()) * info.bytes_per_voxel());
    for (const Extent3& begin : {Extent3{0, 0, 0}, info.extent - extent}) {
      for (const index_t channel : {index_t{0}, info.channels - 1}) {
        try {
          source->read({channel, 1}, {begin, extent}, voxels);
        } catch (const Error&) {
          // The next box may be readable.
        }
      }
    }
  } catch (const Error&) {
    // Refused.
  }
}

}  // namespace convolume::fuzz
