#include "core/ownership.hpp"

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <fstream>
#include <optional>
#include <thread>

#include <fcntl.h>
#include <fmt/chrono.h>
#include <fmt/format.h>
#include <nlohmann/json.hpp>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "convolume/error.hpp"
#include "core/json.hpp"

namespace convolume {
namespace {

[[noreturn]] void fail(const std::filesystem::path& file, const char* action) {
  throw IoError(fmt::format("{}: {} failed: {}; check the folder and its permissions", file.string(), action,
                            std::strerror(errno)));
}

/// A process. Its number alone does not name it, because numbers are used again.
struct Owner {
  std::string host;
  std::int64_t process = 0;
  std::uint64_t ticks = 0;    ///< between the boot of the host and the begin of the process; 0: unknown
  std::string machine, boot;  ///< the host itself, and its boot; empty: unknown
  std::string start;          ///< date and time at which it took the file
  std::string text() const { return fmt::format("process {} on host {} (since {})", process, host, start); }
};

/// Returns the first line of a file of the system, whose size is not known before; an empty text if there is none.
std::string line_of(const std::string& file) {
  std::string line;
  std::ifstream stream(file);
  std::getline(stream, line);
  return line;
}

/// Returns when a process began, in ticks since the boot; 0 if there is no such process, if it has ended and its parent
/// has not asked for its status yet, or if the system does not say.
std::uint64_t begin_of(std::int64_t process) {
  const std::string text = line_of(fmt::format("/proc/{}/stat", process));
  // The second field is a name in brackets that may hold anything. Behind it is the state, and the begin is the 20th.
  std::size_t at = text.rfind(')');
  if (at + 2 < text.size() && (text[at + 2] == 'Z' || text[at + 2] == 'X')) return 0;
  for (int field = 0; field < 20 && at != text.npos; ++field) at = text.find(' ', at + 1);
  return at == text.npos ? 0 : std::strtoull(text.c_str() + at, nullptr, 10);
}

Owner this_process() {
  std::array<char, 256> name{};
  if (::gethostname(name.data(), name.size() - 1) != 0) name[0] = '?';
  return {.host = name.data(),
          .process = ::getpid(),
          .ticks = begin_of(::getpid()),
          .machine = line_of("/etc/machine-id"),
          .boot = line_of("/proc/sys/kernel/random/boot_id"),
          .start = fmt::format("{:%Y-%m-%d %H:%M:%S}", fmt::localtime(std::time(nullptr)))};
}

std::string text_of(const Owner& owner) {
  return to_text(nlohmann::ordered_json{{"host", owner.host},
                                        {"process", owner.process},
                                        {"start", owner.start},
                                        {"ticks", owner.ticks},
                                        {"machine", owner.machine},
                                        {"boot", owner.boot}}) +
         "\n";
}

/// Returns the owner that a file names. A process that was killed in the middle leaves a file that names none.
std::optional<Owner> owner_in(int fd) {
  std::array<char, 4096> bytes{};
  const auto got = ::pread(fd, bytes.data(), bytes.size(), 0);
  try {
    const nlohmann::json json =
        parse_json(std::string(bytes.data(), static_cast<std::size_t>(std::max<ssize_t>(got, 0))));
    return Owner{json.at("host"),    json.at("process"), json.at("ticks"),
                 json.at("machine"), json.at("boot"),    json.at("start")};
  } catch (const std::exception&) {
    return std::nullopt;
  }
}

/// Returns whether a process of this host still exists.
bool lives(const Owner& owner, const Owner& self) {
  if (!owner.boot.empty() && !self.boot.empty() && owner.boot != self.boot) return false;
  if (::kill(static_cast<pid_t>(owner.process), 0) != 0 && errno == ESRCH) return false;
  return owner.ticks == 0 || begin_of(owner.process) == owner.ticks;
}

/// Returns whether a process ran on this host. Virtual machines may have equal names.
bool is_here(const Owner& owner, const Owner& self) { return owner.host == self.host && owner.machine == self.machine; }

bool same_file(int fd, const std::filesystem::path& file) {
  struct stat here {
  }, there{};
  return ::fstat(fd, &here) == 0 && ::stat(file.c_str(), &there) == 0 && here.st_ino == there.st_ino &&
         here.st_dev == there.st_dev;
}

[[noreturn]] void refuse(const std::filesystem::path& file, const std::string& what, const std::string& owner,
                         const std::string& remedy) {
  throw IoError(fmt::format("{} belongs to {}, as {} says; {}", what, owner, file.string(), remedy));
}

/// Waits until the lock of a file is free, or until the process that holds it has written its name, which may be about
/// to replace that of an owner that is gone. Returns that owner; none if the lock is ours now, because the process
/// ended.
std::optional<std::string> wait_for_lock_or_name(int fd) {
  const Owner self = this_process();
  for (int tries = 0; tries < 100; ++tries) {
    const auto owner = owner_in(fd);
    if (owner && (!is_here(*owner, self) || lives(*owner, self))) return owner->text();
    if (::flock(fd, LOCK_EX | LOCK_NB) == 0) return std::nullopt;
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
  return "another process";
}

/// Opens the file and locks it. The lock ends with the process, however that ends, so of two processes that find the
/// file of a dead one only one gets it.
int open_locked(const std::filesystem::path& file, const std::string& what) {
  constexpr int most_tries = 1000;  // each of them, an owner ended just then
  for (int tries = 0;; ++tries) {
    int fd = ::open(file.c_str(), O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
    const bool made = fd >= 0;
    if (!made && errno == EEXIST) fd = ::open(file.c_str(), O_RDWR | O_CLOEXEC);
    if (fd < 0 && errno == ENOENT && !made && tries < most_tries && std::filesystem::is_directory(file.parent_path())) {
      continue;
    }
    if (fd < 0) fail(file, "writing");
    const bool locked = ::flock(fd, LOCK_EX | LOCK_NB) == 0;
    // Where the file system has no locks, whoever makes the file owns it, unless it names an owner that is gone.
    const bool held = locked ? false : errno == EWOULDBLOCK || (!made && !owner_in(fd));
    if (held) {
      if (const auto owner = wait_for_lock_or_name(fd)) {
        ::close(fd);
        refuse(file, what, *owner, "wait until it ends, or stop it");
      }
    }
    // An owner that has just ended removed the file.
    if (same_file(fd, file)) return fd;
    ::close(fd);
  }
}

}  // namespace

Ownership::Ownership(std::filesystem::path file, const std::string& what, bool take_over)
    : file_(std::move(file)), fd_(open_locked(file_, what)) {
  const Owner self = this_process();
  if (const auto owner = owner_in(fd_)) {
    const bool here = is_here(*owner, self);
    const bool refused = here ? lives(*owner, self) : !take_over;
    if (refused) {
      ::close(fd_);
      refuse(file_, what, owner->text(),
             here ? "wait until it ends, or stop it"
                  : "if that process is gone, take it over with --take-over; otherwise wait until it ends");
    }
    taken_over_ = fmt::format("{} belonged to {}, which is gone; this process takes it over", what, owner->text());
  }
  const std::string text = text_of(self);
  if (::ftruncate(fd_, 0) != 0 || ::pwrite(fd_, text.data(), text.size(), 0) != static_cast<ssize_t>(text.size())) {
    const int error = errno;
    ::unlink(file_.c_str());
    ::close(fd_);
    errno = error;
    fail(file_, "writing");
  }
}

Ownership::~Ownership() {
  ::unlink(file_.c_str());
  ::close(fd_);
}

}  // namespace convolume
