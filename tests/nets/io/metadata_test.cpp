// The matrix of docs/formats.md: each of its cells has a file here, which is read, noted or refused as the cell says.
#include <algorithm>
#include <cstdint>
#include <cstring>
#include <fstream>
#include <functional>
#include <map>
#include <sstream>
#include <vector>

#include "io_testing.hpp"
#include <hdf5.h>
#include <png.h>
#include <tiffio.h>

#include "nets/io/nifti_header.hpp"
#include "nets/io/volume_source.hpp"

using namespace convolume;
using namespace convolume::nets;
using namespace convolume::nets::io;
using namespace convolume::nets::testing;

namespace {

namespace fs = std::filesystem;
const Extent3 small{2, 3, 4};

// TIFF ----------------------------------------------------------------------------------------------------------------

struct Page {
  std::uint16_t photometric = PHOTOMETRIC_MINISBLACK, orientation = ORIENTATION_TOPLEFT, samples = 1;
  std::uint32_t subfile = 0;
};

VolumePath tiff_of(const fs::path& folder, const std::string& description, int pages = 2, const Page& last = {}) {
  const fs::path file = folder / "a.tif";
  TIFF* const out = TIFFOpen(file.c_str(), "w");
  for (int page = 0; page < pages; ++page) {
    const Page own = page == pages - 1 ? last : Page{};
    TIFFSetField(out, TIFFTAG_IMAGEWIDTH, 4u);
    TIFFSetField(out, TIFFTAG_IMAGELENGTH, 3u);
    TIFFSetField(out, TIFFTAG_BITSPERSAMPLE, 8);
    TIFFSetField(out, TIFFTAG_SAMPLESPERPIXEL, own.samples);
    TIFFSetField(out, TIFFTAG_PLANARCONFIG, PLANARCONFIG_CONTIG);
    TIFFSetField(out, TIFFTAG_ROWSPERSTRIP, 3u);
    TIFFSetField(out, TIFFTAG_PHOTOMETRIC, own.photometric);
    TIFFSetField(out, TIFFTAG_ORIENTATION, page == 0 ? last.orientation : own.orientation);
    TIFFSetField(out, TIFFTAG_XRESOLUTION, 2.0);
    TIFFSetField(out, TIFFTAG_YRESOLUTION, 2.0);
    if (own.subfile != 0) TIFFSetField(out, TIFFTAG_SUBFILETYPE, own.subfile);
    if (page == 0 && !description.empty()) TIFFSetField(out, TIFFTAG_IMAGEDESCRIPTION, description.c_str());
    std::vector<std::uint8_t> row(4u * own.samples);
    for (std::uint32_t y = 0; y < 3; ++y) {
      for (std::size_t x = 0; x < row.size(); ++x)
        row[x] = static_cast<std::uint8_t>(100 * page + 10 * static_cast<int>(y) + static_cast<int>(x));
      REQUIRE(TIFFWriteScanline(out, row.data(), y, 0) > 0);
    }
    REQUIRE(TIFFWriteDirectory(out));
  }
  TIFFClose(out);
  return {file, ""};
}

std::string ome(const std::string& sizes, const std::string& inside = "", const std::string& more = "") {
  return "<?xml version=\"1.0\"?><OME xmlns=\"http://www.openmicroscopy.org/Schemas/OME/2016-06\"><Image "
         "ID=\"Image:0\">"
         "<Pixels DimensionOrder=\"XYCZT\" Type=\"uint8\" SizeX=\"4\" SizeY=\"3\" " +
         sizes + ">" + inside + "</Pixels></Image>" + more + "</OME>";
}

// HDF5 ----------------------------------------------------------------------------------------------------------------

using Adjust = std::function<void(hid_t file, hid_t dataset)>;

VolumePath hdf5(const fs::path& folder, std::vector<hsize_t> size, const Adjust& adjust = {},
                hid_t creation = H5P_DEFAULT, hid_t type = H5T_STD_U8LE) {
  const fs::path file = folder / "a.h5";
  const hid_t id = H5Fcreate(file.c_str(), H5F_ACC_TRUNC, H5P_DEFAULT, H5P_DEFAULT);
  const hid_t space = H5Screate_simple(static_cast<int>(size.size()), size.data(), nullptr);
  const hid_t data = H5Dcreate2(id, "raw", type, space, H5P_DEFAULT, creation, H5P_DEFAULT);
  REQUIRE(data >= 0);
  std::vector<std::uint8_t> voxels(4096);
  if (creation == H5P_DEFAULT)
    REQUIRE(H5Dwrite(data, H5T_NATIVE_UINT8, H5S_ALL, H5S_ALL, H5P_DEFAULT, voxels.data()) >= 0);
  if (adjust) adjust(id, data);
  H5Dclose(data);
  H5Sclose(space);
  H5Fclose(id);
  return {file, ""};
}

void set_attribute(hid_t dataset, const char* name, hid_t type, hsize_t count, const void* values) {
  const hid_t space = H5Screate_simple(1, &count, nullptr);
  const hid_t attribute = H5Acreate2(dataset, name, type, space, H5P_DEFAULT, H5P_DEFAULT);
  REQUIRE(H5Awrite(attribute, type, values) >= 0);
  H5Aclose(attribute);
  H5Sclose(space);
}

Adjust numbers(const char* name, std::vector<double> values) {
  return [name = std::string(name), values](hid_t, hid_t dataset) {
    set_attribute(dataset, name.c_str(), H5T_NATIVE_DOUBLE, values.size(), values.data());
  };
}

/// Texts, all of the same length or of variable length.
Adjust texts(const char* name, std::vector<std::string> values, bool variable = false) {
  return [name = std::string(name), values, variable](hid_t, hid_t dataset) {
    const hid_t type = H5Tcopy(H5T_C_S1);
    H5Tset_size(type, variable ? H5T_VARIABLE : values[0].size());
    std::vector<const char*> pointers;
    std::string all;
    for (const std::string& value : values) {
      pointers.push_back(value.c_str());
      all += value;
    }
    set_attribute(dataset, name.c_str(), type, values.size(),
                  variable ? static_cast<const void*>(pointers.data()) : all.data());
    H5Tclose(type);
  };
}

// NIfTI ---------------------------------------------------------------------------------------------------------------

VolumePath nifti(const fs::path& folder, const std::function<void(detail::NiftiHeader&)>& adjust = {},
                 const std::function<void(std::string&)>& bytes = {}) {
  detail::NiftiHeader header;
  header.extent = small;
  header.stored = VoxelType::uint8;
  header.geometry = detail::geometry_of(Spacing{{3, 2, 1}, "mm"});
  header.geometry.sform_code = 1;
  header.geometry.srow = {1, 0, 0, 7, 0, 2, 0, 8, 0, 0, 3, 9};
  if (adjust) adjust(header);
  std::string file =
      detail::nifti_header_bytes(header) + std::string(static_cast<std::size_t>(24 * header.channels), 'x');
  if (bytes) bytes(file);
  write_bytes(folder / "a.nii", file);
  return {folder / "a.nii", ""};
}

template <class T>
std::function<void(std::string&)> field(std::size_t at, T value) {
  return [=](std::string& file) { std::memcpy(file.data() + at, &value, sizeof value); };
}

// Zarr ----------------------------------------------------------------------------------------------------------------

/// Writes an array of one chunk, below a group if this has attributes.
VolumePath zarr(const fs::path& folder, const std::string& shape, const std::string& of_array = "",
                const std::string& of_group = "", const std::string& fill = "0", const std::string& filters = "null") {
  const fs::path root = folder / "a.zarr", array = of_group.empty() ? root : root / "0";
  fs::create_directories(array);
  write_bytes(array / ".zarray", R"({"zarr_format": 2, "shape": )" + shape + R"(, "chunks": )" + shape +
                                     R"(, "dtype": "|u1", "compressor": null, "fill_value": )" + fill +
                                     R"(, "order": "C", "filters": )" + filters + "}");
  if (!of_array.empty()) write_bytes(array / ".zattrs", of_array);
  if (!of_group.empty()) {
    write_bytes(root / ".zgroup", R"({"zarr_format": 2})");
    write_bytes(root / ".zattrs", of_group);
  }
  return {root, ""};
}

std::string multiscale(const std::string& axes, const std::string& of_level, const std::string& of_all = "") {
  return R"({"multiscales": [{"version": "0.4", "axes": [)" + axes +
         R"(], "datasets": [{"path": "0", "coordinateTransformations": [)" + of_level + "]}]" +
         (of_all.empty() ? "" : R"(, "coordinateTransformations": [)" + of_all + "]") + "}]}";
}

std::string axes_of(const std::string& names, const std::string& unit = "nanometer") {
  std::string text;
  for (const char name : names) {
    const bool space = std::string("zyx").find(name) != std::string::npos;
    text += (text.empty() ? "" : ", ") + std::string(R"({"name": ")") + name + R"(", "type": ")" +
            (space ? "space\", \"unit\": \"" + unit : "channel") + "\"}";
  }
  return text;
}

// Slices --------------------------------------------------------------------------------------------------------------

VolumePath slices(const fs::path& folder, int colour) {
  for (const char* name : {"0.png", "1.png"}) {
    std::FILE* const file = std::fopen((folder / name).c_str(), "wb");
    png_structp png = png_create_write_struct(PNG_LIBPNG_VER_STRING, nullptr, nullptr, nullptr);
    png_infop info = png_create_info_struct(png);
    png_init_io(png, file);
    png_set_IHDR(png, info, 4, 3, 8, colour, PNG_INTERLACE_NONE, PNG_COMPRESSION_TYPE_DEFAULT, PNG_FILTER_TYPE_DEFAULT);
    const png_color palette[3] = {{255, 0, 0}, {0, 255, 0}, {0, 0, 255}};
    if (colour == PNG_COLOR_TYPE_PALETTE) png_set_PLTE(png, info, palette, 3);
    png_write_info(png, info);
    std::vector<std::uint8_t> row(16);
    for (std::size_t i = 0; i < row.size(); ++i) row[i] = static_cast<std::uint8_t>(i % 3);
    for (int y = 0; y < 3; ++y) png_write_row(png, row.data());
    png_write_end(png, nullptr);
    png_destroy_write_struct(&png, &info);
    std::fclose(file);
  }
  return {folder / "*.png", ""};
}

// The matrix ----------------------------------------------------------------------------------------------------------

struct Outcome {
  std::string error;
  VolumeInfo info;
};

struct Case {
  std::string metadata, format, kind;  // as in the matrix
  std::function<VolumePath(const fs::path&)> make;
  std::function<bool(const Outcome&)> check;  // beyond the kind
};

bool says(const Outcome& o, const std::string& text) {
  std::string all = o.error;
  for (const std::string& note : o.info.notes) all += note;
  return contains(all, text);
}
std::function<bool(const Outcome&)> says(const std::string& text) {
  return [=](const Outcome& o) { return says(o, text); };
}
std::function<bool(const Outcome&)> spaced(const Spacing& spacing) {
  return [=](const Outcome& o) {
    if (!o.info.spacing || o.info.spacing->unit != spacing.unit) return false;
    for (std::size_t i = 0; i < 3; ++i) {
      if (std::abs(o.info.spacing->zyx[i] - spacing.zyx[i]) > 1e-9) return false;
    }
    return true;
  };
}
std::function<bool(const Outcome&)> channels(index_t count) {
  return [=](const Outcome& o) { return o.info.channels == count && o.info.extent == small; };
}
std::function<bool(const Outcome&)> is_small() { return channels(1); }

const char* const zc = R"(SizeZ="2" SizeC="3" SizeT="1")";
const char* const z2 = R"(SizeZ="2" SizeC="1" SizeT="1")";

std::vector<Case> cases() {
  using P = const fs::path&;
  std::vector<Case> all;
  const auto add = [&](std::string metadata, std::string format, std::string kind, std::function<VolumePath(P)> make,
                       std::function<bool(const Outcome&)> check) {
    all.push_back({std::move(metadata), std::move(format), std::move(kind), std::move(make), std::move(check)});
  };
  add(
      "order of axes", "TIFF", "read", [](P f) { return tiff_of(f, ome(zc), 6); }, channels(3));
  add(
      "order of axes", "HDF5", "refused",
      [](P f) {
        return hdf5(f, {4, 3, 2}, texts("axistags", {R"({"axes": [{"key": "x"}, {"key": "y"}, {"key": "z"}]})"}));
      },
      says("xyz"));
  add(
      "order of axes", "Zarr", "read", [](P f) { return zarr(f, "[4, 3, 2]", "", multiscale(axes_of("xyz"), "")); },
      is_small());
  add(
      "order of axes", "Zarr", "note",
      [](P f) { return zarr(f, "[2, 3, 4]", R"({"_ARRAY_DIMENSIONS": ["depth", "lat", "lon"]})"); },
      says("depth, lat, lon"));
  add(
      "channels", "TIFF", "read", [](P f) { return tiff_of(f, ome(zc), 6); }, channels(3));
  add(
      "channels", "TIFF", "refused", [](P f) { return tiff_of(f, "ImageJ=1.53\nimages=6\nchannels=3\nslices=2\n", 6); },
      says("hyperstack"));
  add(
      "channels", "HDF5", "read",
      [](P f) {
        return hdf5(f, {3, 2, 3, 4});
      },
      channels(3));
  add(
      "channels", "NIfTI", "read", [](P f) { return nifti(f, [](auto& h) { h.channels = 3; }); }, channels(3));
  add(
      "channels", "Zarr", "read", [](P f) { return zarr(f, "[2, 3, 4, 3]", "", multiscale(axes_of("zyxc"), "")); },
      channels(3));
  add(
      "channels", "slices", "read", [](P f) { return slices(f, PNG_COLOR_TYPE_RGB); }, channels(3));
  add(
      "times", "TIFF", "refused", [](P f) { return tiff_of(f, ome(R"(SizeZ="1" SizeC="1" SizeT="2")")); },
      says("SizeT"));
  add(
      "times", "HDF5", "refused",
      [](P f) {
        return hdf5(f, {1, 1, 2, 3, 4});
      },
      says("5 axes"));
  add(
      "times", "NIfTI", "note",
      [](P f) {
        return nifti(f, [](auto& h) {
          h.channels = 3;
          h.geometry.xyzt_units = 2 + 8;
        });
      },
      says("time"));
  add(
      "times", "Zarr", "read", [](P f) { return zarr(f, "[1, 2, 3, 4]", "", multiscale(axes_of("tzyx"), "")); },
      is_small());
  add(
      "times", "Zarr", "refused", [](P f) { return zarr(f, "[2, 2, 3, 4]", "", multiscale(axes_of("tzyx"), "")); },
      says("2 times"));
  add(
      "several images", "TIFF", "refused",
      [](P f) { return tiff_of(f, ome(z2, "", R"(<Image ID="Image:1"><Pixels SizeZ="1"/></Image>)"), 3); },
      says("2 images"));
  add(
      "several images", "HDF5", "refused",
      [](P f) {
        return hdf5(f, {2, 3, 4}, [](hid_t file, hid_t) {
          const hsize_t size[] = {2, 3, 4};
          const hid_t space = H5Screate_simple(3, size, nullptr);
          H5Dclose(H5Dcreate2(file, "other", H5T_STD_U8LE, space, H5P_DEFAULT, H5P_DEFAULT, H5P_DEFAULT));
          H5Sclose(space);
        });
      },
      says("/other"));
  add(
      "several images", "Zarr", "refused",
      [](P f) {
        const VolumePath root = zarr(f, "[2, 3, 4]", "{}", R"({"bioformats2raw.layout": 3})");
        fs::create_directory(root.file / "1");
        write_bytes(root.file / "1" / ".zattrs", "{}");
        return root;
      },
      says("which image"));
  add(
      "spacing", "TIFF", "read",
      [](P f) {
        return tiff_of(
            f,
            ome(std::string(z2) +
                R"( PhysicalSizeX="4" PhysicalSizeXUnit="nm" PhysicalSizeY="4" PhysicalSizeYUnit="nm" PhysicalSizeZ="0.05")"));
      },
      spaced({{0.05, 0.004, 0.004}, "um"}));
  add(
      "spacing", "TIFF", "note",
      [](P f) {
        return tiff_of(f, ome(std::string(z2) + R"( PhysicalSizeX="0" PhysicalSizeY="1" PhysicalSizeZ="1")"));
      },
      says("PhysicalSizeX"));
  add(
      "spacing", "HDF5", "read",
      [](P f) {
        return hdf5(f, {2, 3, 4}, numbers("element_size_um", {3, 2, 1}));
      },
      spaced({{3, 2, 1}, "um"}));
  add(
      "spacing", "HDF5", "note",
      [](P f) {
        return hdf5(f, {2, 3, 4}, numbers("resolution", {40, 4, 4}));
      },
      says("resolution"));
  add(
      "spacing", "HDF5", "refused",
      [](P f) {
        return hdf5(f, {2, 3, 4}, numbers("element_size_um", {0, 1, 1}));
      },
      says("element_size_um"));
  add(
      "spacing", "NIfTI", "read", [](P f) { return nifti(f); }, spaced({{3, 2, 1}, "mm"}));
  add(
      "spacing", "NIfTI", "note", [](P f) { return nifti(f, [](auto& h) { h.geometry.pixdim[1] = 1.01; }); },
      says("pixdim"));
  add(
      "spacing", "Zarr", "read",
      [](P f) {
        return zarr(f, "[2, 3, 4]", "",
                    multiscale(axes_of("zyx"), R"({"type": "scale", "scale": [10, 2, 2]})",
                               R"({"type": "scale", "scale": [5, 2, 2]})"));
      },
      spaced({{50, 4, 4}, "nm"}));
  add(
      "spacing", "Zarr", "note",
      [](P f) { return zarr(f, "[2, 3, 4]", "", multiscale(axes_of("zyx"), R"({"scale": [1, 2]})")); }, says("scale"));
  add(
      "unit", "TIFF", "read",
      [](P f) { return tiff_of(f, "ImageJ=1.53\nimages=2\nslices=2\nspacing=2.5\nunit=micron\n"); },
      spaced({{2.5, 0.5, 0.5}, "um"}));
  add(
      "unit", "NIfTI", "read", [](P f) { return nifti(f, {}, field<std::uint8_t>(123, 3)); },
      spaced({{3, 2, 1}, "um"}));
  add(
      "unit", "Zarr", "read",
      [](P f) {
        const std::string axes =
            R"({"name": "z", "unit": "nanometer"}, {"name": "y", "unit": "micrometer"}, {"name": "x", "unit": "micrometer"})";
        return zarr(f, "[2, 3, 4]", "", multiscale(axes, R"({"scale": [50, 0.004, 0.004]})"));
      },
      spaced({{0.05, 0.004, 0.004}, "um"}));
  add(
      "unit", "Zarr", "note",
      [](P f) {
        const std::string axes =
            R"({"name": "z", "unit": "section"}, {"name": "y", "unit": "nanometer"}, {"name": "x", "unit": "nanometer"})";
        return zarr(f, "[2, 3, 4]", "", multiscale(axes, R"({"scale": [1, 4, 4]})"));
      },
      says("section"));
  add(
      "origin", "HDF5", "note",
      [](P f) {
        return hdf5(f, {2, 3, 4}, numbers("offset", {1, 1, 1}));
      },
      says("offset"));
  add(
      "origin", "NIfTI", "read", [](P f) { return nifti(f); },
      [](const Outcome& o) { return o.info.geometry->affine()[3] == 7; });
  add(
      "origin", "Zarr", "note",
      [](P f) {
        return zarr(f, "[2, 3, 4]", "",
                    multiscale(axes_of("zyx"), R"({"scale": [1, 1, 1]}, {"translation": [10, 20, 30]})"));
      },
      says("translation"));
  add(
      "direction", "TIFF", "note", [](P f) { return tiff_of(f, "", 2, {.orientation = ORIENTATION_BOTLEFT}); },
      says("orientation"));
  add(
      "direction", "NIfTI", "read", [](P f) { return nifti(f, [](auto& h) { h.geometry.srow[0] = -1; }); },
      [](const Outcome& o) { return o.info.geometry->affine()[0] == -1; });
  add(
      "scaling", "TIFF", "refused", [](P f) { return tiff_of(f, "", 1, {.photometric = PHOTOMETRIC_MINISWHITE}); },
      says("MinIsWhite"));
  add(
      "scaling", "NIfTI", "read", [](P f) { return nifti(f, [](auto& h) { h.slope = 0.5; }); },
      [](const Outcome& o) { return o.info.type == VoxelType::float32 && o.info.scale && o.info.scale->slope == 0.5; });
  add(
      "scaling", "Zarr", "refused",
      [](P f) { return zarr(f, "[2, 3, 4]", "", "", "0", R"([{"id": "fixedscaleoffset"}])"); }, says("filters"));
  add(
      "fill value", "HDF5", "read",
      [](P f) {
        const hid_t creation = H5Pcreate(H5P_DATASET_CREATE);
        const hsize_t chunk[] = {1, 3, 4};
        const unsigned char fill = 9;
        H5Pset_chunk(creation, 3, chunk);
        H5Pset_fill_value(creation, H5T_NATIVE_UINT8, &fill);
        const VolumePath path = hdf5(
            f, {2, 3, 4},
            [](hid_t, hid_t data) {
              const hsize_t begin[] = {0, 0, 0}, count[] = {1, 3, 4};
              const hid_t all = H5Dget_space(data), one = H5Screate_simple(3, count, nullptr);
              H5Sselect_hyperslab(all, H5S_SELECT_SET, begin, nullptr, count, nullptr);
              const std::vector<unsigned char> voxels(12, 1);
              H5Dwrite(data, H5T_NATIVE_UINT8, one, all, H5P_DEFAULT, voxels.data());
              H5Sclose(one);
              H5Sclose(all);
            },
            creation);
        H5Pclose(creation);
        return path;
      },
      is_small());
  add(
      "fill value", "Zarr", "read", [](P f) { return zarr(f, "[2, 3, 4]", "", "", R"("7")"); }, is_small());
  add(
      "fill value", "Zarr", "refused", [](P f) { return zarr(f, "[2, 3, 4]", "", "", "7.5"); }, says("fill_value"));
  add(
      "colours, palette", "TIFF", "refused",
      [](P f) { return tiff_of(f, "", 1, {.photometric = PHOTOMETRIC_RGB, .samples = 3}); }, says("colour"));
  add(
      "colours, palette", "NIfTI", "refused", [](P f) { return nifti(f, {}, field<std::int16_t>(70, 128)); },
      says("colour"));
  add(
      "colours, palette", "slices", "note", [](P f) { return slices(f, PNG_COLOR_TYPE_PALETTE); }, says("palette"));
  add(
      "colours, palette", "slices", "refused", [](P f) { return slices(f, PNG_COLOR_TYPE_RGB_ALPHA); }, says("alpha"));
  add(
      "pages that are no slices", "TIFF", "refused",
      [](P f) { return tiff_of(f, "", 3, {.subfile = FILETYPE_REDUCEDIMAGE}); }, says("subfile"));
  add(
      "names of chunks", "Zarr", "read",
      [](P f) {
        const VolumePath path = zarr(f, "[2, 3, 4]");
        fs::create_directories(path.file / "0" / "0");
        write_bytes(path.file / "0" / "0" / "0", std::string(24, 'x'));
        return path;
      },
      is_small());
  add(
      "data in other files", "TIFF", "refused",
      [](P f) {
        return tiff_of(f, ome(z2, R"(<TiffData IFD="0"><UUID FileName="b.ome.tif">urn:uuid:1</UUID></TiffData>)"));
      },
      says("b.ome.tif"));
  add(
      "data in other files", "HDF5", "refused",
      [](P f) {
        const hid_t creation = H5Pcreate(H5P_DATASET_CREATE);
        H5Pset_external(creation, "raw.bin", 0, 24);
        const VolumePath path = hdf5(f, {2, 3, 4}, {}, creation);
        H5Pclose(creation);
        return path;
      },
      says("external"));
  add(
      "data in other files", "NIfTI", "refused",
      [](P f) { return nifti(f, {}, field<std::uint32_t>(344, 0x0031696e)); }, says(".img"));
  return all;
}

/// Opens a file and reads all of it.
Outcome outcome_of(const VolumePath& path) {
  Outcome outcome;
  try {
    const auto source = open_volume(path);
    outcome.info = source->info();
    std::vector<std::byte> voxels(static_cast<std::size_t>(outcome.info.channels * outcome.info.extent.volume()) *
                                  outcome.info.bytes_per_voxel());
    source->read({0, outcome.info.channels}, {{0, 0, 0}, outcome.info.extent}, voxels);
  } catch (const Error& error) {
    outcome.error = error.what();
  }
  return outcome;
}

std::string trimmed(std::string text) {
  text.erase(0, text.find_first_not_of(' '));
  text.erase(text.find_last_not_of(' ') + 1);
  return text;
}

/// Returns the entries of a line of a Markdown table.
std::vector<std::string> entries(const std::string& line) {
  std::vector<std::string> all;
  std::istringstream in(line);
  std::string entry;
  std::getline(in, entry, '|');
  while (std::getline(in, entry, '|')) all.push_back(trimmed(entry));
  return all;
}

/// Returns how often the matrix of the page says "read", "note" or "refused" of a kind of metadata and a format.
std::map<std::string, int> matrix_of_page() {
  std::ifstream page(CONVOLUME_SOURCE_DIR "/docs/formats.md");
  std::map<std::string, int> found;
  std::vector<std::string> formats;
  for (std::string line; std::getline(page, line);) {
    if (line.starts_with("| metadata |")) formats = entries(line);
    if (formats.empty() || line.starts_with("| metadata |") || line.starts_with("|---")) continue;
    if (!line.starts_with("|")) break;
    const auto cells = entries(line);
    for (std::size_t i = 1; i < cells.size(); ++i) {
      std::istringstream clauses(cells[i]);
      for (std::string clause; std::getline(clauses, clause, ';');) {
        const std::string kind = trimmed(clause).substr(0, trimmed(clause).find_first_of(" :"));
        if (kind != "-") ++found[cells[0] + ", " + formats[i] + ": " + kind];
      }
    }
  }
  return found;
}

}  // namespace

