// Tests the direct engine against the reference in double: any stride, dilation and padding, channels that fill blocks
// partly, both layouts, and what the engine promises besides the numbers.
#include <algorithm>
#include <cmath>

#include "testing/engine_checks.hpp"
#include "testing/random_problem.hpp"
#include "testing/sanitizers.hpp"

#include "convolume/cpu.hpp"

using namespace convolume;
using test::Blocked;
using test::ConvCase;

namespace {

const ConvOptions by_direct{.engine = Engine::direct};

}  // namespace

TEST_CASE("direct agrees with the double reference over random problems, in double and float") {
  for (std::uint64_t seed = 0; seed < (test::sanitized ? 12 : 60); ++seed) {
    CAPTURE(seed);
    const auto p = test::random_problem({.stream = 79}, seed);
    test::check_against_reference<double>(p, by_direct, 1e-12);
    test::check_against_reference<float>(p, by_direct, 1e-5);
  }
}

TEST_CASE("direct reads the only channel of a plain tensor in rows, also with strides of a block and more") {
  const std::string before = simd_target();
  for (const auto& target : available_simd_targets()) {
    if (test::sanitized && target != before) continue;
    set_simd_target(target);
    for (const char* text :
         {"ic1id1ih3iw64oc20od1oh3ow4kd1kh1kw16sd1sh1sw16", "ic1id2ih4iw64oc20od1oh2ow4kd2kh2kw16sd2sh2sw16",
          "ic1id1ih3iw80oc20od1oh3ow4kd1kh1kw20sd1sh1sw20", "ic1id1ih3iw64oc20od1oh3ow8kd1kh1kw8sd1sh1sw8",
          "ic1id4ih5iw33oc33od2oh3ow15kd3kh3kw5sd1sh1sw2", "ic1id3ih4iw9oc17od1oh2ow1kd3kh3kw9",
          "ic1id3ih4iw40oc17od1oh2ow30kd3kh3kw11", "mb2ic1id12oc18od3kd4sd4",
          // Rows of voxels that lie four apart, and rows of 1 to 13 taps, which are not all multiples of four.
          "ic1id4ih8iw92oc48od1oh2ow23kd4kh4kw4sd4sh4sw4", "ic1id1ih9iw77oc32od1oh3ow19kd1kh1kw5sd1sh4sw4",
          "ic1id2ih5iw61oc64od1oh2ow14kd2kh1kw9sd1sh4sw4", "ic1id1ih5iw56oc32od1oh3ow12kd1kh3kw11sd1sh1sw4",
          "ic1id1ih4iw33oc40od1oh1ow8kd1kh4kw3sd1sh4sw4", "ic1id2ih2iw40oc33od2oh2ow28kd1kh1kw13"}) {
      CAPTURE(target, text);
      test::check_against_reference<float>(parse_problem(text), by_direct, 2e-6);
      test::check_against_reference<double>(parse_problem(text), by_direct, 1e-14);
    }
  }
  set_simd_target(before);
}

TEST_CASE("direct is accurate to 2e-6 on layers of ordinary size, on every SIMD target") {
  const std::string before = simd_target();
  for (const auto& target : available_simd_targets()) {
    if (test::sanitized && target != before) continue;
    set_simd_target(target);
    CAPTURE(target);
    test::check_against_reference<float>(parse_problem("ic18id10ih9iw17oc20kd3pd1"), by_direct, 2e-6);
    test::check_against_reference<float>(parse_problem("ic70id3oc40kd3pd1"), by_direct, 2e-6);
    test::check_against_reference<float>(parse_problem("ic33id10ih20iw17oc17kd1pd0"), by_direct, 2e-6);
    test::check_against_reference<float>(parse_problem("ic30id10ih20iw17oc3kd1"), by_direct, 2e-6);
    test::check_against_reference<float>(parse_problem("ic4id5ih5iw5oc4od6oh5ow6kd1pd0"), by_direct,
                                         2e-6);  // padded behind only
    test::check_against_reference<float>(parse_problem("mb2ic8id9oc16kd2sd2"), by_direct, 2e-6);
    test::check_against_reference<double>(parse_problem("ic9id9oc17kd3sd2pd1"), by_direct, 1e-14);
  }
  set_simd_target(before);
}

