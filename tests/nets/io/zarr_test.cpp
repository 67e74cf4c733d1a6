#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <tuple>
#include <vector>

#include "io_testing.hpp"
#include "testing/sanitizers.hpp"
#include <blosc.h>
#include <sys/stat.h>
#include <zlib.h>
#include <zstd.h>

#include "nets/io/chunk_assembler.hpp"
#include "nets/io/volume.hpp"
#include "nets/io/volume_source.hpp"

using namespace convolume;
using namespace convolume::nets;
using namespace convolume::nets::io;
using namespace convolume::nets::testing;

namespace {

/// The metadata of an array of 3 x 4 x 5 voxels in chunks of 2 x 4 x 3, with one key replaced.
std::string metadata(const std::string& key = "", const std::string& value = "") {
  const std::vector<std::pair<std::string, std::string>> keys{
      {"zarr_format", "2"},   {"shape", "[3, 4, 5]"}, {"chunks", "[2, 4, 3]"}, {"dtype", "\"<u2\""},
      {"compressor", "null"}, {"fill_value", "7"},    {"order", "\"C\""},      {"filters", "null"}};
  std::string text = "{";
  for (const auto& [name, usual] : keys) {
    text += (text.size() > 1 ? ", \"" : "\"") + name + "\": " + (name == key ? value : usual);
  }
  if (key == "dimension_separator") text += ", \"dimension_separator\": " + value;
  return text + "}";
}

/// Returns the voxels of a chunk of 2 x 4 x 3 whose voxels are 100 z + 10 y + x, in C order.
std::vector<std::uint16_t> chunk_at(index_t z0, index_t x0, bool column_major = false) {
  std::vector<std::uint16_t> voxels(24);
  for (index_t z = 0; z < 2; ++z) {
    for (index_t y = 0; y < 4; ++y) {
      for (index_t x = 0; x < 3; ++x) {
        const index_t at = column_major ? z + 2 * (y + 4 * x) : (z * 4 + y) * 3 + x;
        voxels[static_cast<std::size_t>(at)] = static_cast<std::uint16_t>(100 * (z0 + z) + 10 * y + x0 + x);
      }
    }
  }
  return voxels;
}
std::string bytes_of(const std::vector<std::uint16_t>& voxels) {
  return {reinterpret_cast<const char*>(voxels.data()), 2 * voxels.size()};
}

struct Zarr {
  Directory directory;
  std::filesystem::path folder = directory / "a.zarr";
  Zarr() { std::filesystem::create_directory(folder); }

  /// Writes the array with all chunks encoded by a function.
  template <class Encode>
  void write(const std::string& zarray, char separator, bool column_major, const Encode& encode) {
    write_bytes(folder / ".zarray", zarray);
    for (index_t z = 0; z < 2; ++z) {
      for (index_t x = 0; x < 2; ++x) {
        const auto file = folder / (std::to_string(z) + separator + "0" + separator + std::to_string(x));
        std::filesystem::create_directories(file.parent_path());
        write_bytes(file, encode(bytes_of(chunk_at(2 * z, 3 * x, column_major))));
      }
    }
  }
  void check() const {
    const auto volume = read_volume(folder);
    REQUIRE(volume.shape() == Shape5{1, 1, {3, 4, 5}});
    for (index_t i = 0; i < 60; ++i) {
      CHECK(volume.data()[i] == static_cast<float>(100 * (i / 20) + 10 * (i / 5 % 4) + i % 5));
    }
  }
  std::string refusal() const {
    return message_of<FormatError>([&] { read_volume(folder); });
  }
  std::string refusal(const std::string& zarray) const {
    write_bytes(folder / ".zarray", zarray);
    return refusal();
  }
};

std::string same(const std::string& bytes) { return bytes; }

std::string deflated(const std::string& bytes, bool gzip) {
  std::string out(1000, '\0');
  z_stream stream{};
  REQUIRE(deflateInit2(&stream, 6, Z_DEFLATED, gzip ? 31 : 15, 8, Z_DEFAULT_STRATEGY) == Z_OK);
  std::string in = bytes;
  stream.next_in = reinterpret_cast<Bytef*>(in.data());
  stream.avail_in = static_cast<uInt>(in.size());
  stream.next_out = reinterpret_cast<Bytef*>(out.data());
  stream.avail_out = static_cast<uInt>(out.size());
  REQUIRE(deflate(&stream, Z_FINISH) == Z_STREAM_END);
  out.resize(stream.total_out);
  deflateEnd(&stream);
  return out;
}
std::string zstd(const std::string& bytes) {
  std::string out(ZSTD_compressBound(bytes.size()), '\0');
  out.resize(ZSTD_compress(out.data(), out.size(), bytes.data(), bytes.size(), 3));
  return out;
}
std::string blosc(const std::string& bytes, const char* name, int shuffle) {
  std::string out(bytes.size() + BLOSC_MAX_OVERHEAD, '\0');
  const int got = blosc_compress_ctx(5, shuffle, 2, bytes.size(), bytes.data(), out.data(), out.size(), name, 0, 1);
  REQUIRE(got > 0);
  out.resize(static_cast<std::size_t>(got));
  return out;
}
std::string big_endian(std::string bytes) {
  for (std::size_t i = 0; i + 1 < bytes.size(); i += 2) std::swap(bytes[i], bytes[i + 1]);
  return bytes;
}

}  // namespace

