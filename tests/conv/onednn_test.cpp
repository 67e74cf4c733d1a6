// Tests the engine onednn: it is chosen by name only, and unsupported if the library was built without it.
#include "testing/engine_checks.hpp"

#include "conv/candidates.hpp"

using namespace convolume;

namespace {

const ConvOptions onednn{.engine = Engine::onednn};

#if CONVOLUME_ONEDNN
/// Checks that results are added to dx and dw, in float, because oneDNN supports no other type.
void check_adding(const char* text) {
  test::ConvCase<float> c(parse_problem(text), onednn);
  c.run();
  const Execution run{c.scheduler, &c.memory};
  const auto prepared = c.plan.prepare(run, c.w);
  auto dx = test::random_tensor<float>(c.dx.shape(), 7), dw = test::random_tensor<float>(c.dw.shape(), 8);
  const auto before_x = test::random_tensor<float>(c.dx.shape(), 7),
             before_w = test::random_tensor<float>(c.dw.shape(), 8);
  c.plan.backward(run, {.x = c.x, .dy = c.dy, .w = prepared, .dx = dx, .dw = dw, .add_dx = true, .add_dw = true});
  for (index_t i = 0; i < dx.elements(); ++i) dx.data()[i] -= before_x.data()[i];
  for (index_t i = 0; i < dw.elements(); ++i) dw.data()[i] -= before_w.data()[i];
  CHECK(test::relative_error(dx, c.dx) < 1e-5);
  CHECK(test::relative_error(dw, c.dw) < 1e-5);
}
#endif

}  // namespace

TEST_CASE("automatic never takes onednn") {
  const auto p = parse_problem("ic16oc16id6kd3");
  for (const auto& choice : conv::candidates(p, {}, 2)) CHECK(choice.engine != Engine::onednn);
  CHECK_THAT(ConvPlan::make(p).explain(), !Catch::Contains("onednn"));
  CHECK(engine_of("onednn") == Engine::onednn);
}

#if CONVOLUME_ONEDNN

TEST_CASE("onednn agrees with the reference, in float") {
  for (const char* text :
       {"mb2ic3id7oc5kd3", "ic17id9ih6iw8oc20kd3kh2kw1pd1", "ic16id8oc32kd3sd2pd1", "ic8id9oc8kd2dd1",
        "g4ic8id6oc12kd3pd1", "g9ic9id7oc9kd3pd1", "ih12ic5oc4kh5ph2", "mb3ic1id5oc1kd1"}) {
    for (const auto kind : {Activation::Kind::none, Activation::Kind::relu, Activation::Kind::leaky_relu,
                            Activation::Kind::sigmoid, Activation::Kind::tanh}) {
      auto p = parse_problem(text);
      p.epilogue = {.bias = kind != Activation::Kind::tanh, .activation = {.kind = kind}};
      test::check_against_reference<float>(p, onednn, 1e-5);
    }
  }
}

TEST_CASE("onednn serves blocked tensors and clears their pad lanes") {
  for (const bool blocked_x : {false, true}) {
    for (const bool blocked_y : {false, true}) {
      auto p = parse_problem("mb2ic17id6oc20kd3pd1");
      p.epilogue.bias = true;
      test::ConvCase<float> plain(p, onednn);
      plain.run();
      p.x_layout = blocked_x ? Layout::blocked : Layout::plain;
      p.y_layout = blocked_y ? Layout::blocked : Layout::plain;
      const auto plan = ConvPlan::make(p, onednn);
      const Execution run{plain.scheduler, &plain.memory};
      test::Blocked<float> x(plain.x), dy(plain.dy), y(p.y_shape()), dx(p.x_shape());
      auto plain_y = test::poisoned<float>(p.y_shape()), plain_dx = test::poisoned<float>(p.x_shape());
      auto dw = test::poisoned<float>(p.w_shape());
      const auto x_view = blocked_x ? x.view() : plain.x.view(), dx_view = blocked_x ? dx.view() : plain_dx.view();
      const auto y_view = blocked_y ? y.view() : plain_y.view(), dy_view = blocked_y ? dy.view() : plain.dy.view();
      const auto prepared = plan.prepare(run, plain.w);
      plan.forward(run, {.x = x_view, .w = prepared, .bias = plain.bias, .y = y_view});
      plan.backward(run, {.x = x_view, .dy = dy_view, .w = prepared, .dx = dx_view, .dw = dw});
      CAPTURE(blocked_x, blocked_y);
      for (index_t i = 0; i < plain.y.elements(); ++i) {
        const index_t voxels = p.output().volume(), c = i / voxels % 20, n = i / voxels / 20, v = i % voxels;
        const Extent3 e = p.output();
        REQUIRE(y_view(n, c, v / (e.y * e.x), v / e.x % e.y, v % e.x) == Approx(plain.y.data()[i]).margin(1e-4));
      }
      CHECK((!blocked_y || y.padding_is_zero()));
      CHECK((!blocked_x || dx.padding_is_zero()));
      CHECK(test::relative_error(dw, plain.dw) < 1e-5);
    }
  }
}

TEST_CASE("onednn adds to gradients where that is asked") {
  check_adding("ic3id6oc5kd3");
  check_adding("mb2ic16id6oc16kd3pd1");
}

TEST_CASE("onednn says its version in the numerics, and what it does not serve") {
  const auto plan = ConvPlan::make(parse_problem("ic3id6oc5kd3"), onednn);
  CHECK_THAT(plan.numerics(), Catch::StartsWith("onednn: oneDNN ") && Catch::Contains(" threads of its own"));
  auto p = parse_problem("ic3id6oc5kd3");
  p.type = DataType::f64;
  CHECK_THROWS_WITH(ConvPlan::make(p, onednn), Catch::Contains("float only"));
  p.type = DataType::f32;
  p.transposed = true;
  CHECK_THROWS_WITH(ConvPlan::make(p, onednn), Catch::Contains("transposed"));
  p.transposed = false;
  p.epilogue.activation.kind = Activation::Kind::softsign;
  CHECK_THROWS_WITH(ConvPlan::make(p, onednn), Catch::Contains("softsign"));
}

#else

TEST_CASE("onednn is refused with the way to get it where the library was built without it") {
  CHECK_THROWS_WITH(
      ConvPlan::make(parse_problem("ic3id6oc5kd3"), onednn),
      Catch::Contains("onednn: unsupported, this build has no oneDNN; configure with -DCONVOLUME_ONEDNN=ON"));
}

#endif
