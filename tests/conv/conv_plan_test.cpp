// Tests what plans promise besides the numbers: caches, reuse, threads, errors.
#include <algorithm>
#include <limits>
#include <thread>
#include <vector>

#include "testing/conv_case.hpp"
#include "testing/direct_nests.hpp"
#include "testing/engine_checks.hpp"
#include "testing/selected_row.hpp"
#include <catch2/catch.hpp>

#include "convolume/blocking.hpp"
#include "convolume/convolume.h"
#include "convolume/cpu.hpp"

using namespace convolume;
using test::ConvCase;

TEST_CASE("fft_volume keeps the bits of spectra in natural order: small ones are not transformed along Z first") {
  ConvProblem problem = parse_problem("ic2id10ih20iw20oc4kd9pd4");
  const std::string numerics = ConvPlan::make(problem, {.engine = Engine::fft_volume}).numerics();
  REQUIRE_THAT(numerics, Catch::Contains("natural"));
  CHECK_THAT(numerics, !Catch::Contains("half-complex"));
}

TEST_CASE("each spectrum is computed once per iteration and one inverse per output") {
  ConvCase<float> c(parse_problem("mb2ic3id8oc5kd3"), {.engine = Engine::fft_volume}, false, 2);
  c.run();
  const auto counts = c.plan.transforms();
  CHECK(counts.input == 2 * 3);                    // x_hat once: the weight gradient reuses it
  CHECK(counts.weights == 3 * 5);                  // w_hat once: backward data reuses it
  CHECK(counts.gradient == 2 * 5);                 // dy_hat once for both dx and dw
  CHECK(counts.inverse == 2 * 5 + 2 * 3 + 3 * 5);  // y, dx, dw: after the sums
}

TEST_CASE("the same bits come out with and without caches, kept or recomputed weights, on 1, 2 and 3 threads") {
  for (const char* text : {"mb2ic3id8oc4kd3pd1", "ic6id6oc9kd3pd1", "ic4id3ih16iw16oc6kd1kh3kw3", "g2ic4id6oc4kd2"}) {
    const auto p = parse_problem(text);
    ConvCase<float> first(p, {.engine = Engine::fft_volume});
    first.run();
    for (const int threads : {1, 2, 3}) {
      ConvCase<float> other(p, {.engine = Engine::fft_volume, .memory_budget = threads == 2 ? 0u : 1u}, false, threads);
      const Execution run{other.scheduler, &other.memory};
      const auto prepared = other.plan.prepare(run, other.w);
      for (int repeat = 0; repeat < 2; ++repeat) {
        other.plan.forward(run, {.x = other.x, .w = prepared, .bias = other.bias, .y = other.y});
        other.plan.backward(run, {.x = other.x,
                                  .y = other.y,
                                  .dy = other.dy,
                                  .w = prepared,
                                  .dx = other.dx,
                                  .dw = other.dw,
                                  .dbias = other.dbias});
      }
      CHECK(test::same_bits(first.y, other.y));
      CHECK(test::same_bits(first.dx, other.dx));
      CHECK(test::same_bits(first.dw, other.dw));
      CHECK(test::same_bits(first.dbias, other.dbias));
    }
  }
}

TEST_CASE("either backend gives the same bits with and without caching, and both the same numbers") {
  for (const char* text :
       {"mb2ic3id10oc4kd3pd1", "ic5id11oc3kd5", "ic3id9oc4kd3dd1", "ic4id3ih20iw20oc3kd1kh3kw3", "g2ic4id8oc4kd3sd2"}) {
    const auto p = parse_problem(text);
    CAPTURE(text);
    ConvCase<double> reference(p, {.engine = Engine::reference});
    reference.run();
    for (const fft::Backend backend : {fft::Backend::native, fft::Backend::fftw}) {
      CAPTURE(backend == fft::Backend::fftw);
      ConvOptions options{.engine = Engine::fft_volume, .fft = {.backend = backend}};
      ConvCase<float> kept(p, options);
      kept.run();
      CHECK(test::relative_error(kept.y, reference.y) < 2e-6);
      CHECK(test::relative_error(kept.dx, reference.dx) < 2e-6);
      CHECK(test::relative_error(kept.dw, reference.dw) < 2e-6);
      CHECK(test::relative_error(kept.dbias, reference.dbias) < 2e-6);
      options.cache_spectra = false;
      ConvCase<float> recomputed(p, options, false, 2);
      recomputed.run(false);
      CHECK(test::same_bits(kept.y, recomputed.y));
      CHECK(test::same_bits(kept.dx, recomputed.dx));
      CHECK(test::same_bits(kept.dw, recomputed.dw));
      CHECK(test::same_bits(kept.dbias, recomputed.dbias));
      CHECK(recomputed.memory.statistics().live_bytes == 0);
      CHECK_THAT(kept.plan.numerics(), Catch::Contains(backend == fft::Backend::fftw ? "fftw" : "native") &&
                                           !Catch::Contains(backend == fft::Backend::fftw ? "native" : "fftw"));
      CHECK(kept.plan.numerics() == recomputed.plan.numerics());
    }
  }
}

