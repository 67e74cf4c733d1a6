#include "nets/trainer.hpp"

#include <cmath>

#include <fmt/format.h>

#include "ops/append.hpp"
#include "ops/reduce.hpp"

namespace convolume::nets {
namespace {

/// Returns the net if it can be trained on the data. The check comes before any allocation.
const NetSpec& fitting(const NetSpec& spec, const Dataset& data) {
  check_patch(data, spec.patch);
  const NetShapes shapes = infer_shapes(spec, spec.patch);
  check_channels(data, spec.in_channels);
  if (!spec.softmax() && shapes.output().channels != 1) {
    throw ConfigError(
        fmt::format("{}: the net writes {} channels, but {} compares with one label channel; use 1 channel "
                    "or softmax_cross_entropy",
                    spec.origin, shapes.output().channels, ops::name_of(spec.loss.kind)));
  }
  if (spec.loss.kind != ops::LossKind::square) check_labels(data, spec.softmax() ? shapes.output().channels : 0);
  return spec;
}

NetworkOptions for_training(NetworkOptions options, const NetSpec& spec) {
  options.batch = spec.training.batch;
  options.training = true;
  return options;
}

}  // namespace

Trainer::Trainer(const NetSpec& spec, const Dataset& data, std::uint64_t seed, const NetworkOptions& options,
                 Scheduler& scheduler, std::pmr::memory_resource* memory)
    : spec_(fitting(spec, data)),
      options_(for_training(options, spec)),
      data_(data),
      seed_(seed),
      scheduler_(scheduler),
      memory_(memory),
      parameters_(spec, true, seed, memory),
      network_(spec, spec.patch, parameters_, options_, memory) {
  const Shape5 labels{spec.training.batch, 1, network_.shapes().output().extent};
  target_ = Tensor<float>(labels, memory);
  for (const LabelledVolume& volume : data.train) {
    if ((volume.mask || volume.label.may_be_ignored()) && !mask_) mask_ = Tensor<float>(labels, memory);
  }
  squares_.resize(parameters_.all().size());
  network_.append_planned([this](TaskGraph& graph) { append_iteration(graph); }, graph_);
  append_updates(flush_graph_);
  network_.place_memory();
}

void Trainer::append_iteration(TaskGraph& graph) {
  const ParameterReady updated = append_updates(graph);
  const Ready patches = append_patches(graph, network_);
  Labels labels{.target = target_, .loss = &loss_};
  if (mask_) labels.mask = mask_;
  append_gradient_norm(graph, network_.append_training(graph, updated, patches, labels));
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

Ready Trainer::append_patches(TaskGraph& graph, Network& network) {
  std::vector<TaskId> tasks;
  const Extent3 offset = network.shapes().offset();
  for (index_t n = 0; n < spec_.training.batch; ++n) {
    const auto voxels = static_cast<double>(spec_.patch.volume());
    const auto labels = static_cast<double>(network.shapes().output().extent.volume());
    tasks.push_back(graph.add(
        {.name = "draw patch", .cost = 4.0 * voxels, .bytes = 2 * sizeof(float) * (voxels + labels)},
        [this, n, offset, input = network.input().view()] {
          const auto draw = PatchDraw::draw(data_, spec_.patch, seed_, static_cast<std::uint64_t>(iteration_), n);
          const LabelledVolume& volume = data_.train[draw.volume];
          copy_patch(volume.image, draw, spec_.patch, {0, 0, 0}, input, n);
          copy_patch(volume.label, draw, spec_.patch, offset, target_, n);
          if (!mask_) return;
          if (volume.mask) {
            copy_patch(volume.mask, draw, spec_.patch, offset, mask_, n);
          } else {
            std::fill_n(mask_.view().channel(n, 0), mask_.shape().extent.volume(), 1.0f);
          }
          leave_out_ignored(n);
        }));
  }
  return Ready::per_channel(std::move(tasks), 1);
}

/// Masks voxels whose label is ignored. Their label becomes 0, so that no loss computes with infinity.
void Trainer::leave_out_ignored(index_t n) {
  float* const label = target_.view().channel(n, 0);
  float* const mask = mask_.view().channel(n, 0);
  for (index_t i = 0; i < target_.shape().extent.volume(); ++i) {
    if (label[i] == ignored_label) label[i] = mask[i] = 0;
  }
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
  TaskGraph forward;
  auto prepared = again.append_prepare(forward, {});
  again.append_forward(forward, append_patches(forward, again), std::move(prepared), {});
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

std::optional<double> Trainer::step(std::stop_token stop) {
  network_.set_iteration(seed_, static_cast<std::uint64_t>(iteration_));
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
