#include <cmath>
#include <cstdlib>
#include <vector>

#include "io_testing.hpp"
#include <png.h>

#include "nets/io/png.hpp"

using namespace convolume;
using namespace convolume::nets;
using namespace convolume::nets::io;
using namespace convolume::nets::testing;

namespace {

struct Picture {
  index_t width = 0, height = 0;
  std::vector<std::uint8_t> pixels;
};

Picture decode(const std::filesystem::path& file, bool colour) {
  png_image image{};
  image.version = PNG_IMAGE_VERSION;
  REQUIRE(png_image_begin_read_from_file(&image, file.c_str()));
  CHECK((image.format & PNG_FORMAT_FLAG_COLOR) == (colour ? PNG_FORMAT_FLAG_COLOR : 0u));
  image.format = colour ? PNG_FORMAT_RGB : PNG_FORMAT_GRAY;
  Picture picture{image.width, image.height, std::vector<std::uint8_t>(PNG_IMAGE_SIZE(image))};
  REQUIRE(png_image_finish_read(&image, nullptr, picture.pixels.data(), 0, nullptr));
  return picture;
}

}  // namespace

TEST_CASE("PNG files decode to what was written", "[io][png]") {
  const Directory directory;
  const auto file = directory / "a.png";
  for (const int channels : {1, 3}) {
    std::vector<std::uint8_t> pixels;
    for (int i = 0; i < 31 * 17 * channels; ++i) pixels.push_back(static_cast<std::uint8_t>(i * 5));
    write_png(file, 31, 17, channels, pixels);
    const auto picture = decode(file, channels == 3);
    CHECK(picture.width == 31);
    CHECK(picture.height == 17);
    CHECK(picture.pixels == pixels);
  }
  const std::vector<std::uint8_t> pixels(12);
  CHECK_THROWS_AS(write_png(file, 4, 4, 1, pixels), InvalidArgument);
  CHECK_THROWS_AS(write_png(file, 3, 2, 2, pixels), InvalidArgument);
  CHECK_THROWS_AS(write_png(file, 0, 2, 1, {}), InvalidArgument);
  CHECK_THROWS_AS(write_png(file, 2000000, 1, 1, pixels), InvalidArgument);
  CHECK_THROWS_AS(write_png(directory / "no/a.png", 4, 3, 1, pixels), IoError);
  const std::string before = read_bytes(file);
  {
    const FullDisk full(8);
    CHECK_THROWS_AS(write_png(file, 4, 3, 1, pixels), IoError);
  }
  CHECK(read_bytes(file) == before);
  CHECK(directory.files() == 1);
}

TEST_CASE("a slice panel shows image, prediction and label", "[io][png]") {
  const Directory directory;
  const auto file = directory / "panel.png";
  const Shape5 shape{1, 1, {3, 20, 100}};
  const auto image = ramp(shape, 3);
  Tensor<float> prediction(shape), label(shape);
  prediction.fill(0.5f);
  label.fill(1);
  prediction.view()(0, 0, 2, 0, 0) = NAN;
  write_slice_panel(file, image, prediction, label, 2);
  auto picture = decode(file, false);
  REQUIRE(picture.width == 3 * 300 + 2 * 4);  // 100 pixels enlarged by 3
  REQUIRE(picture.height == 60);
  const auto at = [&](index_t x, index_t y) { return picture.pixels[static_cast<std::size_t>(y * picture.width + x)]; };
  CHECK(at(0, 0) == 0);
  CHECK(at(299, 59) == 255);
  CHECK(at(301, 30) == 255);
  CHECK(at(304, 0) == 0);
  CHECK(at(307, 0) == 128);
  CHECK(at(604, 10) == 255);
  CHECK(at(608, 10) == 255);

  write_slice_panel(file, image, prediction, {}, 0);
  picture = decode(file, false);
  CHECK(picture.width == 2 * 300 + 4);
  CHECK_THROWS_AS(write_slice_panel(file, image, prediction, label, 3), InvalidArgument);
  CHECK_THROWS_AS(write_slice_panel(file, image, {}, label, 0), InvalidArgument);
  CHECK_THROWS_AS(write_slice_panel(file, image, ramp({1, 1, {3, 20, 99}}), label, 0), ShapeMismatch);
}
