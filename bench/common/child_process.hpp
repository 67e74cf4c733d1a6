// A child process that exchanges lines of text with this process.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include <sys/types.h>

namespace convolume::bench {

/// A child process. Its standard input and output are connected to this object; its standard error is that of this
/// process.
class ChildProcess {
 public:
  /// Starts the program arguments[0] with the other arguments. Throws Unsupported, with the reason, if it cannot be
  /// started.
  explicit ChildProcess(const std::vector<std::string>& arguments);
  /// Closes the child's input and waits until the child has ended.
  ~ChildProcess();
  ChildProcess(const ChildProcess&) = delete;
  ChildProcess& operator=(const ChildProcess&) = delete;

  /// Writes a line. If the child has ended, the line is lost, and read_line() returns nothing.
  void write_line(const std::string& line);
  /// Reads a line without its line end. Returns nothing if the child has ended.
  std::optional<std::string> read_line();

 private:
  pid_t pid_ = -1;
  int socket_ = -1;
  std::string buffer_;  // bytes that were received but not yet returned
};

}  // namespace convolume::bench
