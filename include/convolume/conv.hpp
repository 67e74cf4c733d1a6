// Convolutions: a problem is planned once and executed many times; spectra are caches beside the tensors.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <memory_resource>
#include <span>
#include <string>
#include <vector>

#include "convolume/conv_problem.hpp"
#include "convolume/fft.hpp"
#include "convolume/ready.hpp"
#include "convolume/scheduler.hpp"
#include "convolume/tensor.hpp"

namespace convolume {

/// Ways to convolve. `automatic` takes the fastest by a cost model that reads neither clock nor load.
enum class Engine {
  automatic,
  fft_tiled,   ///< tiles in the frequency domain, channels in the lanes of vectors; stride and dilation by sub-lattices
  fft_volume,  ///< whole volumes in the frequency domain, ZNN's way
  direct,      ///< sums over taps, channels in the lanes: for small kernels and small deep layers
  reference,   ///< plain loops in double precision: slow, obvious, serves every problem in plain layout
  onednn,      ///< oneDNN's own way, in float, where the library was built with it; never taken by `automatic`
};
CONVOLUME_API const char* name_of(Engine engine) noexcept;
/// Throws InvalidArgument listing the names.
CONVOLUME_API Engine engine_of(const std::string& name);

struct ConvOptions {
  Engine engine = Engine::automatic;
  /// Which gradients will be asked for. The engine, and whether directions share tiles, are chosen for the forward pass
  /// and these together; a plan computes the others all the same. A first layer wants no dx, inference neither.
  bool want_dx = true, want_dw = true;
  /// What ConvPlan::choice() or ConvPlan::tune() said: the engine and, of fft_tiled, the tiles of each direction
  /// and whether they share them. In the place of the cost model's choice; a plan that was made from a choice has the
  /// bits of the plan that it came from. Empty: the cost model chooses. `engine` must be automatic or the same.
  std::string choice{};
  /// Bytes that kept spectra may hold (of weights; of x where fft_tiled keeps them); above it they are recomputed where
  /// they are used, with the same bits. 0 means no limit. Those of depthwise convolutions, a few MB, are always kept.
  std::size_t memory_budget = 0;
  /// Who transforms, where the engine does: tensors and kernels alike. Part of numerics().
  fft::Options fft{};
  /// Whether spectra are computed once per iteration and kept for every product that reads them. Without it w_hat is
  /// recomputed for each product and dy_hat apart for dx and for dw, with the same bits; caches that a caller binds
  /// (x_hat, dy_hat) are used all the same, but by fft_tiled, where x_hat stays empty then. What caching gains and
  /// costs can be measured so. fft_tiled keeps w_hat of the forward pass alone, and x_hat and dy_hat where its
  /// directions share tiles.
  bool cache_spectra = true;
};

class ConvPlan;

/// Weights in the form that an engine multiplies with: spectra, or a packed copy. Belongs to the geometry of the plan
/// that made it. One writer at a time; readers run concurrently.
class CONVOLUME_API PreparedWeights {
 public:
  PreparedWeights();
  ~PreparedWeights();
  PreparedWeights(PreparedWeights&&) noexcept;
  PreparedWeights& operator=(PreparedWeights&&) noexcept;
  /// How often it was written; 0 means never.
  std::uint64_t version() const noexcept;
  std::size_t bytes() const noexcept;     ///< held now
  std::size_t capacity() const noexcept;  ///< bytes that they hold when they are complete
  /// Uses `memory`, capacity() bytes aligned to 64, which stays the caller's and must outlive this, instead of what it
  /// would allocate. What is there does not count as written before the next append_prepare(). Must not run beside a
  /// reader or writer; nor must release(). Throws InvalidArgument, and changes nothing, where memory that is needed is
  /// null or not aligned.
  void place(void* memory);
  /// Frees the memory, unless it was placed; the next append_prepare() takes new.
  void release() noexcept;

  struct Impl;
  Impl* impl() const noexcept { return impl_.get(); }

