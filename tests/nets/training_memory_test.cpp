// Compares the memory that `convolume info` predicts with the memory that training takes.
#include "nets/graph/training_memory.hpp"

#include "testing/sanitizers.hpp"
#include "testing/selected_row.hpp"
#include "testing/training_session.hpp"
#include <catch2/catch.hpp>

#include "convolume/memory.hpp"
#include "nets/graph/memory_plan.hpp"
#include "nets/io/synthetic.hpp"
#include "nets/train/trainer.hpp"

using namespace convolume;
using namespace convolume::nets;

namespace {

/// A chain of convolutions with `width` channels each.
const char* const width_depth = R"(
name = "width_depth"
[input]
patch = 28
[generator]
type = "width_depth"
width = 20
depth = 5
kernel = 3
activation = "relu"
)";

const char* const unet = R"(
name = "unet"
[input]
patch = [8, 32, 32]
[generator]
type = "unet"
width = 8
depth = 2
convs = 2
kernel = [{ size = [1, 5, 5] }, { size = [3, 3, 3] }]
pool = [{ size = [1, 2, 2] }]
upsampling = "transposed_conv"
norm = "group"
[loss]
kind = "binary_cross_entropy"
[optimizer]
kind = "adam"
learning_rate = 0.002
)";

Dataset data_for(const NetSpec& spec) {
  auto volume = make_synthetic_volume({.extent = spec.patch + Extent3::all(4), .cell_diameter = 8});
  Dataset data;
  data.name = "test";
  data.train.push_back({std::move(volume.image), std::move(volume.label), {}, "synthetic"});
  return data;
}

std::vector<float> values_of(const Parameters& parameters) {
  std::vector<float> values;
  for (const Parameter& p : parameters.all()) {
    values.insert(values.end(), p.value.data(), p.value.data() + p.value.elements());
  }
  return values;
}

TrainingMemory predicted(const NetSpec& spec, Engine engine, int threads) {
  SlabResource slabs;
  CountedMemory memory(&slabs);
  Parameters parameters(spec, true, 1, &memory);
  const NetworkOptions options{.batch = spec.training.batch, .training = true, .engine = engine};
  Network network(spec, spec.patch, parameters, with_memory_plan(spec, options), &memory);
  return plan_training_memory(network, parameters, memory, threads);
}

}  // namespace

TEST_CASE("the predicted peak of a training iteration is the measured one within 3 %") {
  for (const char* text : {width_depth, unet}) {
    const NetSpec spec = parse_net(text, "net.toml");
    const Dataset data = data_for(spec);
    for (const Engine engine : {Engine::automatic, Engine::fft_tiled, Engine::fft_volume, Engine::direct}) {
      if (engine == Engine::fft_tiled && text == unet) continue;  // it has no transposed convolutions
      for (const int threads : {1, 2}) {
        if (test::thread_sanitized && (threads == 1 || engine == Engine::fft_volume)) continue;
        CAPTURE(spec.name, name_of(engine), threads);
        const TrainingMemory peak = predicted(spec, engine, threads);
        SlabResource slabs;
        CountedMemory memory(&slabs);
        Scheduler scheduler(threads);
        test::meet(scheduler);
        Trainer trainer(spec, data, 1, {.engine = engine}, scheduler, &memory);
        REQUIRE(trainer.step().has_value());
        CHECK(memory.live() == peak.peak() - peak.scratch);
        memory.forget_peak();
        // Two threads need not hold their largest scratch at once in every iteration. On a busy machine it may happen
        // in none. Only the scratch of one thread is certain.
        const std::size_t certain = predicted(spec, engine, 1).peak();
        const double wanted = 0.97 * static_cast<double>(peak.peak()), least = 0.97 * static_cast<double>(certain);
        constexpr int most = test::sanitized ? 6 : 60;
        for (int i = 0; i < 2 || (i < most && static_cast<double>(memory.peak()) < wanted); ++i)
          REQUIRE(trainer.step().has_value());
        INFO(memory.peak() << " measured, " << peak.peak() << " predicted, of which scratch " << peak.scratch);
        CHECK(memory.peak() <= peak.peak());
        CHECK(static_cast<double>(memory.peak()) >= least);
        CHECK(memory.live() == peak.peak() - peak.scratch);
      }
    }
  }
}

TEST_CASE("64 threads train the bits of one thread, within the memory that is predicted for 64", "[serial]") {
  for (const char* text : {width_depth, unet}) {
    const NetSpec spec = parse_net(text, "net.toml");
    const Dataset data = data_for(spec);
    std::vector<float> expected;
    for (const int threads : {1, 64}) {
      CAPTURE(spec.name, threads);
      const TrainingMemory peak = predicted(spec, Engine::automatic, threads);
      SlabResource slabs;
      CountedMemory memory(&slabs);
      Scheduler scheduler(threads);
      Trainer trainer(spec, data, 1, {}, scheduler, &memory);
      for (int i = 0; i < 4; ++i) REQUIRE(trainer.step().has_value());
      CHECK(memory.peak() <= peak.peak());
      trainer.flush();
      const std::vector<float> values = values_of(trainer.parameters());
      if (expected.empty()) expected = values;
      CHECK(values == expected);
    }
    // Scratch is all that threads add, and no thread holds that of more than one task.
    const TrainingMemory one = predicted(spec, Engine::automatic, 1), many = predicted(spec, Engine::automatic, 64);
    CHECK(many.peak() - many.scratch == one.peak() - one.scratch);
    CHECK(many.scratch <= 64 * one.scratch);
    CHECK(fastest_within(memory_plans(spec, {}, 64), many.peak()) != nullptr);
  }
}