TEST_CASE("without caching spectra are computed for each product that reads them") {
  ConvCase<float> c(parse_problem("ic3id8oc5kd3"), {.engine = Engine::fft_volume, .cache_spectra = false}, false, 2);
  c.run(false);
  const auto counts = c.plan.transforms();
  CHECK(counts.input == 3 + 3);            // for y, for dw
  CHECK(counts.weights == 3 * 5 + 3 * 5);  // for y, for dx
  CHECK(counts.gradient == 5 + 5);         // for dx, for dw
  CHECK(counts.inverse == 5 + 3 + 3 * 5);  // y, dx, dw: unchanged
  CHECK(counts.seconds > 0);
  for (const CacheCost& cache : c.plan.caches()) CHECK(!cache.kept);
  CHECK_THAT(c.plan.explain(), Catch::Contains("dy_hat: recomputed"));
  // A cache that the caller binds is still used.
  const Execution run{c.scheduler, &c.memory};
  const auto prepared = c.plan.prepare(run, c.w);
  auto dy_hat = c.plan.gradient_spectra(&c.memory);
  c.plan.backward(run, {.x = c.x, .dy = c.dy, .w = prepared, .dy_hat = &dy_hat, .dx = c.dx, .dw = c.dw});
  CHECK(c.plan.transforms().gradient == counts.gradient + 5);
}

TEST_CASE("a plan runs the kernels of the SIMD target for which it was made, and says so") {
  const std::string before = simd_target();
  const Epilogue epilogue{.bias = true, .activation = {.kind = Activation::Kind::leaky_relu, .slope = 0.1}};
  for (const auto& [text, engine] : {std::pair{"ic5id9oc7kd3", Engine::fft_volume},
                                     {"ic5id9oc7kd3", Engine::fft_tiled},
                                     {"ic5id9oc7kd3pd1", Engine::direct},
                                     {"ic5id9oc7kd1", Engine::direct},
                                     {"g6ic6id9oc6kd3", Engine::fft_tiled},
                                     {"g6ic6id9oc6kd3", Engine::direct}}) {
    auto p = parse_problem(text);
    p.epilogue = epilogue;
    for (const std::string& target : available_simd_targets()) {
      set_simd_target(target);
      ConvCase<float> there(p, {.engine = engine}), elsewhere(p, {.engine = engine});
      there.run();
      CAPTURE(text, target);
      for (const std::string& other : available_simd_targets()) {
        set_simd_target(other);
        elsewhere.run();
        CHECK(test::same_bits(there.y, elsewhere.y));
        CHECK(test::same_bits(there.dx, elsewhere.dx));
        CHECK(test::same_bits(there.dw, elsewhere.dw));
        CHECK(test::same_bits(there.dbias, elsewhere.dbias));
        CHECK_THAT(elsewhere.plan.numerics(), Catch::Contains(target));
      }
    }
  }
  set_simd_target(before);
}

TEST_CASE("caches of the other backend are refused") {
  const auto p = parse_problem("ic2id8oc2kd3");
  ConvCase<float> ours(p, {.engine = Engine::fft_volume});
  const auto fftw = ConvPlan::make(p, {.engine = Engine::fft_volume, .fft = {.backend = fft::Backend::fftw}});
  const Execution run{ours.scheduler, &ours.memory};
  const auto prepared = fftw.prepare(run, ours.w);
  CHECK_THROWS_AS(ours.plan.forward(run, {.x = ours.x, .w = prepared, .y = ours.y}), StaleCache);
}

