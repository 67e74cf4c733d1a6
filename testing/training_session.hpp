// A small net with most kinds of layers, data for it, and a trainer with everything that it needs.
#pragma once

#include <atomic>
#include <map>
#include <string>
#include <thread>
#include <vector>

#include <catch2/catch.hpp>

#include "convolume/memory.hpp"
#include "nets/io/synthetic.hpp"
#include "nets/train/trainer.hpp"

namespace convolume::test {

inline const char* const small_net = R"(
name = "small"
[input]
patch = [3, 12, 12]
[[node]]
name = "a"
type = "conv"
out_channels = 4
kernel = [1, 3, 3]
padding = "same"
activation = "relu"
[[node]]
name = "pool"
type = "max_pool"
window = [1, 2, 2]
[[node]]
name = "b"
type = "conv"
out_channels = 4
kernel = 3
padding = "same"
[[node]]
name = "norm"
type = "group_norm"
groups = 2
[[node]]
name = "drop"
type = "dropout"
rate = 0.2
[[node]]
name = "up"
type = "transposed_conv"
out_channels = 3
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

inline nets::Dataset small_data() {
  auto volume = nets::make_synthetic_volume({.extent = {6, 24, 24}, .cell_diameter = 8});
  nets::Dataset data;
  data.name = "test";
  data.augment = {.flip_z = true, .flip_y = true, .flip_x = true, .rotate90 = true};
  data.train.push_back({std::move(volume.image), std::move(volume.label), {}, "synthetic"});
  nets::normalise(data.train[0].image);
  return data;
}

struct Session {
  explicit Session(const nets::Dataset& d, int threads = 1, const char* net = small_net, bool tune = false,
                   const std::map<std::string, std::string>& tuned = {})
      : data(d),
        scheduler(threads),
        spec(nets::parse_net(net, "small.toml")),
        trainer(spec, data, 5, {.tune_on = tune ? &scheduler : nullptr, .tuned = tuned}, scheduler, &memory) {}
  /// Makes a session that always clips gradients, so that the weights depend on the norm of all gradients.
  Session(const nets::Dataset& d, int threads, const nets::NetworkOptions& network,
          const SchedulerOptions& scheduling = {})
      : data(d),
        scheduler(threads, scheduling),
        spec(nets::parse_net(small_net, "small.toml", {"optimizer.clip_norm=0.001"})),
        trainer(spec, data, 5, network, scheduler, &memory) {}
  void steps(int count) {
    for (int i = 0; i < count; ++i) REQUIRE(trainer.step().has_value());
    trainer.flush();
  }
  std::vector<float> weights() {
    std::vector<float> all;
    for (const nets::Parameter& p : trainer.parameters().all()) {
      for (const auto* t : {&p.value, &p.moment1, &p.moment2})
        all.insert(all.end(), t->data(), t->data() + t->elements());
    }
    return all;
  }
  const nets::Dataset& data;
  SlabResource memory;
  Scheduler scheduler;
  nets::NetSpec spec;
  nets::Trainer trainer;
};

/// Runs tasks that wait for each other, so that all workers exist and later runs use them.
inline void meet(Scheduler& scheduler) {
  TaskGraph meeting;
  const int threads = scheduler.threads();
  std::atomic<int> arrived{0};
  for (int i = 0; i < threads; ++i) {
    meeting.add({.name = "meet"}, [&arrived, threads] {
      ++arrived;
      while (arrived < threads) std::this_thread::yield();
    });
  }
  meeting.run(scheduler);
}

}  // namespace convolume::test