TEST_CASE("direct is exact on small integers") {
  for (const char* text : {"mb2ic20id9oc33kd3pd1", "ic3id12oc3kd5", "ic40id10oc16kd1", "ic7id11oc5kd3sd2pd1"}) {
    if (test::too_slow_here(parse_problem(text))) continue;
    ConvCase<float> ours(parse_problem(text), by_direct, true);
    ConvCase<float> reference(ours.problem, {.engine = Engine::reference}, true);
    ours.run();
    reference.run();
    CAPTURE(text);
    test::check_same_bits(ours, reference);
  }
}

TEST_CASE("direct: forward and backward are adjoint: <Ax, dy> = <x, A'dy> = <w, dA/dw>") {
  for (std::uint64_t seed = 100; seed < 130; ++seed) {
    auto p = test::random_problem({.stream = 79}, seed);
    p.epilogue = {};
    CAPTURE(seed, to_string(p));
    test::check_adjoint(p, by_direct);
  }
}

TEST_CASE("direct has the same bits on 1, 2 and 8 threads") {
  test::check_threads(
      {"mb2ic3id12oc20kd3pd1", "ic70id6oc66kd3pd1", "ic20id28oc17kd1", "ic5id17oc9kd3sd2pd1", "g3ic15id8oc6kd3"},
      by_direct, by_direct);
}

TEST_CASE("direct gives a sample the same bits alone, if regions transpose weights themselves, and in a batch") {
  // The nests of the default choice sum in the same order, whatever the batch, but not of a stride along Z on every
  // SIMD target. There, both have the choice of the batch.
  const std::string strided = "ic17id5oc50kd3sd2pd1";
  for (const std::string text : {"ic40id4oc36kd3pd1", strided.c_str(), "ic17id5oc50kd3sd1sh2sw2pd1", "ic1id7oc20kd5pd2",
                                 "ic20id6oc1kd3", "ic70id4oc170kd2", "ic33id5oc330kd1kh2kw2"}) {
    CAPTURE(text);
    const ConvProblem p = parse_problem(text);
    ConvProblem three = p;
    three.batch = 3;
    const ConvOptions options =
        text == strided ? ConvOptions{.choice = ConvPlan::make(three, by_direct).choice()} : by_direct;
    ConvCase<float> alone(p, options), batch(three, options);
    alone.run();
    const index_t x = alone.x.elements(), y = alone.y.elements();
    for (index_t n = 0; n < three.batch; ++n) {
      std::copy_n(alone.x.data(), x, batch.x.data() + n * x);
      std::copy_n(alone.dy.data(), y, batch.dy.data() + n * y);
    }
    batch.run();
    for (index_t n = 0; n < three.batch; ++n) {
      CHECK(std::equal(alone.y.data(), alone.y.data() + y, batch.y.data() + n * y));
      CHECK(std::equal(alone.dx.data(), alone.dx.data() + x, batch.dx.data() + n * x));
    }
  }
}

TEST_CASE("direct gives the same bits in blocked memory, and zero in lanes without a channel") {
  for (const char* text : {"mb2ic20id8oc18kd3pd1", "ic16id10ih12iw11oc32kd3kh5kw2", "ic12id3ih20iw19oc41kd1",
                           "ic33id3ih7iw9oc19kd1", "ic18id9oc9kd3sd2pd1", "g2ic32id6oc64kd3pd1"}) {
    for (const auto kind : {Activation::Kind::none, Activation::Kind::sigmoid}) {
      test::check_layouts<float>(text, by_direct, true, true, kind);
      test::check_layouts<float>(text, by_direct, false, true, kind);
      test::check_layouts<float>(text, by_direct, true, false, kind);
      test::check_layouts<double>(text, by_direct, true, true, kind);
    }
  }
}

