// Writes a picture of patches as a net gets them.
#include <algorithm>
#include <array>
#include <cmath>
#include <vector>

#include <fmt/format.h>

#include "convolume/memory.hpp"
#include "convolume/training.hpp"
#include "nets/data/patch_source.hpp"
#include "nets/io/png.hpp"
#include "nets/spec/net_shapes.hpp"
#include "nets/spec/net_spec.hpp"
#include "nets/train/check_fit.hpp"

namespace convolume::nets {
namespace {

using Colour = std::array<std::uint8_t, 3>;
constexpr std::array<Colour, 6> class_colours{
    {{230, 60, 50}, {60, 170, 70}, {70, 120, 230}, {230, 170, 30}, {190, 80, 200}, {40, 180, 190}}};
constexpr index_t gap = 4, frame = 3, least_width = 128;

/// A picture in RGB. It is white where nothing was drawn.
struct Picture {
  index_t width, height;
  std::vector<std::uint8_t> pixels;
  Picture(index_t w, index_t h) : width(w), height(h), pixels(static_cast<std::size_t>(3 * w * h), 255) {}
  void set(index_t y, index_t x, const Colour& colour) {
    std::copy(colour.begin(), colour.end(), pixels.begin() + 3 * (y * width + x));
  }
};

const Colour& colour_of(index_t number) {
  return class_colours[static_cast<std::size_t>(number) % class_colours.size()];
}

/// Draws a frame within a tile.
void draw_frame(Picture& picture, index_t top, index_t left, index_t height, index_t width, const Colour& colour) {
  for (index_t y = 0; y < height; ++y) {
    for (index_t x = 0; x < width; ++x) {
      if (std::min({y, x, height - 1 - y, width - 1 - x}) < frame) picture.set(top + y, left + x, colour);
    }
  }
}

/// Draws the middle slice of a patch, and the outlines of its labels.
void draw_tile(Picture& picture, index_t top, index_t left, index_t scale, const Tensor<float>& image,
               const Tensor<float>& label, const Extent3& label_begin) {
  const Extent3 &e = image.shape().extent, &l = label.shape().extent;
  const index_t label_z = l.z / 2, z = label_begin.z + label_z;
  const float* const slice = image.data() + z * e.y * e.x;
  const io::GrayRange range = io::robust_range(std::vector<float>(slice, slice + e.y * e.x));
  const auto class_at = [&](index_t y, index_t x) -> index_t {
    const index_t ly = y - label_begin.y, lx = x - label_begin.x;
    if (ly < 0 || lx < 0 || ly >= l.y || lx >= l.x) return 0;
    return static_cast<index_t>(std::lround(label.data()[(label_z * l.y + ly) * l.x + lx]));
  };
  for (index_t py = 0; py < e.y * scale; ++py) {
    for (index_t px = 0; px < e.x * scale; ++px) {
      const index_t y = py / scale, x = px / scale;
      const std::uint8_t shade = io::gray(slice[y * e.x + x], range);
      const index_t own = class_at(y, x);
      // An outline lies on the pixels of a class that have a neighbour of another class.
      const bool edge = (py % scale == 0 && class_at(y - 1, x) != own) ||
                        (px % scale == 0 && class_at(y, x - 1) != own) ||
                        (py % scale == scale - 1 && class_at(y + 1, x) != own) ||
                        (px % scale == scale - 1 && class_at(y, x + 1) != own);
      const bool outlined = own > 0 && edge;
      picture.set(top + py, left + px, outlined ? colour_of(own - 1) : Colour{shade, shade, shade});
    }
  }
}

}  // namespace

void preview(const PreviewOptions& o) {
  if (o.count < 1 || o.count > 1024)
    throw InvalidArgument(fmt::format("--count {}: 1 to 1024 patches are drawn", o.count));
  SlabResource memory;
  const NetSpec spec = load_net(o.net, o.overrides);
  const NetShapes shapes = infer_shapes(spec, spec.patch);
  const Dataset data = load_dataset(o.data, {.memory = &memory});
  for (const std::string& note : data.notes) {
    if (o.on_note) o.on_note(note);
  }
  check_fit(spec, data);
  const Extent3 begin = shapes.offset(), extent = shapes.output().extent;
  Tensor<float> image({1, spec.in_channels, spec.patch}), label({1, 1, extent}), mask({1, 1, extent});
  PatchLoader loader(data, spec.patch, begin, extent, true, &memory);
  PatchSource source(data, spec.patch, {.batch = spec.training.batch, .seed = o.seed}, &memory);
  const index_t columns = static_cast<index_t>(std::ceil(std::sqrt(static_cast<double>(o.count))));
  const index_t rows = (o.count + columns - 1) / columns;
  const index_t scale = std::max<index_t>(1, (least_width + spec.patch.x - 1) / spec.patch.x);
  const index_t tile_y = spec.patch.y * scale + gap, tile_x = spec.patch.x * scale + gap;
  Picture picture(columns * tile_x - gap, rows * tile_y - gap);
  for (index_t i = 0; i < o.count; ++i) {
    const auto samples = source.take(static_cast<std::uint64_t>(i / spec.training.batch));
    const PatchSource::Sample& sample = samples[static_cast<std::size_t>(i % spec.training.batch)];
    loader.begin(sample.draw, sample.map, sample.voxels);
    loader.load(0, 1);
    loader.place({image, label, mask}, 0, 1);
    loader.change({image, label, mask});
    const index_t top = i / columns * tile_y, left = i % columns * tile_x;
    if (data.classifies()) label.fill(0);  // the class is a property of the whole patch
    draw_tile(picture, top, left, scale, image, label, begin);
    if (!data.classifies()) continue;
    draw_frame(picture, top, left, tile_y - gap, tile_x - gap, colour_of(data.train[sample.draw.volume].class_number));
  }
  io::write_png(o.out, picture.width, picture.height, 3, picture.pixels);
}

}  // namespace convolume::nets
