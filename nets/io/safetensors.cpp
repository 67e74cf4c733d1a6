#include "nets/io/safetensors.hpp"

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>
#include <optional>
#include <set>
#include <tuple>
#include <utility>

#include <fmt/format.h>
#include <nlohmann/json.hpp>
#include <xxhash.h>

#include "core/checked.hpp"
#include "core/files.hpp"
#include "core/json.hpp"
#include "nets/io/volume_source.hpp"

namespace convolume::nets::io {

static_assert(std::endian::native == std::endian::little, "the format is little-endian");

namespace {

using nlohmann::json;
using std::filesystem::path;

constexpr std::size_t prefix_bytes = 8, digest_digits = 32;
constexpr std::size_t largest_header = std::size_t{64} << 20;
constexpr std::string_view metadata_name = "__metadata__", digest_name = "digest";
constexpr std::string_view digest_field = "\"digest\":\"";

/// Returns the position of the digest's value, if it begins with `start`, in the header; otherwise npos. An unescaped
/// quote after { or , can only begin a key, so names and values cannot imitate the pattern.
std::size_t digest_position(std::string_view header, std::string_view start) {
  for (const char before : {'{', ','}) {
    const auto found = header.find(fmt::format("{}{}{}", before, digest_field, start));
    if (found != header.npos) return found + 1 + digest_field.size();
  }
  return header.npos;
}
constexpr std::array type_names{std::pair{StoredType::f32, "F32"}, std::pair{StoredType::f64, "F64"},
                                std::pair{StoredType::i64, "I64"}, std::pair{StoredType::u8, "U8"}};

const char* name_of(StoredType type) {
  return std::find_if(type_names.begin(), type_names.end(), [&](auto& entry) { return entry.first == type; })->second;
}

std::optional<StoredType> type_of(std::string_view name) {
  for (const auto& [type, text] : type_names) {
    if (name == text) return type;
  }
  return std::nullopt;
}

std::string_view as_text(std::span<const std::byte> bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

/// Returns the digest over the parts in order, in lower-case hexadecimal.
std::string digest_of(std::span<const std::string_view> parts) {
  const std::unique_ptr<XXH3_state_t, XXH_errorcode (*)(XXH3_state_t*)> state(XXH3_createState(), XXH3_freeState);
  if (!state) throw std::bad_alloc();
  XXH3_128bits_reset(state.get());
  for (const auto part : parts) XXH3_128bits_update(state.get(), part.data(), part.size());
  const XXH128_hash_t hash = XXH3_128bits_digest(state.get());
  return fmt::format("{:016x}{:016x}", hash.high64, hash.low64);
}

/// Returns the bytes of a shape. Sizes must not be negative. Throws OverflowError.
std::size_t bytes_of(std::span<const index_t> shape, StoredType type) {
  index_t bytes = static_cast<index_t>(size_of(type));
  for (const index_t n : shape) bytes = checked_mul(bytes, n, "bytes of a tensor");
  return static_cast<std::size_t>(bytes);
}

std::string quote(const path& file, std::string_view text) {
  try {
    return to_text(json(text));
  } catch (const FormatError&) {
    throw InvalidArgument(fmt::format("{}: a name or metadata value is not valid UTF-8; encode it", file.string()));
  }
}

void require_writable(const path& file, const NamedTensor& tensor, std::set<std::string_view>& names) {
  if (tensor.name.empty() || tensor.name == metadata_name || !names.insert(tensor.name).second) {
    throw InvalidArgument(fmt::format("{}: tensor name '{}' is empty, reserved or used twice; choose another",
                                      file.string(), tensor.name));
  }
  if (std::any_of(tensor.shape.begin(), tensor.shape.end(), [](index_t n) { return n < 0; })) {
    throw InvalidArgument(fmt::format("{}: tensor '{}' has the shape ({}); sizes cannot be negative", file.string(),
                                      tensor.name, fmt::join(tensor.shape, ", ")));
  }
  const std::size_t bytes = bytes_of(tensor.shape, tensor.type);
  if (bytes != tensor.bytes.size()) {
    throw ShapeMismatch(fmt::format("{}: tensor '{}' of {} and shape ({}) takes {} bytes, but {} were given",
                                    file.string(), tensor.name, name_of(tensor.type), fmt::join(tensor.shape, ", "),
                                    bytes, tensor.bytes.size()));
  }
}

}  // namespace

void write_safetensors(const path& file, std::span<const NamedTensor> tensors,
                       const std::map<std::string, std::string>& metadata) {
  if (metadata.contains(std::string(digest_name))) {
    throw InvalidArgument(fmt::format("{}: metadata key 'digest' is reserved; choose another", file.string()));
  }
  auto all_metadata = metadata;
  all_metadata[std::string(digest_name)] = std::string(digest_digits, '0');
  std::string header = fmt::format("{{\"{}\":{{", metadata_name);
  const char* separator = "";
  for (const auto& [key, value] : all_metadata) {
    header += fmt::format("{}{}:{}", std::exchange(separator, ","), quote(file, key), quote(file, value));
  }
  header += "}";
  std::set<std::string_view> names;
  std::size_t offset = 0;
  for (const auto& tensor : tensors) {
    require_writable(file, tensor, names);
    const std::size_t end = offset + tensor.bytes.size();
    header += fmt::format(",{}:{{\"data_offsets\":[{},{}],\"dtype\":\"{}\",\"shape\":[{}]}}", quote(file, tensor.name),
                          offset, end, name_of(tensor.type), fmt::join(tensor.shape, ","));
    offset = end;
  }
  header += "}";
  header.resize((header.size() + 7) / 8 * 8, ' ');
  if (header.size() > largest_header) {
    throw InvalidArgument(fmt::format("{}: names and metadata take {} bytes, at most {} can be read back; shorten them",
                                      file.string(), header.size(), largest_header));
  }

  std::vector<std::string_view> parts{header};
  for (const auto& tensor : tensors) parts.push_back(as_text(tensor.bytes));
  header.replace(digest_position(header, "0"), digest_digits, digest_of(parts));
  const std::uint64_t length = header.size();
  std::vector<std::span<const std::byte>> pieces{std::as_bytes(std::span(&length, 1)),
                                                 std::as_bytes(std::span(header))};
  for (const auto& tensor : tensors) pieces.push_back(tensor.bytes);
  write_file_atomically(file, pieces);
}

const NamedTensor* SafetensorsFile::find(std::string_view name) const noexcept {
  const auto found = std::find_if(tensors_.begin(), tensors_.end(), [&](auto& tensor) { return tensor.name == name; });
  return found == tensors_.end() ? nullptr : &*found;
}

const NamedTensor& SafetensorsFile::at(std::string_view name) const {
  if (const auto* tensor = find(name)) return *tensor;
  throw FormatError(fmt::format("{}: tensor '{}': not in the file; is it the right file?", path_.string(), name));
}

class SafetensorsParser {
 public:
  SafetensorsParser(const path& file, std::size_t max_bytes) {
    file_.path_ = file;
    std::error_code error;
    if (std::filesystem::is_directory(file, error)) {
      throw IoError(fmt::format("{}: is a directory; name a file", file.string()));
    }
    file_.contents_ = std::make_unique<const std::string>(read_file(file, max_bytes));
  }

