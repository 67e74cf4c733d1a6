#include "bench/net/random_images.hpp"

#include <fmt/format.h>

#include "core/random.hpp"

namespace convolume::bench {
namespace {

// What a stream of random numbers is for; it is part of the key.
constexpr std::uint32_t voxel_stream = 0x494D4731, class_stream = 0x494D4732;

RandomKey key_of(const RandomImages& images, std::uint32_t stream, index_t image) {
  return {.seed = images.seed, .a = stream, .b = static_cast<std::uint32_t>(image)};
}

}  // namespace

nets::Dataset random_images(const RandomImages& images, std::pmr::memory_resource* memory) {
  nets::Dataset data;
  data.name = "random images";
  for (index_t c = 0; c < images.classes; ++c) data.class_names.push_back(fmt::format("{}", c));
  for (index_t i = 0; i < images.count; ++i) {
    Tensor<float> voxels(Shape5{1, images.channels, images.extent}, Layout::plain, memory);
    const RandomKey key = key_of(images, voxel_stream, i);
    for (index_t at = 0; at < voxels.elements(); ++at) {
      voxels.data()[at] = static_cast<float>(normal(key, static_cast<std::uint64_t>(at)));
    }
    const auto classes = static_cast<std::uint64_t>(images.classes);
    data.train.push_back(
        {.image = std::move(voxels),
         .label = {},
         .mask = {},
         .name = fmt::format("image {}", i),
         .class_number = static_cast<index_t>(uniform_below(key_of(images, class_stream, i), 0, classes))});
  }
  return data;
}

}  // namespace convolume::bench
