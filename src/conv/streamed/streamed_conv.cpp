#include <algorithm>

#include <fmt/format.h>

#include "conv/check_bias.hpp"
#include "conv/streamed/stream_plan.hpp"
#include "conv/streamed/stream_run.hpp"
#include "convolume/error.hpp"
#include "convolume/machine.hpp"
#include "convolume/streamed.hpp"

namespace convolume {
namespace {

constexpr std::size_t no_limit = std::size_t{1} << 62;  // a double can hold it
/// Factor by which the memory for tiles falls until that of the engine fits too.
constexpr double less_memory = 0.85;
/// Estimates of two numbers of buffers that are closer than this factor count as equal.
constexpr double clearly_faster = 0.98;
/// Weights are prepared about as fast as so many times their bytes are moved to and from memory.
constexpr double preparation_moves = 4;

constexpr int most_buffers = 8;
constexpr const char* volume_reason = "fft_volume transforms whole volumes, so it is not streamed";

ConvOptions forward_only(ConvOptions options) {
  options.want_dx = options.want_dw = false;
  return options;
}

/// Returns the fastest plan of an engine that can be streamed. `note` says why it is not the one for tensors in memory.
ConvPlan streamable_plan(const ConvProblem& problem, const ConvOptions& options, std::string& note) {
  ConvPlan plan = ConvPlan::make(problem, options);
  const bool chosen = options.engine == Engine::automatic && options.choice.empty();
  if (chosen && plan.engine() == Engine::toom_cook && !conv::cuts_channels_of_windows(problem)) {
    ConvOptions others = options;
    others.low_error = true;
    plan = ConvPlan::make(problem, others);
    note = "  toom_cook is cut along channels only if they are multiples of 16: the next engine is taken\n";
  }
  if (plan.engine() != Engine::fft_volume && plan.engine() != Engine::onednn) return plan;
  if (!chosen) {
    throw Unsupported(fmt::format("{}; leave the engine automatic, or use fft_tiled, toom_cook, direct or reference",
                                  plan.engine() == Engine::onednn ? "onednn is not streamed" : volume_reason));
  }
  std::optional<ConvPlan> best;
  for (const Engine engine : {Engine::fft_tiled, Engine::direct, Engine::reference}) {
    ConvOptions named = options;
    named.engine = engine;
    try {
      const ConvPlan other = ConvPlan::make(problem, named);
      if (!best || other.seconds() < best->seconds()) best = other;
    } catch (const Unsupported&) {
      continue;  // the report on `best` says which engine serves the problem
    }
  }
  if (!best) throw Unsupported(fmt::format("{}, and no other engine serves {}", volume_reason, to_string(problem)));
  note = fmt::format("  {}: the next engine is taken\n", volume_reason);
  return *best;
}

void check_options(const ConvProblem& problem, const StreamOptions& o) {
  problem.validate();
  if (problem.transposed) {
    throw Unsupported("transposed convolutions are not streamed; convolve in memory, or crop the volume");
  }
  if (problem.x_layout != Layout::plain || problem.y_layout != Layout::plain) {
    throw InvalidArgument("a streamed convolution reads and writes plain tensors; set x_layout and y_layout to plain");
  }
  if (o.threads < 1) throw InvalidArgument(fmt::format("threads = {}: use at least 1", o.threads));
  if (o.buffers < 1 || o.buffers > most_buffers) {
    throw InvalidArgument(
        fmt::format("buffers = {}: use 2 to {}, or 1 to transfer and compute in turn", o.buffers, most_buffers));
  }
  const Extent3& chunk = o.x_chunk.extent;
  if (std::min({o.x_chunk.n, o.x_chunk.c, chunk.z, chunk.y, chunk.x}) < 1) {
    throw InvalidArgument(fmt::format("x_chunk = {}: use extents of at least 1", to_string(o.x_chunk)));
  }
  for (const auto& [name, price] :
       {std::pair("x", o.prices.x), std::pair("w", o.prices.w), std::pair("y", o.prices.y)}) {
    for (const auto& [part, value] :
         {std::pair("start", price.start), std::pair("jump", price.jump), std::pair("element", price.element)}) {
      if (!(value > 0) || value > 1e6) {
        throw InvalidArgument(fmt::format("the price of {}, {} = {}: use positive seconds", name, part, value));
      }
    }
  }
}

conv::StreamTerms terms_of(const ConvPlan& plan, const StreamOptions& o) {
  const double prepared = static_cast<double>(plan.prepared_weights(std::pmr::get_default_resource()).capacity());
  const double bytes_per_second = 1e9 * machine_model().dram_gb_per_s;
  return {.prices = o.prices,
          .buffers = o.buffers,
          .compute_seconds = plan.seconds() / o.threads,
          .prepare_seconds = preparation_moves * prepared / bytes_per_second / o.threads,
          .prepared_bytes = prepared};
}

}  // namespace

struct StreamedConv::Impl {
  ConvOptions options;
  ConvPlan plan;
  std::string note;
  int threads = 1;
  bool limited = false;  ///< whether there is a limit of memory
  conv::StreamCut cut;
  StreamCosts costs;
  std::vector<StreamCosts> others;  ///< of numbers of buffers that were compared and not taken

