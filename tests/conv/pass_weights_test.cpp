// Tests passes that get their weights as a tensor instead of prepared weights.
#include <algorithm>
#include <limits>
#include <string>
#include <utility>
#include <vector>

#include "testing/conv_case.hpp"
#include "testing/direct_nests.hpp"
#include <catch2/catch.hpp>

#include "convolume/cpu.hpp"
#include "convolume/error.hpp"

using namespace convolume;
using test::ConvCase;

namespace {

/// Returns how many tasks of a forward pass, or of backward data, have a name. The weights are a tensor.
template <class T>
index_t tasks_named(ConvCase<T>& c, bool forward, const std::string& name) {
  TaskGraph graph;
  if (forward) {
    c.plan.append_forward(graph, {}, {.x = c.x, .w = c.w, .bias = c.bias, .y = c.y}, &c.memory);
  } else {
    c.plan.append_backward(graph, {}, {.y = c.y, .dy = c.dy, .w = c.w, .dx = c.dx}, &c.memory);
  }
  const auto tasks = graph.describe();
  return std::count_if(tasks.begin(), tasks.end(), [&](const auto& task) { return task.options.name == name; });
}

/// Compares passes that get a tensor with passes that get prepared weights.
template <class T>
void check_same_bits(const ConvProblem& p, const ConvOptions& options) {
  ConvCase<T> prepared(p, options), c(p, options, false, 2);
  prepared.run();
  const Execution run{c.scheduler, &c.memory};
  const std::size_t before = c.memory.statistics().live_bytes;
  for (int repeat = 0; repeat < 2; ++repeat) {
    for (auto* tensor : {&c.y, &c.dx, &c.dw, &c.dbias}) tensor->fill(std::numeric_limits<T>::quiet_NaN());
    c.plan.forward(run, {.x = c.x, .w = c.w, .bias = c.bias, .y = c.y});
    c.plan.backward(run, {.x = c.x, .y = c.y, .dy = c.dy, .w = c.w, .dx = c.dx, .dw = c.dw, .dbias = c.dbias});
    CHECK(test::same_bits(c.y, prepared.y));
    CHECK(test::same_bits(c.dx, prepared.dx));
    CHECK(test::same_bits(c.dw, prepared.dw));
    CHECK(test::same_bits(c.dbias, prepared.dbias));
  }
  CHECK(c.memory.statistics().live_bytes == before);
}

struct WeightCase {
  const char *problem, *fwd, *bwd_d;  // nests for float, whose channel blocks have 16 channels
  bool forward, backward;             // whether regions pack
};

/// Returns the nest for channel blocks of T.
template <class T>
plan::LoopNest nest_for(const char* text) {
  std::string nest = text;
  for (const auto& [float_size, double_size] : {std::pair{"16", "8"}, {"32", "16"}}) {
    for (std::size_t at = 0; sizeof(T) == 8 && (at = nest.find(float_size, at)) != std::string::npos;) {
      nest.replace(at, 2, double_size);
      at += 2;
    }
  }
  return plan::parse_nest(nest);
}

template <class T>
void check_packing(const WeightCase& one) {
  ConvProblem p = parse_problem(one.problem);
  p.type = data_type_of<T>();
  p.epilogue.bias = true;
  conv::Nests nests = test::direct_nests(p);
  nests[0] = nest_for<T>(one.fwd);
  nests[1] = nest_for<T>(one.bwd_d);
  const ConvOptions options{.choice = test::choice_text(nests)};
  ConvCase<T> c(p, options);
  CHECK((tasks_named(c, true, "pack weights") == 0) == one.forward);
  CHECK((tasks_named(c, false, "pack weights") == 0) == one.backward);
  check_same_bits<T>(p, options);
}

}  // namespace

TEST_CASE("a pass that gets a tensor of weights computes the bits of prepared weights, and keeps no memory") {
  const std::vector<Engine> all{Engine::reference, Engine::fft_volume, Engine::fft_tiled, Engine::direct};
  const std::vector<Engine> without_volumes{Engine::reference, Engine::direct};
  for (const auto& [text, engines] : {std::pair{"ic5id7oc9kd3", all},
                                      {"mb2ic3id8oc4kd3pd1", all},
                                      {"g2ic6id7oc4kd3pd1", all},
                                      {"ic20ih9oc18kh3ph1", all},
                                      {"ic7id5oc3kd1", without_volumes},
                                      {"ic33id3oc17kd3pd1", all},
                                      {"g6ic6id9oc6kd3", {Engine::reference, Engine::fft_tiled, Engine::direct}}}) {
    for (const Engine engine : engines) {
      for (const bool transposed : {false, true}) {
        if (transposed && engine == Engine::fft_volume) continue;
        ConvProblem p = parse_problem(text);
        p.transposed = transposed;
        p.epilogue = {.bias = true, .activation = {.kind = Activation::Kind::leaky_relu, .slope = 0.1}};
        CAPTURE(text, name_of(engine), transposed);
        check_same_bits<float>(p, {.engine = engine});
        check_same_bits<double>(p, {.engine = engine});
      }
    }
  }
}

