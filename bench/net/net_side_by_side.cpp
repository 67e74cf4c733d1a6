#include "bench/net/net_side_by_side.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <set>

#include <fmt/format.h>

#include "bench/common/contest.hpp"
#include "bench/common/progress_bar.hpp"
#include "bench/fft/fft_report.hpp"
#include "bench/net/net_choice.hpp"
#include "bench/net/net_competitor.hpp"
#include "convolume/error.hpp"
#include "core/files.hpp"

namespace convolume::bench {
namespace {

using Json = nlohmann::ordered_json;

constexpr double mib = 1u << 20;

std::int64_t total(const TransformCounts& c) { return c.input + c.weights + c.gradient + c.inverse; }

/// The ratio of the times of two competitors: median and quartiles of the ratios of single rounds.
struct Ratio {
  std::string what;
  Work work;
  const NetPeer* peer;  // null if both are ours
  double ratio = 0, low = 0, high = 0;

  Ratio(const std::string& name, const NetCompetitor& slow, const NetCompetitor& fast, const NetPeer* other = nullptr)
      : what(fmt::format("{}, {}", name, name_of(fast.work()))), work(fast.work()), peer(other) {
    const auto all = quotients(slow.seconds, fast.seconds);
    ratio = quantile(all, 0.5);
    low = quantile(all, 0.25);
    high = quantile(all, 0.75);
  }
  Json json() const {
    Json row{{"what", what}, {"work", name_of(work)}};
    if (peer != nullptr) row.update(Json{{"peer", peer->name}, {"setting", peer->setting}});
    row.update(Json{{"ratio", ratio}, {"ratio_low", low}, {"ratio_high", high}});
    return row;
  }
};

class NetContest {
 public:
  /// `said` holds messages about earlier nets, which are not printed again.
  NetContest(const NetContestOptions& options, const nets::NetSpec& spec, std::set<std::string>& said)
      : o_(options), spec_(spec), said_(said), shapes_(nets::infer_shapes(spec, spec.patch)) {
    // The threads of PyTorch, onnxruntime and oneDNN stay busy for a while behind each call.
    const bool rest =
        !o_.peers.empty() || std::find(o_.engines.begin(), o_.engines.end(), Engine::onednn) != o_.engines.end();
    for (const Work work : o_.works) {
      for (const Variant& variant : variants())
        ours_.push_back(std::make_unique<OurNet>(work, variant, rest, o_, spec_));
    }
  }

  void run(ProgressBar& bar, const StopRequest& stop) {
    // Peers start before our nets hold memory, because PyTorch is the first to run out of memory.
    for (const std::string& name : o_.peers) {
      for (const NetPeer& peer : settings_of(name)) add_peer(peer, bar);
    }
    // The first iteration has no update, and it fills the allocator.
    for (const auto& one : ours_) {
      bar.show(0, fmt::format("{}: plans and first call, {}", title(), one->name()));
      one->prepare();
    }
    std::vector<NetCompetitor*> all;
    for (const auto& one : ours_) all.push_back(one.get());
    for (const auto& one : peers_) all.push_back(one.get());
    auto seconds = take_turns(
        all.size(), {.rounds = o_.rounds, .min_seconds = o_.min_seconds},
        [&](std::size_t i) { return all[i]->sample(); },
        [&](double share) {
          bar.show(share, title());
          return !stop.pending();
        });
    for (std::size_t i = 0; i < all.size(); ++i) all[i]->seconds = std::move(seconds[i]);
    bar.clear();
    check_losses();
  }

  std::string title() const {
    return fmt::format("{}, {} voxels in, {} out", spec_.name, to_string(spec_.patch),
                       to_string(shapes_.output().extent));
  }

  void print() const {
    fmt::print("\n{}, batch {}, {} thread{}, {} rounds\n", title(), spec_.training.batch, o_.threads,
               o_.threads == 1 ? "" : "s", ours_.front()->seconds.size());
    fmt::print("{:9} {:32} {:>10}  {:19} {:>10} {:>8} {:>9} {:>9}\n", "", "", "ms", "quartiles", "voxels/s", "GFLOP/s",
               "peak MiB", "resident");
    for (const Work work : o_.works) {
      for (const auto& one : ours_) {
        if (one->work() == work) print_row(*one, one->label(), mebibytes(one->peak_bytes()));
      }
      for (const auto& one : peers_) {
        if (one->work() == work) print_row(*one, one->name(), "");
      }
    }
    print_phases();
    std::set<std::string> facts;
    for (const auto& one : peers_) facts.insert(fmt::format("{}: {}\n", one->name(), to_string(one->facts())));
    for (const std::string& line : facts) fmt::print("{}", line);
    for (const Ratio& r : ratios()) fmt::print("{}: {:.3f} ({:.3f} .. {:.3f})\n", r.what, r.ratio, r.low, r.high);
    std::fflush(stdout);
  }

