#include "nets/infer/patch_network.hpp"

#include <algorithm>
#include <numeric>

namespace convolume::nets {
namespace {

/// Returns the number of rows per task: about as many elements as the tasks of other operations handle.
index_t rows_per_task(const Shape5& shape) {
  constexpr index_t elements = index_t{1} << 15;
  return std::max<index_t>(1, elements / (shape.c * shape.extent.x));
}

std::size_t bytes_of(const Shape5& shape) {
  return static_cast<std::size_t>(shape.n * shape.c * shape.extent.volume()) * sizeof(float);
}

/// Returns the view of one sample.
template <class T>
View<T> sample(T* data, const Shape5& shape, std::size_t n) {
  const Shape5 one{1, shape.c, shape.extent};
  return View<T>(data + static_cast<index_t>(n) * shape.c * shape.extent.volume(), one);
}

}  // namespace

PatchNetwork::PatchNetwork(const NetSpec& spec, const Extent3& patch, Parameters& parameters,
                           const NetworkOptions& options, PatchTasks tasks, std::pmr::memory_resource* memory)
    : tasks_(std::move(tasks)),
      network_(spec, patch, parameters, options, memory),
      second_input_(network_.input().shape(), memory),
      second_logits_(network_.logits().shape(), memory) {
  network_.input().fill(0);
  second_input_.fill(0);
  network_.append_planned(
      [this](TaskGraph& prepare, TaskGraph& all) {
        network_.append_prepare(prepare, {});
        network_.append_forward(all, {}, {}, {});
        append_load(all);
        append_add(all);
      },
      prepare_, all_);
  network_.place_memory();
  append_load(load_);
  append_add(add_);
}

void PatchNetwork::append_load(TaskGraph& graph) {
  const Shape5& shape = network_.input().shape();
  const index_t rows = shape.extent.z * shape.extent.y, step = rows_per_task(shape);
  for (std::size_t n = 0; n < batch(); ++n) {
    for (index_t begin = 0; begin < rows; begin += step) {
      const index_t end = std::min(rows, begin + step);
      const double bytes = static_cast<double>((end - begin) * shape.extent.x * shape.c) * 2 * sizeof(float);
      graph.add({.name = "load_patch", .cost = bytes, .bytes = bytes}, [this, &shape, n, begin, end] {
        const std::size_t item = loaded_ * batch() + n;
        if (loaded_ != nothing && item < count_) tasks_.load(item, sample<float>(input(loaded_), shape, n), begin, end);
      });
    }
  }
}

void PatchNetwork::append_add(TaskGraph& graph) {
  const Shape5& shape = network_.logits().shape();
  const index_t rows = shape.extent.z * shape.extent.y, step = rows_per_task(shape);
  std::vector<TaskId> before;  // the tasks of the previous item, because patches overlap
  for (std::size_t n = 0; n < batch(); ++n) {
    std::vector<TaskId> tasks;
    for (index_t begin = 0; begin < rows; begin += step) {
      const index_t end = std::min(rows, begin + step);
      const double bytes = static_cast<double>((end - begin) * shape.extent.x * shape.c) * 3 * sizeof(float);
      const auto body = [this, &shape, n, begin, end] {
        const std::size_t item = added_ * batch() + n;
        if (added_ == nothing || item >= count_) return;
        tasks_.add(item, sample<const float>(logits(added_), shape, n), begin, end);
      };
      tasks.push_back(graph.add({.name = "add_patch", .cost = bytes, .bytes = bytes}, body, before));
    }
    before = std::move(tasks);
  }
}

bool PatchNetwork::run(std::size_t count, Scheduler& scheduler, const std::function<void(std::size_t)>& done,
                       const std::stop_token& stop) {
  const std::size_t groups = (count + batch() - 1) / batch();
  if (groups == 0) return true;
  count_ = count;
  loaded_ = 0;
  added_ = nothing;
  bool complete = load_.run(scheduler, stop) == RunResult::completed;
  for (std::size_t g = 0; g < groups && complete; ++g) {
    loaded_ = g + 1 < groups ? g + 1 : nothing;
    added_ = g > 0 ? g - 1 : nothing;
    network_.use_buffers(input(g), logits(g));
    complete = all_.run(scheduler, stop) == RunResult::completed && !stop.stop_requested();
    if (complete && done) done(std::min(batch(), count - g * batch()));
  }
  added_ = groups - 1;
  complete = complete && add_.run(scheduler, stop) == RunResult::completed;
  network_.use_buffers(input(0), logits(0));
  return complete;
}

void PatchNetwork::run_alone(Scheduler& scheduler) {
  loaded_ = added_ = nothing;
  all_.run(scheduler);
}

std::size_t PatchNetwork::bytes(int threads) const {
  std::vector<std::size_t> scratch;
  for (const TaskDescription& task : all_.describe()) scratch.push_back(task.options.scratch_bytes);
  std::sort(scratch.begin(), scratch.end(), std::greater<>());
  scratch.resize(std::min(scratch.size(), static_cast<std::size_t>(threads)));
  return network_.lifetimes().arena_bytes() +
         2 * (bytes_of(network_.logits().shape()) + bytes_of(second_input_.shape())) +
         std::accumulate(scratch.begin(), scratch.end(), std::size_t{0});
}

}  // namespace convolume::nets
