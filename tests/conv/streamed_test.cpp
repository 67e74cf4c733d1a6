// Streamed convolutions: the bits of the convolution in memory, within the memory that was asked for, from any source.
#include "convolume/streamed.hpp"

#include <algorithm>
#include <array>
#include <cstring>
#include <fstream>

#include "testing/conv_case.hpp"
#include "testing/random_problem.hpp"
#include "testing/selected_row.hpp"
#include "testing/temporary_folder.hpp"
#include <catch2/catch.hpp>
#include <fmt/format.h>

#include "conv/streamed/stream_plan.hpp"
#include "convolume/nest.hpp"

using namespace convolume;
using Catch::Contains;
using test::ConvCase;
using test::poisoned;
using test::random_tensor;

namespace {

template <class T>
struct Tensors {
  explicit Tensors(const ConvProblem& p, bool integers = false)
      : x(random_tensor<T>(p.x_shape(), 1, integers)),
        w(random_tensor<T>(p.w_shape(), 2, integers)),
        bias(random_tensor<T>({1, p.out_channels, {1, 1, 1}}, 3, integers)),
        in_memory(poisoned<T>(p.y_shape())),
        streamed(poisoned<T>(p.y_shape())) {}

  void convolve(const ConvPlan& plan, const Execution& run) {
    const PreparedWeights prepared = plan.prepare(run, w);
    plan.forward(run, {.x = x, .w = prepared, .bias = bias, .y = in_memory});
  }
  void convolve(const StreamedConv& conv, const Execution& run) {
    streamed.fill(std::numeric_limits<T>::quiet_NaN());
    const auto from = memory_source(x), weights = memory_source(w);
    const auto to = memory_sink(streamed);
    const auto report = conv.run(run, *from, *weights, bias, *to);
    REQUIRE(report.has_value());
    REQUIRE(report->tiles == conv.costs().tiles);
  }

  T* y_data() { return streamed.data(); }

  Tensor<T> x, w, bias, in_memory, streamed;
};

/// Streams a problem in small tiles, on 1, 2 and 8 threads, and compares all bits with those of the same choice in
/// memory.
template <class T>
void check_bits(ConvProblem p, const StreamOptions& given) {
  p.type = data_type_of<T>();
  INFO(to_string(p) << " " << name_of(p.type) << " by " << name_of(given.conv.engine));
  const StreamedConv conv = StreamedConv::make(p, given);
  INFO(conv.explain());
  Tensors<T> tensors(p);
  SlabResource memory;
  Scheduler serial = Scheduler::serial();
  tensors.convolve(conv.plan(), {serial, &memory});
  for (const int threads : {1, 2, 8}) {
    Scheduler scheduler(threads);
    tensors.convolve(conv, {scheduler, &memory});
    CHECK(test::same_bits(tensors.streamed, tensors.in_memory));
  }
}

constexpr std::array window_kernels{Extent3{3, 3, 3}, Extent3{1, 3, 3}, Extent3{3, 1, 1}};

/// Returns whether toom_cook serves a problem.
bool serves(const ConvProblem& p) {
  return std::find(window_kernels.begin(), window_kernels.end(), p.kernel) != window_kernels.end() &&
         p.stride == Extent3::all(1) && p.dilation == Extent3::all(1) && p.in_channels / p.groups >= 16 &&
         p.out_channels / p.groups >= 16;
}

const ConvProblem same3{.in_channels = 20,
                        .out_channels = 24,
                        .input = {20, 22, 26},
                        .kernel = {3, 3, 3},
                        .pad_before = {1, 1, 1},
                        .pad_after = {1, 1, 1}};

}  // namespace

