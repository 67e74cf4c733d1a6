#include "conv/streamed/stream_run.hpp"

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <exception>
#include <mutex>
#include <thread>

#include "convolume/error.hpp"
#include "ops/activation.hpp"
#include "ops/append.hpp"

namespace convolume::conv {
namespace {

using Clock = std::chrono::steady_clock;
using Progress = std::function<void(index_t done, index_t steps)>;

/// Adds the seconds that a scope takes to a sum.
class Stopwatch {
 public:
  explicit Stopwatch(double& sum) : sum_(sum), begin_(Clock::now()) {}
  ~Stopwatch() { sum_ += std::chrono::duration<double>(Clock::now() - begin_).count(); }
  Stopwatch(const Stopwatch&) = delete;
  Stopwatch& operator=(const Stopwatch&) = delete;

 private:
  double& sum_;
  Clock::time_point begin_;
};

/// Bytes from a memory resource, aligned to a page.
class Block {
 public:
  Block(std::size_t bytes, std::pmr::memory_resource* memory)
      : memory_(memory), bytes_(bytes), data_(bytes == 0 ? nullptr : memory->allocate(bytes, page_bytes)) {}
  ~Block() {
    if (data_ != nullptr) memory_->deallocate(data_, bytes_, page_bytes);
  }
  Block(Block&& other) noexcept
      : memory_(other.memory_), bytes_(other.bytes_), data_(std::exchange(other.data_, nullptr)) {}
  Block& operator=(Block&&) = delete;
  std::byte* data() const noexcept { return static_cast<std::byte*>(data_); }

 private:
  std::pmr::memory_resource* memory_;
  std::size_t bytes_;
  void* data_;
};

/// The boxes of an operand in the order in which they are moved, and the buffers that hold them in turn. A box is
/// filled by one thread and emptied by another one.
struct Lane {
  std::vector<TensorBox> boxes;
  std::vector<index_t> of_step;  ///< index of the box that a step uses
  std::vector<Block> buffers;
  index_t filled = 0, emptied = 0;  // boxes; guarded by the mutex of the run

  void add(const TensorBox& box) {
    if (boxes.empty() || !(boxes.back() == box)) boxes.push_back(box);
    of_step.push_back(static_cast<index_t>(boxes.size()) - 1);
  }
  void allocate(int count, std::size_t element, std::pmr::memory_resource* memory) {
    index_t largest = 0;
    for (const TensorBox& box : boxes) largest = std::max(largest, box.shape.elements());
    const std::size_t most = std::min<std::size_t>(static_cast<std::size_t>(count), boxes.size());
    while (buffers.size() < most) buffers.emplace_back(static_cast<std::size_t>(largest) * element, memory);
  }
  std::byte* buffer(index_t box) const { return buffers[static_cast<std::size_t>(box) % buffers.size()].data(); }
  const TensorBox& box(index_t i) const { return boxes[static_cast<std::size_t>(i)]; }
  index_t count() const { return static_cast<index_t>(boxes.size()); }
};

/// Prepared weights for tiles of the same channels, and the graph that fills them.
struct Preparation {
  ConvPlan plan;
  PreparedWeights weights;
  TaskGraph graph;
};

class StreamRun {
 public:
  StreamRun(const StreamTask& task, const Execution& run, const StreamTensors& tensors)
      : task_(task),
        run_(run),
        tensors_(tensors),
        steps_(steps_of(task.cut)),
        element_(size_of(task.cut.problem.type)),
        working_(make_programs(), run.memory) {
    for (const StreamStep& step : steps_) {
      x_.add(step.x);
      w_.add(step.w);
      y_.add(step.y);
    }
    const std::array lanes{&x_, &w_, &y_};
    for (std::size_t i = 0; i < lanes.size(); ++i) lanes[i]->allocate(task.buffers[i], element_, run.memory);
    for (auto& [problem, program] : programs_) program->place(working_.data());
  }

  std::optional<StreamReport> run(const Progress& progress, const std::stop_token& stop) {
    {
      const Stopwatch watch(report_.seconds);
      if (task_.buffers[0] == 1 ? !run_in_turn(progress, stop) : !run_at_once(progress, stop)) return std::nullopt;
      const Stopwatch writing(report_.write_seconds);
      tensors_.y.finish();
    }
    report_.tiles = static_cast<index_t>(steps_.size());
    return report_;
  }