TEST_CASE("each cell of the matrix of metadata has a file that is read, noted or refused so", "[io][metadata]") {
  std::map<std::string, int> tried;
  for (const Case& one : cases()) {
    CAPTURE(one.metadata, one.format, one.kind);
    const Directory directory;
    const Outcome outcome = outcome_of(one.make(directory.path()));
    CAPTURE(outcome.error, outcome.info.notes);
    ++tried[one.metadata + ", " + one.format + ": " + one.kind];
    CHECK((outcome.error.empty() ? outcome.info.notes.empty() ? "read" : "note" : "refused") == one.kind);
    CHECK(one.check(outcome));
  }
  CHECK(matrix_of_page() == tried);
}

TEST_CASE("attributes of HDF5 that are no names of axes do no harm", "[io][metadata]") {
  const std::vector<std::string> many(1000, "z"), right{"z", "y", "x"}, wrong{"x", "y", "z"};
  for (const char* name : {"axistags", "DIMENSION_LABELS"}) {
    for (const bool variable : {false, true}) {
      CAPTURE(name, variable);
      for (const auto& list : {many, {std::string("{")}, {std::string(R"({"axes": 1})")}}) {
        const Directory directory;
        CHECK(outcome_of(hdf5(directory.path(), {2, 3, 4}, texts(name, list, variable))).error.empty());
      }
    }
    const Directory directory;
    CHECK(outcome_of(hdf5(directory.path(), {2, 3, 4}, numbers(name, std::vector<double>(1000, 1)))).error.empty());
  }
  for (const bool variable : {false, true}) {
    const Directory directory;
    CHECK(outcome_of(hdf5(directory.path(), {2, 3, 4}, texts("DIMENSION_LABELS", right, variable))).error.empty());
    CHECK(contains(outcome_of(hdf5(directory.path(), {2, 3, 4}, texts("DIMENSION_LABELS", wrong, variable))).error,
                   "'xyz'"));
  }
}