TEST_CASE("streamed convolutions by windows have the bits of those in memory, for random tiles", "[streamed]") {
  for (std::uint64_t seed = 0; seed < (test::sanitized ? 6 : 30); ++seed) {
    const RandomKey key{.seed = seed, .a = 6};
    const auto draw = [&](std::uint64_t i, index_t least, index_t most) {
      return least + static_cast<index_t>(uniform_below(key, i, static_cast<std::uint64_t>(most - least + 1)));
    };
    ConvProblem p{.batch = draw(0, 1, 2),
                  .in_channels = draw(1, 16, 40),
                  .out_channels = draw(2, 16, 50),
                  .input = {draw(3, 3, 14), draw(4, 3, 14), draw(5, 3, 22)},
                  .kernel = window_kernels[seed % window_kernels.size()],
                  .pad_before = {draw(6, 0, 2), draw(7, 0, 1), draw(8, 0, 2)},
                  .pad_after = {draw(9, 0, 1), draw(10, 0, 2), draw(11, 0, 1)}};
    for (int axis = 0; axis < 3; ++axis) {
      if (p.kernel[axis] == 1) p.pad_before[axis] = p.pad_after[axis] = 0;
    }
    const Extent3 out = p.output();
    const StreamTile tile{.n = draw(12, 1, p.batch),
                          .k = draw(13, 1, p.out_channels),
                          .c = p.in_channels,
                          .y = {draw(14, 1, out.z), draw(15, 1, out.y), draw(16, 1, out.x)}};
    INFO("seed " << seed << " of " << to_string(p) << " tile " << to_string(tile));
    check_bits<float>(p, {.conv = {.engine = Engine::toom_cook}, .tile = tile});
    if (seed % 4 == 0) check_bits<double>(p, {.conv = {.engine = Engine::toom_cook}, .tile = tile});
  }
}

TEST_CASE("streamed convolutions have the bits of those in memory", "[streamed]") {
  struct Case {
    const char* name;
    ConvProblem problem;
    StreamTile tile;
    bool both_types = false;
  };
  const StreamTile small{.n = 1, .k = 16, .c = 64, .y = {4, 7, 9}};
  const ConvProblem ends{.batch = 3,
                         .in_channels = 3,
                         .out_channels = 17,
                         .input = {14, 31, 23},
                         .kernel = {5, 5, 5},
                         .epilogue = {.bias = true, .activation = {Activation::Kind::leaky_relu}}};
  const ConvProblem strides{.in_channels = 16,
                            .out_channels = 8,
                            .input = {19, 24, 33},
                            .kernel = {3, 4, 5},
                            .stride = {2, 3, 2},
                            .pad_before = {2, 0, 1},
                            .pad_after = {0, 1, 3}};
  const ConvProblem dilation{.in_channels = 5,
                             .out_channels = 6,
                             .input = {24, 20, 31},
                             .kernel = {3, 3, 3},
                             .dilation = {2, 3, 2},
                             .pad_before = {2, 3, 2},
                             .pad_after = {2, 3, 2}};
  ConvProblem groups = same3;
  groups.in_channels = 12;
  groups.out_channels = 8;
  groups.groups = 4;
  groups.input = {12, 13, 21};
  const ConvProblem depthwise{.in_channels = 40,
                              .out_channels = 40,
                              .groups = 40,
                              .input = {18, 19, 30},
                              .kernel = {5, 5, 5},
                              .pad_before = {2, 2, 2},
                              .pad_after = {2, 2, 2}};
  const ConvProblem planar{.in_channels = 16,
                           .out_channels = 16,
                           .input = {7, 40, 41},
                           .kernel = {1, 3, 3},
                           .pad_before = {0, 1, 1},
                           .pad_after = {0, 1, 1}};
  const ConvProblem voxel{.in_channels = 16, .out_channels = 40, .input = {7, 9, 41}, .kernel = {1, 1, 1}};
  const auto engine = GENERATE(Engine::fft_tiled, Engine::toom_cook, Engine::direct, Engine::reference);
  for (const Case& c :
       {Case{"equal padding", same3, small, true}, Case{"batch, bias and activation", ends, small, true},
        Case{"strides and uneven padding", strides, {.k = 8, .c = 16, .y = {3, 2, 5}}},
        Case{"dilation", dilation, small}, Case{"groups", groups, {.k = 2, .c = 12, .y = {5, 5, 8}}},
        Case{"depthwise", depthwise, {.k = 16, .c = 40, .y = {5, 5, 8}}},
        Case{"a planar kernel", planar, {.k = 16, .c = 16, .y = {2, 9, 13}}},
        Case{"a kernel of one voxel", voxel, {.k = 16, .c = 16, .y = {2, 5, 13}}}}) {
    if (engine == Engine::fft_tiled && c.problem.kernel.volume() == 1) continue;  // it does not serve this kernel
    if (engine == Engine::toom_cook && !serves(c.problem)) continue;
    if (engine == Engine::reference && test::too_slow_here(c.problem)) continue;  // random problems are smaller
    INFO(c.name);
    const StreamOptions options{.conv = {.engine = engine}, .tile = c.tile};
    check_bits<float>(c.problem, options);
    if (c.both_types) check_bits<double>(c.problem, options);
  }
}

