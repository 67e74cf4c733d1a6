#include "tools/variant_timer.hpp"

#include <algorithm>
#include <chrono>
#include <vector>

#include <fmt/format.h>

#include "convolume/conv.hpp"
#include "convolume/convert.hpp"
#include "convolume/error.hpp"
#include "convolume/loop_nests.hpp"
#include "convolume/memory.hpp"
#include "convolume/scheduler.hpp"

namespace convolume::tools {
namespace {

constexpr int least_runs = 3, most_runs = 25;
constexpr double least_seconds = 0.01;  // of all runs of a measurement

/// Returns the reason without the nest that it names, so that equal reasons of different nests are equal texts.
std::string reason_of(const std::string& message) {
  const std::size_t end = message.find("': ");
  return end == std::string::npos ? message : message.substr(end + 3);
}

/// Returns a nest as choice texts have it, with points for spaces.
std::string dotted(const plan::LoopNest& nest) {
  std::string text = to_string(nest);
  std::replace(text.begin(), text.end(), ' ', '.');
  return text;
}

/// Fills a tensor of either layout. Lanes without a channel become zero.
void fill(const Execution& run, Tensor<float>& tensor, std::pmr::memory_resource* memory) {
  Tensor<float> plain(tensor.shape(), memory);
  plain.fill(1);
  convert(run, plain, tensor);
}

}  // namespace

DirectVariants::DirectVariants(const ConvProblem& problem, plan::Direction direction)
    : problem_(problem), direction_(direction) {
  problem_.x_layout = usual_layout(problem.in_channels);
  problem_.y_layout = usual_layout(problem.out_channels);
  nests_ = loop_nests(problem_);
}

std::string DirectVariants::choice(const plan::LoopNest& nest) const {
  auto nests = nests_;
  nests[static_cast<std::size_t>(direction_)] = nest;
  return fmt::format("direct fwd={} bwd_d={} bwd_w={}", dotted(nests[0]), dotted(nests[1]), dotted(nests[2]));
}

std::string DirectVariants::refusal(const plan::LoopNest& nest) const {
  try {
    static_cast<void>(ConvPlan::make(problem_, {.choice = choice(nest)}));
    return "";
  } catch (const InvalidArgument& error) {
    return reason_of(error.what());
  } catch (const Unsupported& error) {
    return reason_of(error.what());
  }
}

struct VariantClock::State {
  State(const DirectVariants& of, int threads)
      : variants(of),
        scheduler(threads),
        x(problem().x_shape(), problem().x_layout, &memory),
        y(problem().y_shape(), problem().y_layout, &memory),
        dx(problem().x_shape(), problem().x_layout, &memory),
        w(problem().w_shape(), &memory),
        dw(problem().w_shape(), &memory) {
    for (Tensor<float>* tensor : {&x, &y}) fill(run(), *tensor, &memory);
    w.fill(0.001F);
  }
  const ConvProblem& problem() const { return variants.problem(); }
  Execution run() { return {scheduler, &memory}; }

  ConvPlan plan(const std::string& choice) const {
    return ConvPlan::make(problem(), {.want_dx = variants.direction() == plan::Direction::backward_data,
                                      .want_dw = variants.direction() == plan::Direction::backward_weights,
                                      .choice = choice});
  }

  void execute(const ConvPlan& plan, const PreparedWeights& weights) {
    switch (variants.direction()) {
      case plan::Direction::forward:
        plan.forward(run(), {.x = x, .w = weights, .y = y});
        return;
      case plan::Direction::backward_data:
        plan.backward(run(), {.dy = y, .w = weights, .dx = dx});
        return;
      case plan::Direction::backward_weights:
        plan.backward(run(), {.x = x, .dy = y, .w = weights, .dw = dw});
        return;
    }
  }

  const DirectVariants& variants;
  SlabResource memory;
  Scheduler scheduler;
  Tensor<float> x, y, dx, w, dw;
};

VariantClock::VariantClock(const DirectVariants& variants, int threads)
    : state_(std::make_unique<State>(variants, threads)) {}
VariantClock::~VariantClock() = default;

double VariantClock::seconds(const std::string& choice) {
  const ConvPlan plan = state_->plan(choice);
  const PreparedWeights weights = plan.prepare(state_->run(), state_->w);
  state_->execute(plan, weights);  // makes the task graph, and touches the memory
  std::vector<double> runs;
  double all = 0;
  while (static_cast<int>(runs.size()) < most_runs &&
         (static_cast<int>(runs.size()) < least_runs || all < least_seconds)) {
    const auto begin = std::chrono::steady_clock::now();
    state_->execute(plan, weights);
    runs.push_back(std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count());
    all += runs.back();
  }
  std::sort(runs.begin(), runs.end());
  return runs[runs.size() / 4];
}

std::string VariantClock::automatic_engine() const { return std::string(name_of(state_->plan("").engine())); }

}  // namespace convolume::tools
