// Tests tiles that the directions of fft_tiled share: spectra of x and dy are passed from one direction to another, and
// dx is a sum of overlapping tiles. Choices make the tiles small, so that there are many along each axis.
#include "testing/engine_checks.hpp"
#include "testing/sanitizers.hpp"
#include <fmt/format.h>

using namespace convolume;
using test::ConvCase;
using test::random_tensor;

namespace {

ConvOptions shared(const Extent3& tile, index_t group) {
  const std::string t = fmt::format("{}x{}x{}", tile.z, tile.y, tile.x);
  return {.choice = fmt::format("fft_tiled fwd={0}*{1} bwd_d={0}*{1} bwd_w={0}*1 shared", t, group)};
}

ConvProblem activated(const char* text) {
  ConvProblem p = parse_problem(text);
  p.epilogue = {.bias = true, .activation = {Activation::Kind::leaky_relu}};
  return p;
}

}  // namespace

TEST_CASE("dx is added up from overlapping tiles, whatever their number and their groups", "[serial]") {
  for (const char* text :
       {"ic9id14oc8kd3", "mb2ic17id5ih13iw16oc9kd2kh3kw4ph1pd0pw3", "ic8id21ih6iw4oc8kd3pd2", "ic8id3ih3iw3oc8kd3",
        "ic10id4ih22iw9oc12kd1kh1kw3", "ic8id16ih4iw15oc9kd3kh1kw3pd1ph0pw1"}) {
    const ConvProblem p = activated(text);
    for (const index_t group : {1, 2, 4, 24}) {
      CAPTURE(text, group);
      Extent3 tile = p.kernel == Extent3::all(3) ? Extent3{4, 6, 5} : Extent3{4, 5, 7};
      for (int axis = 0; axis < 3; ++axis) tile[axis] = p.kernel[axis] == 1 ? 1 : tile[axis];
      test::check_against_reference<double>(p, shared(tile, group), 1e-12);
      test::check_against_reference<float>(p, shared(tile, group), 1e-5);
    }
  }
}

TEST_CASE("dx from overlapping tiles is added to what it holds") {
  const auto p = parse_problem("ic9id13oc8kd3pd1");
  ConvCase<double> c(p, shared(Extent3::all(5), 2));
  c.run();
  const Execution run{c.scheduler, &c.memory};
  auto dx = random_tensor<double>(c.problem.x_shape(), 9);
  const auto before = random_tensor<double>(c.problem.x_shape(), 9);
  const auto prepared = c.plan.prepare(run, c.w);
  c.plan.backward(run, {.dy = c.dy, .w = prepared, .dx = dx, .add_dx = true});
  for (index_t i = 0; i < dx.elements(); ++i)
    REQUIRE(std::abs(dx.data()[i] - before.data()[i] - c.dx.data()[i]) < 1e-12 * p.flops());
}

TEST_CASE("shared tiles give the same bits on any number of threads, in both layouts, with and without x_hat") {
  const ConvOptions options = shared({6, 5, 7}, 3);
  ConvOptions uncached = options;
  uncached.cache_spectra = false;
  test::check_threads({"ic9id20oc17kd3"}, options, uncached);
  for (const bool x : {false, true}) {
    for (const bool y : {false, true}) {
      test::check_layouts<float>("mb2ic19id11ih9iw12oc20kd3pd1", options, x, y, Activation::Kind::tanh);
      test::check_layouts<double>("ic9id11ih9iw12oc10kd3pd1", options, x, y, Activation::Kind::none);
    }
  }
}

TEST_CASE("whoever waits for a plane of an added-up dx finds it complete") {
  for (const index_t group : {1, 4})
    test::check_ready(parse_problem("ic9id24ih8iw8oc8kd3pd1"), shared({5, 4, 6}, group));
}