  conv::StreamTask task() const { return {.whole = plan, .options = options, .cut = cut, .buffers = costs.buffers}; }
};

namespace {

/// Finds the tiles of a streamed convolution.
class CutSearch {
 public:
  CutSearch(StreamedConv::Impl& impl, const StreamOptions& options)
      : impl_(impl),
        o_(options),
        units_(conv::units_of(impl.plan)),
        memory_(options.memory == 0 ? no_limit : options.memory) {
    const Shape5 x = impl.plan.problem().x_shape();
    const Shape5& chunk = options.x_chunk;
    units_.x_chunk = {1, std::min(chunk.c, x.c), Extent3::all(1)};
    for (int axis = 0; axis < 3; ++axis) {
      units_.x_chunk.extent[axis] = std::min(chunk.extent[axis], std::max<index_t>(1, x.extent[axis]));
    }
  }

  void take_given(const StreamTile& tile) {
    const conv::StreamTerms terms = terms_of(impl_.plan, o_);
    conv::StreamCut cut{.problem = impl_.plan.problem(),
                        .tile = conv::rounded(impl_.plan.problem(), units_, tile),
                        .whole_tile = units_.whole_tile,
                        .x_chunk = units_.x_chunk};
    conv::StreamCut other = cut;
    other.channels_outermost = true;
    if (conv::costs_of(other, terms).seconds < conv::costs_of(cut, terms).seconds) cut = other;
    if (const index_t tiles = conv::costs_of(cut, terms).tiles; tiles > conv::most_stream_tiles) {
      throw InvalidArgument(fmt::format("tiles of {} are {} tiles; use larger ones, at most {} tiles",
                                        to_string(cut.tile), tiles, conv::most_stream_tiles));
    }
    const StreamCosts costs = exact_costs(cut, terms);
    if (costs.peak_bytes > memory_) {
      throw InvalidArgument(fmt::format("memory = {}: tiles of {} need {} bytes; allow more, or use smaller tiles",
                                        memory_, to_string(cut.tile), costs.peak_bytes));
    }
    take({cut, costs});
  }

  /// Splits input channels only if nothing else fits, because that changes the rounding.
  void find_cheapest() {
    if (find_buffers(false) || find_buffers(true)) return;
    throw InvalidArgument(fmt::format("memory = {}: the tiles of {} that need least take {} bytes; allow at least that",
                                      memory_, to_string(impl_.plan.problem()), least_));
  }

 private:
  /// A cut, and its costs with the memory that its engine really needs.
  struct Candidate {
    conv::StreamCut cut;
    StreamCosts costs;
  };

