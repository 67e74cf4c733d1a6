// What groups of tiles read and write, from the bindings of a call.
#pragma once

#include <memory_resource>

#include "conv/engine.hpp"

namespace convolume::conv {

/// What a group of tiles reads and writes.
template <class T>
struct GroupEnds {
  View<const T> source;
  View<T> target;
  const T* weights = nullptr;  ///< spectra, laid out as TiledVoxels::weights()
  const T* bias = nullptr;
  const Activation* gradient = nullptr;  ///< multiplies the source by its gradient at y
  View<const T> y{};
  Activation activation{};
  bool add = false;
  T* keep = nullptr;                            ///< where spectra of the source go, laid out as TiledVoxels::kept()
  const T* kept = nullptr;                      ///< these instead of the source
  std::pmr::memory_resource* memory = nullptr;  ///< of the group's spectra
};

/// y from x, and dx from dy, but for what is kept.
template <class T>
GroupEnds<T> group_ends(const ConvProblem& problem, const ForwardArguments& a, const T* weights) {
  return {.source = a.x.as<T>(),
          .target = a.y.as<T>(),
          .weights = weights,
          .bias = problem.epilogue.bias ? a.bias.as<T>().data : nullptr,
          .activation = problem.epilogue.activation,
          .memory = a.memory};
}
template <class T>
GroupEnds<T> group_ends(const ConvProblem& problem, const BackwardArguments& a, const T* weights) {
  GroupEnds<T> ends{
      .source = a.dy.as<T>(), .target = a.dx.as<T>(), .weights = weights, .add = a.add_dx, .memory = a.memory};
  if (problem.epilogue.activation.kind != Activation::Kind::none) {
    ends.gradient = &problem.epilogue.activation;
    ends.y = a.y.as<T>();
  }
  return ends;
}

}  // namespace convolume::conv
