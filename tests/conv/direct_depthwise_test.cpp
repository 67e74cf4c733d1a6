// Tests depthwise convolution of the direct engine against the reference in double: any stride, dilation and padding,
// channels that fill blocks partly, both layouts, and what the engine promises besides the numbers.
#include "testing/engine_checks.hpp"
#include "testing/sanitizers.hpp"
#include "testing/selected_row.hpp"

#include "convolume/cpu.hpp"

using namespace convolume;
using test::Blocked;
using test::ConvCase;

namespace {

const ConvOptions direct{.engine = Engine::direct};

ConvProblem random_problem(std::uint64_t seed) {
  const RandomKey key{.seed = 83};
  std::uint64_t draw = seed * 256;
  const auto below = [&](index_t n) {
    return static_cast<index_t>(uniform_below(key, draw++, static_cast<std::uint64_t>(n)));
  };
  ConvProblem p;
  for (;;) {
    p.batch = 1 + below(3);
    p.groups = p.in_channels = p.out_channels = 2 + below(below(2) == 0 ? 39 : 8);
    for (int axis = 0; axis < 3; ++axis) {
      p.input[axis] = 1 + below(axis == 2 ? 40 : 13);
      p.kernel[axis] = below(4) == 0 ? 1 : 1 + below(axis == 2 ? 12 : 7);
      p.stride[axis] = below(3) == 0 ? 1 + below(3) : 1;
      p.dilation[axis] = below(4) == 0 ? 1 + below(3) : 1;
      p.pad_before[axis] = below(2) == 0 ? below(5) : 0;
      p.pad_after[axis] = below(2) == 0 ? below(5) : 0;
    }
    p.transposed = below(3) == 0;
    for (int axis = 0; axis < 3; ++axis) p.output_padding[axis] = p.transposed ? below(p.stride[axis]) : 0;
    p.epilogue.bias = below(2) == 0;
    constexpr Activation::Kind kinds[] = {Activation::Kind::none, Activation::Kind::none, Activation::Kind::sigmoid,
                                          Activation::Kind::tanh, Activation::Kind::softsign};
    p.epilogue.activation.kind = kinds[below(std::ssize(kinds))];
    try {
      p.validate();
      if (p.flops() < 2e7) return p;
    } catch (const Error&) {
      // The kernel does not fit, so draw again.
    }
  }
}

}  // namespace

TEST_CASE("depthwise direct agrees with the double reference over random problems, in double and float") {
  for (std::uint64_t seed = 0; seed < (test::sanitized ? 12 : 60); ++seed) {
    CAPTURE(seed);
    const auto p = random_problem(seed);
    test::check_against_reference<double>(p, direct, 1e-12);
    test::check_against_reference<float>(p, direct, 1e-5);
  }
}

TEST_CASE("depthwise direct is accurate to 2e-6 on layers of ordinary size, on every SIMD target") {
  const std::string before = simd_target();
  for (const auto& target : available_simd_targets()) {
    if (test::sanitized && target != before) continue;
    set_simd_target(target);
    CAPTURE(target);
    for (const char* text : {"g20ic20id10ih9iw33oc20kd3pd1", "g33mb2ic33id9ih13iw17oc33kd5pd2",
                             "g16ic16id12oc16od12kd7pd3", "g7ic7id1ih20iw31oc7kd1kh11kw11pd0ph5pw5",
                             "g18ic18id9oc18kd3sd2pd1", "g3ic3id5oc3od1kd5pd0", "g4ic4id5ih5iw5oc4od6oh5ow6kd1pd0"}) {
      test::check_against_reference<float>(parse_problem(text), direct, 2e-6);
    }
    test::check_against_reference<double>(parse_problem("g19ic19id9oc19kd3sd2pd1"), direct, 1e-14);
    test::check_against_reference<double>(parse_problem("g9ic9id8ih9iw20oc9kd5pd2"), direct, 1e-14);
  }
  set_simd_target(before);
}

