#include "nets/spec/net_shapes.hpp"

#include <algorithm>
#include <functional>

#include <catch2/catch.hpp>

#include "convolume/error.hpp"
#include "convolume/memory.hpp"
#include "nets/graph/network.hpp"

namespace convolume::nets {
namespace {

/// Makes a net of the given nodes, one "name type key=value ..." per line.
NetSpec net_of(const std::string& lines, const Extent3& patch) {
  std::string text = "name = 'net'\n[input]\npatch = [" + std::to_string(patch.z) + ", " + std::to_string(patch.y) +
                     ", " + std::to_string(patch.x) + "]\n";
  std::size_t at = 0;
  while (at < lines.size()) {
    const std::size_t end = std::min(lines.find('\n', at), lines.size());
    std::string line = lines.substr(at, end - at);
    at = end + 1;
    const std::size_t first = line.find(' '), second = std::min(line.find(' ', first + 1), line.size());
    text += "[[node]]\nname = '" + line.substr(0, first) + "'\ntype = '" + line.substr(first + 1, second - first - 1) +
            "'\n";
    for (std::size_t k = second; k < line.size();) {
      const std::size_t next = std::min(line.find(' ', k + 1), line.size());
      text += line.substr(k + 1, next - k - 1) + "\n";
      k = next;
    }
  }
  return parse_net(text, "net.toml");
}

/// A net with positive weights, so that an impulse is never cancelled on its way and wins every maximum.
class Runner {
 public:
  Runner(const NetSpec& spec, const Extent3& patch)
      : parameters_(spec, false, 1, memory()),
        network_(spec, patch, parameters_, {.engine = Engine::reference, .memory_mode = MemoryMode::separate},
                 memory()) {
    for (Parameter& p : parameters_.all()) {
      float value = 0.5f;
      const bool weight = p.name.ends_with(".weight");
      if (!weight) p.value.fill(0);
      for (index_t i = 0; weight && i < p.value.elements(); ++i)
        p.value.data()[i] = value = value < 1 ? value + 0.125f : 0.5f;
    }
    network_.append_prepare(prepare_, {});
    network_.append_forward(forward_, {}, {}, {});
    network_.input().fill(0);
  }
  Network& network() { return network_; }
  Parameters& parameters() { return parameters_; }
  const Tensor<float>& run() {
    Scheduler serial(1);
    prepare_.run(serial);
    forward_.run(serial);
    return network_.logits();
  }
  /// Returns the first and last output position along an axis that an impulse at `at` changes; first > last if there is
  /// none.
  std::pair<index_t, index_t> trace(const Extent3& at, int axis) {
    network_.input().view()(0, 0, at.z, at.y, at.x) = 1;
    const auto y = run().view();
    network_.input().view()(0, 0, at.z, at.y, at.x) = 0;
    std::pair<index_t, index_t> seen{y.shape.extent[axis], -1};
    Extent3 o;
    for (index_t c = 0; c < y.shape.c; ++c) {
      for (o.z = 0; o.z < y.shape.extent.z; ++o.z) {
        for (o.y = 0; o.y < y.shape.extent.y; ++o.y) {
          for (o.x = 0; o.x < y.shape.extent.x; ++o.x) {
            if (y(0, c, o.z, o.y, o.x) == 0) continue;
            seen = {std::min(seen.first, o[axis]), std::max(seen.second, o[axis])};
          }
        }
      }
    }
    return seen;
  }

 private:
  static std::pmr::memory_resource* memory() { return std::pmr::get_default_resource(); }

