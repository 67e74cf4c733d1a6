#include "conv/grouped_engine.hpp"

#include <algorithm>

#include <fmt/format.h>

#include "conv/caches/caches.hpp"

namespace convolume::conv {
namespace {

template <class V>
V moved(V view, index_t elements) {
  view.data += elements * static_cast<index_t>(size_of(view.type));
  return view;
}

/// Return channels [first, first + count) of a tensor, or rows [first, first + count) of weights. An absent tensor
/// stays absent.
template <class V>
V channels_of(const V& view, index_t first, index_t count) {
  if (!view) return view;
  V part = moved(view, first / (view.layout == Layout::plain ? 1 : channel_block(view.type)) * view.stride[1]);
  part.shape.c = count;
  return part;
}
template <class V>
V rows_of(const V& view, index_t first, index_t count) {
  if (!view) return view;
  V part = moved(view, first * view.stride[0]);
  part.shape.n = count;
  return part;
}

/// Executes one engine on the channels of each group in turn. The bindings are divided among the groups when a run
/// begins, because a plan may replace the bindings between runs.
class GroupedEngine final : public ConvEngine {
 public:
  GroupedEngine(const ConvProblem& problem, std::unique_ptr<ConvEngine> engine)
      : problem_(problem), one_(one_group(problem)), engine_(std::move(engine)) {}

  Ready append_prepare(TaskGraph& graph, const Ready& ready,
                       std::shared_ptr<const PrepareArguments> arguments) const override;
  Ready append_forward(TaskGraph& graph, const ConvReady& ready,
                       std::shared_ptr<const ForwardArguments> arguments) const override;
  ConvGradientReady append_backward(TaskGraph& graph, const ConvReady& ready,
                                    std::shared_ptr<const BackwardArguments> arguments) const override;

  void init_weights(PreparedWeights::Impl& w) const override {
    init_groups(w, [this](PreparedWeights::Impl& group) { engine_->init_weights(group); });
  }
  void init_input_spectra(Spectra::Impl& s) const override {
    init_groups(s, [this](Spectra::Impl& group) { engine_->init_input_spectra(group); });
  }
  void init_gradient_spectra(Spectra::Impl& s) const override {
    init_groups(s, [this](Spectra::Impl& group) { engine_->init_gradient_spectra(group); });
  }

  std::string numerics() const override { return fmt::format("{} groups: {}", problem_.groups, engine_->numerics()); }
  std::vector<CacheCost> caches() const override {
    auto caches = engine_->caches();
    for (CacheCost& cache : caches) {
      cache.bytes *= static_cast<std::size_t>(problem_.groups);
      cache.seconds_saved *= static_cast<double>(problem_.groups);
    }
    return caches;
  }
  TransformCounts transforms() const noexcept override { return engine_->transforms(); }
  bool x_hat_replaces_x() const noexcept override { return engine_->x_hat_replaces_x(); }

 private:
  /// Gives each group a cache of its own.
  template <class Impl, class Init>
  void init_groups(Impl& cache, const Init& init) const {
    cache.groups.clear();
    for (index_t g = 0; g < problem_.groups; ++g) {
      cache.groups.push_back(std::make_unique<Impl>());
      cache.groups.back()->memory = cache.memory;
      init(*cache.groups.back());
    }
    cache.geometry = fmt::format("{} groups: {}", problem_.groups, cache.groups.front()->geometry);
  }
  template <class Impl>
  static auto* group_of(Impl* cache, index_t g) {
    return cache != nullptr ? cache->groups[static_cast<std::size_t>(g)].get() : nullptr;
  }

  PrepareArguments group(const PrepareArguments& a, index_t g) const;
  ForwardArguments group(const ForwardArguments& a, index_t g) const;
  BackwardArguments group(const BackwardArguments& a, index_t g) const;

  /// Returns the bindings of each group. `filled` becomes ready when a task at the beginning of a run has filled these
  /// bindings.
  template <class Arguments>
  std::vector<std::shared_ptr<Arguments>> append_groups(TaskGraph& graph, const std::shared_ptr<const Arguments>& a,
                                                        Ready& filled) const;
  index_t rows() const { return problem_.w_shape().n / problem_.groups; }
  /// Returns the part of `ready` that belongs to a group. Everything that is read also waits for `filled`.
  ConvReady group(const ConvReady& ready, const Ready& filled, index_t g) const {
    return {.x = ready.x.shifted(-g * one_.in_channels) & filled,
            .w = ready.w.shifted(-g * rows()) & filled,
            .dy = ready.dy.shifted(-g * one_.out_channels) & filled,
            .dx = ready.dx.shifted(-g * one_.in_channels)};
  }

