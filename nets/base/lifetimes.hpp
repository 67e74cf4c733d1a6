// Decides when the tensors and spectra of a task graph live, and where in memory.
#pragma once

#include <cstddef>
#include <deque>
#include <functional>
#include <memory_resource>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "convolume/conv.hpp"
#include "convolume/ready.hpp"
#include "convolume/scheduler.hpp"
#include "convolume/tensor.hpp"
#include "nets/base/memory_mode.hpp"

namespace convolume::nets {

/// Least number of steps between the last use of a buffer and the first use of a buffer that takes over its bytes. With
/// 1, as many layers may run at the same time as if they shared no memory. With 0, memory is reused at once, and some
/// tasks wait for others that they do not read from.
struct Slack {
  int tensors = 1;  ///< before a tensor or a cache
  /// Before an engine's buffer within one step. If both are 1 and the arena grows by at most 1 %, such buffers get 3.
  int working = 1;
  friend bool operator==(const Slack&, const Slack&) = default;
};

/// Assigns memory to the buffers of a task graph. The graph's steps (for example a layer's forward pass) are appended
/// one after the other, and each says which buffers its tasks use. In a memory mode that frees buffers within a run,
/// the graph is appended twice. The first graph is a draft: it never runs, and it shows the first and the last use of
/// every buffer. The second graph is appended after plan(), and it runs.
///
/// Two buffers share bytes of the arena only if the graph orders them: some task follows every task of all steps that
/// use the earlier buffer, and precedes the tasks of the later buffer's first step. The order does not depend on time,
/// so the two are never live together on any number of threads. A lasting buffer is used between runs or by the next
/// run, so it shares bytes with no other buffer. Buffers that convolution engines keep between the tasks of one step
/// lie in the arena too; see workspace(). For such a buffer not all tasks of the step count: only the tasks that wait
/// for Workspace::Buffer::ready and the last tasks that use the buffer.
///
/// Building is single-threaded. The graph must not outlive this object, and must not run while it is planned.
class Lifetimes {
 public:
  using Buffer = std::size_t;
  enum class Content { tensor, spectra, weights, working };     ///< `working`: an engine's buffer within one step
  static constexpr Buffer no_buffer = static_cast<Buffer>(-1);  ///< allowed in Step::use(); ignored

  /// If `poison` is set, buffers that are freed within a run are filled with NaN. This is a test of the memory plan.
  Lifetimes(MemoryMode mode, const Slack& slack, std::pmr::memory_resource* memory, bool poison);
  ~Lifetimes();
  Lifetimes(const Lifetimes&) = delete;
  Lifetimes& operator=(const Lifetimes&) = delete;

  /// Returns whether graphs are appended twice, first as a draft.
  bool planned() const { return mode_ != MemoryMode::separate; }
  Buffer add(std::size_t bytes);
  /// Adds the cache of a plan, which must outlive this object. In mode `separate` it allocates its own memory.
  Buffer add(Spectra& spectra, bool lasting = false);
  Buffer add(PreparedWeights& weights, bool lasting = false);
  /// Adds prepared weights for training: what only forward passes read, and the rest. The first is `no_buffer` if there
  /// is no such part, or if the memory is not planned by lifetimes.
  std::pair<Buffer, Buffer> add_for_training(PreparedWeights& weights);
  /// Returns the pointer for Address::in(). It points to null until a task has given memory to the buffer.
  void* const* slot(Buffer buffer) const { return &held_[buffer].address; }

  /// A step that is being appended.
  class Step {
   public:
    Step(const Step&) = delete;
    Step& operator=(const Step&) = delete;
    /// Registers a buffer that tasks of the step read or write. Throws std::logic_error after gate().
    void use(Buffer buffer);
    /// Returns the step's dependency on earlier users of the memory: all tasks that write to a buffer in its first step
    /// must wait for it. Throws std::logic_error if a task was appended before the first call.
    const Ready& gate();
    TaskGraph& graph() const { return graph_; }

   private:
    friend class Lifetimes;
    Step(Lifetimes& all, TaskGraph& graph, const Ready& input)
        : all_(all), graph_(graph), input_(input), begin_(static_cast<TaskId>(graph.size())) {}