TEST_CASE("direct keeps lanes without a channel zero, even if voxels are infinite") {
  // Weights of these lanes are zero, and zero times infinity is not zero.
  const std::string before = simd_target();
  for (const auto& target : available_simd_targets()) {
    set_simd_target(target);
    for (const char* text : {"ic17id5oc9kd3pd1", "ic40id3oc20kd3pd1", "ic16id4ih4iw40oc41kd1"}) {
      CAPTURE(target, text);
      ConvProblem p = parse_problem(text);
      p.x_layout = p.y_layout = Layout::blocked;
      SlabResource memory;
      Scheduler scheduler(1);
      const Execution run{scheduler, &memory};
      const ConvPlan plan = ConvPlan::make(p, by_direct);
      Tensor<float> x(p.x_shape(), Layout::blocked, &memory), w(p.w_shape(), &memory);
      Tensor<float> y(p.y_shape(), Layout::blocked, &memory);
      w.fill(1);
      std::fill_n(x.data(), x.elements(), 0.0F);
      std::fill_n(y.data(), y.elements(), NAN);
      const index_t in_voxels = p.input.volume(), voxels = p.output().volume();
      for (index_t c = 0; c < p.in_channels; ++c) {
        for (index_t v = 0; v < in_voxels; ++v) x.data()[(c / 16 * in_voxels + v) * 16 + c % 16] = INFINITY;
      }
      plan.forward(run, {.x = x, .w = plan.prepare(run, w), .y = y});
      for (index_t c = 0; c < (p.out_channels + 15) / 16 * 16; ++c) {
        for (index_t v = 0; v < voxels; ++v) {
          const float wanted = c < p.out_channels ? INFINITY : 0;
          REQUIRE(y.data()[(c / 16 * voxels + v) * 16 + c % 16] == wanted);
        }
      }
    }
  }
  set_simd_target(before);
}

TEST_CASE("direct gives the same bits with non-temporal stores") {
  if (test::sanitized) return;
  // y and dx of 5 MB are stored with non-temporal stores, with and without an epilogue. One pass over many taps, and
  // two.
  test::check_layouts<float>("ic32id34oc32kd1", by_direct, true, true, Activation::Kind::none);
  test::check_layouts<float>("ic32id34oc32kd1", by_direct, true, true, Activation::Kind::relu);
  test::check_layouts<float>("ic18id34oc48kd2", by_direct, true, true, Activation::Kind::none);
  test::check_layouts<float>("ic20id36oc32kd3", by_direct, true, true, Activation::Kind::none);
  // Plain tensors whose rows are aligned: lines, boxes, and blocks that are not full.
  test::check_layouts<float>("ic17id32ih48iw48oc20kd1", by_direct, true, true, Activation::Kind::none);
  test::check_layouts<float>("ic4id34ih50iw50oc17kd3", by_direct, true, true, Activation::Kind::none);
  test::check_layouts<double>("ic9id32ih32iw32oc17kd1", by_direct, true, true, Activation::Kind::none);
  test::check_layouts<float>("ic16id72oc4kd1", by_direct, true, false, Activation::Kind::none);  // few results
  test::check_layouts<float>("g20ic20id32ih48iw48oc20kd3pd1", by_direct, true, true, Activation::Kind::none);
}

TEST_CASE("direct computes few results of one voxel's kernel from blocked tensors with the bits of plain ones") {
  const std::string before = simd_target();
  for (const std::string& target : available_simd_targets()) {
    set_simd_target(target);
    CAPTURE(target);
    for (const char* text : {"ic64id3ih5iw17oc1kd1", "ic20id3ih4iw50oc2kd1", "mb2ic16id2ih3iw48oc3kd1",
                             "ic33id2ih7iw9oc5kd1", "ic40id1ih1iw1oc6kd1", "ic40id5ih5iw5oc7kd1"}) {
      for (const Activation::Kind kind : {Activation::Kind::none, Activation::Kind::relu}) {
        test::check_layouts<float>(text, by_direct, true, false, kind);
        test::check_layouts<double>(text, by_direct, true, false, kind);
      }
      test::check_against_reference<float>(parse_problem(text), by_direct, 2e-6);
    }
    ConvProblem up = parse_problem("ic3id4ih6iw19oc48kd1");
    up.transposed = true;
    test::check_layouts<float>(up, by_direct, false, true, Activation::Kind::none);
    test::check_layouts<float>(up, by_direct, true, false, Activation::Kind::none);
  }
  set_simd_target(before);
}