TEST_CASE("Zarr arrays of every codec, order, separator and byte order are read", "[io][zarr]") {
  Zarr zarr;
  const auto id = [](const char* name) { return std::string("{\"id\": \"") + name + "\"}"; };
  SECTION("raw") { zarr.write(metadata(), '.', false, same); }
  SECTION("zlib") {
    zarr.write(metadata("compressor", id("zlib")), '.', false, [](const std::string& b) { return deflated(b, false); });
  }
  SECTION("gzip") {
    zarr.write(metadata("compressor", id("gzip")), '.', false, [](const std::string& b) { return deflated(b, true); });
  }
  SECTION("zstd") { zarr.write(metadata("compressor", id("zstd")), '.', false, zstd); }
  SECTION("blosc") {
    for (const char* name : {"blosclz", "lz4", "lz4hc", "zlib", "zstd"}) {
      if (blosc_compname_to_compcode(name) < 0) continue;
      for (const int shuffle : {0, 1, 2}) {
        CAPTURE(name, shuffle);
        zarr.write(metadata("compressor", id("blosc")), '.', false,
                   [&](const std::string& b) { return blosc(b, name, shuffle); });
        zarr.check();
      }
    }
  }
  SECTION("slashes") { zarr.write(metadata("dimension_separator", "\"/\""), '/', false, same); }
  SECTION("order F") { zarr.write(metadata("order", "\"F\""), '.', true, same); }
  SECTION("big endian") { zarr.write(metadata("dtype", "\">u2\""), '.', false, big_endian); }
  zarr.check();
}

TEST_CASE("absent chunks of a Zarr have the fill value", "[io][zarr]") {
  Zarr zarr;
  zarr.write(metadata(), '.', false, same);
  std::filesystem::remove(zarr.folder / "0.0.1");
  const auto volume = read_volume(zarr.folder);
  CHECK(volume.view()(0, 0, 1, 2, 2) == 122);
  CHECK(volume.view()(0, 0, 1, 2, 3) == 7);
  write_bytes(zarr.folder / ".zarray", metadata("fill_value", "null"));
  CHECK(read_volume(zarr.folder).view()(0, 0, 1, 2, 3) == 0);
  write_bytes(zarr.folder / ".zarray", metadata("dtype", "\"<f4\""));
  for (const char* name : {"0.0.0", "1.0.0", "1.0.1"}) std::filesystem::remove(zarr.folder / name);
  CHECK(read_volume(zarr.folder).data()[0] == 7);
}

