#include "nets/io/zarr_metadata.hpp"

#include <algorithm>
#include <array>
#include <bit>
#include <cctype>
#include <charconv>
#include <cmath>
#include <cstring>
#include <limits>

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <nlohmann/json.hpp>

#include "core/files.hpp"
#include "core/json.hpp"
#include "nets/io/volume_formats.hpp"

namespace convolume::nets::io::detail {
namespace {

using Json = nlohmann::json;
using std::filesystem::path;

constexpr std::size_t most_metadata = std::size_t{4} << 20;

/// Reads and parses a JSON file. Throws FormatError with the place of the error.
Json read_json(const path& file) {
  const std::string text = read_file(file, most_metadata);
  try {
    return parse_json(text);
  } catch (const FormatError& error) {
    throw FormatError(fmt::format("{}: {}; write the metadata again", file.string(), error.what()));
  }
}

/// Throws FormatError unless a path within the Zarr stays within it.
void check_inside(const path& zarr, std::string_view field, const std::string& inside) {
  const path part(inside);
  const bool absolute = part.is_absolute() && field != "path";
  if (!absolute && std::none_of(part.begin(), part.end(), [](const path& p) { return p == ".."; })) return;
  fail_format(zarr.string(), field, "'" + inside + "'", "a path within the Zarr has no '..' and begins within it");
}

class ArrayParser {
 public:
  ArrayParser(const path& folder, const Json& group, const Json& own)
      : folder_(folder), file_((folder / ".zarray").string()) {
    json_ = read_json(folder / ".zarray");
    if (!json_.is_object()) fail_format(file_, "contents", "no object", "the file is damaged");
    read_axes(group, own);
    read_type();
    read_layout();
    read_codec();
    read_fill();
  }

  ZarrArray take() { return std::move(array_); }

 private:
  [[noreturn]] void fail(std::string_view field, std::string_view found, std::string_view remedy) const {
    fail_format(file_, field, found, remedy);
  }
  const Json& at(const char* key) const {
    const auto found = json_.find(key);
    if (found == json_.end()) fail(key, "missing", "the file is damaged");
    return *found;
  }

  std::vector<index_t> lengths(const char* key) const {
    std::vector<index_t> all;
    const Json& list = at(key);
    if (!list.is_array() || list.size() > 8) fail(key, to_text(list), "it must be a list of 3 to 5 lengths");
    for (const Json& length : list) {
      const bool good =
          length.is_number_integer() &&
          !(length.is_number_unsigned() &&
            length.get<std::uint64_t>() > static_cast<std::uint64_t>(std::numeric_limits<index_t>::max()));
      if (!good || length.get<index_t>() < 1) fail(key, to_text(list), "every axis needs at least one voxel");
      all.push_back(length.get<index_t>());
    }
    return all;
  }

  void read_axes(const Json& group, const Json& own) {
    if (at("zarr_format") != 2) fail("zarr_format", to_text(at("zarr_format")), "only version 2 is read; convert it");
    const std::vector<index_t> shape = lengths("shape"), chunks = lengths("chunks");
    if (shape.size() < 3 || shape.size() > 5 || chunks.size() != shape.size()) {
      fail("shape", fmt::format("{} axes and chunks of {}", shape.size(), chunks.size()),
           "a volume has the axes [z][y][x], [c][z][y][x], or [t][c][z][y][x] with one t");
    }
    array_.axes = std::string("tczyx").substr(5 - shape.size());
    read_names(group, "axes", true);
    if (!group.contains("axes")) read_names(own, "_ARRAY_DIMENSIONS", false);
    const auto length = [&](const std::vector<index_t>& all, char axis) {
      const std::size_t i = array_.axes.find(axis);
      return i == array_.axes.npos ? 1 : all[i];
    };
    if (length(shape, 't') != 1) {
      fail("shape", fmt::format("{} times", length(shape, 't')), "only one time can be read; split the array");
    }
    if (length(chunks, 't') != 1) {
      fail("chunks", fmt::format("{} times", length(chunks, 't')), "a chunk has one time; write the array again");
    }
    array_.channels = length(shape, 'c');
    array_.extent = {length(shape, 'z'), length(shape, 'y'), length(shape, 'x')};
    array_.chunk_channels = length(chunks, 'c');
    array_.chunk = {length(chunks, 'z'), length(chunks, 'y'), length(chunks, 'x')};
  }

