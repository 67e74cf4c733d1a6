// Tests that tasks declare how much scratch they hold, and that they keep nothing else if the caller provides a
// workspace. Admission by memory and memory plans depend on this.
#include <algorithm>
#include <cstring>
#include <deque>
#include <limits>
#include <map>
#include <numeric>
#include <optional>
#include <vector>

#include <catch2/catch.hpp>

#include "convolume/conv.hpp"
#include "convolume/memory.hpp"
#include "core/random.hpp"
#include "scheduler/task_graph.hpp"

using namespace convolume;

namespace {

/// Records allocations and deallocations of one thread.
class WatchedMemory final : public std::pmr::memory_resource {
 public:
  void forget() { events_.clear(); }
  /// Returns the bytes allocated after forget() and still live, minus the bytes freed that were allocated before it.
  std::ptrdiff_t kept() const {
    std::ptrdiff_t bytes = 0;
    for (const Event& event : events_) {
      event.taken ? bytes += static_cast<std::ptrdiff_t>(event.bytes)
                  : bytes -= static_cast<std::ptrdiff_t>(event.bytes);
    }
    return bytes;
  }
  /// Returns the peak of scratch bytes after forget(). Blocks that are not freed are tensors or spectra and do not
  /// count.
  std::size_t most_scratch() const {
    std::map<const void*, std::size_t> open;  // index of the last allocation of each block
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
  bool transposed = false;
  const char* choice = "";
};

/// A workspace whose buffers have memory only for a limited time. It begins with a task that waits for all earlier
/// tasks and that all users wait for. It ends with a task that waits for all users. A user that comes too early or too
/// late reads NaN, and its writes are detected.
class LateWorkspace final : public Workspace {
 public:
  Buffer take(TaskGraph& graph, std::size_t bytes) override {
    Piece& piece = pieces_.emplace_back();
    piece.memory.assign(bytes / sizeof(Line), not_a_number());
    piece.decoy = piece.memory;
    REQUIRE(bytes % sizeof(Line) == 0);
    piece.address = piece.decoy.data();
    std::vector<TaskId> all(graph.size());
    std::iota(all.begin(), all.end(), 0);
    const TaskId ready = graph.add(
        {.name = "late", .cost = 0}, [&piece] { piece.address = piece.memory.data(); }, all);
    return {.slot = &piece.address, .ready = {ready}};
  }
  void free(TaskGraph& graph, const Buffer& buffer, std::span<const TaskId> last) override {
    const auto found =
        std::find_if(pieces_.begin(), pieces_.end(), [&](const Piece& piece) { return &piece.address == buffer.slot; });
    REQUIRE(found != pieces_.end());
    found->freed = true;
    graph.add(
        {.name = "free", .task_class = TaskClass::release},
        [&piece = *found] {
          piece.address = piece.decoy.data();
          std::fill(piece.memory.begin(), piece.memory.end(), not_a_number());
        },
        last);
  }
  std::size_t buffers() const { return pieces_.size(); }
  bool all_freed() const {
    return std::all_of(pieces_.begin(), pieces_.end(), [](const Piece& piece) { return piece.freed; });
  }
  /// Returns whether nothing was written to a buffer that had no memory.
  bool untouched() const {
    const Line line = not_a_number();
    return std::all_of(pieces_.begin(), pieces_.end(), [&](const Piece& piece) {
      return std::all_of(piece.decoy.begin(), piece.decoy.end(),
                         [&](const Line& other) { return std::memcmp(&line, &other, sizeof(Line)) == 0; });
    });
  }

 private:
  struct alignas(64) Line {
    float values[16];
  };
  struct Piece {
    std::vector<Line> memory{}, decoy{};
    void* address = nullptr;
    bool freed = false;
  };
  static Line not_a_number() {
    Line line;
    std::fill(std::begin(line.values), std::end(line.values), std::numeric_limits<float>::quiet_NaN());
    return line;
  }

