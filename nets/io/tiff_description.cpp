#include "nets/io/tiff_description.hpp"

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <cstring>
#include <string_view>

#include <fmt/format.h>
#include <nlohmann/json.hpp>
#include <pugixml.hpp>

#include "core/json.hpp"
#include "nets/io/volume_formats.hpp"

namespace convolume::nets::io::detail {
namespace {

/// Reads the number behind a key at the begin of a line, without the locale.
template <class T>
T number_of(const std::string& text, const char* key, T otherwise) {
  const std::size_t at = text.find(key);
  if (at == text.npos) return otherwise;
  const char* const begin = text.data() + at + std::strlen(key);
  T value{};
  return std::from_chars(begin, text.data() + text.size(), value).ec == std::errc() ? value : otherwise;
}

/// tifffile writes the shape of the array, {"shape": [3, 5, 7, 9]}, unless it is told the axes.
TiffDescription parse_tifffile(const std::string& file, const std::string& text) {
  nlohmann::json json;
  try {
    json = parse_json(text);
  } catch (const FormatError&) {
    return {};
  }
  if (!json.is_object() || !json.contains("shape") || !json["shape"].is_array()) return {};
  const auto longer = std::count_if(json["shape"].begin(), json["shape"].end(), [](const nlohmann::json& n) {
    return n.is_number_integer() && n.get<std::int64_t>() > 1;
  });
  if (longer > 3) {
    fail_format(file, "description", fmt::format("an array of shape {}", to_text(json["shape"])),
                "pages of a volume are its slices; write it as an OME-TIFF with its axes, or split it");
  }
  return {};
}

TiffDescription parse_imagej(const std::string& file, const std::string& text, std::size_t pages) {
  TiffDescription d;
  d.imagej = true;
  d.images = number_of<index_t>(text, "\nimages=", 0);
  d.channels = number_of<index_t>(text, "\nchannels=", 1);
  d.frames = number_of<index_t>(text, "\nframes=", 1);
  d.slice_distance = number_of<double>(text, "\nspacing=", 0);
  if (const std::size_t at = text.find("\nunit="); at != text.npos) {
    d.unit = unit_symbol(text.substr(at + 6, text.find('\n', at + 6) - at - 6));
  }
  if (pages > 1 && d.images > static_cast<index_t>(pages)) {
    fail_format(file, "description", fmt::format("{} images of ImageJ, but the file has {} pages", d.images, pages),
                "the file is truncated; write or copy it again");
  }
  if (d.channels > 1 || d.frames > 1) {
    fail_format(file, "description",
                fmt::format("an ImageJ hyperstack of {} channels and {} frames", d.channels, d.frames),
                "split it into stacks of one channel and one frame (Image > Color > Split Channels)");
  }
  return d;
}

constexpr std::size_t no_page = static_cast<std::size_t>(-1);

/// The XML of an OME-TIFF. Names of elements may have a prefix ("OME:Pixels"), which does not count.
class Ome {
 public:
  Ome(const std::string& file, const pugi::xml_node& root, std::size_t pages)
      : file_(file), uuid_(root.attribute("UUID").as_string("")), pages_(pages) {
    const auto images = children(root, "Image");
    if (images.size() != 1) {
      fail("OME-XML", fmt::format("{} images", images.size()),
           "one file holds one volume; write each image into a file of its own");
    }
    const auto all = children(images.front(), "Pixels");
    if (all.size() != 1) fail("OME-XML", "no Pixels element", "the description is damaged");
    pixels_ = all.front();
  }

  TiffDescription parse() {
    TiffDescription d;
    d.slices = size("SizeZ");
    d.channels = size("SizeC");
    d.frames = size("SizeT");
    if (d.frames != 1) {
      fail("OME-XML SizeT", std::to_string(d.frames), "only one time can be read; write each into a file of its own");
    }
    read_samples(d);
    read_spacing(d);
    read_pages(d);
    return d;
  }

 private:
  [[noreturn]] void fail(std::string_view field, const std::string& found, std::string_view remedy) const {
    fail_format(file_, field, found, remedy);
  }

  static std::vector<pugi::xml_node> children(const pugi::xml_node& node, std::string_view name) {
    std::vector<pugi::xml_node> all;
    for (const pugi::xml_node& child : node.children()) {
      const std::string_view full = child.name();
      if (full.substr(full.find(':') == full.npos ? 0 : full.find(':') + 1) == name) all.push_back(child);
    }
    return all;
  }

  index_t size(const char* key) const {
    const std::string_view text = pixels_.attribute(key).as_string("1");
    index_t value = 0;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
    if (error != std::errc() || end != text.data() + text.size() || value < 1 || value > index_t{1} << 31) {
      fail(fmt::format("OME-XML {}", key), fmt::format("'{}'", text), "it must be a number of planes, at least 1");
    }
    return value;
  }

  /// Pages of several samples are colours, which are refused when the pages are read.
  void read_samples(TiffDescription& d) const {
    for (const pugi::xml_node& channel : children(pixels_, "Channel")) {
      const index_t samples = channel.attribute("SamplesPerPixel").as_int(1);
      if (samples > 1) d.channels = std::max<index_t>(1, d.channels / samples);
    }
  }