  /// Reads the names of the axes. An OME-Zarr names them by letters (`strict`); other programs name them freely.
  void read_names(const Json& attributes, const char* key, bool strict) {
    if (!attributes.contains(key) || !attributes[key].is_array()) return;
    std::string names, list;
    for (const Json& axis : attributes[key]) {
      const Json& name = axis.is_object() && axis.contains("name") ? axis["name"] : axis;
      const std::string text = name.is_string() ? name.get<std::string>() : to_text(name);
      list += (list.empty() ? "" : ", ") + text;
      names += text.size() == 1 ? static_cast<char>(std::tolower(static_cast<unsigned char>(text[0]))) : '?';
    }
    const auto once = [&](char axis) { return std::count(names.begin(), names.end(), axis); };
    const bool volume = names.size() == array_.axes.size() && once('z') == 1 && once('y') == 1 && once('x') == 1 &&
                        once('c') <= 1 && once('t') <= 1 &&
                        static_cast<std::size_t>(3 + once('c') + once('t')) == names.size();
    if (volume) {
      array_.axes = names;
    } else if (strict) {
      fail(key, "'" + list + "'", "the axes must be z, y and x, and may be c and t; write the array again");
    } else {
      array_.remarks.push_back(fmt::format("the axes are named '{}', and are taken as {}", list, array_.axes));
    }
  }

  void read_type() {
    const Json& dtype = at("dtype");
    constexpr std::string_view types = "store booleans, integers of 8 to 64 bits, or floats of 16 to 64 bits";
    if (!dtype.is_string()) fail("dtype", to_text(dtype), types);
    const auto text = dtype.get<std::string>();
    const bool form = text.size() == 3 && (text[0] == '<' || text[0] == '>' || text[0] == '|') &&
                      (text[1] == 'u' || text[1] == 'i' || text[1] == 'f' || text[1] == 'b');
    const int bytes = form ? text[2] - '0' : 0;
    const bool floating = form && text[1] == 'f';
    array_.boolean = form && text[1] == 'b';
    array_.half = floating && bytes == 2;
    const bool known =
        array_.boolean ? bytes == 1 : bytes == 2 || bytes == 4 || bytes == 8 || (bytes == 1 && !floating);
    if (!known) fail("dtype", "'" + text + "'", types);
    array_.type = voxel_type(floating, text[1] == 'i', static_cast<std::size_t>(array_.half ? 4 : bytes));
    array_.big_endian = text[0] == '>';
  }

  void read_layout() {
    const Json& order = at("order");
    if (order != "C" && order != "F") fail("order", to_text(order), "it is \"C\" or \"F\"");
    array_.column_major = order == "F";
    if (json_.contains("filters") && !json_["filters"].is_null() && !json_["filters"].empty()) {
      fail("filters", to_text(json_["filters"]), "filters are not applied; write the array without them");
    }
    if (json_.contains("dimension_separator")) {
      const Json& separator = json_["dimension_separator"];
      if (separator != "." && separator != "/") fail("dimension_separator", to_text(separator), "it is \".\" or \"/\"");
      array_.separator = separator.get<std::string>().front();
    }
    check_separator();
    std::uint64_t bytes = array_.stored_voxel_bytes();
    bool fits = true;
    for (const index_t n : {array_.chunk_channels, array_.chunk.z, array_.chunk.y, array_.chunk.x}) {
      fits = fits && !__builtin_mul_overflow(bytes, static_cast<std::uint64_t>(n), &bytes);
    }
    if (!fits || bytes > std::numeric_limits<std::uint32_t>::max()) {
      fail("chunks", to_text(at("chunks")), "a chunk has at most 4 GiB; write smaller ones");
    }
  }

  /// Looks for chunks under both kinds of names. Old versions of n5-zarr store nested chunks without saying so, and
  /// then every chunk would seem to be absent.
  void check_separator() {
    bool flat = false, nested = false;
    std::error_code error;
    for (std::filesystem::directory_iterator at(folder_, error), end; !error && at != end && !flat;
         at.increment(error)) {
      const std::string name = at->path().filename().string();
      if (name.find_first_not_of("0123456789.") != name.npos || name.empty()) continue;
      const bool dots = name.find('.') != name.npos;
      flat = flat || (dots && name.front() != '.');
      nested = nested || (!dots && at->is_directory(error));
    }
    if (array_.separator == '.' ? flat || !nested : nested || !flat) return;
    if (!json_.contains("dimension_separator")) {
      array_.separator = '/';
      return;
    }
    fail("dimension_separator", to_text(json_["dimension_separator"]),
         fmt::format("the chunks have names like {}; correct the key", nested ? "0/0/0" : "0.0.0"));
  }