TEST_CASE("descriptions of TIFF are not ignored because something is odd about them", "[io][metadata]") {
  const auto error = [](const std::string& description, int pages) {
    const Directory directory;
    return outcome_of(tiff_of(directory.path(), description, pages)).error;
  };
  const std::string block =
      R"(<TiffData IFD="0" PlaneCount="2"><UUID FileName="old.ome.tif">urn:uuid:1</UUID></TiffData>)";
  const std::string renamed = ome(z2, block);
  CHECK(contains(error(renamed, 2), "old.ome.tif"));
  std::string own = renamed;
  own.replace(own.find("<OME "), 5, "<OME UUID=\"urn:uuid:1\" ");
  CHECK(error(own, 2).empty());  // a file that was renamed
  CHECK(contains(error(renamed.substr(0, renamed.size() / 2), 2), "cannot be parsed"));
  CHECK(contains(error(ome(z2, R"(<TiffData IFD="0"/><TiffData IFD="1"/>)"), 2), "a plane that has two pages"));
  CHECK(contains(error("ImageJ=1.53\nimages=9\nslices=9\n", 3), "9 images of ImageJ"));
  CHECK(contains(error(R"({"shape": [3, 2, 3, 4]})", 6), "[3,2,3,4]"));
  CHECK(error(R"({"shape": [1, 6, 3, 4]})", 6).empty());
  CHECK(error("{not JSON", 2).empty());
  CHECK(error("drawn with <OME Viewer", 2).empty());
}