TEST_CASE("spectra of x are not read by plans that cut other tiles from them") {
  ConvCase<float> a(parse_problem("ic9id14oc8kd3"), shared(Extent3::all(8), 4));
  const Execution run{a.scheduler, &a.memory};
  const auto prepared = a.plan.prepare(run, a.w);
  auto x_hat = a.plan.input_spectra(&a.memory);
  a.plan.forward(run, {.x = a.x, .w = prepared, .y = a.y, .x_hat = &x_hat});
  auto padded = parse_problem("ic9id14oc8kd3");
  padded.pad_after = Extent3::all(4);
  for (const ConvProblem& p : {parse_problem("ic9id14oc8kd5"), padded}) {
    CAPTURE(to_string(p));
    ConvCase<float> b(p, shared(Extent3::all(8), 4));
    const auto wb = b.plan.prepare(run, b.w);
    CHECK_THROWS_AS(b.plan.backward(run, {.x = a.x, .dy = b.dy, .w = wb, .x_hat = &x_hat, .dw = b.dw}), StaleCache);
  }
}

TEST_CASE("with shared tiles each tile of x and dy is transformed once in a training step") {
  // 12 voxels of y in tiles of 4 give 27 tiles. x has two channel blocks, y has three.
  ConvCase<float> c(parse_problem("ic20id14oc33kd3"), shared(Extent3::all(6), 4));
  c.run();
  const TransformCounts kept = c.plan.transforms();
  CHECK(kept.input == 27 * 2);
  CHECK(kept.gradient == 27 * 3);
  c.run(false);
  const TransformCounts both = c.plan.transforms();
  CHECK(both.input - kept.input == 2 * 27 * 2);  // by forward and for dw
  CHECK(both.gradient - kept.gradient == 27 * 3);
}

TEST_CASE("spectra of x serve another plan of the same tiles, and those of another x its own weights' gradient") {
  const ConvOptions options = shared(Extent3::all(6), 4);
  ConvCase<float> a(parse_problem("ic9id14oc8kd3"), options), b(parse_problem("ic9id14oc21kd3"), options);
  const Execution run{a.scheduler, &a.memory};
  const auto wa = a.plan.prepare(run, a.w), wb = b.plan.prepare(run, b.w);
  auto x_hat = a.plan.input_spectra(&a.memory);
  a.plan.forward(run, {.x = a.x, .w = wa, .y = a.y, .x_hat = &x_hat});
  CHECK(x_hat.bytes() > 0);
  b.plan.backward(run, {.x = a.x, .dy = b.dy, .w = wb, .x_hat = &x_hat, .dx = b.dx, .dw = b.dw});
  auto dw_of_b = test::poisoned<float>(b.problem.w_shape());
  b.plan.backward(run, {.x = a.x, .dy = b.dy, .w = wb, .dx = b.dx, .dw = dw_of_b});
  CHECK(test::same_bits(b.dw, dw_of_b));

  // The calls of one plan keep their graph, so each call must use its own bindings.
  const auto other = random_tensor<float>(a.problem.x_shape(), 21);
  auto other_hat = a.plan.input_spectra(&a.memory);
  a.plan.forward(run, {.x = other, .w = wa, .y = a.y, .x_hat = &other_hat});
  a.plan.backward(run, {.x = a.x, .dy = a.dy, .w = wa, .x_hat = &x_hat, .dx = a.dx, .dw = a.dw});
  a.plan.backward(run, {.x = other, .dy = a.dy, .w = wa, .x_hat = &other_hat, .dx = a.dx, .dw = a.dw});
  auto dw = test::poisoned<float>(a.problem.w_shape());
  a.plan.backward(run, {.x = other, .dy = a.dy, .w = wa, .dw = dw});
  CHECK(test::same_bits(a.dw, dw));
}

TEST_CASE("debug builds notice spectra of another x, in either layout", "[debug]") {
  const ConvOptions options = shared(Extent3::all(6), 4);
  ConvCase<float> c(parse_problem("ic9id14oc8kd3"), options);
  const Execution run{c.scheduler, &c.memory};
  const auto prepared = c.plan.prepare(run, c.w);
  auto x_hat = c.plan.input_spectra(&c.memory);
  c.plan.forward(run, {.x = c.x, .w = prepared, .y = c.y, .x_hat = &x_hat});
  c.x.data()[c.x.elements() - 1] += 1;
  const auto backward = [&] {
    c.plan.backward(run, {.x = c.x, .dy = c.dy, .w = prepared, .x_hat = &x_hat, .dw = c.dw});
  };
#ifdef NDEBUG
  CHECK_NOTHROW(backward());
#else
  CHECK_THROWS_AS(backward(), StaleCache);
#endif
}
