// Reads HDF5 datasets of integers or floats, [z][y][x], [c][z][y][x] or, if asked to, [n][c][z][y][x]. Virtual
// datasets, and datasets whose data lie in other files, are rejected. The attribute `element_size_um` holds the spacing
// along Z, Y and X.
#include <algorithm>
#include <array>
#include <cctype>
#include <vector>

#include <fmt/ranges.h>
#include <nlohmann/json.hpp>

#include "core/json.hpp"
#include "nets/io/hdf5_library.hpp"
#include "nets/io/hdf5_lzf.hpp"
#include "nets/io/hdf5_volume.hpp"

namespace convolume::nets::io::detail {
namespace {

/// Visits the groups of a file and lists 3-D datasets, or 4-D ones if there are no others. It also lists all datasets
/// and links. The search is bounded, because hard links may form cycles.
class DataSets {
 public:
  explicit DataSets(hid_t file) {
    visit(file, "", 0);
    if (names_.empty()) names_ = std::move(with_channels_);
  }
  const std::vector<std::string>& names() const noexcept { return names_; }
  /// Returns datasets of any rank, and links that are not followed.
  const std::vector<std::string>& all() const noexcept { return all_; }
  /// Returns whether the search has seen every object of the file.
  bool complete() const noexcept { return complete_; }
  std::string list() const {
    if (!names_.empty()) return fmt::format("3-D datasets: {}", fmt::join(names_, ", "));
    std::string text = "it holds no 3-D dataset";
    if (!others_.empty()) text += fmt::format(", but {}", fmt::join(others_, ", "));
    if (!external_.empty())
      text += fmt::format(", and links to other files, which can be named: {}", fmt::join(external_, ", "));
    return text;
  }

 private:
  void visit(hid_t group, const std::string& prefix, int depth) {
    H5G_info_t info{};
    if (H5Gget_info(group, &info) < 0) {
      complete_ = false;
      return;
    }
    for (hsize_t i = 0; i < info.nlinks; ++i) {
      if (seen_++ >= most_objects) {
        complete_ = false;
        return;
      }
      const auto length = H5Lget_name_by_idx(group, ".", H5_INDEX_NAME, H5_ITER_INC, i, nullptr, 0, H5P_DEFAULT);
      if (length <= 0 || length > 4096) {
        complete_ = false;
        continue;
      }
      std::string name(static_cast<std::size_t>(length) + 1, '\0');
      H5Lget_name_by_idx(group, ".", H5_INDEX_NAME, H5_ITER_INC, i, name.data(), name.size(), H5P_DEFAULT);
      name.pop_back();
      H5L_info_t link{};
      const std::string full = prefix + "/" + name;
      const bool readable = H5Lget_info(group, name.c_str(), &link, H5P_DEFAULT) >= 0;
      if (readable && link.type != H5L_TYPE_HARD) {
        all_.push_back(full);  // soft and external links lead to objects that are listed elsewhere, or out of the file
        if (link.type == H5L_TYPE_EXTERNAL) external_.push_back(full);
        continue;
      }
      const Hdf5Handle object(readable ? H5Oopen(group, name.c_str(), H5P_DEFAULT) : -1, H5Oclose);
      const auto kind = object ? H5Iget_type(object.get()) : H5I_BADID;
      if (!object || (kind == H5I_GROUP && depth >= deepest_group)) {
        complete_ = false;
      } else if (kind == H5I_GROUP) {
        visit(object.get(), full, depth + 1);
      } else if (kind == H5I_DATASET) {
        all_.push_back(full);
        const Hdf5Handle space(H5Dget_space(object.get()), H5Sclose);
        const int rank = space ? H5Sget_simple_extent_ndims(space.get()) : -1;
        if (rank == 3) names_.push_back(full);
        if (rank == 4) with_channels_.push_back(full);
        if (rank != 3 && rank != 4) others_.push_back(fmt::format("{} with {} axes", full, std::max(rank, 0)));
      }
    }
  }

  static constexpr int most_objects = 4096, deepest_group = 8;
  int seen_ = 0;
  bool complete_ = true;
  std::vector<std::string> names_, with_channels_, all_, others_, external_;
};

class Hdf5Source final : public VolumeSource {
 public:
  Hdf5Source(const VolumePath& path, bool samples) : VolumeSource(path), samples_(samples) {
    const Hdf5Session session;
    try {
      open();
    } catch (...) {
      close();
      throw;
    }
  }
  ~Hdf5Source() override {
    const Hdf5Session session;
    close();
  }

