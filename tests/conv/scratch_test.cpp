// Tasks say beforehand how much scratch they hold: admission by memory is as good as that.
#include <algorithm>
#include <map>
#include <optional>
#include <vector>

#include <catch2/catch.hpp>

#include "convolume/conv.hpp"
#include "convolume/memory.hpp"
#include "scheduler/task_graph.hpp"

using namespace convolume;

namespace {

/// Notes what is taken and given back, for one thread.
class WatchedMemory final : public std::pmr::memory_resource {
 public:
  void forget() { events_.clear(); }
  /// The most bytes held at once since forget(), of what was given back again; what stays is a tensor or spectrum.
  std::size_t most_scratch() const {
    std::map<const void*, std::size_t> open;  // where each block was taken last
    std::vector<bool> is_scratch(events_.size(), false);
    for (std::size_t i = 0; i < events_.size(); ++i) {
      if (events_[i].taken) {
        open[events_[i].block] = i;
      } else if (open.contains(events_[i].block)) {
        is_scratch[i] = is_scratch[open[events_[i].block]] = true;
      }
    }
    std::size_t held = 0, most = 0;
    for (std::size_t i = 0; i < events_.size(); ++i) {
      if (!is_scratch[i]) continue;
      events_[i].taken ? held += events_[i].bytes : held -= events_[i].bytes;
      most = std::max(most, held);
    }
    return most;
  }

 private:
  struct Event {
    const void* block;
    std::size_t bytes;
    bool taken;
  };
  void* do_allocate(std::size_t bytes, std::size_t alignment) override {
    void* block = memory_.allocate(bytes, alignment);
    events_.push_back({block, bytes, true});
    return block;
  }
  void do_deallocate(void* block, std::size_t bytes, std::size_t alignment) override {
    events_.push_back({block, bytes, false});
    memory_.deallocate(block, bytes, alignment);
  }
  bool do_is_equal(const memory_resource& other) const noexcept override { return this == &other; }

  SlabResource memory_;
  std::vector<Event> events_;
};

struct Case {
  const char* problem;
  Engine engine;
  Layout layout = Layout::plain;
  std::size_t budget = 0;
};

/// Forward, backward and the weights' preparation, as one graph.
class Convolution {
 public:
  Convolution(const Case& c, WatchedMemory& memory) {
    ConvProblem p = parse_problem(c.problem);
    p.x_layout = p.y_layout = c.layout;
    p.epilogue = {.bias = true, .activation = {.kind = Activation::Kind::relu}};
    plan_ = ConvPlan::make(p, {.engine = c.engine, .memory_budget = c.budget});
    x_ = Tensor<float>(p.x_shape(), c.layout);
    dx_ = Tensor<float>(p.x_shape(), c.layout);
    y_ = Tensor<float>(p.y_shape(), c.layout);
    dy_ = Tensor<float>(p.y_shape(), c.layout);
    w_ = Tensor<float>(p.w_shape());
    dw_ = Tensor<float>(p.w_shape());
    bias_ = Tensor<float>({1, p.out_channels, {1, 1, 1}});
    dbias_ = Tensor<float>(bias_.shape());
    for (Tensor<float>* tensor : {&x_, &dx_, &dy_, &w_, &bias_}) tensor->fill(0.5f);
    prepared_ = plan_->prepared_weights(&memory);
    const Ready ready = plan_->append_prepare(graph_, {}, w_, prepared_);
    const Ready y =
        plan_->append_forward(graph_, {.w = ready}, {.x = x_, .w = prepared_, .bias = bias_, .y = y_}, &memory);
    plan_->append_backward(graph_, {.w = ready, .dy = Ready::all_of(y.tasks())},
                           {.x = x_,
                            .y = y_,
                            .dy = dy_,
                            .w = prepared_,
                            .dx = dx_,
                            .dw = dw_,
                            .dbias = dbias_,
                            .add_dx = c.layout == Layout::plain},
                           &memory);
  }
  TaskGraph& graph() { return graph_; }

 private:
  std::optional<ConvPlan> plan_;
  Tensor<float> x_, dx_, y_, dy_, w_, dw_, bias_, dbias_;
  PreparedWeights prepared_;
  TaskGraph graph_;
};

}  // namespace

TEST_CASE("tasks of convolutions hold as much scratch as they say") {
  const Case cases[] = {{"mb2ic20id12oc17kd3pd1", Engine::fft_tiled, Layout::plain},
                        {"mb2ic20id12oc17kd3pd1", Engine::fft_tiled, Layout::blocked},
                        {"mb2ic20id12oc17kd3pd1", Engine::fft_tiled, Layout::blocked, 1},
                        {"ic1id16oc16kd5", Engine::fft_tiled, Layout::plain},
                        {"ic20id12oc17kd3sd2pd1", Engine::fft_tiled, Layout::plain},
                        {"g20ic20oc20id12kd5pd2", Engine::fft_tiled, Layout::blocked},
                        {"g20ic20oc20id12kd5sd2pd2", Engine::fft_tiled, Layout::plain},
                        {"g20ic20oc20id12kd3pd1", Engine::direct, Layout::blocked},
                        {"g20ic20oc20id12kd3pd1", Engine::direct, Layout::plain},
                        {"ic20id9oc17kd3pd1", Engine::direct, Layout::plain},
                        {"ic20id9oc17kd3sd2pd1", Engine::direct, Layout::blocked},
                        {"ic20id9oc17kd1", Engine::direct, Layout::plain},
                        {"g2ic32id9oc32kd3pd1", Engine::direct, Layout::blocked},
                        {"ic5id12oc4kd3", Engine::fft_volume, Layout::plain},
                        {"ic40id8oc2kd3", Engine::fft_volume, Layout::plain},
                        {"ic5id12oc4kd3", Engine::fft_volume, Layout::plain, 1},
                        {"ic5id6oc4kd3", Engine::reference, Layout::plain}};
  for (const Case& c : cases) {
    CAPTURE(c.problem, name_of(c.engine), name_of(c.layout), c.budget);
    WatchedMemory memory;
    Convolution convolution(c, memory);
    const auto tasks = convolution.graph().describe();
    std::vector<std::size_t> found(tasks.size());
    auto& bodies = convolution.graph().impl().bodies;
    for (std::size_t i = 0; i < bodies.size(); ++i) {
      bodies[i] = [&, i, body = std::move(bodies[i])] {
        memory.forget();
        body();
        found[i] = memory.most_scratch();
      };
    }
    Scheduler scheduler(1);
    REQUIRE(convolution.graph().run(scheduler) == RunResult::completed);
    std::map<std::string, std::size_t> most;  // of tasks of one name
    for (std::size_t i = 0; i < tasks.size(); ++i) {
      if (tasks[i].options.task_class == TaskClass::release) continue;  // gives back what others have taken
      CAPTURE(tasks[i].options.name);
      CHECK(found[i] <= tasks[i].options.scratch_bytes);
      std::size_t& of_name = most[tasks[i].options.name];
      of_name = std::max(of_name, found[i]);
    }
    // Of tasks that share a sum only the last one needs all, at the edges of a tensor less is staged.
    for (const TaskDescription& task : tasks) {
      CAPTURE(task.options.name);
      if (task.options.scratch_bytes > 0) CHECK(most[task.options.name] > 0);
      CHECK(task.options.scratch_bytes <= 2 * most[task.options.name] + 1024);
    }
  }
}