TEST_CASE("direct computes few results of strides as long as the kernel with the bits of plain tensors") {
  // Lanes are the voxels of a patch, fewer than a block holds or more. Patches may end beyond the voxels of dx, and
  // voxels of dx may lie beyond all patches. Rows of patches are computed in several products, and so are channels.
  const std::string before = simd_target();
  for (const std::string& target : available_simd_targets()) {
    set_simd_target(target);
    CAPTURE(target);
    for (const char* text :
         {"ic1id8oc32kd4sd4", "ic3id9ih7iw11oc20kd2sd2", "mb2ic2id7oc40od2kd3sd3", "ic1ih12iw15oc33kh3kw5sh3sw5",
          "ic6ih4iw21oc16kh2kw7sh2sw7", "ic1id7oc17od2kd4sd4", "ic1id5oc16od1kd4sd4", "mb3ic5id4ih6iw8oc48kd2sd2",
          "ic1id2ih160iw64oc16kd2sd2", "ic3ih64iw64oc70kh8kw8sh8sw8"}) {
      CAPTURE(text);
      test::check_layouts<float>(text, by_direct, false, true, Activation::Kind::none);
      test::check_layouts<double>(text, by_direct, false, true, Activation::Kind::none);
      test::check_layouts<float>(text, by_direct, false, true, Activation::Kind::relu);
      ConvProblem up = parse_problem(text);
      up.transposed = true;
      std::swap(up.in_channels, up.out_channels);
      if (up.pad_after != Extent3{0, 0, 0}) continue;
      test::check_layouts<float>(up, by_direct, true, false, Activation::Kind::none);
      test::check_layouts<float>(up, by_direct, true, false, Activation::Kind::relu);
    }
  }
  set_simd_target(before);
}

TEST_CASE("direct reads rows of plain channels, in place or with padding, with the bits of blocked tensors") {
  for (const char* text :
       {"ic6ih14iw14oc16kh5kw5", "ic3id4ih9iw30oc16kd3pd1", "ic20id3ih5iw17oc12kd3pd1",
        "mb2ic5ih9iw33oc16kh3kw3sh2sw2ph1pw1", "ic17id3ih4iw40oc9kd2", "ic33ih6iw1oc16kh3kw3ph1pw1"}) {
    for (const Activation::Kind kind : {Activation::Kind::none, Activation::Kind::relu}) {
      test::check_layouts<float>(text, by_direct, true, true, kind);
      test::check_layouts<double>(text, by_direct, true, true, kind);
    }
    test::check_against_reference<float>(parse_problem(text), by_direct, 2e-6);
  }
}

TEST_CASE("direct leaves out what padding would be multiplied with") {
  // Rows of one to three pieces, and rows shorter than the kernel. Strides shift the padding at either end. Blocked
  // tensors are read in place if each tap meets padding at one end of a row only, and at one result.
  for (const char* text :
       {"ic32id3ih4iw8oc32kd3pd1", "ic20id3ih4iw31oc32kd3pd1", "ic17id2ih3iw1oc40kd3pd1", "ic16id3ih3iw2oc32kd5pd2",
        "ic18id4ih4iw14oc33kd3sd2pd1", "ic16id3ih3iw9oc32kd3dd1pd2", "ic16id3ih3iw17oc16kd3pd1",
        "ic16id3ih3iw45oc16kd3pd1", "ic16id3ih4iw33oc16kd3sd2pd1", "ic16id3ih3iw1od2oh2ow2oc16kd3sd2pd2",
        "ic16id3ih3iw3od2oh2ow2oc16kd3sd3pd2", "ic16id5ih5iw5oc16kd2sd4pd1",
        // One vector of results at a stride of 2: 28 in one piece, 31 in two, and 27 with padding.
        "ic16id2ih3iw56oc16kd2sd2", "ic16id2ih3iw62oc16kd2sd2", "ic16id9ih9iw53oc16kd3sd2dd2pd3"}) {
    test::check_against_reference<float>(parse_problem(text), by_direct, 2e-6);
    test::check_against_reference<double>(parse_problem(text), by_direct, 1e-14);
    test::check_layouts<float>(text, by_direct, true, true, Activation::Kind::none);
  }
}

