#include "nets/io/volume_formats.hpp"

#include <algorithm>
#include <array>

#include <fmt/format.h>

#include "core/checked.hpp"
#include "core/lazy.hpp"

namespace convolume::nets::io::detail {

std::span<const VolumeFormat> volume_formats() {
  static constinit Lazy<const std::array<VolumeFormat, 5>> formats;
  return formats.get([] {
    return std::array{slices_format(), zarr_format(), tiff_format(), nifti_format(), hdf5_format()};
  });
}

std::string extension_of(const std::filesystem::path& file) {
  const auto lower = [](std::string text) {
    std::transform(text.begin(), text.end(), text.begin(),
                   [](char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c; });
    return text;
  };
  const std::string last = lower(file.extension().string());
  return last == ".gz" ? lower(file.stem().extension().string()) + last : last;
}

std::vector<std::string> names_in(const std::filesystem::path& folder) {
  std::vector<std::string> names;
  std::error_code error;
  for (std::filesystem::directory_iterator at(folder, error), end; !error && at != end; at.increment(error)) {
    names.push_back(at->path().filename().string());
  }
  if (error) throw IoError(fmt::format("{}: listing the folder failed: {}", folder.string(), error.message()));
  std::sort(names.begin(), names.end());
  return names;
}

bool has_data_sets(const std::filesystem::path& file) {
  const std::string extension = extension_of(file);
  return extension == ".h5" || extension == ".hdf5" || extension == ".zarr";
}

void fail_format(const std::string& file, std::string_view field, std::string_view found, std::string_view remedy) {
  throw FormatError(fmt::format("{}: {}: {}; {}", file, field, found, remedy));
}

void check_extent(const std::string& file, const VolumeInfo& info) {
  const Extent3& e = info.extent;
  const std::string found = fmt::format("{} channels of {} x {} x {}", info.channels, e.z, e.y, e.x);
  if (info.channels < 1 || e.z < 1 || e.y < 1 || e.x < 1) {
    fail_format(file, "size", found, "every axis needs at least one voxel");
  }
  try {
    checked_mul(checked_mul(e.volume(), info.channels), static_cast<index_t>(info.bytes_per_voxel()));
  } catch (const OverflowError&) {
    fail_format(file, "size", found + " voxels, more than 2^63 bytes", "the file is damaged");
  }
}

}  // namespace convolume::nets::io::detail
