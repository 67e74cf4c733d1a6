#include <cstring>
#include <limits>
#include <vector>

#include "io_testing.hpp"

#include "nets/io/gzip_file.hpp"
#include "nets/io/nifti_header.hpp"
#include "nets/io/volume.hpp"
#include "nets/io/volume_sink.hpp"
#include "nets/io/volume_source.hpp"

using namespace convolume;
using namespace convolume::nets;
using namespace convolume::nets::io;
using namespace convolume::nets::testing;

namespace {

// Where fields lie in a NIfTI-1 header.
constexpr std::size_t dim_at = 40, datatype_at = 70, bitpix_at = 72, offset_at = 108, slope_at = 112, magic_at = 344;

template <class T>
void put(std::string& file, std::size_t at, T value) {
  std::memcpy(file.data() + at, &value, sizeof value);
}

/// Returns a NIfTI-1 file of 2 x 3 x 4 voxels 0, 1, 2, ... of int16.
std::string small_file() {
  detail::NiftiHeader header;
  header.extent = {2, 3, 4};
  header.stored = VoxelType::int16;
  header.geometry = detail::geometry_of(Spacing{{3, 2, 1}, "mm"});
  std::string file = detail::nifti_header_bytes(header);
  for (std::int16_t i = 0; i < 24; ++i) file.append(reinterpret_cast<const char*>(&i), 2);
  return file;
}

std::string refusal(const std::filesystem::path& file) {
  const auto message = message_of<FormatError>([&] { read_volume(file); });
  CHECK(contains(message, file.string()));
  return message;
}

}  // namespace

TEST_CASE("NIfTI axes i, j, k are our x, y, z, and the spacing follows them", "[io][nifti]") {
  const Directory directory;
  write_bytes(directory / "a.nii", small_file());
  const auto info = inspect_volume(directory / "a.nii");
  CHECK(info.extent == Extent3{2, 3, 4});
  CHECK(info.spacing == Spacing{{3, 2, 1}, "mm"});
  CHECK(equal(read_volume(directory / "a.nii"), ramp({1, 1, {2, 3, 4}})));
}

TEST_CASE("slope and intercept scale the voxels, and a slope of 0 or NaN does not", "[io][nifti]") {
  const Directory directory;
  const auto file = directory / "a.nii";
  std::string bytes = small_file();
  put(bytes, slope_at, 0.5f);
  put(bytes, slope_at + 4, -3.0f);
  write_bytes(file, bytes);
  CHECK(inspect_volume(file).type == VoxelType::float32);
  CHECK(contains(inspect_volume(file).element_type, "int16, scaled by 0.5"));
  const auto scaled = read_volume(file);
  for (index_t i = 0; i < 24; ++i) CHECK(scaled.data()[i] == static_cast<float>(i) * 0.5f - 3);
  for (const float slope : {0.0f, std::numeric_limits<float>::quiet_NaN(), std::numeric_limits<float>::infinity()}) {
    put(bytes, slope_at, slope);
    write_bytes(file, bytes);
    CHECK(inspect_volume(file).type == VoxelType::int16);
    CHECK(read_volume(file).data()[5] == 5);
  }
}

TEST_CASE("a pair of .hdr and .img is read by either name", "[io][nifti]") {
  const Directory directory;
  std::string bytes = small_file();
  std::memcpy(bytes.data() + magic_at, "ni1", 4);
  put(bytes, offset_at, 0.0f);
  write_bytes(directory / "a.hdr", bytes.substr(0, 348));
  CHECK(contains(refusal(directory / "a.hdr"), "no .img beside it"));
  write_bytes(directory / "a.img", bytes.substr(352));
  for (const char* name : {"a.hdr", "a.img"}) {
    CHECK(equal(read_volume(directory / name), ramp({1, 1, {2, 3, 4}})));
  }
  std::filesystem::remove(directory / "a.hdr");
  CHECK(contains(message_of<FormatError>([&] { read_volume(directory / "a.img"); }), "no .hdr beside it"));
}

TEST_CASE("damaged NIfTI headers are refused by field, value and remedy", "[io][nifti]") {
  const Directory directory;
  const auto file = directory / "a.nii";
  const std::string good = small_file();
  const auto with = [&](std::size_t at, auto value) {
    std::string bytes = good;
    put(bytes, at, value);
    write_bytes(file, bytes);
    return refusal(file);
  };
  using I = std::int16_t;
  CHECK(contains(with(dim_at, I{0}), "dim[0]: 0"));
  CHECK(contains(with(dim_at, I{8}), "dim[0]: 8"));
  CHECK(contains(with(dim_at + 2, I{0}), "dim[1]: 0"));
  CHECK(contains(with(dim_at + 6, I{-5}), "dim[3]: -5"));
  CHECK(contains(with(dim_at + 2, I{32767}), "do not fit into"));
  CHECK(contains(with(datatype_at, I{3}), "datatype: 3 (unknown)"));
  CHECK(contains(with(datatype_at, I{128}), "datatype: 128 (colour)"));
  CHECK(contains(with(datatype_at, I{32}), "datatype: 32 (complex)"));
  CHECK(contains(with(bitpix_at, I{8}), "bitpix: 8 for int16"));
  CHECK(contains(with(offset_at, 348.0f), "vox_offset: 348"));
  CHECK(contains(with(offset_at, std::numeric_limits<float>::quiet_NaN()), "vox_offset: nan"));
  CHECK(contains(with(offset_at, 1e30f), "vox_offset"));
  CHECK(contains(with(offset_at, 352.5f), "vox_offset: 352.5"));
  CHECK(contains(with(magic_at, I{0}), "Analyze"));
  std::string six = good;  // a sixth axis
  put(six, dim_at, I{6});
  put(six, dim_at + 12, I{2});
  write_bytes(file, six);
  CHECK(contains(refusal(file), "axes beyond the third"));
}