TEST_CASE("direct copies voxels of channels that share sets of a cache, with the bits of blocked tensors") {
  // Channels lie a multiple of 2 or 4 KiB apart. Lines are rows and whole planes, and end within a piece of the copy.
  const std::string before = simd_target();
  for (const std::string& target : available_simd_targets()) {
    set_simd_target(target);
    CAPTURE(target);
    for (const char* text : {"ic20id4ih16iw16oc35kd1", "ic70id8oc40kd1", "mb2ic33id1ih32iw96oc17kd1"}) {
      for (const Activation::Kind kind : {Activation::Kind::none, Activation::Kind::relu}) {
        test::check_layouts<float>(text, by_direct, true, true, kind);
        test::check_layouts<double>(text, by_direct, true, true, kind);
      }
      test::check_against_reference<float>(parse_problem(text), by_direct, 2e-6);
    }
  }
  set_simd_target(before);
  test::check_add("ic20id4ih16iw16oc35kd1", by_direct);
}

TEST_CASE("direct adds to dx, dw and dbias where asked") {
  for (const char* text : {"ic3id10oc9kd3pd1", "ic3id10oc9kd2sd3", "ic20id5oc9kd1", "g2ic4id6oc6kd3"})
    test::check_add(text, by_direct);
}

TEST_CASE("direct adds to a blocked dx, and keeps its lanes without a channel zero") {
  auto p = parse_problem("ic20id7oc9kd3pd1");
  p.x_layout = p.y_layout = Layout::blocked;
  ConvCase<float> plain(parse_problem("ic20id7oc9kd3pd1"), by_direct);
  plain.run();
  const auto plan = ConvPlan::make(p, by_direct);
  const Execution run{plain.scheduler, &plain.memory};
  Blocked<float> dy(plain.dy), dx(plain.x);
  const auto prepared = plan.prepare(run, plain.w);
  plan.backward(run, {.dy = dy.view(), .w = prepared, .dx = dx.view(), .add_dx = true});
  for (index_t i = 0; i < plain.x.elements(); ++i) plain.x.data()[i] += plain.dx.data()[i];
  CHECK(dx.equals(plain.x));
  CHECK(dx.padding_is_zero());
}

TEST_CASE("direct takes voxel-for-voxel products of cropped tensors") {
  ConvCase<float> c(parse_problem("ic19id5ih4iw23oc35kd1"), by_direct);
  c.run();
  const Execution run{c.scheduler, &c.memory};
  const auto prepared = c.plan.prepare(run, c.w);
  Tensor<float> x_memory({1, 19, {5, 6, 40}}), y_memory({1, 35, {5, 6, 40}});
  x_memory.fill(std::numeric_limits<float>::quiet_NaN());
  y_memory.fill(7);
  View<float> x(x_memory.data() + 43, c.x.shape()), y(y_memory.data() + 43, c.y.shape());
  x.stride = x_memory.view().stride;
  y.stride = y_memory.view().stride;
  const auto each = [](const Shape5& s, const auto& body) {
    for (index_t i = 0; i < s.elements(); ++i) {
      const index_t v = i % s.extent.volume(), row = s.extent.x;
      body(i, i / s.extent.volume(), v / (s.extent.y * row), v / row % s.extent.y, v % row);
    }
  };
  each(x.shape, [&](index_t i, index_t ch, index_t z, index_t h, index_t w) { x(0, ch, z, h, w) = c.x.data()[i]; });
  c.plan.forward(run, {.x = x, .w = prepared, .bias = c.bias, .y = y});
  double sum = 0;
  each(y.shape, [&](index_t i, index_t ch, index_t z, index_t h, index_t w) {
    REQUIRE(y(0, ch, z, h, w) == c.y.data()[i]);
    y(0, ch, z, h, w) = 7;
  });
  for (index_t i = 0; i < y_memory.elements(); ++i) sum += static_cast<double>(y_memory.data()[i]);
  CHECK(sum == 7.0 * static_cast<double>(y_memory.elements()));  // nothing else was written
}

