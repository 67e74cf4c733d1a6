// When the tensors and spectra of a task graph live, and where.
#pragma once

#include <cstddef>
#include <deque>
#include <functional>
#include <memory_resource>
#include <span>
#include <utility>
#include <vector>

#include "convolume/conv.hpp"
#include "convolume/nets.hpp"
#include "convolume/scheduler.hpp"
#include "convolume/tensor.hpp"

namespace convolume::nets {

/// The buffers of a graph. Its steps (a layer's forward pass, say) are appended one after the other, each with the
/// buffers that its tasks use. Of a mode that frees buffers within a run the graph is appended twice: as a draft, which
/// never runs and shows when every buffer is used first and last, and, after plan(), for good.
///
/// Two buffers share bytes of the arena only where a task that follows every task of all steps of the one comes before
/// the tasks of the other's first step: order in the graph, not in time, so that no number of threads and no delay can
/// bring them together. A buffer that is `lasting`, because it is used between runs or by the next one, shares with
/// none. What engines of convolutions keep between the tasks of one step has its place there too: workspace(). Of such
/// a buffer not all tasks of the step count, but those that wait for Workspace::Buffer::ready, and the last of them.
///
/// Building is single-threaded. The graph must not outlive this, nor run while it is planned.
class Lifetimes {
 public:
  using Buffer = std::size_t;
  enum class Content { tensor, spectra, weights, working };     ///< `working`: of an engine, within one step
  static constexpr Buffer no_buffer = static_cast<Buffer>(-1);  ///< may stand in lists of a step

  /// With `poison`, what is freed within a run is filled with NaN: a test of the plan.
  Lifetimes(MemoryMode mode, std::pmr::memory_resource* memory, bool poison);
  ~Lifetimes();
  Lifetimes(const Lifetimes&) = delete;
  Lifetimes& operator=(const Lifetimes&) = delete;

  /// Whether graphs are appended twice.
  bool planned() const { return mode_ != MemoryMode::apart; }
  Buffer add(std::size_t bytes);
  /// What a plan keeps; it must outlive this. Apart, it takes its memory itself.
  Buffer add(Spectra& spectra, bool lasting = false);
  Buffer add(PreparedWeights& weights, bool lasting = false);
  /// What Address::in() takes; null where no task has given the buffer memory yet.
  void* const* slot(Buffer buffer) const { return &held_[buffer].address; }

  /// Appends a step, append(gate), and returns what it returns. All tasks that write to a buffer which is used for the
  /// first time have to wait for `gate`. `input` is what the step waits for in any case.
  template <class Append>
  auto step(TaskGraph& graph, std::vector<Buffer> buffers, const Ready& input, const Append& append) {
    keep_each_once(buffers);
    const Working::Step within(working_);
    const auto begin = static_cast<TaskId>(graph.size());
    const Ready gate = enter(graph, buffers, input);
    auto done = append(gate);
    leave(graph, buffers, begin);
    return done;
  }
  /// For the tasks of a step, while it is appended; null where they take and free their buffers themselves.
  Workspace* workspace() { return mode_ == MemoryMode::arena ? &working_ : nullptr; }

  /// Decides by the draft. Whatever is appended from now on is for good.
  void plan();
  /// Takes the memory that the plan holds for good; afterwards the graph may run.
  void place();
  /// Bytes that the arena takes, and what all buffers of a kind would take apart.
  std::size_t arena_bytes() const { return arena_bytes_; }
  std::size_t buffer_bytes(Content content) const;

 private:
  struct Held {
    std::size_t bytes = 0;
    Content content = Content::tensor;
    bool lasting = false;
    void* address = nullptr;
    std::function<void(void*)> place{};  // of spectra: use this memory
    std::function<void()> release{};     // of spectra: free what they took themselves
    int first = -1, last = -1;           // steps
    std::vector<TaskId> users{};         // of the graph that is appended for good
    std::size_t offset = 0;
    std::vector<Buffer> earlier{};  // whose bytes it takes over
    bool taken_over = false;        // by a later one
    TaskId freed = -1;              // the task behind its last use
  };

  /// Of the draft, the n-th buffer that an engine asks for; afterwards the n-th one gets its place.
  struct Working final : Workspace {
    explicit Working(Lifetimes& all) : lifetimes(all) {}
    Buffer take(TaskGraph& graph, std::size_t bytes) override;
    void free(TaskGraph& graph, const Buffer& buffer, std::span<const TaskId> last) override;

    /// From the begin of a step to its end.
    struct Step {
      explicit Step(Working& all) : working(all) { working.within_step = true; }
      ~Step() { working.within_step = false; }
      Step(const Step&) = delete;
      Step& operator=(const Step&) = delete;
      Working& working;
    };

    Lifetimes& lifetimes;
    std::vector<std::size_t> buffers{};
    std::size_t next = 0;
    bool within_step = false;
  };

  /// A layer may read one tensor twice. Leaves out what is none.
  static void keep_each_once(std::vector<Buffer>& buffers);
  Ready enter(TaskGraph& graph, std::span<const Buffer> buffers, const Ready& input);
  void leave(TaskGraph& graph, std::span<const Buffer> buffers, TaskId begin);
  /// Notes that the current step uses the buffer.
  void use(Held& held) const {
    if (held.first < 0) held.first = steps_;
    held.last = steps_;
  }
  /// The tasks behind the last use of those whose bytes it takes over.
  std::vector<TaskId> gate_of(const Held& held) const;
  /// The task behind the last use.
  void append_free(TaskGraph& graph, Held& held, std::span<const TaskId> users);
  bool in_arena(const Held& held) const { return held.bytes > 0 && (held.lasting || held.first >= 0); }
  void take(Held& held);
  void free(Held& held) noexcept;

  MemoryMode mode_;
  std::pmr::memory_resource* memory_;
  bool poison_, planned_ = false;
  std::deque<Held> held_;  // a slot must not move
  Working working_{*this};
  int steps_ = 0;
  std::size_t arena_bytes_ = 0;
  void* arena_ = nullptr;
};

}  // namespace convolume::nets
