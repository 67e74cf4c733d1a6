// Convolutions. A problem is planned once and executed many times. Spectra and prepared weights are caches beside the
// tensors.
#pragma once

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <memory_resource>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "convolume/conv_problem.hpp"
#include "convolume/fft.hpp"
#include "convolume/ready.hpp"
#include "convolume/scheduler.hpp"
#include "convolume/tensor.hpp"

namespace convolume {

/// The algorithms. `automatic` selects the fastest one by a cost model, which reads neither the clock nor the load.
enum class Engine {
  automatic,
  fft_tiled,   ///< overlap-save: FFTs of small tiles; strides and dilations are split into dense phases
  fft_volume,  ///< FFTs of whole volumes (Zlateski, Lee, Seung, "ZNN", 2016); plain layouts only
  toom_cook,   ///< real windows ("Winograd"); dense kernels of 3 x 3 x 3, 1 x 3 x 3 and 3 x 1 x 1 with stride 1
  direct,      ///< sums over kernel taps with SIMD over channels; suits small kernels and small deep layers
  reference,   ///< plain loops in double precision: slow, for checks; serves every problem in plain layouts
  onednn,      ///< oneDNN, float only, if the library was built with it; `automatic` never selects it
};
/// Returns the name as the enumerator spells it.
CONVOLUME_API const char* name_of(Engine engine) noexcept;
/// Returns all engines, `automatic` first.
CONVOLUME_API std::span<const Engine> engines() noexcept;
/// Returns the engine of a name. Throws InvalidArgument that lists the names.
CONVOLUME_API Engine engine_of(const std::string& name);
/// Returns whether an engine that is requested for a whole net takes this layer. If not, `automatic` chooses for it:
/// transposed convolutions that are requested from onednn, and everything that toom_cook does not serve.
CONVOLUME_API bool takes_layer(Engine engine, const ConvProblem& problem);
/// Returns whether the results of an engine have a larger error than those of the others (docs/testing.md#accuracy).
/// This is toom_cook: about 1.3e-6 in float (planar kernels: at most 6e-7), relative to the results, instead of 3e-7.
CONVOLUME_API bool has_larger_error(Engine engine) noexcept;

/// Options of a plan.
struct ConvOptions {
  Engine engine = Engine::automatic;
  /// Which gradients the caller computes. The cost model minimises the time of the forward pass and these gradients
  /// together. The plan can still compute the other gradients. A first layer needs no dx; inference needs neither.
  bool want_dx = true, want_dw = true;
  /// A result of ConvPlan::choice() or ConvPlan::tune(): the engine; for fft_tiled, the tile of each direction and
  /// whether the directions share tiles; for direct, the loop nest of each direction (docs/planning.md), for example
  /// "direct fwd=y*.c.x.|.ky.kx.c16.x14.k32 bwd_d=... bwd_w=...". It replaces the cost model's choice. A plan made from
  /// another plan's choice computes the same bits. If empty, the cost model chooses. `engine` must be automatic or the
  /// engine of the choice. make() throws Unsupported if direct has no microkernel for a nest.
  std::string choice{};
  /// Leaves out engines with a larger error (has_larger_error()), in double as well. It decides choices only. make()
  /// throws InvalidArgument if `engine` or `choice` names such an engine.
  bool low_error = false;
  /// Limit in bytes for cached spectra of weights and, for fft_tiled with shared tiles, of x. Spectra beyond the limit
  /// are recomputed with the same bits. 0 means no limit. Depthwise convolutions ignore the limit, because their
  /// spectra take a few MB.
  std::size_t memory_budget = 0;
  /// FFT backend, for engines that use FFTs. Part of numerics().
  fft::Options fft{};
  /// Computes each spectrum once per training iteration and keeps it for every product that reads it. If false, w_hat
  /// is recomputed for each product, and dy_hat separately for dx and for dw, with the same bits. This shows what
  /// caching gains and costs. Caller-supplied caches (x_hat, dy_hat) are still used. The exception is fft_tiled, which
  /// leaves x_hat empty. If true, fft_tiled caches w_hat of the forward pass only, and x_hat and dy_hat only if its
  /// directions share tiles.
  bool cache_spectra = true;
};

class ConvPlan;

/// Weights in the form that an engine reads: spectra, or a packed copy. A cache beside the weights. It fits all plans
/// with the same geometry as the plan that made it. Several threads may read it at once. Only one thread may write it,
/// and no thread may read it meanwhile.
class CONVOLUME_API PreparedWeights {
 public:
  PreparedWeights();
  ~PreparedWeights();
  PreparedWeights(PreparedWeights&&) noexcept;
  PreparedWeights& operator=(PreparedWeights&&) noexcept;
  /// Returns how often the cache has been written; 0 means never.
  std::uint64_t version() const noexcept;
  std::size_t bytes() const noexcept;     ///< bytes that are allocated now
  std::size_t capacity() const noexcept;  ///< bytes of the complete cache
  /// Makes the cache use `memory` instead of memory that it allocates itself. `memory` holds capacity() bytes, is
  /// aligned to 64 bytes, stays the caller's, and must outlive the cache. The cache counts as empty until the next
  /// append_prepare(). Must not run while the cache is read or written. Throws InvalidArgument, and changes nothing, if
  /// capacity() is not 0 and `memory` is null or misaligned.
  void place(void* memory);
  /// Returns the bytes of capacity() that only the preparation and forward passes use, for example spectra of weights
  /// for the tiles of the forward pass. Backward passes read the rest.
  std::size_t forward_capacity() const noexcept;
  /// Does what place(memory) does, with the cache in two parts: `forward` holds forward_capacity() bytes, `rest` the
  /// others. `forward` may hold other data from the last forward pass to the next append_prepare().
  void place(void* forward, void* rest);
  /// Frees the memory, except placed memory. The next append_prepare() allocates again. Must not run while the cache is
  /// read or written.
  void release() noexcept;

