// Reads and writes folders of slices: FOLDER/*.png and FOLDER/*.tif, one file per Z. The star stands for a number. A
// PNG file alone is read as a volume of one slice.
#include <algorithm>
#include <charconv>
#include <cstring>
#include <optional>
#include <vector>

#include <fmt/format.h>
#include <png.h>

#include "core/files.hpp"
#include "nets/io/chunk_assembler.hpp"
#include "nets/io/png_file.hpp"
#include "nets/io/tiff_volume.hpp"

namespace convolume::nets::io::detail {
namespace {

using std::filesystem::path;

/// A pattern "FOLDER/before*after".
struct Pattern {
  path folder;
  std::string before, after;

  explicit Pattern(const path& file) : folder(file.has_parent_path() ? file.parent_path() : path(".")) {
    const std::string name = file.filename().string();
    const std::size_t star = name.find('*');
    before = name.substr(0, star);
    after = star == std::string::npos ? "" : name.substr(star + 1);
  }
  bool png() const { return extension_of(path(before + "0" + after)) == ".png"; }
  path file(std::string_view number) const { return folder / fmt::format("{}{}{}", before, number, after); }

  /// Returns what the star stands for in a name, or nothing if the name does not match.
  std::optional<std::string_view> star(std::string_view name) const {
    if (name.size() < before.size() + after.size() || !name.starts_with(before) || !name.ends_with(after)) {
      return std::nullopt;
    }
    return name.substr(before.size(), name.size() - before.size() - after.size());
  }
};

struct Slice {
  std::uint64_t number = 0;
  path file;
};

/// Returns a pattern that suits all names which a pattern matches, for a message: ", for example 'img_*.png'". Its star
/// stands for the last number of the names. Returns an empty text if there is none.
std::string better_pattern(const Pattern& pattern, std::string_view name, const std::vector<std::string>& names) {
  constexpr std::string_view digits = "0123456789";
  const std::size_t stem = name.size() - pattern.after.size();
  const std::size_t last = name.substr(0, stem).find_last_of(digits);
  if (last == name.npos) return "";
  const std::size_t first = name.substr(0, last).find_last_not_of(digits);
  if (first == name.npos) return "";  // the star stands for a number that is too long
  const path better = pattern.folder / fmt::format("{}*{}", name.substr(0, first + 1), name.substr(last + 1));
  const Pattern other(better);
  const bool suits = std::all_of(names.begin(), names.end(), [&](const std::string& one) {
    const auto star = other.star(one);
    return !pattern.star(one) || one.front() == '.' ||
           (star && !star->empty() && star->find_first_not_of(digits) == star->npos);
  });
  return suits ? fmt::format(", for example '{}'", better.string()) : "";
}

bool has_star(const path& file) { return file.filename().string().find('*') != std::string::npos; }

/// Returns the slices of a folder in the order of their numbers, or the only slice that a path names.
std::vector<Slice> slices_of(const VolumePath& where) {
  if (!has_star(where.file)) return {{0, where.file}};
  const Pattern pattern(where.file);
  std::error_code error;
  if (!std::filesystem::is_directory(pattern.folder, error)) {
    throw IoError(fmt::format("{}: there is no folder {}; check the path", where.text(), pattern.folder.string()));
  }
  std::vector<Slice> slices;
  const std::vector<std::string> names = names_in(pattern.folder);
  for (const std::string& name : names) {
    const auto star = pattern.star(name);
    if (!star || (name.front() == '.' && !pattern.before.starts_with('.'))) continue;  // hidden, as in the shell
    std::uint64_t number = 0;
    const auto [end, failed] = std::from_chars(star->data(), star->data() + star->size(), number);
    if (failed != std::errc() || end != star->data() + star->size()) {
      fail_format(
          where.text(), "file name", "'" + name + "' has no number where the star is",
          "name the slices by numbers, or use a pattern that only they match" + better_pattern(pattern, name, names));
    }
    slices.push_back({number, pattern.folder / name});
  }
  if (slices.empty()) {
    throw IoError(fmt::format("{}: no file matches; check the pattern, and quote it for the shell", where.text()));
  }
  std::sort(slices.begin(), slices.end(), [](const Slice& a, const Slice& b) { return a.number < b.number; });
  for (std::size_t i = 1; i < slices.size(); ++i) {
    const std::uint64_t before = slices[i - 1].number, number = slices[i].number;
    if (number == before + 1) continue;
    fail_format(where.text(), "numbers",
                number == before ? fmt::format("{} stands for two files", number)
                                 : fmt::format("{} is missing: {} follows {}", before + 1, number, before),
                "slices have every number from the first to the last once");
  }
  return slices;
}

class PngSlices final : public VolumeSource {
 public:
  explicit PngSlices(const VolumePath& path) : VolumeSource(path), slices_(slices_of(path)) {
    for (const Slice& slice : slices_) {
      const PngInfo info = inspect_png(slice.file);
      if (&slice == &slices_.front()) png_ = info;
      if (info != png_) {
        fail_format(
            slice.file.string(), "size or type",
            fmt::format("{} x {}, {} channels of {} bits; the first slice has {} x {}, {} of {}", info.height,
                        info.width, info.channels, info.bits, png_.height, png_.width, png_.channels, png_.bits),
            "all slices must be equal");
      }
      // Programs leave out colours at the end of a palette that a slice does not have.
      const std::size_t common = std::min(info.colours.size(), png_.colours.size());
      if (info.colours.compare(0, common, png_.colours, 0, common) != 0) {
        fail_format(slice.file.string(), "palette", "other colours than those of the first slice",
                    "the same number would mean other things; store numbers as gray");
      }
      if (info.colours.size() > png_.colours.size()) png_.colours = info.colours;
      std::error_code error;
      info_.stored_bytes += std::filesystem::file_size(slice.file, error);
    }
    info_.format = "slices (PNG)";
    info_.channels = png_.channels;
    info_.extent = {static_cast<index_t>(slices_.size()), png_.height, png_.width};
    info_.type = png_.bits == 8 ? VoxelType::uint8 : VoxelType::uint16;
    info_.element_type = png_.stored_bits == 1 && !png_.palette ? "bool" : io::name_of(info_.type);
    if (png_.palette) info_.notes.emplace_back("has a palette: the numbers of the colours are read, not the colours");
    info_.chunk_channels = png_.channels;
    info_.chunk = {1, png_.height, png_.width};
    check_extent(path.text(), info_);
  }