  void read_codec() {
    const Json& compressor = at("compressor");
    if (compressor.is_null()) return;
    using Kind = ZarrCodec::Kind;
    constexpr std::pair<std::string_view, Kind> known[] = {
        {"zlib", Kind::zlib}, {"gzip", Kind::gzip}, {"zstd", Kind::zstd}, {"blosc", Kind::blosc}};
    const std::string id = compressor.is_object() && compressor.contains("id") && compressor["id"].is_string()
                               ? compressor["id"].get<std::string>()
                               : to_text(compressor);
    for (const auto& [name, kind] : known) {
      if (id != name) continue;
      array_.codec.kind = kind;
      if (kind == Kind::blosc && compressor.contains("cname") && compressor["cname"].is_string()) {
        array_.codec.blosc_name = compressor["cname"].get<std::string>();
      }
      return;
    }
    fail("compressor", id, "zlib, gzip, zstd and blosc are read, and null; write it with one of them");
  }

  void read_fill() {
    array_.fill.assign(size_of(array_.type), std::byte{0});
    if (!json_.contains("fill_value") || json_["fill_value"].is_null()) return;
    const Json& fill = json_["fill_value"];
    const auto put = [&]<class V>(V value) {
      with_type(array_.type, [&]<class T>(T) {
        T stored{};
        if constexpr (std::is_integral_v<T> && std::is_integral_v<V>) {
          if (!std::in_range<T>(value))
            fail("fill_value", to_text(fill), fmt::format("it is no {}", name_of(array_.type)));
          stored = static_cast<T>(value);
        } else if constexpr (std::is_integral_v<T>) {
          // A number with a fraction, or too large for the type, is damage.
          const double number = static_cast<double>(value), most = std::ldexp(1.0, std::numeric_limits<T>::digits);
          if (!(number == std::floor(number)) || number >= most || number < (std::is_signed_v<T> ? -most : 0)) {
            fail("fill_value", to_text(fill), fmt::format("it is no {}", name_of(array_.type)));
          }
          stored = static_cast<T>(value);
        } else {
          stored = static_cast<T>(value);
        }
        std::memcpy(array_.fill.data(), &stored, sizeof(T));
      });
    };
    if (fill.is_number_unsigned()) return put(fill.get<std::uint64_t>());
    if (fill.is_number_integer()) return put(fill.get<std::int64_t>());
    if (fill.is_number_float()) return put(fill.get<double>());
    if (fill == "NaN" && is_floating(array_.type)) return put(std::numeric_limits<double>::quiet_NaN());
    if (fill == "Infinity" && is_floating(array_.type)) return put(std::numeric_limits<double>::infinity());
    if (fill == "-Infinity" && is_floating(array_.type)) return put(-std::numeric_limits<double>::infinity());
    if (fill.is_boolean() && array_.boolean) return put(std::uint64_t{fill.get<bool>()});
    if (fill.is_string()) {  // Fiji's exporters write the number as a text
      const auto text = fill.get<std::string>();
      const char* const end = text.data() + text.size();
      std::int64_t whole = 0;
      if (const auto [at, error] = std::from_chars(text.data(), end, whole); error == std::errc() && at == end) {
        return put(whole);
      }
      double number = 0;
      if (const auto [at, error] = std::from_chars(text.data(), end, number); error == std::errc() && at == end) {
        if (std::isfinite(number) || is_floating(array_.type)) return put(number);
      }
    }
    fail("fill_value", to_text(fill), "it must be a number, or null");
  }

