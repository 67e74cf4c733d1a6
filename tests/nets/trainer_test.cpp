// Tests what training promises: the same bits in every way to run it, and weights of a whole number of iterations.
#include "nets/train/trainer.hpp"

#include <chrono>
#include <cmath>
#include <limits>
#include <thread>

#include "testing/training_session.hpp"
#include <catch2/catch.hpp>

#include "convolume/memory.hpp"
#include "nets/spec/checkpoint.hpp"

using namespace convolume;
using namespace convolume::nets;
using test::Session;
using test::small_data;
using test::small_net;

namespace {

/// Copies all state from one session to another, as a checkpoint would.
void transfer(Session& from, Session& to) {
  for (std::size_t i = 0; i < from.trainer.parameters().all().size(); ++i) {
    const Parameter& a = from.trainer.parameters().all()[i];
    Parameter& b = to.trainer.parameters().all()[i];
    for (auto member : {&Parameter::value, &Parameter::moment1, &Parameter::moment2}) {
      std::copy_n((a.*member).data(), (a.*member).elements(), (b.*member).data());
    }
  }
  to.trainer.set_iteration(from.trainer.iteration());
}

}  // namespace

TEST_CASE("training gives the same bits on 1, 2 and 3 threads, and so many workers ran") {
  const Dataset data = small_data();
  Session one(data, 1);
  one.steps(6);
  const auto expected = one.weights();
  for (const int threads : {2, 3}) {
    Session many(data, threads);
    test::meet(many.scheduler);
    many.steps(6);
    CHECK(many.scheduler.distinct_workers() == threads);
    CHECK(many.weights() == expected);
  }
}

TEST_CASE("every loss, rebalanced and masked, gives the same bits on 1 and 3 threads") {
  Dataset data = small_data();
  data.train[0].mask = Tensor<float>(data.train[0].label.shape());
  for (index_t i = 0; i < data.train[0].mask.elements(); ++i) data.train[0].mask.data()[i] = i % 3 == 0 ? 0.0f : 1.0f;
  const std::string softmax =
      std::string(small_net).replace(std::string(small_net).rfind("out_channels = 1"), 16, "out_channels = 2");
  for (const char* kind : {"binary_cross_entropy", "softmax_cross_entropy", "square", "dice"}) {
    for (const char* rebalance : {"true", "false"}) {
      CAPTURE(kind, rebalance);
      const std::string text = (std::string(kind) == "softmax_cross_entropy" ? softmax : std::string(small_net)) +
                               "\n[loss]\nkind = \"" + kind + "\"\nrebalance = " + rebalance + "\n";
      Session one(data, 1, text.c_str()), many(data, 3, text.c_str());
      one.steps(8);
      many.steps(8);
      CHECK(one.weights() == many.weights());
    }
  }
}

TEST_CASE("N iterations equal k and N - k iterations, for every k") {
  const Dataset data = small_data();
  constexpr int total = 5;
  Session whole(data);
  whole.steps(total);
  for (int k = 1; k < total; ++k) {
    Session first(data), second(data);
    first.steps(k);
    transfer(first, second);
    second.steps(total - k);
    CHECK(second.weights() == whole.weights());
    CHECK(second.trainer.updates() == total);
  }
}

TEST_CASE("a tuned run goes on from its record with the same choices and the bits of an uninterrupted one") {
  const Dataset data = small_data();
  Session whole(data, 2, small_net, true);
  const NumericsRecord record = NumericsRecord::from_text(whole.trainer.numerics().to_text());
  const auto choices = tuned_choices(record);
  std::vector<std::string> nodes;
  for (const auto& [node, choice] : choices) nodes.push_back(node);
  CHECK(nodes == std::vector<std::string>{"a", "b", "logits", "up"});
  whole.steps(3);
  Session rest(data, 1, small_net, false, choices);
  CHECK_FALSE(rest.trainer.numerics().first_difference(record));
  transfer(whole, rest);
  whole.steps(3);
  rest.steps(3);
  CHECK(whole.weights() == rest.weights());
}

TEST_CASE("tuned choices take the place of the model's, and leave layouts as they are") {
  const Dataset data = small_data();
  Session model(data);
  CHECK(tuned_choices(model.trainer.numerics()).empty());
  const std::map<std::string, std::string> choices{{"a", "fft_volume"},
                                                   {"b", "fft_tiled fwd=5x6x7*2 bwd_d=4x5x6*3 bwd_w=3x4x5*1"}};
  Session tuned(data, 1, small_net, false, choices);
  CHECK(tuned_choices(tuned.trainer.numerics()) == choices);
  const auto spec = tuned.trainer.network().spec();
  for (std::size_t i = 0; i < spec.nodes.size(); ++i) {
    CHECK(tuned.trainer.network().layout_of(i) == model.trainer.network().layout_of(i));
    const ConvPlan* plan = tuned.trainer.network().plan_of(i);
    if (plan == nullptr) continue;
    const auto found = choices.find(spec.nodes[i].name);
    CHECK(plan->choice() == (found != choices.end() ? found->second : model.trainer.network().plan_of(i)->choice()));
  }
  const auto difference = model.trainer.numerics().first_difference(tuned.trainer.numerics());
  REQUIRE(difference);
  CHECK_THAT(*difference, Catch::Contains("node.a"));
}