 private:
  void open() {
    register_lzf();
    file_ = {H5Fopen(path().file.c_str(), H5F_ACC_RDONLY, H5P_DEFAULT), H5Fclose};
    if (!file_) {
      throw FormatError(
          fmt::format("{}: not a readable HDF5 file: truncated, damaged, being written, or of another "
                      "kind; write or copy it again{}",
                      path().file.string(), Hdf5Session::complaint()));
    }
    choose();
    inspect();
    inspect_storage();
    read_spacing();
    check_axes();
    remark("resolution",
           "is not read, because it says no unit; give the spacing in the data set, or as the attribute "
           "element_size_um");
    remark("offset", "is not read: voxels are counted from 0");
  }
  void close() {
    data_set_.close();
    file_.close();
  }

  [[noreturn]] void fail(std::string_view field, std::string_view found, std::string_view remedy,
                         const std::string& complaint = "") const {
    throw FormatError(
        fmt::format("{}: dataset {}: {}: {}; {}{}", path().file.string(), name_, field, found, remedy, complaint));
  }

  void choose() {
    name_ = path().inside;
    if (name_.empty()) {
      const DataSets sets(file_.get());
      if (samples_ && sets.all().size() == 1) {
        name_ = sets.all().front();
      } else if (sets.names().size() == 1) {
        name_ = sets.names().front();
      } else {
        throw FormatError(
            fmt::format("{}: which dataset? {}; name one as FILE:/NAME", path().file.string(), sets.list()));
      }
    }
    const Hdf5Handle object(H5Oopen(file_.get(), name_.c_str(), H5P_DEFAULT), H5Oclose);
    if (!object || H5Iget_type(object.get()) != H5I_DATASET) {
      fail("name", object ? "a group or type, not a dataset" : "not in the file",
           fmt::format("name another ({})", DataSets(file_.get()).list()));
    }
    data_set_ = {H5Dopen2(file_.get(), name_.c_str(), H5P_DEFAULT), H5Dclose};
    if (!data_set_) fail("header", "unreadable", "the file is damaged", Hdf5Session::complaint());
  }

  void inspect() {
    const Hdf5Handle space(H5Dget_space(data_set_.get()), H5Sclose);
    rank_ = space ? H5Sget_simple_extent_ndims(space.get()) : -1;
    if (rank_ != 3 && rank_ != 4 && !(samples_ && rank_ == most_axes)) {
      fail("rank", std::to_string(rank_),
           fmt::format("a volume has 3 axes [z][y][x], or 4 axes [c][z][y][x]{}; name another dataset ({})",
                       samples_ ? ", or 5 axes [n][c][z][y][x]" : "", DataSets(file_.get()).list()));
    }
    std::array<hsize_t, most_axes> size{1, 1, 0, 0, 0};
    H5Sget_simple_extent_dims(space.get(), size.data() + most_axes - rank_, nullptr);
    for (const hsize_t n : size) {
      if (n == 0 || !std::in_range<index_t>(n)) {
        fail("size", fmt::format("{}", fmt::join(size.begin() + most_axes - rank_, size.end(), " x ")),
             "every axis needs at least one voxel");
      }
    }
    const auto at = [&](std::size_t i) { return static_cast<index_t>(size[i]); };
    info_.format = "HDF5";
    info_.samples = at(0);
    if (__builtin_mul_overflow(at(0), at(1), &info_.channels)) {
      fail("size", fmt::format("{}", fmt::join(size, " x ")), "no file can hold so many channels");
    }
    info_.extent = {at(2), at(3), at(4)};

    const Hdf5Handle type(H5Dget_type(data_set_.get()), H5Tclose);
    const auto kind = type ? H5Tget_class(type.get()) : H5T_NO_CLASS;
    const std::size_t bytes = type ? H5Tget_size(type.get()) : 0;
    const bool integer =
        (kind == H5T_INTEGER || kind == H5T_ENUM) && (bytes == 1 || bytes == 2 || bytes == 4 || bytes == 8);
    const bool floating = kind == H5T_FLOAT && (bytes == 2 || bytes == 4 || bytes == 8);
    if (!integer && !floating) {
      const char* const found = kind == H5T_COMPOUND ? "compound (complex numbers are stored like this)"
                                : kind == H5T_STRING ? "text"
                                                     : "of another class or width";
      fail("element type", found, "store integers of 8 to 64 bits or floats of 16 to 64 bits");
    }
    // The values of an enumeration are integers. Booleans are one of FALSE and TRUE.
    const Hdf5Handle base(kind == H5T_ENUM ? H5Tget_super(type.get()) : -1, H5Tclose);
    const bool is_signed = integer && H5Tget_sign(base ? base.get() : type.get()) == H5T_SGN_2;
    info_.type = voxel_type(floating, is_signed, floating ? std::max<std::size_t>(bytes, 4) : bytes);
    info_.element_type = fmt::format("{}{}", floating ? "float" : is_signed ? "int" : "uint", 8 * bytes);
    if (base && bytes == 1 && H5Tget_member_index(type.get(), "TRUE") >= 0 &&
        H5Tget_member_index(type.get(), "FALSE") >= 0 && H5Tget_nmembers(type.get()) == 2) {
      info_.type = VoxelType::uint8;
      info_.element_type = "bool";
    }
    element_bytes_ = bytes;
    check_extent(path().text(), info_);
  }

