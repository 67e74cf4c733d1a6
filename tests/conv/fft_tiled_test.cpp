// Tests the tiled engine against the reference in double: shapes that fill tiles, channel blocks and groups partly,
// both layouts, and what the engine promises besides the numbers.
#include "testing/engine_checks.hpp"
#include "testing/random_problem.hpp"
#include "testing/sanitizers.hpp"

#include "convolume/cpu.hpp"

using namespace convolume;
using test::ConvCase;
using test::random_tensor;

namespace {

const ConvOptions tiled{.engine = Engine::fft_tiled};

bool serves(const ConvProblem& p) {
  try {
    return p.flops() < 3e7 && ConvPlan::make(p, tiled).engine() == Engine::fft_tiled;
  } catch (const Error&) {
    return false;  // the kernel does not fit, or the engine does not support it
  }
}

/// Draws dense problems that the engine supports, depthwise ones too.
ConvProblem random_dense(std::uint64_t seed) {
  for (std::uint64_t again = 0;; ++again) {
    const auto p = test::random_problem({.stream = 78, .strides = false, .transposed = false, .groups = false},
                                        seed + 1000 * again);
    if (serves(p)) return p;
  }
}

/// Draws problems with stride, dilation, transposition and groups that the engine supports.
ConvProblem random_strided(std::uint64_t seed) {
  for (std::uint64_t again = 0;; ++again) {
    const auto p = test::random_problem({.stream = 80}, seed + 1000 * again);
    if (serves(p)) return p;
  }
}

struct TilesOf {
  const char *problem, *tiles;
};

}  // namespace

TEST_CASE("spectra that are computed again in several chunks give the bits of spectra that are kept") {
  const ConvProblem problem = parse_problem("ic32id48oc32kd3");
  const ConvOptions options{.engine = Engine::fft_tiled};
  ConvCase<float> kept(problem, options), again(problem, options);
  const auto x_hat_bytes = [](const ConvPlan& plan) {
    for (const CacheCost& cache : plan.caches()) {
      if (cache.name == "x_hat") return cache.bytes;
    }
    return std::size_t{0};
  };
  REQUIRE(x_hat_bytes(kept.plan) > std::size_t{16} << 20);  // more than a chunk
  for (const bool sharing : {true, false}) {
    CAPTURE(sharing);
    again.plan = ConvPlan::make(
        problem,
        {.engine = Engine::fft_tiled, .choice = kept.plan.choice(), .memory_budget = 1, .cache_spectra = sharing});
    for (ConvCase<float>* one : {&kept, &again}) {
      const Execution run{one->scheduler, &one->memory};
      const auto w = one->plan.prepare(run, one->w);
      auto x_hat = one->plan.input_spectra(&one->memory);
      one->plan.forward(run, {.x = one->x, .w = w, .y = one->y, .x_hat = &x_hat});
      one->plan.backward(run, {.x = one->x, .dy = one->dy, .w = w, .x_hat = &x_hat, .dx = one->dx, .dw = one->dw});
    }
    CHECK(test::same_bits(again.y, kept.y));
    CHECK(test::same_bits(again.dx, kept.dx));
    CHECK(test::same_bits(again.dw, kept.dw));
  }
}

TEST_CASE("fft_tiled agrees with the double reference over random problems, in double and float") {
  for (std::uint64_t seed = 0; seed < (test::sanitized ? 10 : 60); ++seed) {
    CAPTURE(seed);
    const auto p = random_dense(seed);
    test::check_against_reference<double>(p, tiled, 1e-12);
    test::check_against_reference<float>(p, tiled, 1e-5);
  }
}

TEST_CASE("fft_tiled agrees with the double reference over random strides, dilations, transpositions and groups") {
  for (std::uint64_t seed = 0; seed < (test::sanitized ? 12 : 100); ++seed) {
    CAPTURE(seed);
    const auto p = random_strided(seed);
    CAPTURE(p.transposed, to_string(p.stride), to_string(p.dilation), p.groups);
    test::check_against_reference<double>(p, tiled, 1e-12);
    test::check_against_reference<float>(p, tiled, 1e-5);
  }
}