  path folder_;
  std::string file_;
  Json json_;
  ZarrArray array_;
};

Json attributes_of(const path& folder) {
  const path file = folder / ".zattrs";
  std::error_code error;
  if (!std::filesystem::exists(file, error)) return Json::object();
  Json attributes = read_json(file);
  return attributes.is_object() ? attributes : Json::object();
}

/// Returns the entry of an OME-Zarr's first multiscale that lists its levels, or null.
Json multiscale_of(const Json& attributes) {
  if (!attributes.contains("multiscales") || !attributes["multiscales"].is_array() ||
      attributes["multiscales"].empty() || !attributes["multiscales"][0].is_object()) {
    return nullptr;
  }
  return attributes["multiscales"][0];
}

/// Returns the last three numbers of a list of positive numbers.
std::optional<std::array<double, 3>> last_three(const Json& list) {
  if (!list.is_array() || list.size() < 3) return std::nullopt;
  std::array<double, 3> zyx{};
  for (std::size_t i = 0; i < 3; ++i) {
    const Json& number = list[list.size() - 3 + i];
    if (!number.is_number() || !(number.get<double>() > 0)) return std::nullopt;
    zyx[i] = number.get<double>();
  }
  return zyx;
}

/// Finds the spacing of a level of an OME-Zarr: the scale of the level times that of the whole multiscale.
class LevelSpacing {
 public:
  LevelSpacing(ZarrArray& array, const Json& multiscale) : array_(array), multiscale_(multiscale) {}

  std::optional<Spacing> find(const Json& level) {
    const bool own = multiply(level), common = multiply(multiscale_);
    if (!own && !common) return std::nullopt;
    const std::array<std::string, 3> units{unit_of('z'), unit_of('y'), unit_of('x')};
    if (units[0] == units[1] && units[1] == units[2]) return Spacing{zyx_, units[2]};
    for (std::size_t axis = 0; axis < 3; ++axis) {
      const auto length = micrometres_per(units[axis]);
      if (!length) {
        array_.remarks.push_back(
            fmt::format("z, y and x have the units '{}', '{}' and '{}', which cannot be compared; "
                        "the spacing is not read",
                        units[0], units[1], units[2]));
        return std::nullopt;
      }
      zyx_[axis] *= *length;
    }
    return Spacing{zyx_, "um"};
  }

 private:
  /// Applies the scales of a list of transformations. Returns whether there is one.
  bool multiply(const Json& owner) {
    if (!owner.contains("coordinateTransformations") || !owner["coordinateTransformations"].is_array()) return false;
    bool any = false;
    for (const Json& transformation : owner["coordinateTransformations"]) {
      if (!transformation.is_object()) continue;
      if (transformation.contains("scale")) any = multiply_scale(transformation["scale"]) || any;
      if (transformation.contains("path")) {
        array_.remarks.emplace_back("a transformation that lies in another file (path) is not read");
      }
      if (transformation.contains("translation")) remark_origin(transformation["translation"]);
    }
    return any;
  }

  /// A scale has one number per axis. Some writers give only those of z, y and x.
  bool multiply_scale(const Json& scale) {
    std::array<double, 3> own{};
    const std::string axes = scale.is_array() && scale.size() == 3 ? space() : array_.axes;
    bool good = scale.is_array() && scale.size() == axes.size();
    for (std::size_t i = 0; good && i < axes.size(); ++i) {
      const std::size_t axis = std::string_view("zyx").find(axes[i]);
      if (axis == std::string_view::npos) continue;
      good = scale[i].is_number() && scale[i].get<double>() > 0;
      if (good) own[axis] = scale[i].get<double>();
    }
    if (!good) {
      array_.remarks.push_back(
          fmt::format("the scale {} is not read: it must have a positive number for each of the "
                      "axes {}",
                      to_text(scale), array_.axes));
      return false;
    }
    for (std::size_t axis = 0; axis < 3; ++axis) zyx_[axis] *= own[axis];
    return true;
  }

  void remark_origin(const Json& translation) {
    const bool zero = translation.is_array() && std::all_of(translation.begin(), translation.end(),
                                                            [](const Json& n) { return n.is_number() && n == 0; });
    if (!zero) array_.remarks.push_back(fmt::format("the origin (translation {}) is not read", to_text(translation)));
  }

  /// Returns the axes of space, in the order of the array.
  std::string space() const {
    std::string axes = array_.axes;
    std::erase_if(axes, [](char axis) { return axis == 't' || axis == 'c'; });
    return axes;
  }

  std::string unit_of(char name) const {
    if (!multiscale_.contains("axes") || !multiscale_["axes"].is_array()) return "";
    const std::size_t i = array_.axes.find(name);
    if (i >= multiscale_["axes"].size()) return "";
    const Json& axis = multiscale_["axes"][i];
    return axis.is_object() && axis.contains("unit") && axis["unit"].is_string()
               ? unit_symbol(axis["unit"].get<std::string>())
               : "";
  }

