#include <mutex>
#include <optional>
#include <string_view>

#include <fmt/format.h>

#include "conv/caches/caches.hpp"
#include "conv/check_bias.hpp"
#include "conv/decision.hpp"
#include "convolume/conv.hpp"
#include "core/fork.hpp"
#include "plan/polyphase.hpp"

namespace convolume {
namespace {

using conv::BackwardArguments;
using conv::ForwardArguments;
using conv::PrepareArguments;

/// Weights that a pass prepares for itself.
struct OwnWeights {
  PreparedWeights prepared;
  PrepareArguments arguments{};
};

/// The task graph of a blocking call and the bindings that its tasks read.
template <class Arguments>
struct Call {
  unsigned shape = 0;                           // which optional bindings the graph was built for
  std::pmr::memory_resource* memory = nullptr;  // source of the temporary memory of the graph's tasks
  std::shared_ptr<Arguments> arguments = std::make_shared<Arguments>();
  std::shared_ptr<OwnWeights> weights;  // if the call prepares a tensor
  TaskGraph graph;
};

/// Calls that are not running now. A new call is made only if no idle call fits. The pools of all plans share a lock,
/// ForkLock::calls, which is held for some comparisons of pointers.
template <class Arguments>
class CallPool {
 public:
  std::unique_ptr<Call<Arguments>> take(unsigned shape, std::pmr::memory_resource* memory) {
    const std::lock_guard lock(fork_lock(ForkLock::calls));
    for (auto& call : idle_) {
      if (call->shape == shape && call->memory == memory) {
        std::swap(call, idle_.back());
        auto taken = std::move(idle_.back());
        idle_.pop_back();
        return taken;
      }
    }
    return nullptr;
  }
  void put(std::unique_ptr<Call<Arguments>> call) {
    const std::lock_guard lock(fork_lock(ForkLock::calls));
    idle_.push_back(std::move(call));
  }

 private:
  std::vector<std::unique_ptr<Call<Arguments>>> idle_;
};

void check(const char* name, const ConstTensorView& tensor, const Shape5& shape, DataType type,
           Layout layout = Layout::plain) {
  if (!tensor) throw ShapeMismatch(fmt::format("convolution: {} is missing", name));
  if (tensor.type != type) {
    throw ShapeMismatch(
        fmt::format("convolution: {} holds {}, the problem is in {}", name, name_of(tensor.type), name_of(type)));
  }
  if (tensor.shape != shape) {
    throw ShapeMismatch(
        fmt::format("convolution: {} has shape {}, expected {}", name, to_string(tensor.shape), to_string(shape)));
  }
  if (tensor.layout != layout) {
    throw ShapeMismatch(fmt::format(
        "convolution: {} is {}, this plan needs it {}; call convert(), or (x and y) plan for another layout", name,
        name_of(tensor.layout), name_of(layout)));
  }
  const index_t voxel = layout == Layout::plain ? 1 : channel_block(type);
  if (tensor.stride[4] != voxel && shape.extent.x > 1) {
    throw ShapeMismatch(fmt::format(
        "convolution: {} has x stride {}; {}", name, tensor.stride[4],
        layout == Layout::plain ? "rows must be contiguous" : "voxels of a blocked tensor hold 64 bytes each"));
  }
}

void check_geometry(const char* name, std::string_view found, std::string_view expected) {
  if (found != expected) {
    throw StaleCache(fmt::format("convolution: {} was made for '{}', this plan needs '{}'; make it with this plan",
                                 name, found, expected));
  }
}

using Readers = PreparedWeights::Impl::Readers;

/// Returns which pass reads its weights, or nothing if it does not read any.
std::optional<Readers> reader_of(const ForwardArguments&) { return Readers::forward; }
std::optional<Readers> reader_of(const BackwardArguments& a) {
  return a.dx ? std::optional(Readers::backward_data) : std::nullopt;
}

void set_readers(PreparedWeights::Impl& weights, Readers readers) {
  weights.readers = readers;
  for (const auto& group : weights.groups) set_readers(*group, readers);
}

/// Throws StaleCache if the weights are prepared ones that were never filled.
void check_filled(const char* pass, const PassWeights& w) {
  if (w.prepared() == nullptr || w.prepared()->version() != 0) return;
  throw StaleCache(fmt::format("convolution {}: w was never prepared; call prepare first", pass));
}

/// Counts a new version of a cache. Called when prepared weights or spectra are complete.
template <class Cache>
void raise_version(Cache& cache) {
  cache.version.fetch_add(1, std::memory_order_relaxed);
}

/// Returns the geometry of a cache. The result is empty if the cache was moved from.
std::string_view geometry_of(const Spectra& spectra) {
  return spectra.impl() != nullptr ? std::string_view(spectra.impl()->geometry) : std::string_view();
}

}  // namespace

void conv::check_bias(const ConvProblem& problem, const ConstTensorView& bias) {
  check("bias", bias, {1, problem.out_channels, {1, 1, 1}}, problem.type);
  if (bias.stride[1] != 1 && problem.out_channels > 1) {
    throw ShapeMismatch(
        fmt::format("convolution: bias has channel stride {}; its values must be contiguous", bias.stride[1]));
  }
}

struct ConvPlan::Impl {
  ConvProblem problem;
  Explanation explanation;
  std::unique_ptr<conv::ConvEngine> engine;
  // Geometries of this plan's caches, to recognise caches of other plans.
  std::string x_geometry, dy_geometry, w_geometry;
  mutable CallPool<ForwardArguments> forward_calls;
  mutable CallPool<BackwardArguments> backward_calls;

