// Stores named tensors in one file in the safetensors format: 8 bytes of little-endian header length, a JSON header,
// the data.
//
// The header lists `__metadata__` (text to text) and, per tensor, `data_offsets`, `dtype` and `shape`. We extend the
// format by the metadata key `digest`. It holds the XXH3-128 of header and data in lower-case hexadecimal, computed
// with 32 zeros in the digest's own place, so every flipped bit is detected.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "convolume/tensor.hpp"

namespace convolume::nets::io {

/// Element types of the format that we use: "F32", "F64", "I64", "U8".
enum class StoredType { f32, f64, i64, u8 };

constexpr std::size_t size_of(StoredType type) noexcept {
  return type == StoredType::f32 ? 4 : type == StoredType::u8 ? 1 : 8;
}
constexpr StoredType stored_type(DataType type) noexcept {
  return type == DataType::f32 ? StoredType::f32 : StoredType::f64;
}

/// Name, type, shape (row-major, any rank, 0 allowed) and little-endian elements of a tensor. It does not own the
/// elements. If it was read from a file, `bytes` may be unaligned for the type, so copy the elements before use.
struct NamedTensor {
  std::string name;
  StoredType type = StoredType::f32;
  std::vector<index_t> shape;
  std::span<const std::byte> bytes;
};

/// Writes the tensors in the given order without gaps. Equal arguments give equal bytes. The file is replaced as a
/// whole: a crash or a full disk leaves the old one. Throws InvalidArgument (empty, repeated or reserved names, text
/// that is not UTF-8, negative sizes, metadata key `digest`), ShapeMismatch (bytes do not match shape and type),
/// IoError.
void write_safetensors(const std::filesystem::path& file, std::span<const NamedTensor> tensors,
                       const std::map<std::string, std::string>& metadata = {});

/// A file in memory and its tensors. The tensors point into the file and live as long as this object; moving the object
/// keeps them valid.
class SafetensorsFile {
 public:
  /// Returns the tensors in the order of the data.
  const std::vector<NamedTensor>& tensors() const noexcept { return tensors_; }
  /// Returns the metadata without `digest`.
  const std::map<std::string, std::string>& metadata() const noexcept { return metadata_; }
  /// Returns the digest: 32 hexadecimal digits.
  const std::string& digest() const noexcept { return digest_; }
  /// Returns nullptr if there is no such tensor.
  const NamedTensor* find(std::string_view name) const noexcept;
  /// Throws FormatError, naming the file, if there is no such tensor.
  const NamedTensor& at(std::string_view name) const;

 private:
  friend class SafetensorsParser;
  std::filesystem::path path_;
  std::unique_ptr<const std::string> contents_;
  std::vector<NamedTensor> tensors_;
  std::map<std::string, std::string> metadata_;
  std::string digest_;
};

/// Reads and checks a whole file: lengths, header (at most 64 MiB), names, types and the digest. The tensors must cover
/// the data without gap or overlap. Throws IoError (missing, unreadable, more than `max_bytes`) and FormatError naming
/// file and field.
SafetensorsFile read_safetensors(const std::filesystem::path& file, std::size_t max_bytes = std::size_t{1} << 40);

}  // namespace convolume::nets::io
