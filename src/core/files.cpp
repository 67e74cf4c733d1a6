#include "core/files.hpp"

#include <array>
#include <cerrno>
#include <cstring>

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
  int close() {
    const int result = ::close(fd_);
    fd_ = -1;
    return result;
  }

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

}  // namespace

void sync_directory(const std::filesystem::path& directory) {
  const Descriptor fd(::open(directory.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  // Some file systems refuse to sync a directory. The data of the file is already synced then.
  if (fd.get() >= 0) static_cast<void>(::fsync(fd.get()));
}

void write_file_atomically(const std::filesystem::path& file, std::span<const std::span<const std::byte>> parts) {
  const auto directory = file.has_parent_path() ? file.parent_path() : std::filesystem::path(".");
  const std::filesystem::path temporary = file.string() + fmt::format(".tmp-{}", ::getpid());
  try {
    Descriptor fd(::open(temporary.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666));
    if (fd.get() < 0) fail(temporary, "creating", errno);
    for (const auto part : parts) write_all(fd.get(), temporary, part);
    if (::fsync(fd.get()) != 0) fail(temporary, "syncing", errno);
    if (fd.close() != 0) fail(temporary, "closing", errno);
    if (::rename(temporary.c_str(), file.c_str()) != 0) fail(file, "renaming onto it", errno);
  } catch (...) {
    ::unlink(temporary.c_str());
    throw;
  }
  sync_directory(directory);
}

void write_file_atomically(const std::filesystem::path& file, std::string_view text) {
  const std::array parts{std::as_bytes(std::span(text))};
  write_file_atomically(file, parts);
}

std::string read_file(const std::filesystem::path& file, std::size_t limit) {
  const Descriptor fd(::open(file.c_str(), O_RDONLY | O_CLOEXEC));
  if (fd.get() < 0) fail(file, "opening", errno);
  struct stat status {};
  if (::fstat(fd.get(), &status) != 0) fail(file, "reading the size", errno);
  if (S_ISDIR(status.st_mode)) fail(file, "reading", EISDIR);
  const auto size = static_cast<std::size_t>(status.st_size);
  if (size > limit) {
    throw IoError(fmt::format("{}: the file has {} bytes, but at most {} are expected; check that it is the right file",
                              file.string(), size, limit));
  }
  std::string text(size, '\0');
  std::size_t filled = 0;
  while (filled < size) {
    const auto got = ::read(fd.get(), text.data() + filled, size - filled);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) fail(file, "reading", errno);
    if (got == 0) break;
    filled += static_cast<std::size_t>(got);
  }
  text.resize(filled);
  return text;
}

}  // namespace convolume
