// The microkernels of direct convolution: rows of voxels, rows of taps, and several blocks of channels, with the bits
// of single ones.
#include <algorithm>
#include <array>
#include <optional>

#include "testing/direct_nests.hpp"
#include "testing/engine_checks.hpp"
#include "testing/sanitizers.hpp"
#include "testing/simd_targets.hpp"
#include <fmt/format.h>

#include "conv/direct/direct_nest.hpp"
#include "convolume/blocking.hpp"
#include "convolume/cpu.hpp"

using namespace convolume;
using Catch::Contains;
using plan::LoopNest;
using test::ConvCase;

namespace {

/// Returns a nest of forward whose microkernel computes `columns` blocks of results and pieces of `most` voxels. With
/// `tap_rows`, the taps of a row are summed at each term.
LoopNest nest_of_columns(const ConvProblem& p, index_t columns, index_t most, bool tap_rows) {
  const index_t block = channel_block(p.type), width = columns * block, terms = std::min(block, p.in_channels);
  const bool c = p.in_channels > terms, k = p.out_channels > width, x = p.output().x > most;
  const auto loop = [](const char* name, bool wanted) { return std::string(wanted ? name : ""); };
  const std::string taps = loop("kx ", p.kernel.x > 1), channels = terms > 1 ? fmt::format("c{} ", terms) : "";
  return plan::parse_nest(fmt::format(
      "{}{}{}{}{}{}| {}{}{}{} k{}", loop("n ", p.batch > 1), loop("c ", c), loop("k ", k), loop("z ", p.output().z > 1),
      loop("y ", p.output().y > 1), loop("x ", x), loop("kz ", p.kernel.z > 1), loop("ky ", p.kernel.y > 1),
      tap_rows ? channels + taps : taps + channels, x ? fmt::format("x{}", most) : "x", k ? width : p.out_channels));
}

/// Checks that forward with `columns` blocks of results together is accurate, in float and double, and has the bits of
/// both layouts and of single blocks.
void check_columns_together(const char* text, index_t columns, index_t most, bool tap_rows) {
  for (const DataType type : {DataType::f32, DataType::f64}) {
    ConvProblem p = parse_problem(text);
    p.type = type;
    conv::Nests nests = test::direct_nests(p);
    const auto choice_of = [&](index_t together) {
      nests[0] = nest_of_columns(p, together, most, tap_rows);
      return test::choice_text(nests);
    };
    CAPTURE(text, choice_of(1), choice_of(columns));
    const auto check = [&]<class T>(T) {
      test::check_against_reference<T>(p, {.choice = choice_of(columns)}, sizeof(T) == 4 ? 2e-6 : 1e-13);
      test::check_layouts<T>(p, {.choice = choice_of(columns)}, true, true, Activation::Kind::none);
      ConvCase<T> together(p, {.choice = choice_of(columns)}), alone(p, {.choice = choice_of(1)});
      together.run();
      alone.run();
      CHECK(test::same_bits(together.y, alone.y));
    };
    type == DataType::f32 ? check(float()) : check(double());
  }
}

/// Checks that the nest of a direction is refused, and why.
void check_refused(plan::Direction direction, const char* problem, const char* nest, const char* why) {
  const ConvProblem p = parse_problem(problem);
  conv::Nests nests = test::direct_nests(p);
  nests[static_cast<std::size_t>(direction)] = plan::parse_nest(nest);
  CHECK_THROWS_WITH(ConvPlan::make(p, {.choice = test::choice_text(nests)}), Contains(why));
}

}  // namespace

TEST_CASE("direct computes rows of up to 28 voxels of one lane block, on every SIMD target and in both layouts") {
  const std::string before = simd_target();
  const auto row_of = [](const ConvProblem& p, index_t voxels) {
    conv::Nests nests = test::direct_nests(p);
    nests[0] = plan::parse_nest(fmt::format("z* y* c k x | kz ky kx c16 x{} k16", voxels));
    nests[1] = plan::parse_nest(fmt::format("z* y* k c x | kz ky kx k16 x{} c16", voxels));
    return test::choice_text(nests);
  };
  for (const auto& target : available_simd_targets()) {
    if (test::sanitized && target != before) continue;
    set_simd_target(target);
    // Kernel 3 pads one result at each end of a row, and kernel 5 pads two.
    for (const char* text : {"ic20iw61oc16ih5kd3pd1", "ic32ih6iw59oc16kh5kw5ph2pw2", "ic17ih9iw61oc16kh1kw3pw1sw2"}) {
      ConvProblem p = parse_problem(text);
      std::optional<std::array<Tensor<float>, 2>> first;
      for (const index_t voxels : {28, 27, 15, 9, 1}) {
        CAPTURE(target, text, voxels);
        if (voxels > 9) test::check_against_reference<float>(p, {.choice = row_of(p, voxels)}, 2e-6);
        test::check_layouts<float>(p, {.choice = row_of(p, voxels)}, true, true, Activation::Kind::none);
        ConvCase<float> other(p, {.choice = row_of(p, voxels)});
        other.run();
        if (!first) first = {std::move(other.y), std::move(other.dx)};
        CHECK((voxels == 28 || (test::same_bits((*first)[0], other.y) && test::same_bits((*first)[1], other.dx))));
      }
    }
  }
  set_simd_target(before);
}

