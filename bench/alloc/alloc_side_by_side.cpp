#include "bench/alloc/alloc_side_by_side.hpp"

#include <algorithm>
#include <array>
#include <cstdio>
#include <memory>
#include <sstream>

#include <fmt/format.h>
#include <unistd.h>

#include "bench/alloc/alloc_trace.hpp"
#include "bench/common/child_process.hpp"
#include "bench/common/contest.hpp"
#include "bench/common/progress_bar.hpp"
#include "bench/common/report.hpp"
#include "convolume/error.hpp"
#include "nets/spec/net_spec.hpp"

namespace convolume::bench {
namespace {

using Json = nlohmann::ordered_json;

struct Peer {
  const char* name;
  const char* preloaded;  // library to preload; "" means that the process has it anyway
  const char* library;    // part of its file name
};

constexpr std::array peers{
    Peer{"glibc", "", "libc.so"},
#ifdef CONVOLUME_BENCH_JEMALLOC
    Peer{"jemalloc", CONVOLUME_BENCH_JEMALLOC, "libjemalloc"},
#endif
#ifdef CONVOLUME_BENCH_TBBMALLOC
    Peer{"tbbmalloc", CONVOLUME_BENCH_TBBMALLOC, "libtbbmalloc"},
#endif
#ifdef CONVOLUME_BENCH_MIMALLOC
    Peer{"mimalloc", CONVOLUME_BENCH_MIMALLOC, "libmimalloc"},
#endif
};

/// Work that all allocators do.
struct Work {
  std::string name, what;  // `what` is a pattern or the file of a trace
  int threads;
  bool training;  // a trace of a training; the requirements apply to these
};

/// One allocator in a separate process, so that its peak of memory is its own.
class Competitor {
 public:
  Competitor(std::string name, const std::vector<std::string>& command) : name_(std::move(name)), child_(command) {}

  double sample() {
    std::istringstream answer(ask("round"));
    double seconds = 0;
    long faults = 0;
    answer >> seconds >> faults;
    faults_.push_back(static_cast<double>(faults));
    return seconds;
  }
  void finish() {
    std::istringstream answer(ask("peak"));
    answer >> peak_ >> live_;
  }

  const std::string& name() const { return name_; }
  double faults() const { return quantile(faults_, 0.5); }
  double first_faults() const { return faults_.front(); }
  double peak() const { return peak_; }
  double live() const { return live_; }
  std::vector<double> seconds;

 private:
  std::string ask(const char* question) {
    child_.write_line(question);
    auto answer = child_.read_line();
    if (!answer) throw Unsupported(fmt::format("{}: its process has ended; see its message above", name_));
    return *answer;
  }

  std::string name_;
  ChildProcess child_;
  std::vector<double> faults_;
  double peak_ = 0, live_ = 0;
};

std::string own_program() {
  std::array<char, 4096> path{};
  const ssize_t length = readlink("/proc/self/exe", path.data(), path.size());
  if (length <= 0) throw Unsupported("/proc/self/exe cannot be read; mount /proc");
  return std::string(path.data(), static_cast<std::size_t>(length));
}

/// A folder for traces, which is removed when the contest ends.
class TraceFolder {
 public:
  TraceFolder() {
    std::string name = (std::filesystem::temp_directory_path() / "bench_alloc_XXXXXX").string();
    if (mkdtemp(name.data()) == nullptr) throw IoError(name + ": cannot be made; set TMPDIR to a folder with room");
    folder_ = name;
  }
  ~TraceFolder() {
    std::error_code ignored;
    std::filesystem::remove_all(folder_, ignored);
  }
  TraceFolder(const TraceFolder&) = delete;
  TraceFolder& operator=(const TraceFolder&) = delete;

  Work add(const AllocTrace& trace) {
    const auto file = folder_ / fmt::format("{}.trace", count_++);
    write_trace(trace, file);
    return {trace.name, file.string(), trace.threads, true};
  }

 private:
  std::filesystem::path folder_;
  int count_ = 0;
};

class AllocContest {
 public:
  explicit AllocContest(const AllocContestOptions& options) : o_(options), program_(own_program()) {
    report_ = {{"machine", describe_machine(DataType::f32)}, {"results", Json::array()}, {"musts", Json::array()}};
  }

  int run() {
    ReportFile file(o_.json, report_);
    fmt::print("{:38} {:>7} {:10} {:>10} {:>19} {:>7} {:>9} {:>9} {:>9} {:>6}\n", "work", "threads", "allocator",
               "time", "quartiles", "ratio", "faults", "1st round", "peak MiB", "/live");
    for (const int threads : o_.threads) {
      for (const Work& work : jobs(threads)) {
        if (stop_.pending()) break;
        measure(work);
        file.write(report_);
      }
    }
    print_musts();
    file.write(report_);
    return stop_.pending() ? interrupted_status : 0;
  }

 private:
  std::vector<Work> jobs(int threads) {
    std::vector<Work> works;
    for (const std::string& net : o_.nets) {
      const nets::NetSpec spec = nets::load_net(net, o_.overrides);
      bar_.show(0, fmt::format("{}, {} threads: recording", spec.name, threads));
      for (const auto mode : {nets::MemoryMode::arena, nets::MemoryMode::slab}) {
        works.push_back(folder_.add(record_training(spec, mode, threads, o_.iterations)));
      }
    }
    for (const char* pattern : {"larson", "handover"}) works.push_back({pattern, pattern, threads, false});
    return works;
  }

