// What the tasks of a sum over taps read and write, from the bindings of a call.
#pragma once

#include <memory_resource>

#include "conv/engine.hpp"
#include "conv/taps/tap_geometry.hpp"

namespace convolume::conv {

/// A box of results of one sample, for some columns (blocks of lanes).
struct Region {
  index_t sample = 0;
  Box box;
  index_t first_column = 0, columns = 1;
};

/// What a region reads and writes beside weights.
template <class T>
struct RegionEnds {
  View<const T> source;
  View<T> target;
  View<const T> bias{};                  ///< one channel per lane; may be absent
  const Activation* gradient = nullptr;  ///< multiplies the source by its gradient at y
  View<const T> y{};
  Activation activation{};
  bool add = false;
};

/// What is summed up: the tensors on both sides of a convolution that is not transposed, x and dy.
template <class T>
struct PieceTensors {
  View<const T> fine, coarse;
  const Activation* activation = nullptr;  ///< multiplies one of them by its gradient at y
  View<const T> y{};
  bool y_is_fine = false;
  std::pmr::memory_resource* memory = nullptr;  ///< of scratch
};

/// y from x.
template <class T>
RegionEnds<T> region_ends(const ConvProblem& problem, const ForwardArguments& a) {
  return {.source = a.x.as<T>(),
          .target = a.y.as<T>(),
          .bias = problem.epilogue.bias ? a.bias.as<T>() : View<const T>(),
          .activation = problem.epilogue.activation};
}

/// dx from dy.
template <class T>
RegionEnds<T> region_ends(const ConvProblem& problem, const BackwardArguments& a) {
  RegionEnds<T> ends{.source = a.dy.as<T>(), .target = a.dx.as<T>(), .add = a.add_dx};
  if (problem.epilogue.activation.kind != Activation::Kind::none) {
    ends.gradient = &problem.epilogue.activation;
    ends.y = a.y.as<T>();
  }
  return ends;
}

/// What the weights' gradient sums up.
template <class T>
PieceTensors<T> piece_tensors(const ConvProblem& problem, const BackwardArguments& a) {
  const View<const T> x = a.x.as<T>(), dy = a.dy.as<T>();
  PieceTensors<T> tensors{
      .fine = problem.transposed ? dy : x, .coarse = problem.transposed ? x : dy, .memory = a.memory};
  if (problem.epilogue.activation.kind != Activation::Kind::none) {
    tensors.activation = &problem.epilogue.activation;
    tensors.y = a.y.as<T>();
    tensors.y_is_fine = problem.transposed;
  }
  return tensors;
}

}  // namespace convolume::conv
