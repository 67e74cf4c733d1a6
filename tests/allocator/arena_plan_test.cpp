#include "allocator/arena_plan.hpp"

#include <algorithm>
#include <numeric>
#include <random>
#include <utility>

#include <catch2/catch.hpp>

namespace convolume::allocator {
namespace {

/// Buffers that live from a first to a last step, both inclusive.
struct Lives {
  std::vector<std::size_t> bytes;
  std::vector<std::pair<int, int>> steps;

  bool conflict(std::size_t a, std::size_t b) const {
    return steps[a].first <= steps[b].second && steps[b].first <= steps[a].second;
  }
  ArenaPlan plan() const {
    return plan_arena(bytes, [this](std::size_t a, std::size_t b) { return conflict(a, b); });
  }
  /// Returns a lower bound for every plan: the largest number of bytes that are live at once, each buffer rounded up to
  /// 64.
  std::size_t most_at_once() const {
    std::size_t most = 0;
    for (const auto& [first, last] : steps) {
      std::size_t sum = 0;
      for (std::size_t b = 0; b < bytes.size(); ++b) {
        if (steps[b].first <= first && first <= steps[b].second) sum += (bytes[b] + 63) / 64 * 64;
      }
      most = std::max(most, sum);
    }
    return most;
  }
};

bool overlap(const ArenaPlan& plan, const Lives& lives, std::size_t a, std::size_t b) {
  return plan.offsets[a] < plan.offsets[b] + lives.bytes[b] && plan.offsets[b] < plan.offsets[a] + lives.bytes[a];
}

TEST_CASE("buffers that conflict share no byte, and all lie within the arena, aligned to 64", "[arena]") {
  std::mt19937 random(1);
  for (int round = 0; round < 300; ++round) {
    Lives lives;
    const std::size_t count = random() % 40;
    for (std::size_t b = 0; b < count; ++b) {
      lives.bytes.push_back(random() % 5 == 0 ? 0 : random() % 5000);
      const int first = static_cast<int>(random() % 30);
      lives.steps.emplace_back(first, first + static_cast<int>(random() % 8));
    }
    const ArenaPlan plan = lives.plan();
    REQUIRE(plan.offsets.size() == count);
    bool good = true;
    for (std::size_t a = 0; a < count; ++a) {
      good = good && plan.offsets[a] % 64 == 0 && plan.offsets[a] + lives.bytes[a] <= plan.bytes;
      for (std::size_t b = 0; b < a; ++b) good = good && !(lives.conflict(a, b) && overlap(plan, lives, a, b));
    }
    REQUIRE(good);
    CHECK(plan.bytes >= lives.most_at_once());
    CHECK(plan.offsets == lives.plan().offsets);
  }
}

TEST_CASE("a chain of layers and their gradients needs no more than what lives at once", "[arena]") {
  // Outputs live from a layer's forward pass to its backward pass, gradients for two backward passes.
  Lives lives;
  constexpr int layers = 12;
  for (int layer = 0; layer < layers; ++layer) {
    const auto bytes = static_cast<std::size_t>(4096 * (layers - layer));
    lives.bytes.push_back(bytes);
    lives.steps.emplace_back(layer, 2 * layers - layer);
    lives.bytes.push_back(bytes);
    lives.steps.emplace_back(2 * layers - layer - 1, 2 * layers - layer);
  }
  const std::size_t all = std::accumulate(lives.bytes.begin(), lives.bytes.end(), std::size_t{0});
  const ArenaPlan plan = lives.plan();
  CHECK(static_cast<double>(plan.bytes) <= 1.05 * static_cast<double>(lives.most_at_once()));
  CHECK(plan.bytes < all * 2 / 3);
}

TEST_CASE("buffers that end highest are placed earlier, until the arena holds no more than what lives at once") {
  // No single order of size, crowd or time does better than 1216.
  const Lives lives{{256, 128, 384, 448, 512, 256, 128}, {{3, 6}, {4, 5}, {5, 5}, {0, 3}, {0, 0}, {5, 8}, {2, 4}}};
  CHECK(lives.most_at_once() == 1024);
  CHECK(lives.plan().bytes == 1024);
}

TEST_CASE("no buffers need no arena", "[arena]") {
  CHECK(Lives{}.plan().bytes == 0);
  CHECK(Lives{{0, 0}, {{0, 1}, {0, 1}}}.plan().bytes == 0);
}

}  // namespace
}  // namespace convolume::allocator
