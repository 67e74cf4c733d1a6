// What the tasks of the direct engines read and write, from the bindings of a call.
#pragma once

#include "conv/direct_region.hpp"
#include "conv/direct_weights.hpp"
#include "conv/engine.hpp"

namespace convolume::conv {

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
