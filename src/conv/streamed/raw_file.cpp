// Tensors in raw files: the elements in the plain layout, without a header.
#include <algorithm>
#include <cerrno>
#include <cstring>
#include <vector>

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "convolume/error.hpp"
#include "convolume/streamed.hpp"
#include "core/files.hpp"

namespace convolume {
namespace {

/// Stretches of the file that lie closer together than this are read at once, because that is faster than to begin
/// another read.
constexpr std::uint64_t least_gap = std::uint64_t{16} << 10;
/// Memory through which stretches are read. A stretch of at least half of it is read to its place directly.
constexpr std::uint64_t staging_bytes = std::uint64_t{1} << 20;
/// O_DIRECT reads whole blocks of the device to addresses that are multiples of one.
constexpr std::uint64_t device_block = 4096;

std::uint64_t bytes_of(const RawFile& file) {
  return static_cast<std::uint64_t>(file.shape.elements()) * size_of(file.type);
}

/// A stretch of neighbouring elements of the file, and its place in the box.
struct Run {
  std::uint64_t begin = 0, bytes = 0, to = 0;
  std::uint64_t end() const noexcept { return begin + bytes; }
};

/// Calls body(run) for each stretch of a box, in the order of the file.
template <class Body>
void for_each_run(const RawFile& file, const TensorBox& box, const Body& body) {
  const std::array<index_t, 5> whole{file.shape.n, file.shape.c, file.shape.extent.z, file.shape.extent.y,
                                     file.shape.extent.x};
  const std::array<index_t, 5> first{box.n, box.c, box.begin.z, box.begin.y, box.begin.x};
  const std::array<index_t, 5> size{box.shape.n, box.shape.c, box.shape.extent.z, box.shape.extent.y,
                                    box.shape.extent.x};
  // Axes behind this one are complete, so they join to one stretch.
  std::size_t split = 4;
  index_t length = size[4];
  while (split > 0 && size[split] == whole[split]) length *= size[--split];
  index_t runs = 1;
  for (std::size_t axis = 0; axis < split; ++axis) runs *= size[axis];
  const auto element = static_cast<index_t>(size_of(file.type));
  for (index_t i = 0; i < runs; ++i) {
    std::array<index_t, 5> at = first;
    for (std::size_t axis = split, rest = static_cast<std::size_t>(i); axis-- > 0;) {
      at[axis] += static_cast<index_t>(rest % static_cast<std::size_t>(size[axis]));
      rest /= static_cast<std::size_t>(size[axis]);
    }
    index_t place = 0;
    for (std::size_t axis = 0; axis < 5; ++axis) place = place * whole[axis] + at[axis];
    body(Run{file.offset + static_cast<std::uint64_t>(place * element), static_cast<std::uint64_t>(length * element),
             static_cast<std::uint64_t>(i * length * element)});
  }
}

[[noreturn]] void fail_short(const std::filesystem::path& path, std::uint64_t wanted, std::uint64_t found) {
  throw IoError(fmt::format("{}: the file ends at byte {}, {} were expected; it has become shorter while it was read",
                            path.string(), found, wanted));
}

void check_length(const RawFile& file, std::uint64_t found) {
  const Shape5& s = file.shape;
  if (std::min({s.n, s.c, s.extent.z, s.extent.y, s.extent.x}) < 1) {
    throw InvalidArgument(fmt::format("{}: the shape {} has no elements", file.path.string(), to_string(s)));
  }
  if (found >= file.offset && found - file.offset >= bytes_of(file)) return;
  throw FormatError(fmt::format("{}: the file has {} bytes, but {} of {} take {}; check shape, type and offset",
                                file.path.string(), found, to_string(file.shape), name_of(file.type),
                                file.offset + bytes_of(file)));
}

/// A descriptor that reads past the page cache.
class DirectFile {
 public:
  explicit DirectFile(const std::filesystem::path& path)
      : path_(path), fd_(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_DIRECT)) {}
  ~DirectFile() {
    if (fd_ >= 0) ::close(fd_);
  }
  DirectFile(const DirectFile&) = delete;
  DirectFile& operator=(const DirectFile&) = delete;

  explicit operator bool() const noexcept { return fd_ >= 0; }
  /// Reads whole blocks. Returns the bytes that the file has there.
  std::uint64_t read(std::uint64_t offset, std::byte* to, std::uint64_t bytes) const {
    std::uint64_t filled = 0;
    while (filled < bytes) {
      const auto got = ::pread(fd_, to + filled, bytes - filled, static_cast<off_t>(offset + filled));
      if (got < 0 && errno == EINTR) continue;
      if (got < 0) throw IoError(fmt::format("{}: reading failed: {}", path_.string(), std::strerror(errno)));
      if (got == 0) break;
      filled += static_cast<std::uint64_t>(got);
      if (filled % device_block != 0) break;  // the end of the file
    }
    return filled;
  }

 private:
  std::filesystem::path path_;
  int fd_ = -1;
};

class RawSource final : public TensorSource {
 public:
  explicit RawSource(const RawFile& file)
      : TensorSource(file.path.string(), file.shape, file.type), file_(file), opened_(file.path) {
    check_length(file, opened_.size());
    if (!file.direct) return;
    direct_ = std::make_unique<DirectFile>(file.path);
    if (!*direct_) direct_.reset();
  }

