// One process at a time works on a folder or a file.
#pragma once

#include <filesystem>
#include <string>

namespace convolume {

/// Holds a file that names the process which owns something: its host, its number, and when it began. The file exists
/// while the process works, and stays if the process is killed.
class Ownership {
 public:
  /// Takes the file. If a process of this host left it that has ended, the file is taken over, and taken_over() names
  /// that process. Throws IoError that names the owner and the remedy if another process holds it, or if a process of
  /// another host left it and `take_over` is false, because from here nobody can tell whether that one still works.
  /// `what` is what is owned, for the message: "the run in folder/".
  Ownership(std::filesystem::path file, const std::string& what, bool take_over);
  /// Removes the file.
  ~Ownership();
  Ownership(const Ownership&) = delete;
  Ownership& operator=(const Ownership&) = delete;

  /// Returns a sentence that names the owner whose file was taken over, or an empty text.
  const std::string& taken_over() const noexcept { return taken_over_; }

 private:
  std::filesystem::path file_;
  int fd_ = -1;
  std::string taken_over_;
};

}  // namespace convolume