 private:
  /// Makes a program for each different tile. Returns the bytes of their buffers between tasks.
  std::size_t make_programs();
  Preparation& prepare_for(StreamProgram& program);

  bool run_in_turn(const Progress& progress, const std::stop_token& stop);
  bool run_at_once(const Progress& progress, const std::stop_token& stop);
  bool compute_all(const Progress& progress, const std::stop_token& stop);
  bool compute(std::size_t i, const std::stop_token& stop);
  template <class T>
  bool add_part(std::size_t i, const std::stop_token& stop);

  void read_all();
  void write_all();
  void read(Lane& lane, TensorSource& source, index_t i) {
    const Stopwatch watch(report_.read_seconds);
    source.read(lane.box(i), lane.buffer(i));
  }
  void write(index_t i) {
    const Stopwatch watch(report_.write_seconds);
    tensors_.y.write(y_.box(i), y_.buffer(i));
  }

  /// Waits until condition() holds. Returns false if the run ends early.
  template <class Condition>
  bool wait(const Condition& condition) {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return ended_ || condition(); });
    return !ended_;
  }
  bool wait_for_content(const Lane& lane, index_t i) {
    return wait([&] { return lane.filled > i; });
  }
  bool wait_for_room(const Lane& lane) {
    return wait([&] { return lane.filled - lane.emptied < static_cast<index_t>(lane.buffers.size()); });
  }
  /// Raises a counter of a lane.
  void count(index_t& counter) {
    {
      const std::lock_guard lock(mutex_);
      ++counter;
    }
    changed_.notify_all();
  }
  void end(std::exception_ptr failure) {
    {
      const std::lock_guard lock(mutex_);
      ended_ = true;
      if (!failure_) failure_ = std::move(failure);
    }
    changed_.notify_all();
  }

  StreamTask task_;
  Execution run_;
  StreamTensors tensors_;
  std::vector<StreamStep> steps_;
  std::size_t element_;
  StreamSlots slots_;
  std::vector<std::pair<ConvProblem, std::unique_ptr<StreamProgram>>> programs_;
  std::vector<StreamProgram*> program_of_step_;
  std::deque<Preparation> preparations_;
  std::map<const StreamProgram*, Preparation*> preparation_of_;
  std::unique_ptr<Block> weights_, part_;
  Block working_;
  Lane x_, w_, y_;
  std::pair<const Preparation*, index_t> prepared_{nullptr, -1};  // whose weights hold which box
  StreamReport report_;
  std::mutex mutex_;
  std::condition_variable changed_;
  bool ended_ = false;          // guarded by the mutex
  std::exception_ptr failure_;  // guarded by the mutex
};

std::size_t StreamRun::make_programs() {
  std::size_t working = 0, weights = 0;
  index_t part = 0;
  for (const StreamStep& step : steps_) {
    const auto known = std::find_if(programs_.begin(), programs_.end(),
                                    [&](const auto& program) { return program.first == step.problem; });
    if (known != programs_.end()) {
      program_of_step_.push_back(known->second.get());
    } else {
      programs_.emplace_back(step.problem,
                             std::make_unique<StreamProgram>(task_.whole, task_.options, step.problem, slots_,
                                                             run_.scheduler.threads(), run_.memory));
      StreamProgram& program = *programs_.back().second;
      Preparation& preparation = prepare_for(program);
      preparation_of_[&program] = &preparation;
      program_of_step_.push_back(&program);
      working = std::max(working, program.workspace_bytes());
      weights = std::max(weights, preparation.weights.capacity());
    }
    if (!step.first_part) part = std::max(part, step.y.shape.elements());
  }
  // Only one set of weights is prepared at a time.
  weights_ = std::make_unique<Block>(weights, run_.memory);
  for (Preparation& preparation : preparations_) {
    if (preparation.weights.capacity() > 0) preparation.weights.place(weights_->data());
  }
  part_ = std::make_unique<Block>(static_cast<std::size_t>(part) * element_, run_.memory);
  return working;
}

