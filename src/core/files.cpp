#include "core/files.hpp"

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <utility>

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include "convolume/error.hpp"

namespace convolume {
namespace {

[[noreturn]] void fail(const std::filesystem::path& file, const char* action, int error) {
  const char* remedy = error == ENOSPC   ? "; free some space and try again"
                       : error == ENOENT ? "; check the path"
                       : error == EACCES ? "; check the permissions"
                                         : "";
  throw IoError(fmt::format("{}: {} failed: {}{}", file.string(), action, std::strerror(error), remedy));
}

class Descriptor {
 public:
  explicit Descriptor(int fd) : fd_(fd) {}
  ~Descriptor() {
    if (fd_ >= 0) ::close(fd_);
  }
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;
  int get() const { return fd_; }
  int release() { return std::exchange(fd_, -1); }

 private:
  int fd_;
};

void write_all(int fd, const std::filesystem::path& file, std::span<const std::byte> bytes) {
  while (!bytes.empty()) {
    const auto written = ::write(fd, bytes.data(), bytes.size());
    if (written < 0) {
      if (errno == EINTR) continue;
      fail(file, "writing", errno);
    }
    bytes = bytes.subspan(static_cast<std::size_t>(written));
  }
}

void write_all_at(int fd, const std::filesystem::path& file, std::uint64_t offset, std::span<const std::byte> bytes) {
  while (!bytes.empty()) {
    const auto written = ::pwrite(fd, bytes.data(), bytes.size(), static_cast<off_t>(offset));
    if (written < 0) {
      if (errno == EINTR) continue;
      fail(file, "writing", errno);
    }
    bytes = bytes.subspan(static_cast<std::size_t>(written));
    offset += static_cast<std::uint64_t>(written);
  }
}

}  // namespace

void sync_directory(const std::filesystem::path& directory) {
  const Descriptor fd(::open(directory.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  // Some file systems refuse to sync a directory. The data of the file is already synced then.
  if (fd.get() >= 0) static_cast<void>(::fsync(fd.get()));
}

std::string temporary_suffix() {
  static std::atomic<std::uint64_t> count{0};
  return fmt::format(".tmp-{}-{}", ::getpid(), count.fetch_add(1, std::memory_order_relaxed));
}

void rename_without_replacing(const std::filesystem::path& from, const std::filesystem::path& to) {
  int error = ::renameat2(AT_FDCWD, from.c_str(), AT_FDCWD, to.c_str(), RENAME_NOREPLACE) == 0 ? 0 : errno;
  if (error == EINVAL || error == ENOSYS) {  // some file systems cannot do both in one step
    struct stat status {};
    error = ::lstat(to.c_str(), &status) == 0 ? EEXIST : 0;
    if (error == 0 && ::rename(from.c_str(), to.c_str()) != 0) error = errno;
  }
  if (error == EEXIST) {
    throw IoError(fmt::format("{}: exists already and is not replaced; remove it, or use another name", to.string()));
  }
  if (error != 0) fail(to, "renaming onto it", error);
}

AtomicFile::AtomicFile(std::filesystem::path target) : target_(std::move(target)) {
  do {
    temporary_ = target_.string() + temporary_suffix();
    fd_ = ::open(temporary_.c_str(), O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
  } while (fd_ < 0 && errno == EEXIST);
  if (fd_ < 0) fail(temporary_, "creating", errno);
}

AtomicFile::~AtomicFile() {
  if (fd_ >= 0) ::close(fd_);
  if (!temporary_.empty()) ::unlink(temporary_.c_str());
}

void AtomicFile::append(std::span<const std::byte> bytes) { write_all(fd_, temporary_, bytes); }

void AtomicFile::write_at(std::uint64_t offset, std::span<const std::byte> bytes) {
  write_all_at(fd_, temporary_, offset, bytes);
}

void AtomicFile::commit() {
  if (::fsync(fd_) != 0) fail(temporary_, "syncing", errno);
  if (::close(std::exchange(fd_, -1)) != 0) fail(temporary_, "closing", errno);
  if (::rename(temporary_.c_str(), target_.c_str()) != 0) fail(target_, "renaming onto it", errno);
  temporary_.clear();
  sync_directory(target_.has_parent_path() ? target_.parent_path() : std::filesystem::path("."));
}

ReadableFile::ReadableFile(std::filesystem::path file) : path_(std::move(file)) {
  // O_NONBLOCK: opening a pipe without a writer must fail below rather than wait.
  Descriptor fd(::open(path_.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  if (fd.get() < 0) fail(path_, "opening", errno);
  struct stat status {};
  if (::fstat(fd.get(), &status) != 0) fail(path_, "reading the size", errno);
  if (!S_ISREG(status.st_mode)) {
    throw IoError(fmt::format("{}: is {}; name a file", path_.string(),
                              S_ISDIR(status.st_mode) ? "a directory" : "not a regular file"));
  }
  size_ = static_cast<std::uint64_t>(status.st_size);
  fd_ = fd.release();
}

ReadableFile ReadableFile::temporary(const std::filesystem::path& folder) {
  ReadableFile made;
  made.path_ = folder / (".convolume" + temporary_suffix());
  made.fd_ = ::open(folder.c_str(), O_RDWR | O_TMPFILE | O_CLOEXEC, 0600);
  if (made.fd_ >= 0) return made;
  do {  // some file systems have no nameless files
    made.path_ = folder / (".convolume" + temporary_suffix());
    made.fd_ = ::open(made.path_.c_str(), O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
  } while (made.fd_ < 0 && errno == EEXIST);
  if (made.fd_ < 0) fail(made.path_, "creating", errno);
  ::unlink(made.path_.c_str());
  return made;
}

ReadableFile::ReadableFile(ReadableFile&& other) noexcept
    : path_(std::move(other.path_)), size_(other.size_), fd_(std::exchange(other.fd_, -1)) {}

ReadableFile::~ReadableFile() {
  if (fd_ >= 0) ::close(fd_);
}

std::size_t ReadableFile::read_at(std::uint64_t offset, std::span<std::byte> bytes) const {
  std::size_t filled = 0;
  while (filled < bytes.size()) {
    const auto got = ::pread(fd_, bytes.data() + filled, bytes.size() - filled, static_cast<off_t>(offset + filled));
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) fail(path_, "reading", errno);
    if (got == 0) break;
    filled += static_cast<std::size_t>(got);
  }
  return filled;
}

bool ReadableFile::bypass_cache() {
  if (::fdatasync(fd_) != 0) fail(path_, "syncing", errno);
  const int flags = ::fcntl(fd_, F_GETFL);
  return flags >= 0 && ::fcntl(fd_, F_SETFL, flags | O_DIRECT) == 0;
}

void ReadableFile::write_at(std::uint64_t offset, std::span<const std::byte> bytes) {
  write_all_at(fd_, path_, offset, bytes);
  size_ = std::max(size_, offset + bytes.size());
}

void write_file_atomically(const std::filesystem::path& file, std::span<const std::span<const std::byte>> parts) {
  AtomicFile written(file);
  for (const auto part : parts) written.append(part);
  written.commit();
}

void write_file_atomically(const std::filesystem::path& file, std::string_view text) {
  const std::array parts{std::as_bytes(std::span(text))};
  write_file_atomically(file, parts);
}

std::string read_file(const std::filesystem::path& file, std::size_t limit) {
  const ReadableFile opened(file);
  if (opened.size() > limit) {
    throw IoError(fmt::format("{}: the file has {} bytes, but at most {} are expected; check that it is the right file",
                              file.string(), opened.size(), limit));
  }
  std::string text(static_cast<std::size_t>(opened.size()), '\0');
  text.resize(opened.read_at(0, std::as_writable_bytes(std::span(text))));
  return text;
}

}  // namespace convolume
