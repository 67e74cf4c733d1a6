// A process that is talked to in lines.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include <sys/types.h>

namespace convolume::bench {

/// Its standard input and output are ours; its standard error is that of this process.
class ChildProcess {
 public:
  /// Starts arguments[0] with the others. Throws Unsupported, with the reason, where it cannot be started.
  explicit ChildProcess(const std::vector<std::string>& arguments);
  /// Ends its input and waits until it has ended.
  ~ChildProcess();
  ChildProcess(const ChildProcess&) = delete;
  ChildProcess& operator=(const ChildProcess&) = delete;

  /// To a process that has ended already a line is lost; read_line() will tell.
  void write_line(const std::string& line);
  /// Without its end of line; nothing where the process has ended.
  std::optional<std::string> read_line();

 private:
  pid_t pid_ = -1;
  int socket_ = -1;
  std::string buffer_;  // read, but not yet given out
};

}  // namespace convolume::bench