TEST_CASE("streamed convolutions have the same bits for random problems and tiles", "[streamed]") {
  const auto engine = GENERATE(Engine::fft_tiled, Engine::direct, Engine::reference);
  const test::ProblemRanges ranges{
      .stream = 21, .most_voxels = 22, .most_kernel = 5, .transposed = false, .most_flops = 2e6};
  int streamed = 0;
  for (std::uint64_t seed = 0; seed < (test::sanitized ? 8 : 30); ++seed) {
    const ConvProblem p = test::random_problem(ranges, seed);
    if (test::too_slow_here(p)) continue;
    const RandomKey key{.seed = seed, .a = 5};
    const auto draw = [&](std::uint64_t i, index_t most) {
      return 1 + static_cast<index_t>(uniform_below(key, i, static_cast<std::uint64_t>(most)));
    };
    const Extent3 out = p.output();
    // Input channels stay together: sums of parts have other bits.
    const StreamTile tile{.n = draw(0, p.batch),
                          .k = draw(1, p.out_channels),
                          .c = p.in_channels,
                          .y = {draw(2, out.z), draw(3, out.y), draw(4, out.x)}};
    try {
      static_cast<void>(ConvPlan::make(p, {.engine = engine, .want_dx = false, .want_dw = false}));
    } catch (const Unsupported&) {
      continue;
    }
    INFO("seed " << seed << " tile " << to_string(tile));
    try {
      check_bits<float>(p, {.conv = {.engine = engine}, .tile = tile});
      ++streamed;
    } catch (const InvalidArgument& error) {
      REQUIRE_THAT(error.what(), Contains("padding alone"));
    }
  }
  CHECK(streamed >= (test::sanitized ? 2 : 10));
}

TEST_CASE("streamed convolutions have the same bits at all strides and phases, and with voxels that no result needs",
          "[streamed]") {
  const auto engine = GENERATE(Engine::fft_tiled, Engine::direct);
  const auto stride = GENERATE(range(1, 5));
  const index_t step = test::sanitized ? 2 : 1;
  for (const index_t kernel : {3, 4}) {
    if (engine == Engine::fft_tiled && kernel < stride) continue;  // it leaps over no voxels
    for (index_t pad = 0; pad < std::max(stride, 2); pad += step) {
      for (index_t left = 0; left < std::max(stride, 3); left += step) {
        // Behind the last result there are `left` voxels. Where strides do not leave them over, padding does.
        ConvProblem p{.in_channels = 3,
                      .out_channels = 5,
                      .input = {6, 9 * stride + kernel + left - pad, 14},
                      .kernel = {2, kernel, 3},
                      .stride = {1, stride, 2},
                      .pad_before = {0, pad, 1}};
        if (left >= stride) p.pad_after.y = -left;
        if (engine == Engine::direct && left >= stride) continue;  // it has no negative padding
        const StreamOptions options{.conv = {.engine = engine}, .tile = StreamTile{.k = 5, .c = 3, .y = {2, 4, 3}}};
        check_bits<float>(p, options);
        check_bits<double>(p, options);
      }
    }
  }
}

TEST_CASE("windows have the voxels that whole tiles of the engine read", "[streamed]") {
  // Six results of stride 3 and kernel 4 need voxels 0 to 18. The tile of the engine has eight results and six taps.
  ConvProblem p{.in_channels = 1, .out_channels = 1, .input = {1, 1, 30}, .kernel = {1, 1, 4}, .stride = {1, 1, 3}};
  p.pad_after.x = -11;
  conv::StreamCut cut{.problem = p, .tile = {.y = {1, 1, 6}}};
  CHECK(conv::steps_of(cut).front().x.shape.extent.x == 19);
  cut.whole_tile = {1, 1, 8};
  const conv::StreamStep step = conv::steps_of(cut).front();
  CHECK(step.x.shape.extent.x == 27);
  CHECK(step.problem.pad_after.x == -8);
  cut.problem.input.x = 25;
  cut.problem.pad_after.x = -6;
  CHECK(conv::steps_of(cut).front().x.shape.extent.x == 25);
  // Voxels that only the transform reads do not make a tile that lies in the padding valid.
  cut.problem.pad_before.x = 9;
  cut.problem.pad_after.x = 0;
  CHECK_THROWS_WITH(conv::rounded(cut.problem, {.tile = {.y = {1, 1, 1}}, .whole_tile = {1, 1, 8}}, {.y = {1, 1, 1}}),
                    Contains("padding alone"));
}

