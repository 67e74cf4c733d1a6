// A user's program: a convolution, a transform and a conversion through the public headers, each checked against known
// numbers.
#include <cmath>
#include <cstdio>

#include <convolume/convolume.hpp>

namespace {

bool near(double found, double expected, const char* what) {
  const bool good = std::abs(found - expected) < 1e-4;
  if (!good) std::printf("%s: found %g, expected %g\n", what, found, expected);
  return good;
}

/// Convolves ones with a 3 x 3 x 3 kernel of twos and adds a bias: 27 * 2 + 0.5 everywhere.
bool convolution(std::pmr::memory_resource* memory) {
  using namespace convolume;
  Scheduler scheduler(2);
  const Execution run{scheduler, memory};
  const ConvProblem problem{.input = {6, 7, 8}, .kernel = {3, 3, 3}, .epilogue = {.bias = true}};
  const ConvPlan plan = ConvPlan::make(problem);
  Tensor<float> x(problem.x_shape(), memory), w(problem.w_shape(), memory), y(problem.y_shape(), memory),
      bias({1, 1, {1, 1, 1}}, memory);
  x.fill(1);
  w.fill(2);
  bias.fill(0.5);
  const PreparedWeights prepared = plan.prepare(run, w);
  plan.forward(run, {.x = x, .w = prepared, .bias = bias, .y = y});
  bool good = y.shape() == Shape5{1, 1, {4, 5, 6}};
  for (index_t i = 0; i < y.elements(); ++i) good = near(y.data()[i], 54.5, "convolution") && good;
  return good;
}

/// Transforms a cosine of period 4 on 8 points: 4 at frequency 2, zero elsewhere.
bool transform(std::pmr::memory_resource* memory) {
  using namespace convolume;
  const fft::Plan plan = fft::Plan::make({.extent = {1, 1, 8}});
  Tensor<float> in({1, 1, {1, 1, 8}}, memory);
  for (int i = 0; i < 8; ++i) in.data()[i] = i % 2 == 1 ? 0.0f : i % 4 == 0 ? 1.0f : -1.0f;
  Tensor<float> out({1, 1, {1, 1, static_cast<index_t>(plan.spectrum_bytes() / sizeof(float))}}, memory);
  void* scratch = memory->allocate(plan.scratch_bytes() + 64, 64);
  plan.execute(in.data(), out.data(), scratch);
  memory->deallocate(scratch, plan.scratch_bytes() + 64, 64);
  bool good = true;
  for (index_t k = 0; k < 5; ++k) {
    const index_t at = 2 * k * plan.spectrum_stride().x;
    good = near(out.data()[at], k == 2 ? 4 : 0, "transform, real") && good;
    good = near(out.data()[at + 1], 0, "transform, imaginary") && good;
  }
  return good;
}

/// Converts 3 channels of 2 voxels to blocked doubles: lanes 0 to 2 of each voxel hold them, the others zero.
bool conversion(std::pmr::memory_resource* memory) {
  using namespace convolume;
  Scheduler scheduler(2);
  Tensor<float> plain({1, 3, {1, 1, 2}}, memory);
  Tensor<double> blocked(plain.shape(), Layout::blocked, memory);
  for (int i = 0; i < 6; ++i) plain.data()[i] = static_cast<float>(i);
  convert(Execution{scheduler, memory}, plain, blocked);
  bool good = true;
  for (int i = 0; i < 16; ++i) {
    good = near(blocked.data()[i], i % 8 < 3 ? 2 * (i % 8) + i / 8 : 0, "conversion") && good;
  }
  return good;
}

}  // namespace

int main() {
  convolume::SlabResource memory;
  bool good = convolution(&memory);
  good = transform(&memory) && good;
  good = conversion(&memory) && good;
  std::printf("convolume %s: %s\n", convolume::version(), good ? "as expected" : "WRONG");
  return good ? 0 : 1;
}