  std::deque<Piece> pieces_;
};

/// One graph with the preparation of the weights, forward and backward.
class Convolution {
 public:
  Convolution(const Case& c, WatchedMemory& memory, Workspace* workspace = nullptr) {
    ConvProblem p = parse_problem(c.problem);
    p.x_layout = p.y_layout = c.layout;
    p.transposed = c.transposed;
    p.epilogue = {.bias = true, .activation = {.kind = Activation::Kind::relu}};
    plan_ = ConvPlan::make(p, {.engine = c.engine, .choice = c.choice, .memory_budget = c.budget});
    x_ = Tensor<float>(p.x_shape(), c.layout);
    dx_ = Tensor<float>(p.x_shape(), c.layout);
    y_ = Tensor<float>(p.y_shape(), c.layout);
    dy_ = Tensor<float>(p.y_shape(), c.layout);
    w_ = Tensor<float>(p.w_shape());
    dw_ = Tensor<float>(p.w_shape());
    bias_ = Tensor<float>({1, p.out_channels, {1, 1, 1}});
    dbias_ = Tensor<float>(bias_.shape());
    std::uint32_t stream = 0;
    for (Tensor<float>* tensor : {&x_, &dx_, &dy_, &w_, &bias_}) {
      tensor->fill(0);
      fill(tensor->view(), ++stream);
    }
    prepared_ = plan_->prepared_weights(&memory);
    const Ready ready = plan_->append_prepare(graph_, {}, w_, prepared_);
    const Ready y = plan_->append_forward(graph_, {.w = ready}, {.x = x_, .w = prepared_, .bias = bias_, .y = y_},
                                          &memory, workspace);
    plan_->append_backward(graph_, {.w = ready, .dy = Ready::all_of(y.tasks())},
                           {.x = x_,
                            .y = y_,
                            .dy = dy_,
                            .w = prepared_,
                            .dx = dx_,
                            .dw = dw_,
                            .dbias = dbias_,
                            .add_dx = c.layout == Layout::plain},
                           &memory, workspace);
  }
  TaskGraph& graph() { return graph_; }
  const PreparedWeights& prepared() const { return prepared_; }
  /// Returns all results, one after the other.
  std::vector<float> results() const {
    std::vector<float> all;
    for (const Tensor<float>* tensor : {&y_, &dx_, &dw_, &dbias_})
      all.insert(all.end(), tensor->data(), tensor->data() + tensor->elements());
    return all;
  }

 private:
  static void fill(const View<float>& view, std::uint32_t stream) {
    const Shape5& s = view.shape;
    std::uint64_t at = 0;
    for (index_t n = 0; n < s.n; ++n) {
      for (index_t c = 0; c < s.c; ++c) {
        for (index_t z = 0; z < s.extent.z; ++z) {
          for (index_t y = 0; y < s.extent.y; ++y) {
            for (index_t x = 0; x < s.extent.x; ++x)
              view(n, c, z, y, x) = static_cast<float>(normal({.seed = 5, .a = stream}, at++));
          }
        }
      }
    }
  }

  std::optional<ConvPlan> plan_;
  Tensor<float> x_, dx_, y_, dy_, w_, dw_, bias_, dbias_;
  PreparedWeights prepared_;
  TaskGraph graph_;
};

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
                      {"ic20id9oc17kd3sd2pd1", Engine::direct, Layout::plain, 0, true},
                      // The last Z layer of tiles of dy covers only padding of x.
                      {"ic16id8ih12iw12oc16od14oh12ow12kd3pd0ph1pw1", Engine::fft_tiled, Layout::blocked, 0, false,
                       "fft_tiled fwd=14x12x12*2 bwd_d=14x12x12*2 bwd_w=14x12x12*1 shared"},
                      {"mb2ic20id12oc17kd3pd1", Engine::toom_cook, Layout::plain},
                      {"mb2ic20id6ih13iw12oc17kd1kh3kw3pd0ph1pw1", Engine::toom_cook, Layout::blocked},
                      {"mb2ic40id13ih6iw7oc70kd3kh1kw1pd1ph0pw0", Engine::toom_cook, Layout::blocked},
                      {"ic5id12oc4kd3", Engine::fft_volume, Layout::plain},
                      {"ic40id8oc2kd3", Engine::fft_volume, Layout::plain},
                      {"ic5id12oc4kd3", Engine::fft_volume, Layout::plain, 1},
                      {"ic5id6oc4kd3", Engine::reference, Layout::plain}};

}  // namespace

