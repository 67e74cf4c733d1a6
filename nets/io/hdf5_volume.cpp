#include <algorithm>
#include <array>
#include <cstdlib>
#include <cstring>
#include <mutex>
#include <new>
#include <span>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <hdf5.h>

#include "core/checked.hpp"
#include "core/files.hpp"
#include "nets/io/volume_formats.hpp"

namespace convolume::nets::io::detail {
namespace {

using std::filesystem::path;

// HDF5 is thread-safe only if it was built so.
std::mutex& library_lock() {
  static std::mutex lock;
  return lock;
}

/// Takes the lock and keeps HDF5 from printing. The destructor restores the caller's error handler.
class Session {
 public:
  Session() : turn_(library_lock()) {
    H5Eget_auto2(H5E_DEFAULT, &print_, &data_);
    H5Eset_auto2(H5E_DEFAULT, nullptr, nullptr);
  }
  ~Session() { H5Eset_auto2(H5E_DEFAULT, print_, data_); }
  Session(const Session&) = delete;
  Session& operator=(const Session&) = delete;

  /// Returns HDF5's innermost reason for the last failure.
  static std::string complaint() {
    std::string text;
    H5Ewalk2(
        H5E_DEFAULT, H5E_WALK_UPWARD,
        [](unsigned, const H5E_error2_t* error, void* out) -> herr_t {
          auto& all = *static_cast<std::string*>(out);
          if (all.empty() && error->desc != nullptr) {
            try {
              all = fmt::format(" (HDF5: {})", error->desc);
            } catch (const std::bad_alloc&) {  // the message is lost, the failure itself is still reported
            }
          }
          return 0;
        },
        &text);
    return text;
  }

 private:
  std::lock_guard<std::mutex> turn_;
  H5E_auto2_t print_ = nullptr;
  void* data_ = nullptr;
};

class Handle {
 public:
  using Close = herr_t (*)(hid_t);
  Handle() = default;
  Handle(hid_t id, Close close) : id_(id), close_(close) {}
  Handle(Handle&& other) noexcept : id_(std::exchange(other.id_, -1)), close_(other.close_) {}
  Handle& operator=(Handle&& other) noexcept {
    std::swap(id_, other.id_);
    std::swap(close_, other.close_);
    return *this;
  }
  ~Handle() { close(); }
  hid_t get() const noexcept { return id_; }
  explicit operator bool() const noexcept { return id_ >= 0; }
  bool close() noexcept { return id_ < 0 || close_(std::exchange(id_, -1)) >= 0; }

 private:
  hid_t id_ = -1;
  Close close_ = nullptr;
};

/// Visits the groups of a file and lists 3-D datasets. The search is bounded, because hard links may form cycles.
class Candidates {
 public:
  explicit Candidates(hid_t file) { visit(file, "", 0); }
  const std::vector<std::string>& names() const noexcept { return names_; }
  std::string list() const {
    return names_.empty() ? "it holds no 3-D dataset" : fmt::format("3-D datasets: {}", fmt::join(names_, ", "));
  }

 private:
  void visit(hid_t group, const std::string& prefix, int depth) {
    H5G_info_t info{};
    if (H5Gget_info(group, &info) < 0) return;
    for (hsize_t i = 0; i < info.nlinks && seen_ < most_objects; ++i, ++seen_) {
      const auto length = H5Lget_name_by_idx(group, ".", H5_INDEX_NAME, H5_ITER_INC, i, nullptr, 0, H5P_DEFAULT);
      if (length <= 0 || length > 4096) continue;
      std::string name(static_cast<std::size_t>(length) + 1, '\0');
      H5Lget_name_by_idx(group, ".", H5_INDEX_NAME, H5_ITER_INC, i, name.data(), name.size(), H5P_DEFAULT);
      name.pop_back();
      H5L_info_t link{};
      // Soft and external links lead to objects that are listed elsewhere, or out of the file.
      if (H5Lget_info(group, name.c_str(), &link, H5P_DEFAULT) < 0 || link.type != H5L_TYPE_HARD) continue;
      const Handle object(H5Oopen(group, name.c_str(), H5P_DEFAULT), H5Oclose);
      if (!object) continue;
      const std::string full = prefix + "/" + name;
      const auto kind = H5Iget_type(object.get());
      if (kind == H5I_GROUP && depth < deepest_group) {
        visit(object.get(), full, depth + 1);
      } else if (kind == H5I_DATASET) {
        const Handle space(H5Dget_space(object.get()), H5Sclose);
        if (space && H5Sget_simple_extent_ndims(space.get()) == 3) names_.push_back(full);
      }
    }
  }

