#include "bench/net_side_by_side.hpp"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <memory>

#include <fmt/format.h>

#include "bench/contest.hpp"
#include "bench/fft_report.hpp"
#include "bench/net_training.hpp"
#include "bench/progress_bar.hpp"
#include "convolume/error.hpp"

namespace convolume::bench {
namespace {

using Json = nlohmann::ordered_json;
using Clock = std::chrono::steady_clock;

constexpr double gib = 1u << 30;

const char* name_of(bool cache) { return cache ? "on" : "off"; }

const std::string& name_of(fft::Backend backend) {
  const auto& names = backend_names();
  return std::find_if(names.begin(), names.end(), [&](const auto& name) { return name.second == backend; })->first;
}

/// One way to train the net, and what it was measured to take.
struct NetContestant {
  fft::Backend backend;
  bool cache;
  std::unique_ptr<NetTraining> training{};
  TransformCounts before{};
  std::vector<double> seconds{}, losses{};  // of the rounds

  nets::NetworkOptions options(const NetContestOptions& o) const {
    return {.engine = engine_of(o.engine),
            .memory_budget = 0,
            .fft = {.backend = backend, .rigor = backend == fft::Backend::native ? fft::Rigor::estimate : o.rigor},
            .cache_spectra = cache};
  }
  double median() const { return quantile(seconds, 0.5); }
  /// Per iteration.
  TransformCounts transforms() const {
    const TransformCounts after = training->transforms();
    const auto rounds = static_cast<std::int64_t>(seconds.size());
    return {.input = (after.input - before.input) / rounds,
            .weights = (after.weights - before.weights) / rounds,
            .gradient = (after.gradient - before.gradient) / rounds,
            .inverse = (after.inverse - before.inverse) / rounds,
            .seconds = (after.seconds - before.seconds) / static_cast<double>(rounds)};
  }
};

std::int64_t total(const TransformCounts& c) { return c.input + c.weights + c.gradient + c.inverse; }

/// Bytes that an iteration holds at most, by the plans of the net: an estimate to choose an extent by.
double estimated_bytes(const nets::NetSpec& spec, const NetContestOptions& o, bool cache) {
  const nets::NetShapes shapes = nets::infer_shapes(spec, spec.patch);
  double kept = 0, transient = 0;
  for (std::size_t i = 0; i < spec.nodes.size(); ++i) {
    const auto batch = static_cast<double>(spec.training.batch);
    const nets::NodeShape& shape = shapes.nodes[i];
    // Outputs and their gradients.
    kept += 2 * sizeof(float) * batch * static_cast<double>(shape.channels * shape.extent.volume());
    const auto* conv = std::get_if<nets::ConvNode>(&spec.nodes[i].kind);
    if (conv == nullptr) continue;
    const auto problem =
        nets::conv_problem(spec, spec.nodes[i], *conv, spec.training.batch, shapes.of(spec.nodes[i].inputs[0]));
    // Weights with gradient and moments of the optimiser.
    kept += 4 * sizeof(float) * static_cast<double>(problem.w_shape().elements());
    // The layout of spectra does not depend on who computes them.
    double layer = 0;
    for (const CacheCost& one :
         ConvPlan::make(problem, {.engine = engine_of(o.engine), .cache_spectra = cache}).caches()) {
      const auto bytes = static_cast<double>(one.bytes);
      if (one.kept && one.name != "dy_hat") {
        kept += bytes;
      } else if (one.name != "w_hat") {
        layer += bytes;
      }
    }
    transient = std::max(transient, 2 * layer);
  }
  return kept + transient;
}

double estimated_gib(const nets::NetSpec& spec, const NetContestOptions& o) {
  double bytes = 0;
  for (const bool cache : o.caches) {
    bytes += static_cast<double>(o.backends.size()) * estimated_bytes(spec, o, cache);
  }
  constexpr double rounding = 1.1;  // of blocks to size classes, and what is not worth a term
  return rounding * bytes / gib;
}

nets::NetSpec width_depth_net(const NetContestOptions& o, index_t width, index_t extent) {
  std::vector<std::string> overrides = o.overrides;
  for (const auto& [key, value] : {std::pair<const char*, index_t>{"generator.width", width},
                                   {"generator.depth", o.depth},
                                   {"generator.kernel", o.kernel},
                                   {"input.patch", extent}}) {
    overrides.push_back(fmt::format("{}={}", key, value));
  }
  return nets::load_net(CONVOLUME_ZOO "/width_depth.toml", overrides);
}

[[noreturn]] void refuse_memory(const nets::NetSpec& spec, const NetContestOptions& o, const char* remedy) {
  throw InvalidArgument(fmt::format("{} of {} voxels needs about {:.1f} GiB for {} contestants, --memory allows {}; {}",
                                    spec.name, to_string(spec.patch), estimated_gib(spec, o),
                                    o.backends.size() * o.caches.size(), o.memory_gib, remedy));
}

/// The net of this width whose contestants fit into memory together.
nets::NetSpec width_depth_net(const NetContestOptions& o, index_t width) {
  const index_t smallest = o.depth * (o.kernel - 1) + 1;  // one voxel of output
  if (o.extent && *o.extent < smallest) {
    throw InvalidArgument(fmt::format("--extent {}: {} layers of kernel {} leave nothing of it; use at least {}",
                                      *o.extent, o.depth, o.kernel, smallest));
  }
  constexpr index_t largest = 48;
  index_t extent = o.extent.value_or(std::max(largest, smallest));
  nets::NetSpec spec = width_depth_net(o, width, extent);
  while (estimated_gib(spec, o) > o.memory_gib) {
    if (o.extent) refuse_memory(spec, o, "use a smaller --extent, fewer contestants, or more");
    if (extent == smallest) refuse_memory(spec, o, "use fewer contestants or more");
    spec = width_depth_net(o, width, --extent);
  }
  return spec;
}

/// How many times longer one contestant takes than another one: the ratio of medians and quartiles over the rounds.
struct Ratio {
  std::string what;
  double ratio, low, high;