TEST_CASE("fft_tiled is accurate to 2e-6 on layers of ordinary size, on every SIMD target") {
  const std::string before = simd_target();
  for (const auto& target : available_simd_targets()) {
    set_simd_target(target);
    CAPTURE(target);
    test::check_against_reference<float>(parse_problem("ic17id4ih5iw6oc18kd3kh2kw3"), tiled, 2e-6);
    test::check_against_reference<float>(parse_problem("ic18id14ih15iw17oc20kd3kh5kw3"), tiled, 2e-6);
    test::check_against_reference<float>(parse_problem("ic8id3ih20iw17oc4kd1kh3kw3ph1pd0"), tiled, 2e-6);
    test::check_against_reference<double>(parse_problem("ic1id18oc17kd3"), tiled, 1e-14);
    test::check_against_reference<float>(parse_problem("g20ic20id18ih17iw19oc20kd7pd3"), tiled, 2e-6);
  }
  set_simd_target(before);
}

TEST_CASE("fft_tiled is exact after rounding on small integers") {
  for (const char* text : {"mb2ic20id9oc33kd3pd1", "ic3id30oc3kd5", "ic1id20oc16kd3", "g18ic18id12oc18kd5pd2"}) {
    ConvCase<float> ours(parse_problem(text), tiled, true);
    if (test::too_slow_here(ours.problem)) continue;
    ConvCase<float> reference(ours.problem, {.engine = Engine::reference}, true);
    ours.run();
    reference.run();
    CAPTURE(text);
    for (index_t i = 0; i < ours.y.elements(); ++i) REQUIRE(std::round(ours.y.data()[i]) == reference.y.data()[i]);
    for (index_t i = 0; i < ours.dx.elements(); ++i) REQUIRE(std::round(ours.dx.data()[i]) == reference.dx.data()[i]);
    if (ours.dy.shape().extent.volume() > 8000) continue;  // sums over so many voxels have too many digits
    for (index_t i = 0; i < ours.dw.elements(); ++i) REQUIRE(std::round(ours.dw.data()[i]) == reference.dw.data()[i]);
  }
}

TEST_CASE("fft_tiled: forward and backward are adjoint: <Ax, dy> = <x, A'dy> = <w, dA/dw>") {
  for (std::uint64_t seed = 100; seed < 120; ++seed) {
    auto p = random_dense(seed);
    p.epilogue = {};
    CAPTURE(seed, to_string(p));
    test::check_adjoint(p, tiled);
  }
  for (std::uint64_t seed = 200; seed < 220; ++seed) {
    auto p = random_strided(seed);
    p.epilogue = {};
    CAPTURE(seed, to_string(p), p.transposed);
    test::check_adjoint(p, tiled);
  }
}

TEST_CASE("fft_tiled: planes of y, dx and dw are complete for whoever waits for them") {
  for (const char* text :
       {"mb2ic3id40oc5kd3pd1", "ic5id41oc4kd3dd1", "ic4id43oc20kd3sd2pd1", "mb2ic2id37oc3kd5sd2dd2pd3",
        "ic18id40oc3ih9iw9kd4sd3", "g3ic6id20oc12kd3pd1", "g4ic4id20oc4kd3pd2dd1", "g17ic17id33ih9iw9oc17kd5sd2pd2",
        "ic2id80ih6iw6oc3kd3sd2pd1", "g2ic2id83ih6iw6oc2kd3sd2pd1"}) {
    auto p = parse_problem(text);
    if (test::thread_sanitized && p.input.z > 30) continue;
    test::check_ready(p, tiled);
    p.input.z /= 2;
    p.transposed = true;
    test::check_ready(p, tiled);
  }
}

TEST_CASE("fft_tiled has the same bits with kept or recomputed weights, on 1, 2 and 8 threads") {
  test::check_threads({"mb2ic3id12oc20kd3pd1", "ic20id26oc17kd5", "ic1id30oc5kd3", "ic4id3ih16iw16oc6kd1kh3kw3",
                       "g20ic20id19oc20kd5pd2", "mb2ic20id17oc3kd3dd1", "ic3id21oc20kd3sd2pd1", "g3ic60id9oc12kd3",
                       "g20ic20id19oc20kd5sd2pd2"},
                      tiled, {.engine = Engine::fft_tiled, .memory_budget = 1});
}

TEST_CASE("fft_tiled gives the same bits with non-temporal stores") {
  if (test::sanitized) return;
  test::check_layouts<float>("ic8id40oc17kd3", tiled, true, true, Activation::Kind::relu);  // 7 MB of y
  test::check_layouts<double>("mb2ic9id30oc3kd3", tiled, true, false, Activation::Kind::none);
  // Rows of y are aligned, and rows of tiles begin at voxels 0 and 27. From 27 on, the first whole line begins at 32.
  const ConvOptions threes{.choice = "fft_tiled fwd=8x8x11*3 bwd_d=8x8x11*3 bwd_w=8x8x11*1"};
  test::check_layouts<float>("ic8id34ih50iw50oc17kd3", threes, true, true, Activation::Kind::none);
  test::check_layouts<double>("ic4id34ih50iw50oc9kd3", threes, true, true, Activation::Kind::none);
}

