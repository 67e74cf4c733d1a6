// Training iterations of whole nets on a synthetic volume.
#include <algorithm>
#include <filesystem>
#include <memory>
#include <vector>

#include <fmt/format.h>

#include "bench/support.hpp"
#include "convolume/cpu.hpp"
#include "convolume/memory.hpp"
#include "nets/io/synthetic.hpp"
#include "nets/trainer.hpp"

namespace convolume::bench {
namespace {

struct Options {
  std::vector<std::string> nets, overrides;
  std::string engine = "automatic";
  int threads = 0;
  double memory_gib = 4;
};

/// A volume a little larger than a patch, so that draws differ.
nets::Dataset synthetic_data(const Extent3& patch, std::pmr::memory_resource* memory) {
  nets::Dataset data;
  data.name = "synthetic";
  auto made = nets::make_synthetic_volume({.extent = patch + Extent3::all(8)}, memory);
  nets::normalise(made.image, data.normalisation);
  data.train.push_back({.image = std::move(made.image), .label = std::move(made.label), .mask = {}, .name = data.name});
  return data;
}

class Training {
 public:
  Training(const nets::NetSpec& spec, const Options& options, int threads)
      : scheduler_(threads),
        data_(synthetic_data(spec.patch, &memory_)),
        trainer_(spec, data_, 1,
                 {.training = true,
                  .engine = engine_of(options.engine),
                  .memory_budget = static_cast<std::size_t>(options.memory_gib * (1u << 30))},
                 scheduler_, &memory_),
        nodes_(spec.nodes.size()),
        batch_(spec.training.batch) {}

  void step() { trainer_.step(); }
  double output_voxels() const {
    return static_cast<double>(batch_ * trainer_.network().shapes().output().extent.volume());
  }
  double convolution_flops() const {
    double sum = 0;
    for (std::size_t i = 0; i < nodes_; ++i) {
      if (const ConvPlan* plan = trainer_.network().plan_of(i)) sum += plan->problem().flops();
    }
    return sum;
  }
  TransformCounts transforms() const {
    TransformCounts sum;
    for (std::size_t i = 0; i < nodes_; ++i) {
      const ConvPlan* plan = trainer_.network().plan_of(i);
      if (plan == nullptr) continue;
      const TransformCounts one = plan->transforms();
      sum.input += one.input;
      sum.weights += one.weights;
      sum.gradient += one.gradient;
      sum.inverse += one.inverse;
    }
    return sum;
  }
  std::size_t tasks() const { return trainer_.graph_size(); }
  std::size_t peak_bytes() const { return memory_.statistics().peak_bytes; }

 private:
  SlabResource memory_;
  Scheduler scheduler_;
  nets::Dataset data_;
  nets::Trainer trainer_;
  std::size_t nodes_;
  index_t batch_;
};

/// The net that was measured last: Google Benchmark calls a benchmark several times.
struct Last {
  std::string net;
  std::unique_ptr<Training> training;
};

void measure(benchmark::State& state, Training& training) {
  training.step();  // the first iteration has no update, and fills the allocator
  training.step();
  const TransformCounts before = training.transforms();
  const Stopwatch watch;
  for (auto _ : state) training.step();
  watch.rate(state, "voxels/s", training.output_voxels());
  // Forward, the gradient of the input and the gradient of the weights.
  watch.rate(state, "GFLOP/s", 3e-9 * training.convolution_flops());
  const TransformCounts after = training.transforms();
  const auto each = [&](std::int64_t count) {
    return static_cast<double>(count) / static_cast<double>(state.iterations());
  };
  state.counters["fft_x"] = each(after.input - before.input);
  state.counters["fft_w"] = each(after.weights - before.weights);
  state.counters["fft_dy"] = each(after.gradient - before.gradient);
  state.counters["inverse"] = each(after.inverse - before.inverse);
  state.counters["tasks"] = static_cast<double>(training.tasks());
  state.counters["MiB"] = static_cast<double>(training.peak_bytes()) / (1 << 20);
}

std::vector<std::string> zoo() {
  std::vector<std::string> files;
  for (const auto& entry : std::filesystem::directory_iterator(CONVOLUME_ZOO)) {
    if (entry.path().extension() == ".toml") files.push_back(entry.path().string());
  }
  std::sort(files.begin(), files.end());
  return files;
}

void add(const Options& options, Last& last) {
  const int threads = options.threads > 0 ? options.threads : available_cpus();
  for (const std::string& file : options.nets.empty() ? zoo() : options.nets) {
    const nets::NetSpec spec = nets::load_net(file, options.overrides);
    const std::string name = fmt::format("net/{}/{}/threads:{}", spec.name, options.engine, threads);
    benchmark::RegisterBenchmark(name.c_str(),
                                 [=, &options, &last](benchmark::State& state) {
                                   try {
                                     if (last.net != file) {
                                       last.training.reset();
                                       last.training = std::make_unique<Training>(spec, options, threads);
                                       last.net = file;
                                     }
                                     measure(state, *last.training);
                                   } catch (const std::exception& error) {
                                     fail(state, error.what());
                                   }
                                 })
        ->Unit(benchmark::kMillisecond)
        ->MeasureProcessCPUTime()
        ->UseRealTime();
  }
}

}  // namespace
}  // namespace convolume::bench

int main(int argc, char** argv) {
  using namespace convolume::bench;
  Options options;
  Last last;  // here, so that it is gone before static objects of the library are
  CLI::App app(
      "Training iterations of nets: update, forward, loss, backward, as one task graph.\n\n"
      "The data are a synthetic volume; patches and batch are those of the net's description. Terms: voxels/s counts\n"
      "output voxels that take part in the loss; GFLOP/s counts multiplications and additions of the direct way of "
      "all\n"
      "convolutions, forward and both gradients; fft_x, fft_w and fft_dy are forward transforms of inputs, weights "
      "and\n"
      "gradients per iteration, inverse what came back; tasks are those of the graph; MiB is the most memory held.",
      "bench_net");
  app.add_option("--net", options.nets, "Net descriptions (TOML); all of the zoo without it")
      ->check(CLI::ExistingFile)
      ->option_text("FILE ...");
  app.add_option("--set", options.overrides, "table.key=value on top of each description, may be repeated")
      ->option_text("KEY=VALUE ...");
  app.add_option("--engine", options.engine, "automatic, fft_volume or reference")
      ->check(CLI::IsMember({"automatic", "fft_volume", "reference"}))
      ->option_text("NAME [automatic]");
  app.add_option("--threads", options.threads, "Workers; 0 is one for each processor")
      ->check(CLI::Range(0, 1024))
      ->option_text("NUMBER [0]");
  app.add_option("--memory", options.memory_gib, "GiB that kept weight spectra may hold; 0 is no limit")
      ->check(CLI::Range(0.0, 1048576.0))
      ->option_text("NUMBER [4]");
  return run(app, argc, argv, [&] { add(options, last); });
}