TEST_CASE("damaged Zarr metadata is refused by key, value and remedy", "[io][zarr]") {
  const Zarr zarr;
  using Change = std::tuple<const char*, const char*, const char*>;
  for (const auto& [key, value, says] :
       {Change{"zarr_format", "3", "version 2"}, Change{"shape", "[3, 4]", "2 axes"},
        Change{"shape", "[0, 4, 5]", "at least one voxel"}, Change{"shape", "[3, 4, 5, 6, 7, 8]", "6 axes"},
        Change{"shape", "[3, 4, 18446744073709551615]", "shape"}, Change{"shape", "\"3\"", "list"},
        Change{"shape", "[9223372036854775807, 9223372036854775807, 2]", "2^63"},
        Change{"chunks", "[2, 4, 0]", "chunks"}, Change{"chunks", "[2, 4]", "chunks of 2"},
        Change{"chunks", "[70000, 70000, 3]", "4 GiB"}, Change{"dtype", "\"|O\"", "dtype"},
        Change{"dtype", "\"<f1\"", "dtype"}, Change{"dtype", "[[\"a\", \"<i4\"]]", "dtype"},
        Change{"compressor", "{\"id\": \"lzma\"}", "compressor: lzma"}, Change{"order", "\"A\"", "order"},
        Change{"filters", "[{\"id\": \"delta\"}]", "filters"}, Change{"fill_value", "70000", "fill_value"},
        Change{"fill_value", "\"x\"", "fill_value"}, Change{"fill_value", "0.5", "fill_value"}}) {
    CAPTURE(key, value);
    const auto message = zarr.refusal(metadata(key, value));
    CHECK(contains(message, zarr.folder.string()));
    CHECK(contains(message, says));
  }
  CHECK(contains(zarr.refusal(metadata("dimension_separator", "\"-\"")), "dimension_separator"));
  CHECK(contains(zarr.refusal("{"), "not valid JSON"));
  CHECK(contains(zarr.refusal("[]"), "no object"));
  CHECK(contains(zarr.refusal("{}"), "zarr_format: missing"));
}

TEST_CASE("damaged chunks of a Zarr are refused by file", "[io][zarr]") {
  Zarr zarr;
  const auto id = [](const char* name) { return std::string("{\"id\": \"") + name + "\"}"; };
  const std::string bytes = bytes_of(chunk_at(0, 0));
  const auto damaged = [&](const std::string& compressor, const std::string& chunk) {
    zarr.write(metadata("compressor", compressor), '.', false, [&](const std::string&) { return chunk; });
    const auto message = zarr.refusal();
    CHECK(contains(message, "0.0.0"));
    return message;
  };
  CHECK(contains(damaged("null", bytes.substr(1)), "47 bytes instead of 48"));
  CHECK(contains(damaged("null", bytes + bytes), "96 bytes instead of 48"));
  CHECK(contains(damaged("null", std::string(100000, 'x')), "has 100000 bytes instead of"));
  for (const char* codec : {"zlib", "zstd", "blosc", "gzip"}) {
    CAPTURE(codec);
    const auto encode = [&](const std::string& text) {
      const std::string_view name(codec);
      return name == "zlib"   ? deflated(text, false)
             : name == "gzip" ? deflated(text, true)
             : name == "zstd" ? zstd(text)
                              : blosc(text, "lz4", 1);
    };
    const std::string good = encode(bytes);
    for (std::size_t length = 0; length < good.size(); length += 3) damaged(id(codec), good.substr(0, length));
    damaged(id(codec), encode(bytes + "more"));
    damaged(id(codec), encode(bytes.substr(4)));
    damaged(id(codec), "not compressed");
  }
}

TEST_CASE("the levels of an OME-Zarr are found with their scale, and paths do not leave the folder", "[io][zarr]") {
  Zarr zarr;
  const auto group = [&](const std::string& path) {
    return R"({"multiscales": [{"axes": [{"name": "z", "type": "space", "unit": "micrometer"},
      {"name": "y", "type": "space", "unit": "micrometer"}, {"name": "x", "type": "space", "unit": "micrometer"}],
      "datasets": [{"path": ")" +
           path + R"(", "coordinateTransformations": [{"type": "scale", "scale": [0.05, 0.004, 0.004]}]}]}]})";
  };
  const auto outer = zarr.folder;
  write_bytes(outer / ".zgroup", "{\"zarr_format\": 2}");
  write_bytes(outer / ".zattrs", group("s0"));
  zarr.folder = outer / "s0";
  std::filesystem::create_directory(zarr.folder);
  zarr.write(metadata(), '.', false, same);
  zarr.folder = outer;
  zarr.check();
  CHECK(inspect_volume(outer).spacing == Spacing{{0.05, 0.004, 0.004}, "um"});
  CHECK(inspect_volume(VolumePath{outer, "/s0"}).spacing == Spacing{{0.05, 0.004, 0.004}, "um"});
  CHECK(contains(message_of<FormatError>([&] { read_volume(VolumePath{outer, "/s1"}); }), "no array"));
  CHECK(contains(message_of<FormatError>([&] { read_volume(VolumePath{outer, "../../etc"}); }), "'..'"));
  for (const char* path : {"../s0", "/etc", "s0/../../x"}) {
    write_bytes(outer / ".zattrs", group(path));
    CHECK(contains(zarr.refusal(), "multiscales.datasets.path"));
  }
  write_bytes(outer / ".zattrs", "{}");
  CHECK_NOTHROW(zarr.check());  // the only array of the group
  std::filesystem::create_directory(outer / "s1");
  write_bytes(outer / "s1" / ".zarray", metadata());
  CHECK(contains(zarr.refusal(), "which array? it holds s0, s1"));
}

