// The tensors of one direction with their prologue and epilogue, from the bindings of a call.
#pragma once

#include <memory_resource>

#include "conv/engine.hpp"
#include "plan/sides.hpp"

namespace convolume::conv {

/// The tensors that one direction reads and writes, besides weights, with the prologue (`gradient`) and the epilogue
/// (`bias`, `activation`, `add`). The engines fft_tiled, toom_cook and direct read their bindings through
/// this struct.
template <class T>
struct DirectionTensors {
  View<const T> source;
  View<T> target;
  View<const T> bias{};                  ///< one channel per lane; may be absent
  const Activation* gradient = nullptr;  ///< if not null, the source is multiplied by its gradient at y
  View<const T> y{};
  Activation activation{};
  bool add = false;
};

/// The tensors that the weight gradient reads, on the sides of plan::Sides. In a plain problem x is on the
/// high-resolution side and dy on the low-resolution side.
template <class T>
struct GradientTensors {
  View<const T> high_res, low_res;
  const Activation* activation = nullptr;  ///< if not null, one of the two is multiplied by its gradient at y
  View<const T> y{};
  bool y_is_high_res = false;
  std::pmr::memory_resource* memory = nullptr;  ///< for scratch
};

/// Returns the tensors for y from x.
template <class T>
DirectionTensors<T> direction_tensors(const ConvProblem& problem, const ForwardArguments& a) {
  return {.source = a.x.as<T>(),
          .target = a.y.as<T>(),
          .bias = problem.epilogue.bias ? a.bias.as<T>() : View<const T>(),
          .activation = problem.epilogue.activation};
}

/// Returns the tensors for dx from dy.
template <class T>
DirectionTensors<T> direction_tensors(const ConvProblem& problem, const BackwardArguments& a) {
  DirectionTensors<T> tensors{.source = a.dy.as<T>(), .target = a.dx.as<T>(), .add = a.add_dx};
  if (problem.epilogue.activation.kind != Activation::Kind::none) {
    tensors.gradient = &problem.epilogue.activation;
    tensors.y = a.y.as<T>();
  }
  return tensors;
}

/// Returns the tensors for the weight gradient.
template <class T>
GradientTensors<T> gradient_tensors(const ConvProblem& problem, const plan::Sides& sides, const BackwardArguments& a) {
  const View<const T> x = a.x.as<T>(), dy = a.dy.as<T>();
  GradientTensors<T> tensors{.high_res = sides.high_res(x, dy), .low_res = sides.low_res(x, dy), .memory = a.memory};
  if (problem.epilogue.activation.kind != Activation::Kind::none) {
    tensors.activation = &problem.epilogue.activation;
    tensors.y = a.y.as<T>();
    tensors.y_is_high_res = sides.y_is_high_res();
  }
  return tensors;
}

}  // namespace convolume::conv
