#include "bench/conv/conv_passes.hpp"

#include <cstdio>
#include <map>

#include <fmt/format.h>

#include "bench/common/report.hpp"
#include "bench/conv/conv_competitor.hpp"
#include "bench/peers/c_loops_convolution.hpp"
#include "bench/peers/im2col_convolution.hpp"
#include "bench/peers/onednn_convolution.hpp"

namespace convolume::bench {
namespace {

/// Owns the data, and the competitor that reads it.
struct CompetitorPasses {
  CompetitorPasses(const ConvBenchOptions& options, const NamedProblem& named) : data(named.problem) {
    data.fill_normal();
    competitor = make(options, named.problem);
  }

  ConvData data;
  std::unique_ptr<ConvCompetitor> competitor;
  std::map<Direction, std::string> choices{};  // of our plans

 private:
  std::unique_ptr<ConvCompetitor> make(const ConvBenchOptions& o, const ConvProblem& problem) {
    const ConvProblem laid_out = with_layout(problem, o.layouts.front());
    const auto planned = [&](ConvOptions conv) {
      PlannedConvolution::Options options{
          .conv = std::move(conv), .threads = o.threads, .prepare_forward = !o.cached_weights, .tune = o.tune};
      auto made = std::make_unique<PlannedConvolution>(laid_out, data, options);
      for (const Direction direction : o.directions) choices[direction] = made->plan(direction).choice();
      return made;
    };
    if (!o.passes_of) return planned(o.conv(o.engines.front()));
    switch (*o.passes_of) {
      case Peer::onednn:
        return onednn_convolution(problem, data, o.threads);
      case Peer::fft_volume:
        return planned(o.conv(Engine::fft_volume));
      case Peer::im2col_openblas:
        return im2col_convolution(problem, data, Blas::openblas, o.threads);
      case Peer::im2col_atlas:
        return im2col_convolution(problem, data, Blas::atlas, o.threads);
      case Peer::c_loops:
        return c_loops_convolution(problem, data, o.threads);
      case Peer::torch:
        break;
    }
    throw Unsupported("PyTorch runs in a process of its own; use --side-by-side --peers torch");
  }
};

}  // namespace

int conv_passes(const ConvBenchOptions& options) {
  const StopRequest stop;
  bool failed = false;
  for (NamedProblem named : options.problems) {
    named.problem.type = options.types.front();
    try {
      const CompetitorPasses passes(options, named);
      for (const Direction direction : options.directions) {
        for (int i = 0; i < options.rounds && !stop.pending(); ++i) passes.competitor->execute(direction);
        if (stop.pending()) return interrupted_status;
        fmt::print("{}: {} passes of {} by {}\n", named.name, options.rounds, name_of(direction),
                   options.passes_of ? name_of(*options.passes_of) : passes.choices.at(direction));
      }
    } catch (const std::exception& error) {
      failed = true;
      std::fflush(stdout);
      fmt::print(stderr, "bench_conv: {}: {}\n", named.name, error.what());
    }
  }
  return failed ? 1 : 0;
}

}  // namespace convolume::bench
