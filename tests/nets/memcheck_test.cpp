// Trains with every tensor, spectrum and scratch buffer on the heap. memcheck_nets runs this under Valgrind, which
// knows the bounds of heap blocks and which of their bytes were written.
#include <memory_resource>

#include "testing/training_session.hpp"
#include <catch2/catch.hpp>

using namespace convolume;

namespace {

/// Returns the losses of some iterations, followed by the final weights.
std::vector<double> train(const nets::NetSpec& spec, const nets::NetworkOptions& options, int threads,
                          std::pmr::memory_resource* memory) {
  const nets::Dataset data = test::small_data();
  Scheduler scheduler(threads);
  nets::Trainer trainer(spec, data, 5, options, scheduler, memory);
  std::vector<double> seen;
  for (int i = 0; i < 3; ++i) seen.push_back(trainer.step().value());
  trainer.flush();
  for (const nets::Parameter& p : trainer.parameters().all()) {
    for (index_t i = 0; i < p.value.elements(); ++i) seen.push_back(static_cast<double>(p.value.data()[i]));
  }
  return seen;
}

}  // namespace

TEST_CASE("training on the heap gives the bits of training on slabs", "[.memcheck]") {
  const nets::NetSpec spec = nets::parse_net(test::small_net, "small.toml");
  for (const Engine engine : {Engine::automatic, Engine::fft_volume, Engine::direct, Engine::reference}) {
    for (const std::size_t budget : {std::size_t{0}, std::size_t{1}}) {
      CAPTURE(name_of(engine), budget);
      SlabResource slabs;
      const nets::NetworkOptions options{.engine = engine, .memory_budget = budget};
      CHECK(train(spec, options, 2, std::pmr::new_delete_resource()) == train(spec, options, 1, &slabs));
    }
  }
}
