#include "convolume/wisdom.hpp"

#include <cerrno>
#include <cstdlib>
#include <cstring>

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <unistd.h>

#include "convolume/error.hpp"
#include "core/files.hpp"
#include "core/fork.hpp"
#include "core/numerics_record.hpp"

namespace convolume {
namespace {

constexpr std::string_view header = "convolume wisdom 1\n";

/// An advisory lock on "<file>.lock", held while a store reads, merges and renames.
class FileLock {
 public:
  explicit FileLock(const std::filesystem::path& file) : fd_(::open(file.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0666)) {
    if (fd_ < 0) throw IoError(fmt::format("{}: opening the lock failed: {}", file.string(), std::strerror(errno)));
    while (::flock(fd_, LOCK_EX) != 0) {
      if (errno != EINTR) {
        ::close(fd_);
        throw IoError(fmt::format("{}: locking failed: {}", file.string(), std::strerror(errno)));
      }
    }
  }
  ~FileLock() { ::close(fd_); }
  FileLock(const FileLock&) = delete;
  FileLock& operator=(const FileLock&) = delete;

 private:
  int fd_;
};

std::map<std::string, std::string> load(const std::filesystem::path& file) {
  if (!std::filesystem::exists(file)) return {};
  const std::string text = read_file(file, std::size_t{1} << 26);
  if (!text.starts_with(header)) {
    throw FormatError(fmt::format("{}: not a wisdom store; move it away or set CONVOLUME_WISDOM", file.string()));
  }
  return NumericsRecord::from_text(std::string_view(text).substr(header.size())).entries();
}

}  // namespace

std::filesystem::path WisdomStore::default_path() {
  const auto set = [](const char* name) {
    const char* value = std::getenv(name);
    return value != nullptr && *value != '\0' ? value : nullptr;
  };
  if (const char* path = set("CONVOLUME_WISDOM")) return path;
  if (const char* cache = set("XDG_CACHE_HOME")) return std::filesystem::path(cache) / "convolume" / "wisdom";
  if (const char* home = set("HOME")) return std::filesystem::path(home) / ".cache" / "convolume" / "wisdom";
  return std::filesystem::temp_directory_path() / "convolume-wisdom";
}

WisdomStore::WisdomStore(std::filesystem::path file) : file_(std::move(file)), entries_(load(file_)) {}

std::optional<std::string> WisdomStore::find(const std::string& key) const {
  const std::lock_guard lock(fork_lock(ForkLock::wisdom));
  const auto found = entries_.find(key);
  if (found == entries_.end()) return std::nullopt;
  return found->second;
}

void WisdomStore::store(const std::string& key, const std::string& value) {
  const std::lock_guard lock(fork_lock(ForkLock::wisdom));
  std::error_code error;
  if (file_.has_parent_path()) std::filesystem::create_directories(file_.parent_path(), error);
  if (error) throw IoError(fmt::format("{}: creating its folder failed: {}", file_.string(), error.message()));
  const FileLock file_lock(file_.string() + ".lock");
  for (auto& [other_key, other_value] : load(file_)) entries_.insert_or_assign(other_key, other_value);
  entries_.insert_or_assign(key, value);
  NumericsRecord record;
  for (const auto& [k, v] : entries_) record.set(k, v);
  write_file_atomically(file_, std::string(header) + record.to_text());
}

}  // namespace convolume
