#include "bench/common/child_process.hpp"

#include <array>
#include <cerrno>
#include <cstring>

#include <fmt/format.h>
#include <spawn.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "convolume/error.hpp"

extern char** environ;

namespace convolume::bench {

ChildProcess::ChildProcess(const std::vector<std::string>& arguments) {
  const auto fail = [&](int reason) {
    throw Unsupported(fmt::format("{} cannot be started: {}", arguments.front(), std::strerror(reason)));
  };
  // One socket is used instead of two pipes, because send() can suppress SIGPIPE.
  std::array<int, 2> ends{};
  if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends.data()) != 0) fail(errno);
  socket_ = ends[0];
  std::vector<char*> argv;
  for (const std::string& argument : arguments) argv.push_back(const_cast<char*>(argument.c_str()));
  argv.push_back(nullptr);
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_adddup2(&actions, ends[1], STDIN_FILENO);
  posix_spawn_file_actions_adddup2(&actions, ends[1], STDOUT_FILENO);
  const int status = posix_spawn(&pid_, argv.front(), &actions, nullptr, argv.data(), environ);
  posix_spawn_file_actions_destroy(&actions);
  close(ends[1]);
  if (status == 0) return;
  close(socket_);
  fail(status);
}

ChildProcess::~ChildProcess() {
  close(socket_);
  while (waitpid(pid_, nullptr, 0) < 0 && errno == EINTR) {
  }
}

void ChildProcess::write_line(const std::string& line) {
  const std::string text = line + "\n";
  for (std::size_t sent = 0; sent < text.size();) {
    const ssize_t now = send(socket_, text.data() + sent, text.size() - sent, MSG_NOSIGNAL);
    if (now < 0 && errno == EINTR) continue;
    if (now < 0) return;
    sent += static_cast<std::size_t>(now);
  }
}

std::optional<std::string> ChildProcess::read_line() {
  std::array<char, 4096> part{};
  std::size_t end = 0;
  while ((end = buffer_.find('\n')) == std::string::npos) {
    const ssize_t got = recv(socket_, part.data(), part.size(), 0);
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) return std::nullopt;
    buffer_.append(part.data(), static_cast<std::size_t>(got));
  }
  std::string line = buffer_.substr(0, end);
  buffer_.erase(0, end + 1);
  return line;
}

}  // namespace convolume::bench
