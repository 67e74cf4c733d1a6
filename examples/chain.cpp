// A chain of three 3 x 3 x 3 convolutions on plain and on blocked tensors. The second chain converts its first input
// and its last output.
#include <algorithm>
#include <chrono>
#include <cstdio>

#include <convolume/convolume.hpp>

using namespace convolume;

ConvPlan plan_for(Layout layout) {
  ConvProblem problem = parse_problem("ic24id64oc24kd3pd1");  // 24 to 24 channels of 64 x 64 x 64 voxels
  problem.x_layout = problem.y_layout = layout;
  return ConvPlan::make(problem);
}

/// Three layers, and the tensors between them. All layers have the same plan and weights here.
struct Layers {
  Layers(const Execution& run, Layout layout)
      : plan(plan_for(layout)),
        a(plan.problem().y_shape(), layout, run.memory),
        b(plan.problem().y_shape(), layout, run.memory) {
    Tensor<float> w(plan.problem().w_shape(), run.memory);
    w.fill(0.001f);
    w_hat = plan.prepare(run, w);
  }
  void forward(const Execution& run, Tensor<float>& x, Tensor<float>& y) {
    plan.forward(run, {.x = x, .w = w_hat, .y = a});
    plan.forward(run, {.x = a, .w = w_hat, .y = b});
    plan.forward(run, {.x = b, .w = w_hat, .y = y});
  }
  ConvPlan plan;
  PreparedWeights w_hat;
  Tensor<float> a, b;
};

/// Returns the milliseconds of the fastest of ten calls.
template <class Body>
double milliseconds(const Body& body) {
  double best = 1e9;
  for (int i = 0; i < 10; ++i) {
    const auto begin = std::chrono::steady_clock::now();
    body();
    best = std::min(best, std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - begin).count());
  }
  return best;
}

int main() {
  SlabResource memory;
  Scheduler scheduler(default_threads());
  const Execution run{scheduler, &memory};
  Layers plain(run, Layout::plain), blocked(run, Layout::blocked);
  const Shape5 shape = plain.plan.problem().x_shape();
  Tensor<float> x(shape, &memory), y(shape, &memory), again(shape, &memory);
  Tensor<float> first(shape, Layout::blocked, &memory), last(shape, Layout::blocked, &memory);
  x.fill(1);

  const double plain_ms = milliseconds([&] { plain.forward(run, x, y); });
  const double blocked_ms = milliseconds([&] {
    convert(run, x, first);  // plain to blocked
    blocked.forward(run, first, last);
    convert(run, last, again);  // blocked to plain
  });
  // Inside, y = (24 * 27 * 0.001)^3 = 0.2721.
  std::printf("plain tensors: %.2f ms, y = %.4f\n", plain_ms, y.view()(0, 0, 32, 32, 32));
  std::printf("blocked tensors, with both conversions: %.2f ms, y = %.4f\n", blocked_ms,
              again.view()(0, 0, 32, 32, 32));
}
