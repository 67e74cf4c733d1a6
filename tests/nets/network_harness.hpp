// A net in training on fixed noise, and the nets that several tests train.
#pragma once

#include <cstring>
#include <string>
#include <vector>

#include <catch2/catch.hpp>

#include "core/random.hpp"
#include "nets/graph/network.hpp"

namespace convolume::nets {

inline const std::string net_head = R"(
name = "net"
[input]
patch = [4, 12, 12]
)";
// Smooth except for the pooling. It has feature maps with several readers, crops, and a node that no other node reads.
inline const std::string everything = net_head + R"(
[[node]]
name = "a"
type = "conv"
out_channels = 5
kernel = [1, 3, 3]
padding = "same"
activation = "tanh"
[[node]]
name = "p"
type = "max_pool"
from = "a"
window = [1, 2, 2]
[[node]]
name = "b"
type = "conv"
out_channels = 6
kernel = 3
padding = "same"
activation = "sigmoid"
[[node]]
name = "n"
type = "group_norm"
groups = 3
[[node]]
name = "d"
type = "dropout"
rate = 0.3
[[node]]
name = "u"
type = "transposed_conv"
out_channels = 4
kernel = [1, 4, 2]
stride = [1, 2, 2]
padding = [0, 1, 0]
[[node]]
name = "v"
type = "upsample"
from = "d"
factor = [1, 2, 2]
[[node]]
name = "j"
type = "concat"
from = ["a", "u", "v", "input"]
[[node]]
name = "c"
type = "conv"
out_channels = 4
kernel = 3
activation = "tanh"
[[node]]
name = "s"
type = "add"
from = ["c", "u", "c"]
[[node]]
name = "t"
type = "activation"
activation = "tanh"
[[node]]
name = "w"
type = "crop"
before = [0, 1, 0]
after = [1, 0, 2]
[[node]]
name = "logits"
type = "conv"
out_channels = 2
kernel = [1, 1, 2]
)";
inline const std::string convolutions = net_head + R"(
[[node]]
name = "a"
type = "conv"
out_channels = 4
kernel = 3
padding = "same"
activation = "relu"
[[node]]
name = "b"
type = "conv"
from = "a"
out_channels = 4
kernel = [1, 3, 3]
padding = "same"
[[node]]
name = "c"
type = "concat"
from = ["a", "b"]
[[node]]
name = "d"
type = "conv"
out_channels = 1
kernel = [2, 5, 5]
)";

/// Returns the same net with enough channels for blocked tensors. The channel counts fill blocks only partly.
inline std::string widened(std::string text) {
  const std::string key = "out_channels = ";
  for (const auto& [narrow, wide] : {std::pair{"4\n", "20\n"}, {"5\n", "21\n"}, {"6\n", "18\n"}}) {
    for (std::size_t at = 0; (at = text.find(key + narrow, at)) != std::string::npos;) {
      text.replace(at + key.size(), 2, wide);
    }
  }
  return text;
}

/// A net in training on fixed noise. The loss is half the sum of squares of logit - target.
class Training {
 public:
  Training(const std::string& text, const NetworkOptions& options,
           std::pmr::memory_resource* memory = std::pmr::get_default_resource())
      : spec_(parse_net(text, "net.toml")),
        parameters_(spec_, true, 3, memory),
        network_(spec_, spec_.patch, parameters_,
                 {.batch = 2,
                  .training = true,
                  .engine = options.engine,
                  .memory_budget = options.memory_budget,
                  .slack = options.slack,
                  .fft = options.fft,
                  .cache_spectra = options.cache_spectra,
                  .memory_mode = options.memory_mode,
                  .poison_freed = options.poison_freed},
                 memory),
        target_(network_.logits().shape(), memory) {
    fill(network_.input(), 1);
    fill(target_, 2);
    // Zero biases and unit gammas would hide mistakes.
    for (std::size_t i = 0; i < parameters_.all().size(); ++i) {
      Parameter& p = parameters_.all()[i];
      const RandomKey key{.seed = 4, .a = static_cast<std::uint32_t>(i)};
      for (index_t k = 0; k < p.value.elements(); ++k) {
        p.value.data()[k] += 0.1f * static_cast<float>(normal(key, static_cast<std::uint64_t>(k)));
      }
      p.gradient.fill(0);
    }
    network_.set_iteration(11, 5);
    network_.append_planned([this](TaskGraph& graph) { append(graph); }, graph_);
    network_.place_memory();
  }

  double run(Scheduler& scheduler) {
    graph_.run(scheduler);
    return loss_;
  }
  Parameters& parameters() { return parameters_; }
  Network& network() { return network_; }
  /// Returns the logits followed by all gradients.
  std::vector<float> results() const {
    std::vector<float> all(network_.logits().data(), network_.logits().data() + network_.logits().elements());
    for (const Parameter& p : parameters_.all()) {
      all.insert(all.end(), p.gradient.data(), p.gradient.data() + p.gradient.elements());
    }
    return all;
  }

 private:
  void append(TaskGraph& graph) {
    auto prepared = network_.append_prepare(graph, {});
    const Ready logits = network_.append_forward(graph, {}, std::move(prepared), {});
    const TaskId loss = graph.add(
        {.name = "loss"}, [this] { differentiate(); }, logits.tasks());
    network_.append_backward(graph, Ready::all_of({loss}));
  }
  static void fill(Tensor<float>& t, std::uint32_t stream) {
    const RandomKey key{.seed = 8, .a = stream};
    for (index_t i = 0; i < t.elements(); ++i)
      t.data()[i] = static_cast<float>(normal(key, static_cast<std::uint64_t>(i)));
  }
  void differentiate() {
    loss_ = 0;
    for (index_t i = 0; i < target_.elements(); ++i) {
      const float d = network_.logits().data()[i] - target_.data()[i];
      network_.logits_gradient().data()[i] = d;
      loss_ += 0.5 * static_cast<double>(d) * static_cast<double>(d);
    }
  }

  NetSpec spec_;
  Parameters parameters_;
  Network network_;
  Tensor<float> target_;
  TaskGraph graph_;
  double loss_ = 0;
};

inline bool same_bits(const std::vector<float>& a, const std::vector<float>& b) {
  return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size() * sizeof(float)) == 0;
}

inline std::vector<float> results_of(const std::string& text, const NetworkOptions& options) {
  Scheduler serial(1);
  Training on(text, options);
  on.run(serial);
  return on.results();
}

/// A memory resource whose memory is filled with NaN when it is allocated.
class Poison final : public std::pmr::memory_resource {
  void* do_allocate(std::size_t bytes, std::size_t alignment) override {
    void* memory = std::pmr::new_delete_resource()->allocate(bytes, alignment);
    std::memset(memory, 0xFF, bytes);
    return memory;
  }
  void do_deallocate(void* memory, std::size_t bytes, std::size_t alignment) override {
    std::pmr::new_delete_resource()->deallocate(memory, bytes, alignment);
  }
  bool do_is_equal(const std::pmr::memory_resource& other) const noexcept override { return this == &other; }
};

}  // namespace convolume::nets
