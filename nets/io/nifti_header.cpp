#include "nets/io/nifti_header.hpp"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <memory>
#include <type_traits>

#include <fmt/format.h>
#include <nifti1.h>
#include <nifti2.h>

#include "nets/io/volume_formats.hpp"

namespace convolume::nets::io::detail {
namespace {

constexpr std::size_t v1_bytes = sizeof(nifti_1_header), v2_bytes = sizeof(nifti_2_header);
static_assert(v1_bytes == 348 && v2_bytes == 540);
// The voxels of a single file begin behind the header and four bytes that say whether it has extensions.
constexpr std::uint64_t v1_offset = 352, v2_offset = 544;

template <class T>
T swapped(T value) {
  std::array<std::byte, sizeof(T)> bytes;
  std::memcpy(bytes.data(), &value, sizeof(T));
  std::reverse(bytes.begin(), bytes.end());
  std::memcpy(&value, bytes.data(), sizeof(T));
  return value;
}

/// The fields that both versions have, in the machine's byte order.
struct Fields {
  std::array<std::int64_t, 8> dim{};
  std::array<double, 8> pixdim{};
  int datatype = 0, bits = 0, qform_code = 0, sform_code = 0, xyzt_units = 0;
  double offset = 0, slope = 0, intercept = 0;
  std::array<double, 3> quatern{}, at{};
  std::array<double, 12> srow{};
  std::array<char, 4> magic{};
};

template <class Header>
Fields fields_of(const Header& h, bool swap) {
  const auto get = [&](auto value) { return swap ? swapped(value) : value; };
  Fields f;
  for (std::size_t i = 0; i < 8; ++i) f.dim[i] = get(h.dim[i]);
  for (std::size_t i = 0; i < 8; ++i) f.pixdim[i] = static_cast<double>(get(h.pixdim[i]));
  f.datatype = get(h.datatype);
  f.bits = get(h.bitpix);
  f.qform_code = get(h.qform_code);
  f.sform_code = get(h.sform_code);
  if constexpr (sizeof(h.xyzt_units) == 1) {
    f.xyzt_units = h.xyzt_units;
  } else {
    f.xyzt_units = get(h.xyzt_units);
  }
  f.offset = static_cast<double>(get(h.vox_offset));
  f.slope = static_cast<double>(get(h.scl_slope));
  f.intercept = static_cast<double>(get(h.scl_inter));
  f.quatern = {static_cast<double>(get(h.quatern_b)), static_cast<double>(get(h.quatern_c)),
               static_cast<double>(get(h.quatern_d))};
  f.at = {static_cast<double>(get(h.qoffset_x)), static_cast<double>(get(h.qoffset_y)),
          static_cast<double>(get(h.qoffset_z))};
  for (std::size_t i = 0; i < 4; ++i) {
    f.srow[i] = static_cast<double>(get(h.srow_x[i]));
    f.srow[4 + i] = static_cast<double>(get(h.srow_y[i]));
    f.srow[8 + i] = static_cast<double>(get(h.srow_z[i]));
  }
  std::memcpy(f.magic.data(), h.magic, f.magic.size());
  return f;
}

std::int32_t first_number(std::string_view head) {
  std::int32_t size = 0;
  if (head.size() >= 4) std::memcpy(&size, head.data(), 4);
  return size;
}
bool is_version_1(std::int32_t size) { return size == 348 || swapped(size) == 348; }
bool is_version_2(std::int32_t size) { return size == 540 || swapped(size) == 540; }

class Parser {
 public:
  Parser(const std::string& file, const Fields& fields, int version) : file_(file), f_(fields) {
    header_.version = version;
  }

  NiftiHeader parse() {
    read_magic();
    read_axes();
    read_type();
    read_offset();
    read_scale();
    read_geometry();
    return header_;
  }

 private:
  [[noreturn]] void fail(std::string_view field, const std::string& found, std::string_view remedy) const {
    fail_format(file_, field, found, remedy);
  }

  void read_magic() {
    const char* const single = header_.version == 1 ? "n+1" : "n+2";
    const char* const pair = header_.version == 1 ? "ni1" : "ni2";
    header_.pair = std::equal(pair, pair + 4, f_.magic.begin());
    if (header_.pair || std::equal(single, single + 4, f_.magic.begin())) return;
    fail("magic", "neither of a single file nor of a pair",
         "Analyze files are not read; convert it to NIfTI, e.g. with nibabel");
  }