 private:
  void do_read(ChannelRange channels, const VoxelBox& box, std::byte* voxels) const override {
    const auto bytes = size_of(info_.type);
    const index_t all = info_.channels;
    for (index_t z = 0; z < box.extent.z; ++z) {
      const std::vector<std::byte> pixels =
          read_png(slices_[static_cast<std::size_t>(box.begin.z + z)].file, png_, box.begin.y, box.extent.y);
      for (index_t c = 0; c < channels.count; ++c) {
        for (index_t y = 0; y < box.extent.y; ++y) {
          std::byte* to =
              voxels + static_cast<std::size_t>(((c * box.extent.z + z) * box.extent.y + y) * box.extent.x) * bytes;
          const index_t first = (y * png_.width + box.begin.x) * all + channels.begin + c;
          const std::byte* from = pixels.data() + static_cast<std::size_t>(first) * bytes;
          const auto step = static_cast<std::size_t>(all) * bytes;
          for (index_t x = 0; x < box.extent.x; ++x, to += bytes, from += step) std::memcpy(to, from, bytes);
        }
      }
    }
  }

  std::vector<Slice> slices_;
  PngInfo png_;
};

class TiffSlices final : public VolumeSource {
 public:
  explicit TiffSlices(const VolumePath& path) : VolumeSource(path), slices_(slices_of(path)) {
    for (const Slice& slice : slices_) {
      const VolumeInfo info = open_tiff({slice.file, ""}, false)->info();
      if (info.extent.z != 1) {
        fail_format(slice.file.string(), "pages", std::to_string(info.extent.z), "a slice has one page");
      }
      if (&slice == &slices_.front()) info_ = info;
      if (info.extent != info_.extent || info.type != info_.type) {
        fail_format(slice.file.string(), "size or type",
                    fmt::format("{} x {} {}; the first slice has {} x {} {}", info.extent.y, info.extent.x,
                                info.element_type, info_.extent.y, info_.extent.x, info_.element_type),
                    "all slices must be equal");
      }
      if (&slice != &slices_.front()) info_.stored_bytes += info.stored_bytes;
    }
    info_.format = "slices (TIFF)";
    info_.extent.z = static_cast<index_t>(slices_.size());
    check_extent(path.text(), info_);
  }