TEST_CASE("version 3 of Zarr, and folders that are no Zarr, are refused by name", "[io][zarr]") {
  Zarr zarr;
  CHECK(contains(zarr.refusal(), "which array"));
  write_bytes(zarr.folder / "zarr.json", "{\"zarr_format\": 3}");
  CHECK(contains(message_of<FormatError>([&] { read_volume(VolumePath{zarr.folder, "/"}); }), "version 2"));
  write_bytes(zarr.directory / "file.zarr", "text");
  CHECK(contains(message_of<FormatError>([&] { read_volume(zarr.directory / "file.zarr"); }), "not a folder"));
}

TEST_CASE("a huge Zarr without chunks is opened, but not read into memory", "[io][zarr]") {
  Zarr zarr;
  write_bytes(zarr.folder / ".zarray", metadata("shape", "[1000000, 100000, 100000]"));
  const auto source = open_volume(VolumePath{zarr.folder, ""});
  std::vector<std::uint16_t> voxels(8);
  source->read({0, 1}, {{999998, 99998, 99998}, {2, 2, 2}}, std::as_writable_bytes(std::span(voxels)));
  CHECK(voxels == std::vector<std::uint16_t>(8, 7));
  CHECK(contains(zarr.refusal(), "bytes are stored"));
}

TEST_CASE("a Zarr chunk that claims a large ratio takes no more memory than it decodes to", "[io][zarr]") {
  if (test::sanitized) return;  // sanitizers mark all memory that is allocated
  Zarr zarr;
  // Three GiB, and a stream that deflate could have made of them, but that ends after three MiB.
  std::string array = metadata("shape", "[1, 32768, 49152]");
  array.replace(array.find("[2, 4, 3]"), 9, "[1, 32768, 49152]");
  array.replace(array.find("\"compressor\": null"), 18, "\"compressor\": {\"id\": \"zlib\"}");
  write_bytes(zarr.folder / ".zarray", array);
  std::string noise(std::size_t{3} << 20, '\0');
  std::uint32_t state = 1;
  for (char& c : noise) c = static_cast<char>((state = state * 1664525 + 1013904223) >> 24);
  std::string stream(compressBound(noise.size()), '\0');
  uLongf size = stream.size();
  REQUIRE(compress(reinterpret_cast<Bytef*>(stream.data()), &size, reinterpret_cast<const Bytef*>(noise.data()),
                   noise.size()) == Z_OK);
  stream.resize(size);
  write_bytes(zarr.folder / "0.0.0", stream);
  const auto memory = [](const char* name) {
    const std::string status = read_bytes("/proc/self/status");
    return std::stol(status.substr(status.find(name) + std::string_view(name).size() + 1));
  };
  write_bytes("/proc/self/clear_refs", "5");  // the peak begins anew
  const long before = memory("VmRSS");
  const auto source = open_volume(VolumePath{zarr.folder, ""});
  std::vector<std::uint16_t> voxels(8);
  const std::string message = message_of<FormatError>([&] {
    source->read({0, 1}, {{0, 0, 0}, {1, 2, 4}}, std::as_writable_bytes(std::span(voxels)));
  });
  CAPTURE(message);
  CHECK(contains(message, "instead of 3221225472"));
  CHECK(memory("VmHWM") - before < (64 << 10) + 2 * (3 << 10));  // KiB
}