TEST_CASE("validation in between changes nothing: a flush is the update that the next iteration would have done") {
  const Dataset data = small_data();
  Session plain(data), flushed(data);
  plain.steps(4);
  for (int i = 0; i < 4; ++i) flushed.steps(1);
  CHECK(plain.weights() == flushed.weights());
}

TEST_CASE("after a cancelled iteration the weights are those of a whole number of iterations") {
  const Dataset data = small_data();
  std::vector<std::vector<float>> after;  // weights after 0, 1, 2, ... updates
  Session reference(data);
  after.push_back(reference.weights());
  for (int i = 0; i < 3; ++i) {
    reference.steps(1);
    after.push_back(reference.weights());
  }
  for (int delay = 0; delay < 30; ++delay) {
    Session session(data, 2);
    session.trainer.step();
    std::stop_source stop;
    std::jthread interrupter([&] {
      std::this_thread::sleep_for(std::chrono::microseconds(60 * delay));
      stop.request_stop();
    });
    const auto loss = session.trainer.step(stop.get_token());
    interrupter.join();
    CHECK(session.trainer.iteration() == (loss ? 2 : 1));
    session.trainer.flush();
    const auto updates = static_cast<std::size_t>(session.trainer.updates());
    CHECK(updates == static_cast<std::size_t>(session.trainer.iteration()));
    REQUIRE(session.weights() == after[updates]);
    // The run continues as if nothing had happened.
    session.steps(3 - static_cast<int>(updates));
    REQUIRE(session.weights() == after[3]);
  }
}

TEST_CASE("a loss that is not finite stops training, names iteration and layer, and spares the weights") {
  Dataset data = small_data();
  Session session(data, 2);
  session.steps(1);
  data.train[0].image.fill(std::numeric_limits<float>::quiet_NaN());
  session.steps(1);  // its patches were prepared during the first iteration
  const auto before = session.weights();
  CHECK_THROWS_WITH(session.trainer.step(), Catch::Contains("iteration 3") && Catch::Contains("'input'"));
  session.trainer.flush();
  CHECK(session.weights() == before);
  CHECK(session.trainer.iteration() == 2);

  Dataset huge = small_data();
  Session overflowing(huge);
  for (index_t i = 0; i < huge.train[0].image.elements(); ++i) huge.train[0].image.data()[i] = 3e38f;
  CHECK_THROWS_WITH(overflowing.trainer.step(), Catch::Contains("iteration 1") && Catch::Contains("layer"));
}

TEST_CASE("the loss falls on the built-in volume") {
  const Dataset data = small_data();
  Session session(data, 2);
  double first = 0, last = 0;
  for (int i = 0; i < 60; ++i) {
    const double loss = *session.trainer.step();
    (i < 10 ? first : last) += i < 10 || i >= 50 ? loss : 0;
  }
  CHECK(last < 0.7 * first);
}

TEST_CASE("memory is steady from the second iteration on") {
  const Dataset data = small_data();
  Session session(data, 2);
  session.steps(2);
  const auto before = session.memory.statistics();
  session.steps(5);
  const auto after = session.memory.statistics();
  CHECK(after.live_bytes == before.live_bytes);
  // Which tasks overlap differs from run to run. So does the number of scratch blocks that live at once, but it never
  // exceeds what the workers can use.
  CHECK(after.upstream_calls <= before.upstream_calls + 16);
}

TEST_CASE("nets and data that do not fit are refused with both named") {
  const Dataset data = small_data();
  SlabResource memory;
  Scheduler scheduler(1);
  const auto trainer = [&](const std::vector<std::string>& overrides) {
    Trainer(parse_net(small_net, "small.toml", overrides), data, 1, {}, scheduler, &memory);
  };
  CHECK_THROWS_WITH(trainer({"input.patch=[30, 12, 12]"}), Catch::Contains("synthetic") && Catch::Contains("30"));
  CHECK_THROWS_WITH(trainer({"input.patch=[3, 12, 16]"}), Catch::Contains("square"));
  CHECK_THROWS_WITH(trainer({"input.channels=2"}), Catch::Contains("2 channels"));

  Dataset raw = small_data();
  raw.train[0].label.data()[24 * 24 + 24 + 2] = 255;
  const auto with = [&](const Dataset& d, const std::vector<std::string>& overrides) {
    Trainer(parse_net(small_net, "small.toml", overrides), d, 1, {}, scheduler, &memory);
  };
  CHECK_THROWS_WITH(with(raw, {}), Catch::Contains("synthetic") && Catch::Contains("(1, 1, 2)") &&
                                       Catch::Contains("255") && Catch::Contains("positive"));
  CHECK_THROWS_WITH(with(raw, {"loss.kind=\"softmax_cross_entropy\""}), Catch::Contains("class from 0 to 0"));
  CHECK_NOTHROW(with(raw, {"loss.kind=\"square\""}));
}
