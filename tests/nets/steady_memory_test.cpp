// From its second iteration on, training takes nothing from the system: no mmap, no brk, no new pages, and no heap call
// from our code. Heap calls of TBB are not counted.
#include <fstream>

#include "testing/allocation_count.hpp"
#include <catch2/catch.hpp>
#include <sys/resource.h>
#include <unistd.h>

#include "convolume/conv.hpp"
#include "convolume/memory.hpp"
#include "nets/io/synthetic.hpp"
#include "nets/train/trainer.hpp"

using namespace convolume;

namespace {

/// What the process has taken from the system so far.
struct Taken {
  std::size_t heap_calls = 0, upstream_calls = 0;
  long pages = 0;   // pages of address space, from mmap and brk
  long faults = 0;  // page faults: pages that were touched for the first time

  /// Reads the pages and statistics. The reading itself uses the heap, so it comes last at the end of a measurement and
  /// first at its beginning.
  void read_pages(const SlabResource& memory) {
    std::ifstream("/proc/self/statm") >> pages;
    upstream_calls = memory.statistics().upstream_calls;
  }
  void read_counters() {
    heap_calls = test::heap_calls().ours;
    rusage usage{};
    getrusage(RUSAGE_SELF, &usage);
    faults = usage.ru_minflt;
  }
};

/// Returns the bytes of the pages that were touched.
std::int64_t resident_bytes() {
  std::int64_t pages = 0, resident = 0;
  std::ifstream("/proc/self/statm") >> pages >> resident;
  return resident * sysconf(_SC_PAGESIZE);
}

/// Runs `body` repeatedly. Whatever it takes from the second time on is a failure.
template <class Body>
void check_steady(const SlabResource& memory, const Body& body) {
  Taken before, after;
  body();
  // The first reading takes memory, too, so its result is not used.
  after.read_counters();
  after.read_pages(memory);
  before.read_pages(memory);
  before.read_counters();
  for (int i = 0; i < 6; ++i) body();
  after.read_counters();
  after.read_pages(memory);
  CHECK(after.heap_calls == before.heap_calls);
  CHECK(after.faults == before.faults);
  CHECK(after.pages == before.pages);
  CHECK(after.upstream_calls == before.upstream_calls);
}

struct Case {
  const char* problem;
  Engine engine;
  Layout layout = Layout::plain;
  std::size_t budget = 0;
};

void check_convolution(const Case& c, int threads) {
  CAPTURE(c.problem, name_of(c.engine), name_of(c.layout), threads);
  ConvProblem p = parse_problem(c.problem);
  p.x_layout = p.y_layout = c.layout;
  p.epilogue = {.bias = true, .activation = {.kind = Activation::Kind::relu}};
  SlabResource memory;
  Scheduler scheduler(threads);
  const Execution run{scheduler, &memory};
  const ConvPlan plan = ConvPlan::make(p, {.engine = c.engine, .memory_budget = c.budget});
  Tensor<float> x(p.x_shape(), c.layout), y(p.y_shape(), c.layout), dy(p.y_shape(), c.layout),
      dx(p.x_shape(), c.layout);
  Tensor<float> w(p.w_shape()), dw(p.w_shape()), bias({1, p.out_channels, {1, 1, 1}}), dbias(bias.shape());
  for (Tensor<float>* tensor : {&x, &dy, &w, &bias}) tensor->fill(0.5f);
  PreparedWeights prepared = plan.prepare(run, w);
  Spectra x_hat = plan.input_spectra(&memory), dy_hat = plan.gradient_spectra(&memory);
  check_steady(memory, [&] {
    plan.forward(run, {.x = x, .w = prepared, .bias = bias, .y = y, .x_hat = &x_hat});
    plan.backward(run, {.x = x,
                        .y = y,
                        .dy = dy,
                        .w = prepared,
                        .x_hat = &x_hat,
                        .dy_hat = &dy_hat,
                        .dx = dx,
                        .dw = dw,
                        .dbias = dbias});
  });
}

const char* const net = R"(
name = "steady"
[input]
patch = [6, 20, 20]
[[node]]
name = "a"
type = "conv"
out_channels = 16
kernel = [1, 5, 5]
padding = "same"
activation = "relu"
[[node]]
name = "pool"
type = "max_pool"
window = [1, 2, 2]
[[node]]
name = "b"
type = "conv"
out_channels = 24
kernel = 3
padding = "same"
[[node]]
name = "norm"
type = "group_norm"
groups = 4
[[node]]
name = "c"
type = "conv"
out_channels = 24
kernel = 3
padding = "same"
groups = 24
[[node]]
name = "drop"
type = "dropout"
rate = 0.2
[[node]]
name = "up"
type = "transposed_conv"
out_channels = 16
kernel = [1, 2, 2]
stride = [1, 2, 2]
[[node]]
name = "skip"
type = "concat"
from = ["a", "up"]
[[node]]
name = "logits"
type = "conv"
out_channels = 1
kernel = 1
[optimizer]
kind = "adam"
learning_rate = 0.01
clip_norm = 1.0
[training]
batch = 2
)";

}  // namespace