/// Returns the preparation whose weights the program reads, and makes it if there is none.
Preparation& StreamRun::prepare_for(StreamProgram& program) {
  for (Preparation& known : preparations_) {
    if (program.append(known.weights)) return known;
  }
  const ConvProblem& p = program.plan().problem();
  preparations_.push_back({program.plan(), program.plan().prepared_weights(run_.memory), {}});
  Preparation& made = preparations_.back();
  made.plan.append_prepare(made.graph, {}, view_in(&slots_.w, p.w_shape(), p.type), made.weights);
  if (!program.append(made.weights)) throw StaleCache("streamed convolution: weights do not fit their own plan");
  return made;
}

/// Computes a step whose boxes of x and w are there. Returns false if a stop request ended it.
bool StreamRun::compute(std::size_t i, const std::stop_token& stop) {
  const Stopwatch watch(report_.compute_seconds);
  const StreamStep& step = steps_[i];
  StreamProgram& program = *program_of_step_[i];
  Preparation& preparation = *preparation_of_.at(&program);
  slots_.x = x_.buffer(x_.of_step[i]);
  slots_.w = w_.buffer(w_.of_step[i]);
  slots_.y = step.first_part ? y_.buffer(y_.of_step[i]) : part_->data();
  if (task_.cut.problem.epilogue.bias) {
    auto* const bias = static_cast<std::byte*>(const_cast<void*>(tensors_.bias.data.get()));
    slots_.bias = bias + static_cast<std::size_t>(step.y.c) * element_;
  }
  const std::pair<const Preparation*, index_t> wanted{&preparation, w_.of_step[i]};
  if (prepared_ != wanted) {
    if (preparation.graph.run(run_.scheduler, stop) == RunResult::cancelled) return false;
    prepared_ = wanted;
  }
  if (program.run(run_.scheduler, stop) == RunResult::cancelled) return false;
  if (step.first_part && step.last_part) return true;
  return task_.cut.problem.type == DataType::f32 ? add_part<float>(i, stop) : add_part<double>(i, stop);
}

/// Adds the sums of a further part of the input channels to those before. Behind the last part, applies the epilogue.
/// Returns false if a stop request ended it.
template <class T>
bool StreamRun::add_part(std::size_t i, const std::stop_token& stop) {
  const StreamStep& step = steps_[i];
  const Epilogue& epilogue = task_.cut.problem.epilogue;
  const index_t voxels = step.y.shape.extent.volume(), channels = step.y.shape.c;
  T* const y = reinterpret_cast<T*>(y_.buffer(y_.of_step[i]));
  const T* const part = reinterpret_cast<const T*>(part_->data());
  const T* const bias = static_cast<const T*>(slots_.bias);
  const auto add = [&](index_t begin, index_t end) {
    for (index_t map = begin; map < end; ++map) {
      T* const to = y + map * voxels;
      for (index_t v = 0; !step.first_part && v < voxels; ++v) to[v] += part[map * voxels + v];
      if (!step.last_part) continue;
      for (index_t v = 0; epilogue.bias && v < voxels; ++v) to[v] += bias[map % channels];
      if (epilogue.activation.kind != Activation::Kind::none) ops::activate(epilogue.activation, to, to, voxels);
    }
  };
  TaskGraph graph;
  ops::append_ranges(graph, "add sums of channels", step.y.shape.n * channels, static_cast<double>(voxels), {}, add);
  return graph.run(run_.scheduler, stop) == RunResult::completed;
}

/// Reads, computes and writes one after the other, in the calling thread.
bool StreamRun::run_in_turn(const Progress& progress, const std::stop_token& stop) {
  for (std::size_t i = 0; i < steps_.size(); ++i) {
    for (const auto& [lane, source] : {std::pair(&x_, &tensors_.x), std::pair(&w_, &tensors_.w)}) {
      if (lane->filled == lane->of_step[i]) read(*lane, *source, lane->filled++);
    }
    if (stop.stop_requested() || !compute(i, stop)) return false;
    if (steps_[i].last_part) write(y_.of_step[i]);
    if (progress) progress(static_cast<index_t>(i) + 1, static_cast<index_t>(steps_.size()));
  }
  return true;
}

