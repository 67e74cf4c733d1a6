// Reading and writing of whole files. A written file is either complete or absent.
#pragma once

#include <filesystem>
#include <span>
#include <string>
#include <string_view>

namespace convolume {

/// Replaces `file` by the concatenation of `parts`. Writes a temporary file beside it, syncs and renames it, and syncs
/// the directory. On failure it removes the temporary file and throws IoError that names the file and the reason. The
/// old file is then unchanged.
void write_file_atomically(const std::filesystem::path& file, std::span<const std::span<const std::byte>> parts);
void write_file_atomically(const std::filesystem::path& file, std::string_view text);

/// Makes renames within a directory survive a power cut, if the file system supports it.
void sync_directory(const std::filesystem::path& directory);

/// Returns the whole file. Throws IoError that names the file and the reason, also if it is larger than `limit` bytes.
std::string read_file(const std::filesystem::path& file, std::size_t limit = std::size_t{1} << 32);

}  // namespace convolume