 private:
  friend class ConvPlan;
  std::unique_ptr<Impl> impl_;
};

/// The spectra of one tensor for one geometry. A plan that is given one for x fills it on the way forward and reads it
/// on the way back; plans of the same geometry share it. In debug builds the source is hashed and a stale use throws
/// StaleCache. One writer at a time; readers run concurrently.
class CONVOLUME_API Spectra {
 public:
  Spectra();
  ~Spectra();
  Spectra(Spectra&&) noexcept;
  Spectra& operator=(Spectra&&) noexcept;
  std::uint64_t version() const noexcept;  ///< how often it was filled; 0 means never
  std::size_t bytes() const noexcept;      ///< held now
  std::size_t capacity() const noexcept;   ///< bytes that they hold when they are filled
  /// Uses `memory`, capacity() bytes aligned to 64, which stays the caller's and must outlive this, instead of what it
  /// would allocate. What is there does not count as filled before the next forward pass. Must not run beside a reader
  /// or writer; nor must release(). Throws InvalidArgument, and changes nothing, where memory that is needed is null or
  /// not aligned.
  void place(void* memory);
  /// Frees the memory, unless it was placed; the next fill takes new.
  void release() noexcept;

  struct Impl;
  Impl* impl() const noexcept { return impl_.get(); }

 private:
  friend class ConvPlan;
  std::unique_ptr<Impl> impl_;
};

/// Tensors of a forward pass. `bias` holds out_channels values as shape 1 x out_channels x 1 x 1 x 1.
struct ForwardBindings {
  ConstTensorView x{};
  const PreparedWeights& w;
  ConstTensorView bias{};
  TensorView y{};
  Spectra* x_hat = nullptr;   ///< filled when given, where the engine keeps spectra of x
  bool x_hat_filled = false;  ///< x_hat already holds the spectra of this x (another plan filled it): only read it
};

/// Tensors of a backward pass. Each of dx, dw, dbias may be absent. `y` is read where an activation is fused.
struct BackwardBindings {
  ConstTensorView x{};
  ConstTensorView y{};
  ConstTensorView dy{};
  const PreparedWeights& w;
  const Spectra* x_hat = nullptr;  ///< read when given: it must hold the spectra of this x
  Spectra* dy_hat = nullptr;       ///< filled when given, where the engine keeps spectra of dy from call to call
  TensorView dx{}, dw{}, dbias{};
  bool add_dx = false, add_dw = false;  ///< add to what dx, or dw and dbias, hold
};

/// When the tensors of a convolution are complete; `dx` says when earlier contributions to dx are (add_dx).
struct ConvReady {
  Ready x{}, w{}, dy{}, dx{};
};

struct ConvGradientReady {
  Ready dx{}, dw{}, dbias{};
};

/// Where the tasks of a convolution keep what they pass on to each other within a run and no bound cache holds: sums,
/// spectra, weights in another order. A caller who plans memory for a graph hands one in, so that these buffers have a
/// place in the plan. It is asked while tasks are appended, by one thread, and never afterwards; the memory must
/// outlive the graph.
class CONVOLUME_API Workspace {
 public:
  struct Buffer {
    /// Points to the memory, aligned to 64, while those tasks run that use it. Null: the caller has none for it, and
    /// tasks take it from the memory resource.
    void* const* slot = nullptr;
    /// All tasks that use the memory wait for these.
    std::vector<TaskId> ready{};
  };
  virtual ~Workspace() = default;
  virtual Buffer take(TaskGraph& graph, std::size_t bytes) = 0;
  /// What take() gave: every task that uses it is one of `last` or comes before them.
  virtual void free(TaskGraph& graph, const Buffer& buffer, std::span<const TaskId> last) = 0;
};

/// How many transforms a plan has executed, by what was transformed, and how long they took. `inverse` counts what came
/// back to space.
struct TransformCounts {
  std::int64_t input = 0, weights = 0, gradient = 0, inverse = 0;
  double seconds = 0;          ///< inside transforms, summed over workers
  double inverse_seconds = 0;  ///< the part of them that inverse transforms took