TEST_CASE("direct takes kernels with strides of their own") {
  ConvCase<float> c(parse_problem("ic5id6oc18kd3pd1"), by_direct);
  c.run();
  const Execution run{c.scheduler, &c.memory};
  const Shape5 wide{18, 5, {3, 3, 4}};
  Tensor<float> memory(wide), gradient(wide);
  View<float> w(memory.data(), c.problem.w_shape()), dw(gradient.data(), c.problem.w_shape());
  w.stride = dw.stride = memory.view().stride;
  for (index_t i = 0; i < c.w.elements(); ++i) {
    w(i / 135, i / 27 % 5, i / 9 % 3, i / 3 % 3, i % 3) = c.w.data()[i];
  }
  const auto prepared = c.plan.prepare(run, w);
  auto y = test::poisoned<float>(c.y.shape());
  c.plan.forward(run, {.x = c.x, .w = prepared, .bias = c.bias, .y = y});
  c.plan.backward(run, {.x = c.x, .dy = c.dy, .w = prepared, .dw = dw});
  CHECK(test::same_bits(y, c.y));
  for (index_t i = 0; i < c.w.elements(); ++i) {
    REQUIRE(dw(i / 135, i / 27 % 5, i / 9 % 3, i / 3 % 3, i % 3) == c.dw.data()[i]);
  }
}

TEST_CASE("direct refuses weights of other channels or kernels, and weights that hold nothing") {
  ConvCase<float> c(parse_problem("ic4id8oc4kd3"), by_direct);
  const Execution run{c.scheduler, &c.memory};
  for (const char* text : {"ic2id8oc4kd3", "ic4id8oc2kd3", "ic4id8oc4kd2"}) {
    ConvCase<float> other(parse_problem(text), by_direct);
    const auto foreign = other.plan.prepare(run, other.w);
    CHECK_THROWS_AS(c.plan.forward(run, {.x = c.x, .w = foreign, .y = c.y}), StaleCache);
  }
  const auto unprepared = c.plan.prepared_weights(&c.memory);
  TaskGraph graph;
  c.plan.append_forward(graph, {}, {.x = c.x, .w = unprepared, .y = c.y}, &c.memory);
  CHECK_THROWS_AS(graph.run(c.scheduler), StaleCache);
  const auto prepared = c.plan.prepare(run, c.w);
  SlabResource tiny({.upstream = mmap_resource(), .budget = 20000});
  CHECK_THROWS_AS(c.plan.backward({c.scheduler, &tiny}, {.x = c.x, .dy = c.dy, .w = prepared, .dx = c.dx, .dw = c.dw}),
                  MemoryBudgetExceeded);
  CHECK(tiny.statistics().live_bytes == 0);
}

TEST_CASE("direct stores weights that no cache holds, and their gradient, with non-temporal stores") {
  test::check_against_reference<float>(parse_problem("ic416id3oc424kd3"), by_direct, 1e-5);
}

TEST_CASE("direct says what it does not serve") {
  CHECK_THROWS_WITH(ConvPlan::make(parse_problem("ic4id60oc4kd3dd9"), by_direct),
                    Catch::Contains("taps too far apart"));
  const auto plan = ConvPlan::make(parse_problem("ic4id6oc4kd3"), by_direct);
  CHECK_THAT(plan.numerics(), Catch::Contains(simd_target()));
}