  void add_to(Json& report) const {
    for (const auto& one : ours_) report["results"].push_back(row_of(*one));
    for (const auto& one : peers_) {
      Json row = net_json();
      row.update(Json{{"peer", one->peer().name}, {"setting", one->peer().setting}});
      bench::add_to(row, one->facts());
      row.update(common_json(*one));
      report["peers"].push_back(row);
    }
    for (const Json& one : left_out_) report["left_out"].push_back(one);
    for (const Ratio& r : ratios()) {
      Json row = net_json();
      row.update(r.json());
      report["ratios"].push_back(row);
    }
  }

  void add_to(std::vector<TracedProcess>& trace) const {
    for (const auto& one : ours_) trace.push_back({spec_.name + ", " + one->name(), one->last_call()});
  }

 private:
  std::vector<Variant> variants() const {
    std::vector<Variant> all;
    for (const Engine engine : o_.engines) {
      for (const fft::Backend backend : o_.backends) {
        for (const bool cache : o_.caches) {
          for (const nets::MemoryMode memory : o_.memory) {
            for (const auto hardened : o_.hardened) {
              for (const std::string& limit : o_.limits)
                all.push_back({engine, backend, cache, memory, hardened, limit});
            }
          }
        }
      }
    }
    return all;
  }

  /// Starts a peer with the net and calls it once for each kind of work. If that fails, the peer is left out, and the
  /// report says why.
  void add_peer(const NetPeer& peer, ProgressBar& bar) {
    bar.show(0, fmt::format("{}: {}", title(), peer.title()));
    std::vector<std::unique_ptr<PeerCompetitor>> made;
    try {
      const auto net = std::make_shared<PeerNet>(peer, spec_, o_.threads, o_.any_blas);
      // Inference comes first. Afterwards its peak of memory could not be distinguished from the peak of training.
      for (const Work work : {Work::inference, Work::training}) {
        if (std::find(o_.works.begin(), o_.works.end(), work) == o_.works.end()) continue;
        if (work == Work::training && !trains(peer.name)) continue;
        made.push_back(std::make_unique<PeerCompetitor>(work, peer, net));
        made.back()->prepare();
      }
    } catch (const Unsupported& error) {
      Json row = net_json();
      row.update(Json{{"peer", peer.name}, {"setting", peer.setting}, {"reason", error.what()}});
      left_out_.push_back(row);
      const std::string note = fmt::format("{} left out: {}\n", peer.title(), error.what());
      bar.clear();
      if (said_.insert(note).second) fmt::print("{}", note);
      return;
    }
    for (auto& one : made) peers_.push_back(std::move(one));
  }

  static std::string mebibytes(std::size_t bytes) { return fmt::format("{:.1f}", static_cast<double>(bytes) / mib); }

  /// Prints a row. The peak of allocated bytes is known only for our competitors.
  void print_row(const NetCompetitor& one, const std::string& name, const std::string& peak) const {
    fmt::print("{:9} {:32} {:10.2f}  {:19} {:10.3g} {:8.1f} {:>9} {:>9}\n", name_of(one.work()), name,
               1e3 * one.median(), fmt::format("{:.2f} .. {:.2f}", 1e3 * one.low(), 1e3 * one.high()),
               voxels() / one.median(), 1e-9 * flops(one.work()) / one.median(), peak, mebibytes(one.resident_bytes()));
  }

  void print_phases() const {
    fmt::print("{:42} {:^31}  {:^49}\n{:42} {:>7} {:>7} {:>7} {:>7}  {:>9} {:>9} {:>9} {:>9} {:>9}\n", "",
               "transforms of", "ms of all threads together", "", "x", "w", "dy", "inverse", "transform", "product",
               "inverse", "ops", "other");
    for (const auto& one : ours_) {
      const TransformCounts& t = one->transforms();
      const Phases p = one->phases();
      fmt::print("{:9} {:32} {:7} {:7} {:7} {:7}  {:9.2f} {:9.2f} {:9.2f} {:9.2f} {:9.2f}\n", name_of(one->work()),
                 one->label(), t.input, t.weights, t.gradient, t.inverse, 1e3 * p.transform, 1e3 * p.product,
                 1e3 * p.inverse, 1e3 * p.ops, 1e3 * p.other);
    }
  }

  Json net_json() const {
    const Extent3& out = shapes_.output().extent;
    return {{"net", spec_.name},
            {"input", {spec_.patch.z, spec_.patch.y, spec_.patch.x}},
            {"output", {out.z, out.y, out.x}},
            {"batch", spec_.training.batch},
            {"threads", o_.threads},
            {"rounds", ours_.front()->seconds.size()}};
  }