TEST_CASE("gradients are optional one by one and can be added to") {
  ConvCase<double> c(parse_problem("ic2id6oc3kd3pd1"), {.engine = Engine::fft_volume});
  c.run();
  const Execution run{c.scheduler, &c.memory};
  const auto prepared = c.plan.prepare(run, c.w);
  auto dx = test::poisoned<double>(c.problem.x_shape());
  c.plan.backward(run, {.dy = c.dy, .w = prepared, .dx = dx});
  CHECK(test::same_bits(dx, c.dx));
  auto dw = test::poisoned<double>(c.problem.w_shape());
  c.plan.backward(run, {.x = c.x, .dy = c.dy, .w = prepared, .dw = dw});
  CHECK(test::same_bits(dw, c.dw));
  auto dbias = test::poisoned<double>(c.dbias.shape());
  c.plan.backward(run, {.dy = c.dy, .w = prepared, .dbias = dbias});
  CHECK(test::same_bits(dbias, c.dbias));
  c.plan.backward(
      run, {.x = c.x, .dy = c.dy, .w = prepared, .dx = dx, .dw = dw, .dbias = dbias, .add_dx = true, .add_dw = true});
  for (index_t i = 0; i < dx.elements(); ++i) REQUIRE(dx.data()[i] == Approx(2 * c.dx.data()[i]).margin(1e-12));
  for (index_t i = 0; i < dw.elements(); ++i) REQUIRE(dw.data()[i] == Approx(2 * c.dw.data()[i]).margin(1e-12));
  for (index_t i = 0; i < 3; ++i) REQUIRE(dbias.data()[i] == Approx(2 * c.dbias.data()[i]));
}

TEST_CASE("plans that read the same x share its spectra") {
  const auto p = parse_problem("ic3id8oc2kd3pd1");
  ConvCase<float> a(p, {.engine = Engine::fft_volume}), b(p, {.engine = Engine::fft_volume});
  b.run();
  const Execution run{a.scheduler, &a.memory};
  auto x_hat = a.plan.input_spectra(&a.memory);
  const auto wa = a.plan.prepare(run, a.w);
  a.plan.forward(run, {.x = a.x, .w = wa, .bias = a.bias, .y = a.y, .x_hat = &x_hat});
  const auto before = b.plan.transforms().input;
  const auto wb = b.plan.prepare(run, b.w);
  auto dw = test::poisoned<float>(p.w_shape());
  b.plan.backward(run, {.x = a.x, .y = b.y, .dy = b.dy, .w = wb, .x_hat = &x_hat, .dw = dw});
  CHECK(b.plan.transforms().input == before);
  CHECK(test::same_bits(dw, b.dw));
#ifndef NDEBUG
  a.x.data()[5] += 1;
  CHECK_THROWS_AS(b.plan.backward(run, {.x = a.x, .y = b.y, .dy = b.dy, .w = wb, .x_hat = &x_hat, .dw = dw}),
                  StaleCache);
#endif
}

TEST_CASE("caches of another geometry, never filled or stale are refused") {
  ConvCase<float> c(parse_problem("ic2id8oc2kd3"), {.engine = Engine::fft_volume});
  const auto other = ConvPlan::make(parse_problem("ic2id11oc2kd3"), {.engine = Engine::fft_volume});
  const Execution run{c.scheduler, &c.memory};
  const auto prepared = c.plan.prepare(run, c.w);
  auto foreign = other.input_spectra(&c.memory);
  CHECK_THROWS_AS(c.plan.forward(run, {.x = c.x, .w = prepared, .y = c.y, .x_hat = &foreign}), StaleCache);
  const auto empty_weights = c.plan.prepared_weights(&c.memory);
  CHECK_THROWS_AS(c.plan.forward(run, {.x = c.x, .w = empty_weights, .y = c.y}), StaleCache);
  auto x_hat = c.plan.input_spectra(&c.memory);
  const BackwardBindings backward{.x = c.x, .y = c.y, .dy = c.dy, .w = prepared, .x_hat = &x_hat, .dw = c.dw};
  CHECK_THROWS_AS(c.plan.backward(run, backward), StaleCache);
  c.plan.forward(run, {.x = c.x, .w = prepared, .y = c.y, .x_hat = &x_hat});
  CHECK(x_hat.version() == 1);
  CHECK(x_hat.bytes() > 0);
  CHECK_NOTHROW(c.plan.backward(run, backward));
#ifndef NDEBUG
  c.x.data()[7] += 1;
  CHECK_THROWS_AS(c.plan.backward(run, backward), StaleCache);
#endif
}

