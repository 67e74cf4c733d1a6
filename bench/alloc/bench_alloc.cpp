// Benchmarks our allocator alone, or side by side with general allocators on the allocations of trainings.
#include <array>

#include "bench/alloc/alloc_replay.hpp"
#include "bench/alloc/alloc_side_by_side.hpp"
#include "bench/common/support.hpp"
#include "convolume/memory.hpp"

namespace convolume::bench {
namespace {

constexpr const char* description =
    "Allocating and freeing.\n\n"
    "Without --side-by-side: allocates and frees one block again and again, without options, with a budget, and\n"
    "hardened.\n\n"
    "With --side-by-side, or any option that only it has, SlabResource and general allocators do the same work in\n"
    "turn, each in a separate process. The work: the allocations of nets in training, recorded at the start, with\n"
    "tensors in an arena and with tasks that allocate and free every tensor (construction and destruction are\n"
    "replayed, but not timed); blocks that are replaced at random and pass from thread to thread (larson); and\n"
    "blocks that another thread frees (handover). One byte of every allocated page is written. Times are medians\n"
    "and quartiles over the rounds. Ratios are times divided by ours. Faults are page faults of a round; the\n"
    "first round of a process is listed separately. The peak is the growth of the process's resident memory.\n"
    "/live is the peak divided by the largest bytes that were allocated at once, which are counted in as many\n"
    "further rounds. General allocators are preloaded to replace malloc.";

struct Options {
  bool side_by_side = false;
  AllocContestOptions contest;
  ReplayOptions replay;
};

void allocate_and_free(benchmark::State& state, const SlabOptions& options) {
  SlabResource slab(options);
  std::pmr::memory_resource* memory = &slab;
  const auto bytes = static_cast<std::size_t>(state.range(0));
  for (auto _ : state) {
    void* block = memory->allocate(bytes, 64);
    benchmark::DoNotOptimize(block);
    memory->deallocate(block, bytes, 64);
  }
}

void add() {
  struct Mode {
    const char* name;
    SlabOptions options;
  };
  for (const Mode& mode : {Mode{"slab", {.hardened = false}}, Mode{"slab_budget", {.budget = 1_GiB, .hardened = false}},
                           Mode{"slab_hardened", {.hardened = true}}}) {
    benchmark::RegisterBenchmark(mode.name, [mode](benchmark::State& state) { allocate_and_free(state, mode.options); })
        ->ArgName("bytes")
        ->Arg(64)
        ->Arg(1000)
        ->Arg(20'000)
        ->Arg(100'000)
        ->Arg(4'000'000);
  }
}

constexpr std::array contest_flags{"--net",    "--set",        "--peers",      "--threads",
                                   "--rounds", "--iterations", "--operations", "--json"};

void add_options(CLI::App& app, Options& o) {
  AllocContestOptions& c = o.contest;
  c.peers = known_peers();
  c.nets = {CONVOLUME_ZOO "/width_depth.toml", CONVOLUME_ZOO "/unet_isotropic.toml"};
  app.add_flag("--side-by-side", o.side_by_side, "Compare allocators, in turn");
  app.add_option("--net", c.nets, "Net descriptions (TOML) whose training is recorded")
      ->check(CLI::ExistingFile)
      ->option_text("FILE ... [width_depth and unet_isotropic of the zoo]");
  app.add_option("--set", c.overrides, "table.key=value replaces a value of each description; may be repeated")
      ->option_text("KEY=VALUE ...");
  app.add_option("--peers", c.peers, "Other allocators, separated by commas")
      ->delimiter(',')
      ->check(CLI::IsMember(known_peers()))
      ->option_text("NAMES [glibc, and jemalloc, tbbmalloc, mimalloc if they were found]");
  app.add_option("--threads", c.threads, "Threads of the work, separated by commas")
      ->delimiter(',')
      ->check(CLI::Range(1, 1024))
      ->option_text("NUMBERS [1,2,4]");
  app.add_option("--rounds", c.rounds, "Rounds")->check(CLI::Range(1, 100000))->option_text("NUMBER [9]");
  app.add_option("--iterations", c.iterations, "Training iterations in a trace")
      ->check(CLI::Range(1, 1000))
      ->option_text("NUMBER [3]");
  app.add_option("--operations", c.operations, "Blocks that each thread allocates in a round of a pattern")
      ->check(CLI::Range(2000, 1000000000))
      ->option_text("NUMBER [200000]");
  app.add_option("--json", c.json, "File for the results")->option_text("FILE");
  // Options with which this program starts itself; see alloc_replay.hpp.
  app.add_option("--replay", o.replay.work)->group("");
  app.add_option("--allocator", o.replay.allocator)->group("");
  app.add_option("--library", o.replay.library)->group("");
}

int run_alloc(int argc, char** argv) {
  Options o;
  CLI::App app(description, "bench_alloc");
  add_options(app, o);
  app.final_callback([&] {
    for (const char* flag : contest_flags) o.side_by_side = o.side_by_side || app.count(flag) > 0;
    o.replay.threads = o.contest.threads.front();
    o.replay.operations = o.contest.operations;
  });
  return run(app, argc, argv, add, [&]() -> Mode {
    if (!o.replay.work.empty()) return [&] { return replay(o.replay); };
    if (o.side_by_side) return [&] { return alloc_side_by_side(o.contest); };
    return {};
  });
}

}  // namespace
}  // namespace convolume::bench

int main(int argc, char** argv) { return convolume::bench::run_alloc(argc, argv); }