  Shape5 bias_shape() const { return {1, problem.out_channels, {1, 1, 1}}; }
  ForwardArguments arguments(const ForwardBindings& b, std::pmr::memory_resource* memory,
                             Workspace* workspace = nullptr) const;
  BackwardArguments arguments(const BackwardBindings& b, std::pmr::memory_resource* memory,
                              Workspace* workspace = nullptr) const;
  /// Append the engine's tasks, and a task that gives a filled cache its next version.
  Ready append(TaskGraph& graph, const ConvReady& ready, std::shared_ptr<const ForwardArguments> a) const;
  ConvGradientReady append(TaskGraph& graph, const ConvReady& ready, std::shared_ptr<const BackwardArguments> a) const;
  /// Does the same after tasks that prepare the weights in `own`, if it is not null.
  template <class Arguments>
  auto append(TaskGraph& graph, ConvReady ready, const std::shared_ptr<Arguments>& a,
              const std::shared_ptr<OwnWeights>& own) const;
  /// Returns the weights of a pass that prepares the tensor `w`. Returns null if `w` is prepared, or if the pass has no
  /// reader.
  std::shared_ptr<OwnWeights> own_weights(const PassWeights& w, std::optional<Readers> reader,
                                          std::pmr::memory_resource* memory) const;
  /// Runs a call with these arguments.
  template <class Arguments>
  void run(CallPool<Arguments>& calls, const Execution& run, unsigned shape, const Arguments& arguments,
           const PassWeights& w) const;
  void check_weights(const PassWeights& w) const {
    w.prepared() != nullptr ? check_weights(*w.prepared()) : check("w", w.tensor(), problem.w_shape(), problem.type);
  }
  void check_weights(const PreparedWeights& w) const {
    check_geometry("w", w.impl() != nullptr ? std::string_view(w.impl()->geometry) : std::string_view(), w_geometry);
  }
};

ForwardArguments ConvPlan::Impl::arguments(const ForwardBindings& b, std::pmr::memory_resource* memory,
                                           Workspace* workspace) const {
  check("x", b.x, problem.x_shape(), problem.type, problem.x_layout);
  check("y", b.y, problem.y_shape(), problem.type, problem.y_layout);
  check_weights(b.w);
  if (problem.epilogue.bias) conv::check_bias(problem, b.bias);
  if (b.x_hat != nullptr) check_geometry("x_hat", geometry_of(*b.x_hat), x_geometry);
  return {.x = b.x,
          .bias = b.bias,
          .y = b.y,
          .w = b.w.prepared() != nullptr ? b.w.prepared()->impl() : nullptr,
          .x_hat = b.x_hat != nullptr ? b.x_hat->impl() : nullptr,
          .memory = memory,
          .workspace = workspace};
}

BackwardArguments ConvPlan::Impl::arguments(const BackwardBindings& b, std::pmr::memory_resource* memory,
                                            Workspace* workspace) const {
  check("dy", b.dy, problem.y_shape(), problem.type, problem.y_layout);
  check_weights(b.w);
  if (problem.epilogue.activation.kind != Activation::Kind::none)
    check("y", b.y, problem.y_shape(), problem.type, problem.y_layout);
  if (b.dx) check("dx", b.dx, problem.x_shape(), problem.type, problem.x_layout);
  if (b.dw) {
    check("dw", b.dw, problem.w_shape(), problem.type);
    check("x", b.x, problem.x_shape(), problem.type, problem.x_layout);
  }
  if (b.dbias) check("dbias", b.dbias, bias_shape(), problem.type);
  if (b.x_hat != nullptr) check_geometry("x_hat", geometry_of(*b.x_hat), x_geometry);
  if (b.dy_hat != nullptr) check_geometry("dy_hat", geometry_of(*b.dy_hat), dy_geometry);
  return {.x = b.x,
          .y = b.y,
          .dy = b.dy,
          .w = b.w.prepared() != nullptr ? b.w.prepared()->impl() : nullptr,
          .x_hat = b.x_hat != nullptr ? b.x_hat->impl() : nullptr,
          .dy_hat = b.dy_hat != nullptr ? b.dy_hat->impl() : nullptr,
          .dx = b.dx,
          .dw = b.dw,
          .dbias = b.dbias,
          .add_dx = b.add_dx,
          .add_dw = b.add_dw,
          .memory = memory,
          .workspace = workspace};
}

Ready ConvPlan::Impl::append(TaskGraph& graph, const ConvReady& ready,
                             std::shared_ptr<const ForwardArguments> a) const {
  Ready done = engine->append_forward(graph, ready, a);
  if (a->x_hat != nullptr) {
    graph.add(
        {.name = "input spectra are new"}, [a] { raise_version(*a->x_hat); }, done.tasks());
  }
  return done;
}

ConvGradientReady ConvPlan::Impl::append(TaskGraph& graph, const ConvReady& ready,
                                         std::shared_ptr<const BackwardArguments> a) const {
  ConvGradientReady done = engine->append_backward(graph, ready, a);
  if (a->dy_hat != nullptr) {
    std::vector<TaskId> after = done.dx.tasks();
    for (const TaskId task : done.dw.tasks()) after.push_back(task);
    graph.add(
        {.name = "gradient spectra are new"}, [a] { raise_version(*a->dy_hat); }, after);
  }
  return done;
}

std::shared_ptr<OwnWeights> ConvPlan::Impl::own_weights(const PassWeights& w, std::optional<Readers> reader,
                                                        std::pmr::memory_resource* memory) const {
  if (w.prepared() != nullptr || !reader) return nullptr;
  auto own = std::make_shared<OwnWeights>();
  PreparedWeights::Impl& prepared = *own->prepared.impl();
  prepared.memory = memory;
  engine->init_weights(prepared);
  set_readers(prepared, *reader);
  own->arguments = {.w = w.tensor(), .prepared = &prepared};
  return own;
}

template <class Arguments>
auto ConvPlan::Impl::append(TaskGraph& graph, ConvReady ready, const std::shared_ptr<Arguments>& a,
                            const std::shared_ptr<OwnWeights>& own) const {
  if (own != nullptr) {
    a->w = own->arguments.prepared;
    // The tasks that prepare the weights share the ownership of all of `own`.
    ready.w = engine->append_prepare(graph, ready.w, std::shared_ptr<const PrepareArguments>(own, &own->arguments));
  }
  return append(graph, ready, std::shared_ptr<const Arguments>(a));
}

template <class Arguments>
void ConvPlan::Impl::run(CallPool<Arguments>& calls, const Execution& run, unsigned shape, const Arguments& arguments,
                         const PassWeights& w) const {
  constexpr unsigned tensor_bit = 1U << 31U;
  if (w.prepared() == nullptr) shape |= tensor_bit;
  auto call = calls.take(shape, run.memory);
  if (!call) {
    call = std::make_unique<Call<Arguments>>();
    call->shape = shape;
    call->memory = run.memory;
    call->weights = own_weights(w, reader_of(arguments), run.memory);
    *call->arguments = arguments;
    append(call->graph, {}, call->arguments, call->weights);
  }
  *call->arguments = arguments;
  if (call->weights != nullptr) {
    call->arguments->w = call->weights->arguments.prepared;
    call->weights->arguments.w = w.tensor();
  }
  call->graph.run(run.scheduler);
  if (call->weights != nullptr) call->weights->prepared.release();
  calls.put(std::move(call));
}

ConvPlan ConvPlan::make(const ConvProblem& wanted, const ConvOptions& options) {
  wanted.validate();
  const ConvProblem problem = plan::with_short_strides(wanted);
  conv::Decision decision = conv::decide(problem, options);
  if (decision.implementation == nullptr) {
    throw Unsupported("no engine serves this convolution:\n" + to_string(decision.explanation));
  }
  auto impl = std::make_shared<Impl>();
  impl->problem = problem;
  impl->explanation = std::move(decision.explanation);
  impl->engine = conv::create_engine(*decision.implementation, problem, options, decision.parts.get());
  impl->explanation.caches = impl->engine->caches();
  Spectra x_hat, dy_hat;
  PreparedWeights w;
  for (auto* part : {&x_hat, &dy_hat}) part->impl()->memory = std::pmr::get_default_resource();
  w.impl()->memory = std::pmr::get_default_resource();
  impl->engine->init_input_spectra(*x_hat.impl());
  impl->engine->init_gradient_spectra(*dy_hat.impl());
  impl->engine->init_weights(*w.impl());
  impl->x_geometry = x_hat.impl()->geometry;
  impl->dy_geometry = dy_hat.impl()->geometry;
  impl->w_geometry = w.impl()->geometry;
  return ConvPlan(std::move(impl));
}

PreparedWeights ConvPlan::prepared_weights(std::pmr::memory_resource* memory) const {
  PreparedWeights prepared;
  prepared.impl_->memory = memory;
  impl_->engine->init_weights(*prepared.impl_);
  return prepared;
}

PreparedWeights ConvPlan::prepare(const Execution& run, const ConstTensorView& w) const {
  PreparedWeights prepared = prepared_weights(run.memory);
  TaskGraph graph;
  append_prepare(graph, {}, w, prepared);
  graph.run(run.scheduler);
  return prepared;
}

Spectra ConvPlan::input_spectra(std::pmr::memory_resource* memory) const {
  Spectra spectra;
  spectra.impl_->memory = memory;
  impl_->engine->init_input_spectra(*spectra.impl_);
  return spectra;
}

Spectra ConvPlan::gradient_spectra(std::pmr::memory_resource* memory) const {
  Spectra spectra;
  spectra.impl_->memory = memory;
  impl_->engine->init_gradient_spectra(*spectra.impl_);
  return spectra;
}

void ConvPlan::forward(const Execution& run, const ForwardBindings& b) const {
  const auto arguments = impl_->arguments(b, run.memory);
  check_filled("forward", b.w);
  const unsigned shape = b.x_hat != nullptr ? 1 : 0;
  impl_->run(impl_->forward_calls, run, shape, arguments, b.w);
}

void ConvPlan::backward(const Execution& run, const BackwardBindings& b) const {
  const auto arguments = impl_->arguments(b, run.memory);
  check_filled("backward", b.w);
  if (b.x_hat != nullptr && b.x_hat->version() == 0) {
    throw StaleCache("convolution backward: x_hat was never filled; run forward with it first");
  }
  const unsigned shape = (b.dx ? 1u : 0u) | (b.dw ? 2u : 0u) | (b.dbias ? 4u : 0u) | (b.x_hat != nullptr ? 8u : 0u) |
                         (b.dy_hat != nullptr ? 16u : 0u);
  impl_->run(impl_->backward_calls, run, shape, arguments, b.w);
}

Ready ConvPlan::append_prepare(TaskGraph& graph, const Ready& w_ready, const ConstTensorView& w,
                               PreparedWeights& prepared) const {
  check("w", w, impl_->problem.w_shape(), impl_->problem.type);
  impl_->check_weights(prepared);
  Ready done = impl_->engine->append_prepare(graph, w_ready,
                                             std::make_shared<PrepareArguments>(PrepareArguments{w, prepared.impl()}));
  const TaskId raised = graph.add(
      {.name = "weights are new"}, [to = prepared.impl()] { raise_version(*to); }, done.tasks());
  // A single task that prepares is short. If both tasks after it were ready at once, a thread would be woken for one.
  return done.tasks().size() == 1 ? Ready::all_of({raised}) : done;
}

Ready ConvPlan::append_forward(TaskGraph& graph, const ConvReady& ready, const ForwardBindings& bindings,
                               std::pmr::memory_resource* memory, Workspace* workspace) const {
  const auto arguments = std::make_shared<ForwardArguments>(impl_->arguments(bindings, memory, workspace));
  return impl_->append(graph, ready, arguments, impl_->own_weights(bindings.w, reader_of(*arguments), memory));
}

ConvGradientReady ConvPlan::append_backward(TaskGraph& graph, const ConvReady& ready, const BackwardBindings& bindings,
                                            std::pmr::memory_resource* memory, Workspace* workspace) const {
  const auto arguments = std::make_shared<BackwardArguments>(impl_->arguments(bindings, memory, workspace));
  return impl_->append(graph, ready, arguments, impl_->own_weights(bindings.w, reader_of(*arguments), memory));
}

const ConvProblem& ConvPlan::problem() const noexcept { return impl_->problem; }
Engine ConvPlan::engine() const noexcept { return impl_->explanation.engine; }
double ConvPlan::seconds() const noexcept { return impl_->explanation.seconds; }
const std::string& ConvPlan::choice() const noexcept { return impl_->explanation.choice; }
std::string ConvPlan::numerics() const { return fmt::format("{}: {}", choice(), impl_->engine->numerics()); }
std::string ConvPlan::explain() const { return to_string(impl_->explanation); }
const Explanation& ConvPlan::explanation() const noexcept { return impl_->explanation; }
std::vector<CacheCost> ConvPlan::caches() const { return impl_->engine->caches(); }
bool ConvPlan::x_hat_replaces_x() const noexcept { return impl_->engine->x_hat_replaces_x(); }
TransformCounts ConvPlan::transforms() const noexcept { return impl_->engine->transforms(); }

}  // namespace convolume