TEST_CASE("spectra and prepared weights may live in memory of the caller, which holds their capacity") {
  for (const char* text : {"ic2id8oc2kd3", "ic20id10oc18kd3", "g2ic4id9oc6kd3"}) {
    for (const Engine engine : {Engine::fft_volume, Engine::fft_tiled, Engine::direct}) {
      CAPTURE(text, name_of(engine));
      ConvCase<float> c(parse_problem(text), {.engine = engine});
      const Execution run{c.scheduler, &c.memory};
      const auto w = c.plan.prepare(run, c.w);
      auto x_hat = c.plan.input_spectra(&c.memory);
      c.plan.forward(run, {.x = c.x, .w = w, .y = c.y, .x_hat = &x_hat});
      c.plan.backward(run, {.x = c.x, .dy = c.dy, .w = w, .x_hat = &x_hat, .dx = c.dx, .dw = c.dw});
      CHECK(w.capacity() >= w.bytes());
      CHECK(w.capacity() > 0);
      CHECK(x_hat.capacity() >= x_hat.bytes());

      auto placed_w = c.plan.prepared_weights(&c.memory);
      auto placed_x_hat = c.plan.input_spectra(&c.memory);
      REQUIRE(placed_w.capacity() == w.capacity());
      REQUIRE(placed_x_hat.capacity() == x_hat.capacity());
      constexpr std::size_t guard = 64;
      std::pmr::vector<std::byte> memory(w.capacity() + x_hat.capacity() + guard, std::byte{0xFF}, &c.memory);
      placed_w.place(memory.data());
      placed_x_hat.place(memory.data() + w.capacity());
      auto y = test::poisoned<float>(c.problem.y_shape());
      auto dw = test::poisoned<float>(c.problem.w_shape());
      TaskGraph graph;
      const Ready ready = c.plan.append_prepare(graph, {}, c.w, placed_w);
      const Ready done = c.plan.append_forward(graph, {.w = ready},
                                               {.x = c.x, .w = placed_w, .y = y, .x_hat = &placed_x_hat}, &c.memory);
      c.plan.append_backward(graph, {.x = done, .w = ready, .dy = done},
                             {.x = c.x, .dy = c.dy, .w = placed_w, .x_hat = &placed_x_hat, .dw = dw}, &c.memory);
      graph.run(c.scheduler);
      CHECK(test::same_bits(y, c.y));
      CHECK(test::same_bits(dw, c.dw));
      for (std::size_t i = memory.size() - guard; i < memory.size(); ++i) REQUIRE(memory[i] == std::byte{0xFF});
      placed_w.release();  // placed memory is not freed
    }
  }
}

TEST_CASE("a task of direct waits for the packed weights of its own channels, and for all of them") {
  // Packing is divided by blocks of input channels too, by blocks of results, and by two of them together.
  struct Case {
    const char *problem, *fwd;
    index_t packing_tasks, before_a_region;  // of one group
  };
  for (const Case& one : {Case{"ic40id6oc80kd3pd1", "k* z* c y x | kz ky kx c16 x k16", 15, 3},
                          Case{"ic40id6oc96kd3pd1", "k* z* c y x | kz ky kx c16 x k32", 18, 6},
                          Case{"ic160ih6oc160kh1", "k* y x | c c16 x k32", 5, 1},
                          Case{"g2ic80id6oc160kd3pd1", "k* z* c y x | kz ky kx c16 x k16", 30, 3}}) {
    const ConvProblem p = parse_problem(one.problem);
    conv::Nests nests = test::direct_nests(p);
    nests[0] = plan::parse_nest(one.fwd);
    const std::string choice = test::choice_text(nests);
    CAPTURE(one.problem, choice);
    ConvCase<float> c(p, {.choice = choice});
    c.run();
    auto w = c.plan.prepared_weights(&c.memory);
    auto y = test::poisoned<float>(p.y_shape());
    TaskGraph graph;
    const Ready ready = c.plan.append_prepare(graph, {}, c.w, w);
    c.plan.append_forward(graph, {.w = ready}, {.x = c.x, .w = w, .y = y}, &c.memory);
    const auto tasks = graph.describe();
    const auto all_of = [&](const std::string& name) {
      std::vector<TaskId> found;
      for (std::size_t i = 0; i < tasks.size(); ++i) {
        if (tasks[i].options.name == name) found.push_back(static_cast<TaskId>(i));
      }
      return found;
    };
    const std::vector<TaskId> packing = all_of("pack weights");
    CHECK(std::ssize(packing) == one.packing_tasks);
    for (const TaskId region : all_of("direct region")) {
      const auto before =
          std::count_if(packing.begin(), packing.end(), [&](TaskId task) { return graph.ordered(task, region); });
      CHECK(before == one.before_a_region);
    }
    for (const int threads : {1, 2, 8}) {
      Scheduler scheduler(threads);
      std::fill_n(y.data(), y.elements(), std::numeric_limits<float>::quiet_NaN());
      graph.run(scheduler);
      CHECK(test::same_bits(y, c.y));
    }
  }
}