  void take(const Candidate& candidate) {
    impl_.cut = candidate.cut;
    impl_.costs = candidate.costs;
  }

  StreamCosts exact_costs(const conv::StreamCut& cut, conv::StreamTerms terms) {
    const conv::EngineMemory engine =
        conv::engine_memory({.whole = impl_.plan, .options = impl_.options, .cut = cut}, o_.threads);
    terms.prepared_bytes = 0;
    terms.engine_bytes = engine.working + engine.prepared;
    const StreamCosts costs = conv::costs_of(cut, terms);
    least_ = std::min(least_, costs.peak_bytes);
    return costs;
  }

  /// Takes the number of buffers that is estimated to be fastest with its best tiles, the largest of equal ones.
  /// Returns whether any fits.
  bool find_buffers(bool may_split) {
    std::vector<Candidate> found;
    for (int buffers = o_.buffers; buffers >= std::min(2, o_.buffers); --buffers) {
      if (const auto candidate = find(may_split, buffers)) found.push_back(*candidate);
    }
    if (found.empty()) return false;
    const auto seconds = [](const Candidate& candidate) { return candidate.costs.seconds; };
    const double least = seconds(*std::min_element(
        found.begin(), found.end(), [&](const Candidate& a, const Candidate& b) { return seconds(a) < seconds(b); }));
    const auto best = std::find_if(found.begin(), found.end(),
                                   [&](const Candidate& one) { return clearly_faster * seconds(one) <= least; });
    take(*best);
    for (const Candidate& candidate : found) {
      if (candidate.costs.buffers != best->costs.buffers) impl_.others.push_back(candidate.costs);
    }
    return true;
  }

  /// What the engine needs is known only when a tile has a plan. So this tries tiles for less and less memory until the
  /// engine's part fits too. Returns nothing if no tile fits.
  std::optional<Candidate> find(bool may_split, int buffers) {
    conv::StreamTerms terms = terms_of(impl_.plan, o_);
    terms.buffers = buffers;
    std::optional<StreamTile> last;
    for (auto limit = static_cast<double>(memory_);; limit *= less_memory) {
      if (o_.stop.stop_requested()) throw StopRequested();
      const conv::StreamCut cut =
          conv::cheapest_cut(impl_.plan.problem(), units_, terms, static_cast<std::size_t>(limit), may_split);
      if (last != cut.tile) {
        const StreamCosts costs = exact_costs(cut, terms);
        if (costs.peak_bytes <= memory_) return Candidate{cut, costs};
      }
      if (static_cast<double>(conv::costs_of(cut, terms).peak_bytes) > limit) return std::nullopt;
      last = cut.tile;
    }
  }

