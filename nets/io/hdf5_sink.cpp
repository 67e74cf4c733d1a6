// Writes HDF5 datasets, [z][y][x], [c][z][y][x] if there is more than one channel, or [n][c][z][y][x] if there is more
// than one sample. Chunks are compressed with deflate and have checksums.
#include <algorithm>
#include <array>
#include <cstring>
#include <limits>
#include <vector>

#include "nets/io/chunk_assembler.hpp"
#include "nets/io/hdf5_driver.hpp"
#include "nets/io/hdf5_library.hpp"
#include "nets/io/hdf5_volume.hpp"

namespace convolume::nets::io::detail {
namespace {

hid_t stored_type(VoxelType type) {
  switch (type) {
    case VoxelType::uint8:
      return H5T_STD_U8LE;
    case VoxelType::int8:
      return H5T_STD_I8LE;
    case VoxelType::uint16:
      return H5T_STD_U16LE;
    case VoxelType::int16:
      return H5T_STD_I16LE;
    case VoxelType::uint32:
      return H5T_STD_U32LE;
    case VoxelType::int32:
      return H5T_STD_I32LE;
    case VoxelType::uint64:
      return H5T_STD_U64LE;
    case VoxelType::int64:
      return H5T_STD_I64LE;
    case VoxelType::float32:
      return H5T_IEEE_F32LE;
    case VoxelType::float64:
      break;
  }
  return H5T_IEEE_F64LE;
}

/// Returns the extents of chunks. Those of the default, at most 256 KiB of floats, suit reading slices and boxes.
Extent3 chunk_of(const SinkOptions& options) {
  constexpr Extent3 usual{16, 64, 64};
  Extent3 chunk;
  for (int axis = 0; axis < 3; ++axis) {
    chunk[axis] = std::min(options.extent[axis], options.chunk[axis] > 0 ? options.chunk[axis] : usual[axis]);
  }
  return chunk;
}

std::string name_of_data_set(const VolumePath& path) { return path.inside.empty() ? "/volume" : path.inside; }

/// A file that is being written. check() and make_groups() need a session. Constructor, destructor and finish() take
/// one.
class Hdf5File {
 public:
  explicit Hdf5File(const std::filesystem::path& path) : path_(path), on_disk_(path), target_(on_disk_) {
    const Hdf5Session session;
    try {
      create();
    } catch (...) {
      close();
      throw;
    }
  }
  ~Hdf5File() {
    const Hdf5Session session;
    close();
  }
  Hdf5File(const Hdf5File&) = delete;
  Hdf5File& operator=(const Hdf5File&) = delete;

  const std::filesystem::path& path() const { return path_; }
  hid_t get() const { return file_.get(); }

  template <class T>
  T check(T result) const {
    if (target_.error() > 0) {
      throw IoError(fmt::format("{}: writing failed: {}{}", path_.string(), std::strerror(target_.error()),
                                target_.error() == ENOSPC ? "; free some space and try again" : ""));
    }
    if (result < 0) {
      throw IoError(fmt::format("{}: encoding the HDF5 file failed; check the dataset name, memory may be short{}",
                                path_.string(), Hdf5Session::complaint()));
    }
    return result;
  }

  /// Makes the groups that contain a dataset. Intermediate groups that HDF5 makes itself would store the time.
  void make_groups(const std::string& name) const {
    const Hdf5Handle creation(check(H5Pcreate(H5P_GROUP_CREATE)), H5Pclose);
    check(H5Pset_obj_track_times(creation.get(), false));
    for (std::size_t slash = name.find('/', 1); slash != std::string::npos; slash = name.find('/', slash + 1)) {
      const std::string group = name.substr(0, slash);
      if (group.back() == '/') continue;  // a doubled slash
      if (check(H5Lexists(file_.get(), group.c_str(), H5P_DEFAULT)) > 0) continue;
      const Hdf5Handle made(check(H5Gcreate2(file_.get(), group.c_str(), H5P_DEFAULT, creation.get(), H5P_DEFAULT)),
                            H5Gclose);
    }
  }

  /// From now on nothing is written.
  void abandon() noexcept { target_.abandon(); }

  /// Makes the file appear under its name.
  void finish() {
    {
      const Hdf5Session session;
      check(H5Fflush(file_.get(), H5F_SCOPE_GLOBAL));
      if (!file_.close()) check(-1);
      check(0);
    }
    on_disk_.commit();
  }

 private:
  /// Closes the file without writing what is left.
  void close() {
    target_.abandon();
    file_.close();
  }