TEST_CASE("preparing and forward of a small layer are a chain of tasks, so that no second thread is woken") {
  const ConvProblem p = parse_problem("ic6ih14oc16oh10kh5");
  conv::Nests nests = test::direct_nests(p);
  nests[0] = plan::parse_nest("y | ky c kx x k");
  ConvCase<float> c(p, {.choice = test::choice_text(nests)});
  auto w = c.plan.prepared_weights(&c.memory);
  TaskGraph graph;
  const Ready ready = c.plan.append_prepare(graph, {}, c.w, w);
  c.plan.append_forward(graph, {.w = ready}, {.x = c.x, .w = w, .y = c.y}, &c.memory);
  const auto tasks = static_cast<TaskId>(graph.describe().size());
  REQUIRE(tasks == 3);
  for (TaskId a = 0; a < tasks; ++a) {
    for (TaskId b = a + 1; b < tasks; ++b) CHECK((graph.ordered(a, b) || graph.ordered(b, a)));
  }
}

TEST_CASE("a backward pass reads neither the forward part of the weights nor an x that x_hat replaces") {
  for (const char* text : {"ic2id8oc2kd3", "ic20id20oc18kd3", "g2ic4id9oc6kd3", "g2ic64id16oc64kd5"}) {
    for (const Engine engine : {Engine::fft_volume, Engine::fft_tiled, Engine::direct}) {
      CAPTURE(text, name_of(engine));
      ConvCase<float> c(parse_problem(text), {.engine = engine});
      const Execution run{c.scheduler, &c.memory};
      auto w = c.plan.prepared_weights(&c.memory);
      REQUIRE(w.forward_capacity() <= w.capacity());
      std::pmr::vector<std::byte> forward(w.forward_capacity() + 64, &c.memory);
      std::pmr::vector<std::byte> rest(w.capacity() - w.forward_capacity() + 64, &c.memory);
      w.place(forward.data(), rest.data());
      TaskGraph graph;
      c.plan.append_prepare(graph, {}, c.w, w);
      graph.run(c.scheduler);
      auto x_hat = c.plan.input_spectra(&c.memory);
      auto dx = test::poisoned<float>(c.problem.x_shape());
      auto dw = test::poisoned<float>(c.problem.w_shape());
      c.plan.forward(run, {.x = c.x, .w = w, .y = c.y, .x_hat = &x_hat});
      c.plan.backward(run, {.x = c.x, .dy = c.dy, .w = w, .x_hat = &x_hat, .dx = c.dx, .dw = c.dw});
      std::fill(forward.begin(), forward.end(), std::byte{0xFF});
      if (c.plan.x_hat_replaces_x()) c.x = test::poisoned<float>(c.problem.x_shape());
      c.plan.backward(run, {.x = c.x, .dy = c.dy, .w = w, .x_hat = &x_hat, .dx = dx, .dw = dw});
      CHECK(test::same_bits(dx, c.dx));
      CHECK(test::same_bits(dw, c.dw));
    }
  }
}

TEST_CASE("no memory, or memory off its alignment, is refused as a place and changes nothing") {
  ConvCase<float> c(parse_problem("ic2id8oc2kd3"), {.engine = Engine::fft_volume});
  const Execution run{c.scheduler, &c.memory};
  const auto w = c.plan.prepare(run, c.w);
  auto x_hat = c.plan.input_spectra(&c.memory);
  c.plan.forward(run, {.x = c.x, .w = w, .y = c.y, .x_hat = &x_hat});
  const std::size_t held = x_hat.bytes();
  REQUIRE(held > 0);
  std::pmr::vector<std::byte> memory(x_hat.capacity() + 64, &c.memory);
  CHECK_THROWS_AS(x_hat.place(nullptr), InvalidArgument);
  CHECK_THROWS_AS(x_hat.place(memory.data() + 4), InvalidArgument);
  CHECK(x_hat.bytes() == held);
  CHECK(x_hat.version() == 1);
  auto weights = c.plan.prepared_weights(&c.memory);
  CHECK_THROWS_AS(weights.place(nullptr), InvalidArgument);
  CHECK_THROWS_AS(weights.place(memory.data() + 8), InvalidArgument);
  CHECK_THROWS_AS(weights.place(memory.data(), nullptr), InvalidArgument);
  Spectra none;
  CHECK_NOTHROW(none.place(nullptr));  // needs no memory
}

