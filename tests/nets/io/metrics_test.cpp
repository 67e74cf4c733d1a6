#include "nets/io/metrics.hpp"

#include <chrono>
#include <cmath>
#include <limits>
#include <span>
#include <vector>

#include "io_testing.hpp"

#include "core/random.hpp"

using namespace convolume;
using namespace convolume::nets;
using namespace convolume::nets::testing;

namespace {

Tensor<float> line(const std::vector<float>& values) {
  Tensor<float> tensor({1, 1, {1, 1, static_cast<index_t>(values.size())}});
  std::copy(values.begin(), values.end(), tensor.data());
  return tensor;
}

double ref_area(const Tensor<float>& probability, const Tensor<float>& label) {
  double wins = 0, pairs = 0;
  for (index_t p = 0; p < label.elements(); ++p) {
    for (index_t n = 0; n < label.elements(); ++n) {
      if (label.data()[p] < 0.5f || label.data()[n] >= 0.5f) continue;
      ++pairs;
      wins += probability.data()[p] > probability.data()[n]    ? 1
              : probability.data()[p] == probability.data()[n] ? 0.5
                                                               : 0;
    }
  }
  return wins / pairs;
}

}  // namespace

TEST_CASE("metrics agree with values by hand", "[io][metrics]") {
  // TP 2, FP 1, FN 1, TN 2.
  const auto probability = line({0.9f, 0.5f, 0.4f, 0.6f, 0.1f, 0.4f});
  const auto label = line({1, 1, 1, 0, 0, 0});
  const auto metrics = evaluate(probability, label);
  CHECK(metrics.pixel_error == Approx(2.0 / 6));
  CHECK(metrics.dice == Approx(4.0 / 6));
  CHECK(metrics.iou == Approx(2.0 / 4));
  // Of 9 pairs, 0.9 wins 3, 0.5 wins 2, and 0.4 wins 1 and ties 1.
  CHECK(metrics.roc_auc == Approx(6.5 / 9));
  CHECK(metrics.voxels == 6);
  CHECK(metrics.positives == 3);
  CHECK(evaluate(probability, label, {}, 0.55).pixel_error == Approx(3.0 / 6));
  const auto masked = evaluate(probability, label, line({1, 0, 0, 0, 1, 0}));
  CHECK(masked.pixel_error == 0);
  CHECK(masked.roc_auc == 1);
  CHECK(masked.dice == 1);
  CHECK(masked.voxels == 2);
}

TEST_CASE("metrics at the edges", "[io][metrics]") {
  const auto zeros = line({0, 0, 0}), ones = line({1, 1, 1});
  const auto nothing = evaluate(zeros, zeros);
  CHECK(nothing.pixel_error == 0);
  CHECK(nothing.dice == 1);
  CHECK(nothing.iou == 1);
  CHECK(std::isnan(nothing.roc_auc));
  CHECK(std::isnan(evaluate(ones, ones).roc_auc));
  CHECK(evaluate(ones, zeros).dice == 0);
  CHECK(evaluate(line({0.0f, -0.0f}), line({0, 1})).roc_auc == 0.5);  // -0 equals 0
  constexpr float infinity = std::numeric_limits<float>::infinity();
  CHECK(evaluate(line({-infinity, -3, -2, infinity}), line({0, 0, 1, 1})).roc_auc == 1);
  CHECK(evaluate(line({infinity, 3, 2, -infinity}), line({0, 0, 1, 1})).roc_auc == 0);
}

TEST_CASE("bad input of the metrics is refused", "[io][metrics]") {
  const auto three = line({0, 1, 0}), four = line({0, 1, 0, 1});
  CHECK_THROWS_AS(evaluate(three, four), ShapeMismatch);
  CHECK_THROWS_AS(evaluate(three, three, four), ShapeMismatch);
  CHECK_THROWS_AS(evaluate({}, three), InvalidArgument);
  CHECK_THROWS_AS(evaluate(three, three, line({0, 0, 0})), InvalidArgument);
  CHECK_THROWS_AS(evaluate(three, three, {}, std::nan("")), InvalidArgument);
  const auto bad = line({0, 1, std::nanf("")});
  CHECK(contains(message_of<NumericalError>([&] { evaluate(bad, three); }), "x 2"));
  CHECK_THROWS_AS(evaluate(three, bad), NumericalError);
  CHECK_NOTHROW(evaluate(bad, three, line({1, 1, 0})));
}

TEST_CASE("the area under the curve is that of all pairs, ties included", "[io][metrics]") {
  for (std::uint64_t seed = 0; seed < 20; ++seed) {
    const index_t n = 50 + static_cast<index_t>(seed) * 20;
    Tensor<float> probability({1, 1, {1, 1, n}}), label({1, 1, {1, 1, n}});
    for (index_t i = 0; i < n; ++i) {
      const auto at = static_cast<std::uint64_t>(i);
      const double truth = uniform({.seed = seed, .a = 1}, at) < 0.3 ? 1 : 0;
      const double value = normal({.seed = seed, .a = 2}, at) + truth;
      // Every other run has few distinct values, so it has many ties.
      probability.data()[i] = static_cast<float>(seed % 2 == 0 ? value : std::round(2 * value));
      label.data()[i] = static_cast<float>(truth);
    }
    CHECK(evaluate(probability, label).roc_auc == Approx(ref_area(probability, label)).epsilon(1e-12));
  }
}