TEST_CASE("tasks of convolutions hold as much scratch as they say") {
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
    std::map<std::string, std::size_t> most;  // most scratch of tasks with equal names
    for (std::size_t i = 0; i < tasks.size(); ++i) {
      if (tasks[i].options.task_class == TaskClass::release) continue;  // it frees other tasks' memory
      CAPTURE(tasks[i].options.name);
      CHECK(found[i] <= tasks[i].options.scratch_bytes);
      std::size_t& of_name = most[tasks[i].options.name];
      of_name = std::max(of_name, found[i]);
    }
    // Only the last of the tasks that share a sum needs all of its scratch, and at the edges of a tensor less is
    // staged.
    for (const TaskDescription& task : tasks) {
      CAPTURE(task.options.name);
      if (task.options.scratch_bytes > 0) CHECK(most[task.options.name] > 0);
      CHECK(task.options.scratch_bytes <= 2 * most[task.options.name] + 1024);
    }
  }
}

TEST_CASE(
    "what tasks of convolutions pass on to each other lies in the caller's workspace, from its first use to its last") {
  std::size_t buffers = 0;
  for (const Case& c : cases) {
    CAPTURE(c.problem, name_of(c.engine), name_of(c.layout), c.budget);
    Scheduler serial(1);
    WatchedMemory memory;
    Convolution alone(c, memory);
    LateWorkspace workspace;
    WatchedMemory scratch;
    Convolution convolution(c, scratch, &workspace);
    buffers += workspace.buffers();
    CHECK(workspace.all_freed());
    // Buffers that a group of tiles reads must not be freed before the group ends. This requires that a task waits for
    // the group.
    const auto tasks = alone.graph().describe();
    std::vector<bool> awaited(tasks.size(), false);
    for (const TaskDescription& task : tasks) {
      for (const TaskId before : task.after) awaited[static_cast<std::size_t>(before)] = true;
    }
    for (std::size_t i = 0; i < tasks.size(); ++i) {
      if (tasks[i].options.name.starts_with("tiles")) CHECK(awaited[i]);
    }
    std::vector<std::ptrdiff_t> kept(convolution.graph().size());
    auto& bodies = convolution.graph().impl().bodies;
    for (std::size_t i = 0; i < bodies.size(); ++i) {
      bodies[i] = [&, i, body = std::move(bodies[i])] {
        scratch.forget();
        body();
        kept[i] = scratch.kept();
      };
    }
    for (int run = 0; run < 2; ++run) {
      REQUIRE(alone.graph().run(serial) == RunResult::completed);
      REQUIRE(convolution.graph().run(serial) == RunResult::completed);
      const bool same = convolution.results() == alone.results();
      CHECK(same);
      CHECK(workspace.untouched());
      const auto all = std::accumulate(kept.begin(), kept.end(), std::ptrdiff_t{0});
      CHECK(all == static_cast<std::ptrdiff_t>(run == 0 ? convolution.prepared().bytes() : 0));
      // Only the preparation keeps memory, so release tasks have nothing to free.
      CHECK(std::none_of(kept.begin(), kept.end(), [](std::ptrdiff_t bytes) { return bytes < 0; }));
    }
  }
  CHECK(buffers > 30);
}