TEST_CASE("direct sums rows of taps, and one tap of one channel block, on every SIMD target") {
  const std::string before = simd_target();
  for (const auto& target : available_simd_targets()) {
    if (test::sanitized && target != before) continue;
    set_simd_target(target);
    for (const char* text : {"ic1id3iw53oc16kd2ph1pw1",
                             "ic1ih9iw52oc20kh3ph1pw1",
                             "ic1ih9iw53oc40kh4kw4",
                             "mb2ic1ih9iw61oc16kh5kw5ph2pw2",
                             "ic1ih9iw31oc8kh3kw6pw2",
                             "ic1ih8iw60oc16kh7kw7ph3pw3",
                             "ic1ih8iw40oc16kh3kw11pw5",
                             "ic1ih8iw40oc16kh3dw1",
                             "ic1ih8iw41oc16kh3sw2",
                             "ic16id3ih5iw7oc16kd1",
                             "mb2ic16ih1iw61oc16kh1",
                             "ic16id3ih5iw7oc16kd1sd2",
                             "ic16ih4iw4oc16kh1ph1pw1",
                             "ic20ih4iw17oc16kh1",
                             "ic20id5iw53oc16kd3pd1",
                             "ic16ih9iw52oc16kh3kw5sw2ph1pw2",
                             "ic17ih9iw33oc16kh3sh2sw2dh1dw1",
                             "ic16ih9iw33oc16kh5sw2",
                             "ic16ih9iw30oc12kh2",
                             "ic16ih7iw1oc16kh3ph1pw1",
                             "ic16ih9iw26oc16kh5ph2pw2",
                             "ic6ih14oc16kh5",
                             "ic16ih9iw24oc16kh5",
                             "ic16ih9iw25oc16kh5",
                             "ic20ih5iw5oc16kh5",
                             "ic16id3ih7iw6oc16kd3",
                             "ic16ih6iw6oc16kh3ph2pw2"}) {
      CAPTURE(target, text);
      const ConvProblem p = parse_problem(text);
      test::check_against_reference<float>(p, {.engine = Engine::direct}, 2e-6);
      test::check_layouts<float>(p, {.engine = Engine::direct}, true, true, Activation::Kind::none);
      test::check_against_reference<double>(p, {.engine = Engine::direct}, 1e-13);
    }
  }
  set_simd_target(before);
}

TEST_CASE("four channel blocks together have the bits of single blocks, on every SIMD target and in both layouts") {
  const std::string before = simd_target();
  for (const auto& target : available_simd_targets()) {
    if (test::sanitized && target != before) continue;
    set_simd_target(target);
    // Rows of one piece and of several; more blocks than four, and part of a block; a number of terms that four does
    // not divide; padding; dilations; strides of two, and of three, which is computed two blocks at a time.
    for (const char* text : {"ic20ih4iw13oc64kh1", "ic33ih5iw14oc80kh3ph1pw1", "ic17ih7iw23oc96kh3sh2sw2ph1pw1",
                             "mb2ic18id3ih4iw5oc70kd1kh1kw1", "ic16ih5iw12oc64kh2dh1dw1", "ic32ih9iw25oc64kh3sh3sw3",
                             "ic5ih6iw11oc64kh3", "ic32id4ih3iw6oc64kd3pd1", "ic16ih1iw1oc64kh1"}) {
      CAPTURE(target);
      check_columns_together(text, 4, 6, false);
    }
  }
  set_simd_target(before);
}

TEST_CASE("backward data of four channel blocks together has the bits of single blocks") {
  const ConvProblem p = parse_problem("ic64ih6iw17oc40kh3ph1pw1");
  conv::Nests nests = test::direct_nests(p);
  const auto dx_of = [&](const char* text) {
    nests[1] = plan::parse_nest(text);
    test::check_against_reference<float>(p, {.choice = test::choice_text(nests)}, 2e-6);
    ConvCase<float> one(p, {.choice = test::choice_text(nests)});
    one.run();
    return std::move(one.dx);
  };
  const Tensor<float> four = dx_of("k y x | ky kx k16 x6 c"), alone = dx_of("k c y x | ky kx k16 x6 c16");
  CHECK(test::same_bits(four, alone));
}