TEST_CASE("strided views are evaluated, and millions of voxels do not take long", "[io][metrics]") {
  const auto probability = ramp({1, 2, {4, 5, 6}}, 0.01f);
  auto second = probability.view();
  second.data = probability.view().channel(0, 1);
  second.shape.c = 1;
  Tensor<float> label(second.shape);
  for (index_t i = 0; i < label.elements(); ++i) label.data()[i] = i >= 60 ? 1.0f : 0.0f;
  CHECK(evaluate(second, label).roc_auc == 1);

  const Shape5 shape{1, 1, {32, 256, 256}};
  Tensor<float> large(shape), truth(shape);
  for (index_t i = 0; i < large.elements(); ++i) {
    const auto word = static_cast<std::uint32_t>(i) * 2654435761u;
    large.data()[i] = static_cast<float>(word >> 8) * 0x1p-24f;
    truth.data()[i] = (word >> 3) % 5 == 0 ? 1.0f : 0.0f;
  }
  const auto begin = std::chrono::steady_clock::now();
  const auto metrics = evaluate(large, truth);
  const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - begin;
  CHECK(metrics.voxels == shape.elements());
  CHECK(metrics.roc_auc == Approx(0.5).margin(0.01));
  CHECK(seconds.count() < 5);  // it takes about 0.1 s; sanitizers are slower
}

TEST_CASE("sums over boxes equal the whole", "[io][metrics]") {
  const RandomKey key{.seed = 5};
  std::vector<float> probability(1000), label(1000), mask(1000);
  for (std::size_t i = 0; i < 1000; ++i) {
    probability[i] = static_cast<float>(uniform_below(key, 3 * i, 50)) / 50;
    label[i] = uniform_below(key, 3 * i + 1, 3) == 0 ? 1.0f : 0.0f;
    mask[i] = uniform_below(key, 3 * i + 2, 4) == 0 ? 0.0f : 1.0f;
  }
  BinarySums whole, parts;
  whole.add(probability, label, mask);
  for (std::size_t at = 0; at < 1000; at += 130) {
    const std::size_t n = std::min<std::size_t>(130, 1000 - at);
    parts.add(std::span(probability).subspan(at, n), std::span(label).subspan(at, n), std::span(mask).subspan(at, n));
  }
  const auto a = whole.result(), b = parts.result();
  CHECK(a.pixel_error == b.pixel_error);
  CHECK(a.roc_auc == b.roc_auc);
  CHECK(a.dice == b.dice);
  CHECK(a.voxels == b.voxels);
}

TEST_CASE("beyond so many voxels the AUC is computed from bins, and says so", "[io][metrics]") {
  const RandomKey key{.seed = 6};
  std::vector<float> probability(4000), label(4000);
  for (std::size_t i = 0; i < probability.size(); ++i) {
    label[i] = uniform_below(key, 2 * i, 2) == 0 ? 1.0f : 0.0f;
    probability[i] = static_cast<float>(uniform_below(key, 2 * i + 1, 1000)) / 1000 * 0.7f + 0.3f * label[i];
  }
  BinarySums exact, binned(0.5, 1000);
  exact.add(probability, label, {});
  for (std::size_t at = 0; at < 4000; at += 400) {  // bins begin in the middle
    binned.add(std::span(probability).subspan(at, 400), std::span(label).subspan(at, 400), {});
  }
  CHECK_FALSE(exact.result().binned);
  CHECK(binned.result().binned);
  CHECK(binned.result().roc_auc == Approx(exact.result().roc_auc).margin(1e-4));
  CHECK(binned.result().dice == exact.result().dice);
}

TEST_CASE("classes that are absent are not averaged", "[io][metrics]") {
  ClassSums sums(4);
  // Class 1: two right, one missed, one wrong. Class 2: predicted once, wrongly. Class 3 is absent.
  for (const auto& [predicted, actual] : {std::pair{1, 1}, {1, 1}, {0, 1}, {1, 0}, {2, 0}, {0, 0}}) {
    sums.add(static_cast<std::size_t>(predicted), static_cast<std::size_t>(actual));
  }
  CHECK(sums.voxels() == 6);
  CHECK(sums.error() == Approx(3.0 / 6));
  CHECK(sums.of(1).dice == Approx(4.0 / 6));
  CHECK(sums.of(1).iou == Approx(2.0 / 4));
  CHECK(sums.of(2).dice == 0);
  CHECK(std::isnan(sums.of(3).dice));
  CHECK(sums.mean().dice == Approx((4.0 / 6 + 0) / 2));
  CHECK(sums.mean().iou == Approx(0.25));
  CHECK(std::isnan(ClassSums(3).mean().dice));
}