/// Computes in the calling thread, while one thread reads ahead and another one writes. A device can then read and
/// write at the same time, and a slow write does not delay the next read.
bool StreamRun::run_at_once(const Progress& progress, const std::stop_token& stop) {
  const auto guarded = [this](void (StreamRun::*work)()) {
    try {
      (this->*work)();
    } catch (...) {
      end(std::current_exception());
    }
  };
  bool completed = false;
  {
    std::jthread reader, writer;  // they end before the failure is rethrown, also if one of them cannot start
    try {
      reader = std::jthread(guarded, &StreamRun::read_all);
      writer = std::jthread(guarded, &StreamRun::write_all);
      completed = compute_all(progress, stop);
      if (!completed) end(nullptr);
    } catch (...) {
      end(std::current_exception());
    }
  }
  if (failure_) std::rethrow_exception(failure_);
  return completed;
}

void StreamRun::read_all() {
  index_t x = 0, w = 0;
  for (std::size_t i = 0; i < steps_.size(); ++i) {
    for (const auto& [lane, source, next] : {std::tuple(&x_, &tensors_.x, &x), std::tuple(&w_, &tensors_.w, &w)}) {
      if (*next != lane->of_step[i]) continue;
      if (!wait_for_room(*lane)) return;
      read(*lane, *source, (*next)++);
      count(lane->filled);
    }
  }
}

void StreamRun::write_all() {
  for (index_t i = 0; i < y_.count(); ++i) {
    if (!wait_for_content(y_, i)) return;
    write(i);
    count(y_.emptied);
  }
}

bool StreamRun::compute_all(const Progress& progress, const std::stop_token& stop) {
  // A stop request must also wake a thread that waits.
  const std::stop_callback wake(stop, [this] { end(nullptr); });
  for (std::size_t i = 0; i < steps_.size(); ++i) {
    if (!wait_for_content(x_, x_.of_step[i]) || !wait_for_content(w_, w_.of_step[i])) return false;
    if (steps_[i].first_part && !wait_for_room(y_)) return false;
    if (!compute(i, stop)) return false;
    const bool last = i + 1 == steps_.size();
    for (Lane* lane : {&x_, &w_}) {
      if (last || lane->of_step[i + 1] != lane->of_step[i]) count(lane->emptied);
    }
    if (steps_[i].last_part) count(y_.filled);
    if (progress) progress(static_cast<index_t>(i) + 1, static_cast<index_t>(steps_.size()));
  }
  return wait([&] { return y_.emptied == y_.count(); });
}

}  // namespace

std::optional<StreamReport> run_stream(const StreamTask& task, const Execution& run, const StreamTensors& tensors,
                                       const std::function<void(index_t, index_t)>& progress, std::stop_token stop) {
  StreamRun all(task, run, tensors);
  return all.run(progress, stop);
}

EngineMemory engine_memory(const StreamTask& task, int threads) {
  const std::vector<StreamStep> steps = steps_of(task.cut);
  const auto size = [](const StreamStep& step) {
    return std::pair(step.w.shape.elements(), step.x.shape.elements() + step.y.shape.elements());
  };
  const StreamStep& largest = *std::max_element(
      steps.begin(), steps.end(), [&](const StreamStep& a, const StreamStep& b) { return size(a) < size(b); });
  StreamSlots slots;
  std::pmr::memory_resource* const memory = std::pmr::get_default_resource();
  StreamProgram program(task.whole, task.options, largest.problem, slots, threads, memory);
  PreparedWeights weights = program.plan().prepared_weights(memory);
  TaskGraph prepare;
  program.plan().append_prepare(prepare, {}, view_in(&slots.w, largest.w.shape, largest.problem.type), weights);
  if (!program.append(weights)) throw StaleCache("streamed convolution: weights do not fit their own plan");
  const std::size_t prepare_scratch = static_cast<std::size_t>(threads) * block_bytes(largest_scratch(prepare));
  return {.working = block_bytes(program.workspace_bytes()) + std::max(program.scratch_bytes(), prepare_scratch),
          .prepared = block_bytes(weights.capacity())};
}

}  // namespace convolume::conv
