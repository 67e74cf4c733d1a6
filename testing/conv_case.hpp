// Random tensors for convolutions, and a convolution with all its tensors.
#pragma once

#include <cmath>
#include <limits>
#include <string>

#include "testing/sanitizers.hpp"

#include "convolume/conv.hpp"
#include "convolume/memory.hpp"
#include "core/random.hpp"

namespace convolume::test {

template <class T>
Tensor<T> poisoned(const Shape5& shape) {
  Tensor<T> tensor(shape);
  tensor.fill(std::numeric_limits<T>::quiet_NaN());
  return tensor;
}

template <class T>
Tensor<T> random_tensor(const Shape5& shape, std::uint32_t stream, bool integers = false) {
  Tensor<T> tensor(shape);
  for (index_t i = 0; i < tensor.elements(); ++i) {
    const RandomKey key{.seed = 11, .a = stream};
    const auto at = static_cast<std::uint64_t>(i);
    tensor.data()[i] =
        integers ? static_cast<T>(static_cast<int>(uniform_below(key, at, 7)) - 3) : static_cast<T>(normal(key, at));
  }
  return tensor;
}

template <class T>
double dot(const Tensor<T>& a, const Tensor<T>& b) {
  double sum = 0;
  for (index_t i = 0; i < a.elements(); ++i) sum += static_cast<double>(a.data()[i]) * static_cast<double>(b.data()[i]);
  return sum;
}

template <class T, class U>
double relative_error(const Tensor<T>& got, const Tensor<U>& want) {
  double error = 0, norm = 0;
  for (index_t i = 0; i < got.elements(); ++i) {
    const double w = static_cast<double>(want.data()[i]), d = static_cast<double>(got.data()[i]) - w;
    error += d * d;
    norm += w * w;
  }
  return std::sqrt(error) / (norm > 0 ? std::sqrt(norm) : 1.0);
}

template <class T>
bool same_bits(const Tensor<T>& a, const Tensor<T>& b) {
  return a.elements() == b.elements() &&
         std::equal(a.data(), a.data() + a.elements(), b.data(), [](T x, T y) { return x == y; });
}

/// Returns whether the slow reference engine would take minutes under a sanitizer.
inline bool too_slow_here(const ConvProblem& problem) { return sanitized && problem.flops() > 2e6; }

/// All tensors of a convolution in both directions.
template <class T>
struct ConvCase {
  ConvCase(const ConvProblem& p, const ConvOptions& options, bool integers = false, int threads = 1)
      : problem(with_type(p)),
        scheduler(threads),
        plan(ConvPlan::make(problem, options)),
        x(random_tensor<T>(problem.x_shape(), 1, integers)),
        w(random_tensor<T>(problem.w_shape(), 2, integers)),
        bias(random_tensor<T>({1, problem.out_channels, {1, 1, 1}}, 3, integers)),
        dy(random_tensor<T>(problem.y_shape(), 4, integers)),
        y(poisoned<T>(problem.y_shape())),
        dx(poisoned<T>(problem.x_shape())),
        dw(poisoned<T>(problem.w_shape())),
        dbias(poisoned<T>({1, problem.out_channels, {1, 1, 1}})) {}

  static ConvProblem with_type(ConvProblem p) {
    p.type = data_type_of<T>();
    return p;
  }

  /// Runs everything once, with x_hat kept from forward to backward or not.
  void run(bool keep_x_hat = true) {
    const Execution execution{scheduler, &memory};
    const auto prepared = plan.prepare(execution, w);
    auto x_hat = plan.input_spectra(&memory);
    Spectra* kept = keep_x_hat ? &x_hat : nullptr;
    plan.forward(execution, {.x = x, .w = prepared, .bias = bias, .y = y, .x_hat = kept});
    plan.backward(execution,
                  {.x = x, .y = y, .dy = dy, .w = prepared, .x_hat = kept, .dx = dx, .dw = dw, .dbias = dbias});
  }

  ConvProblem problem;
  SlabResource memory;
  Scheduler scheduler;
  ConvPlan plan;
  Tensor<T> x, w, bias, dy, y, dx, dw, dbias;
};

}  // namespace convolume::test
