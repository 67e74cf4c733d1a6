#include "nets/graph/training_memory.hpp"

#include <algorithm>
#include <numeric>
#include <vector>

#include "convolume/memory.hpp"
#include "nets/data/patch_loader.hpp"

namespace convolume::nets {
namespace {

std::size_t bytes_of(const Tensor<float>& tensor) {
  return static_cast<std::size_t>(tensor.elements()) * sizeof(float);
}

std::size_t bytes_of(const Parameters& parameters) {
  std::size_t bytes = 0;
  for (const Parameter& p : parameters.all()) {
    for (const auto* part : {&p.value, &p.gradient, &p.moment1, &p.moment2}) bytes += bytes_of(*part);
  }
  return bytes;
}

/// Returns the scratch of the tasks with the largest scratch, one task per thread.
std::size_t largest_scratch(const std::vector<TaskDescription>& tasks, int threads) {
  std::vector<std::size_t> scratch;
  for (const TaskDescription& task : tasks) scratch.push_back(task.options.scratch_bytes);
  const auto count = std::min(scratch.size(), static_cast<std::size_t>(threads));
  const auto last = scratch.begin() + static_cast<std::ptrdiff_t>(count);
  std::partial_sort(scratch.begin(), last, scratch.end(), std::greater<>());
  return std::accumulate(scratch.begin(), last, std::size_t{0});
}

double moved_bytes(const std::vector<TaskDescription>& tasks) {
  double bytes = 0;
  for (const TaskDescription& task : tasks) bytes += task.options.bytes;
  return bytes;
}

double critical_cost(const std::vector<TaskDescription>& tasks) {
  std::vector<double> until(tasks.size(), 0);  // end of each task; a task comes after the tasks that it waits for
  double longest = 0;
  for (std::size_t i = 0; i < tasks.size(); ++i) {
    for (const TaskId before : tasks[i].after) until[i] = std::max(until[i], until[static_cast<std::size_t>(before)]);
    until[i] += tasks[i].options.cost;
    longest = std::max(longest, until[i]);
  }
  return longest;
}

}  // namespace

index_t validation_batch(const NetSpec& spec) {
  return infer_shapes(spec, spec.patch).keeps_resolution() ? 1 : spec.training.batch;
}

std::size_t validation_network_bytes(const NetSpec& spec, const NetworkOptions& options, int threads) {
  SlabResource slabs;
  CountedMemory memory(&slabs);
  Parameters parameters(spec, false, 1, &memory);
  const std::size_t trained = memory.live();  // the parameters of the training
  NetworkOptions inference = options;
  inference.batch = validation_batch(spec);
  inference.training = false;
  inference.tune_on = nullptr;
  inference.cache_spectra = true;  // as a Predictor has it
  Network network(spec, spec.patch, parameters, inference, &memory);
  std::vector<TaskDescription> tasks;
  TaskGraph prepare, forward;
  network.append_planned(
      [&](TaskGraph& first, TaskGraph& second) {
        network.append_prepare(first, {});
        network.append_forward(second, {}, {}, {});
        tasks = second.describe();
      },
      prepare, forward);
  const std::size_t second_buffers = bytes_of(network.input()) + bytes_of(network.logits());
  return memory.live() - trained + second_buffers + network.lifetimes().arena_bytes() + largest_scratch(tasks, threads);
}

TrainingMemory plan_training_memory(Network& network, const Parameters& parameters, CountedMemory& memory,
                                    int threads) {
  const NodeShape& output = network.shapes().output();
  const index_t targets = network.spec().softmax() ? 1 : output.channels;
  const Tensor<float> labels({network.input().shape().n, targets, output.extent}, &memory);
  double loss = 0;
  std::vector<TaskDescription> draft, tasks;
  TaskGraph graph;
  network.append_planned(
      [&](TaskGraph& to) {
        network.append_training(to, {}, {}, {.target = labels, .loss = &loss});
        draft = std::exchange(tasks, to.describe());
      },
      graph);
  // Patches are prepared in a second input and second labels, by way of a box of voxels per sample.
  const Shape5& input = network.input().shape();
  const std::size_t prepared = bytes_of(network.input()) + bytes_of(labels) +
                               static_cast<std::size_t>(input.n) * PatchLoader::bytes(input.c, input.extent);
  const Lifetimes& held = network.lifetimes();
  using Content = Lifetimes::Content;
  const std::size_t state = bytes_of(parameters);
  return {.parameters = state,
          .lasting = memory.live() - state + prepared,
          .arena = held.arena_bytes(),
          .tensors = held.buffer_bytes(Content::tensor),
          .spectra = held.buffer_bytes(Content::spectra),
          .weights = held.buffer_bytes(Content::weights),
          .working = held.buffer_bytes(Content::working),
          .scratch = largest_scratch(tasks, threads),
          .moved_bytes = moved_bytes(tasks),
          .critical_cost = critical_cost(tasks),
          .critical_cost_apart = critical_cost(draft)};
}

}  // namespace convolume::nets