  Ratio(std::string name, const NetContestant& slow, const NetContestant& fast)
      : what(std::move(name)), ratio(slow.median() / fast.median()) {
    const auto all = quotients(slow.seconds, fast.seconds);
    low = quantile(all, 0.25);
    high = quantile(all, 0.75);
  }
  Json json() const { return {{"what", what}, {"ratio", ratio}, {"ratio_low", low}, {"ratio_high", high}}; }
};

class NetContest {
 public:
  NetContest(const NetContestOptions& options, const nets::NetSpec& spec) : o_(options), spec_(spec) {
    for (const fft::Backend backend : o_.backends) {
      for (const bool cache : o_.caches) contestants_.push_back({.backend = backend, .cache = cache});
    }
  }

  void run(ProgressBar& bar, const StopRequest& stop) {
    // The first iteration has no update and fills the allocator; its duration only serves the progress bar.
    for (NetContestant& c : contestants_) {
      bar.show(
          0, fmt::format("{}: plans and first iteration, {} cache {}", title(), name_of(c.backend), name_of(c.cache)));
      c.training = std::make_unique<NetTraining>(spec_, c.options(o_), o_.threads);
      c.training->step();
      c.before = c.training->transforms();
    }
    const auto begin = Clock::now();
    const auto elapsed = [&] { return std::chrono::duration<double>(Clock::now() - begin).count(); };
    for (int round = 0; (round < o_.rounds || elapsed() < o_.min_seconds) && !(stop.pending() && round > 0); ++round) {
      bar.show(std::min(round / static_cast<double>(o_.rounds), elapsed() / std::max(o_.min_seconds, 1e-9)),
               fmt::format("{}: round {}", title(), round + 1));
      for (std::size_t turn = 0; turn < contestants_.size(); ++turn) {
        // Another one begins each round, so that a slow drift of the machine hits all alike.
        NetContestant& c = contestants_[(turn + static_cast<std::size_t>(round)) % contestants_.size()];
        const auto start = Clock::now();
        c.losses.push_back(c.training->step());
        c.seconds.push_back(std::chrono::duration<double>(Clock::now() - start).count());
      }
    }
    bar.clear();
    check_losses();
  }

  std::string title() const {
    const nets::NetShapes shapes = nets::infer_shapes(spec_, spec_.patch);
    return fmt::format("{}, {} voxels in, {} out", spec_.name, to_string(spec_.patch),
                       to_string(shapes.output().extent));
  }

  void print() const {
    fmt::print("\n{}, {} thread{}, {} rounds\n", title(), o_.threads, o_.threads == 1 ? "" : "s",
               contestants_.front().seconds.size());
    fmt::print("{:8} {:5} {:>11}  {:19} {:>8} {:>8} {:>8} {:>8} {:>10} {:>9}\n", "backend", "cache", "s/iteration",
               "quartiles", "fft_x", "fft_w", "fft_dy", "inverse", "in FFTs", "peak MiB");
    for (const NetContestant& c : contestants_) {
      const TransformCounts t = c.transforms();
      fmt::print(
          "{:8} {:5} {:11.4f}  {:19} {:8} {:8} {:8} {:8} {:8.1f} % {:9.1f}\n", name_of(c.backend), name_of(c.cache),
          c.median(), fmt::format("{:.4f} .. {:.4f}", quantile(c.seconds, 0.25), quantile(c.seconds, 0.75)), t.input,
          t.weights, t.gradient, t.inverse, 100 * share(c), static_cast<double>(c.training->peak_bytes()) / (1u << 20));
    }
    for (const Ratio& r : ratios()) fmt::print("{}: {:.3f} ({:.3f} .. {:.3f})\n", r.what, r.ratio, r.low, r.high);
    std::fflush(stdout);
  }