  SafetensorsFile parse() {
    split();
    const json header = parse_header();
    const auto metadata = header.find(metadata_name);
    if (metadata == header.end() || !metadata->is_object()) fail(metadata_name, "missing or not an object");
    for (const auto& [key, value] : metadata->items()) {
      if (!value.is_string()) fail(fmt::format("metadata '{}'", key), "not a text");
      file_.metadata_[key] = value.get<std::string>();
    }
    for (const auto& [name, entry] : header.items()) {
      if (name != metadata_name) file_.tensors_.push_back(parse_tensor(name, entry));
    }
    require_cover();
    require_digest();
    return std::move(file_);
  }

 private:
  [[noreturn]] void fail(std::string_view field, std::string_view found) const {
    throw FormatError(fmt::format("{}: {}: {}; the file is damaged or was not written by Convolume, restore a copy",
                                  file_.path_.string(), field, found));
  }

  void split() {
    const std::string_view all = *file_.contents_;
    if (const std::string what = foreign_text(all.substr(0, 64)); !what.empty()) {
      throw FormatError(fmt::format("{}: is {}", file_.path_.string(), what));
    }
    if (all.size() < prefix_bytes) fail("header length", fmt::format("the file ends after {} bytes", all.size()));
    std::uint64_t length = 0;
    std::memcpy(&length, all.data(), prefix_bytes);
    if (length > largest_header || length > all.size() - prefix_bytes) {
      fail("header length", fmt::format("{} bytes in a file of {} (at most {})", length, all.size(), largest_header));
    }
    header_ = all.substr(prefix_bytes, length);
    data_ = all.substr(prefix_bytes + length);
  }