  void read_spacing(TiffDescription& d) const {
    std::array<double, 3> micrometres{}, own{};
    std::array<std::string, 3> units;
    for (std::size_t axis = 0; axis < 3; ++axis) {
      const std::string key = fmt::format("PhysicalSize{}", "ZYX"[axis]);
      const pugi::xml_attribute value = pixels_.attribute(key.c_str());
      if (!value && d.slices == 1 && axis == 0) return;  // a picture has no distance of slices
      const std::string_view text = value.as_string("");
      double number = 0;
      const bool read = std::from_chars(text.data(), text.data() + text.size(), number).ec == std::errc();
      if (!value) return;
      if (!read || !(number > 0) || !std::isfinite(number)) {
        d.notes.push_back(fmt::format("OME-XML {} is '{}', which is no length; the spacing is not read", key, text));
        return;
      }
      const std::string unit = pixels_.attribute((key + "Unit").c_str()).as_string("\u00b5m");
      units[axis] = unit_symbol(unit);
      own[axis] = number;
      const auto length = micrometres_per(unit);
      micrometres[axis] = length ? number * *length : 0;
    }
    if (units[0] == units[1] && units[1] == units[2]) {
      d.spacing = Spacing{own, units[0]};
    } else if (std::all_of(micrometres.begin(), micrometres.end(), [](double m) { return m > 0; })) {
      d.spacing = Spacing{micrometres, "um"};
    } else {
      d.notes.push_back(
          fmt::format("OME-XML has the units '{}', '{}' and '{}' for z, y and x, which cannot be compared; "
                      "the spacing is not read",
                      units[0], units[1], units[2]));
    }
  }

  /// Returns the plane [channel][slice] with this number in the order of the file.
  std::size_t plane(const TiffDescription& d, std::size_t number) const {
    const auto slices = static_cast<std::size_t>(d.slices), channels = static_cast<std::size_t>(d.channels);
    const bool slices_first = order_.find('Z') < order_.find('C');
    const std::size_t z = slices_first ? number % slices : number / channels;
    const std::size_t c = slices_first ? number / slices : number % channels;
    return c * slices + z;
  }

  /// Finds the page of each plane: in the order that DimensionOrder says, unless TiffData says otherwise.
  void read_pages(TiffDescription& d) {
    order_ = pixels_.attribute("DimensionOrder").as_string("XYZCT");
    std::string sorted = order_;
    std::sort(sorted.begin(), sorted.end());
    if (sorted != "CTXYZ" || !order_.starts_with("XY")) {
      fail("OME-XML DimensionOrder", fmt::format("'{}'", order_), "it begins with XY, and Z, C and T follow");
    }
    const auto slices = static_cast<std::size_t>(d.slices), channels = static_cast<std::size_t>(d.channels);
    if (slices > pages_ || channels > pages_ || slices * channels != pages_) {
      fail("OME-XML", fmt::format("{} slices of {} channels, but the file has {} pages", slices, channels, pages_),
           "the planes of a volume lie in one file, and nothing else lies in it; write the file again");
    }
    d.pages.assign(pages_, no_page);
    const auto blocks = children(pixels_, "TiffData");
    for (const pugi::xml_node& block : blocks) read_block(d, block);
    for (std::size_t i = 0; blocks.empty() && i < pages_; ++i) d.pages[plane(d, i)] = i;
    if (std::find(d.pages.begin(), d.pages.end(), no_page) != d.pages.end()) {
      fail("OME-XML TiffData", "some planes have no page", "write the file again");
    }
  }

  void read_block(TiffDescription& d, const pugi::xml_node& block) const {
    for (const pugi::xml_node& id : children(block, "UUID")) {
      const std::filesystem::path other = id.attribute("FileName").as_string("");
      if (!uuid_.empty() && uuid_ == id.text().as_string("")) continue;  // this file, which may have been renamed
      if (!other.empty() && other.filename() != std::filesystem::path(file_).filename()) {
        fail("OME-XML TiffData", fmt::format("planes that lie in {}", other.string()),
             "write all planes into one file");
      }
    }
    const auto value = [&](const char* key, std::size_t otherwise) {
      return static_cast<std::size_t>(block.attribute(key).as_ullong(otherwise));
    };
    const auto slices = static_cast<std::size_t>(d.slices), channels = static_cast<std::size_t>(d.channels);
    const std::size_t z = value("FirstZ", 0), c = value("FirstC", 0), page = value("IFD", 0);
    const std::size_t count = value("PlaneCount", block.attribute("IFD") ? 1 : pages_);
    const bool slices_first = order_.find('Z') < order_.find('C');
    const std::size_t first = slices_first ? c * slices + z : z * channels + c;
    if (z >= slices || c >= channels || value("FirstT", 0) != 0 || page >= pages_ || count > pages_ - page ||
        count > pages_ - first) {
      fail("OME-XML TiffData", fmt::format("{} planes from page {} on", count, page),
           "the file has no such planes; write it again");
    }
    for (std::size_t i = 0; i < count; ++i) {
      std::size_t& own = d.pages[plane(d, first + i)];
      if (own != no_page) fail("OME-XML TiffData", "a plane that has two pages", "write the file again");
      own = page + i;
    }
  }

  const std::string& file_;
  std::string uuid_;  // of this file; empty: unknown
  std::size_t pages_;
  pugi::xml_node pixels_;
  std::string order_;
};

}  // namespace

TiffDescription parse_tiff_description(const std::string& file, const std::string& text, std::size_t pages) {
  if (text.starts_with("ImageJ=")) return parse_imagej(file, text, pages);
  if (text.starts_with("{")) return parse_tifffile(file, text);
  if (text.find("<OME") == text.npos && text.find(":OME") == text.npos) return {};
  pugi::xml_document document;
  if (const auto parsed = document.load_buffer(text.data(), text.size()); !parsed) {
    if (!text.starts_with("<")) return {};  // another text that mentions OME
    fail_format(file, "OME-XML", fmt::format("it cannot be parsed: {}", parsed.description()),
                "the file is truncated or damaged; write or copy it again");
  }
  const pugi::xml_node root = document.document_element();
  const std::string_view name = root.name();
  if (name != "OME" && !name.ends_with(":OME")) return {};
  return Ome(file, root, pages).parse();
}

}  // namespace convolume::nets::io::detail