TEST_CASE(
    "samples that are computed together have the bits of single voxels, on every SIMD target and in both layouts") {
  const std::string before = simd_target();
  for (const auto& target : available_simd_targets()) {
    if (test::sanitized && target != before) continue;
    set_simd_target(target);
    // Fully connected layers; samples that lie a multiple of 2 KiB apart; blocks that are not full; padding on all
    // sides, and windows in the padding alone; strides; more samples than a product computes together.
    for (const char* text : {"mb20ic40ih1iw1oc70kh1", "mb17ic512ih1iw1oc33kh1", "mb9ic20id2ih3iw2oc24kd2kh3kw2",
                             "mb3ic17id2ih2iw3oc48kd3pd1", "mb15ic33ih3iw3oc20kh3sh2sw2ph1pw1",
                             "mb5ic17id1ih1iw2oc18kd1kh1kw3pd0ph0pw2"}) {
      const ConvProblem p = parse_problem(text);
      conv::Nests nests = test::direct_nests(p);
      const auto choice_of = [&](const std::string& forward, const std::string& backward) {
        nests[2] =
            plan::parse_nest(p.batch > 6 ? "n z y x c k kz ky kx | n6 c16 k16" : "z y x c k kz ky kx | n c16 k16");
        nests[0] = plan::parse_nest(forward);
        nests[1] = plan::parse_nest(backward);
        return ConvOptions{.choice = test::choice_text(nests)};
      };
      const std::string n = p.batch > 6 ? " n | kz ky kx {}16 n6 {}16" : " | kz ky kx {}16 n {}16";
      const ConvOptions together = choice_of(fmt::format(fmt::runtime("k* c z y x" + n), "c", "k"),
                                             fmt::format(fmt::runtime("c* k z y x" + n), "k", "c"));
      const ConvOptions single = choice_of("n* k c z y x | kz ky kx c16 k16", "n* c k z y x | kz ky kx k16 c16");
      CAPTURE(target, text);
      test::check_against_reference<float>(p, together, 2e-6);
      test::check_against_reference<double>(p, ConvOptions{.engine = Engine::direct}, 1e-13);
      test::check_layouts<float>(p, together, true, true, Activation::Kind::none);
      test::check_layouts<float>(p, together, false, true, Activation::Kind::leaky_relu);
      ConvCase<float> one(p, together, false, 2), other(p, single);
      one.run();
      other.run();
      CHECK(test::same_bits(one.y, other.y));
      CHECK(test::same_bits(one.dx, other.dx));
      CHECK(test::same_bits(one.dw, other.dw));
    }
  }
  set_simd_target(before);
}

TEST_CASE("nests say which samples no microkernel computes together") {
  check_refused(plan::Direction::forward, "mb40ic16ih1iw4oc32kh1", "x | c n k", "no microkernel of 40 samples");
  check_refused(plan::Direction::forward, "mb4ic16ih1iw4oc32kh1", "y | c n x k",
                "4 voxels of a row or 4 samples together");
  check_refused(plan::Direction::forward, "mb4ic1ih1iw4oc32kh1", "x | n k", "write the loop over 'n' before '|'");
  check_refused(plan::Direction::forward, "mb4ic16ih4iw4oc16kh3", "y x | ky c kx n k",
                "for voxels of a row, not for samples");
  check_refused(plan::Direction::backward_weights, "mb4ic16ih1iw4oc32kh1", "k | n x c k16",
                "sums voxels or samples behind '|', not both");
  check_refused(plan::Direction::backward_weights, "mb4ic1ih1iw4oc32kh1", "x k | n k16",
                "write the loop over 'n' before '|'");
}

TEST_CASE("nests of four channel blocks say what no microkernel does") {
  check_refused(plan::Direction::forward, "ic16ih4iw12oc64kh3", "y | ky kx c x10 k",
                "no microkernel of 10 voxels of a row");
  check_refused(plan::Direction::forward, "ic16ih4iw8oc64kh3", "y | ky c kx x6 k",
                "sums rows of taps for at most 32 result channels");
  check_refused(plan::Direction::forward, "ic16ih4iw8oc48kh3", "y | ky kx c x6 k",
                "no microkernel of 48 result channels");
}