  void read_axes() {
    const std::int64_t rank = f_.dim[0];
    if (rank < 1 || rank > 7) fail("dim[0]", std::to_string(rank), "a file has 1 to 7 axes; it is damaged");
    std::array<index_t, 7> axes{1, 1, 1, 1, 1, 1, 1};
    for (std::size_t i = 0; i < static_cast<std::size_t>(rank); ++i) {
      axes[i] = f_.dim[i + 1];
      if (axes[i] < 1) fail(fmt::format("dim[{}]", i + 1), std::to_string(axes[i]), "an axis needs at least one voxel");
    }
    // Channels are along the fourth axis, or along the fifth one, which holds vectors.
    if (axes[5] != 1 || axes[6] != 1 || (axes[3] != 1 && axes[4] != 1)) {
      fail("dim", fmt::format("{} axes beyond the third", rank - 3),
           "a volume has at most four axes, and the fourth one is its channels; split the file");
    }
    header_.channels = axes[3] * axes[4];
    header_.extent = {axes[2], axes[1], axes[0]};
  }

  void read_type() {
    struct Known {
      int code;
      VoxelType type;
    };
    constexpr Known known[] = {{DT_UINT8, VoxelType::uint8},     {DT_INT8, VoxelType::int8},
                               {DT_UINT16, VoxelType::uint16},   {DT_INT16, VoxelType::int16},
                               {DT_UINT32, VoxelType::uint32},   {DT_INT32, VoxelType::int32},
                               {DT_UINT64, VoxelType::uint64},   {DT_INT64, VoxelType::int64},
                               {DT_FLOAT32, VoxelType::float32}, {DT_FLOAT64, VoxelType::float64}};
    const auto* const at =
        std::find_if(std::begin(known), std::end(known), [&](const Known& k) { return k.code == f_.datatype; });
    constexpr std::string_view types = "store integers of 8 to 64 bits, or floats of 32 or 64 bits";
    if (at == std::end(known)) {
      const bool colour = f_.datatype == DT_RGB24 || f_.datatype == DT_RGBA32;
      const bool complex = f_.datatype == DT_COMPLEX64 || f_.datatype == DT_COMPLEX128 || f_.datatype == DT_COMPLEX256;
      fail("datatype",
           fmt::format("{}{}", f_.datatype,
                       colour    ? " (colour)"
                       : complex ? " (complex)"
                                 : " (unknown)"),
           types);
    }
    header_.stored = at->type;
    if (f_.bits != static_cast<int>(8 * size_of(at->type))) {
      fail("bitpix", fmt::format("{} for {}", f_.bits, name_of(at->type)), "the header contradicts itself");
    }
  }

  void read_offset() {
    const std::uint64_t least = header_.pair ? 0 : header_.version == 1 ? v1_offset : v2_offset;
    if (!std::isfinite(f_.offset) || f_.offset < 0 || f_.offset > 9e15 || f_.offset != std::floor(f_.offset)) {
      fail("vox_offset", fmt::format("{}", f_.offset), "it must be a whole number of bytes; the file is damaged");
    }
    header_.offset = static_cast<std::uint64_t>(f_.offset);
    if (header_.offset < least) {
      fail("vox_offset", std::to_string(header_.offset),
           fmt::format("it lies inside the header; the voxels begin at byte {} or later", least));
    }
  }

  void read_scale() {
    // A slope of 0, or one that is no number, means that the voxels are not scaled.
    if (f_.slope == 0 || !std::isfinite(f_.slope) || !std::isfinite(f_.intercept)) return;
    header_.slope = f_.slope;
    header_.intercept = f_.intercept;
  }

  void read_geometry() {
    Geometry& g = header_.geometry;
    g.pixdim = f_.pixdim;
    g.xyzt_units = f_.xyzt_units;
    g.qform_code = f_.qform_code;
    g.sform_code = f_.sform_code;
    g.quatern = f_.quatern;
    g.offset = f_.at;
    g.srow = f_.srow;
  }