  /// Compares the declared size with the stored bytes, because a header may declare any size.
  void inspect_storage() {
    const Hdf5Handle creation(H5Dget_create_plist(data_set_.get()), H5Pclose);
    if (!creation) fail("header", "unreadable", "the file is damaged", Hdf5Session::complaint());
    const auto layout = H5Pget_layout(creation.get());
    if (layout == H5D_VIRTUAL || (layout == H5D_CONTIGUOUS && H5Pget_external_count(creation.get()) != 0)) {
      const bool other_datasets = layout == H5D_VIRTUAL;
      fail("layout",
           other_datasets ? "virtual: the data are in other datasets" : "external: the data are in other, raw files",
           "check that these files are there, and copy the data into one file: h5repack -l CONTI (missing files would "
           "become the fill value)");
    }
    const auto declared = static_cast<std::uint64_t>(info_.channels * info_.extent.volume()) * element_bytes_;
    info_.chunk = {1, 1, info_.extent.x};
    info_.details = "contiguous";
    if (layout == H5D_CHUNKED) inspect_chunks(creation.get(), declared);
    const std::uint64_t stored = H5Dget_storage_size(data_set_.get());
    if (layout == H5D_CHUNKED ? declared / largest_compression_ratio > stored || stored == 0 : declared > stored) {
      fail("size",
           fmt::format("{} of {} declared, {} bytes stored", to_string(info_.extent), info_.element_type, stored),
           "the data were never written or the file is damaged");
    }
    info_.stored_bytes = stored;
  }

  void inspect_chunks(hid_t creation, std::uint64_t declared) {
    info_.details = "chunks";
    std::array<hsize_t, most_axes> chunk{1, 1, 1, 1, 1};
    std::uint64_t bytes = element_bytes_;
    bool fits = H5Pget_chunk(creation, rank_, chunk.data() + most_axes - rank_) == rank_;
    for (const hsize_t n : chunk) fits = fits && !__builtin_mul_overflow(bytes, std::uint64_t{n}, &bytes);
    // HDF5 decodes a chunk as a whole. A header could make a chunk up to 4 GiB for a few voxels.
    if (!fits || bytes > std::max<std::uint64_t>(2 * declared, std::uint64_t{64} << 20)) {
      fail("chunk size", fmt::format("{}", fmt::join(chunk.begin() + most_axes - rank_, chunk.end(), " x ")),
           "store smaller chunks");
    }
    const auto at = [&](std::size_t i) { return static_cast<index_t>(chunk[i]); };
    info_.chunk_channels = at(0) * at(1);
    info_.chunk = {at(2), at(3), at(4)};
    for (int i = 0; i < H5Pget_nfilters(creation); ++i) {
      std::array<char, 64> name{};
      unsigned flags = 0, config = 0;
      std::size_t values = 0;
      std::array<unsigned, 8> parameters{};
      values = parameters.size();
      const H5Z_filter_t filter = H5Pget_filter2(creation, static_cast<unsigned>(i), &flags, &values, parameters.data(),
                                                 name.size() - 1, name.data(), &config);
      // HDF5 trusts a filter to decode as many bytes as a chunk has.
      if (filter == lzf_filter && (values < 3 || parameters[2] != bytes)) {
        fail("filter lzf", fmt::format("it says chunks of {} bytes, but they have {}", parameters[2], bytes),
             "the file is damaged");
      }
      info_.details += fmt::format("{} {}", i == 0 ? " with" : ",", name.data());
    }
  }

  void read_spacing() {
    if (H5Aexists(data_set_.get(), "element_size_um") <= 0) return;
    const Hdf5Handle attribute(H5Aopen(data_set_.get(), "element_size_um", H5P_DEFAULT), H5Aclose);
    const Hdf5Handle space(attribute ? H5Aget_space(attribute.get()) : -1, H5Sclose);
    std::array<double, 3> zyx{};
    if (!space || H5Sget_simple_extent_npoints(space.get()) != 3 ||
        H5Aread(attribute.get(), H5T_NATIVE_DOUBLE, zyx.data()) < 0 ||
        std::any_of(zyx.begin(), zyx.end(), [](double d) { return !(d > 0); })) {
      fail("element_size_um", "not three positive numbers", "store the spacing along z, y and x, in micrometres");
    }
    info_.spacing = Spacing{zyx, "um"};
  }