TEST_CASE("fft_tiled gives the same bits in plain memory, whose tiles are staged together, on every SIMD target") {
  const TilesOf cases[] = {
      {"mb2ic18id7ih20iw50oc20kd3pd1", "fwd=8x8x8*7 bwd_d=9x9x10*5 bwd_w=8x8x8*1"},
      {"ic20id1ih23iw70oc17kd1kh3kw5pd0ph1pw2", "fwd=1x8x9*24 bwd_d=1x8x16*3 bwd_w=8x1x9*1"},
      {"ic9id12ih13iw60oc17kd4sd2dd0pd2", "fwd=6x6x8*4 bwd_d=6x6x8*8 bwd_w=6x6x8*1"},
  };
  const std::string before = simd_target();
  for (const auto& target : available_simd_targets()) {
    set_simd_target(target);
    for (const TilesOf& c : cases) {
      CAPTURE(target, c.problem);
      const ConvOptions chosen{.choice = std::string("fft_tiled ") + c.tiles};
      test::check_layouts<float>(c.problem, chosen, true, true, Activation::Kind::tanh);
      test::check_layouts<double>(c.problem, chosen, true, true, Activation::Kind::relu);
    }
  }
  set_simd_target(before);
}

TEST_CASE("fft_tiled gives the same in blocked memory, and zero in lanes without a channel", "[serial]") {
  for (const char* text : {"mb2ic20id12oc18kd3pd1", "ic16id10ih20iw11oc32kd3kh5kw2", "ic12id1ih20iw19oc9kd1kh3kw3",
                           "mb2g20ic20id14oc20kd3pd1"}) {
    test::check_layouts<float>(text, tiled, true, true, Activation::Kind::tanh);
    test::check_layouts<double>(text, tiled, true, true, Activation::Kind::tanh);
  }
}

TEST_CASE("fft_tiled gives the same in blocked memory with stride, dilation, transposition and groups", "[serial]") {
  for (const char* text : {"mb2ic20id12oc18kd3pd2dd1", "ic16id13oc18kd3sd2pd1", "g2ic32id10oc64kd3pd1",
                           "g20ic20id13oc20kd3sd2pd1", "mb2g20ic20id12oc20kd3pd2dd1", "mb2g3ic48id9oc48kd3pd2dd1",
                           "ic18id8ih11iw13oc9kd3kh5kw3sd1sh2sw2", "ic9id14oc17kd4sd3dd1pd2"}) {
    auto p = parse_problem(text);
    for (const bool transposed : {false, true}) {
      p.transposed = transposed;
      if (transposed) p.input = {4, 6, 7};
      test::check_layouts<float>(p, tiled, true, true, Activation::Kind::tanh);
      test::check_layouts<float>(p, tiled, false, true, Activation::Kind::none);
      test::check_layouts<double>(p, tiled, true, false, Activation::Kind::tanh);
    }
  }
}

TEST_CASE("fft_tiled adds to dx, dw and dbias where asked") {
  for (const char* text :
       {"ic3id10oc9kd3pd1", "ic3id11oc9kd3sd2pd1", "ic9id13oc3kd3dd1", "g3ic9id8oc6kd3", "g9ic9id11oc9kd3sd2"})
    test::check_add(text, tiled);
}

TEST_CASE("fft_tiled: a call reads the weights that it is given, whatever earlier calls of the plan had") {
  for (const auto& [text, budget] : {std::pair{"ic3id10oc9kd3", std::size_t{0}},
                                     {"ic3id10oc9kd3", std::size_t{1}},
                                     {"g3ic3id10oc9kd3", std::size_t{0}}}) {
    ConvCase<float> c(parse_problem(text), {.engine = Engine::fft_tiled, .memory_budget = budget});
    c.run();
    const Execution run{c.scheduler, &c.memory};
    const auto other = random_tensor<float>(c.w.shape(), 10);
    const auto first = c.plan.prepare(run, c.w), second = c.plan.prepare(run, other);
    auto y = test::poisoned<float>(c.y.shape()), dx = test::poisoned<float>(c.dx.shape());
    c.plan.forward(run, {.x = c.x, .w = second, .y = y});
    c.plan.backward(run, {.dy = c.dy, .w = second, .dx = dx});
    CHECK(!test::same_bits(y, c.y));
    CHECK(!test::same_bits(dx, c.dx));
    c.plan.forward(run, {.x = c.x, .w = first, .y = y});
    c.plan.backward(run, {.dy = c.dy, .w = first, .dx = dx});
    CHECK(test::same_bits(y, c.y));
    CHECK(test::same_bits(dx, c.dx));
  }
}

