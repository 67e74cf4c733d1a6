// Random loop nests for property tests.
#pragma once

#include <cstdint>
#include <span>

#include "convolume/nest.hpp"

namespace convolume::test {

/// Draws nest number `seed` for the spaces of a direction: any order, each dimension in up to three loops, extents that
/// need not divide, and sometimes parallel loops. The nest is valid. Thread-safe.
plan::LoopNest random_nest(std::span<const plan::NestSpace> spaces, std::uint64_t seed);

}  // namespace convolume::test