  void remark(const char* attribute, const char* what) {
    if (H5Aexists(data_set_.get(), attribute) > 0)
      info_.notes.push_back(fmt::format("the attribute {} {}", attribute, what));
  }

  /// Checks what programs write about the order of the axes: HDF5's own labels, and ilastik's JSON.
  void check_axes() {
    std::string names;
    for (const std::string& label : text_attributes("DIMENSION_LABELS")) {
      if (label.size() == 1) names += static_cast<char>(std::tolower(static_cast<unsigned char>(label[0])));
    }
    require_order("dimension labels", names);
    if (H5Aexists(data_set_.get(), "axistags") <= 0) return;
    names.clear();
    try {
      const nlohmann::json tags = parse_json(text_attributes("axistags").at(0));
      for (const nlohmann::json& axis : tags.at("axes")) {
        names += axis.at("key").get<std::string>();
      }
    } catch (const std::exception&) {
      return remark("axistags", "is not read: it is no JSON with axes");
    }
    require_order("axistags", names);
  }

  /// Refuses names of axes that are in another order. Names that are no letters of axes do not count.
  void require_order(const char* field, const std::string& names) const {
    constexpr std::string_view all = "nczyx";
    const auto known = static_cast<std::size_t>(rank_);
    if (names.size() != known || names == all.substr(all.size() - known)) return;
    if (names.find_first_not_of("tczyx") != names.npos || (known == 5 && names == "tczyx")) return;
    fail(field, "'" + names + "'",
         fmt::format("the axes must be {}; transpose the dataset", all.substr(all.size() - known)));
  }

  /// Returns the texts of an attribute: at most as many as there are axes. Returns nothing if it has more, or no texts.
  std::vector<std::string> text_attributes(const char* name) const {
    if (H5Aexists(data_set_.get(), name) <= 0) return {};
    const Hdf5Handle attribute(H5Aopen(data_set_.get(), name, H5P_DEFAULT), H5Aclose);
    const Hdf5Handle type(attribute ? H5Aget_type(attribute.get()) : -1, H5Tclose);
    const Hdf5Handle space(attribute ? H5Aget_space(attribute.get()) : -1, H5Sclose);
    if (!type || !space || H5Tget_class(type.get()) != H5T_STRING) return {};
    const hssize_t count = H5Sget_simple_extent_npoints(space.get());
    if (count < 1 || count > most_axes) return {};
    std::vector<std::string> texts;
    if (H5Tis_variable_str(type.get()) > 0) {
      std::array<char*, most_axes> read{};
      if (H5Aread(attribute.get(), type.get(), read.data()) < 0) return {};
      for (hssize_t i = 0; i < count; ++i) {
        const char* const text = read[static_cast<std::size_t>(i)];
        texts.emplace_back(text == nullptr ? "" : text);
      }
      H5Dvlen_reclaim(type.get(), space.get(), H5P_DEFAULT, read.data());
      return texts;
    }
    constexpr std::size_t most_length = std::size_t{1} << 20;
    const std::size_t length = H5Tget_size(type.get());
    if (length < 1 || length > most_length) return {};
    std::string all(length * static_cast<std::size_t>(count), '\0');
    if (H5Aread(attribute.get(), type.get(), all.data()) < 0) return {};
    for (std::size_t at = 0; at < all.size(); at += length) {
      const std::string text = all.substr(at, length);
      texts.push_back(text.substr(0, text.find('\0')));
    }
    return texts;
  }

  hid_t memory_type() const {
    switch (info_.type) {
      case VoxelType::uint8:
        return H5T_NATIVE_UINT8;
      case VoxelType::int8:
        return H5T_NATIVE_INT8;
      case VoxelType::uint16:
        return H5T_NATIVE_UINT16;
      case VoxelType::int16:
        return H5T_NATIVE_INT16;
      case VoxelType::uint32:
        return H5T_NATIVE_UINT32;
      case VoxelType::int32:
        return H5T_NATIVE_INT32;
      case VoxelType::uint64:
        return H5T_NATIVE_UINT64;
      case VoxelType::int64:
        return H5T_NATIVE_INT64;
      case VoxelType::float32:
        return H5T_NATIVE_FLOAT;
      case VoxelType::float64:
        break;
    }
    return H5T_NATIVE_DOUBLE;
  }