TEST_CASE("input channels are split only if nothing else fits, and then sums agree to rounding", "[streamed]") {
  ConvProblem p{.in_channels = 96,
                .out_channels = 16,
                .input = {10, 12, 14},
                .kernel = {3, 3, 3},
                .pad_before = {1, 1, 1},
                .pad_after = {1, 1, 1},
                .epilogue = {.bias = true, .activation = {Activation::Kind::relu}}};
  const auto engine = GENERATE(Engine::fft_tiled, Engine::direct);
  CHECK(StreamedConv::make(p, {.conv = {.engine = engine}}).costs().tile.c == 96);
  const StreamTile all{.n = 1, .k = 16, .c = 96, .y = {10, 12, 14}};
  // Without a limit the cheapest tiles are not the smallest ones.
  CHECK(StreamedConv::make(p, {.conv = {.engine = engine}}).costs().tiles < 50);
  const StreamedConv whole = StreamedConv::make(p, {.conv = {.engine = engine}, .tile = all});
  CHECK(whole.costs().tiles == 1);
  const StreamTile split{.n = 1, .k = 16, .c = 32, .y = {10, 12, 14}};
  const StreamedConv conv = StreamedConv::make(p, {.conv = {.engine = engine}, .tile = split});
  CHECK(conv.costs().tiles == 3);
  Tensors<float> tensors(p);
  SlabResource memory;
  Scheduler two(2);
  tensors.convolve(conv.plan(), {two, &memory});
  tensors.convolve(conv, {two, &memory});
  CHECK(test::relative_error(tensors.streamed, tensors.in_memory) < 2e-6);
  Tensors<float> integers(p, true);
  integers.convolve(StreamedConv::make(p, {.conv = {.engine = Engine::reference}}), {two, &memory});
  const Tensor<float> exact = std::move(integers.streamed);
  integers.streamed = poisoned<float>(p.y_shape());
  integers.convolve(conv, {two, &memory});
  for (index_t i = 0; i < exact.elements(); ++i) {
    REQUIRE(std::round(integers.streamed.data()[i]) == exact.data()[i]);
  }
}

TEST_CASE("a limit of memory is kept, and a smaller one than possible names the least", "[streamed]") {
  const ConvProblem p{.in_channels = 16,
                      .out_channels = 16,
                      .input = {40, 48, 56},
                      .kernel = {3, 3, 3},
                      .pad_before = {1, 1, 1},
                      .pad_after = {1, 1, 1}};
  const auto engine = GENERATE(Engine::fft_tiled, Engine::direct);
  Tensors<float> tensors(p);
  Scheduler two(2);
  SlabResource plain;
  std::size_t least = 0;
  {
    const StreamedConv conv = StreamedConv::make(p, {.conv = {.engine = engine}, .threads = 2});
    tensors.convolve(conv.plan(), {two, &plain});
    try {
      static_cast<void>(StreamedConv::make(p, {.conv = {.engine = engine}, .memory = 1000, .threads = 2}));
      FAIL("1000 bytes are too few");
    } catch (const InvalidArgument& error) {
      const std::string text = error.what();
      const auto at = text.find("take ");
      REQUIRE(at != std::string::npos);
      least = std::stoul(text.substr(at + 5));
    }
  }
  for (const std::size_t limit : {least, least * 3 / 2, least * 3}) {
    const StreamedConv conv = StreamedConv::make(p, {.conv = {.engine = engine}, .memory = limit, .threads = 2});
    INFO(conv.explain());
    CHECK(conv.costs().peak_bytes <= limit);
    CHECK(conv.costs().tiles > 1);
    SlabResource memory({.budget = limit});
    tensors.convolve(conv, {two, &memory});
    if (conv.costs().tile.c == p.in_channels) CHECK(test::same_bits(tensors.streamed, tensors.in_memory));
    Scheduler four(4);
    const auto x = memory_source(tensors.x), w = memory_source(tensors.w);
    const auto y = memory_sink(tensors.streamed);
    CHECK_THROWS_WITH(conv.run({four, &memory}, *x, *w, {}, *y), Contains("4 threads would exceed"));
  }
}