  static constexpr int most_objects = 4096, deepest_group = 8;
  int seen_ = 0;
  std::vector<std::string> names_;
};

class Reader {
 public:
  Reader(const path& file, const std::string& dataset) : file_(file) {
    handle_ = {H5Fopen(file.c_str(), H5F_ACC_RDONLY, H5P_DEFAULT), H5Fclose};
    if (!handle_) {
      throw FormatError(
          fmt::format("{}: not a readable HDF5 file: truncated, damaged, being written, or of another "
                      "kind; write or copy it again{}",
                      file.string(), Session::complaint()));
    }
    choose(dataset);
    inspect();
  }

  const VolumeInfo& info() const noexcept { return info_; }

  Tensor<float> read(const ReadOptions& options, std::pmr::memory_resource* memory) {
    require_budget(file_, info_.extent, options.max_bytes);
    require_stored_data(options.max_bytes);
    Tensor<float> volume({.n = 1, .c = 1, .extent = info_.extent}, memory);
    if (H5Dread(dataset_.get(), H5T_NATIVE_FLOAT, H5S_ALL, H5S_ALL, H5P_DEFAULT, volume.data()) < 0) {
      fail("data", "cannot be read", "the file is truncated, damaged, or needs a filter that HDF5 does not find here",
           Session::complaint());
    }
    return volume;
  }

 private:
  [[noreturn]] void fail(std::string_view field, std::string_view found, std::string_view remedy,
                         const std::string& complaint = "") const {
    throw FormatError(
        fmt::format("{}: dataset {}: {}: {}; {}{}", file_.string(), name_, field, found, remedy, complaint));
  }

  void choose(const std::string& dataset) {
    name_ = dataset;
    if (dataset.empty()) {
      const Candidates candidates(handle_.get());
      if (candidates.names().size() != 1) {
        throw FormatError(fmt::format("{}: which dataset? {}; name one", file_.string(), candidates.list()));
      }
      name_ = candidates.names().front();
    }
    const Handle object(H5Oopen(handle_.get(), name_.c_str(), H5P_DEFAULT), H5Oclose);
    if (!object || H5Iget_type(object.get()) != H5I_DATASET) {
      fail("name", object ? "a group or type, not a dataset" : "not in the file",
           fmt::format("name another ({})", Candidates(handle_.get()).list()));
    }
    dataset_ = {H5Dopen2(handle_.get(), name_.c_str(), H5P_DEFAULT), H5Dclose};
    if (!dataset_) fail("header", "unreadable", "the file is damaged", Session::complaint());
  }

  void inspect() {
    const Handle space(H5Dget_space(dataset_.get()), H5Sclose);
    const int rank = space ? H5Sget_simple_extent_ndims(space.get()) : -1;
    if (rank != 3) {
      fail("rank", std::to_string(rank),
           fmt::format("a volume has 3 axes [z][y][x]; name another dataset or store one channel ({})",
                       Candidates(handle_.get()).list()));
    }
    std::array<hsize_t, 3> size{};
    H5Sget_simple_extent_dims(space.get(), size.data(), nullptr);
    for (const hsize_t n : size) {
      if (n == 0 || !std::in_range<index_t>(n)) {
        fail("size", fmt::format("{} x {} x {}", size[0], size[1], size[2]), "every axis needs at least one voxel");
      }
    }
    info_.extent = {static_cast<index_t>(size[0]), static_cast<index_t>(size[1]), static_cast<index_t>(size[2])};

    const Handle type(H5Dget_type(dataset_.get()), H5Tclose);
    const auto kind = type ? H5Tget_class(type.get()) : H5T_NO_CLASS;
    const std::size_t bytes = type ? H5Tget_size(type.get()) : 0;
    const bool integer = kind == H5T_INTEGER && (bytes == 1 || bytes == 2 || bytes == 4 || bytes == 8);
    const bool floating = kind == H5T_FLOAT && (bytes == 2 || bytes == 4 || bytes == 8);
    if (!integer && !floating) {
      const char* const found = kind == H5T_COMPOUND ? "compound (complex numbers are stored like this)"
                                : kind == H5T_ENUM   ? "an enumeration (booleans are stored like this)"
                                : kind == H5T_STRING ? "text"
                                                     : "of another class or width";
      fail("element type", found, "store integers of 8 to 64 bits or floats of 16 to 64 bits");
    }
    const bool is_signed = integer && H5Tget_sign(type.get()) == H5T_SGN_2;
    info_.element_type = fmt::format("{}{}", floating ? "float" : is_signed ? "int" : "uint", 8 * bytes);
    element_bytes_ = bytes;
  }