TEST_CASE("depthwise direct is exact on small integers") {
  for (const char* text :
       {"mb2g20ic20id9oc20kd3pd1", "g3ic3id12oc3kd5", "g40ic40id10oc40kd1", "g5ic5id11oc5kd3sd2pd1"}) {
    if (test::too_slow_here(parse_problem(text))) continue;
    ConvCase<float> ours(parse_problem(text), direct, true);
    ConvCase<float> reference(ours.problem, {.engine = Engine::reference}, true);
    ours.run();
    reference.run();
    CAPTURE(text);
    test::check_same_bits(ours, reference);
  }
}

TEST_CASE("depthwise direct: forward and backward are adjoint: <Ax, dy> = <x, A'dy> = <w, dA/dw>") {
  for (std::uint64_t seed = 100; seed < 130; ++seed) {
    auto p = random_problem(seed);
    p.epilogue = {};
    CAPTURE(seed, to_string(p));
    test::check_adjoint(p, direct);
  }
}

TEST_CASE("depthwise direct has the same bits on 1, 2 and 8 threads") {
  test::check_threads(
      {"mb2g3ic3id12oc3kd3pd1", "g70ic70id16oc70kd5pd2", "g20ic20id28oc20kd3pd1", "g9ic9id17oc9kd3sd2pd1"}, direct,
      direct);
}

TEST_CASE("depthwise direct gives the same bits in blocked memory, and zero in lanes without a channel") {
  for (const char* text : {"mb2g20ic20id8oc20kd3pd1", "g16ic16id10ih12iw31oc16kd3kh5kw7pd1ph2pw3",
                           "g41ic41id3ih20iw19oc41kd1", "g18ic18id9oc18kd3sd2pd1"}) {
    for (const bool transposed : {false, true}) {
      auto p = parse_problem(text);
      p.transposed = transposed;
      for (const auto kind : {Activation::Kind::none, Activation::Kind::sigmoid}) {
        test::check_layouts<float>(p, direct, true, true, kind);
        test::check_layouts<float>(p, direct, false, true, kind);
        test::check_layouts<float>(p, direct, true, false, kind);
        test::check_layouts<double>(p, direct, true, true, kind);
      }
    }
  }
}

TEST_CASE("depthwise direct adds to dx, dw and dbias where asked") {
  for (const char* text : {"g3ic3id10oc3kd3pd1", "g9ic9id10oc9kd2sd3", "g20ic20id5oc20kd1", "g6ic6id9oc6kd5pd2"})
    test::check_add(text, direct);
}

TEST_CASE("depthwise direct adds to a blocked dx, and keeps its lanes without a channel zero") {
  auto p = parse_problem("g20ic20id7oc20kd5pd2");
  p.x_layout = p.y_layout = Layout::blocked;
  ConvCase<float> plain(parse_problem("g20ic20id7oc20kd5pd2"), direct);
  plain.run();
  const auto plan = ConvPlan::make(p, direct);
  const Execution run{plain.scheduler, &plain.memory};
  Blocked<float> dy(plain.dy), dx(plain.x);
  const auto prepared = plan.prepare(run, plain.w);
  plan.backward(run, {.dy = dy.view(), .w = prepared, .dx = dx.view(), .add_dx = true});
  for (index_t i = 0; i < plain.x.elements(); ++i) plain.x.data()[i] += plain.dx.data()[i];
  CHECK(dx.equals(plain.x));
  CHECK(dx.padding_is_zero());
}

TEST_CASE("depthwise direct waits for the planes that it reads and announces those that it writes") {
  for (const char* text : {"g5ic5id24ih9oc5kd5pd2", "mb2g18ic18id16ih9oc18kd3sd2pd1"}) {
    for (const bool transposed : {false, true}) {
      auto p = parse_problem(text);
      p.transposed = transposed;
      test::check_ready(p, direct);
    }
  }
}