  ZarrArray& array_;
  const Json& multiscale_;
  std::array<double, 3> zyx_{1, 1, 1};
};

/// Returns the name of the only array directly below a group.
std::string only_array(const path& folder) {
  std::vector<std::string> names;
  for (const std::string& name : names_in(folder)) {
    std::error_code error;
    if (std::filesystem::exists(folder / name / ".zarray", error)) names.push_back(name);
  }
  if (names.size() == 1) return names.front();
  std::string list;
  for (const std::string& name : names) list += (list.empty() ? "" : ", ") + name;
  throw FormatError(fmt::format("{}: which array? it holds {}; name one as {}:/NAME", folder.string(),
                                names.empty() ? "none directly below it" : list, folder.string()));
}

/// Returns the group of the only image in the layout of bioformats2raw, which numbers images below the root. Returns
/// nothing for other layouts.
std::vector<std::string> only_image(const path& folder) {
  if (!attributes_of(folder).contains("bioformats2raw.layout")) return {};
  std::vector<std::string> images;
  for (const std::string& name : names_in(folder)) {
    std::error_code error;
    const bool number = name.find_first_not_of("0123456789") == name.npos;
    if (number && std::filesystem::exists(folder / name / ".zattrs", error)) images.push_back(name);
  }
  if (images.size() == 1) return images;
  throw FormatError(fmt::format("{}: which image? it holds {} (bioformats2raw.layout); name one as {}:/NUMBER/0",
                                folder.string(), images.empty() ? "none" : fmt::format("{}", fmt::join(images, ", ")),
                                folder.string()));
}

std::vector<std::string> split(const std::string& path_text) {
  std::vector<std::string> parts;
  for (const path& part : path(path_text)) {
    if (part != "/" && part != "." && !part.empty()) parts.push_back(part.string());
  }
  return parts;
}

/// Returns the level of a multiscale that lies at these parts of a path below its group, or null.
Json level_of(const Json& multiscale, std::span<const std::string> parts) {
  if (!multiscale.is_object() || !multiscale.contains("datasets") || !multiscale["datasets"].is_array()) return nullptr;
  for (const Json& level : multiscale["datasets"]) {
    if (!level.is_object() || !level.contains("path") || !level["path"].is_string()) continue;
    const std::vector<std::string> own = split(level["path"].get<std::string>());
    if (std::equal(own.begin(), own.end(), parts.begin(), parts.end())) return level;
  }
  return nullptr;
}

}  // namespace

std::string ZarrArray::key(index_t c, const Extent3& index) const {
  std::string key;
  const auto add = [&](index_t n) { key += fmt::format("{}{}", key.empty() ? "" : std::string(1, separator), n); };
  for (const char axis : axes) {
    add(axis == 't' ? 0 : axis == 'c' ? c : axis == 'z' ? index.z : axis == 'y' ? index.y : index.x);
  }
  return key;
}

std::array<index_t, 4> ZarrArray::strides() const {
  std::array<index_t, 4> strides{};
  index_t stride = 1;
  std::string order = axes;  // the fastest axis last
  if (column_major) std::reverse(order.begin(), order.end());
  for (auto axis = order.rbegin(); axis != order.rend(); ++axis) {
    const std::size_t i = std::string_view("czyx").find(*axis);
    if (i == std::string_view::npos) continue;  // one time
    strides[i] = stride;
    stride *= i == 0 ? chunk_channels : chunk[static_cast<int>(i) - 1];
  }
  return strides;
}

bool ZarrArray::in_order() const {
  const auto [of_c, of_z, of_y, of_x] = strides();
  // The distance of neighbours along an axis with one voxel does not matter.
  return (chunk.x == 1 || of_x == 1) && (chunk.y == 1 || of_y == chunk.x) &&
         (chunk.z == 1 || of_z == chunk.y * chunk.x) && (chunk_channels == 1 || of_c == chunk.volume());
}

ZarrArray read_zarr(const VolumePath& where, path& folder) {
  check_inside(where.file, "path", where.inside);
  folder = where.file;
  std::vector<std::string> parts = split(where.inside);
  std::error_code error;
  const auto is_array = [&] { return std::filesystem::exists(folder / ".zarray", error); };
  const auto refuse_version_3 = [&] {
    if (!std::filesystem::exists(folder / "zarr.json", error) || is_array()) return;
    fail_format((folder / "zarr.json").string(), "zarr_format", "3", "only version 2 is read; convert the array");
  };
  refuse_version_3();
  if (parts.empty() && !is_array()) {
    parts = only_image(folder);
    const path image = parts.empty() ? folder : folder / parts.front();
    const Json group = multiscale_of(attributes_of(image));
    if (group.is_object() && group.contains("datasets") && group["datasets"].is_array() && !group["datasets"].empty() &&
        group["datasets"][0].is_object() && group["datasets"][0].contains("path") &&
        group["datasets"][0]["path"].is_string()) {
      const auto level = group["datasets"][0]["path"].get<std::string>();
      check_inside(where.file, "multiscales.datasets.path", level);
      const std::vector<std::string> below = split(level);
      parts.insert(parts.end(), below.begin(), below.end());
      if (below.empty()) {
        fail_format((image / ".zattrs").string(), "multiscales.datasets.path", "'" + level + "'",
                    "it must name an array below the group");
      }
    } else {
      parts.push_back(only_array(image));
    }
  }
  // The innermost group that lists the array as one of its levels.
  Json group, level;
  for (std::size_t i = 0; i < parts.size(); ++i) {
    Json multiscale = multiscale_of(attributes_of(folder));
    if (Json found = level_of(multiscale, std::span(parts).subspan(i)); !found.is_null()) {
      group = std::move(multiscale);
      level = std::move(found);
    }
    folder /= parts[i];
  }
  refuse_version_3();
  if (!is_array()) {
    fail_format(where.text(), "path", "there is no array (.zarray) in " + folder.string(),
                "name an array of the Zarr as FILE.zarr:/NAME");
  }
  const Json own = attributes_of(folder);
  ZarrArray array = ArrayParser(folder, group.is_object() ? group : own, own).take();
  if (own.contains("element_size_um")) {
    const auto zyx = last_three(own["element_size_um"]);
    if (zyx) array.spacing = Spacing{*zyx, "um"};
    if (!zyx) array.remarks.emplace_back("element_size_um is not read: it must be three positive numbers");
  }
  if (!level.is_null() && !array.spacing) array.spacing = LevelSpacing(array, group).find(level);
  return array;
}

std::string zarray_text(const ZarrArray& array) {
  const Extent3 &e = array.extent, &c = array.chunk;
  Json shape{e.z, e.y, e.x}, chunks{c.z, c.y, c.x};
  if (array.axes.size() == 4) {
    shape.insert(shape.begin(), array.channels);
    chunks.insert(chunks.begin(), array.chunk_channels);
  }
  Json compressor;
  if (array.codec.kind == ZarrCodec::Kind::zstd) compressor = {{"id", "zstd"}, {"level", array.codec.level}};
  if (array.codec.kind == ZarrCodec::Kind::blosc) {
    compressor = {{"id", "blosc"},
                  {"cname", array.codec.blosc_name},
                  {"clevel", array.codec.level},
                  {"shuffle", array.codec.shuffle},
                  {"blocksize", 0}};
  }
  const std::size_t bytes = size_of(array.type);
  const std::string dtype = fmt::format("{}{}{}", bytes == 1 ? '|' : '<',
                                        is_floating(array.type) ? 'f'
                                        : is_signed(array.type) ? 'i'
                                                                : 'u',
                                        bytes);
  const Json all{
      {"zarr_format", 2}, {"shape", shape},           {"chunks", chunks},
      {"dtype", dtype},   {"compressor", compressor}, {"fill_value", 0},
      {"order", "C"},     {"filters", nullptr},       {"dimension_separator", std::string(1, array.separator)}};
  return to_text(all, 2) + "\n";
}

std::string zattrs_text(const ZarrArray& array) {
  Json names{"z", "y", "x"};
  if (array.axes.size() == 4) names.insert(names.begin(), "c");
  Json all{{"_ARRAY_DIMENSIONS", names}};
  // A spacing in pixels or in an unknown unit has no place here.
  if (const auto zyx = array.spacing ? spacing_in_micrometres(*array.spacing) : std::nullopt) {
    all["element_size_um"] = *zyx;
  }
  for (const auto& [name, text] : array.notes) all["convolume_" + name] = text;
  return to_text(all, 2) + "\n";
}

}  // namespace convolume::nets::io::detail
