#include "testing/random_problem.hpp"

#include <array>
#include <vector>

#include "convolume/error.hpp"
#include "core/random.hpp"

namespace convolume::test {
namespace {

/// Random numbers of one problem.
class Draws {
 public:
  Draws(std::uint64_t stream, std::uint64_t seed) : key_{.seed = stream}, next_(seed << 20) {}
  /// Returns a number from 0 to n - 1.
  index_t below(index_t n) { return static_cast<index_t>(uniform_below(key_, next_++, static_cast<std::uint64_t>(n))); }
  bool one_in(index_t n) { return below(n) == 0; }

 private:
  RandomKey key_;
  std::uint64_t next_;
};

index_t draw_channels(Draws& draws, const ProblemRanges& ranges) {
  constexpr index_t few = 10;
  return 1 + draws.below(draws.one_in(3) ? ranges.most_channels : std::min(few, ranges.most_channels));
}

void draw_groups(Draws& draws, const ProblemRanges& ranges, ConvProblem& p) {
  if (ranges.groups && draws.one_in(3)) {
    p.groups = 1 + draws.below(4);
    p.in_channels = p.groups * (1 + draws.below(8));
    p.out_channels = p.groups * (1 + draws.below(8));
  }
  if (ranges.depthwise && draws.one_in(6)) p.groups = p.out_channels = p.in_channels;
}

/// Softsign is left out. Its slope follows from an output that is near one for large sums, so it has few digits.
Activation::Kind draw_activation(Draws& draws, bool rectifiers) {
  using Kind = Activation::Kind;
  constexpr std::array smooth{Kind::none, Kind::none, Kind::sigmoid, Kind::tanh};
  constexpr std::array all{Kind::none, Kind::relu, Kind::leaky_relu, Kind::sigmoid, Kind::tanh};
  return rectifiers ? all[static_cast<std::size_t>(draws.below(all.size()))]
                    : smooth[static_cast<std::size_t>(draws.below(smooth.size()))];
}

ConvProblem draw(Draws& draws, const ProblemRanges& ranges) {
  ConvProblem p;
  p.batch = 1 + draws.below(3);
  p.in_channels = draw_channels(draws, ranges);
  p.out_channels = draw_channels(draws, ranges);
  for (int axis = 0; axis < 3; ++axis) {
    p.input[axis] = 1 + draws.below(axis == 2 ? ranges.most_voxels * 3 / 2 : ranges.most_voxels);
    p.kernel[axis] = draws.one_in(3) ? 1 : 1 + draws.below(ranges.most_kernel);
    p.stride[axis] = ranges.strides && draws.one_in(3) ? 1 + draws.below(3) : 1;
    p.dilation[axis] = ranges.strides && draws.one_in(3) ? 1 + draws.below(3) : 1;
    p.pad_before[axis] = draws.one_in(2) ? draws.below(5) : 0;
    p.pad_after[axis] = draws.one_in(2) ? draws.below(5) : 0;
  }
  draw_groups(draws, ranges, p);
  p.transposed = ranges.transposed && draws.one_in(3);
  for (int axis = 0; axis < 3; ++axis) p.output_padding[axis] = p.transposed ? draws.below(p.stride[axis]) : 0;
  p.epilogue.bias = draws.one_in(2);
  p.epilogue.activation.kind = draw_activation(draws, ranges.rectifiers);
  return p;
}

}  // namespace

ConvProblem random_problem(const ProblemRanges& ranges, std::uint64_t seed) {
  Draws draws(ranges.stream, seed);
  for (;;) {
    const ConvProblem p = draw(draws, ranges);
    try {
      p.validate();
      if (p.flops() < ranges.most_flops) return p;
    } catch (const Error&) {
      // The kernel does not fit, so the next problem is drawn.
    }
  }
}

}  // namespace convolume::test