  ConvProblem problem_, one_;
  std::unique_ptr<ConvEngine> engine_;
};

PrepareArguments GroupedEngine::group(const PrepareArguments& a, index_t g) const {
  return {.w = rows_of(a.w, g * rows(), rows()), .prepared = group_of(a.prepared, g)};
}

ForwardArguments GroupedEngine::group(const ForwardArguments& a, index_t g) const {
  const index_t in = one_.in_channels, out = one_.out_channels;
  return {.x = channels_of(a.x, g * in, in),
          .bias = channels_of(a.bias, g * out, out),
          .y = channels_of(a.y, g * out, out),
          .w = group_of(a.w, g),
          .x_hat = group_of(a.x_hat, g),
          .memory = a.memory,
          .workspace = a.workspace};
}

BackwardArguments GroupedEngine::group(const BackwardArguments& a, index_t g) const {
  const index_t in = one_.in_channels, out = one_.out_channels;
  return {.x = channels_of(a.x, g * in, in),
          .y = channels_of(a.y, g * out, out),
          .dy = channels_of(a.dy, g * out, out),
          .w = group_of(a.w, g),
          .x_hat = group_of(a.x_hat, g),
          .dy_hat = group_of(a.dy_hat, g),
          .dx = channels_of(a.dx, g * in, in),
          .dw = rows_of(a.dw, g * rows(), rows()),
          .dbias = channels_of(a.dbias, g * out, out),
          .add_dx = a.add_dx,
          .add_dw = a.add_dw,
          .memory = a.memory,
          .workspace = a.workspace};
}

template <class Arguments>
std::vector<std::shared_ptr<Arguments>> GroupedEngine::append_groups(TaskGraph& graph,
                                                                     const std::shared_ptr<const Arguments>& a,
                                                                     Ready& filled) const {
  std::vector<std::shared_ptr<Arguments>> groups;
  for (index_t g = 0; g < problem_.groups; ++g) groups.push_back(std::make_shared<Arguments>(group(*a, g)));
  filled = Ready::all_of({graph.add({.name = "take groups"}, [this, a, groups] {
    for (std::size_t g = 0; g < groups.size(); ++g) *groups[g] = group(*a, static_cast<index_t>(g));
  })});
  return groups;
}

Ready GroupedEngine::append_prepare(TaskGraph& graph, const Ready& ready,
                                    std::shared_ptr<const PrepareArguments> a) const {
  Ready filled, done;
  const auto groups = append_groups(graph, a, filled);
  for (index_t g = 0; g < problem_.groups; ++g) {
    const Ready w = ready.shifted(-g * rows()) & filled;
    const Ready part = engine_->append_prepare(graph, w, groups[static_cast<std::size_t>(g)]);
    done = done & part.shifted(g * rows());
  }
  return done;
}

Ready GroupedEngine::append_forward(TaskGraph& graph, const ConvReady& ready,
                                    std::shared_ptr<const ForwardArguments> a) const {
  Ready filled, done;
  const auto groups = append_groups(graph, a, filled);
  for (index_t g = 0; g < problem_.groups; ++g) {
    const Ready part = engine_->append_forward(graph, group(ready, filled, g), groups[static_cast<std::size_t>(g)]);
    done = done & part.shifted(g * one_.out_channels);
  }
  return done;
}

ConvGradientReady GroupedEngine::append_backward(TaskGraph& graph, const ConvReady& ready,
                                                 std::shared_ptr<const BackwardArguments> a) const {
  Ready filled;
  ConvGradientReady done;
  const auto groups = append_groups(graph, a, filled);
  for (index_t g = 0; g < problem_.groups; ++g) {
    const ConvGradientReady part =
        engine_->append_backward(graph, group(ready, filled, g), groups[static_cast<std::size_t>(g)]);
    done.dx = done.dx & part.dx.shifted(g * one_.in_channels);
    done.dw = done.dw & part.dw.shifted(g * rows());
    done.dbias = done.dbias & part.dbias.shifted(g * one_.out_channels);
  }
  return done;
}

}  // namespace

std::unique_ptr<ConvEngine> make_grouped(const ConvProblem& problem, std::unique_ptr<ConvEngine> engine) {
  return std::make_unique<GroupedEngine>(problem, std::move(engine));
}

}  // namespace convolume::conv