TEST_CASE("a Zarr replaces a Zarr, but not a folder of other things", "[io][zarr]") {
  const Directory directory;
  const auto first = ramp({1, 1, {2, 3, 4}}), second = ramp({1, 2, {3, 3, 3}});
  write_volume(directory / "a.zarr", first);
  write_volume(directory / "a.zarr", second);
  CHECK(equal(read_volume(directory / "a.zarr"), second));
  CHECK(directory.files() == 1);
  CHECK(contains(message_of<IoError>([&] {
                   write_volume(VolumePath{directory / "a.zarr", "/s0"}, first);
                 }),
                 "no group"));
  // An array joins the others of its group, and replaces its namesake alone.
  const VolumePath s0{directory / "g.zarr", "/s0"}, s1{directory / "g.zarr", "/s1"};
  write_volume(s0, first);
  write_volume(s1, second);
  write_volume(s1, first);
  CHECK(equal(read_volume(s0), first));
  CHECK(equal(read_volume(s1), first));
  CHECK(contains(message_of<IoError>([&] { write_volume(directory / "g.zarr", first); }), "is no array"));
  std::filesystem::create_directory(directory / "b.zarr");
  write_bytes(directory / "b.zarr" / "thesis.txt", "important");
  CHECK(contains(message_of<IoError>([&] { write_volume(directory / "b.zarr", first); }), "is no array"));
  CHECK(read_bytes(directory / "b.zarr" / "thesis.txt") == "important");
}

TEST_CASE("levels of an OME-Zarr without a name of their own are refused, and do not hide others", "[io][zarr]") {
  Zarr zarr;
  const auto outer = zarr.folder;
  zarr.folder = outer / "s0";
  std::filesystem::create_directory(zarr.folder);
  zarr.write(metadata(), '.', false, same);
  zarr.folder = outer;
  for (const char* path : {"", "/", "."}) {
    CAPTURE(path);
    write_bytes(outer / ".zattrs", std::string(R"({"multiscales": [{"datasets": [{"path": ")") + path + R"("}]}]})");
    CHECK(contains(zarr.refusal(), path[0] == '/' ? "multiscales.datasets.path" : "must name an array"));
    CHECK(inspect_volume(VolumePath{outer, "/s0"}).extent == Extent3{3, 4, 5});
  }
}

TEST_CASE("the level of an OME-Zarr may lie in a group within the group that lists it", "[io][zarr]") {
  Zarr zarr;
  const auto outer = zarr.folder;
  const auto group = [](const std::string& path, const std::string& scale) {
    return R"({"multiscales": [{"axes": [{"name": "z", "unit": "nanometer"}, {"name": "y", "unit": "nanometer"},
      {"name": "x", "unit": "nanometer"}], "datasets": [{"path": ")" +
           path + R"(", "coordinateTransformations": [{"type": "scale", "scale": )" + scale + "}]}]}]}";
  };
  zarr.folder = outer / "scale0" / "image";
  std::filesystem::create_directories(zarr.folder);
  zarr.write(metadata(), '.', false, same);
  zarr.folder = outer;
  write_bytes(outer / ".zattrs", group("scale0/image", "[50, 4, 4]"));
  zarr.check();
  CHECK(inspect_volume(outer).spacing == Spacing{{50, 4, 4}, "nm"});
  CHECK(inspect_volume(VolumePath{outer, "/scale0/image"}).spacing == Spacing{{50, 4, 4}, "nm"});
  write_bytes(outer / "scale0" / ".zattrs", group("other", "[1, 2, 3]"));
  CHECK(inspect_volume(outer).spacing == Spacing{{50, 4, 4}, "nm"});
  write_bytes(outer / "scale0" / ".zattrs", group("image", "[1, 2, 3]"));
  CHECK(inspect_volume(outer).spacing == Spacing{{1, 2, 3}, "nm"});
}

TEST_CASE("metadata of a Zarr that are nested without end are refused", "[io][zarr]") {
  Zarr zarr;
  const std::size_t levels = 1'000'000;
  const std::string deep = std::string(levels, '[') + std::string(levels, ']');
  CHECK(contains(zarr.refusal(metadata("filters", deep)), "nested more than 64 deep"));
  zarr.write(metadata(), '.', false, same);
  write_bytes(zarr.folder / ".zattrs", "{\"multiscales\": " + deep + "}");
  CHECK(contains(zarr.refusal(), "nested more than 64 deep"));
  write_bytes(zarr.folder / ".zattrs", "{\"other\": " + std::string(60, '[') + std::string(60, ']') + "}");
  zarr.check();
}

TEST_CASE("a pipe in place of the metadata of a Zarr is refused", "[io][zarr]") {
  const Zarr zarr;
  REQUIRE(::mkfifo((zarr.folder / ".zarray").c_str(), 0600) == 0);
  CHECK(contains(message_of<IoError>([&] { read_volume(zarr.folder); }), ".zarray: is not a regular file"));
}

