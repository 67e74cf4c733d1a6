#include "nets/train/trainer.hpp"

#include <algorithm>
#include <cmath>

#include <fmt/format.h>

#include "nets/graph/memory_plan.hpp"
#include "nets/train/check_fit.hpp"
#include "ops/append.hpp"
#include "ops/reduce.hpp"

namespace convolume::nets {
namespace {

/// Returns the net if it can be trained on the data. The check comes before any allocation.
const NetSpec& fitting(const NetSpec& spec, const Dataset& data) {
  check_fit(spec, data);
  return spec;
}

NetworkOptions for_training(NetworkOptions options, const NetSpec& spec) {
  options.batch = spec.training.batch;
  options.training = true;
  return options;
}

}  // namespace

Trainer::Trainer(const NetSpec& spec, const Dataset& data, std::uint64_t seed, const NetworkOptions& options,
                 Scheduler& scheduler, std::pmr::memory_resource* memory, std::size_t cache_bytes)
    : spec_(fitting(spec, data)),
      options_(with_memory_plan(spec, for_training(options, spec))),
      seed_(seed),
      scheduler_(scheduler),
      memory_(memory),
      parameters_(spec, true, seed, memory),
      network_(spec, spec.patch, parameters_, options_, memory),
      source_(data, spec.patch, {.batch = spec.training.batch, .seed = seed, .cache_bytes = cache_bytes}, memory) {
  const Shape5 mask{spec.training.batch, 1, network_.shapes().output().extent};
  const Shape5 target{mask.n, std::max<index_t>(1, data.regions), mask.extent};
  const bool masks = std::any_of(data.train.begin(), data.train.end(), [](const LabelledVolume& volume) {
    return volume.has_mask() || volume.may_be_ignored();
  });
  for (std::size_t i = 0; i < 2; ++i) {
    if (i > 0) patches_[i].input = Tensor<float>(network_.input().shape(), memory);  // the network has the other one
    patches_[i].target = Tensor<float>(target, memory);
    if (masks) patches_[i].mask = Tensor<float>(mask, memory);
  }
  for (index_t n = 0; n < spec.training.batch; ++n) {
    loaders_.emplace_back(data, spec.patch, network_.shapes().offset(), mask.extent, masks, memory);
  }
  squares_.resize(parameters_.all().size());
  network_.append_planned([this](TaskGraph& graph) { append_iteration(graph); }, graph_);
  append_updates(flush_graph_);
  append_patches(patch_graph_);
  network_.place_memory();
}

void Trainer::append_iteration(TaskGraph& graph) {
  const ParameterReady updated = append_updates(graph);
  const auto view = [](void** slot, const Tensor<float>& tensor) {
    return View<const float>(Address<const float>::in(slot), tensor.shape());
  };
  Labels labels{.target = view(&target_slot_, patches_[0].target), .loss = &loss_};
  if (patches_[0].mask) labels.mask = view(&mask_slot_, patches_[0].mask);
  append_gradient_norm(graph, network_.append_training(graph, updated, {}, labels));
  append_patches(graph);
}

/// Appends one update task per parameter. These tasks come first in the rotated iteration: they apply the gradient of
/// the previous iteration, and they are never skipped.
ParameterReady Trainer::append_updates(TaskGraph& graph) {
  ParameterReady ready;
  for (std::size_t i = 0; i < parameters_.all().size(); ++i) {
    const Parameter& p = parameters_.all()[i];
    // An update reads weights, gradients and moments, and writes weights and moments.
    const double moments = spec_.optimizer.kind == OptimizerKind::sgd ? 1 : 2;
    const auto elements = static_cast<double>(p.value.elements());
    const TaskId task = graph.add({.name = "update " + p.name,
                                   .cost = 16.0 * elements,
                                   .task_class = TaskClass::update,
                                   .bytes = sizeof(float) * (3 + 2 * moments) * elements},
                                  [this, i] { update(i); });
    ready[p.name] = Ready::all_of({task});
  }
  return ready;
}

void Trainer::update(std::size_t index) noexcept {
  if (!pending_) return;
  updated_.fetch_add(1, std::memory_order_relaxed);
  Parameter& p = parameters_.all()[index];
  const double rate = spec_.optimizer.rate_at(iteration_);
  if (spec_.optimizer.kind == OptimizerKind::sgd) {
    auto options = spec_.optimizer.sgd;
    options.learning_rate = rate;
    ops::sgd_step(options, gradient_scale_, p.value.data(), p.moment1.data(),
                  static_cast<const float*>(p.gradient.data()), p.value.elements());
  } else {
    auto options = spec_.optimizer.adam;
    options.learning_rate = rate;
    ops::adam_step(options, iteration_, gradient_scale_, p.value.data(), p.moment1.data(), p.moment2.data(),
                   static_cast<const float*>(p.gradient.data()), p.value.elements());
  }
}

PatchTarget Trainer::target_of(index_t n) {
  Patches& to = patches_[filled_];
  const auto sample = [n](Tensor<float>& tensor) {
    if (!tensor) return View<float>();
    const Shape5 one{1, tensor.shape().c, tensor.shape().extent};
    return View<float>(tensor.data() + n * one.c * one.extent.volume(), one);
  };
  return {sample(filled_ == 0 ? network_.input() : to.input), sample(to.target), sample(to.mask)};
}

void Trainer::append_patches(TaskGraph& graph) {
  constexpr double voxels_per_task = 1 << 15;
  const auto voxels = static_cast<double>(spec_.patch.volume());
  const auto shares = std::clamp<index_t>(static_cast<index_t>(voxels / voxels_per_task), 1, 16);
  const double share = voxels / static_cast<double>(shares);
  for (std::size_t n = 0; n < loaders_.size(); ++n) {
    PatchLoader* const loader = &loaders_[n];
    const auto number = static_cast<index_t>(n);
    std::vector<TaskId> loads, places;
    for (index_t i = 0; i < shares; ++i) {
      loads.push_back(graph.add({.name = "load patch", .cost = 4 * share, .bytes = 8 * share},
                                [loader, i, shares] { loader->load(i, shares); }));
    }
    for (index_t i = 0; i < shares; ++i) {
      places.push_back(graph.add(
          {.name = "place patch", .cost = 8 * share, .bytes = 8 * share},
          [this, loader, number, i, shares] { loader->place(target_of(number), i, shares); }, loads));
    }
    graph.add(
        {.name = "change patch", .cost = 4 * voxels, .bytes = 8 * voxels},
        [this, loader, number] { loader->change(target_of(number)); }, places);
  }
}

void Trainer::begin_patches(std::uint64_t iteration) {
  filled_ = iteration % 2;
  patches_[filled_].iteration = std::nullopt;
  const auto samples = source_.take(iteration);
  for (std::size_t n = 0; n < samples.size(); ++n)
    loaders_[n].begin(samples[n].draw, samples[n].map, samples[n].voxels);
}

/// Appends the norm of all gradients together, and the scale factor that clipping derives from it. The sum follows the
/// order of the parameters.
void Trainer::append_gradient_norm(TaskGraph& graph, const ParameterReady& gradients) {
  std::vector<TaskId> sums;
  for (std::size_t i = 0; i < parameters_.all().size(); ++i) {
    const auto found = gradients.find(parameters_.all()[i].name);
    const std::vector<TaskId> after = found == gradients.end() ? std::vector<TaskId>{} : found->second.tasks();
    sums.push_back(graph.add(
        {.name = "gradient norm " + parameters_.all()[i].name,
         .bytes = sizeof(float) * static_cast<double>(parameters_.all()[i].value.elements())},
        [this, i] {
          const Tensor<float>& g = parameters_.all()[i].gradient;
          squares_[i] = ops::sum_of_squares(g.data(), g.elements());
        },
        after));
  }
  graph.add(
      {.name = "clip"},
      [this] {
        double total = 0;
        for (const double square : squares_) total += square;
        const double norm = std::sqrt(total), most = spec_.optimizer.clip_norm;
        gradient_scale_ = most > 0 && norm > most ? most / norm : 1;
      },
      sums);
}

/// Returns the name of the first layer whose output is not finite. The arena may have overwritten the activations, so
/// the forward pass is rerun with separate buffers. The weights, patches, dropout keys and choices are still
/// those of this iteration.
std::string Trainer::not_finite() try {
  NetworkOptions options = options_;
  options.memory_mode = MemoryMode::separate;
  options.tune_on = nullptr;
  options.tuned = tuned_choices(numerics());
  options.recorded = recorded_plans(numerics());
  Network again(spec_, spec_.patch, parameters_, options, memory_);
  again.set_iteration(seed_, static_cast<std::uint64_t>(iteration_));
  const Tensor<float>& used = iteration_ % 2 == 0 ? network_.input() : patches_[1].input;
  std::copy_n(used.data(), used.elements(), again.input().data());
  TaskGraph forward;
  auto prepared = again.append_prepare(forward, {});
  again.append_forward(forward, {}, std::move(prepared), {});
  forward.run(scheduler_);
  return again.first_non_finite().value_or("the loss itself");
} catch (const std::bad_alloc&) {
  return "unknown: no memory to run them again";
}

void Trainer::check_finite() {
  const std::int64_t now = iteration_ + 1;
  if (!std::isfinite(loss_)) {
    throw NumericalError(
        fmt::format("iteration {}: the loss is {}; the first layer whose output is not finite is '{}'. "
                    "Lower the learning rate, clip gradients or check the data; the weights were not "
                    "changed",
                    now, loss_, not_finite()));
  }
  for (std::size_t i = 0; i < squares_.size(); ++i) {
    if (std::isfinite(squares_[i])) continue;
    throw NumericalError(
        fmt::format("iteration {}: the gradient of '{}' is not finite. Lower the learning rate, clip "
                    "gradients or check the data; the weights were not changed",
                    now, parameters_.all()[i].name));
  }
}

bool Trainer::prepare(std::stop_token stop) {
  const auto now = static_cast<std::uint64_t>(iteration_);
  Patches& used = patches_[now % 2];
  if (used.iteration != now) {  // the first iteration of a run, or one that was cancelled
    begin_patches(now);
    if (patch_graph_.run(scheduler_, std::move(stop)) == RunResult::cancelled) return false;
    used.iteration = now;
  }
  begin_patches(now + 1);
  network_.use_buffers(now % 2 == 0 ? network_.input().data() : used.input.data(), network_.logits().data());
  target_slot_ = used.target.data();
  mask_slot_ = used.mask.data();
  network_.set_iteration(seed_, now);
  return true;
}

std::optional<double> Trainer::step(std::stop_token stop) {
  if (!prepare(stop)) return std::nullopt;
  // Every run of the graph executes the updates, even if it fails or is cancelled later. Only a run that could not
  // start executes none.
  updated_.store(0, std::memory_order_relaxed);
  const auto updates_done = [&] {
    if (updated_.load(std::memory_order_relaxed) == 0) return;
    pending_ = false;
    ++updates_;
  };
  RunResult result;
  try {
    result = graph_.run(scheduler_, std::move(stop));
  } catch (...) {
    updates_done();
    throw;
  }
  updates_done();
  if (result == RunResult::cancelled) return std::nullopt;
  patches_[filled_].iteration = static_cast<std::uint64_t>(iteration_) + 1;
  check_finite();
  ++iteration_;
  pending_ = true;
  return loss_;
}

void Trainer::flush() {
  if (!pending_) return;
  flush_graph_.run(scheduler_);
  pending_ = false;
  ++updates_;
}

NumericsRecord Trainer::numerics() const {
  auto record = NumericsRecord::of_this_build();
  network_.add_numerics(record);
  record.set("reduction_chunk", std::to_string(ops::chunk_elements));
  record.set("reduction_slab", std::to_string(ops::slab_elements));
  return record;
}

void Trainer::set_iteration(std::int64_t iteration) {
  if (pending_) throw InvalidArgument("Trainer::set_iteration: an update is pending; flush first");
  iteration_ = updates_ = iteration;
}

}  // namespace convolume::nets