  /// Compares the declared size with the stored bytes, because a header may declare any size.
  void require_stored_data(std::size_t max_bytes) const {
    const Handle creation(H5Dget_create_plist(dataset_.get()), H5Pclose);
    if (!creation) fail("header", "unreadable", "the file is damaged", Session::complaint());
    const auto layout = H5Pget_layout(creation.get());
    if (layout == H5D_VIRTUAL || (layout == H5D_CONTIGUOUS && H5Pget_external_count(creation.get()) != 0)) {
      fail("layout", "the data are in other files", "copy them into one file, e.g. with h5repack");
    }
    if (layout == H5D_CHUNKED) {
      std::array<hsize_t, 3> chunk{};
      std::uint64_t bytes = element_bytes_;
      bool fits = H5Pget_chunk(creation.get(), 3, chunk.data()) == 3;
      for (const hsize_t n : chunk) fits = fits && !__builtin_mul_overflow(bytes, std::uint64_t{n}, &bytes);
      // HDF5 decodes a chunk as a whole. A header could make a chunk up to 4 GiB for a few voxels.
      if (!fits || bytes > std::max<std::uint64_t>(max_bytes, std::uint64_t{64} << 20)) {
        fail("chunk size", fmt::format("{} x {} x {}", chunk[0], chunk[1], chunk[2]), "store smaller chunks");
      }
    }
    const std::uint64_t stored = H5Dget_storage_size(dataset_.get());
    const auto declared = static_cast<std::uint64_t>(info_.extent.volume()) * element_bytes_;  // at most twice the
                                                                                               // budget
    const bool plain = layout != H5D_CHUNKED;
    if (plain ? declared > stored : declared / largest_compression_ratio > stored || stored == 0) {
      fail("size",
           fmt::format("{} of {} declared, {} bytes stored", to_string(info_.extent), info_.element_type, stored),
           "the data were never written or the file is damaged");
    }
  }

  const path& file_;
  std::string name_;
  Handle handle_, dataset_;
  VolumeInfo info_;
  std::size_t element_bytes_ = 0;
};

/// Holds the file that HDF5 writes in our memory, which stays valid after HDF5 has closed the file. (H5Fget_file_image
/// would copy it, and in HDF5 1.10 it damages the checksum of the superblock.)
class Image {
 public:
  Image() = default;
  ~Image() { std::free(data_); }
  Image(const Image&) = delete;
  Image& operator=(const Image&) = delete;

  herr_t use_for(hid_t access) {
    H5FD_file_image_callbacks_t callbacks{};
    callbacks.image_malloc = [](std::size_t size, H5FD_file_image_op_t, void* self) { return resize(self, size); };
    callbacks.image_realloc = [](void*, std::size_t size, H5FD_file_image_op_t, void* self) {
      return resize(self, size);
    };
    callbacks.image_memcpy = [](void* to, const void* from, std::size_t size, H5FD_file_image_op_t, void*) {
      return std::memcpy(to, from, size);
    };
    callbacks.image_free = [](void*, H5FD_file_image_op_t, void*) -> herr_t { return 0; };
    callbacks.udata_copy = [](void* self) { return self; };
    callbacks.udata_free = [](void*) -> herr_t { return 0; };
    callbacks.udata = this;
    return H5Pset_file_image_callbacks(access, &callbacks);
  }