TEST_CASE("fft_tiled reads y and dy where they lie, each with strides of its own") {
  for (const char* text : {"ic8id12oc8kd3pd1", "g16ic16id12oc16kd5pd2", "g2ic8id12oc8kd3pd1", "ic8id12oc8kd3pd1sd2",
                           "ic8id12oc8kd3pd1dd1"}) {
    auto p = parse_problem(text);
    p.epilogue.activation.kind = Activation::Kind::tanh;
    ConvCase<float> c(p, tiled);
    c.run();
    // dy lies in the corner of a wider tensor.
    const Shape5 shape = c.dy.shape();
    auto wide = test::poisoned<float>({shape.n, shape.c + 1, shape.extent + Extent3{1, 2, 3}});
    View<float> dy = wide.view();
    dy.shape = shape;
    for (index_t ch = 0; ch < shape.c; ++ch) {
      for (index_t z = 0; z < shape.extent.z; ++z) {
        for (index_t y = 0; y < shape.extent.y; ++y) {
          for (index_t x = 0; x < shape.extent.x; ++x) dy(0, ch, z, y, x) = c.dy.view()(0, ch, z, y, x);
        }
      }
    }
    auto dx = test::poisoned<float>(c.dx.shape()), dw = test::poisoned<float>(c.dw.shape());
    const Execution run{c.scheduler, &c.memory};
    const auto prepared = c.plan.prepare(run, c.w);
    c.plan.backward(run, {.x = c.x, .y = c.y, .dy = dy, .w = prepared, .dx = dx, .dw = dw});
    CAPTURE(text);
    CHECK(test::same_bits(dx, c.dx));
    CHECK(test::same_bits(dw, c.dw));
  }
}

TEST_CASE("fft_tiled with few channels, whose tiles share lanes, in groups of any size") {
  for (const char* text : {"ic5oc96id20kd2kh2kw1pd0", "ic7oc33id32kd1kh3kw3pd0ph1pw1", "mb2ic3oc20id24kd5"}) {
    test::check_against_reference<float>(parse_problem(text), tiled, 2e-6);
  }
  test::check_against_reference<double>(parse_problem("ic1id16oc64kd1kh2kw2pd0"), tiled, 1e-13);
}

TEST_CASE("fft_tiled with taps along Z as channels, in planes", "[serial]") {
  const TilesOf cases[] = {{"ic1oc17id9ih14iw15kd3", "fwd=1x8x9*3 bwd_d=8x8x8*2 bwd_w=1x7x16*1"},
                           {"mb2ic3oc5id6ih9iw8kd5kh3kw2pd2ph1pw0", "fwd=1x4x8*16 bwd_d=8x8x8*2 bwd_w=1x9x3*1"},
                           {"ic2oc33id11ih12iw13kd4kh1kw3sd2sh1sw2", "fwd=1x1x8*4 bwd_d=4x1x8*1 bwd_w=1x1x12*1"},
                           {"ic3oc8id16ih9iw9kd3kh3kw3dd1dh0dw2pd2ph2pw3", "fwd=1x6x5*8 bwd_d=6x6x6*1 bwd_w=1x9x5*1"},
                           {"ic1oc4id5ih6iw7kd5kh6kw7", "fwd=1x6x7*1 bwd_d=5x6x7*1 bwd_w=1x8x8*1"}};
  for (const auto& [text, tiles] : cases) {
    const ConvOptions planes{.choice = std::string("fft_tiled ") + tiles};
    const auto p = parse_problem(text);
    CAPTURE(text);
    CHECK(ConvPlan::make(p, planes).choice() == planes.choice);
    test::check_against_reference<double>(p, planes, 1e-13);
    test::check_against_reference<float>(p, planes, 1e-5);
    test::check_adjoint(p, planes);
    test::check_layouts<float>(text, planes, false, true, Activation::Kind::relu);
  }
  const ConvOptions planes{.choice = "fft_tiled fwd=1x8x8*2 bwd_d=8x8x8*2 bwd_w=1x8x8*1"};
  test::check_threads({"mb2ic2oc20id24kd3"}, planes, planes);
  CHECK_THROWS_AS(
      ConvPlan::make(parse_problem("ic8oc8id9kd3"), {.choice = "fft_tiled fwd=1x8x8*1 bwd_d=8x8x8*1 bwd_w=8x8x8*1"}),
      InvalidArgument);
  CHECK_THROWS_AS(
      ConvPlan::make(parse_problem("ic1oc8id9kd3"), {.choice = "fft_tiled fwd=8x8x8*1 bwd_d=1x8x8*1 bwd_w=8x8x8*1"}),
      InvalidArgument);
}