TEST_CASE("depthwise direct takes kernels with strides of their own") {
  ConvCase<float> c(parse_problem("g18ic18id6oc18kd3pd1"), direct);
  c.run();
  const Execution run{c.scheduler, &c.memory};
  const Shape5 wide{18, 2, {3, 3, 4}};
  Tensor<float> memory(wide), gradient(wide);
  View<float> w(memory.data(), c.problem.w_shape()), dw(gradient.data(), c.problem.w_shape());
  w.stride = dw.stride = memory.view().stride;
  for (index_t i = 0; i < c.w.elements(); ++i) w(i / 27, 0, i / 9 % 3, i / 3 % 3, i % 3) = c.w.data()[i];
  const auto prepared = c.plan.prepare(run, w);
  auto y = test::poisoned<float>(c.y.shape());
  c.plan.forward(run, {.x = c.x, .w = prepared, .bias = c.bias, .y = y});
  c.plan.backward(run, {.x = c.x, .dy = c.dy, .w = prepared, .dw = dw});
  CHECK(test::same_bits(y, c.y));
  for (index_t i = 0; i < c.w.elements(); ++i) {
    REQUIRE(dw(i / 27, 0, i / 9 % 3, i / 3 % 3, i % 3) == c.dw.data()[i]);
  }
}

TEST_CASE("depthwise direct refuses foreign weights and gives its memory back where a budget is too small") {
  ConvCase<float> c(parse_problem("g20ic20id8oc20kd3"), direct);
  const Execution run{c.scheduler, &c.memory};
  for (const char* text : {"g2ic2id8oc2kd3", "ic20id8oc20kd3", "g20ic20id8oc20kd2"}) {
    ConvCase<float> other(parse_problem(text), direct);
    const auto foreign = other.plan.prepare(run, other.w);
    CHECK_THROWS_AS(c.plan.forward(run, {.x = c.x, .w = foreign, .y = c.y}), StaleCache);
  }
  const auto unprepared = c.plan.prepared_weights(&c.memory);
  TaskGraph graph;
  c.plan.append_forward(graph, {}, {.x = c.x, .w = unprepared, .y = c.y}, &c.memory);
  CHECK_THROWS_AS(graph.run(c.scheduler), StaleCache);
  const auto prepared = c.plan.prepare(run, c.w);
  SlabResource tiny({.upstream = mmap_resource(), .budget = 20000});
  CHECK_THROWS_AS(c.plan.backward({c.scheduler, &tiny}, {.x = c.x, .dy = c.dy, .w = prepared, .dx = c.dx, .dw = c.dw}),
                  MemoryBudgetExceeded);
  CHECK(tiny.statistics().live_bytes == 0);
}

TEST_CASE("depthwise direct serves blocked tensors of any number of channels, and says what it is") {
  auto p = parse_problem("g20ic20id60oc20kd3dd9");
  p.x_layout = p.y_layout = Layout::blocked;
  CHECK_THAT(ConvPlan::make(p, direct).numerics(), Catch::Contains("depthwise") && Catch::Contains(simd_target()));
}

TEST_CASE("automatic takes the direct way for small depthwise kernels and tiles for large ones") {
  const test::SelectedRow row("zen5");
  for (const auto& [text, engine] : {std::pair{"g32ic32id32oc32od32kd3pd1", Engine::direct},
                                     std::pair{"g32ic32id12ih64iw64oc32od12oh64ow64kd1kh3kw3pd0ph1pw1", Engine::direct},
                                     std::pair{"g48ic48id48oc48od48kd7pd3", Engine::fft_tiled},
                                     std::pair{"g32ic32id32oc32od32kd11pd5", Engine::fft_tiled}}) {
    auto p = parse_problem(text);
    p.x_layout = p.y_layout = Layout::blocked;
    CAPTURE(text);
    CHECK(ConvPlan::make(p, {}).engine() == engine);
  }
}
