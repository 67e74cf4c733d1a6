#include "ops/optimizer.hpp"

#include "tests/ops/ops_test.hpp"

namespace convolume::ops::test {

TEMPLATE_TEST_CASE("SGD takes the steps of torch.optim.SGD", "[ops]", float, double) {
  using T = TestType;
  on_every_target([] {
    Random random(13);
    for (const SgdOptions& options : {SgdOptions{.learning_rate = 0.1},
                                      {.learning_rate = 0.1, .momentum = 0.9},
                                      {.learning_rate = 0.05, .momentum = 0.9, .weight_decay = 0.01},
                                      {.learning_rate = 0.05, .momentum = 0.5, .weight_decay = 0.1, .nesterov = true},
                                      {.learning_rate = 0.05, .weight_decay = 0.1}}) {
      for (const index_t n : {1, 5, 67}) {
        const double scale = 0.5;
        auto w = random.uniform<T>(n, -1, 1);
        std::vector<T> velocity(w.size(), T{0});
        std::vector<double> reference(w.begin(), w.end()), momentum(w.size(), 0.0);
        for (int step = 0; step < 5; ++step) {
          const auto gradient = random.uniform<T>(n, -1, 1);
          sgd_step(options, scale, w.data(), options.momentum != 0 ? velocity.data() : nullptr, gradient.data(), n);
          for (std::size_t i = 0; i < w.size(); ++i) {
            double g = static_cast<double>(gradient[i]) * scale + options.weight_decay * reference[i];
            if (options.momentum != 0) {
              momentum[i] = options.momentum * momentum[i] + g;
              g = options.nesterov ? g + options.momentum * momentum[i] : momentum[i];
            }
            reference[i] -= options.learning_rate * g;
          }
        }
        bool all = true;
        for (std::size_t i = 0; i < w.size(); ++i) {
          all = all && close(static_cast<double>(w[i]), reference[i], 8 * epsilon<T>, 1);
        }
        REQUIRE(all);
      }
    }
  });
}

TEMPLATE_TEST_CASE("Adam takes the steps of torch.optim.Adam and AdamW", "[ops]", float, double) {
  using T = TestType;
  on_every_target([] {
    Random random(14);
    for (const AdamOptions& options :
         {AdamOptions{},
          {.learning_rate = 0.01, .beta1 = 0.8, .beta2 = 0.95, .epsilon = 1e-6, .weight_decay = 0.1},
          {.learning_rate = 0.01, .weight_decay = 0.1, .decoupled = true}}) {
      for (const index_t n : {1, 6, 71}) {
        const double scale = 2;
        auto w = random.uniform<T>(n, -1, 1);
        std::vector<T> m(w.size(), T{0}), v(w.size(), T{0});
        std::vector<double> reference(w.begin(), w.end()), first(w.size(), 0.0), second(w.size(), 0.0);
        for (int step = 1; step <= 6; ++step) {
          const auto gradient = random.uniform<T>(n, -1, 1);
          adam_step(options, step, scale, w.data(), m.data(), v.data(), gradient.data(), n);
          for (std::size_t i = 0; i < w.size(); ++i) {
            double g = static_cast<double>(gradient[i]) * scale;
            if (options.decoupled) {
              reference[i] *= 1 - options.learning_rate * options.weight_decay;
            } else {
              g += options.weight_decay * reference[i];
            }
            first[i] = options.beta1 * first[i] + (1 - options.beta1) * g;
            second[i] = options.beta2 * second[i] + (1 - options.beta2) * g * g;
            const double m_hat = first[i] / (1 - std::pow(options.beta1, step));
            const double v_hat = second[i] / (1 - std::pow(options.beta2, step));
            reference[i] -= options.learning_rate * m_hat / (std::sqrt(v_hat) + options.epsilon);
          }
        }
        bool all = true;
        for (std::size_t i = 0; i < w.size(); ++i) {
          all = all && close(static_cast<double>(w[i]), reference[i], 16 * epsilon<T>, 1);
        }
        REQUIRE(all);
      }
    }
  });
}

TEMPLATE_TEST_CASE("a tensor may be stepped in any pieces", "[ops]", float, double) {
  using T = TestType;
  on_every_target([] {
    Random random(15);
    const index_t n = 101;
    const auto start = random.uniform<T>(n, -1, 1), gradient = random.uniform<T>(n, -1, 1);
    auto w = start, pieces = start;
    std::vector<T> m(start.size()), v(start.size()), m2(start.size()), v2(start.size());
    const SgdOptions sgd{.learning_rate = 0.1, .momentum = 0.9, .weight_decay = 0.01, .nesterov = true};
    sgd_step(sgd, 0.3, w.data(), m.data(), gradient.data(), n);
    adam_step({.weight_decay = 0.1}, 1, 0.3, w.data(), m.data(), v.data(), gradient.data(), n);
    for (index_t i = 0; i < n; i += 13) {
      const index_t count = std::min<index_t>(13, n - i);
      sgd_step(sgd, 0.3, pieces.data() + i, m2.data() + i, gradient.data() + i, count);
      adam_step({.weight_decay = 0.1}, 1, 0.3, pieces.data() + i, m2.data() + i, v2.data() + i, gradient.data() + i,
                count);
    }
    REQUIRE(same_bits(w, pieces));
    REQUIRE(same_bits(m, m2));
    REQUIRE(same_bits(v, v2));
  });
}

}  // namespace convolume::ops::test