TEST_CASE("tensors of a graph may get their memory from its tasks") {
  ConvCase<float> c(parse_problem("ic17id9oc20kd3"), {});
  const Execution run{c.scheduler, &c.memory};
  const auto w = c.plan.prepare(run, c.w);
  c.plan.forward(run, {.x = c.x, .w = w, .y = c.y});
  void* slot = nullptr;
  const View<float> y(Address<float>::in(&slot), c.problem.y_shape());
  Tensor<float> later;
  TaskGraph graph;
  const TaskId take = graph.add({.name = "take"}, [&] {
    later = test::poisoned<float>(c.problem.y_shape());
    slot = later.data();
  });
  c.plan.append_forward(graph, {.x = Ready::all_of({take})}, {.x = c.x, .w = w, .y = y}, &c.memory);
  graph.run(c.scheduler);
  CHECK(test::same_bits(later, c.y));
}

TEST_CASE("one plan is executed by many threads at once") {
  ConvCase<float> c(parse_problem("ic2id9oc3kd3"), {.engine = Engine::fft_volume}, false, 2);
  c.run();
  const Execution run{c.scheduler, &c.memory};
  const auto prepared = c.plan.prepare(run, c.w);
  std::vector<Tensor<float>> outputs;
  for (int i = 0; i < 4; ++i) outputs.push_back(test::poisoned<float>(c.problem.y_shape()));
  std::vector<std::thread> threads;
  for (auto& y : outputs) {
    threads.emplace_back([&] {
      // A thread that finds no slot in an arena hands its call to a worker. ThreadSanitizer cannot see this handover.
      Scheduler own(2);
      const Execution run_here{test::sanitized ? own : c.scheduler, &c.memory};
      for (int repeat = 0; repeat < 3; ++repeat) c.plan.forward(run_here, {.x = c.x, .w = prepared, .y = y});
    });
  }
  for (auto& thread : threads) thread.join();
  for (const auto& y : outputs) CHECK(test::same_bits(y, c.y));
}

TEST_CASE("tensors that are not the problem's are refused by name") {
  ConvCase<float> c(parse_problem("ic2id8oc2kd3"), {});
  const Execution run{c.scheduler, &c.memory};
  const auto prepared = c.plan.prepare(run, c.w);
  Tensor<float> wrong({1, 2, {8, 8, 9}});
  CHECK_THROWS_WITH(c.plan.forward(run, {.x = wrong, .w = prepared, .y = c.y}), Catch::Contains("x has shape"));
  Tensor<double> doubles(c.problem.y_shape());
  CHECK_THROWS_WITH(c.plan.forward(run, {.x = c.x, .w = prepared, .y = doubles}), Catch::Contains("y holds f64"));
  CHECK_THROWS_WITH(c.plan.forward(run, {.x = c.x, .w = prepared}), Catch::Contains("y is missing"));
  CHECK_THROWS_AS(c.plan.prepare(run, wrong), ShapeMismatch);
}

TEST_CASE("explain reports every implementation and automatic takes the cheaper engine") {
  const auto large = ConvPlan::make(parse_problem("ic32id48oc32kd5"));
  CHECK(large.engine() == Engine::fft_tiled);
  CHECK_THAT(large.explain(), Catch::Contains("fft_volume") && Catch::Contains("reference") &&
                                  Catch::Contains("chosen: fft_tiled") && Catch::Contains("w_hat"));
  const auto strided = ConvPlan::make(parse_problem("ic8id32oc8kd5sd2"));
  CHECK(strided.engine() == Engine::direct);
  CHECK_THAT(strided.explain(), Catch::Contains("fft_tiled: ") && !Catch::Contains("fft_tiled: unsupported"));
  const auto transposed = [] {
    auto p = parse_problem("ic32id16oc16kd2sd2");
    p.transposed = true;
    return ConvPlan::make(p);
  }();
  CHECK(transposed.engine() == Engine::direct);
  CHECK_THAT(transposed.explain(), Catch::Contains("fft_tiled: unsupported, with a stride as long as the kernel"));
  CHECK(ConvPlan::make(parse_problem("ic256id4oc256kd3pd1")).engine() == Engine::direct);
  CHECK(ConvPlan::make(parse_problem("ic32id48oc32kd1pd0")).engine() == Engine::direct);
  CHECK(ConvPlan::make(parse_problem("ic1id2oc1kd1")).engine() == Engine::reference);
  auto blocked = parse_problem("g2ic8id8oc8kd3sd2");
  blocked.x_layout = Layout::blocked;
  CHECK_THROWS_WITH(ConvPlan::make(blocked),
                    Catch::Contains("fft_tiled: unsupported") && Catch::Contains("fft_volume: unsupported") &&
                        Catch::Contains("direct: unsupported") && Catch::Contains("reference: unsupported"));
  CHECK_THROWS_AS(engine_of("fastest"), InvalidArgument);
  CHECK(large.numerics() == ConvPlan::make(parse_problem("ic32id48oc32kd5")).numerics());
}