  TransformCounts& operator+=(const TransformCounts& more) noexcept {
    input += more.input;
    weights += more.weights;
    gradient += more.gradient;
    inverse += more.inverse;
    seconds += more.seconds;
    inverse_seconds += more.inverse_seconds;
    return *this;
  }
  /// What came since `earlier`.
  friend TransformCounts operator-(TransformCounts now, const TransformCounts& earlier) noexcept {
    return {now.input - earlier.input,       now.weights - earlier.weights,
            now.gradient - earlier.gradient, now.inverse - earlier.inverse,
            now.seconds - earlier.seconds,   now.inverse_seconds - earlier.inverse_seconds};
  }
};

/// A cache that a plan can keep, what it costs and what it saves.
struct CacheCost {
  std::string name;
  std::size_t bytes = 0;
  double seconds_saved = 0;  ///< per training iteration, by the cost model
  bool kept = true;
  bool budgeted = true;  ///< whether ConvOptions::memory_budget decides
};

/// Whether a budget goes to `a` rather than to `b`.
inline bool more_saved_per_byte(const CacheCost& a, const CacheCost& b) noexcept {
  return a.seconds_saved * static_cast<double>(b.bytes) > b.seconds_saved * static_cast<double>(a.bytes);
}

/// An immutable way to compute one problem. Cheap to copy. All const members are thread-safe.
///
/// Blocking calls build their task graph on first use and keep it; append_*() put the same tasks into a caller's graph,
/// where bindings (the memory behind them, and the memory resource) must outlive the graph. Scratch of a running task
/// comes from the memory resource (TaskOptions::scratch_bytes); what lives between tasks comes from the workspace or,
/// without one, from the memory resource too, taken and given back by tasks. Plain tensors have x stride 1. Blocked
/// ones (ConvProblem::x_layout, y_layout) are views of the logical shape with strides between samples, channel blocks,
/// planes and rows, and channel_block elements between voxels; lanes without a channel hold zero. x, w, dy and y, dx,
/// dw must not overlap. Errors: ShapeMismatch for tensors that are not the problem's, StaleCache, std::bad_alloc,
/// MemoryBudgetExceeded.
class CONVOLUME_API ConvPlan {
 public:
  /// Throws InvalidArgument for a problem that makes no sense and Unsupported, with every engine's reason, where none
  /// serves it.
  static ConvPlan make(const ConvProblem& problem, const ConvOptions& options = {});
  /// Measures what the cost model likes best, engines that `options` admits and tiles of each direction, and returns
  /// the fastest choice for the forward pass and the gradients that are wanted, to be written into ConvOptions::choice
  /// and kept with the results: measured again, it may be another one. Takes seconds; tensors and spectra come from
  /// run.memory. Throws as make() does.
  static std::string tune(const ConvProblem& problem, const ConvOptions& options, const Execution& run);

  /// Weights (problem.w_shape()) into the engine's form.
  PreparedWeights prepare(const Execution& run, const ConstTensorView& w) const;
  /// Empty prepared weights, to be written by append_prepare.
  PreparedWeights prepared_weights(std::pmr::memory_resource* memory) const;
  Spectra input_spectra(std::pmr::memory_resource* memory = std::pmr::get_default_resource()) const;
  Spectra gradient_spectra(std::pmr::memory_resource* memory = std::pmr::get_default_resource()) const;

  void forward(const Execution& run, const ForwardBindings& bindings) const;
  void backward(const Execution& run, const BackwardBindings& bindings) const;

  /// Refreshes `prepared` from w.
  Ready append_prepare(TaskGraph& graph, const Ready& w_ready, const ConstTensorView& w,
                       PreparedWeights& prepared) const;
  Ready append_forward(TaskGraph& graph, const ConvReady& ready, const ForwardBindings& bindings,
                       std::pmr::memory_resource* memory, Workspace* workspace = nullptr) const;
  ConvGradientReady append_backward(TaskGraph& graph, const ConvReady& ready, const BackwardBindings& bindings,
                                    std::pmr::memory_resource* memory, Workspace* workspace = nullptr) const;

  const ConvProblem& problem() const noexcept;
  Engine engine() const noexcept;
  /// What was chosen, as ConvOptions::choice takes it. Part of numerics().
  const std::string& choice() const noexcept;
  /// Seconds of one core for the forward pass and the gradients that are wanted, by the cost model: to compare plans,
  /// not to plan a day.
  double seconds() const noexcept;
  /// Everything that decides the rounding.
  std::string numerics() const;
  /// Which engines were asked, why each refused, what was chosen, and what is kept.
  std::string explain() const;
  std::vector<CacheCost> caches() const;
  TransformCounts transforms() const noexcept;

  struct Impl;

 private:
  explicit ConvPlan(std::shared_ptr<const Impl> impl) : impl_(std::move(impl)) {}
  std::shared_ptr<const Impl> impl_;
};

}  // namespace convolume