 private:
  void do_read(ChannelRange channels, const VoxelBox& box, std::byte* voxels) const override {
    const auto plane = static_cast<std::size_t>(box.extent.y * box.extent.x) * size_of(info_.type);
    for (index_t z = 0; z < box.extent.z; ++z) {
      const auto slice = open_tiff({slices_[static_cast<std::size_t>(box.begin.z + z)].file, ""}, false);
      if (slice->info().type != info_.type) {
        fail_format(slice->path().text(), "type", "changed since the folder was read", "do not write to it meanwhile");
      }
      slice->read(channels, {{0, box.begin.y, box.begin.x}, {1, box.extent.y, box.extent.x}},
                  {voxels + static_cast<std::size_t>(z) * plane, plane});
    }
  }

  std::vector<Slice> slices_;
};

/// Writes each slice as soon as it is complete, into a folder of its own. At the end all slices are moved to their
/// place.
class SlicesSink final : public VolumeSink {
 public:
  SlicesSink(const VolumePath& path, const SinkOptions& options)
      : VolumeSink(path, options),
        pattern_(path.file),
        digits_(std::to_string(options.extent.z - 1).size()),
        slices_(options, options.channels, {1, options.extent.y, options.extent.x}, false, pattern_.folder,
                [this](const ChunkPlace& place, std::span<const std::byte> voxels) { put(place, voxels); }) {
    std::error_code error;
    do {
      temporary_ = pattern_.folder / (".slices" + temporary_suffix());
    } while (!std::filesystem::create_directory(temporary_, error) && !error);
    if (error) {
      throw IoError(fmt::format("{}: making the folder failed: {}", temporary_.string(), error.message()));
    }
  }
  ~SlicesSink() override {
    std::error_code error;
    std::filesystem::remove_all(temporary_, error);
  }

 private:
  void do_write(ChannelRange channels, const VoxelBox& box, const std::byte* voxels) override {
    slices_.write(channels, box, voxels);
  }

  std::filesystem::path file_name(index_t z) const {
    return pattern_.file(fmt::format("{:0{}}", z, digits_)).filename();
  }

  void put(const ChunkPlace& place, std::span<const std::byte> voxels) {
    const std::filesystem::path file = temporary_ / file_name(place.index.z);
    if (pattern_.png()) {
      const std::vector<std::byte> encoded = encode(file, voxels);
      const std::span<const std::byte> part(encoded);
      return write_file_atomically(file, std::span(&part, 1));
    }
    SinkOptions page = options();
    page.extent.z = 1;
    page.spacing.reset();
    const auto sink = create_tiff({file, ""}, page);
    sink->write({0, 1}, {{0, 0, 0}, page.extent}, voxels);
    sink->finish();
  }

