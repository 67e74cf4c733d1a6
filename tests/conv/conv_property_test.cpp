// Tests engines against the reference in double, over generated shapes.
#include "testing/engine_checks.hpp"
#include "testing/random_problem.hpp"
#include "testing/sanitizers.hpp"

#include "convolume/cpu.hpp"

using namespace convolume;
using test::ConvCase;

namespace {

constexpr test::ProblemRanges small_problems{
    .stream = 77, .most_channels = 12, .most_voxels = 11, .most_kernel = 5, .rectifiers = true, .most_flops = 4e6};

/// Compares everything that an execution writes with the double reference on the same data.
template <class T>
void check_against_reference(const ConvProblem& p, double tolerance) {
  ConvCase<T> ours(p, {.engine = Engine::fft_volume});
  ConvCase<double> reference(p, {.engine = Engine::reference});
  for (auto [to, from] : {std::pair{&reference.x, &ours.x}, std::pair{&reference.w, &ours.w},
                          std::pair{&reference.bias, &ours.bias}, std::pair{&reference.dy, &ours.dy}}) {
    for (index_t i = 0; i < to->elements(); ++i) to->data()[i] = static_cast<double>(from->data()[i]);
  }
  ours.run();
  reference.run();
  CAPTURE(ours.plan.explain(), p.batch, p.transposed);
  REQUIRE(test::relative_error(ours.y, reference.y) <= tolerance);
  if (p.epilogue.activation.kind == Activation::Kind::none) {
    // Only smooth gradients are compared: a rectifier's slope jumps where rounding may fall on either side.
    REQUIRE(test::relative_error(ours.dx, reference.dx) <= tolerance);
    REQUIRE(test::relative_error(ours.dw, reference.dw) <= tolerance);
    REQUIRE(test::relative_error(ours.dbias, reference.dbias) <= tolerance);
  }
}

}  // namespace

TEST_CASE("fft_volume agrees with the double reference over random problems, in double and float") {
  for (std::uint64_t seed = 0; seed < (test::thread_sanitized ? 10 : 60); ++seed) {
    CAPTURE(seed);
    auto p = test::random_problem(small_problems, seed);
    check_against_reference<double>(p, 1e-12);
    // The promised bound is for sums of many random terms. Sums of a few terms that cancel have a larger relative
    // error.
    check_against_reference<float>(p, 4e-6);
  }
}

TEST_CASE("fft_volume is accurate to 2e-6 on a layer of ordinary size, on every SIMD target", "[serial]") {
  const std::string before = simd_target();
  for (const auto& target : available_simd_targets()) {
    set_simd_target(target);
    CAPTURE(target);
    check_against_reference<float>(parse_problem("ic8id14ih15iw17oc4kd3kh5kw3"), 2e-6);
    check_against_reference<float>(parse_problem("ic8id3ih20iw17oc4kd1kh3kw3ph1pd0"), 2e-6);
  }
  set_simd_target(before);
}

TEST_CASE("fft_volume: few sums of many channels are shared by tasks, with the same bits in any order") {
  const ConvOptions volume{.engine = Engine::fft_volume}, recomputed{.engine = Engine::fft_volume, .memory_budget = 1};
  for (const char* text : {"ic33id9oc2kd3", "ic3id8oc40kd3pd1", "mb2g2ic36id7oc36kd2"}) {
    test::check_against_reference<double>(parse_problem(text), volume, 1e-13);
    test::check_against_reference<float>(parse_problem(text), volume, 2e-6);
    test::check_adjoint(parse_problem(text), volume);
  }
  test::check_threads({"ic33id12oc2kd3", "ic3id12oc40kd3pd1"}, volume, recomputed);
}

TEST_CASE("small integers come out exact after rounding") {
  ConvCase<float> ours(parse_problem("mb2ic4id9oc3kd3pd1"), {.engine = Engine::fft_volume}, true);
  ConvCase<float> reference(ours.problem, {.engine = Engine::reference}, true);
  ours.run();
  reference.run();
  for (index_t i = 0; i < ours.y.elements(); ++i) REQUIRE(std::round(ours.y.data()[i]) == reference.y.data()[i]);
  for (index_t i = 0; i < ours.dx.elements(); ++i) REQUIRE(std::round(ours.dx.data()[i]) == reference.dx.data()[i]);
  for (index_t i = 0; i < ours.dw.elements(); ++i) REQUIRE(std::round(ours.dw.data()[i]) == reference.dw.data()[i]);
}

TEST_CASE("forward and backward are adjoint: <Ax, dy> = <x, A'dy> = <w, dA/dw>") {
  for (std::uint64_t seed = 100; seed < 130; ++seed) {
    auto p = test::random_problem(small_problems, seed);
    p.epilogue = {};
    CAPTURE(seed, to_string(p), p.transposed);
    test::check_adjoint(p, {.engine = seed % 2 == 0 ? Engine::fft_volume : Engine::reference});
  }
}