TEST_CASE("direct packs a tensor of weights where it multiplies them, if it reads each weight once") {
  const WeightCase cases[]{
      {"ic40id4oc72kd3pd1", "k* c z y | kz ky kx c16 x k32", "c* k z y | kz ky kx k16 x c32", true, true},
      {"ic40id4oc72kd3pd1", "k* z c y | kz ky kx c16 x k32", "c* z k y | kz ky kx k16 x c16", false, false},
      {"ic40id4oc72kd3pd1", "z* k c y | kz ky kx c16 x k32", "z* c k y | kz ky kx k16 x c16", false, false},
      {"ic33ih5oc17kh3", "k* c y x | ky kx c16 x k16", "c* k y x | ky kx k16 x c16", true, true},
      {"mb2ic40ih6oc40kh3ph1", "n* k* c y x | ky kx c16 x k32", "n* c* k y x | ky kx k16 x c32", false, false},
      {"mb2ic40ih6oc40kh3ph1", "k* c n y x | ky kx c16 x k32", "c* k n y x | ky kx k16 x c32", true, true},
      {"mb2ic40ih6oc40kh3ph1", "k* n c y x | ky kx c16 x k32", "c* n k y x | ky kx k16 x c32", false, false},
      {"ic40ih6oc40kh1", "k* y x | c c16 x k32", "c* y x | k k16 x c32", false, false},
      {"g2ic96id4oc80kd3pd1", "k* c z y | kz ky kx c16 x k32", "c* k z y | kz ky kx k16 x c32", true, true},
      {"ic18id4oc40kd2sd2", "k* c z y | kz ky kx c16 x k32", "c* k z y | kz ky kx k16 x c16", true, true},
  };
  const std::string before = simd_target();
  for (const std::string& target : available_simd_targets()) {
    set_simd_target(target);
    for (const WeightCase& one : cases) {
      CAPTURE(one.problem, one.fwd, target);
      check_packing<float>(one);
      check_packing<double>(one);
    }
  }
  set_simd_target(before);
}

TEST_CASE("calls of one plan may get prepared weights and tensors in turn, dense or not") {
  const ConvProblem p = parse_problem("ic40id4oc72kd3pd1");
  conv::Nests nests = test::direct_nests(p);
  nests[0] = plan::parse_nest("k* c z y | kz ky kx c16 x k32");
  nests[1] = plan::parse_nest("c* k z y | kz ky kx k16 x c32");
  for (const ConvOptions& options :
       {ConvOptions{.choice = test::choice_text(nests)}, ConvOptions{.engine = Engine::fft_tiled},
        ConvOptions{.engine = Engine::fft_volume}}) {
    ConvCase<float> c(p, options), other(p, options);
    other.w = test::random_tensor<float>(p.w_shape(), 9);
    CAPTURE(c.plan.choice());
    c.run();
    other.run();
    const Execution run{c.scheduler, &c.memory};
    const PreparedWeights prepared = c.plan.prepare(run, c.w);
    // The kernels of w, each in the middle of a larger box.
    Tensor<float> box({p.out_channels, p.in_channels, {5, 5, 5}});
    box.fill(std::numeric_limits<float>::quiet_NaN());
    View<float> inside = box.view();
    inside.data = &box.view()(0, 0, 1, 1, 1);
    inside.shape = p.w_shape();
    for (index_t i = 0; i < c.w.elements(); ++i) {
      const index_t x = i % 3, y = i / 3 % 3, z = i / 9 % 3, k = i / 27 % p.in_channels, o = i / 27 / p.in_channels;
      inside(o, k, z, y, x) = c.w.data()[i];
    }
    const std::vector<std::pair<PassWeights, ConvCase<float>*>> calls{{prepared, &c}, {c.w, &c},    {other.w, &other},
                                                                      {prepared, &c}, {inside, &c}, {other.w, &other}};
    for (const auto& [w, expected] : calls) {
      auto y = test::poisoned<float>(p.y_shape());
      auto dx = test::poisoned<float>(p.x_shape());
      c.plan.forward(run, {.x = c.x, .w = w, .y = y});
      c.plan.backward(run, {.dy = c.dy, .w = w, .dx = dx});
      CHECK(test::same_bits(y, expected->y));
      CHECK(test::same_bits(dx, expected->dx));
    }
  }
}

