// Images and classes for classifiers whose data set is not at hand.
#pragma once

#include <cstdint>
#include <memory_resource>

#include "nets/data/dataset.hpp"

namespace convolume::bench {

struct RandomImages {
  index_t channels = 1, classes = 2, count = 1;
  Extent3 extent{1, 1, 1};
  std::uint64_t seed = 1;
};

/// Makes a data set of random images. The voxels of image i are normal numbers of Philox4x32-10 with the key (seed,
/// stream of voxels, i), and its class is a uniform number of the key (seed, stream of classes, i). So an image depends
/// neither on the others nor on threads. Throws std::bad_alloc.
nets::Dataset random_images(const RandomImages& images, std::pmr::memory_resource* memory);

}  // namespace convolume::bench