  void create() {
    const Hdf5Handle access(check(H5Pcreate(H5P_FILE_ACCESS)), H5Pclose);
    check(target_.use_for(access.get()));
    // File formats since 1.10 have checksums over their metadata, so damage is detected.
    check(H5Pset_libver_bounds(access.get(), H5F_LIBVER_V110, H5F_LIBVER_V110));
    const Hdf5Handle creation(check(H5Pcreate(H5P_FILE_CREATE)), H5Pclose);
    check(H5Pset_obj_track_times(creation.get(), false));  // no times in the root group: equal voxels give equal bytes
    file_ = {check(H5Fcreate(path_.c_str(), H5F_ACC_TRUNC, creation.get(), access.get())), H5Fclose};
  }

  std::filesystem::path path_;
  AtomicFile on_disk_;
  Hdf5Target target_;
  Hdf5Handle file_;
};

class Hdf5Sink final : public VolumeSink {
 public:
  /// Writes a dataset of a file. If the file has no other one, finish() completes it.
  Hdf5Sink(const VolumePath& path, const SinkOptions& options, std::shared_ptr<Hdf5File> file, bool alone)
      : VolumeSink(path, options),
        file_(std::move(file)),
        alone_(alone),
        chunks_(options, 1, chunk_of(options), false,
                path.file.has_parent_path() ? path.file.parent_path() : std::filesystem::path("."),
                [this](const ChunkPlace& place, std::span<const std::byte> voxels) { put(place, voxels); }) {
    const Hdf5Session session;
    try {
      file_->make_groups(name_of_data_set(path));
      make_data_set(name_of_data_set(path));
    } catch (...) {
      close();
      throw;
    }
  }
  ~Hdf5Sink() override {
    const Hdf5Session session;
    close();
  }

 private:
  /// Closes a dataset that is not finished without writing what is left. Needs a session.
  void close() {
    if (!finished_) file_->abandon();
    data_set_.close();
  }

  template <class T>
  T check(T result) const {
    return file_->check(result);
  }

  void make_data_set(const std::string& name) {
    const Extent3 &e = options().extent, chunk = chunk_of(options());
    rank_ = options().samples > 1 ? 5 : options().channels > 1 ? 4 : 3;
    const int skip = most_axes - rank_;
    const auto size = [](index_t n) { return static_cast<hsize_t>(n); };
    const std::array<hsize_t, most_axes> whole{size(options().samples), size(channels_per_sample()), size(e.z),
                                               size(e.y), size(e.x)};
    const std::array<hsize_t, most_axes> piece{1, 1, size(chunk.z), size(chunk.y), size(chunk.x)};
    const Hdf5Handle space(check(H5Screate_simple(rank_, whole.data() + skip, nullptr)), H5Sclose);
    const Hdf5Handle creation(check(H5Pcreate(H5P_DATASET_CREATE)), H5Pclose);
    check(H5Pset_obj_track_times(creation.get(), false));
    check(H5Pset_fill_time(creation.get(), H5D_FILL_TIME_NEVER));  // every voxel is written
    check(H5Pset_chunk(creation.get(), rank_, piece.data() + skip));
    if (deflates(options())) {
      check(H5Pset_shuffle(creation.get()));
      check(H5Pset_deflate(creation.get(), 4));
    }
    if (options().codec != Codec::raw) check(H5Pset_fletcher32(creation.get()));
    data_set_ = {check(H5Dcreate2(file_->get(), name.c_str(), stored_type(options().type), space.get(), H5P_DEFAULT,
                                  creation.get(), H5P_DEFAULT)),
                 H5Dclose};
    // A spacing in pixels or in an unknown unit has no place here.
    const auto zyx = options().spacing ? spacing_in_micrometres(*options().spacing) : std::nullopt;
    if (zyx) write_spacing(*zyx);
    for (const auto& [name, text] : options().notes) write_note("convolume_" + name, text);
  }

  void write_note(const std::string& name, const std::string& text) const {
    const Hdf5Handle type(check(H5Tcopy(H5T_C_S1)), H5Tclose);
    check(H5Tset_size(type.get(), std::max<std::size_t>(1, text.size())));
    const Hdf5Handle space(check(H5Screate(H5S_SCALAR)), H5Sclose);
    const Hdf5Handle attribute(
        check(H5Acreate2(data_set_.get(), name.c_str(), type.get(), space.get(), H5P_DEFAULT, H5P_DEFAULT)), H5Aclose);
    check(H5Awrite(attribute.get(), type.get(), text.c_str()));
  }