  struct Impl;
  Impl* impl() const noexcept { return impl_.get(); }

 private:
  friend class ConvPlan;
  std::unique_ptr<Impl> impl_;
};

/// The spectra of one tensor for one geometry. If a forward pass gets a cache for x, it fills the cache, and the
/// backward pass reads it. Plans of the same geometry can share it. Debug builds hash the source and throw StaleCache
/// if the spectra belong to other data. Several threads may read the cache at once. Only one thread may write it, and
/// no thread may read it meanwhile.
class CONVOLUME_API Spectra {
 public:
  Spectra();
  ~Spectra();
  Spectra(Spectra&&) noexcept;
  Spectra& operator=(Spectra&&) noexcept;
  std::uint64_t version() const noexcept;  ///< how often it has been filled; 0 means never
  std::size_t bytes() const noexcept;      ///< bytes that are allocated now
  std::size_t capacity() const noexcept;   ///< bytes of the complete cache
  /// Makes the cache use `memory` instead of memory that it allocates itself. `memory` holds capacity() bytes, is
  /// aligned to 64 bytes, stays the caller's, and must outlive the cache. The cache counts as empty until the next
  /// fill. Must not run while the cache is read or written. Throws InvalidArgument, and changes nothing, if capacity()
  /// is not 0 and `memory` is null or misaligned.
  void place(void* memory);
  /// Frees the memory, except placed memory. The next fill allocates again. Must not run while the cache is read or
  /// written.
  void release() noexcept;

  struct Impl;
  Impl* impl() const noexcept { return impl_.get(); }

 private:
  friend class ConvPlan;
  std::unique_ptr<Impl> impl_;
};

/// The weights that a pass reads: prepared weights or a tensor. Prepared weights serve many passes. A tensor has the
/// shape problem.w_shape() and the plain layout. The pass prepares it for itself, with the bits of prepared weights.
/// The tensor must not change until all results of the pass are complete. Refers to its argument, which must outlive
/// the pass, and copies nothing.
class PassWeights {
 public:
  PassWeights(const PreparedWeights& prepared) noexcept : prepared_(&prepared) {}  // NOLINT
  template <class Source>
  requires std::convertible_to<const Source&, ConstTensorView> PassWeights(const Source& tensor)
  noexcept : tensor_(tensor) {}  // NOLINT

  /// Returns null if the weights are a tensor.
  const PreparedWeights* prepared() const noexcept { return prepared_; }
  const ConstTensorView& tensor() const noexcept { return tensor_; }

