#include "tools/text_file.hpp"

#include <filesystem>
#include <fstream>

#include <fmt/format.h>

#include "convolume/error.hpp"

namespace convolume::tools {
namespace {

std::string temporary_of(const std::string& file) { return file + ".tmp"; }

[[noreturn]] void refuse_to_write(const std::string& file) {
  std::error_code error;
  std::filesystem::remove(temporary_of(file), error);
  throw IoError(fmt::format("{}: cannot be written; check that the folder exists and has room", file));
}

}  // namespace

void require_writable(const std::string& file) {
  if (!std::ofstream(temporary_of(file), std::ios::trunc).good()) refuse_to_write(file);
  std::error_code error;
  std::filesystem::remove(temporary_of(file), error);
}

void write_text(const std::string& file, const std::string& text) {
  const std::string temporary = temporary_of(file);
  std::ofstream stream(temporary, std::ios::trunc);
  stream << text << std::flush;
  std::error_code error;
  if (stream.good()) std::filesystem::rename(temporary, file, error);
  if (stream.good() && !error) return;
  refuse_to_write(file);
}

}  // namespace convolume::tools
