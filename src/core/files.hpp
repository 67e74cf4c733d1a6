// Reading and writing of files. A written file is either complete or absent.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <string_view>

namespace convolume {

/// Returns the end of a temporary name, which differs at every call and in every running process: ".tmp-4711-0".
/// Whoever makes the file still has to refuse one that exists, because an earlier process may have left it.
std::string temporary_suffix();

/// Renames a file or folder within a file system. Throws IoError if `to` exists, and then leaves it unchanged.
void rename_without_replacing(const std::filesystem::path& from, const std::filesystem::path& to);

/// A file that is being written under a temporary name beside its target. Not thread-safe.
class AtomicFile {
 public:
  /// Creates the temporary file. Throws IoError that names the file and the reason, as all functions here do.
  explicit AtomicFile(std::filesystem::path target);
  /// Removes the temporary file, unless commit() returned.
  ~AtomicFile();
  AtomicFile(const AtomicFile&) = delete;
  AtomicFile& operator=(const AtomicFile&) = delete;

  const std::filesystem::path& temporary() const noexcept { return temporary_; }
  /// Returns the descriptor, open for reading and writing.
  int descriptor() const noexcept { return fd_; }
  void append(std::span<const std::byte> bytes);
  void write_at(std::uint64_t offset, std::span<const std::byte> bytes);
  /// Syncs the file, renames it to its target, and syncs the folder.
  void commit();

 private:
  std::filesystem::path target_, temporary_;
  int fd_ = -1;
};

/// A file that is open for reading at any position. Several threads may read at once.
class ReadableFile {
 public:
  /// Throws IoError if the file is missing, unreadable, or no regular file.
  explicit ReadableFile(std::filesystem::path file);
  /// A nameless temporary file in `folder` that can also be written.
  static ReadableFile temporary(const std::filesystem::path& folder);
  ReadableFile(ReadableFile&& other) noexcept;
  ReadableFile& operator=(ReadableFile&& other) = delete;
  ~ReadableFile();

  const std::filesystem::path& path() const noexcept { return path_; }
  std::uint64_t size() const noexcept { return size_; }
  /// Fills `bytes` from `offset` on. Returns the number of bytes that the file has there, at most `bytes.size()`.
  std::size_t read_at(std::uint64_t offset, std::span<std::byte> bytes) const;
  void write_at(std::uint64_t offset, std::span<const std::byte> bytes);
  /// Syncs the file and reads past the page cache from now on (O_DIRECT). Offsets, sizes and addresses must then be
  /// multiples of 4096. Returns false if the file system cannot do that.
  bool bypass_cache();

 private:
  ReadableFile() = default;
  std::filesystem::path path_;
  std::uint64_t size_ = 0;
  int fd_ = -1;
};

/// Replaces `file` by the concatenation of `parts`. Writes a temporary file beside it, syncs and renames it, and syncs
/// the directory. On failure it removes the temporary file and throws IoError that names the file and the reason. The
/// old file is then unchanged.
void write_file_atomically(const std::filesystem::path& file, std::span<const std::span<const std::byte>> parts);
void write_file_atomically(const std::filesystem::path& file, std::string_view text);

/// Makes renames within a directory survive a power cut, if the file system supports it.
void sync_directory(const std::filesystem::path& directory);

/// Returns the whole file. Throws IoError that names the file and the reason, also if it is no regular file or larger
/// than `limit` bytes.
std::string read_file(const std::filesystem::path& file, std::size_t limit = std::size_t{1} << 32);

}  // namespace convolume