TEST_CASE("Zarr chunks of several times are refused by name", "[io][zarr]") {
  const Zarr zarr;
  std::string text = metadata("shape", "[1, 1, 3, 4, 5]");
  text.replace(text.find("[2, 4, 3]"), 9, "[2, 1, 2, 4, 3]");
  CHECK(contains(zarr.refusal(text), ".zarray: chunks: 2 times"));
}

TEST_CASE("a Zarr with an axis that is as long as numbers go is read", "[io][zarr]") {
  Zarr zarr;
  constexpr index_t most = std::numeric_limits<index_t>::max();
  for (const char* dtype : {"\"|u1\"", "\"|i1\""}) {
    std::string text = metadata("shape", "[1, 1, 9223372036854775807]");
    text.replace(text.find("[2, 4, 3]"), 9, "[1, 1, 1000]");
    text.replace(text.find("\"<u2\""), 5, dtype);
    write_bytes(zarr.folder / ".zarray", text);
    const auto source = open_volume(VolumePath{zarr.folder, ""});
    std::vector<std::byte> voxels(3);
    source->read({0, 1}, {{0, 0, most - 3}, {1, 1, 3}}, voxels);
    CHECK(voxels == std::vector<std::byte>(3, std::byte{7}));
    CHECK_THROWS_AS(source->read({0, 1}, {{0, 0, most - 1}, {1, 1, 3}}, voxels), InvalidArgument);
    CHECK_THROWS_AS(source->read({most, most}, {{0, 0, 0}, {1, 1, 3}}, voxels), InvalidArgument);
  }
  const ChunkGrid grid(1, {1, 1, most}, 1, {1, 1, 1000});
  CHECK(grid.count() == most / 1000 + 1);
  CHECK(grid.place(0, {0, 0, grid.count() - 1}).box == VoxelBox{{0, 0, most / 1000 * 1000}, {1, 1, most % 1000}});
}

TEST_CASE("axes of an OME-Zarr are read in any order, with chunks in both orders", "[io][zarr]") {
  // Lengths of c, z, y, x, and of their chunks.
  const std::string names = "czyx";
  const std::array<index_t, 4> length{2, 3, 4, 5}, chunk{2, 2, 4, 3};
  std::string axes = "czyx";
  std::sort(axes.begin(), axes.end());
  do {
    for (const bool column_major : {false, true}) {
      CAPTURE(axes, column_major);
      const Directory directory;
      const auto folder = directory / "a.zarr", array = folder / "0";
      std::filesystem::create_directories(array);
      const auto list = [&](const std::array<index_t, 4>& all) {
        std::string text;
        for (const char axis : axes) text += (text.empty() ? "[" : ", ") + std::to_string(all[names.find(axis)]);
        return text + "]";
      };
      std::string ome;
      for (const char axis : axes) ome += std::string(ome.empty() ? "" : ", ") + R"({"name": ")" + axis + "\"}";
      write_bytes(folder / ".zattrs", R"({"multiscales": [{"axes": [)" + ome + R"(], "datasets": [{"path": "0"}]}]})");
      write_bytes(array / ".zarray",
                  R"({"zarr_format": 2, "shape": )" + list(length) + R"(, "chunks": )" + list(chunk) +
                      R"(, "dtype": "<u2", "compressor": null, "fill_value": 0, "filters": null, "order": ")" +
                      (column_major ? "F" : "C") + "\"}");
      std::array<index_t, 4> at{};  // the chunk, along c, z, y, x
      for (at[1] = 0; at[1] < 2; ++at[1]) {
        for (at[3] = 0; at[3] < 2; ++at[3]) {
          std::string key, order = axes, bytes;
          for (const char axis : axes) key += (key.empty() ? "" : ".") + std::to_string(at[names.find(axis)]);
          if (column_major) std::reverse(order.begin(), order.end());
          for (index_t i = 0; i < 2 * 2 * 4 * 3; ++i) {
            index_t rest = i;
            std::array<index_t, 4> place{};
            for (auto axis = order.rbegin(); axis != order.rend(); ++axis) {
              const std::size_t a = names.find(*axis);
              place[a] = at[a] * chunk[a] + rest % chunk[a];
              rest /= chunk[a];
            }
            const auto value = static_cast<std::uint16_t>(1000 * place[0] + 100 * place[1] + 10 * place[2] + place[3]);
            bytes.append(reinterpret_cast<const char*>(&value), 2);
          }
          write_bytes(array / key, bytes);
        }
      }
      const auto volume = read_volume(folder);
      REQUIRE(volume.shape() == Shape5{1, 2, {3, 4, 5}});
      bool same = true;
      for (index_t i = 0; i < volume.elements(); ++i) {
        const index_t value = 1000 * (i / 60) + 100 * (i / 20 % 3) + 10 * (i / 5 % 4) + i % 5;
        same = same && volume.data()[i] == static_cast<float>(value);
      }
      CHECK(same);
    }
  } while (std::next_permutation(axes.begin(), axes.end()));
}