TEST_CASE("the number of buffers with the least estimated time is taken, and the report compares them", "[streamed]") {
  const test::SelectedRow row("zen5");
  const auto plan = [](const char* text, const StreamOptions& options) {
    const ConvProblem p = parse_problem(text);
    const auto quarter = static_cast<std::size_t>(p.x_shape().elements() + p.y_shape().elements());
    StreamOptions limited = options;
    limited.memory = limited.tile ? 0 : quarter;
    limited.threads = 2;
    return StreamedConv::make(p, limited);
  };
  const auto prices = [](double element_s) {
    const TransferPrice price{.start = 2e-5, .jump = 1e-8, .element = element_s};
    return StreamPrices{.x = price, .w = price, .y = price};
  };
  // Weights are prepared again for each tile of voxels, and only few buffers leave room for large ones.
  const char* const costly_weights = "ic32id96oc32kd5pd2";
  const StreamOptions tiled{.conv = {.engine = Engine::fft_tiled}, .prices = prices(1e-9)};
  const StreamedConv few = plan(costly_weights, tiled);
  INFO(few.explain());
  CHECK(few.costs().buffers[0] < 4);
  CHECK(few.costs().buffers[1] == 4);  // tiles of weights are small
  CHECK_THAT(few.explain(), Contains(", 4 of w, ") && Contains("; 4 of x in ") && Contains("fastest is taken"));
  CHECK(plan(costly_weights, tiled).costs().tile == few.costs().tile);
  // Where transfers and computation take equally long, steps wait for each other, and four buffers even this out.
  const char* const balanced = "ic16id128oc16kd3pd1";
  StreamOptions equal = tiled;
  equal.prices = prices(plan(balanced, tiled).costs().compute_seconds / (2.0 * 16 * 128 * 128 * 128));
  const StreamedConv four = plan(balanced, equal);
  INFO(four.explain());
  CHECK(four.costs().buffers[0] == 4);
  equal.buffers = 2;
  const StreamedConv limited = plan(balanced, equal);
  CHECK(limited.costs().buffers[0] == 2);
  CHECK(limited.costs().seconds > four.costs().seconds);
  // Equal estimates: there is one tile. A given tile has exactly the given buffers.
  CHECK(StreamedConv::make(same3).costs().buffers[0] == 4);
  equal.tile = few.costs().tile;
  equal.buffers = 3;
  CHECK(plan(costly_weights, equal).costs().buffers[0] == 3);
}

TEST_CASE("transfers are counted as loop nests count them", "[streamed]") {
  const ConvProblem p{.batch = 2,
                      .in_channels = 32,
                      .out_channels = 48,
                      .input = {20, 22, 26},
                      .kernel = {3, 5, 3},
                      .pad_before = {1, 0, 1},
                      .pad_after = {1, 2, 1}};
  const plan::NestSpace space = plan::spaces(p, plan::Direction::forward).front();
  for (const bool k_outermost : {false, true}) {
    for (const StreamTile tile :
         {StreamTile{.n = 1, .k = 16, .c = 32, .y = {4, 7, 9}}, StreamTile{.n = 2, .k = 48, .c = 32, .y = {6, 20, 26}},
          StreamTile{.n = 1, .k = 32, .c = 16, .y = {20, 5, 26}}}) {
      const conv::StreamCut cut{.problem = p, .tile = tile, .channels_outermost = k_outermost};
      const StreamCosts costs = conv::costs_of(cut, {.prices = {}});
      const std::string place = fmt::format("n{} z{} y{} x{}", tile.n, tile.y.z, tile.y.y, tile.y.x);
      const std::string outer = k_outermost ? "k n z y x c" : "n z y x k c";
      const plan::LoopNest nest =
          plan::parse_nest(fmt::format("{} | {} k{} c{} kz ky kx", outer, place, tile.k, tile.c));
      INFO(to_string(nest));
      for (std::size_t i = 0; i < plan::operands.size(); ++i) {
        const plan::Fetch fetch = plan::fetch(nest, space, nest.microkernel, plan::operands[i], Layout::plain);
        CHECK(costs.loads[i] == fetch.loads);
        CHECK(costs.bytes[i] == 4 * fetch.words);
        CHECK(costs.runs[i] == fetch.runs);
      }
      // And as the steps move them.
      double x_words = 0;
      TensorBox last;
      for (const conv::StreamStep& step : conv::steps_of(cut)) {
        if (!(step.x == last)) x_words += static_cast<double>(step.x.shape.elements());
        last = step.x;
      }
      CHECK(costs.bytes[0] == 4 * x_words);
    }
  }
}