  Json common_json(const NetCompetitor& one) const {
    return {{"work", name_of(one.work())},
            {"seconds", one.median()},
            {"seconds_low", one.low()},
            {"seconds_high", one.high()},
            {"voxels_per_second", voxels() / one.median()},
            {"gflops", 1e-9 * flops(one.work()) / one.median()},
            {"resident_bytes", one.resident_bytes()}};
  }

  Json row_of(const OurNet& one) const {
    const TransformCounts& t = one.transforms();
    const Phases p = one.phases();
    Json row = net_json();
    row.update(Json{{"engine", name_of(one.variant().engine)},
                    {"backend", name_of(one.variant().backend)},
                    {"cache", name_of_cache(one.variant().cache)},
                    {"memory", name_of(one.variant().memory)},
                    {"limit", one.variant().limit}});
    if (one.variant().hardened) row["hardened"] = *one.variant().hardened;
    row.update(common_json(one));
    row.update(Json{{"peak_bytes", one.peak_bytes()},
                    {"transforms_input", t.input},
                    {"transforms_weights", t.weights},
                    {"transforms_gradient", t.gradient},
                    {"transforms_inverse", t.inverse},
                    {"transforms", total(t)},
                    {"transform_share", (p.transform + p.inverse) / (o_.threads * one.median())},
                    {"transform_seconds", p.transform},
                    {"product_seconds", p.product},
                    {"inverse_seconds", p.inverse},
                    {"ops_seconds", p.ops},
                    {"other_seconds", p.other},
                    {"tasks", one.net().graph().size()}});
    return row;
  }

  double voxels() const { return ours_.front()->net().output_voxels(); }
  double flops(Work work) const {
    return (*std::find_if(ours_.begin(), ours_.end(), [&](const auto& one) { return one->work() == work; }))
        ->net()
        .flops();
  }

  const OurNet* find(Work work, const Variant& variant) const {
    const auto found = std::find_if(ours_.begin(), ours_.end(),
                                    [&](const auto& one) { return one->work() == work && one->variant() == variant; });
    return found == ours_.end() ? nullptr : found->get();
  }

  /// Returns the peers of one kind of work that count: of each library its fastest setting in our precision, and all
  /// settings in another precision.
  std::vector<const PeerCompetitor*> peers_to_compare(Work work) const {
    std::vector<const PeerCompetitor*> all;
    for (const auto& one : peers_) {
      if (one->work() != work) continue;
      const auto same = std::find_if(all.begin(), all.end(), [&](const PeerCompetitor* other) {
        return other->peer().name == one->peer().name && other->peer().same_precision() == one->peer().same_precision();
      });
      if (same == all.end()) {
        all.push_back(one.get());
      } else if (one->median() < (*same)->median()) {
        *same = one.get();
      }
    }
    return all;
  }

  std::vector<Ratio> ratios() const {
    std::vector<Ratio> all;
    // With several engines, each comparison names the engine.
    const auto engine_of_row = [this](const OurNet& one) {
      return o_.engines.size() > 1 ? fmt::format(", {}", name_of(one.variant().engine)) : std::string();
    };
    const auto compare = [&](const OurNet& fast, const Variant& slower, const std::string& what) {
      const OurNet* slow = find(fast.work(), slower);
      const bool same_engine = slower.engine == fast.variant().engine;
      if (slow != nullptr && slow != &fast) {
        all.emplace_back(same_engine ? what + engine_of_row(fast) : what, *slow, fast);
      }
    };
    for (const auto& one : ours_) {
      const Variant& variant = one->variant();
      const auto with = [&variant](auto Variant::*field, auto value) {
        Variant other = variant;
        other.*field = value;
        return other;
      };
      if (variant.engine == o_.engines.front()) {
        for (const Engine engine : o_.engines) {
          compare(*one, with(&Variant::engine, engine),
                  fmt::format("time of {} over {}, {}", name_of(engine), name_of(variant.engine),
                              name_of(variant.backend)));
        }
      }
      if (variant.backend == fft::Backend::native) {
        compare(*one, with(&Variant::backend, fft::Backend::fftw),
                fmt::format("FFTW's time over native, cache {}", name_of_cache(variant.cache)));
      }
      if (variant.cache) {
        compare(*one, with(&Variant::cache, false),
                fmt::format("time without over with caching, {}", name_of(variant.backend)));
      }
      if (variant.memory == nets::MemoryMode::arena) {
        for (const auto memory : {nets::MemoryMode::slab, nets::MemoryMode::separate}) {
          compare(*one, with(&Variant::memory, memory),
                  fmt::format("time of {} over arena, {}{}", name_of(memory), name_of(variant.backend),
                              checks_of(variant)));
        }
      }
      if (variant.limit == o_.limits.front()) {
        for (const std::string& limit : o_.limits) {
          compare(*one, with(&Variant::limit, limit), fmt::format("time of limit {} over {}", limit, variant.limit));
        }
      }
      if (variant.hardened == false) {
        compare(*one, with(&Variant::hardened, std::optional(true)),
                fmt::format("time of hardened over plain memory, {}, {}", name_of(variant.memory),
                            name_of(variant.backend)));
      }
      for (const PeerCompetitor* peer : peers_to_compare(one->work())) {
        all.emplace_back(fmt::format("time of {} over ours ({})", peer->name(), one->label()), *peer, *one,
                         &peer->peer());
      }
    }
    return all;
  }