TEST_CASE("gradients agree with central differences in double, fused activations included") {
  for (const auto kind : {Activation::Kind::none, Activation::Kind::leaky_relu, Activation::Kind::sigmoid,
                          Activation::Kind::tanh, Activation::Kind::softsign}) {
    for (const bool transposed : {false, true}) {
      ConvProblem p{.batch = 2,
                    .in_channels = 2,
                    .out_channels = 3,
                    .input = {2, 4, 5},
                    .kernel = {2, 3, 2},
                    .stride = {1, 2, 1},
                    .pad_before = {1, 0, 1},
                    .transposed = transposed,
                    .epilogue = {.bias = true, .activation = {kind, 0.1}}};
      for (const Engine engine : {Engine::fft_volume, Engine::direct, Engine::reference}) {
        CAPTURE(name_of(kind), transposed, name_of(engine));
        ConvCase<double> c(p, {.engine = engine});
        c.run();
        const auto loss = [&] {
          const Execution run{c.scheduler, &c.memory};
          const auto prepared = c.plan.prepare(run, c.w);
          c.plan.forward(run, {.x = c.x, .w = prepared, .bias = c.bias, .y = c.y});
          return test::dot(c.y, c.dy);
        };
        for (auto [value, gradient] : {std::pair{&c.x, &c.dx}, std::pair{&c.w, &c.dw}, std::pair{&c.bias, &c.dbias}}) {
          for (index_t i = 0; i < value->elements(); i += 1 + value->elements() / 5) {
            const double old = value->data()[i], step = 1e-5;
            value->data()[i] = old + step;
            const double above = loss();
            value->data()[i] = old - step;
            const double below = loss();
            value->data()[i] = old;
            REQUIRE(gradient->data()[i] == Approx((above - below) / (2 * step)).epsilon(1e-5).margin(1e-6));
          }
        }
      }
    }
  }
}

TEST_CASE("fft_volume agrees with the double reference over two thousand random problems", "[.long]") {
  for (std::uint64_t seed = 1000; seed < 3000; ++seed) {
    CAPTURE(seed);
    const auto p = test::random_problem(small_problems, seed);
    check_against_reference<double>(p, 1e-12);
    check_against_reference<float>(p, 1e-5);
  }
}

TEST_CASE("negative padding leaves out voxels, in every direction") {
  const ConvProblem p{.batch = 2,
                      .in_channels = 5,
                      .out_channels = 18,
                      .input = {13, 14, 22},
                      .kernel = {3, 3, 3},
                      .stride = {1, 2, 1},
                      .pad_before = {-2, -1, 1},
                      .pad_after = {1, -3, -4}};
  ConvProblem depthwise = p;
  depthwise.in_channels = depthwise.out_channels = depthwise.groups = 18;
  test::check_against_reference<float>(p, {.engine = Engine::fft_tiled}, 2e-6);
  test::check_against_reference<double>(depthwise, {.engine = Engine::fft_tiled}, 1e-13);
  test::check_adjoint(p, {.engine = Engine::fft_tiled});
  for (const Engine engine : {Engine::fft_volume, Engine::direct}) {
    for (const ConvProblem& problem : {p, depthwise}) {
      CHECK_THROWS_WITH(ConvPlan::make(problem, {.engine = engine}), Catch::Contains("leaves out voxels"));
    }
  }

  // The reference itself: the same as a convolution of the voxels that remain.
  ConvCase<double> all(p, {.engine = Engine::reference});
  all.run();
  ConvProblem rest = p;
  rest.input = {11, 10, 18};
  rest.pad_before = {0, 0, 1};
  rest.pad_after = {1, 0, 0};
  ConvCase<double> cropped(rest, {.engine = Engine::reference});
  cropped.w = test::random_tensor<double>(p.w_shape(), 2);
  cropped.bias = test::random_tensor<double>({1, 18, {1, 1, 1}}, 3);
  const auto x = all.x.view();
  for (index_t n = 0; n < 2; ++n) {
    for (index_t c = 0; c < 5; ++c) {
      for (index_t z = 0; z < 11; ++z) {
        for (index_t y = 0; y < 10; ++y) {
          for (index_t i = 0; i < 18; ++i) cropped.x.view()(n, c, z, y, i) = x(n, c, z + 2, y + 1, i);
        }
      }
    }
  }
  cropped.run();
  CHECK(test::same_bits(all.y, cropped.y));

  ConvProblem nothing = p;
  nothing.pad_before.z = -13;
  CHECK_THROWS_WITH(ConvPlan::make(nothing), Catch::Contains("leave out all voxels"));
}