  std::vector<std::string> command(const Peer* peer, const Work& work) const {
    std::vector<std::string> result;
    if (peer != nullptr && *peer->preloaded != '\0')
      result = {"/usr/bin/env", fmt::format("LD_PRELOAD={}", peer->preloaded)};
    for (const std::string& part :
         {program_, std::string("--replay"), work.what, std::string("--allocator"),
          std::string(peer == nullptr ? "slab" : peer->name), std::string("--library"),
          std::string(peer == nullptr ? "" : peer->library), std::string("--threads"), std::to_string(work.threads),
          std::string("--operations"), std::to_string(o_.operations)}) {
      result.push_back(part);
    }
    return result;
  }

  void measure(const Work& work) {
    std::vector<std::unique_ptr<Competitor>> all;
    all.push_back(std::make_unique<Competitor>("slab", command(nullptr, work)));
    for (const Peer& peer : peers) {
      if (std::find(o_.peers.begin(), o_.peers.end(), peer.name) == o_.peers.end()) continue;
      all.push_back(std::make_unique<Competitor>(peer.name, command(&peer, work)));
    }
    for (const auto& one : all) one->sample();  // fills the allocator
    const auto seconds = take_turns(
        all.size(), {.rounds = o_.rounds, .min_seconds = 0}, [&](std::size_t i) { return all[i]->sample(); },
        [&](double share) {
          bar_.show(share, fmt::format("{}, {} threads", work.name, work.threads));
          return !stop_.pending();
        });
    bar_.clear();
    for (std::size_t i = 0; i < all.size(); ++i) {
      all[i]->seconds = seconds[i];
      all[i]->finish();
    }
    for (const auto& one : all) print(work, *one, *all[0]);
    judge(work, all);
  }

  void print(const Work& work, const Competitor& one, const Competitor& ours) {
    const double median = quantile(one.seconds, 0.5), low = quantile(one.seconds, 0.25),
                 high = quantile(one.seconds, 0.75);
    const auto ratios = quotients(one.seconds, ours.seconds);
    const double live = one.live();
    const std::string over = live > 0 ? fmt::format("{:.2f}", one.peak() / live) : "-";
    fmt::print("{:38} {:>7} {:10} {:>10} {:>19} {:>7.2f} {:>9.0f} {:>9.0f} {:>9.1f} {:>6}\n", work.name, work.threads,
               one.name(), time_text(median), fmt::format("{}-{}", time_text(low), time_text(high)),
               quantile(ratios, 0.5), one.faults(), one.first_faults(), one.peak() / (1 << 20), over);
    std::fflush(stdout);
    report_["results"].push_back({{"work", work.name},
                                  {"threads", work.threads},
                                  {"allocator", one.name()},
                                  {"seconds", median},
                                  {"seconds_low", low},
                                  {"seconds_high", high},
                                  {"ratio", quantile(ratios, 0.5)},
                                  {"ratio_low", quantile(ratios, 0.25)},
                                  {"ratio_high", quantile(ratios, 0.75)},
                                  {"faults", one.faults()},
                                  {"faults_of_first_round", one.first_faults()},
                                  {"peak_bytes", one.peak()},
                                  {"live_peak_bytes", live},
                                  {"rounds", one.seconds.size()}});
  }

  /// Judges the traces of trainings. Requires that our time is within 5 % of the fastest peer, and that our peak is at
  /// most 1.25 times the live bytes.
  void judge(const Work& work, const std::vector<std::unique_ptr<Competitor>>& all) {
    if (!work.training || all.size() < 2) return;
    const auto median = [](const auto& one) { return quantile(one->seconds, 0.5); };
    const auto best = std::min_element(all.begin() + 1, all.end(),
                                       [&](const auto& a, const auto& b) { return median(a) < median(b); });
    const double speed = quantile(quotients((*best)->seconds, all[0]->seconds), 0.5);
    const double memory = all[0]->peak() / all[0]->live();
    report_["musts"].push_back({{"work", work.name},
                                {"threads", work.threads},
                                {"best_peer", (*best)->name()},
                                {"its_time_over_ours", speed},
                                {"peak_over_live", memory},
                                {"fast", speed >= 1 / 1.05},
                                {"small", memory <= 1.25}});
  }

  void print_musts() {
    fmt::print("\n");
    for (const Json& must : report_["musts"]) {
      fmt::print("{}, {} threads: {} takes {:.2f} times our time ({}); our peak is {:.2f} times what is live ({})\n",
                 must["work"].get<std::string>(), must["threads"].get<int>(), must["best_peer"].get<std::string>(),
                 must["its_time_over_ours"].get<double>(), must["fast"].get<bool>() ? "holds" : "MISSED",
                 must["peak_over_live"].get<double>(), must["small"].get<bool>() ? "holds" : "MISSED");
    }
  }

  const AllocContestOptions& o_;
  std::string program_;
  TraceFolder folder_;
  Json report_;
  StopRequest stop_;
  ProgressBar bar_;
};

}  // namespace

std::vector<std::string> known_peers() {
  std::vector<std::string> names;
  for (const Peer& peer : peers) names.emplace_back(peer.name);
  return names;
}

int alloc_side_by_side(const AllocContestOptions& options) { return AllocContest(options).run(); }

}  // namespace convolume::bench