  /// Checks that all competitors trained the same net on the same patches. With one engine and one backend, neither
  /// caching nor the memory mode may change any bit. Different engines and backends round differently.
  void check_losses() const {
    const OurNet& front = *ours_.front();
    for (const auto& one : ours_) {
      if (one->work() != Work::training) continue;
      const OurNet& same = *find(Work::training, {one->variant().engine, one->variant().backend, o_.caches.front(),
                                                  o_.memory.front(), o_.hardened.front(), o_.limits.front()});
      const OurNet& first = *find(Work::training, front.variant());
      const double loss = one->losses().front(), expected = first.losses().front();
      if (one->losses() == same.losses() && std::abs(loss - expected) <= 1e-3 * std::abs(expected)) continue;
      throw NumericalError(fmt::format("{}: the loss of {} is {:.9g}, that of {} is {:.9g}", title(), one->name(), loss,
                                       first.name(), expected));
    }
  }

  const NetContestOptions& o_;
  const nets::NetSpec& spec_;
  std::set<std::string>& said_;
  nets::NetShapes shapes_;
  std::vector<std::unique_ptr<OurNet>> ours_;
  std::vector<std::unique_ptr<PeerCompetitor>> peers_;
  std::vector<Json> left_out_;
};

/// Returns the load average of the last minute. It shows in the report whether other processes were running.
double load_average() {
  double load = 0;
  return getloadavg(&load, 1) == 1 ? load : 0;
}

/// Warns if other processes are running. OpenMP threads, as PyTorch's, spin while they wait for each other. On two CPUs
/// with other work this made a net take three times as long, which would be an unfair advantage for us.
void warn_of_load(double load) {
  constexpr double quiet = 0.5;
  if (load < quiet || std::getenv("OMP_WAIT_POLICY") != nullptr) return;
  fmt::print(
      "The load average is {:.1f}. Other work on the machine slows PyTorch down most. Wait until the machine is idle, "
      "or set OMP_WAIT_POLICY=passive in the environment.\n",
      load);
}

/// Returns the nets with each of the options' batches, or with their own batch if there are none.
std::vector<nets::NetSpec> nets_with_batches(const NetContestOptions& options) {
  if (options.batches.empty()) return make_nets(options);
  std::vector<nets::NetSpec> all;
  for (const index_t batch : options.batches) {
    NetContestOptions one = options;
    one.overrides.push_back(fmt::format("training.batch={}", batch));
    for (nets::NetSpec& spec : make_nets(one)) all.push_back(std::move(spec));
  }
  return all;
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
  const std::vector<nets::NetSpec> specs = nets_with_batches(options);
  Json report{{"machine", describe_fft_machine(DataType::f32)},
              {"engine", name_of(options.engines.front())},
              {"results", Json::array()},
              {"peers", Json::array()},
              {"ratios", Json::array()},
              {"left_out", Json::array()}};
  const double load = load_average();
  report["machine"]["load_average"] = load;
  if (!options.peers.empty()) warn_of_load(load);
  std::vector<TracedProcess> trace;
  std::set<std::string> said;
  if (!options.trace.empty())
    write_file_atomically(options.trace, chrome_trace(trace));  // an unwritable path must fail before the measurement
  const StopRequest stop;
  ReportFile file(options.json, report);
  ProgressBar bar;
  for (const nets::NetSpec& spec : specs) {
    if (stop.pending()) break;
    NetContest contest(options, spec, said);
    contest.run(bar, stop);
    contest.print();
    contest.add_to(report);
    file.write(report);
    if (options.trace.empty()) continue;
    contest.add_to(trace);
    write_file_atomically(options.trace, chrome_trace(trace));
  }
  return stop.pending() ? interrupted_status : 0;
}

}  // namespace convolume::bench