 private:
  void do_read(const TensorBox& box, void* to) override {
    auto* const dense = static_cast<std::byte*>(to);
    pending_.clear();
    for_each_run(file_, box, [&](const Run& run) {
      if (!direct_ && run.bytes >= staging_bytes / 2) {
        const std::uint64_t got = opened_.read_at(run.begin, {dense + run.to, run.bytes});
        if (got < run.bytes) fail_short(file_.path, run.end(), run.begin + got);
        return;
      }
      for (Run part = run; part.bytes > 0;) {
        const std::uint64_t bytes = std::min(part.bytes, staging_bytes - 2 * device_block);
        add({part.begin, bytes, part.to}, dense);
        part = {part.begin + bytes, part.bytes - bytes, part.to + bytes};
      }
    });
    flush(dense);
  }

  /// Adds a stretch to those that are read at once.
  void add(const Run& run, std::byte* dense) {
    const bool near = !pending_.empty() && run.begin - pending_.back().end() <= least_gap &&
                      run.end() - pending_.front().begin <= staging_bytes - 2 * device_block;
    if (!near) flush(dense);
    pending_.push_back(run);
  }

  void flush(std::byte* dense) {
    if (pending_.empty()) return;
    const std::uint64_t begin = pending_.front().begin / device_block * device_block, end = pending_.back().end();
    const std::uint64_t bytes = (end - begin + device_block - 1) / device_block * device_block;
    if (staging_ == nullptr) staging_.reset(new (std::align_val_t(device_block)) std::byte[staging_bytes]);
    std::uint64_t got = 0;
    if (direct_) {
      got = direct_->read(begin, staging_.get(), bytes);
    } else {
      got = opened_.read_at(begin, {staging_.get(), end - begin});
    }
    if (begin + got < end) fail_short(file_.path, end, begin + got);
    for (const Run& run : pending_) std::memcpy(dense + run.to, staging_.get() + (run.begin - begin), run.bytes);
    pending_.clear();
  }

  struct Free {
    void operator()(std::byte* memory) const noexcept { ::operator delete[](memory, std::align_val_t(device_block)); }
  };
  RawFile file_;
  ReadableFile opened_;
  std::unique_ptr<DirectFile> direct_;
  std::unique_ptr<std::byte[], Free> staging_;
  std::vector<Run> pending_;
};

class MappedSource final : public TensorSource {
 public:
  explicit MappedSource(const RawFile& file) : TensorSource(file.path.string(), file.shape, file.type), file_(file) {
    const ReadableFile opened(file.path);
    check_length(file, opened.size());
    fd_ = ::open(file.path.c_str(), O_RDONLY | O_CLOEXEC);
    bytes_ = file.offset + bytes_of(file);
    map_ = fd_ < 0 ? MAP_FAILED : ::mmap(nullptr, bytes_, PROT_READ, MAP_SHARED, fd_, 0);
    if (map_ == MAP_FAILED) {
      const int error = errno;
      if (fd_ >= 0) ::close(fd_);
      throw IoError(fmt::format("{}: mapping the file failed: {}", file.path.string(), std::strerror(error)));
    }
  }
  ~MappedSource() override {
    ::munmap(map_, bytes_);
    ::close(fd_);
  }

 private:
  void do_read(const TensorBox& box, void* to) override {
    struct stat status {};
    if (::fstat(fd_, &status) != 0 || static_cast<std::uint64_t>(status.st_size) < bytes_) {
      fail_short(file_.path, bytes_, static_cast<std::uint64_t>(status.st_size));
    }
    auto* const dense = static_cast<std::byte*>(to);
    for_each_run(file_, box, [&](const Run& run) {
      std::memcpy(dense + run.to, static_cast<const std::byte*>(map_) + run.begin, run.bytes);
    });
  }

  RawFile file_;
  int fd_ = -1;
  std::uint64_t bytes_ = 0;
  void* map_ = MAP_FAILED;
};

class RawSink final : public TensorSink {
 public:
  explicit RawSink(const RawFile& file)
      : TensorSink(file.path.string(), file.shape, file.type), file_(file), written_(file.path) {
    // Not all file systems can take the space at once.
    const bool taken = ::fallocate(written_.descriptor(), 0, 0, static_cast<off_t>(bytes_of(file))) == 0;
    if (!taken && (errno == ENOSPC || errno == EFBIG || errno == EDQUOT)) {
      throw IoError(fmt::format("{}: {} bytes of {} do not fit: {}; make room, or write to another file system",
                                file.path.string(), bytes_of(file), to_string(file.shape), std::strerror(errno)));
    }
  }
  void finish() override { written_.commit(); }

 private:
  void do_write(const TensorBox& box, const void* from) override {
    const auto* const dense = static_cast<const std::byte*>(from);
    for_each_run(file_, box, [&](const Run& run) { written_.write_at(run.begin, {dense + run.to, run.bytes}); });
  }
  RawFile file_;
  AtomicFile written_;
};

}  // namespace

std::unique_ptr<TensorSource> raw_source(const RawFile& file) { return std::make_unique<RawSource>(file); }

std::unique_ptr<TensorSource> mapped_source(const RawFile& file) { return std::make_unique<MappedSource>(file); }

std::unique_ptr<TensorSink> raw_sink(const RawFile& file) {
  if (file.offset != 0 || file.direct) {
    throw InvalidArgument(
        fmt::format("{}: a raw file is written from its begin and through the page cache; set no offset, not direct",
                    file.path.string()));
  }
  return std::make_unique<RawSink>(file);
}

}  // namespace convolume