  std::vector<std::byte> encode(const std::filesystem::path& file, std::span<const std::byte> voxels) const {
    const auto bytes = size_of(options().type);
    const Extent3& e = options().extent;
    const auto bits = static_cast<int>(8 * bytes);
    const PngInfo info{e.y, e.x, static_cast<int>(options().channels), bits, bits, false, {}};
    if (info.channels == 1) return encode_png(file, info, voxels);
    std::vector<std::byte> pixels(voxels.size());
    const auto count = static_cast<std::size_t>(e.y * e.x), channels = static_cast<std::size_t>(info.channels);
    for (std::size_t c = 0; c < channels; ++c) {
      for (std::size_t i = 0; i < count; ++i) {
        std::memcpy(pixels.data() + (i * channels + c) * bytes, voxels.data() + (c * count + i) * bytes, bytes);
      }
    }
    return encode_png(file, info, pixels);
  }

  /// Moves the slices to their place one by one. A failure moves those back that are already there. A process that is
  /// killed meanwhile can leave some slices.
  void do_finish() override {
    slices_.check_complete(path());
    index_t placed = 0;
    try {
      for (; placed < options().extent.z; ++placed) {
        rename_without_replacing(temporary_ / file_name(placed), pattern_.folder / file_name(placed));
      }
    } catch (...) {
      while (placed-- > 0) {
        std::error_code error;
        std::filesystem::rename(pattern_.folder / file_name(placed), temporary_ / file_name(placed), error);
      }
      throw;
    }
    sync_directory(pattern_.folder);
  }

  Pattern pattern_;
  std::filesystem::path temporary_;
  std::size_t digits_;
  ChunkAssembler slices_;
};

bool writes_slices(const VolumePath& where) {
  const std::string name = where.file.filename().string();
  if (std::count(name.begin(), name.end(), '*') != 1) return false;
  const std::string extension = extension_of(path(name));
  return extension == ".png" || extension == ".tif" || extension == ".tiff";
}

void check_slices(const VolumePath& where, const SinkOptions& options) {
  const Pattern pattern(where.file);
  if (!pattern.png()) check_tiff_type(where, options.type);
  if (pattern.png() && options.type != VoxelType::uint8 && options.type != VoxelType::uint16) {
    throw InvalidArgument(fmt::format("{}: PNG holds uint8 and uint16, not {}; convert the voxels (--type)",
                                      where.text(), io::name_of(options.type)));
  }
  const bool colour = pattern.png() && options.channels == 3;
  if (options.channels != 1 && !colour) {
    throw InvalidArgument(fmt::format("{}: slices hold {} channel, but the volume has {}; write another format",
                                      where.text(), pattern.png() ? "1 or 3" : "1", options.channels));
  }
  std::error_code error;
  if (!std::filesystem::is_directory(pattern.folder, error)) return;  // reported with the other errors of folders
  for (const std::string& name : names_in(pattern.folder)) {
    if (!pattern.star(name)) continue;
    throw IoError(fmt::format("{}: {} matches already, and old slices would mix with new ones; use an empty folder",
                              where.text(), name));
  }
}

std::string reason_against_slices(const Candidate& candidate) {
  if (!candidate.pattern) {
    const bool png = candidate.head.starts_with("\x89PNG\r\n\x1a\n");
    return png ? "" : "the path has no * for the numbers of the slices, and the file is no PNG";
  }
  return writes_slices(candidate.path) ? "" : "a pattern has one * and ends in .png, .tif or .tiff";
}

}  // namespace

VolumeFormat slices_format() {
  return {.name = "slices",
          .extensions = "FOLDER/*.png, FOLDER/*.tif",
          .reason_against = reason_against_slices,
          .open = [](const VolumePath& path, const OpenOptions&) -> std::unique_ptr<VolumeSource> {
            if (!has_star(path.file) || Pattern(path.file).png()) return std::make_unique<PngSlices>(path);
            return std::make_unique<TiffSlices>(path);
          },
          .writes = writes_slices,
          .check = check_slices,
          .create = [](const VolumePath& path, const SinkOptions& options) -> std::unique_ptr<VolumeSink> {
            return std::make_unique<SlicesSink>(path, options);
          },
          .version = [] { return fmt::format("libpng {}", png_get_libpng_ver(nullptr)); }};
}

}  // namespace convolume::nets::io::detail
