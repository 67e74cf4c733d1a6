// Files that are whole or absent.
#pragma once

#include <filesystem>
#include <span>
#include <string>
#include <string_view>

namespace convolume {

/// Replaces `file` by `parts`, one after the other: written to a temporary file beside it, synced, renamed, directory
/// synced. On any failure the temporary file is removed, the old file is untouched, and IoError names file and reason.
void write_file_atomically(const std::filesystem::path& file, std::span<const std::span<const std::byte>> parts);
void write_file_atomically(const std::filesystem::path& file, std::string_view text);

/// Makes renames within a directory survive a power cut, where the file system can.
void sync_directory(const std::filesystem::path& directory);

/// The whole file. Throws IoError naming file and reason, or where it is larger than `limit` bytes.
std::string read_file(const std::filesystem::path& file, std::size_t limit = std::size_t{1} << 32);

}  // namespace convolume