  void add_to(Json& report) const {
    const nets::NetShapes shapes = nets::infer_shapes(spec_, spec_.patch);
    Json net{{"net", spec_.name},
             {"input", {spec_.patch.z, spec_.patch.y, spec_.patch.x}},
             {"output", {shapes.output().extent.z, shapes.output().extent.y, shapes.output().extent.x}},
             {"threads", o_.threads},
             {"rounds", contestants_.front().seconds.size()}};
    for (const NetContestant& c : contestants_) {
      const TransformCounts t = c.transforms();
      Json row = net;
      row.update(Json{{"backend", name_of(c.backend)},
                      {"cache", name_of(c.cache)},
                      {"seconds", c.median()},
                      {"seconds_low", quantile(c.seconds, 0.25)},
                      {"seconds_high", quantile(c.seconds, 0.75)},
                      {"transforms_input", t.input},
                      {"transforms_weights", t.weights},
                      {"transforms_gradient", t.gradient},
                      {"transforms_inverse", t.inverse},
                      {"transforms", total(t)},
                      {"transform_share", share(c)},
                      {"peak_bytes", c.training->peak_bytes()}});
      report["results"].push_back(row);
    }
    for (const Ratio& r : ratios()) {
      Json row = net;
      row.update(r.json());
      report["ratios"].push_back(row);
    }
  }

 private:
  /// Of the time of all workers, what they spend inside transforms.
  double share(const NetContestant& c) const {
    double seconds = 0;
    for (const double one : c.seconds) seconds += one;
    return c.transforms().seconds * static_cast<double>(c.seconds.size()) / (seconds * o_.threads);
  }

  const NetContestant* find(fft::Backend backend, bool cache) const {
    const auto found = std::find_if(contestants_.begin(), contestants_.end(),
                                    [&](const NetContestant& c) { return c.backend == backend && c.cache == cache; });
    return found == contestants_.end() ? nullptr : &*found;
  }

  std::vector<Ratio> ratios() const {
    std::vector<Ratio> all;
    for (const bool cache : o_.caches) {
      const auto *native = find(fft::Backend::native, cache), *fftw = find(fft::Backend::fftw, cache);
      if (native == nullptr || fftw == nullptr) continue;
      all.emplace_back(fmt::format("FFTW's time over native, cache {}", name_of(cache)), *fftw, *native);
    }
    for (const fft::Backend backend : o_.backends) {
      const auto *on = find(backend, true), *off = find(backend, false);
      if (on == nullptr || off == nullptr) continue;
      all.emplace_back(fmt::format("time without over with caching, {}", name_of(backend)), *off, *on);
    }
    return all;
  }

  /// All contestants train the same net on the same patches. With one backend caching changes no bit; backends round
  /// differently.
  void check_losses() const {
    const NetContestant& front = contestants_.front();
    for (const NetContestant& c : contestants_) {
      const NetContestant& same = *std::find_if(contestants_.begin(), contestants_.end(),
                                                [&](const NetContestant& other) { return other.backend == c.backend; });
      const double loss = c.losses.front(), expected = front.losses.front();
      if (c.losses == same.losses && std::abs(loss - expected) <= 1e-3 * std::abs(expected)) continue;
      throw NumericalError(fmt::format("{}: the loss with {}, cache {}, is {:.9g}, with {}, cache {}, it is {:.9g}",
                                       title(), name_of(c.backend), name_of(c.cache), loss, name_of(front.backend),
                                       name_of(front.cache), expected));
    }
  }

  const NetContestOptions& o_;
  const nets::NetSpec& spec_;
  std::vector<NetContestant> contestants_;
};

std::vector<nets::NetSpec> make_nets(const NetContestOptions& o) {
  std::vector<nets::NetSpec> specs;
  for (const std::string& file : o.nets) {
    specs.push_back(nets::load_net(file, o.overrides));
    if (estimated_gib(specs.back(), o) > o.memory_gib) {
      refuse_memory(specs.back(), o, "use a smaller patch, fewer contestants, or more");
    }
  }
  if (!o.nets.empty()) return specs;
  for (const index_t width : o.widths) {
    specs.push_back(width_depth_net(o, width));
    specs.back().name = fmt::format("{} x {} of {}", width, o.depth, to_string(Extent3::all(o.kernel)));
  }
  return specs;
}

}  // namespace

const std::map<std::string, fft::Backend>& backend_names() {
  static const std::map<std::string, fft::Backend> names{{"native", fft::Backend::native},
                                                         {"fftw", fft::Backend::fftw}};
  return names;
}

const std::map<std::string, fft::Rigor>& rigor_names() {
  static const std::map<std::string, fft::Rigor> names{
      {"estimate", fft::Rigor::estimate}, {"measure", fft::Rigor::measure}, {"patient", fft::Rigor::patient}};
  return names;
}

int net_side_by_side(const NetContestOptions& options) {
  const std::vector<nets::NetSpec> specs = make_nets(options);
  Json report{{"machine", describe_fft_machine(DataType::f32)},
              {"engine", options.engine},
              {"results", Json::array()},
              {"ratios", Json::array()}};
  const StopRequest stop;
  ReportFile file(options.json, report);
  ProgressBar bar;
  for (const nets::NetSpec& spec : specs) {
    if (stop.pending()) break;
    NetContest contest(options, spec);
    contest.run(bar, stop);
    contest.print();
    contest.add_to(report);
    file.write(report);
  }
  return stop.pending() ? interrupted_status : 0;
}

}  // namespace convolume::bench