  void do_read(ChannelRange channels, const VoxelBox& box, std::byte* voxels) const override {
    const Hdf5Session session;
    const index_t per_sample = info_.channels / info_.samples, end = channels.begin + channels.count;
    const std::size_t channel_bytes = static_cast<std::size_t>(box.extent.volume()) * info_.bytes_per_voxel();
    for (index_t c = channels.begin; c < end;) {
      const index_t count = std::min(end - c, per_sample - c % per_sample);
      read_sample(c / per_sample, {c % per_sample, count}, box,
                  voxels + static_cast<std::size_t>(c - channels.begin) * channel_bytes);
      c += count;
    }
  }

  void read_sample(index_t sample, ChannelRange channels, const VoxelBox& box, std::byte* voxels) const {
    const auto size = [](index_t n) { return static_cast<hsize_t>(n); };
    const std::array<hsize_t, most_axes> start{size(sample), size(channels.begin), size(box.begin.z), size(box.begin.y),
                                               size(box.begin.x)};
    const std::array<hsize_t, most_axes> count{1, size(channels.count), size(box.extent.z), size(box.extent.y),
                                               size(box.extent.x)};
    const int skip = most_axes - rank_;
    const Hdf5Handle space(H5Dget_space(data_set_.get()), H5Sclose);
    const Hdf5Handle target(H5Screate_simple(rank_, count.data() + skip, nullptr), H5Sclose);
    if (!space || !target ||
        H5Sselect_hyperslab(space.get(), H5S_SELECT_SET, start.data() + skip, nullptr, count.data() + skip, nullptr) <
            0 ||
        H5Dread(data_set_.get(), memory_type(), target.get(), space.get(), H5P_DEFAULT, voxels) < 0) {
      fail("data", "cannot be read", "the file is truncated, damaged, or needs a filter that HDF5 does not find here",
           Hdf5Session::complaint());
    }
  }

  static constexpr int most_axes = 5;
  bool samples_;
  std::string name_;
  Hdf5Handle file_, data_set_;
  int rank_ = 3;
  std::size_t element_bytes_ = 0;
};

std::string reason_against_hdf5(const Candidate& candidate) {
  using namespace std::string_view_literals;
  if (candidate.folder) return "a folder; name a file";
  if (candidate.head.starts_with("\x89HDF\r\n\x1a\n"sv)) return "";
  // A user block may precede the signature; HDF5 itself knows where to look.
  return writes_hdf5(candidate.path) ? "" : "does not begin with an HDF5 signature";
}

std::string hdf5_version() {
  unsigned major = 0, minor = 0, release = 0;
  H5get_libversion(&major, &minor, &release);
  return fmt::format("HDF5 {}.{}.{}", major, minor, release);
}

}  // namespace

void require_nothing_else(const std::filesystem::path& file, std::span<const std::string> names) {
  std::error_code error;
  if (!std::filesystem::is_regular_file(file, error)) return;
  const Hdf5Session session;
  const Hdf5Handle handle(H5Fopen(file.c_str(), H5F_ACC_RDONLY, H5P_DEFAULT), H5Fclose);
  if (!handle) {
    throw IoError(
        fmt::format("{}: exists, would be replaced, and is not a readable HDF5 file{}; remove it, or use "
                    "another file",
                    file.string(), Hdf5Session::complaint()));
  }
  const DataSets sets(handle.get());
  for (const std::string& other : sets.all()) {
    const auto is_other = [&](const std::string& name) { return other == name || other.substr(1) == name; };
    if (std::any_of(names.begin(), names.end(), is_other)) continue;
    throw IoError(fmt::format("{}: holds the dataset or link {} too, and the file would be replaced; use another file",
                              file.string(), other));
  }
  if (!sets.complete()) {
    throw IoError(
        fmt::format("{}: would be replaced, but holds too many or unreadable objects to tell whether a "
                    "dataset would be lost; remove it, or use another file",
                    file.string()));
  }
}

bool writes_hdf5(const VolumePath& path) {
  const std::string extension = extension_of(path.file);
  return extension == ".h5" || extension == ".hdf5";
}

VolumeFormat hdf5_format() {
  return {.name = "HDF5",
          .extensions = ".h5, .hdf5",
          .reason_against = reason_against_hdf5,
          .open = [](const VolumePath& path, const OpenOptions& options) -> std::unique_ptr<VolumeSource> {
            return std::make_unique<Hdf5Source>(path, options.samples);
          },
          .writes = writes_hdf5,
          .check = check_hdf5,
          .create = create_hdf5,
          .version = hdf5_version};
}

}  // namespace convolume::nets::io::detail