TEST_CASE("the report about direct says what takes longest in each direction") {
  const test::SelectedRow row("zen5");
  const auto report = [](const char* problem, const ConvOptions& options) {
    return ConvPlan::make(parse_problem(problem), options).explain();
  };
  const std::string all = report("ic32id12oc32kd1", {.engine = Engine::direct});
  for (const char* result : {"    y: ", "    dx: ", "    dw: "}) CHECK_THAT(all, Catch::Contains(result));
  CHECK_THAT(all, Catch::Contains("the floor of the machine is"));
  CHECK_THAT(report("ic512id2oc512kd3pd1", {.engine = Engine::direct}), Catch::Contains("% of it packing of weights"));
  const std::string forward =
      report("g2ic32id12oc32kd3", {.engine = Engine::direct, .want_dx = false, .want_dw = false});
  CHECK_THAT(forward, Catch::Contains("each group:") && !Catch::Contains("    dx: "));
}

TEST_CASE("engines are chosen for the gradients that are wanted, and compute the others all the same") {
  const auto p = parse_problem("ic3id14oc20kd5");
  const auto plan = [&](bool dx, bool dw) { return ConvPlan::make(p, {.want_dx = dx, .want_dw = dw}); };
  CHECK_THAT(plan(true, true).explain(), Catch::Contains("estimated for y, dx, dw"));
  CHECK_THAT(plan(false, true).explain(), Catch::Contains("estimated for y, dw"));
  CHECK(plan(false, false).seconds() < plan(false, true).seconds());
  CHECK(plan(false, true).seconds() < plan(true, true).seconds());
  for (const Engine engine : {Engine::fft_tiled, Engine::fft_volume, Engine::direct, Engine::reference}) {
    const auto of = [&](bool gradients) {
      return ConvPlan::make(p, {.engine = engine, .want_dx = gradients, .want_dw = gradients}).seconds();
    };
    CAPTURE(name_of(engine));
    CHECK(of(false) < of(true));
  }
  auto transposed = parse_problem("ic4id9oc6kd3sd2");
  transposed.transposed = true;
  for (const auto& problem : {p, transposed, parse_problem("g16ic16id12oc16kd5")}) {
    test::check_against_reference<float>(problem, {.want_dx = false, .want_dw = false}, 1e-5);
  }
}

TEST_CASE("memory taken during execution goes back") {
  ConvCase<float> c(parse_problem("ic2id8oc2kd3"), {.engine = Engine::fft_volume}, false, 2);
  c.run();
  CHECK(c.memory.statistics().live_bytes == 0);
}

TEST_CASE("a memory budget that is too small ends in its error, and the plan works again with more") {
  const auto p = parse_problem("ic2id16oc2kd3");
  ConvCase<float> c(p, {.engine = Engine::fft_volume}, false, 2);
  SlabResource tiny({.upstream = mmap_resource(), .budget = 100000});
  const auto prepared = c.plan.prepare({c.scheduler, &c.memory}, c.w);
  CHECK_THROWS_AS(c.plan.forward({c.scheduler, &tiny}, {.x = c.x, .w = prepared, .y = c.y}), MemoryBudgetExceeded);
  CHECK(tiny.statistics().live_bytes == 0);
  c.plan.forward({c.scheduler, &c.memory}, {.x = c.x, .w = prepared, .y = c.y});
  CHECK(std::isfinite(c.y.data()[0]));
}