TEST_CASE("every memory plan has the predicted peak and trains the same bits", "[serial]") {
  // Only nets with layers that keep spectra have several plans.
  const test::SelectedRow row("zen5");
  for (const char* text : {width_depth, unet}) {
    const NetSpec spec = parse_net(text, "net.toml");
    const Dataset data = data_for(spec);
    const auto plans = memory_plans(spec, {}, 1);
    REQUIRE(plans.size() >= 3);
    std::vector<float> expected;
    for (const MemoryPlan& plan : plans) {
      CAPTURE(spec.name, plan.memory_budget, plan.slack.tensors, plan.slack.working);
      SlabResource slabs;
      CountedMemory memory(&slabs);
      Scheduler scheduler(1);
      Trainer trainer(spec, data, 1, plan.apply({}), scheduler, &memory);
      REQUIRE(trainer.step().has_value());
      memory.forget_peak();
      REQUIRE(trainer.step().has_value());
      CHECK(memory.peak() == plan.memory.peak());
      trainer.flush();
      const std::vector<float> values = values_of(trainer.parameters());
      if (expected.empty()) expected = values;
      CHECK(values == expected);
    }
  }
}

TEST_CASE("memory plans trade time for memory, and a limit selects the fastest within it", "[serial]") {
  // Only nets with layers that keep spectra have several plans.
  const test::SelectedRow row("zen5");
  const NetSpec spec = parse_net(unet, "net.toml");
  const auto plans = memory_plans(spec, {}, 2);
  REQUIRE(plans.size() >= 3);
  for (std::size_t i = 1; i < plans.size(); ++i) {
    CHECK(plans[i].memory.peak() < plans[i - 1].memory.peak());
    CHECK(plans[i].seconds >= plans[i - 1].seconds);
    CHECK(fastest_within(plans, plans[i].memory.peak()) == &plans[i]);
    CHECK(fastest_within(plans, plans[i].memory.peak() + 1) == &plans[i]);
  }
  CHECK(fastest_within(plans, plans.front().memory.peak()) == &plans.front());
  CHECK(fastest_within(plans, plans.back().memory.peak() - 1) == nullptr);
  CHECK(default_plan(plans).slack == Slack{});
  CHECK(with_memory_plan(spec, {}).memory_budget == default_plan(plans).memory_budget);
  CHECK(with_memory_plan(spec, {.memory_budget = 7}).memory_budget == std::size_t{7});
  CHECK(memory_plans(spec, {.memory_budget = 1}, 2).front().kept_spectra <= 1);
  CHECK(memory_plans(spec, {.memory_mode = MemoryMode::slab}, 2).size() == 1);
}

TEST_CASE("spectra that are not kept cost predicted time, and the default does not depend on threads", "[serial]") {
  const NetSpec spec = parse_net(width_depth, "net.toml");
  for (const Engine engine : {Engine::fft_volume, Engine::fft_tiled}) {
    CAPTURE(name_of(engine));
    const auto plans = memory_plans(spec, {.engine = engine}, 1);
    REQUIRE(plans.size() > 1);
    for (std::size_t i = 1; i < plans.size(); ++i) {
      // In training, fft_tiled transforms the weights once per iteration in any case.
      const bool costs = engine == Engine::fft_volume && plans[i].slack == plans[i - 1].slack;
      if (costs) CHECK(plans[i].seconds > plans[i - 1].seconds);
    }
    CHECK(with_memory_plan(spec, {.engine = engine}).memory_budget == default_plan(plans).memory_budget);
    CHECK(default_plan(memory_plans(spec, {.engine = engine}, 8)).memory_budget == default_plan(plans).memory_budget);
  }
  // On a chain of large kernels, repeated transforms cost more than their memory is worth.
  CHECK(with_memory_plan(spec, {.engine = Engine::fft_tiled}).memory_budget == std::size_t{0});
}

TEST_CASE("an arena takes less than separate buffers, and holds the largest together", "[serial]") {
  const NetSpec spec = parse_net(unet, "net.toml");
  const TrainingMemory peak = predicted(spec, Engine::automatic, 1);
  CHECK(peak.arena < peak.tensors + peak.spectra + peak.weights + peak.working);
  CHECK(peak.working > 0);
  CHECK(peak.weights < peak.arena);
  CHECK(peak.critical_cost >= peak.critical_cost_apart);
  CHECK(peak.critical_cost_apart > 0);
  CHECK(predicted(spec, Engine::automatic, 3).scratch > peak.scratch);
}

TEST_CASE("a stop request ends the planning of a net", "[serial]") {
  const NetSpec spec = parse_net(unet, "net.toml");
  std::stop_source source;
  NetworkOptions options;
  options.stop = source.get_token();
  CHECK_NOTHROW(memory_plans(spec, options, 1));
  source.request_stop();
  CHECK_THROWS_AS(memory_plans(spec, options, 1), StopRequested);
}