  /// Returns the contents of the closed file. The memory is larger than the file, so the superblock's end address gives
  /// the size. The result is empty if the superblock is not valid.
  std::span<const std::byte> file() const {
    constexpr std::size_t version_at = 8, end_at = 28;  // offsets in superblocks of version 2 and 3
    const auto* const bytes = static_cast<const std::byte*>(data_);
    if (bytes == nullptr || size_ < end_at + 8) return {};
    std::uint64_t end = 0;
    std::memcpy(&end, bytes + end_at, sizeof end);
    const auto version = std::to_integer<int>(bytes[version_at]);
    if (version < 2 || version > 3 || end > size_) return {};
    return {bytes, static_cast<std::size_t>(end)};
  }

 private:
  static void* resize(void* self, std::size_t size) {
    auto& image = *static_cast<Image*>(self);
    void* const data = std::realloc(image.data_, size);
    if (data == nullptr) return nullptr;
    image.size_ = size;
    return image.data_ = data;
  }

  void* data_ = nullptr;
  std::size_t size_ = 0;
};

class Encoder {
 public:
  explicit Encoder(const path& file) : file_(file) {}

  /// Encodes a whole HDF5 file with one dataset.
  void encode(const View<const float>& volume, const WriteOptions& options, Image& image) {
    // The file is kept in memory, because HDF5 cannot recover from a close that fails on a full disk.
    const Handle access(check(H5Pcreate(H5P_FILE_ACCESS)), H5Pclose);
    check(H5Pset_fapl_core(access.get(), std::size_t{1} << 20, false));
    check(image.use_for(access.get()));
    // File formats since 1.10 have checksums over their metadata, so damage is detected.
    check(H5Pset_libver_bounds(access.get(), H5F_LIBVER_V110, H5F_LIBVER_V110));
    const Handle creation(check(H5Pcreate(H5P_FILE_CREATE)), H5Pclose);
    check(H5Pset_obj_track_times(creation.get(), false));  // no times in the root group: equal voxels give equal bytes
    Handle file(check(H5Fcreate(file_.c_str(), H5F_ACC_TRUNC, creation.get(), access.get())), H5Fclose);
    make_groups(file.get(), options.dataset);
    write(file.get(), volume, options);
    check(H5Fflush(file.get(), H5F_SCOPE_GLOBAL));
    if (!file.close() || image.file().empty()) check(-1);
  }

 private:
  template <class T>
  T check(T result) const {
    if (result < 0) {
      throw IoError(fmt::format("{}: encoding the HDF5 file failed; check the dataset name, memory may be short{}",
                                file_.string(), Session::complaint()));
    }
    return result;
  }

  /// Makes the groups that contain `dataset`. Intermediate groups that HDF5 makes itself would store the time.
  void make_groups(hid_t file, const std::string& dataset) const {
    const Handle creation(check(H5Pcreate(H5P_GROUP_CREATE)), H5Pclose);
    check(H5Pset_obj_track_times(creation.get(), false));
    for (std::size_t slash = dataset.find('/', 1); slash != std::string::npos; slash = dataset.find('/', slash + 1)) {
      const std::string group = dataset.substr(0, slash);
      if (group.back() == '/') continue;  // a doubled slash
      const Handle made(check(H5Gcreate2(file, group.c_str(), H5P_DEFAULT, creation.get(), H5P_DEFAULT)), H5Gclose);
    }
  }

