// Shared by the tests of nets/io.
#pragma once

#include <csignal>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <string_view>

#include "testing/temporary_folder.hpp"
#include <catch2/catch.hpp>
#include <fcntl.h>
#include <sys/resource.h>
#include <unistd.h>

#include "convolume/error.hpp"
#include "convolume/tensor.hpp"

namespace convolume::nets::testing {

using Directory = test::TemporaryFolder;

inline void write_bytes(const std::filesystem::path& file, std::string_view bytes) {
  std::ofstream(file, std::ios::binary).write(bytes.data(), static_cast<std::streamsize>(bytes.size()));
}

inline std::string read_bytes(const std::filesystem::path& file) {
  std::ifstream stream(file, std::ios::binary);
  return {std::istreambuf_iterator<char>(stream), {}};
}

/// Limits the size of files to `bytes`, so writing fails as on a full disk.
class FullDisk {
 public:
  explicit FullDisk(rlim_t bytes) : handler_(std::signal(SIGXFSZ, SIG_IGN)) {
    ::getrlimit(RLIMIT_FSIZE, &limit_);
    const rlimit low{bytes, limit_.rlim_max};
    ::setrlimit(RLIMIT_FSIZE, &low);
  }
  ~FullDisk() {
    ::setrlimit(RLIMIT_FSIZE, &limit_);
    std::signal(SIGXFSZ, handler_);
  }
  FullDisk(const FullDisk&) = delete;
  FullDisk& operator=(const FullDisk&) = delete;

 private:
  rlimit limit_{};
  void (*handler_)(int);
};

/// Collects what is written to the standard error stream during its lifetime.
class StandardError {
 public:
  explicit StandardError(const std::filesystem::path& file) : file_(file), saved_(::dup(2)) {
    std::fflush(stderr);
    const int fd = ::open(file.c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0600);
    ::dup2(fd, 2);
    ::close(fd);
  }
  ~StandardError() {
    if (saved_ >= 0) restore();
  }
  std::string text() {
    restore();
    return read_bytes(file_);
  }

 private:
  void restore() {
    std::fflush(stderr);
    ::dup2(saved_, 2);
    ::close(saved_);
    saved_ = -1;
  }
  std::filesystem::path file_;
  int saved_;
};

/// Returns the message of the exception of type E that `call` throws.
template <class E, class Call>
std::string message_of(Call&& call) {
  try {
    call();
  } catch (const E& error) {
    return error.what();
  }
  FAIL("nothing was thrown");
  return {};
}

inline bool contains(std::string_view text, std::string_view part) { return text.find(part) != text.npos; }

/// Returns a tensor with 0, 1, 2, ... times `step`.
inline Tensor<float> ramp(Shape5 shape, float step = 1) {
  Tensor<float> tensor(shape);
  for (index_t i = 0; i < tensor.elements(); ++i) tensor.data()[i] = static_cast<float>(i) * step;
  return tensor;
}

inline bool equal(const View<const float>& a, const View<const float>& b) {
  if (a.shape != b.shape) return false;
  for (index_t c = 0; c < a.shape.c; ++c) {
    for (index_t z = 0; z < a.shape.extent.z; ++z) {
      for (index_t y = 0; y < a.shape.extent.y; ++y) {
        for (index_t x = 0; x < a.shape.extent.x; ++x) {
          if (!(a(0, c, z, y, x) == b(0, c, z, y, x))) return false;
        }
      }
    }
  }
  return true;
}

}  // namespace convolume::nets::testing
