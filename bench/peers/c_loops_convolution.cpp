#include "bench/peers/c_loops_convolution.hpp"

#include <algorithm>
#include <cstddef>
#include <vector>

#include <fmt/format.h>

#include "bench/peers/blocked_loops.h"

namespace convolume::bench {
namespace {

constexpr index_t block = blocked_loops_block;

/// Returns why the loops do not serve a problem; an empty text if they do.
std::string refusal_of(const ConvProblem& p) {
  if (p.type != DataType::f32) return "it computes in float";
  if (p.transposed || p.groups != 1) return "it has neither groups nor transposed convolutions";
  if (p.kernel.z != 1 || p.input.z != 1) return "it has two axes";
  if (p.dilation != Extent3{1, 1, 1}) return "it has no dilation";
  if (p.in_channels % block != 0 || p.out_channels % block != 0) return "channels must be multiples of 16";
  return "";
}

class CLoopsConvolution final : public ConvCompetitor {
 public:
  CLoopsConvolution(const ConvProblem& problem, const ConvData& data, int threads)
      : problem_(problem), scheduler_(threads) {
    const Extent3 out = problem.output();
    n_.in_tiles = static_cast<int>(problem.in_channels / block);
    n_.out_tiles = static_cast<int>(problem.out_channels / block);
    n_.out_h = static_cast<int>(out.y);
    n_.out_w = static_cast<int>(out.x);
    n_.kernel_h = static_cast<int>(problem.kernel.y);
    n_.kernel_w = static_cast<int>(problem.kernel.x);
    n_.stride_h = static_cast<int>(problem.stride.y);
    n_.stride_w = static_cast<int>(problem.stride.x);
    n_.in_h = (n_.out_h - 1) * n_.stride_h + n_.kernel_h;
    n_.in_w = (n_.out_w - 1) * n_.stride_w + n_.kernel_w;
    load_input(data.x.view().as<float>().data);
    load_filter(data.w.view().as<float>().data);
    output_.resize(static_cast<std::size_t>(problem.batch * output_sample()));
    for (index_t i = 0; i < problem.batch; ++i) {
      graph_.add({.name = "c_loops"}, [this, i] { convolve_sample(i); });
    }
  }

  bool has(Direction direction) const override { return direction == Direction::forward; }
  void execute(Direction) override { graph_.run(scheduler_); }

  void read(Output, ConvTensor& plain) override {
    const Extent3 out = problem_.output();
    index_t to = 0;
    for (index_t i = 0; i < problem_.batch; ++i) {
      for (index_t k = 0; k < problem_.out_channels; ++k) {
        for (index_t voxel = 0; voxel < out.volume(); ++voxel) {
          const index_t from = i * output_sample() + (k / block * out.volume() + voxel) * block + k % block;
          plain.set(to++, static_cast<double>(output_[static_cast<std::size_t>(from)]));
        }
      }
    }
  }

 private:
  index_t input_sample() const { return problem_.in_channels * n_.in_h * n_.in_w; }
  index_t output_sample() const { return problem_.out_channels * problem_.output().volume(); }

  void convolve_sample(index_t i) {
    float* const output = output_.data() + i * output_sample();
    std::fill_n(output, output_sample(), 0.0F);
    blocked_loops(&n_, input_.data() + i * input_sample(), filter_.data(), output);
  }

  /// Copies x to blocks with padding. Voxels that no window reads are left out.
  void load_input(const float* x) {
    input_.assign(static_cast<std::size_t>(problem_.batch * input_sample()), 0.0F);
    const Extent3 in = problem_.input, pad = problem_.pad_before;
    for (index_t i = 0; i < problem_.batch * problem_.in_channels; ++i) {
      const index_t sample = i / problem_.in_channels, c = i % problem_.in_channels;
      for (index_t y = 0; y < std::min<index_t>(in.y, n_.in_h - pad.y); ++y) {
        for (index_t column = 0; column < std::min<index_t>(in.x, n_.in_w - pad.x); ++column) {
          const index_t to = ((c / block * n_.in_h + y + pad.y) * n_.in_w + column + pad.x) * block + c % block;
          input_[static_cast<std::size_t>(sample * input_sample() + to)] = x[(i * in.y + y) * in.x + column];
        }
      }
    }
  }

  /// Copies w to squares of 16 input channels by 16 output channels.
  void load_filter(const float* w) {
    const index_t taps = problem_.kernel.volume(), channels = problem_.in_channels;
    filter_.resize(static_cast<std::size_t>(problem_.out_channels * channels * taps));
    for (index_t k = 0; k < problem_.out_channels; ++k) {
      for (index_t c = 0; c < channels; ++c) {
        for (index_t tap = 0; tap < taps; ++tap) {
          const index_t square = (k / block * n_.in_tiles + c / block) * taps + tap;
          filter_[static_cast<std::size_t>((square * block + c % block) * block + k % block)] =
              w[(k * channels + c) * taps + tap];
        }
      }
    }
  }

  ConvProblem problem_;
  BlockedLoops n_{};
  Scheduler scheduler_;
  TaskGraph graph_;
  std::vector<float> input_, filter_, output_;
};

}  // namespace

std::unique_ptr<ConvCompetitor> c_loops_convolution(const ConvProblem& problem, const ConvData& data, int threads) {
  const std::string reason = refusal_of(problem);
  if (!reason.empty()) throw Unsupported(fmt::format("the loops in C do not serve {}: {}", to_string(problem), reason));
  return std::make_unique<CLoopsConvolution>(problem, data, threads);
}

}  // namespace convolume::bench