TEST_CASE("whole chunks of x are counted, and tiles prefer their borders", "[streamed]") {
  // Without a halo, tiles of 8 x 16 x 16 voxels meet one chunk each. Chunks at the end of an axis are cut off.
  const ConvProblem p{.batch = 2, .in_channels = 6, .out_channels = 4, .input = {20, 40, 56}, .kernel = {1, 1, 1}};
  const Shape5 chunk{1, 4, {8, 16, 16}};
  const auto costs = [&](const Extent3& tile) {
    return conv::costs_of({.problem = p, .tile = {.n = 1, .k = 4, .c = 6, .y = tile}, .x_chunk = chunk},
                          {.prices = {}});
  };
  const double all = 4.0 * static_cast<double>(p.x_shape().elements());
  CHECK(costs({8, 16, 16}).bytes[0] == all);
  CHECK(costs({8, 16, 16}).runs[0] == 2 * 2 * 3 * 3 * 4);  // samples, channels, z, y, x
  // Planes 0 to 9 meet 16 planes, and planes 10 to 19 meet 12 of 20.
  CHECK(costs({10, 16, 16}).bytes[0] == all * 28 / 20);
  CHECK(costs({10, 16, 16}).runs[0] == 2 * 2 * 4 * 3 * 4);

  ConvProblem large = p;
  large.batch = 1;
  large.input = {100, 100, 100};
  StreamOptions options{.conv = {.engine = Engine::direct}, .memory = 8 << 20};
  const StreamCosts free = StreamedConv::make(large, options).costs();
  options.x_chunk = {1, 1, {16, 16, 16}};
  const StreamedConv conv = StreamedConv::make(large, options);
  INFO(to_string(free.tile) << "; " << to_string(conv.costs().tile));
  CHECK_FALSE(free.tile == conv.costs().tile);
  for (int axis = 0; axis < 3; ++axis) {
    const index_t tile = conv.costs().tile.y[axis];
    CHECK((tile == 100 || tile % 16 == 0));
  }
  CHECK(conv.costs().bytes[0] == 4.0 * static_cast<double>(large.x_shape().elements()));
  options.x_chunk.extent.y = 0;
  CHECK_THROWS_WITH(StreamedConv::make(large, options), Contains("x_chunk = ") && Contains("at least 1"));
  const Tensor<float> tensor({1, 1, {2, 2, 2}});
  CHECK(memory_source(tensor)->chunk() == Shape5{1, 1, {1, 1, 1}});
}

TEST_CASE("raw and mapped files hold what memory holds, also past the page cache", "[streamed]") {
  const test::TemporaryFolder folder;
  const ConvProblem p{.batch = 2, .in_channels = 5, .out_channels = 18, .input = {14, 17, 1030}, .kernel = {3, 3, 3}};
  Tensors<float> tensors(p);
  SlabResource memory;
  Scheduler two(2);
  const auto write = [](const std::filesystem::path& file, const Tensor<float>& t, std::size_t before) {
    std::ofstream out(file, std::ios::binary);
    out << std::string(before, '#');
    out.write(reinterpret_cast<const char*>(t.data()), t.elements() * 4);
  };
  write(folder / "x.raw", tensors.x, 12);
  write(folder / "w.raw", tensors.w, 0);
  const StreamedConv conv = StreamedConv::make(p, {.tile = StreamTile{.n = 1, .k = 16, .c = 5, .y = {5, 9, 300}}});
  tensors.convolve(conv.plan(), {two, &memory});
  const RawFile x{.path = folder / "x.raw", .shape = p.x_shape(), .offset = 12};
  RawFile direct = x;
  direct.direct = true;
  const auto w = raw_source({.path = folder / "w.raw", .shape = p.w_shape()});
  int kind = 0;
  for (const auto& source : {raw_source(x), raw_source(direct), mapped_source(x)}) {
    const std::filesystem::path out = folder / fmt::format("y{}.raw", kind++);
    const auto y = raw_sink({.path = out, .shape = p.y_shape()});
    REQUIRE(conv.run({two, &memory}, *source, *w, {}, *y));
    std::ifstream file(out, std::ios::binary);
    file.read(reinterpret_cast<char*>(tensors.streamed.data()), tensors.streamed.elements() * 4);
    REQUIRE(file.gcount() == tensors.streamed.elements() * 4);
    CHECK(test::same_bits(tensors.streamed, tensors.in_memory));
  }
  CHECK(folder.files() == 5);
}

namespace {

/// Cuts its file in the middle of the run.
class ShrinkingFile final : public TensorSource {
 public:
  ShrinkingFile(std::filesystem::path file, std::unique_ptr<TensorSource> source)
      : TensorSource(source->name(), source->shape(), source->type()),
        file_(std::move(file)),
        source_(std::move(source)) {}