  Parameters parameters_;
  Network network_;
  TaskGraph prepare_, forward_;
};

struct Reach {
  index_t before = 0, behind = 0;
};

/// Measures how far the output voxels see along an axis, with impulses along the middle line.
Reach measured_reach(Runner& runner, int axis) {
  const NetShapes& shapes = runner.network().shapes();
  Extent3 at;
  for (int other = 0; other < 3; ++other) at[other] = shapes.input.extent[other] / 2;
  const index_t offset = shapes.offset()[axis];
  Reach reach;
  for (at[axis] = 0; at[axis] < shapes.input.extent[axis]; ++at[axis]) {
    const auto [first, last] = runner.trace(at, axis);
    if (first > last) continue;
    reach.before = std::max(reach.before, last + offset - at[axis]);
    reach.behind = std::max(reach.behind, at[axis] - first - offset);
  }
  return reach;
}

void check_reach(const std::string& lines, const Extent3& patch, const Extent3& output) {
  INFO(lines);
  const NetSpec spec = net_of(lines, patch);
  const NetShapes shapes = infer_shapes(spec, patch);
  CHECK(shapes.output().extent == output);
  Runner runner(spec, patch);
  CHECK(runner.run().shape().extent == output);
  for (int axis = 0; axis < 3; ++axis) {
    INFO("axis "
         << "zyx"[axis]);
    const Reach reach = measured_reach(runner, axis);
    CHECK(shapes.reach_before()[axis] == reach.before);
    CHECK(shapes.reach_behind()[axis] == reach.behind);
    CHECK(shapes.field_of_view()[axis] == reach.before + reach.behind + 1);
  }
}

/// Returns the smallest shift of the input along x that shifts the output by the same distance, except for a border.
index_t measured_alignment(const NetSpec& spec, const Extent3& patch) {
  Runner runner(spec, patch);
  const auto value = [](index_t x) { return static_cast<float>((x * x * 31 + x * 17) % 101); };
  const auto run = [&](index_t shift) {
    auto x = runner.network().input().view();
    for (index_t i = 0; i < patch.x; ++i) x(0, 0, 0, 0, i) = value(i + shift);
    const auto& y = runner.run();
    return std::vector<float>(y.data(), y.data() + y.elements());
  };
  const auto base = run(0);
  for (index_t shift = 1;; ++shift) {
    REQUIRE(shift < 20);
    const auto shifted = run(shift);
    constexpr index_t border = 2;
    if (std::equal(base.begin() + shift + border, base.end() - border, shifted.begin() + border)) return shift;
  }
}

std::string complaint(const std::string& lines, const Extent3& patch) {
  const NetSpec spec = net_of(lines, patch);
  try {
    infer_shapes(spec, patch);
  } catch (const ConfigError& error) {
    return error.what();
  }
  return "nothing";
}

}  // namespace

TEST_CASE("fields of view are those of impulses", "[net_shapes]") {
  SECTION("valid convolutions") {
    check_reach("a conv out_channels=2 kernel=[1,3,5]", {3, 9, 11}, {3, 7, 7});
    check_reach("a conv out_channels=2 kernel=[1,3,5]\nb conv out_channels=1 kernel=[3,3,1]", {4, 9, 11}, {2, 5, 7});
    check_reach("a conv out_channels=2 kernel=[1,2,4]", {1, 8, 11}, {1, 7, 8});
    check_reach("a conv out_channels=2 kernel=[1,2,4]\nb conv out_channels=1 kernel=[2,1,2]", {3, 8, 11}, {2, 7, 7});
  }
  SECTION("dilation") { check_reach("a conv out_channels=1 kernel=[2,3,3] dilation=[3,2,1]", {7, 9, 9}, {4, 5, 7}); }
  SECTION("same and explicit padding") {
    check_reach("a conv out_channels=1 kernel=[1,3,5] padding='same'", {1, 9, 11}, {1, 9, 11});
    check_reach("a conv out_channels=1 kernel=[1,2,4] padding='same'", {1, 9, 11}, {1, 9, 11});
    check_reach("a conv out_channels=1 kernel=[1,5,5] padding=[0,1,2]", {1, 9, 11}, {1, 7, 11});
    check_reach("a conv out_channels=1 kernel=[1,3,3] dilation=[1,2,3] padding='same'", {1, 9, 13}, {1, 9, 13});
  }
  SECTION("same padding with even kernels, again and again") {
    check_reach(
        "a conv out_channels=1 kernel=[1,2,4] padding='same'\nb conv out_channels=1 kernel=[1,2,4] padding='same'",
        {1, 9, 13}, {1, 9, 13});
  }
  SECTION("max-filtering") {
    check_reach("a max_pool window=[2,2,3] stride=1 dilation=[1,3,2]", {4, 9, 9}, {3, 6, 5});
    check_reach(
        "a max_pool window=[1,2,2] stride=1\nb conv out_channels=1 kernel=[1,3,3] dilation=[1,2,2]\n"
        "c max_pool window=[1,2,2] stride=1 dilation=[1,2,2]",
        {1, 12, 12}, {1, 5, 5});
  }
  SECTION("pooling and upsampling") {
    check_reach("a max_pool window=[1,2,3]\nb upsample factor=[1,2,3]", {2, 8, 12}, {2, 8, 12});
    check_reach(
        "a max_pool window=[1,2,2]\nb conv out_channels=2 kernel=[1,3,3]\nc upsample factor=[1,2,2]\n"
        "d conv out_channels=1 kernel=[2,3,3]",
        {3, 16, 18}, {2, 10, 12});
    check_reach(
        "a max_pool window=[1,2,2]\nb max_pool window=[1,1,2]\nc upsample factor=[1,1,2]\n"
        "d upsample factor=[1,2,2]",
        {1, 8, 16}, {1, 8, 16});
    check_reach("a max_pool window=[1,2,2]\nb conv out_channels=1 kernel=3 padding='same'\nc upsample factor=[1,2,2]",
                {5, 16, 16}, {5, 16, 16});
  }
  SECTION("transposed convolutions") {
    check_reach("a max_pool window=[1,2,2]\nb transposed_conv out_channels=1 kernel=[1,2,2] stride=[1,2,2]", {1, 8, 12},
                {1, 8, 12});
    check_reach(
        "a conv out_channels=1 kernel=3 stride=[1,2,2] padding=1\n"
        "b transposed_conv out_channels=1 kernel=[1,3,4] stride=[1,2,2] padding=[0,1,1] output_padding=[0,1,0]",
        {5, 16, 16}, {5, 16, 16});
    check_reach("a conv out_channels=1 kernel=[1,5,5]\nb transposed_conv out_channels=1 kernel=[1,3,3]", {1, 11, 12},
                {1, 9, 10});
  }
  SECTION("skip connections") {
    check_reach(
        "a conv out_channels=1 kernel=[1,5,3]\nb concat from=['a','input']\nc conv out_channels=1 kernel=[1,1,3]",
        {1, 9, 11}, {1, 5, 7});
    check_reach("a conv out_channels=1 kernel=[1,5,3]\nb add from=['input','a']", {1, 9, 11}, {1, 5, 9});
    check_reach("a crop before=[0,1,2] after=[0,2,1]\nb conv out_channels=1 kernel=[1,3,3]", {1, 9, 11}, {1, 4, 6});
    check_reach(
        "a conv out_channels=2 kernel=[1,3,3]\np max_pool window=[1,2,2]\nb conv out_channels=2 kernel=[1,3,3]\n"
        "u upsample factor=[1,2,2]\nj concat from=['a','u']\nc conv out_channels=1 kernel=[1,3,3]",
        {1, 20, 22}, {1, 12, 14});
  }
}

TEST_CASE("joined feature maps lie over the same voxels", "[net_shapes]") {
  const Extent3 patch{5, 9, 11};
  const NetSpec spec = net_of(
      "a conv out_channels=1 kernel=[3,5,3]\nb concat from=['a','input','a']\n"
      "c crop from='input' before=[0,1,0] after=[1,0,0]\nd concat from=['c','b']",
      patch);
  Runner runner(spec, patch);
  Tensor<float>& w = runner.parameters().find("a.weight")->value;
  w.fill(0);
  w.view()(0, 0, 1, 2, 1) = 1;  // the centre, so `a` copies its input
  Tensor<float>& x = runner.network().input();
  for (index_t i = 0; i < x.elements(); ++i) x.data()[i] = static_cast<float>(i);
  const auto y = runner.run().view();
  const NetShapes& shapes = runner.network().shapes();
  const Extent3 offset = shapes.offset();
  CHECK(offset == Extent3{1, 2, 1});
  REQUIRE(y.shape == Shape5{1, 4, {3, 5, 9}});
  bool equal = true;
  for (index_t c = 0; c < 4; ++c) {
    for (index_t z = 0; z < 3; ++z) {
      for (index_t v = 0; v < 5; ++v) {
        for (index_t u = 0; u < 9; ++u) {
          equal = equal && y(0, c, z, v, u) == x.view()(0, 0, z + offset.z, v + offset.y, u + offset.x);
        }
      }
    }
  }
  CHECK(equal);
}

TEST_CASE("the output lies within the input", "[net_shapes]") {
  for (const std::string lines :
       {"a conv out_channels=1 kernel=2 padding='same'\nb conv out_channels=1 kernel=4 padding='same'\n"
        "c conv out_channels=1 kernel=2 padding='same'",
        "a conv out_channels=1 kernel=5 padding=1", "a max_pool window=2\nb upsample factor=2",
        "a conv out_channels=1 kernel=4 padding=1\nb conv out_channels=1 kernel=4 padding=2"}) {
    INFO(lines);
    const Extent3 patch{9, 9, 9};
    const NetShapes shapes = infer_shapes(net_of(lines, patch), patch);
    for (int axis = 0; axis < 3; ++axis) {
      CHECK(shapes.offset()[axis] >= 0);
      CHECK(shapes.offset()[axis] + shapes.output().extent[axis] <= patch[axis]);
    }
  }
}

TEST_CASE("alignment is the smallest shift that the pooling grid does not notice", "[net_shapes]") {
  const auto check = [](const std::string& lines, index_t patch, index_t expected) {
    INFO(lines);
    const NetSpec spec = net_of(lines, {1, 1, patch});
    CHECK(infer_shapes(spec, spec.patch).alignment() == Extent3{1, 1, expected});
    CHECK(measured_alignment(spec, spec.patch) == expected);
  };
  const std::string up = "u upsample factor=[1,1,";
  check("a conv out_channels=1 kernel=[1,1,3]", 20, 1);
  check("a max_pool window=[1,1,2] stride=1", 20, 1);
  check("a max_pool window=[1,1,2]\n" + up + "2]", 20, 2);
  check("a max_pool window=[1,1,3] stride=[1,1,2]\n" + up + "2]", 21, 2);
  check("a max_pool window=[1,1,2]\nb max_pool window=[1,1,3]\n" + up + "6]", 36, 6);
  check(
      "a conv out_channels=1 kernel=[1,1,3] stride=[1,1,2]\n"
      "b transposed_conv out_channels=1 kernel=[1,1,3] stride=[1,1,2]",
      21, 2);
  check("a upsample factor=[1,1,2]\nb max_pool window=[1,1,2]", 20, 1);
  check(
      "a max_pool window=[1,1,2]\nb upsample factor=[1,1,2]\nc max_pool from='input' window=[1,1,3]\n"
      "d upsample factor=[1,1,3]\ne crop from='b' before=[0,0,1]\nf crop from='d' before=[0,0,1]\n"
      "g add from=['e','f']",
      36, 6);
  check("a max_pool window=[1,1,3]\nb upsample factor=[1,1,2]\nc upsample factor=[1,1,3]\nd max_pool window=[1,1,2]",
        36, 3);
}

TEST_CASE("padding has a part in the outermost voxels and in no others", "[net_shapes]") {
  const std::string up = "u upsample factor=[1,1,2]", down = "p max_pool window=[1,1,2]\n";
  for (const std::string& lines :
       {std::string("a conv out_channels=1 kernel=[1,1,5]"),
        std::string("a conv out_channels=1 kernel=[1,1,4] padding='same'"),
        std::string("a conv out_channels=1 kernel=[1,1,3] padding='same'\nb conv out_channels=1 kernel=[1,1,4] "
                    "dilation=[1,1,2]"),
        std::string("a conv out_channels=1 kernel=[1,1,5] padding='same'\nb crop before=[0,0,1]"),
        std::string("a conv out_channels=1 kernel=[1,1,3] padding='same'\n") + down + up,
        down + "a conv out_channels=1 kernel=[1,1,3] padding='same'\n" + up,
        down + "a transposed_conv out_channels=1 kernel=[1,1,2] stride=[1,1,2]",
        std::string(
            "a conv out_channels=1 kernel=[1,1,3] stride=[1,1,2] padding=[0,0,1]\n"
            "b transposed_conv out_channels=1 kernel=[1,1,3] stride=[1,1,2] padding=[0,0,1] output_padding=[0,0,1]"),
        std::string("a conv out_channels=1 kernel=[1,1,3] padding='same'\nb conv out_channels=1 kernel=[1,1,3]\n"
                    "c conv from='input' out_channels=1 kernel=[1,1,5] padding='same'\nd add from=['b','c']")}) {
    INFO(lines);
    constexpr index_t patch = 24, shift = 12;
    Runner small(net_of(lines, {1, 1, patch}), {1, 1, patch});
    Runner large(net_of(lines, {1, 1, patch + 2 * shift}), {1, 1, patch + 2 * shift});
    for (index_t i = 0; i < patch + 2 * shift; ++i) {
      large.network().input().data()[i] = static_cast<float>(1 + (i * i * 31 + i * 17) % 101);
    }
    std::copy_n(large.network().input().data() + shift, patch, small.network().input().data());
    const auto& y = small.run();
    const auto& whole = large.run();
    const NodeShape& shape = small.network().shapes().output();
    const index_t out = shape.extent.x;
    index_t before = 0, behind = 0;
    while (before < out && y.data()[before] != whole.data()[before + shift]) ++before;
    while (behind < out && y.data()[out - 1 - behind] != whole.data()[out - 1 - behind + shift]) ++behind;
    CHECK(shape.padded_before.x == before);
    CHECK(shape.padded_behind.x == behind);
    CHECK(std::equal(y.data() + before, y.data() + out - behind, whole.data() + shift + before));
  }
}

TEST_CASE("spatial norms see everything", "[net_shapes]") {
  const Extent3 patch{3, 9, 9};
  const NetShapes shapes = infer_shapes(
      net_of(
          "a conv out_channels=2 kernel=1\nb instance_norm\nc conv out_channels=1 kernel=1\nd add from=['c','input']",
          patch),
      patch);
  CHECK_FALSE(shapes.nodes[0].global);
  CHECK(shapes.nodes[1].global);
  CHECK(shapes.nodes[3].global);
}

TEST_CASE("maps that lie half a voxel apart meet at the voxel before", "[net_shapes]") {
  // a[i] is centred between input voxels i and i + 1, and is joined to input voxel i.
  const Extent3 patch{4, 8, 8};
  const auto shapes =
      infer_shapes(net_of("a conv out_channels=1 kernel=[1,2,1]\nb concat from=['a','input']", patch), patch);
  CHECK(shapes.nodes[1].crop == std::vector<Extent3>{{0, 0, 0}, {0, 0, 0}});
  CHECK(shapes.output().extent == Extent3{4, 7, 8});
  CHECK(shapes.field_of_view() == Extent3{1, 2, 1});
}

TEST_CASE("shapes that do not work out are refused by line and node", "[net_shapes]") {
  const Extent3 patch{4, 8, 8};
  const auto refuses = [&](const std::string& lines, int line, std::initializer_list<std::string> words) {
    const std::string message = complaint(lines, patch);
    INFO(lines);
    INFO(message);
    CHECK(message.find("net.toml:" + std::to_string(line) + ": node '") == 0);
    for (const std::string& word : words) CHECK(message.find(word) != std::string::npos);
  };
  refuses("a conv out_channels=1 kernel=[5,1,1]", 4, {"'a'"});
  refuses("a conv out_channels=1 kernel=[2,1,1] dilation=[4,1,1]", 4, {"'a'"});
  refuses("a conv out_channels=4 kernel=1\nb conv out_channels=4 kernel=1 groups=3", 9, {"'b'", "3"});
  refuses("a conv out_channels=4 kernel=1\nb conv out_channels=3 kernel=1 groups=2", 9, {"'b'"});
  refuses("a max_pool window=[5,1,1]", 4, {"'a'"});
  refuses("a max_pool window=[4,8,9] stride=1", 4, {"'a'"});
  refuses("a crop before=[2,0,0] after=[2,0,0]", 4, {"'a'", "leaves nothing"});
  refuses("a conv out_channels=4 kernel=1\nb group_norm groups=3", 9, {"'b'", "3 groups", "4 channels"});
  refuses("a conv out_channels=2 kernel=1\nb add from=['a','input']", 9, {"'b'", "2 and 1 channels"});
  refuses("a max_pool window=[1,1,2]\nb concat from=['a','input']", 8, {"'b'", "resolution along x"});
  refuses("a crop before=[3,0,0]\nb crop from='input' after=[3,0,0]\nc add from=['a','b']", 13, {"'c'", "in common"});
  refuses("a max_pool window=[1,2,2]", 4, {"'a'", "along y", "upsample"});
  refuses("a conv out_channels=4 kernel=1\nb conv from='input' out_channels=1 kernel=1", 4,
          {"'a'", "no other node reads"});
  refuses("a upsample factor=[2,1,1]", 4, {"'a'", "along z"});
  refuses("a conv out_channels=1 kernel=3 padding=2", 4, {"'a'", "more", "pad less"});
  refuses("a transposed_conv out_channels=1 kernel=[1,1,3]", 4, {"'a'", "more"});

  NetSpec generated = net_of("a conv out_channels=1 kernel=[5,1,1]", patch);
  generated.nodes[0].line = 0;
  CHECK_THROWS_WITH(infer_shapes(generated, patch), Catch::StartsWith("net.toml: node 'a'"));
  generated.nodes.clear();
  CHECK_THROWS_WITH(infer_shapes(generated, patch), Catch::Contains("no nodes"));
}

}  // namespace convolume::nets