 private:
  const PreparedWeights* prepared_ = nullptr;
  ConstTensorView tensor_{};
};

/// Tensors of a forward pass. `bias` has shape 1 x out_channels x 1 x 1 x 1 and contiguous values; it is read if the
/// problem has a bias.
struct ForwardBindings {
  ConstTensorView x{};
  PassWeights w;
  ConstTensorView bias{};
  TensorView y{};
  Spectra* x_hat = nullptr;  ///< optional; filled if the engine caches spectra of x
};

/// Tensors of a backward pass. Each of dx, dw and dbias may be absent. `x` is needed for dw. `y` is needed if an
/// activation is fused.
struct BackwardBindings {
  ConstTensorView x{};
  ConstTensorView y{};
  ConstTensorView dy{};
  PassWeights w;
  const Spectra* x_hat = nullptr;  ///< optional; must hold the spectra of this x
  Spectra* dy_hat = nullptr;       ///< optional; filled if the engine caches spectra of dy between calls
  TensorView dx{}, dw{}, dbias{};
  bool add_dx = false, add_dw = false;  ///< add to the contents of dx, or of dw and dbias, instead of overwriting them
};

/// The tasks that complete the tensors which a convolution reads. The channels of `w` are the rows of the weights, axis
/// 0. `dx` is used with add_dx: it names the tasks that write the earlier contributions to dx.
struct ConvReady {
  Ready x{}, w{}, dy{}, dx{};
};

/// The tasks that complete the gradients.
struct ConvGradientReady {
  Ready dx{}, dw{}, dbias{};
};

/// Provides memory for what the tasks of a convolution pass to each other within a run, if no bound cache holds it:
/// sums, spectra, reordered weights. A caller that plans the memory of a graph passes a workspace, so that these
/// buffers become part of its plan. It is called only while tasks are appended, by one thread. The memory must outlive
/// the graph.
class CONVOLUME_API Workspace {
 public:
  struct Buffer {
    /// Points to a pointer to the memory, which is aligned to 64 bytes and valid while the tasks that use it run. If
    /// null, the workspace has no memory for this buffer, and the tasks allocate it from the memory resource.
    void* const* slot = nullptr;
    /// Tasks that every task that uses the memory waits for.
    std::vector<TaskId> ready{};
  };
  virtual ~Workspace() = default;
  /// Returns a buffer of `bytes` bytes for tasks that will be appended to `graph`.
  virtual Buffer take(TaskGraph& graph, std::size_t bytes) = 0;
  /// Ends the use of a buffer from take(). Every task that uses it is in `last` or precedes a task in `last`.
  virtual void free(TaskGraph& graph, const Buffer& buffer, std::span<const TaskId> last) = 0;
};

/// The number of transforms that a plan has executed, by the tensor that was transformed, and their time. `inverse`
/// counts transforms from spectra back to voxels, of any tensor.
struct TransformCounts {
  std::int64_t input = 0, weights = 0, gradient = 0, inverse = 0;
  double seconds = 0;          ///< in all transforms, summed over threads
  double inverse_seconds = 0;  ///< the part of `seconds` that inverse transforms took