 private:
  void do_read(const TensorBox& box, void* to) override {
    if (++reads_ == 3) std::filesystem::resize_file(file_, 5000);
    source_->read(box, to);
  }
  std::filesystem::path file_;
  std::unique_ptr<TensorSource> source_;
  int reads_ = 0;
};

class FullDisk final : public TensorSink {
 public:
  explicit FullDisk(const Shape5& shape) : TensorSink("full disk", shape, DataType::f32) {}
  void finish() override { FAIL("finished in spite of a failure"); }

 private:
  void do_write(const TensorBox&, const void*) override {
    if (++writes_ == 2) throw IoError("full disk: no space left");
  }
  int writes_ = 0;
};

}  // namespace

TEST_CASE("a failing source or sink ends the run with its error, and leaves no file", "[streamed]") {
  const test::TemporaryFolder folder;
  const ConvProblem p{.in_channels = 4, .out_channels = 4, .input = {30, 30, 30}, .kernel = {3, 3, 3}};
  Tensors<float> tensors(p);
  SlabResource memory;
  Scheduler two(2);
  {
    std::ofstream out(folder / "x.raw", std::ios::binary);
    out.write(reinterpret_cast<const char*>(tensors.x.data()), tensors.x.elements() * 4);
  }
  const auto buffers = GENERATE(1, 2, 4);
  const StreamedConv conv = StreamedConv::make(
      p,
      {.conv = {.engine = Engine::direct}, .buffers = buffers, .tile = StreamTile{.k = 4, .c = 4, .y = {3, 30, 30}}});
  const auto w = memory_source(tensors.w);
  const RawFile x{.path = folder / "x.raw", .shape = p.x_shape()};
  CHECK_THROWS_WITH(raw_source({.path = folder / "x.raw", .shape = {2, 4, {30, 30, 30}}}), Contains("432000 bytes"));
  CHECK_THROWS_AS(raw_source({.path = folder / "none.raw", .shape = p.x_shape()}), IoError);
  {
    FullDisk y(p.y_shape());
    const auto source = memory_source(tensors.x);
    CHECK_THROWS_WITH(conv.run({two, &memory}, *source, *w, {}, y), Contains("no space left"));
  }
  {
    ShrinkingFile source(folder / "x.raw", raw_source(x));
    const auto y = raw_sink({.path = folder / "y.raw", .shape = p.y_shape()});
    CHECK_THROWS_WITH(conv.run({two, &memory}, source, *w, {}, *y), Contains("x.raw") && Contains("shorter"));
  }
  CHECK(folder.files() == 1);
}

TEST_CASE("a stop request ends a streamed run early, and y is not finished", "[streamed]") {
  const test::TemporaryFolder folder;
  const ConvProblem p{.in_channels = 4, .out_channels = 4, .input = {30, 30, 30}, .kernel = {3, 3, 3}};
  Tensors<float> tensors(p);
  SlabResource memory;
  Scheduler two(2);
  std::stop_source stop;
  index_t calls = 0;
  {
    const StreamedConv conv = StreamedConv::make(
        p, {.conv = {.engine = Engine::direct}, .tile = StreamTile{.k = 4, .c = 4, .y = {3, 30, 30}}});
    const auto x = memory_source(tensors.x), w = memory_source(tensors.w);
    const auto y = raw_sink({.path = folder / "y.raw", .shape = p.y_shape()});
    const auto report = conv.run(
        {two, &memory}, *x, *w, {}, *y,
        [&](index_t done, index_t tiles) {
          ++calls;
          if (done * 2 > tiles) stop.request_stop();
        },
        stop.get_token());
    CHECK_FALSE(report.has_value());
    CHECK(calls < conv.costs().tiles);
  }
  CHECK(folder.files() == 0);
}

TEST_CASE("NaN in a source reaches the results that it reaches in memory", "[streamed]") {
  const ConvProblem p{.in_channels = 3, .out_channels = 5, .input = {16, 18, 24}, .kernel = {3, 3, 3}};
  const auto engine = GENERATE(Engine::fft_tiled, Engine::direct);
  const StreamedConv conv =
      StreamedConv::make(p, {.conv = {.engine = engine}, .tile = StreamTile{.k = 5, .c = 3, .y = {4, 9, 9}}});
  Tensors<float> tensors(p);
  tensors.x.data()[2345] = std::numeric_limits<float>::quiet_NaN();
  SlabResource memory;
  Scheduler two(2);
  tensors.convolve(conv.plan(), {two, &memory});
  tensors.convolve(conv, {two, &memory});
  index_t poisoned_results = 0;
  for (index_t i = 0; i < tensors.streamed.elements(); ++i) {
    const bool here = std::isnan(tensors.streamed.data()[i]), there = std::isnan(tensors.in_memory.data()[i]);
    REQUIRE(here == there);
    poisoned_results += here ? 1 : 0;
  }
  CHECK(poisoned_results > 0);
}