TEST_CASE("a pass that computes dw alone does not read a tensor of weights") {
  const std::pair<const char*, Engine> cases[]{
      {"ic5id7oc9kd3", Engine::reference}, {"ic5id7oc9kd3", Engine::fft_volume}, {"ic5id7oc9kd3", Engine::fft_tiled},
      {"ic5id7oc9kd3", Engine::direct},    {"g2ic6id7oc4kd3", Engine::direct},   {"g6ic6id9oc6kd3", Engine::fft_tiled},
      {"g6ic6id9oc6kd3", Engine::direct}};
  for (const auto& [text, engine] : cases) {
    CAPTURE(text, name_of(engine));
    ConvCase<float> c(parse_problem(text), {.engine = engine});
    c.run();
    auto dw = test::poisoned<float>(c.problem.w_shape());
    const auto w = test::poisoned<float>(c.problem.w_shape());
    c.plan.backward({c.scheduler, &c.memory}, {.x = c.x, .dy = c.dy, .w = w, .dw = dw});
    CHECK(test::same_bits(dw, c.dw));
    TaskGraph graph;
    c.plan.append_backward(graph, {}, {.x = c.x, .dy = c.dy, .w = w, .dw = dw}, &c.memory);
    dw.fill(std::numeric_limits<float>::quiet_NaN());
    graph.run(c.scheduler);
    CHECK(test::same_bits(dw, c.dw));
  }
}

TEST_CASE("a graph reads the tensor of weights anew in each run, after the tasks that complete it") {
  const ConvProblem p = parse_problem("ic40id4oc72kd3pd1");
  conv::Nests nests = test::direct_nests(p);
  nests[0] = plan::parse_nest("k* c z y | kz ky kx c16 x k32");
  for (const ConvOptions& options :
       {ConvOptions{.choice = test::choice_text(nests)}, ConvOptions{.engine = Engine::fft_tiled},
        ConvOptions{.engine = Engine::fft_volume}}) {
    ConvCase<float> c(p, options);
    CAPTURE(c.plan.choice());
    TaskGraph graph;
    std::vector<TaskId> rows;  // complete the rows of w
    for (index_t o = 0; o < p.out_channels; ++o) {
      rows.push_back(graph.add({.name = "double a row of w"}, [&c, o, row = p.in_channels * p.kernel.volume()] {
        for (index_t i = o * row; i < (o + 1) * row; ++i) c.w.data()[i] *= 2;
      }));
    }
    const Ready ready(rows, p.out_channels, 1, 1, 1);
    c.plan.append_forward(graph, {.w = ready}, {.x = c.x, .w = c.w, .y = c.y}, &c.memory);
    const auto tasks = graph.describe();
    for (const TaskId row : rows) {
      index_t after = 0;
      for (std::size_t i = rows.size(); i < tasks.size(); ++i) after += graph.ordered(row, static_cast<TaskId>(i));
      CHECK(after > 0);
    }
    c.run();
    for (const int threads : {1, 2, 8}) {
      Scheduler scheduler(threads);
      auto expected = test::poisoned<float>(p.y_shape());
      for (index_t i = 0; i < expected.elements(); ++i) expected.data()[i] = 2 * c.y.data()[i];
      c.y.fill(std::numeric_limits<float>::quiet_NaN());
      graph.run(scheduler);
      CHECK(test::same_bits(c.y, expected));
    }
  }
}

TEST_CASE("a tensor of weights that does not fit the problem is refused") {
  ConvCase<float> c(parse_problem("ic4id5oc6kd3"), {});
  const Execution run{c.scheduler, &c.memory};
  const Tensor<float> other({6, 4, {3, 3, 2}});
  CHECK_THROWS_WITH(c.plan.forward(run, {.x = c.x, .w = other, .y = c.y}), Catch::Contains("w has shape"));
  CHECK_THROWS_WITH(c.plan.forward(run, {.x = c.x, .w = ConstTensorView(), .y = c.y}), Catch::Contains("w is missing"));
  CHECK_THROWS_WITH(c.plan.backward(run, {.dy = c.dy, .w = other, .dx = c.dx}), Catch::Contains("w has shape"));
}