  TransformCounts& operator+=(const TransformCounts& more) noexcept {
    input += more.input;
    weights += more.weights;
    gradient += more.gradient;
    inverse += more.inverse;
    seconds += more.seconds;
    inverse_seconds += more.inverse_seconds;
    return *this;
  }
  /// Returns what was counted after `earlier`.
  friend TransformCounts operator-(TransformCounts now, const TransformCounts& earlier) noexcept {
    return {now.input - earlier.input,       now.weights - earlier.weights,
            now.gradient - earlier.gradient, now.inverse - earlier.inverse,
            now.seconds - earlier.seconds,   now.inverse_seconds - earlier.inverse_seconds};
  }
};

/// A cache that a plan can keep, with its cost and its benefit.
struct CacheCost {
  std::string name{};
  std::size_t bytes = 0;
  double seconds_saved = 0;  ///< per training iteration, estimated by the cost model
  bool kept = true;
  bool budgeted = true;  ///< whether ConvOptions::memory_budget limits this cache
  /// What the cache holds: spectra of weights, of x, or of dy.
  enum class Content { weights, input, gradient } content = Content::weights;
  /// Whether a training iteration does without the cache in the same time, because it computes the content once in any
  /// case.
  bool free_to_drop = false;
};

/// Returns whether `a` saves more time per byte than `b`.
inline bool more_saved_per_byte(const CacheCost& a, const CacheCost& b) noexcept {
  return a.seconds_saved * static_cast<double>(b.bytes) > b.seconds_saved * static_cast<double>(a.bytes);
}

/// How a plan was chosen: what ConvPlan::explain() says, as data. Estimates are seconds on one core; they serve to
/// compare plans and are not predictions of run times.
struct Explanation {
  /// An implementation in the list: an engine, or the code of an engine for depthwise problems.
  struct Candidate {
    Engine engine = Engine::reference;
    std::string name{};
    /// Estimate for the forward pass and the wanted gradients. Empty if the implementation was not considered or does
    /// not support the problem; `reason` then says why.
    std::optional<double> seconds{};
    double bytes = 0;  ///< beside the tensors while all directions run: caches, packed weights, sums
    std::string reason{};
    bool requested = true;   ///< false if the implementation is not considered, for example if the options name another
                             ///< engine
    bool preferred = false;  ///< taken although the estimate of an earlier candidate is slightly less: direct only
  };
  /// What takes longest in one direction, and the floor of the machine.
  struct Bound {
    std::string result{};      ///< what the direction computes: y, dx or dw
    double seconds = 0;        ///< estimate for the direction
    std::string part{};        ///< what takes longest, for example "multiply-adds" or "loads from the L2"
    double part_seconds = 0;   ///< the part of `seconds` that it takes
    double floor_seconds = 0;  ///< the least time by the peak rate or the bandwidth, whichever takes longer
  };

  ConvProblem problem{};
  bool want_dx = true, want_dw = true;  ///< as in ConvOptions
  std::vector<Candidate> candidates{};  ///< in the order of the list of implementations
  Engine engine = Engine::reference;    ///< of the choice
  std::string choice{};                 ///< ConvPlan::choice()
  double seconds = 0;                   ///< ConvPlan::seconds()
  std::vector<Bound> bounds{};          ///< of the wanted directions of one group, if `direct` is chosen; else empty
  std::vector<CacheCost> caches{};      ///< ConvPlan::caches()
};

/// Returns the text of ConvPlan::explain().
CONVOLUME_API std::string to_string(const Explanation& explanation);

/// Layouts of x and y, and the engine that a plan for them chooses.
struct LayoutEstimate {
  Layout x_layout = Layout::plain, y_layout = Layout::plain;
  Engine engine = Engine::reference;
  double seconds = 0;  ///< ConvPlan::seconds() of that plan
};

/// An immutable way to compute one problem. Cheap to copy. All const members are thread-safe.
///
/// Blocking calls build their task graph at the first use and keep it. append_*() add the same tasks to a caller's
/// graph. The bindings, the memory behind them and the memory resource must then outlive the graph.
///
/// Memory: scratch of a running task comes from the memory resource (TaskOptions::scratch_bytes). Buffers that live
/// between tasks come from the workspace. Without a workspace, tasks allocate them from the memory resource and free
/// them. A tensor of weights is an exception: its prepared form comes from the memory resource. A blocking call frees
/// it when it ends, and a graph keeps it between its runs.
///
/// Layout: plain tensors have x stride 1. Blocked tensors (ConvProblem::x_layout, y_layout) are views of the logical
/// shape. Their strides are the distances between samples, channel blocks, planes and rows. Neighbouring voxels of a
/// row are channel_block() elements apart. Lanes without a channel hold zero. convert() (convert.hpp) makes blocked
/// tensors of plain ones. x, w, dy, y, dx and dw must not overlap.
///
/// Errors: ShapeMismatch for tensors that do not match the problem, StaleCache, std::bad_alloc, MemoryBudgetExceeded.
class CONVOLUME_API ConvPlan {
 public:
  /// Makes a plan. Throws InvalidArgument for an invalid problem, and Unsupported, with the reason of every engine, if
  /// no engine serves the problem.
  static ConvPlan make(const ConvProblem& problem, const ConvOptions& options = {});
  /// Measures candidates: engines that `options` admits, and five tiles or loop nests of each direction, which the cost
  /// model ranks first (of the nests two are ranked by the reuse of data). Returns the fastest choice for the forward
  /// pass and the wanted gradients, as text for ConvOptions::choice. Store the choice with the results, because the
  /// next measurement may return another one. Allocates tensors and spectra from run.memory. Throws the exceptions of
  /// make().
  static std::string tune(const ConvProblem& problem, const ConvOptions& options, const Execution& run);
  /// Returns the most seconds that tune() measures on one thread, by the cost model: 2, or three executions of each
  /// candidate if these take longer. Plans and tensors are made besides. Deterministic. Throws the exceptions of
  /// make().
  static double tuning_seconds(const ConvProblem& problem, const ConvOptions& options);