  void write(hid_t file, const View<const float>& volume, const WriteOptions& options) const {
    const Extent3 extent = volume.shape.extent;
    const bool bytes_only = options.element_type == ElementType::uint8;
    const std::array<index_t, 4> whole{volume.shape.c, extent.z, extent.y, extent.x};
    // Chunks of at most 256 KiB suit both reading slices and reading boxes.
    const std::array<index_t, 4> piece{1, std::min<index_t>(extent.z, 16), std::min<index_t>(extent.y, 64),
                                       std::min<index_t>(extent.x, 64)};
    std::array<hsize_t, 4> size{}, chunk{};
    std::copy(whole.begin(), whole.end(), size.begin());
    std::copy(piece.begin(), piece.end(), chunk.begin());
    const int rank = volume.shape.c > 1 ? 4 : 3;
    const int skip = 4 - rank;

    const Handle space(check(H5Screate_simple(rank, size.data() + skip, nullptr)), H5Sclose);
    const Handle creation(check(H5Pcreate(H5P_DATASET_CREATE)), H5Pclose);
    check(H5Pset_obj_track_times(creation.get(), false));  // equal voxels give equal bytes
    check(H5Pset_chunk(creation.get(), rank, chunk.data() + skip));
    check(H5Pset_shuffle(creation.get()));
    check(H5Pset_deflate(creation.get(), 4));
    check(H5Pset_fletcher32(creation.get()));
    const Handle dataset(check(H5Dcreate2(file, options.dataset.c_str(), bytes_only ? H5T_STD_U8LE : H5T_IEEE_F32LE,
                                          space.get(), H5P_DEFAULT, creation.get(), H5P_DEFAULT)),
                         H5Dclose);

    // Writes one layer of chunks at a time, so that each chunk is compressed once.
    const auto layer = static_cast<std::size_t>(piece[1] * extent.y * extent.x);
    std::vector<float> floats(bytes_only ? 0 : layer);
    std::vector<std::uint8_t> bytes(bytes_only ? layer : 0);
    for (index_t c = 0; c < volume.shape.c; ++c) {
      for (index_t z0 = 0; z0 < extent.z; z0 += piece[1]) {
        const index_t depth = std::min(piece[1], extent.z - z0);
        std::size_t i = 0;
        for (index_t z = z0; z < z0 + depth; ++z) {
          for (index_t y = 0; y < extent.y; ++y) {
            for (index_t x = 0; x < extent.x; ++x, ++i) {
              const float value = volume(0, c, z, y, x);
              if (bytes_only) {
                bytes[i] = to_byte(file_, value);
              } else {
                floats[i] = value;
              }
            }
          }
        }
        const std::array<hsize_t, 4> start{static_cast<hsize_t>(c), static_cast<hsize_t>(z0), 0, 0};
        const std::array<hsize_t, 4> count{1, static_cast<hsize_t>(depth), size[2], size[3]};
        const Handle source(check(H5Screate_simple(rank, count.data() + skip, nullptr)), H5Sclose);
        check(H5Sselect_hyperslab(space.get(), H5S_SELECT_SET, start.data() + skip, nullptr, count.data() + skip,
                                  nullptr));
        const void* const values = bytes_only ? static_cast<const void*>(bytes.data()) : floats.data();
        check(H5Dwrite(dataset.get(), bytes_only ? H5T_NATIVE_UINT8 : H5T_NATIVE_FLOAT, source.get(), space.get(),
                       H5P_DEFAULT, values));
      }
    }
  }

  const path& file_;
};

}  // namespace

VolumeInfo inspect_hdf5(const path& file, const std::string& dataset) {
  const Session session;
  return Reader(file, dataset).info();
}

Tensor<float> read_hdf5(const path& file, const ReadOptions& options, std::pmr::memory_resource* memory) {
  const Session session;
  return Reader(file, options.dataset).read(options, memory);
}

void write_hdf5(const path& file, const View<const float>& volume, const WriteOptions& options) {
  if (options.dataset.empty() || options.dataset.back() == '/' || options.dataset.find('\0') != std::string::npos) {
    throw InvalidArgument(
        fmt::format("{}: '{}' is not a valid dataset name; use one like /volume", file.string(), options.dataset));
  }
  Image image;  // outlives the session, in which HDF5 uses it
  {
    const Session session;
    Encoder(file).encode(volume, options, image);
  }
  const auto part = image.file();
  write_file_atomically(file, std::span(&part, 1));
}

std::string hdf5_version() {
  unsigned major = 0, minor = 0, release = 0;
  H5get_libversion(&major, &minor, &release);
  return fmt::format("HDF5 {}.{}.{}", major, minor, release);
}

}  // namespace convolume::nets::io::detail