  json parse_header() const {
    try {
      auto header = parse_json(header_, 3);
      if (!header.is_object()) fail("header", "not a JSON object");
      return header;
    } catch (const FormatError& error) {
      fail("header", error.what());
    }
  }

  /// Returns a number of the header. It must be a whole number that fits index_t.
  index_t number(std::string_view field, const json& value) const {
    if (!value.is_number_unsigned() || !std::in_range<index_t>(value.get<std::uint64_t>())) {
      fail(field, fmt::format("{} is not a size", to_text(value)));
    }
    return value.get<index_t>();
  }

  NamedTensor parse_tensor(const std::string& name, const json& entry) const {
    const std::string field = fmt::format("tensor '{}'", name);
    if (name.empty()) fail(field, "empty name");
    if (!entry.is_object() || entry.size() != 3 || !entry.contains("dtype") || !entry.contains("shape") ||
        !entry.contains("data_offsets")) {
      fail(field, "needs exactly data_offsets, dtype and shape");
    }
    NamedTensor tensor;
    tensor.name = name;
    const json& dtype = entry["dtype"];
    const auto type = dtype.is_string() ? type_of(dtype.get_ref<const std::string&>()) : std::nullopt;
    if (!type) fail(field + " dtype", fmt::format("{} is unknown; known types are F32, F64, I64, U8", to_text(dtype)));
    tensor.type = *type;
    if (!entry["shape"].is_array()) fail(field + " shape", "not a list");
    for (const auto& n : entry["shape"]) tensor.shape.push_back(number(field + " shape", n));
    const json& offsets = entry["data_offsets"];
    if (!offsets.is_array() || offsets.size() != 2) fail(field + " data_offsets", "not a pair");
    const auto begin = static_cast<std::size_t>(number(field + " data_offsets", offsets[0]));
    const auto end = static_cast<std::size_t>(number(field + " data_offsets", offsets[1]));
    if (begin > end || end > data_.size()) {
      fail(field + " data_offsets", fmt::format("{} to {} of {} bytes", begin, end, data_.size()));
    }
    std::size_t bytes = 0;
    try {
      bytes = bytes_of(tensor.shape, tensor.type);
    } catch (const OverflowError&) {
      fail(field + " shape", "more bytes than 2^63");
    }
    if (bytes != end - begin) {
      fail(field + " shape", fmt::format("takes {} bytes, but data_offsets give {}", bytes, end - begin));
    }
    tensor.bytes = std::as_bytes(std::span(data_.substr(begin, bytes)));
    return tensor;
  }

  void require_cover() {
    auto& tensors = file_.tensors_;
    // Sorts by size as well: an empty tensor precedes the tensor that begins at the same place.
    std::sort(tensors.begin(), tensors.end(), [](const NamedTensor& a, const NamedTensor& b) {
      return std::tuple(a.bytes.data(), a.bytes.size(), std::string_view(a.name)) <
             std::tuple(b.bytes.data(), b.bytes.size(), std::string_view(b.name));
    });
    const auto* next = reinterpret_cast<const std::byte*>(data_.data());
    for (const auto& tensor : tensors) {
      if (tensor.bytes.data() != next) {
        fail(fmt::format("tensor '{}' data_offsets", tensor.name), "overlap the tensor before or leave a gap");
      }
      next += tensor.bytes.size();
    }
    if (next != reinterpret_cast<const std::byte*>(data_.data()) + data_.size()) {
      fail("data", fmt::format("{} bytes, more than the tensors take", data_.size()));
    }
  }

  void require_digest() {
    const auto entry = file_.metadata_.extract(std::string(digest_name));
    if (entry.empty()) fail("metadata 'digest'", "missing");
    file_.digest_ = entry.mapped();
    const auto position = digest_position(header_, file_.digest_ + "\"");
    if (file_.digest_.size() != digest_digits || position == header_.npos) {
      fail("metadata 'digest'", fmt::format("'{}' is not a digest of {} digits", file_.digest_, digest_digits));
    }
    const std::string zeros(digest_digits, '0');
    const std::array parts{header_.substr(0, position), std::string_view(zeros),
                           header_.substr(position + digest_digits), data_};
    if (const auto found = digest_of(parts); found != file_.digest_) {
      fail("metadata 'digest'", fmt::format("{} is stored, but the data have {}", file_.digest_, found));
    }
  }

  SafetensorsFile file_;
  std::string_view header_, data_;
};

SafetensorsFile read_safetensors(const path& file, std::size_t max_bytes) {
  return SafetensorsParser(file, max_bytes).parse();
}

}  // namespace convolume::nets::io
