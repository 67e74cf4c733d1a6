// A 5 x 5 x 5 convolution from 8 to 8 channels, forward and backward: plan once, prepare the weights, keep the spectra
// of x.
#include <cstdio>

#include <convolume/convolume.hpp>

using namespace convolume;

int main() {
  SlabResource memory;
  Scheduler scheduler(default_threads());
  const Execution run{scheduler, &memory};
  const ConvPlan plan =
      ConvPlan::make({.in_channels = 8, .out_channels = 8, .input = {32, 32, 32}, .kernel = {5, 5, 5}});
  const ConvProblem& problem = plan.problem();
  Tensor<float> x(problem.x_shape(), &memory), w(problem.w_shape(), &memory), y(problem.y_shape(), &memory);
  Tensor<float> dx(problem.x_shape(), &memory), dw(problem.w_shape(), &memory);
  x.fill(1);
  w.fill(0.001f);

  const PreparedWeights w_hat = plan.prepare(run, w);
  Spectra x_hat = plan.input_spectra(&memory);
  plan.forward(run, {.x = x, .w = w_hat, .y = y, .x_hat = &x_hat});  // y = 8 * 5 * 5 * 5 * 0.001 = 1 everywhere
  plan.backward(run, {.x = x, .dy = y, .w = w_hat, .x_hat = &x_hat, .dx = dx, .dw = dw});

  std::printf("%sy[0] = %.4f, dw[0] = %.1f\n", plan.explain().c_str(), y.data()[0], dw.data()[0]);
}