  /// Returns the pairs of layouts of x and y that an engine serves, the one with the least estimate first. The layouts
  /// of `problem` itself are ignored. The estimates do not count conversions (convert.hpp): a caller whose tensors have
  /// other layouts adds a price for these. Builds no engine. Deterministic. Empty if no engine serves any pair. Throws
  /// InvalidArgument for an invalid problem.
  static std::vector<LayoutEstimate> best_layouts(const ConvProblem& problem, const ConvOptions& options = {});

  /// Converts weights of shape problem.w_shape(), plain layout, to the engine's form.
  PreparedWeights prepare(const Execution& run, const ConstTensorView& w) const;
  /// Returns empty prepared weights, to be filled by append_prepare(). They allocate from `memory`, which must outlive
  /// them.
  PreparedWeights prepared_weights(std::pmr::memory_resource* memory) const;
  /// Return empty caches for the spectra of x and of dy. They allocate from `memory`, which must outlive them.
  Spectra input_spectra(std::pmr::memory_resource* memory = std::pmr::get_default_resource()) const;
  Spectra gradient_spectra(std::pmr::memory_resource* memory = std::pmr::get_default_resource()) const;

  /// Compute the convolution or its gradients, and return when the results are complete. Throw StaleCache if the
  /// weights were never prepared, or if backward() gets an x_hat that was never filled.
  void forward(const Execution& run, const ForwardBindings& bindings) const;
  void backward(const Execution& run, const BackwardBindings& bindings) const;

  /// Appends tasks that convert `w` into `prepared`. Returns the tasks that complete `prepared`. The channels of the
  /// result are the rows of the weights, axis 0: all of `prepared` is complete after all tasks().
  Ready append_prepare(TaskGraph& graph, const Ready& w_ready, const ConstTensorView& w,
                       PreparedWeights& prepared) const;
  /// Append the tasks of a forward or backward pass, and return the tasks that complete the results. Shapes and layouts
  /// are checked now, caches when the tasks run. If `w` is a tensor, `ready.w` names the tasks that complete it.
  Ready append_forward(TaskGraph& graph, const ConvReady& ready, const ForwardBindings& bindings,
                       std::pmr::memory_resource* memory, Workspace* workspace = nullptr) const;
  ConvGradientReady append_backward(TaskGraph& graph, const ConvReady& ready, const BackwardBindings& bindings,
                                    std::pmr::memory_resource* memory, Workspace* workspace = nullptr) const;

  const ConvProblem& problem() const noexcept;
  Engine engine() const noexcept;
  /// Returns the choice as text for ConvOptions::choice. Part of numerics().
  const std::string& choice() const noexcept;
  /// Returns the estimated seconds on one core for the forward pass and the wanted gradients. The estimate serves to
  /// compare plans; it is not a prediction of run times.
  double seconds() const noexcept;
  /// Returns everything that decides rounding, as text. Equal texts promise equal bits.
  std::string numerics() const;
  /// Returns a report: each engine with its estimate or the reason why it is unsupported, the choice, and the caches.
  /// If `direct` is chosen, what takes longest in each direction, and the share of the machine's floor, on one core.
  std::string explain() const;
  /// Returns the same report as data, from which explain() makes its text.
  const Explanation& explanation() const noexcept;
  /// Returns the caches of the chosen engine.
  std::vector<CacheCost> caches() const;
  /// Returns whether a backward pass does not read x if it gets an x_hat, because it computes dw from x_hat alone. The
  /// memory of x may then hold other data. Debug builds always read x, to check x_hat.
  bool x_hat_replaces_x() const noexcept;
  /// Returns the transforms that this plan and its copies have executed so far, on all threads.
  TransformCounts transforms() const noexcept;

  struct Impl;

 private:
  explicit ConvPlan(std::shared_ptr<const Impl> impl) : impl_(std::move(impl)) {}
  std::shared_ptr<const Impl> impl_;
};

}  // namespace convolume