TEST_CASE("a call takes its temporaries from the memory that it was given, not from an earlier call's") {
  ConvCase<float> c(parse_problem("ic2id8oc2kd3"), {.engine = Engine::fft_volume});
  const auto prepared = c.plan.prepare({c.scheduler, &c.memory}, c.w);
  {
    SlabResource first;
    c.plan.forward({c.scheduler, &first}, {.x = c.x, .w = prepared, .y = c.y});
  }
  SlabResource second;
  c.plan.forward({c.scheduler, &second}, {.x = c.x, .w = prepared, .y = c.y});
  CHECK(second.statistics().allocations > 0);
  CHECK(second.statistics().live_bytes == 0);
}

TEST_CASE("a cache that holds nothing is an error, however it came to that") {
  ConvCase<float> c(parse_problem("ic2id8oc2kd3"), {.engine = Engine::fft_volume});
  const Execution run{c.scheduler, &c.memory};
  const auto prepared = c.plan.prepare(run, c.w);
  auto x_hat = c.plan.input_spectra(&c.memory);
  c.plan.forward(run, {.x = c.x, .w = prepared, .y = c.y, .x_hat = &x_hat});
  x_hat.release();
  CHECK_THROWS_AS(c.plan.backward(run, {.x = c.x, .dy = c.dy, .w = prepared, .x_hat = &x_hat, .dw = c.dw}), StaleCache);
  auto empty = c.plan.input_spectra(&c.memory);
  CHECK_THROWS_AS(c.plan.backward(run, {.x = c.x, .dy = c.dy, .w = prepared, .x_hat = &empty, .dw = c.dw}), StaleCache);
  const auto unprepared = c.plan.prepared_weights(&c.memory);
  TaskGraph graph;
  c.plan.append_forward(graph, {}, {.x = c.x, .w = unprepared, .y = c.y}, &c.memory);
  CHECK_THROWS_AS(graph.run(c.scheduler), StaleCache);
  const auto taken = std::move(x_hat);
  CHECK(x_hat.version() == 0);
  CHECK(taken.version() == 1);
}

TEST_CASE("caches of other channels, kernels or types are refused") {
  for (const Engine engine : {Engine::fft_volume, Engine::reference}) {
    ConvCase<float> c(parse_problem("ic4id8oc4kd3"), {.engine = engine});
    const Execution run{c.scheduler, &c.memory};
    for (const char* text : {"ic2id8oc4kd3", "ic4id8oc2kd3", "ic4id8oc4kd2", "g2ic4id8oc4kd3"}) {
      CAPTURE(name_of(engine), text);
      ConvCase<float> other(parse_problem(text), {.engine = engine});
      const auto foreign = other.plan.prepare(run, other.w);
      CHECK_THROWS_AS(c.plan.forward(run, {.x = c.x, .w = foreign, .y = c.y}), StaleCache);
    }
    if (engine == Engine::reference) continue;
    const auto prepared = c.plan.prepare(run, c.w);
    auto narrow = ConvPlan::make(parse_problem("ic2id8oc4kd3"), {.engine = engine}).input_spectra(&c.memory);
    CHECK_THROWS_AS(c.plan.forward(run, {.x = c.x, .w = prepared, .y = c.y, .x_hat = &narrow}), StaleCache);
  }
}

TEST_CASE(
    "an implementation that would hold absurdly much is unsupported, with the reason, and planes are counted once") {
  CHECK_THROWS_WITH(ConvPlan::make(parse_problem("g1ic32oc1_id192kd192"), {.engine = Engine::direct}),
                    Catch::Contains("direct: unsupported, would hold"));
  CHECK(ConvPlan::make(parse_problem("g1ic32oc1_id192kd192")).engine() != Engine::direct);
  // A planar kernel has one spectrum per pair of channels, not one per plane.
  const auto planar = parse_problem("ic64id16ih256iw256oc64kd1kh3kw3ph1pw1pd0");
  CHECK(ConvPlan::make(planar, {.engine = Engine::fft_volume}).engine() == Engine::fft_volume);
}

TEST_CASE("the activations of the C API have the numbers of the C++ API") {
  CHECK(static_cast<int>(Activation::Kind::none) == CONVOLUME_NO_ACTIVATION);
  CHECK(static_cast<int>(Activation::Kind::relu) == CONVOLUME_RELU);
  CHECK(static_cast<int>(Activation::Kind::leaky_relu) == CONVOLUME_LEAKY_RELU);
  CHECK(static_cast<int>(Activation::Kind::sigmoid) == CONVOLUME_SIGMOID);
  CHECK(static_cast<int>(Activation::last_kind) == CONVOLUME_SOFTSIGN);
}