TEST_CASE("what cannot be streamed is refused with the reason", "[streamed]") {
  ConvProblem p{.in_channels = 1, .out_channels = 1, .input = {40, 40, 40}, .kernel = {9, 9, 9}};
  CHECK_THROWS_WITH(StreamedConv::make(p, {.conv = {.engine = Engine::fft_volume}}), Contains("whole volumes"));
  CHECK_THROWS_WITH(StreamedConv::make(p, {.threads = 0}), Contains("threads = 0"));
  CHECK_THROWS_WITH(StreamedConv::make(p, {.buffers = 9}), Contains("buffers = 9"));
  CHECK_THROWS_WITH(StreamedConv::make(p, {.tile = StreamTile{.y = {0, 1, 1}}}), Contains("z = 0"));
  StreamOptions free;
  free.prices.w.jump = 0;
  CHECK_THROWS_WITH(StreamedConv::make(p, free), Contains("w, jump = 0"));
  p.transposed = true;
  CHECK_THROWS_AS(StreamedConv::make(p), Unsupported);
  p.transposed = false;
  p.x_layout = Layout::blocked;
  CHECK_THROWS_WITH(StreamedConv::make(p), Contains("plain"));
  p.x_layout = Layout::plain;

  Tensors<float> tensors(p);
  const StreamedConv conv = StreamedConv::make(p);
  const auto x = memory_source(tensors.x), w = memory_source(tensors.w), wrong = memory_source(tensors.bias);
  const auto y = memory_sink(tensors.streamed);
  Scheduler serial = Scheduler::serial();
  CHECK_THROWS_WITH(conv.run({serial, std::pmr::get_default_resource()}, *x, *wrong, {}, *y), Contains("w (a tensor"));
  CHECK_THROWS_WITH(x->read({.shape = {1, 2, {1, 1, 1}}}, tensors.y_data()), Contains("does not lie within"));
}

TEST_CASE("a bias with a stride and too many tiles are refused", "[streamed]") {
  ConvProblem p{.in_channels = 2, .out_channels = 3, .input = {64, 64, 64}, .kernel = {1, 1, 1}};
  CHECK_THROWS_WITH(StreamedConv::make(p, {.tile = StreamTile{.y = {1, 1, 1}}}), Contains("262144 tiles"));
  CHECK_THROWS_WITH(StreamedConv::make(p, {.memory = 300}), Contains("need least take"));
  p.epilogue.bias = true;
  Tensors<float> tensors(p);
  const StreamedConv conv = StreamedConv::make(p);
  const auto x = memory_source(tensors.x), w = memory_source(tensors.w);
  const auto y = memory_sink(tensors.streamed);
  const Tensor<float> column({1, 3, {1, 1, 2}});
  const View<const float> strided(column.data(), {1, 3, {1, 1, 1}}, {6, 2, 2, 2, 1});
  Scheduler serial = Scheduler::serial();
  CHECK_THROWS_WITH(conv.run({serial, std::pmr::get_default_resource()}, *x, *w, strided, *y),
                    Contains("channel stride 2"));
}

TEST_CASE("where fft_volume would be chosen, the next engine is streamed, and the report says so",
          "[streamed][serial]") {
  const ConvProblem p{.in_channels = 1, .out_channels = 1, .input = {96, 96, 96}, .kernel = {65, 65, 65}};
  REQUIRE(ConvPlan::make(p, {.want_dx = false, .want_dw = false}).engine() == Engine::fft_volume);
  const StreamedConv conv = StreamedConv::make(p);
  CHECK(conv.plan().engine() != Engine::fft_volume);
  CHECK_THAT(conv.explain(), Contains("the next engine is taken"));
}

TEST_CASE("a stop request ends the planning of tiles", "[streamed]") {
  const ConvProblem p{.in_channels = 16, .out_channels = 16, .input = {40, 40, 40}, .kernel = {3, 3, 3}};
  std::stop_source source;
  StreamOptions options;
  options.memory = std::size_t{4} << 20;
  options.stop = source.get_token();
  CHECK_NOTHROW(StreamedConv::make(p, options));
  source.request_stop();
  CHECK_THROWS_AS(StreamedConv::make(p, options), StopRequested);
}