  StreamedConv::Impl& impl_;
  const StreamOptions& o_;
  conv::StreamUnits units_;
  std::size_t memory_, least_ = no_limit;
};

/// Returns a line that says which numbers of buffers were compared.
std::string explain_buffers(const StreamCosts& costs, const std::vector<StreamCosts>& others) {
  const auto [x, w, y] = costs.buffers;
  std::string text = fmt::format("  {} buffers of x, {} of w, {} of y: {:.3g} s estimated", x, w, y, costs.seconds);
  for (const StreamCosts& other : others) {
    text += fmt::format("; {} of x in {} tiles {}: {:.3g} s", other.buffers[0], other.tiles, to_string(other.tile),
                        other.seconds);
  }
  if (others.empty()) return text + "\n";
  const bool fastest = std::all_of(others.begin(), others.end(), [&](const StreamCosts& other) {
    return costs.seconds < other.seconds * clearly_faster;
  });
  return text + (fastest ? "; the fastest is taken\n" : "; of about equal ones, most buffers are taken\n");
}

std::string explain_costs(const StreamCosts& costs) {
  std::string text = fmt::format("  streamed in {} tiles {}, {} outermost, {:.1f} MiB\n", costs.tiles,
                                 to_string(costs.tile), costs.channels_outermost ? "output channels" : "voxels",
                                 static_cast<double>(costs.peak_bytes) / (1 << 20));
  constexpr std::array names{"x", "w", "y"};
  for (std::size_t i = 0; i < names.size(); ++i) {
    text += fmt::format("  {}: {} transfers, {:.1f} MiB in {} stretches, {:.3g} s\n", names[i], costs.loads[i],
                        costs.bytes[i] / (1 << 20), costs.runs[i], costs.transfer_seconds[i]);
  }
  return text +
         fmt::format("  computation {:.3g} s, all together {:.3g} s estimated\n", costs.compute_seconds, costs.seconds);
}

void check_tensor(const char* name, const std::string& tensor, const Shape5& shape, DataType type, const Shape5& wanted,
                  DataType wanted_type) {
  if (shape == wanted && type == wanted_type) return;
  throw ShapeMismatch(fmt::format("streamed convolution: {} ({}) is {} of {}, the problem needs {} of {}", name, tensor,
                                  to_string(shape), name_of(type), to_string(wanted), name_of(wanted_type)));
}

}  // namespace

std::string to_string(const StreamTile& t) {
  return fmt::format("n{} k{} z{} y{} x{} c{}", t.n, t.k, t.y.z, t.y.y, t.y.x, t.c);
}

double StreamReport::overlap() const noexcept {
  const double all = read_seconds + write_seconds + compute_seconds;
  const double longest = std::max({read_seconds, write_seconds, compute_seconds});
  return all > longest ? std::clamp((all - seconds) / (all - longest), 0.0, 1.0) : 1.0;
}

StreamedConv StreamedConv::make(const ConvProblem& problem, const StreamOptions& o) {
  check_options(problem, o);
  const ConvOptions options = forward_only(o.conv);
  std::string note;
  const ConvPlan plan = streamable_plan(problem, options, note);
  auto impl = std::make_shared<Impl>(Impl{.options = options,
                                          .plan = plan,
                                          .note = note,
                                          .threads = o.threads,
                                          .limited = o.memory != 0,
                                          .cut = {},
                                          .costs = {},
                                          .others = {}});
  CutSearch search(*impl, o);
  if (o.tile) {
    search.take_given(*o.tile);
  } else {
    search.find_cheapest();
  }
  return StreamedConv(std::move(impl));
}

const ConvProblem& StreamedConv::problem() const noexcept { return impl_->plan.problem(); }
const ConvPlan& StreamedConv::plan() const noexcept { return impl_->plan; }
const StreamCosts& StreamedConv::costs() const noexcept { return impl_->costs; }
std::string StreamedConv::explain() const {
  return impl_->plan.explain() + impl_->note + explain_costs(impl_->costs) +
         explain_buffers(impl_->costs, impl_->others);
}

std::optional<StreamReport> StreamedConv::run(const Execution& run, TensorSource& x, TensorSource& w,
                                              const ConstTensorView& bias, TensorSink& y,
                                              const std::function<void(index_t, index_t)>& progress,
                                              std::stop_token stop) const {
  const ConvProblem& p = problem();
  check_tensor("x", x.name(), x.shape(), x.type(), p.x_shape(), p.type);
  check_tensor("w", w.name(), w.shape(), w.type(), p.w_shape(), p.type);
  check_tensor("y", y.name(), y.shape(), y.type(), p.y_shape(), p.type);
  if (impl_->limited && run.scheduler.threads() > impl_->threads) {
    throw InvalidArgument(
        fmt::format("streamed convolution: {} threads would exceed the memory that was planned for {}; "
                    "set StreamOptions::threads",
                    run.scheduler.threads(), impl_->threads));
  }
  if (p.epilogue.bias) {
    conv::check_bias(p, bias);
    if (bias.data.get() == nullptr) throw ShapeMismatch("streamed convolution: bias is missing");
  }
  return conv::run_stream(impl_->task(), run, {.x = x, .w = w, .bias = bias, .y = y}, progress, std::move(stop));
}

}  // namespace convolume