    Lifetimes& all_;
    TaskGraph& graph_;
    const Ready& input_;
    std::vector<Buffer> buffers_{};
    std::optional<Ready> gate_{};
    TaskId begin_;
  };

  /// Appends a step by calling append(Step&), and returns its result. `input` is what the step waits for in any case.
  template <class Append>
  auto step(TaskGraph& graph, const Ready& input, const Append& append) {
    const Working::Within within(working_);
    Step step(*this, graph, input);
    auto done = append(step);
    step.gate();
    leave(graph, step.buffers_, step.begin_);
    return done;
  }
  /// Returns the workspace for the tasks of a step while the step is appended. Returns null if the tasks allocate and
  /// free their working buffers themselves.
  Workspace* workspace() { return mode_ == MemoryMode::arena ? &working_ : nullptr; }

  /// Plans the memory from the draft. All steps that are appended from now on belong to the graph that runs.
  void plan();
  /// Allocates the arena and places the buffers in it. The graph may run afterwards.
  void place();
  /// Return the bytes of the arena, and the bytes that all buffers of one kind would take if they were separate.
  std::size_t arena_bytes() const { return arena_bytes_; }
  std::size_t buffer_bytes(Content content) const;

 private:
  struct Held {
    std::size_t bytes = 0;
    Content content = Content::tensor;
    bool lasting = false;
    void* address = nullptr;
    std::function<void(void*)> place{};  // caches only: makes the cache use this memory
    std::function<void()> release{};     // caches only: frees the memory that the cache allocated itself
    int first = -1, last = -1;           // steps of the first and last use; -1: never used
    std::vector<TaskId> users{};         // tasks that use it, in the graph that runs
    std::size_t offset = 0;
    std::vector<Buffer> earlier{};  // buffers whose bytes this one takes over
    bool taken_over = false;        // whether a later buffer takes over its bytes
    TaskId freed = -1;              // task that follows its last use
  };

  /// Hands out buffers to engines. The n-th request in the draft defines the n-th buffer; the n-th request in the
  /// second graph gets that buffer's place in the arena.
  struct Working final : Workspace {
    explicit Working(Lifetimes& all) : lifetimes(all) {}
    Buffer take(TaskGraph& graph, std::size_t bytes) override;
    void free(TaskGraph& graph, const Buffer& buffer, std::span<const TaskId> last) override;

    /// Marks the time from the begin of a step to its end.
    struct Within {
      explicit Within(Working& all) : working(all) { working.within_step = true; }
      ~Within() { working.within_step = false; }
      Within(const Within&) = delete;
      Within& operator=(const Within&) = delete;
      Working& working;
    };

    Lifetimes& lifetimes;
    std::vector<std::size_t> buffers{};
    std::size_t next = 0;
    bool within_step = false;
  };

  Ready enter(TaskGraph& graph, std::span<const Buffer> buffers, const Ready& input);
  void leave(TaskGraph& graph, std::span<const Buffer> buffers, TaskId begin);
  /// Records that the current step uses the buffer.
  void use(Held& held) const {
    if (held.first < 0) held.first = steps_;
    held.last = steps_;
  }
  /// Returns the tasks that follow the last uses of the buffers whose bytes `held` takes over.
  std::vector<TaskId> gate_of(const Held& held) const;
  /// Appends the task that follows the last use of `held`.
  void append_free(TaskGraph& graph, Held& held, std::span<const TaskId> users);
  bool in_arena(const Held& held) const { return held.bytes > 0 && (held.lasting || held.first >= 0); }
  void take(Held& held);
  void free(Held& held) noexcept;

  MemoryMode mode_;
  Slack slack_;
  std::pmr::memory_resource* memory_;
  bool poison_, planned_ = false;
  std::deque<Held> held_;  // a deque, because a slot must not move
  Working working_{*this};
  int steps_ = 0;
  std::size_t arena_bytes_ = 0;
  void* arena_ = nullptr;
};

}  // namespace convolume::nets
