#include "nets/base/lifetimes.hpp"

#include <algorithm>
#include <cstring>
#include <stdexcept>

#include <fmt/format.h>

#include "allocator/arena_plan.hpp"
#include "convolume/error.hpp"

namespace convolume::nets {
namespace {

constexpr int not_a_number = 0xFF;  // in every byte: NaN as float and as double

}  // namespace

Lifetimes::Lifetimes(MemoryMode mode, const Slack& slack, std::pmr::memory_resource* memory, bool poison)
    : mode_(mode), slack_(slack), memory_(memory), poison_(poison) {}

Lifetimes::~Lifetimes() {
  for (Held& held : held_) {
    if (arena_ == nullptr && held.place == nullptr) free(held);
  }
  if (arena_ != nullptr) memory_->deallocate(arena_, arena_bytes_, 64);
}

Lifetimes::Buffer Lifetimes::add(std::size_t bytes) {
  held_.push_back({.bytes = bytes});
  if (mode_ == MemoryMode::separate) take(held_.back());
  return held_.size() - 1;
}

Lifetimes::Buffer Lifetimes::add(Spectra& spectra, bool lasting) {
  held_.push_back({.bytes = spectra.capacity(),
                   .content = Content::spectra,
                   .lasting = lasting,
                   .place = [&spectra](void* memory) { spectra.place(memory); },
                   .release = [&spectra] { spectra.release(); }});
  return held_.size() - 1;
}

Lifetimes::Buffer Lifetimes::add(PreparedWeights& weights, bool lasting) {
  held_.push_back({.bytes = weights.capacity(),
                   .content = Content::weights,
                   .lasting = lasting,
                   .place = [&weights](void* memory) { weights.place(memory); },
                   .release = [&weights] { weights.release(); }});
  return held_.size() - 1;
}

std::pair<Lifetimes::Buffer, Lifetimes::Buffer> Lifetimes::add_for_training(PreparedWeights& weights) {
  const std::size_t forward_bytes = weights.forward_capacity();
  if (mode_ != MemoryMode::arena || forward_bytes == 0) return {no_buffer, add(weights)};
  held_.push_back({.bytes = forward_bytes, .content = Content::weights});
  const Held& forward = held_.back();
  held_.push_back({.bytes = weights.capacity() - forward_bytes,
                   .content = Content::weights,
                   .place = [&weights, &forward](void* rest) { weights.place(forward.address, rest); },
                   .release = [&weights] { weights.release(); }});
  return {held_.size() - 2, held_.size() - 1};
}

void Lifetimes::take(Held& held) {
  if (held.address == nullptr && held.bytes > 0) held.address = memory_->allocate(held.bytes, 64);
}

void Lifetimes::free(Held& held) noexcept {
  if (held.release) return held.release();
  if (held.address != nullptr) memory_->deallocate(held.address, held.bytes, 64);
  held.address = nullptr;
}

void Lifetimes::Step::use(Buffer buffer) {
  if (gate_) throw std::logic_error("lifetimes: a buffer is registered after the gate of its step");
  if (buffer != no_buffer) buffers_.push_back(buffer);
}

const Ready& Lifetimes::Step::gate() {
  if (gate_) return *gate_;
  // A layer may read one tensor twice.
  std::sort(buffers_.begin(), buffers_.end());
  buffers_.erase(std::unique(buffers_.begin(), buffers_.end()), buffers_.end());
  if (static_cast<TaskId>(graph_.size()) != begin_) {
    throw std::logic_error("lifetimes: a task is appended before the gate of its step");
  }
  gate_ = all_.enter(graph_, buffers_, input_);
  return *gate_;
}

std::vector<TaskId> Lifetimes::gate_of(const Held& held) const {
  std::vector<TaskId> gate;
  for (const Buffer earlier : held.earlier) gate.push_back(held_[earlier].freed);
  return gate;
}

Workspace::Buffer Lifetimes::Working::take(TaskGraph&, std::size_t bytes) {
  if (!within_step)
    throw InvalidArgument("lifetimes: a working buffer was requested outside a step; append the tasks in a step");
  auto& all = lifetimes.held_;
  if (!lifetimes.planned_) {
    buffers.push_back(all.size());
    all.push_back({.bytes = bytes, .content = Content::working});
    lifetimes.use(all.back());
    return {.slot = &all.back().address};
  }
  if (next >= buffers.size() || all[buffers[next]].bytes != bytes || all[buffers[next]].first != lifetimes.steps_) {
    throw InvalidArgument("lifetimes: the graph is not the one that was planned; append the same steps again");
  }
  const Held& held = all[buffers[next++]];
  return {.slot = &held.address, .ready = lifetimes.gate_of(held)};
}

void Lifetimes::Working::free(TaskGraph& graph, const Buffer& buffer, std::span<const TaskId> last) {
  auto& all = lifetimes.held_;
  const auto found = std::find_if(buffers.begin(), buffers.end(),
                                  [&](std::size_t index) { return &all[index].address == buffer.slot; });
  if (found == buffers.end())
    throw InvalidArgument("lifetimes: the buffer to free is not a working buffer; free only buffers from take()");
  if (lifetimes.planned_ && all[*found].taken_over) lifetimes.append_free(graph, all[*found], last);
}

Ready Lifetimes::enter(TaskGraph& graph, std::span<const Buffer> buffers, const Ready& input) {
  std::vector<TaskId> gate;
  for (const Buffer buffer : buffers) {
    Held& held = held_[buffer];
    if (!planned_) {
      use(held);
      continue;
    }
    if (held.first != steps_ || held.lasting) continue;
    for (const TaskId task : gate_of(held)) gate.push_back(task);
    if (mode_ != MemoryMode::slab || held.place != nullptr) continue;
    // Memory is taken only after the first part of the input is ready. Tasks without dependencies would all take their
    // memory at the start of the run.
    std::vector<TaskId> after;
    input.collect(0, 0, 1, 0, 1, after);
    gate.push_back(graph.add(
        {.name = "take memory", .cost = 0}, [this, &held] { take(held); }, after));
  }
  return Ready::all_of(std::move(gate));
}

void Lifetimes::leave(TaskGraph& graph, std::span<const Buffer> buffers, TaskId begin) {
  const int step = steps_++;
  if (!planned_) return;
  std::vector<TaskId> tasks;
  for (auto task = begin; task < static_cast<TaskId>(graph.size()); ++task) tasks.push_back(task);
  for (const Buffer buffer : buffers) {
    Held& held = held_[buffer];
    if (held.lasting || (mode_ == MemoryMode::arena && !held.taken_over)) continue;
    held.users.insert(held.users.end(), tasks.begin(), tasks.end());
    if (held.last != step) continue;
    append_free(graph, held, held.users);
    held.users = {};
  }
}

/// Appends a task of class `release`: tasks that wait for the memory then need not wait behind other work, and a
/// cancelled run still frees the memory.
void Lifetimes::append_free(TaskGraph& graph, Held& held, std::span<const TaskId> users) {
  held.freed = graph.add(
      {.name = "free memory", .cost = 0, .task_class = TaskClass::release},
      [this, &held] {
        if (poison_ && held.address != nullptr) {
          std::memset(held.address, not_a_number, held.bytes);
        }
        if (mode_ == MemoryMode::slab) free(held);
      },
      users);
}

void Lifetimes::plan() {
  planned_ = true;
  steps_ = 0;
  if (mode_ != MemoryMode::arena) return;
  std::vector<std::size_t> bytes;
  for (const Held& held : held_) bytes.push_back(in_arena(held) ? held.bytes : 0);
  Slack slack = slack_;
  const auto before = [&](Buffer a, Buffer b) {
    const int between = held_[b].content == Content::working ? slack.working : slack.tensors;
    return !held_[a].lasting && !held_[b].lasting && held_[a].last + between < held_[b].first;
  };
  const auto conflict = [&](Buffer a, Buffer b) { return !before(a, b) && !before(b, a); };
  auto arena = allocator::plan_arena(bytes, conflict);
  // Weight spectra of backward data depend on the weights only. With more slack they fill the time in which small
  // layers leave workers idle.
  constexpr int most_working_slack = 3;
  constexpr double most_growth = 1.01;
  if (slack == Slack{}) {
    slack.working = most_working_slack;
    auto larger = allocator::plan_arena(bytes, conflict);
    if (static_cast<double>(larger.bytes) <= most_growth * static_cast<double>(arena.bytes)) {
      arena = std::move(larger);
    } else {
      slack = slack_;
    }
  }
  arena_bytes_ = arena.bytes;
  for (Buffer b = 0; b < held_.size(); ++b) {
    held_[b].offset = arena.offsets[b];
    for (Buffer a = 0; a < held_.size(); ++a) {
      const bool apart =
          arena.offsets[a] + bytes[a] <= arena.offsets[b] || arena.offsets[b] + bytes[b] <= arena.offsets[a];
      if (a == b || apart || bytes[a] == 0 || bytes[b] == 0 || !before(a, b)) continue;
      held_[b].earlier.push_back(a);
      held_[a].taken_over = true;
    }
  }
}

void Lifetimes::place() {
  if (mode_ != MemoryMode::arena || arena_bytes_ == 0) return;
  arena_ = memory_->allocate(arena_bytes_, 64);
  for (Held& held : held_) {
    if (in_arena(held)) held.address = static_cast<std::byte*>(arena_) + held.offset;
  }
  for (Held& held : held_) {
    if (held.address != nullptr && held.place) held.place(held.address);
  }
}

std::size_t Lifetimes::buffer_bytes(Content content) const {
  std::size_t bytes = 0;
  for (const Held& held : held_) bytes += held.content == content ? held.bytes : 0;
  return bytes;
}

}  // namespace convolume::nets