TEST_CASE(
    "rows of taps of two channel blocks have the bits of single blocks, on every SIMD target and in both layouts") {
  const std::string before = simd_target();
  for (const auto& target : available_simd_targets()) {
    if (test::sanitized && target != before) continue;
    set_simd_target(target);
    // Rows of one piece and of several, with padding at one result and at more, of 2, 3, 4 and 5 taps; part of a block
    // of terms or of lanes; taps that lie apart.
    for (const char* text :
         {"ic20id3ih4iw8oc32kd3pd1", "ic32ih4iw22oc32kh3ph1pw1", "ic32ih6iw9oc32kh5ph2pw2", "ic32ih4iw13oc32kh2",
          "ic32ih5iw23oc40kh3ph1pw1", "ic33ih5iw14oc64kh3", "ic17ih4iw2oc48kh3ph1pw1", "mb2ic18ih6iw21oc30kh5ph2pw2",
          "ic32ih7iw9oc32kh5", "ic32ih4iw30oc48kh2", "ic16ih5iw17oc32kh4pw1", "ic32ih5iw19oc32kh3dw1dh1ph2pw2",
          "ic32ih9iw25oc32kh3sh2sw2ph1pw1", "ic16ih4iw1oc32kh3ph1pw1"}) {
      CAPTURE(target);
      check_columns_together(text, 2, 11, true);
    }
  }
  set_simd_target(before);
}

TEST_CASE("the weight gradient sums several taps together with the bits of single taps, on every SIMD target") {
  const std::string before = simd_target();
  // Taps outside of the loops over pieces of voxels are summed one by one. Pieces hold up to 2 planes of 3 rows.
  const auto nest_of = [](const ConvProblem& p, bool together) {
    const index_t block = channel_block(p.type), planes = p.output().z, rows = p.output().y;
    const bool c = p.in_channels > block, k = p.out_channels > 2 * block;
    const std::string pieces =
        fmt::format("{}{}{}", p.batch > 1 ? "n " : "", planes > 2 ? "z " : "", rows > 3 ? "y " : "");
    const std::string blocks = fmt::format("{}{}", c ? "c " : "", k ? "k " : "");
    const std::string voxels = fmt::format("{}{}x", planes > 2 ? "z2 " : "z ", rows > 3 ? "y3 " : "y ");
    return plan::parse_nest(fmt::format("{} | {} {} {}",
                                        together ? pieces + blocks + "kz ky kx" : "kz ky kx " + pieces + blocks, voxels,
                                        c ? fmt::format("c{}", block) : "c", k ? fmt::format("k{}", 2 * block) : "k"));
  };
  for (const auto& target : available_simd_targets()) {
    if (test::sanitized && target != before) continue;
    set_simd_target(target);
    for (const char* text : {"ic16ih4iw8oc32kh3ph1pw1",
                             "ic20ih5iw11oc48kh5ph2pw2",
                             "ic16ih3iw9oc16kh3",
                             "ic24id3ih3iw10oc32kh3pw1",
                             "ic1ih9iw12oc16kh5",
                             "ic1ih9iw12oc40kh4ph1pw1",
                             "ic1id4ih7iw9oc20kd3pd1",
                             "ic1ih9iw30oc16kh2kw9pw3",
                             "ic1ih9iw30oc16kh2kw12",
                             "ic1ih9iw17oc16kh7ph3pw3",
                             "ic1ih5iw21oc16kh3kw6",
                             "ic1ih7iw12oc16kh3dw1dh1",
                             "ic1id8ih8iw8oc32kd4sd4",
                             "ic1ih3iw3oc16kh5ph2pw2",
                             "ic16id3ih5iw7oc16kd3pd1",
                             "ic16ih6iw9oc16kh2",
                             "mb2ic20ih6iw9oc48kh5sh2ph2pw2",
                             "mb2ic1id5ih7iw9oc20kd3pd1",
                             "ic6ih14oc16kh5",
                             "ic33ih5iw6oc17kh3dw1ph1pw2",
                             "ic16ih2iw2oc16kh3ph1pw1"}) {
      for (const DataType type : {DataType::f32, DataType::f64}) {
        ConvProblem p = parse_problem(text);
        p.type = type;
        conv::Nests nests = test::direct_nests(p);
        const auto choice_of = [&](bool together) {
          nests[2] = nest_of(p, together);
          return test::choice_text(nests);
        };
        CAPTURE(target, text, choice_of(false), choice_of(true));
        if (type == DataType::f64) {
          test::check_against_reference<double>(p, {.choice = choice_of(true)}, 1e-13);
          ConvCase<double> together(p, {.choice = choice_of(true)}), alone(p, {.choice = choice_of(false)});
          together.run();
          alone.run();
          CHECK(test::same_bits(together.dw, alone.dw));
          continue;
        }
        test::check_against_reference<float>(p, {.choice = choice_of(true)}, 2e-6);
        test::check_layouts<float>(p, {.choice = choice_of(true)}, true, true, Activation::Kind::none);
        ConvCase<float> together(p, {.choice = choice_of(true)}), alone(p, {.choice = choice_of(false)});
        together.run();
        alone.run();
        CHECK(test::same_bits(together.dw, alone.dw));
      }
    }
  }
  set_simd_target(before);
}
