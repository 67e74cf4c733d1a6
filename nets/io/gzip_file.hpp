// Decodes a whole gzip file, so that its contents can be read at any position. Private to this room.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "core/files.hpp"

namespace convolume::nets::io::detail {

/// The decoded contents of a gzip file, in memory or, if they are too large, in a nameless temporary file. Memory grows
/// with what has been decoded, not with what a header claims.
class DecodedFile {
 public:
  /// Decodes the file. At most `in_memory` bytes stay in memory. Throws FormatError (truncated, damaged, something that
  /// is not gzip at its end, more than `most` bytes), IoError.
  DecodedFile(const ReadableFile& file, std::uint64_t in_memory, std::uint64_t most,
              const std::filesystem::path& temporary_folder);

  std::uint64_t size() const noexcept { return size_; }
  /// Fills `bytes` from `offset` on. The range must be within the contents. Several threads may read at once.
  void read_at(std::uint64_t offset, std::span<std::byte> bytes) const;

 private:
  static constexpr std::size_t block_bytes = std::size_t{4} << 20;
  void append(std::span<const std::byte> bytes, std::uint64_t in_memory, const std::filesystem::path& folder);

  std::uint64_t size_ = 0;
  std::vector<std::unique_ptr<std::byte[]>> blocks_;
  std::optional<ReadableFile> file_;
};

/// Compresses bytes into a gzip file, in the order in which they come. Equal bytes give equal files.
class GzipWriter {
 public:
  explicit GzipWriter(AtomicFile& file);
  ~GzipWriter();
  GzipWriter(const GzipWriter&) = delete;
  GzipWriter& operator=(const GzipWriter&) = delete;
  void append(std::span<const std::byte> bytes);
  void finish();

 private:
  void deflate_all(std::span<const std::byte> bytes, bool last);
  struct State;
  AtomicFile& file_;
  std::unique_ptr<State> state_;
};

}  // namespace convolume::nets::io::detail