TEST_CASE("fft_tiled with taps along Z that share the planes of x, through many layers of tiles") {
  const TilesOf cases[] = {{"mb2ic2oc5id40ih20iw20kd3", "fwd=1x6x6*4 bwd_d=8x8x8*2 bwd_w=1x6x6*1"},
                           {"ic1oc17id30ih14iw15kd5pd4ph2pw2", "fwd=1x8x8*16 bwd_d=8x8x8*2 bwd_w=1x8x9*1"},
                           {"ic3oc4id21ih17iw25kd4kh3kw3sd1sh2sw2pd1", "fwd=1x4x4*2 bwd_d=8x4x4*2 bwd_w=1x4x4*1"},
                           {"mb3ic1oc4id20ih16iw23kd3kh3kw3dd0dh1dw2", "fwd=1x5x5*8 bwd_d=6x6x6*1 bwd_w=1x5x5*1"}};
  for (const auto& [text, tiles] : cases) {
    const ConvOptions planes{.choice = std::string("fft_tiled ") + tiles};
    CAPTURE(text);
    test::check_against_reference<double>(parse_problem(text), planes, 1e-13);
    test::check_against_reference<float>(parse_problem(text), planes, 1e-5);
    test::check_threads({text}, planes, planes);
  }
  // The lanes hold tiles of many Z layers, of some Z layers, and of one Z layer where a column of tiles ends early.
  for (const auto& [text, tiles] :
       {std::array{"ic1id40ih9iw9oc5kd3", "fwd=6x9x9*1 bwd_d=6x9x9*1 bwd_w=6x9x9*1"},
        std::array{"ic1id20ih24iw24oc4kd5", "fwd=1x14x14*2 bwd_d=8x8x8*2 bwd_w=1x14x14*1"},
        std::array{"ic1id20ih12iw27oc4kd3", "fwd=1x7x7*2 bwd_d=8x8x8*2 bwd_w=1x7x7*1"},
        std::array{"mb2ic1id21ih13iw15oc5kd3", "fwd=1x5x5*2 bwd_d=8x8x8*2 bwd_w=1x5x5*1"}}) {
    test::check_ready(parse_problem(text), {.choice = std::string("fft_tiled ") + tiles});
  }
  // There are 24 Z layers of 4 x 4 tiles. They are processed four at a time, and each of the 6 steps transforms four
  // planes and the two additional planes that its first tiles need.
  test::ConvCase<float> c(parse_problem("ic1id26ih18iw18oc8kd3"),
                          {.choice = "fft_tiled fwd=1x6x6*8 bwd_d=8x8x8*2 bwd_w=1x6x6*1"});
  const Execution run{c.scheduler, &c.memory};
  c.plan.forward(run, {.x = c.x, .w = c.plan.prepare(run, c.w), .y = c.y});
  CHECK(c.plan.transforms().input == 6 * (4 + 2));
  c.plan.backward(run, {.x = c.x, .dy = c.dy, .w = c.plan.prepare(run, c.w), .dw = c.dw});
  CHECK(c.plan.transforms().input == 2 * 6 * (4 + 2));
}

TEST_CASE("fft_tiled says what it does not serve") {
  const auto refuses = [](const char* text, const char* reason) {
    CAPTURE(text);
    CHECK_THROWS_WITH(ConvPlan::make(parse_problem(text), tiled), Catch::Contains(reason));
  };
  refuses("ic4id8oc4kd1", "a kernel of one voxel");
  refuses("ic4id8oc4kd2sd2", "as long as the kernel");
  refuses("ic4id8oc4kd1kh3kw3sd2", "leaps over voxels");
  refuses("ic4id20oc4kd3sd2dd1", "share a factor");
  auto p = parse_problem("g2ic16id8oc16kd3pd1");
  p.x_layout = Layout::blocked;
  CHECK_THROWS_WITH(ConvPlan::make(p, tiled), Catch::Contains("groups of 8 channels do not fill blocks of 16"));
}