  const std::string& file_;
  const Fields& f_;
  NiftiHeader header_;
};

/// Converts to the type of a field, or of the elements of a field.
template <class Field, class T>
auto number(T value) {
  return static_cast<std::remove_extent_t<Field>>(value);
}

template <class Header>
std::string bytes_of(const NiftiHeader& header, std::uint64_t offset, std::string_view magic) {
  // On the heap: GCC 12 loses assignments to the packed fields of a local struct (scalar replacement of aggregates).
  const auto owner = std::make_unique<Header>();
  Header& h = *owner;
  h.sizeof_hdr = sizeof(Header);
  // The header is packed, so its fields are assigned and never referred to.
  const std::array<index_t, 8> dim{
      header.channels > 1 ? 4 : 3, header.extent.x, header.extent.y, header.extent.z, header.channels, 1, 1, 1};
  for (std::size_t i = 0; i < 8; ++i) h.dim[i] = number<decltype(h.dim)>(dim[i]);
  const Geometry& g = header.geometry;
  for (std::size_t i = 0; i < 8; ++i) h.pixdim[i] = number<decltype(h.pixdim)>(g.pixdim[i]);
  constexpr std::array<int, 10> codes{DT_UINT8, DT_INT8,   DT_UINT16, DT_INT16,   DT_UINT32,
                                      DT_INT32, DT_UINT64, DT_INT64,  DT_FLOAT32, DT_FLOAT64};
  h.datatype = number<decltype(h.datatype)>(codes[static_cast<std::size_t>(header.stored)]);
  h.bitpix = number<decltype(h.bitpix)>(8 * size_of(header.stored));
  h.vox_offset = number<decltype(h.vox_offset)>(offset);
  h.scl_slope = number<decltype(h.scl_slope)>(header.slope);
  h.scl_inter = number<decltype(h.scl_inter)>(header.intercept);
  h.xyzt_units = number<decltype(h.xyzt_units)>(g.xyzt_units);
  h.qform_code = number<decltype(h.qform_code)>(g.qform_code);
  h.sform_code = number<decltype(h.sform_code)>(g.sform_code);
  h.quatern_b = number<decltype(h.quatern_b)>(g.quatern[0]);
  h.quatern_c = number<decltype(h.quatern_c)>(g.quatern[1]);
  h.quatern_d = number<decltype(h.quatern_d)>(g.quatern[2]);
  h.qoffset_x = number<decltype(h.qoffset_x)>(g.offset[0]);
  h.qoffset_y = number<decltype(h.qoffset_y)>(g.offset[1]);
  h.qoffset_z = number<decltype(h.qoffset_z)>(g.offset[2]);
  for (std::size_t i = 0; i < 4; ++i) {
    h.srow_x[i] = number<decltype(h.srow_x)>(g.srow[i]);
    h.srow_y[i] = number<decltype(h.srow_y)>(g.srow[4 + i]);
    h.srow_z[i] = number<decltype(h.srow_z)>(g.srow[8 + i]);
  }
  std::memcpy(h.magic, magic.data(), sizeof h.magic);
  std::string bytes(offset, '\0');
  std::memcpy(bytes.data(), &h, sizeof h);
  return bytes;
}

}  // namespace

bool has_nifti_header(std::string_view head) {
  const std::int32_t size = first_number(head);
  return is_version_1(size) || is_version_2(size);
}

NiftiHeader parse_nifti_header(const std::string& file, std::string_view head) {
  const std::int32_t size = first_number(head);
  const bool second = is_version_2(size);
  const std::size_t bytes = second ? v2_bytes : v1_bytes;
  if (head.size() < bytes) {
    fail_format(file, "header", fmt::format("{} of {} bytes", head.size(), bytes), "the file is truncated");
  }
  const bool swap = size != 348 && size != 540;
  Fields fields;
  if (second) {
    nifti_2_header h;
    std::memcpy(&h, head.data(), sizeof h);
    fields = fields_of(h, swap);
  } else {
    nifti_1_header h;
    std::memcpy(&h, head.data(), sizeof h);
    fields = fields_of(h, swap);
  }
  NiftiHeader header = Parser(file, fields, second ? 2 : 1).parse();
  header.swapped = swap;
  return header;
}

std::string nifti_header_bytes(const NiftiHeader& header) {
  static_assert(std::endian::native == std::endian::little, "the header is written in the machine's byte order");
  constexpr index_t most = std::numeric_limits<std::int16_t>::max();
  const Extent3& e = header.extent;
  const bool first = std::max({e.z, e.y, e.x, header.channels}) <= most;
  using namespace std::string_view_literals;
  return first ? bytes_of<nifti_1_header>(header, v1_offset, "n+1\0"sv)
               : bytes_of<nifti_2_header>(header, v2_offset, "n+2\0\r\n\032\n"sv);
}

Geometry geometry_of(const Spacing& spacing) {
  Geometry g;
  g.pixdim = {1, spacing.zyx[2], spacing.zyx[1], spacing.zyx[0], 1, 1, 1, 1};
  const std::optional<double> micrometres = micrometres_per(spacing.unit);
  const std::string unit = unit_symbol(spacing.unit);
  if (!micrometres) {
    g.xyzt_units = NIFTI_UNITS_UNKNOWN;
  } else if (unit == "m") {
    g.xyzt_units = NIFTI_UNITS_METER;
  } else if (unit == "mm") {
    g.xyzt_units = NIFTI_UNITS_MM;
  } else {  // NIfTI has no other units: short ones become micrometres, and long ones millimetres
    const bool shorter = *micrometres <= 1;
    g.xyzt_units = shorter ? NIFTI_UNITS_MICRON : NIFTI_UNITS_MM;
    for (std::size_t i = 1; i < 4; ++i) g.pixdim[i] *= shorter ? *micrometres : *micrometres * 1e-3;
  }
  return g;
}

Spacing spacing_of(const Geometry& geometry) {
  constexpr int space = 7;  // the lowest three bits are the unit of space
  const int unit = geometry.xyzt_units & space;
  return {{std::abs(geometry.pixdim[3]), std::abs(geometry.pixdim[2]), std::abs(geometry.pixdim[1])},
          unit == NIFTI_UNITS_METER    ? "m"
          : unit == NIFTI_UNITS_MM     ? "mm"
          : unit == NIFTI_UNITS_MICRON ? "um"
                                       : ""};
}

}  // namespace convolume::nets::io::detail