TEST_CASE("truncated NIfTI files are refused wherever they end, packed or not", "[io][nifti]") {
  const Directory directory;
  const auto volume = ramp({1, 1, {3, 8, 9}});
  for (const char* name : {"a.nii", "a.nii.gz"}) {
    const auto file = directory / name;
    write_volume(file, volume);
    const std::string whole = read_bytes(file);
    for (std::size_t length = 1; length < whole.size(); length += 7) {
      CAPTURE(name, length, whole.size());
      write_bytes(file, std::string_view(whole).substr(0, length));
      refusal(file);
    }
    if (std::string_view(name) == "a.nii") continue;
    write_bytes(file, whole + "something else");
    CHECK(contains(refusal(file), "not gzip follows"));
    write_bytes(file, whole + whole.substr(0, 60));
    refusal(file);
    std::string damaged = whole;
    damaged[whole.size() / 2] = static_cast<char>(damaged[whole.size() / 2] ^ 4);
    write_bytes(file, damaged);
    refusal(file);
  }
}

TEST_CASE("a packed NIfTI that is too large for memory is decoded to a temporary file", "[io][nifti]") {
  const Directory directory;
  const auto volume = ramp({1, 1, {30, 100, 120}});
  write_volume(directory / "a.nii.gz", volume);
  const auto files = directory.files();
  const auto source = open_volume({directory / "a.nii.gz", ""}, {.decode_in_memory = 1000});
  std::vector<float> voxels(30 * 100 * 120);
  source->read({0, 1}, {{0, 0, 0}, {30, 100, 120}}, std::as_writable_bytes(std::span(voxels)));
  CHECK(std::equal(voxels.begin(), voxels.end(), volume.data()));
  CHECK(directory.files() == files);  // it has no name
}

TEST_CASE("geometry goes through NIfTI, and two geometries are compared in voxels", "[io][nifti]") {
  const Directory directory;
  Geometry geometry = detail::geometry_of(Spacing{{3, 2, 1}, "mm"});
  geometry.qform_code = 1;
  geometry.quatern = {0.1, 0.2, 0.3};
  geometry.offset = {-10, 20, 30};
  geometry.pixdim[0] = -1;
  const Extent3 extent{4, 5, 6};
  for (const char* name : {"a.nii", "a.nii.gz"}) {
    const auto sink =
        create_volume({directory / name, ""}, {.extent = extent, .type = VoxelType::uint8, .geometry = geometry});
    sink->write({0, 1}, {{0, 0, 0}, extent}, std::vector<std::byte>(120));
    sink->finish();
    const Geometry read = *open_volume({directory / name, ""})->info().geometry;
    CHECK(distance_in_voxels(geometry, read, extent) < 1e-5);  // the fields are floats
    CHECK(read.qform_code == 1);
  }
  // The columns of the map are as long as the distances, and k points the other way.
  const auto m = geometry.affine();
  const auto length = [&](std::size_t c) { return std::sqrt(m[c] * m[c] + m[4 + c] * m[4 + c] + m[8 + c] * m[8 + c]); };
  CHECK(length(0) == Approx(1));
  CHECK(length(1) == Approx(2));
  CHECK(length(2) == Approx(3));
  const double determinant =
      m[0] * (m[5] * m[10] - m[6] * m[9]) - m[1] * (m[4] * m[10] - m[6] * m[8]) + m[2] * (m[4] * m[9] - m[5] * m[8]);
  CHECK(determinant == Approx(-6));
  Geometry moved = geometry;
  moved.offset[1] += 0.5;
  CHECK(distance_in_voxels(geometry, moved, extent) == Approx(0.5));
}

TEST_CASE("axes beyond 32767 voxels make a NIfTI-2 file", "[io][nifti]") {
  const Directory directory;
  const auto volume = ramp({1, 1, {1, 1, 40000}});
  write_volume(directory / "long.nii", volume);
  CHECK(inspect_volume(directory / "long.nii").format == "NIfTI-2");
  CHECK(equal(read_volume(directory / "long.nii"), volume));
}

TEST_CASE("a gzip file that becomes shorter while it is decoded is refused as truncated", "[io][nifti]") {
  const Directory directory;
  const auto file = directory / "a.nii.gz";
  write_volume(file, ramp({1, 1, {9, 40, 50}}, 0.37f));
  const ReadableFile opened(file);
  std::filesystem::resize_file(file, opened.size() / 2);
  const auto message = message_of<FormatError>([&] {
    const detail::DecodedFile decoded(opened, std::size_t{1} << 20, std::uint64_t{1} << 30, directory.path());
  });
  CHECK(contains(message, "a.nii.gz: gzip: it ends too early"));
}

TEST_CASE("NIfTI has no unit that it does not know, and converts the others", "[io][nifti]") {
  const auto stored = [](const char* unit) {
    return detail::spacing_of(detail::geometry_of(Spacing{{4, 2, 1}, unit}));
  };
  CHECK(stored("mm") == Spacing{{4, 2, 1}, "mm"});
  CHECK(stored("meter") == Spacing{{4, 2, 1}, "m"});
  CHECK(stored("micron") == Spacing{{4, 2, 1}, "um"});
  CHECK(stored("nm").unit == "um");
  CHECK(stored("nm").zyx[0] == Approx(0.004));
  CHECK(stored("cm").unit == "mm");
  CHECK(stored("cm").zyx[1] == Approx(20));
  CHECK(stored("inch").zyx[2] == Approx(25.4));
  for (const char* unit : {"", "pixel", "furlong"}) CHECK(stored(unit) == Spacing{{4, 2, 1}, ""});
}