TEST_CASE("booleans and floats of 16 bits of a Zarr are read", "[io][zarr]") {
  const Directory directory;
  const auto folder = directory / "a.zarr";
  std::filesystem::create_directory(folder);
  const auto array = [&](const char* dtype, const char* fill) {
    write_bytes(folder / ".zarray",
                std::string(R"({"zarr_format": 2, "shape": [1, 1, 8], "chunks": [1, 1, 6], "dtype": ")") + dtype +
                    R"(", "compressor": null, "fill_value": )" + fill + R"(, "filters": null, "order": "C"})");
  };
  array("<f2", "2.5");
  // 1, -2, the largest number, the least positive one, infinity is left out, and 0.1 rounded.
  const std::array<std::uint16_t, 6> half{0x3c00, 0xc000, 0x7bff, 0x0001, 0x2e66, 0x8000};
  write_bytes(folder / "0.0.0", {reinterpret_cast<const char*>(half.data()), 12});
  const std::vector<float> expected{1, -2, 65504, std::ldexp(1.0f, -24), 0.0999755859375f, 0, 2.5, 2.5};
  const auto check = [&] {
    const auto volume = read_volume(folder);
    for (std::size_t i = 0; i < 8; ++i) CHECK(volume.data()[i] == expected[i]);
  };
  check();
  CHECK(inspect_volume(folder).element_type == "float16");
  array(">f2", "2.5");
  std::string swapped(reinterpret_cast<const char*>(half.data()), 12);
  for (std::size_t i = 0; i < 12; i += 2) std::swap(swapped[i], swapped[i + 1]);
  write_bytes(folder / "0.0.0", swapped);
  check();

  array("|b1", "true");
  write_bytes(folder / "0.0.0", std::string("\0\1\1\0\0\1", 6));
  CHECK(inspect_volume(folder).element_type == "bool");
  const auto source = open_volume(folder.string());
  std::vector<std::byte> voxels(8);
  source->read({0, 1}, {{0, 0, 0}, {1, 1, 8}}, voxels);
  std::string bits;
  for (const std::byte voxel : voxels) bits += voxel == std::byte{0} ? '0' : '1';
  CHECK(bits == "01100111");
}

TEST_CASE("chunks are found under the names that they have, or their key is named", "[io][zarr]") {
  Zarr zarr;
  zarr.write(metadata(), '/', false, same);  // nested, without the key: as old versions of n5-zarr write
  zarr.check();
  for (const char* name : {"0", "1"}) std::filesystem::remove_all(zarr.folder / name);
  zarr.write(metadata("dimension_separator", "\"/\""), '.', false, same);
  CHECK(contains(zarr.refusal(), "dimension_separator"));
  zarr.write(metadata("dimension_separator", "\".\""), '.', false, same);
  zarr.check();
  for (const char* name : {"0.0.0", "0.0.1", "1.0.0", "1.0.1"}) std::filesystem::remove(zarr.folder / name);
  zarr.write(metadata("dimension_separator", "\".\""), '/', false, same);
  CHECK(contains(zarr.refusal(), "the chunks have names like 0/0/0"));
}

TEST_CASE("a fill value may be a number in a text", "[io][zarr]") {
  Zarr zarr;
  for (const auto& [dtype, text, value] :
       {std::tuple("\"<u2\"", "\"7\"", 7.0f), std::tuple("\"<f4\"", "\"-0.5\"", -0.5f),
        std::tuple("\"<i2\"", "\"-3\"", -3.0f)}) {
    std::string all = metadata("dtype", dtype);
    all.replace(all.find("\"fill_value\": 7"), 15, std::string("\"fill_value\": ") + text);
    write_bytes(zarr.folder / ".zarray", all);
    CHECK(read_volume(zarr.folder).data()[0] == value);
  }
}