  void write_spacing(const std::array<double, 3>& zyx) const {
    constexpr hsize_t three = 3;
    const Hdf5Handle space(check(H5Screate_simple(1, &three, nullptr)), H5Sclose);
    const Hdf5Handle attribute(
        check(H5Acreate2(data_set_.get(), "element_size_um", H5T_IEEE_F64LE, space.get(), H5P_DEFAULT, H5P_DEFAULT)),
        H5Aclose);
    check(H5Awrite(attribute.get(), H5T_NATIVE_DOUBLE, zyx.data()));
  }

  void do_write(ChannelRange channels, const VoxelBox& box, const std::byte* voxels) override {
    chunks_.write(channels, box, voxels);
  }

  void put(const ChunkPlace& place, std::span<const std::byte> voxels) {
    const Hdf5Session session;
    const auto size = [](index_t n) { return static_cast<hsize_t>(n); };
    const VoxelBox& box = place.box;
    const index_t n = place.channels.begin / channels_per_sample(), c = place.channels.begin % channels_per_sample();
    const std::array<hsize_t, most_axes> start{size(n), size(c), size(box.begin.z), size(box.begin.y),
                                               size(box.begin.x)};
    const std::array<hsize_t, most_axes> count{1, 1, size(box.extent.z), size(box.extent.y), size(box.extent.x)};
    const int skip = most_axes - rank_;
    const Hdf5Handle space(check(H5Dget_space(data_set_.get())), H5Sclose);
    const Hdf5Handle source(check(H5Screate_simple(rank_, count.data() + skip, nullptr)), H5Sclose);
    check(H5Sselect_hyperslab(space.get(), H5S_SELECT_SET, start.data() + skip, nullptr, count.data() + skip, nullptr));
    // On machines of the other byte order, HDF5 converts from the native type.
    const Hdf5Handle type(check(H5Tget_native_type(stored_type(options().type), H5T_DIR_ASCEND)), H5Tclose);
    check(H5Dwrite(data_set_.get(), type.get(), source.get(), space.get(), H5P_DEFAULT, voxels.data()));
  }

  void do_finish() override {
    chunks_.check_complete(path());
    {
      const Hdf5Session session;
      if (!data_set_.close()) check(-1);
      check(0);
    }
    if (alone_) file_->finish();
    finished_ = true;
  }

  index_t channels_per_sample() const { return options().channels / options().samples; }

  static constexpr int most_axes = 5;
  std::shared_ptr<Hdf5File> file_;
  bool alone_, finished_ = false;
  Hdf5Handle data_set_;
  ChunkAssembler chunks_;
  int rank_ = 3;
};

/// Throws InvalidArgument for a name, a codec or chunks that HDF5 does not take.
void check_data_set(const VolumePath& path, const SinkOptions& options) {
  const std::string& name = path.inside;
  if (!name.empty() && (name.back() == '/' || name.find('\0') != std::string::npos)) {
    throw InvalidArgument(
        fmt::format("{}: '{}' is not a valid dataset name; use one like /volume", path.file.string(), name));
  }
  if (options.codec == Codec::zstd || options.codec == Codec::blosc) {
    throw InvalidArgument(fmt::format(
        "{}: HDF5 files are written with the codec deflate or raw; use one of them, or write Zarr", path.text()));
  }
  const Extent3 chunk = chunk_of(options);
  if (chunk.volume() * static_cast<index_t>(size_of(options.type)) > std::numeric_limits<std::uint32_t>::max()) {
    throw InvalidArgument(fmt::format("{}: chunks of {} voxels have more than 4 GiB; use smaller ones (--chunk)",
                                      path.text(), to_string(chunk)));
  }
}

}  // namespace

void check_hdf5(const VolumePath& path, const SinkOptions& options) {
  check_data_set(path, options);
  require_nothing_else(path.file, std::array{name_of_data_set(path)});
}

std::unique_ptr<VolumeSink> create_hdf5(const VolumePath& path, const SinkOptions& options) {
  return std::make_unique<Hdf5Sink>(path, options, std::make_shared<Hdf5File>(path.file), true);
}

}  // namespace convolume::nets::io::detail

namespace convolume::nets::io {

struct DataSetFile::Impl : detail::Hdf5File {
  using Hdf5File::Hdf5File;
};

DataSetFile::DataSetFile(const std::filesystem::path& file, std::span<const std::string> names) {
  detail::require_nothing_else(file, names);
  impl_ = std::make_shared<Impl>(file);
}
DataSetFile::~DataSetFile() = default;

std::unique_ptr<VolumeSink> DataSetFile::create(const std::string& name, const SinkOptions& options) {
  const VolumePath path{.file = impl_->path(), .inside = name};
  detail::check_data_set(path, options);
  return std::make_unique<detail::Hdf5Sink>(path, options, impl_, false);
}

void DataSetFile::finish() { impl_->finish(); }

}  // namespace convolume::nets::io