TEST_CASE("the counters see what is taken") {
  if (!test::counts_allocations()) return;
  const std::size_t before = test::heap_calls().ours;
  const auto held = std::make_unique<std::string>(100, 'x');
  CHECK(test::heap_calls().ours == before + 2);
}

TEST_CASE("executions of a convolution take nothing from the system from the second one on") {
  if (!test::counts_allocations()) return;
  const Case cases[] = {{"mb2ic20id12oc17kd3pd1", Engine::fft_tiled, Layout::plain},
                        {"mb2ic20id12oc17kd3pd1", Engine::fft_tiled, Layout::blocked},
                        {"mb2ic20id12oc17kd3pd1", Engine::fft_tiled, Layout::blocked, 1},
                        {"ic1id16oc16kd5", Engine::fft_tiled, Layout::plain},
                        {"g20ic20oc20id12kd5pd2", Engine::fft_tiled, Layout::blocked},
                        {"ic20id9oc17kd3pd1", Engine::direct, Layout::plain},
                        {"ic20id9oc17kd3sd2pd1", Engine::direct, Layout::blocked},
                        {"ic5id12oc4kd3", Engine::fft_volume, Layout::plain},
                        {"ic5id12oc4kd3", Engine::fft_volume, Layout::plain, 1},
                        {"ic5id6oc4kd3", Engine::reference, Layout::plain}};
  for (const Case& c : cases) check_convolution(c, 1);
}

TEST_CASE("iterations of training take nothing from the system from the second one on") {
  if (!test::counts_allocations()) return;
  auto volume = nets::make_synthetic_volume({.extent = {8, 32, 32}, .cell_diameter = 8});
  nets::Dataset data;
  data.name = "test";
  data.augment = {.flip_z = true, .flip_y = true, .flip_x = true, .rotate90 = true};
  data.train.push_back({std::move(volume.image), std::move(volume.label), {}, "synthetic"});
  nets::normalise(data.train[0].image);
  for (const auto mode : {nets::MemoryMode::arena, nets::MemoryMode::slab, nets::MemoryMode::separate}) {
    CAPTURE(name_of(mode));
    SlabResource memory;
    Scheduler scheduler(1);
    nets::Trainer trainer(nets::parse_net(net, "steady.toml"), data, 5, {.memory_mode = mode}, scheduler, &memory);
    check_steady(memory, [&] { trainer.step(); });
  }
}

TEST_CASE("constructing a net touches none of its tensors: pages lie where tasks write them first") {
  if (!test::counts_allocations()) return;  // sanitizers touch allocated memory
  const nets::NetSpec spec = nets::parse_net(net, "steady.toml", {"input.patch=[16, 256, 256]"});
  SlabResource memory;
  nets::Parameters parameters(spec, true, 1, &memory);
  const auto held_before = memory.statistics().live_bytes;
  const auto resident_before = resident_bytes();
  nets::Network network(spec, spec.patch, parameters,
                        {.batch = 2, .training = true, .memory_mode = nets::MemoryMode::separate}, &memory);
  const auto held = static_cast<std::int64_t>(memory.statistics().live_bytes - held_before);
  CHECK(held > 100 << 20);
  CHECK(resident_bytes() - resident_before < held / 20);
  network.input().fill(1);
  // A huge page that parameters share may already have been resident.
  CHECK(resident_bytes() - resident_before >= network.input().elements() * 4 - (2 << 20));
}
