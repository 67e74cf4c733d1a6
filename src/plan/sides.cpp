#include "plan/sides.hpp"

#include <utility>

namespace convolume::plan {
namespace {

ConvProblem untransposed(const ConvProblem& problem) {
  if (!problem.transposed) return problem;
  ConvProblem q = problem;
  std::swap(q.in_channels, q.out_channels);
  std::swap(q.x_layout, q.y_layout);
  q.input = problem.output();
  q.transposed = false;
  q.output_padding = {0, 0, 0};
  q.epilogue = {};
  return q;
}

}  // namespace

Sides::Sides(const ConvProblem& problem) : convolution_(untransposed(problem)), y_is_high_res_(problem.transposed) {}

}  // namespace convolume::plan
