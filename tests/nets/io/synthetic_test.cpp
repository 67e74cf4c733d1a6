#include "nets/io/synthetic.hpp"

#include <cmath>
#include <limits>

#include "io_testing.hpp"
#include <xxhash.h>

using namespace convolume;
using namespace convolume::nets;
using namespace convolume::nets::testing;

namespace {

std::uint64_t hash_of(const Tensor<float>& tensor) {
  return XXH3_64bits(tensor.data(), static_cast<std::size_t>(tensor.elements()) * sizeof(float));
}

double mean_of(const Tensor<float>& tensor) {
  double sum = 0;
  for (index_t i = 0; i < tensor.elements(); ++i) sum += static_cast<double>(tensor.data()[i]);
  return sum / static_cast<double>(tensor.elements());
}

}  // namespace

TEST_CASE("a synthetic volume is a pure function of its options", "[io][synthetic]") {
  const SyntheticOptions options{.extent = {8, 48, 40}};
  const auto first = make_synthetic_volume(options), again = make_synthetic_volume(options);
  CHECK(hash_of(first.image) == hash_of(again.image));
  CHECK(hash_of(first.label) == hash_of(again.label));
  auto other_options = options;
  other_options.seed = 2;
  const auto other = make_synthetic_volume(other_options);
  CHECK(hash_of(first.image) != hash_of(other.image));
  CHECK(hash_of(first.label) != hash_of(other.label));
  // These values hold on every machine and with every compiler.
  CHECK(hash_of(first.image) == 0x58bb7aad9b453369u);
  CHECK(hash_of(first.label) == 0xb244e60d7127a1cbu);
}

TEST_CASE("a synthetic volume has dark membranes on about a fifth of its voxels", "[io][synthetic]") {
  for (const std::uint64_t seed : {1u, 7u}) {
    const auto volume = make_synthetic_volume({.extent = {16, 128, 128}, .seed = seed});
    const double share = mean_of(volume.label);
    CHECK(share > 0.15);
    CHECK(share < 0.25);
    double membrane = 0, cell = 0;
    bool binary = true, finite = true;
    for (index_t i = 0; i < volume.label.elements(); ++i) {
      const float label = volume.label.data()[i], image = volume.image.data()[i];
      binary = binary && (label == 0 || label == 1);
      finite = finite && std::isfinite(image);
      (label > 0 ? membrane : cell) += static_cast<double>(image);
    }
    CHECK(binary);
    CHECK(finite);
    const auto voxels = static_cast<double>(volume.label.elements());
    membrane /= voxels * share;
    cell /= voxels * (1 - share);
    CAPTURE(share, membrane, cell);
    CHECK(membrane < cell - 0.2);
    CHECK(membrane > 0.05);
    CHECK(cell < 0.9);
  }
}

TEST_CASE("options of synthetic volumes are checked and used", "[io][synthetic]") {
  CHECK(make_synthetic_volume({.extent = {1, 1, 1}}).image.elements() == 1);
  CHECK(mean_of(make_synthetic_volume({.extent = {4, 32, 32}, .membrane_width = 0}).label) == 0);
  const auto sharp = make_synthetic_volume({.extent = {2, 32, 32}, .noise = 0, .blur = 0});
  const auto soft = make_synthetic_volume({.extent = {2, 32, 32}, .noise = 0, .blur = 3});
  CHECK(hash_of(sharp.label) == hash_of(soft.label));
  CHECK(hash_of(sharp.image) != hash_of(soft.image));
  CHECK_THROWS_AS(make_synthetic_volume({.extent = {0, 8, 8}}), InvalidArgument);
  CHECK_THROWS_AS(make_synthetic_volume({.cell_diameter = 1}), InvalidArgument);
  CHECK_THROWS_AS(make_synthetic_volume({.anisotropy = 0}), InvalidArgument);
  CHECK_THROWS_AS(make_synthetic_volume({.membrane_width = -1}), InvalidArgument);
  CHECK_THROWS_AS(make_synthetic_volume({.noise = std::nan("")}), InvalidArgument);
  CHECK_THROWS_AS(make_synthetic_volume({.blur = 9}), InvalidArgument);
}
