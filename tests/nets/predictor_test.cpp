#include "nets/infer/predictor.hpp"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <span>

#include "testing/temporary_folder.hpp"
#include <catch2/catch.hpp>

#include "convolume/error.hpp"
#include "core/random.hpp"
#include "nets/data/intensity.hpp"
#include "nets/io/volume_sink.hpp"

namespace convolume::nets {
namespace {

const std::string same_net = R"(
[[node]]
name = "a"
type = "conv"
out_channels = 3
kernel = [1, 3, 4]
padding = "same"
activation = "tanh"
[[node]]
name = "b"
type = "conv"
out_channels = 1
kernel = [3, 3, 2]
padding = "same"
)";
const std::string same_pooled_net = R"(
[[node]]
name = "a"
type = "conv"
out_channels = 3
kernel = [1, 3, 3]
padding = "same"
activation = "relu"
[[node]]
name = "p"
type = "max_pool"
window = [1, 2, 2]
[[node]]
name = "b"
type = "conv"
out_channels = 4
kernel = 3
padding = "same"
activation = "tanh"
[[node]]
name = "u"
type = "transposed_conv"
out_channels = 3
kernel = [1, 2, 2]
stride = [1, 2, 2]
[[node]]
name = "j"
type = "concat"
from = ["a", "u"]
[[node]]
name = "c"
type = "conv"
out_channels = 1
kernel = [1, 3, 3]
padding = "same"
)";
const std::string valid_net = R"(
[[node]]
name = "a"
type = "conv"
out_channels = 3
kernel = [1, 3, 4]
activation = "tanh"
[[node]]
name = "b"
type = "max_pool"
window = [1, 2, 2]
stride = 1
[[node]]
name = "c"
type = "conv"
out_channels = 1
kernel = [3, 3, 2]
dilation = [1, 2, 2]
)";
const std::string valid_pooled_net = R"(
[[node]]
name = "a"
type = "conv"
out_channels = 3
kernel = [1, 3, 3]
activation = "relu"
[[node]]
name = "p"
type = "max_pool"
window = [1, 2, 2]
[[node]]
name = "b"
type = "conv"
out_channels = 4
kernel = [3, 3, 3]
activation = "tanh"
[[node]]
name = "u"
type = "upsample"
factor = [1, 2, 2]
[[node]]
name = "j"
type = "concat"
from = ["a", "u"]
[[node]]
name = "c"
type = "conv"
out_channels = 1
kernel = [1, 3, 3]
)";

NetSpec net(const std::string& nodes, const std::string& rest = "") {
  return parse_net("name = 'net'\n[input]\npatch = [6, 16, 16]\n" + nodes + rest, "net.toml");
}

Tensor<float> random_volume(const Extent3& extent, std::uint64_t seed) {
  Tensor<float> volume({1, 1, extent});
  const RandomKey key{.seed = seed};
  for (index_t i = 0; i < volume.elements(); ++i) {
    volume.data()[i] = static_cast<float>(normal(key, static_cast<std::uint64_t>(i)));
  }
  return volume;
}

struct Setup {
  explicit Setup(NetSpec s) : spec(std::move(s)), parameters(spec, false, 5, std::pmr::get_default_resource()) {}
  Predictor predictor(std::optional<Extent3> patch = {}, std::optional<Extent3> overlap = {}) {
    return predictor({.patches = {.patch = patch, .overlap = overlap}});
  }
  Predictor predictor(PredictorOptions options) {
    options.engine = Engine::reference;
    return Predictor(spec, parameters, options, scheduler, std::pmr::get_default_resource());
  }
  NetSpec spec;
  Parameters parameters;
  Scheduler scheduler{2};
};

double largest_difference(const Tensor<float>& a, const Tensor<float>& b) {
  REQUIRE(a.shape() == b.shape());
  double most = 0;
  for (index_t i = 0; i < a.elements(); ++i) {
    const double d = std::abs(static_cast<double>(a.data()[i]) - static_cast<double>(b.data()[i]));
    if (!(d <= most)) most = std::isnan(d) ? 1e30 : d;
  }
  return most;
}

bool all_finite(const Tensor<float>& t) {
  return std::all_of(t.data(), t.data() + t.elements(), [](float value) { return std::isfinite(value); });
}

/// Compares tiles with one patch that holds the whole volume.
void check_tiles(const std::string& nodes, const Extent3& extent, const Extent3& patch, std::optional<Extent3> overlap,
                 const Extent3& whole) {
  INFO("volume " << to_string(extent) << ", patch " << to_string(patch) << nodes);
  Setup on(net(nodes));
  const auto volume = random_volume(extent, 9);
  Predictor big = on.predictor(whole), small = on.predictor(patch, overlap);
  REQUIRE(big.grid(extent).patches() == 1);
  const auto expected = big.run(StoredVolume::view_of(volume)), found = small.run(StoredVolume::view_of(volume));
  CHECK(all_finite(expected));
  CHECK(largest_difference(found, expected) < 1e-5);
}

}  // namespace

TEST_CASE("tiles of a net that keeps the extent equal one patch", "[predictor][serial]") {
  const Extent3 view = infer_shapes(net(same_net), {6, 16, 16}).field_of_view();
  CHECK(view == Extent3{3, 5, 5});
  const Extent3 extent{7, 23, 30};
  check_tiles(same_net, extent, {6, 12, 13}, view, extent);
  check_tiles(same_net, extent, {6, 12, 13}, Extent3{5, 8, 7}, extent);
  check_tiles(same_net, extent, {6, 12, 13}, std::nullopt, extent);
  check_tiles(same_net, {1, 23, 30}, {1, 12, 13}, view, {1, 23, 30});
  check_tiles(same_net, {1, 1, 30}, {3, 12, 13}, view, {1, 1, 30});
  check_tiles(same_net, {3, 5, 40}, {8, 8, 8}, view, {3, 5, 40});
}

TEST_CASE("tiles of a pooled net that keeps the extent equal one patch", "[predictor][serial]") {
  const NetShapes shapes = infer_shapes(net(same_pooled_net), {6, 16, 16});
  const Extent3 view = shapes.field_of_view();
  CHECK(shapes.alignment() == Extent3{1, 2, 2});
  for (const Extent3 extent : {Extent3{3, 37, 42}, Extent3{1, 40, 29}, Extent3{5, 9, 61}, Extent3{2, 3, 3}}) {
    const Extent3 whole{extent.z, (extent.y + 1) / 2 * 2, (extent.x + 1) / 2 * 2};
    check_tiles(same_pooled_net, extent, {4, 26, 24}, view, whole);
    check_tiles(same_pooled_net, extent, {6, 30, 32}, std::nullopt, whole);
  }
}

TEST_CASE("tiles of a valid net equal one patch, whatever the overlap", "[predictor][serial]") {
  const Extent3 view = infer_shapes(net(valid_net), {6, 16, 16}).field_of_view();
  CHECK(view == Extent3{3, 8, 7});
  for (const Extent3 extent : {Extent3{5, 19, 23}, Extent3{1, 19, 2}, Extent3{1, 1, 1}}) {
    const Extent3 whole = extent + view - Extent3::all(1);
    for (const auto& overlap : {std::optional<Extent3>(), std::optional<Extent3>({1, 3, 2})}) {
      check_tiles(valid_net, extent, {4, 16, 12}, overlap, whole);
    }
  }
}

TEST_CASE("tiles of a pooled valid net equal one patch, whatever the extent", "[predictor][serial]") {
  const Extent3 margin = Extent3{6, 16, 16} - infer_shapes(net(valid_pooled_net), {6, 16, 16}).output().extent;
  for (const Extent3 extent : {Extent3{4, 24, 24}, Extent3{3, 21, 26}, Extent3{1, 27, 3}, Extent3{1, 1, 1}}) {
    const Extent3 whole = Extent3{extent.z, (extent.y + 1) / 2 * 2, (extent.x + 1) / 2 * 2} + margin;
    check_tiles(valid_pooled_net, extent, {4, 18, 16}, std::nullopt, whole);
    check_tiles(valid_pooled_net, extent, {4, 20, 24}, Extent3{1, 2, 3}, whole);
  }
}

TEST_CASE("tiles of a net that pads here and there equal one patch", "[predictor][serial]") {
  const std::string mixed =
      "[[node]]\nname = 'a'\ntype = 'conv'\nout_channels = 3\nkernel = [1, 3, 5]\npadding = 'same'\nactivation = "
      "'tanh'\n"
      "[[node]]\nname = 'b'\ntype = 'conv'\nout_channels = 1\nkernel = [3, 3, 3]\n";
  check_tiles(mixed, {2, 30, 30}, {4, 14, 14}, std::nullopt, {4, 32, 32});
  check_tiles(mixed, {2, 31, 29}, {4, 14, 14}, Extent3{0, 5, 7}, {4, 33, 31});
}

TEST_CASE("a patch that holds all is the net on the mirrored volume", "[predictor][serial]") {
  Setup on(net(valid_net));
  const Extent3 extent{2, 5, 6}, view{3, 8, 7};
  const auto volume = random_volume(extent, 3);
  const Extent3 patch = extent + view - Extent3::all(1);
  Network network(on.spec, patch, on.parameters, {.engine = Engine::reference, .memory_mode = MemoryMode::separate},
                  std::pmr::get_default_resource());
  TaskGraph graph;
  auto prepared = network.append_prepare(graph, {});
  network.append_forward(graph, {}, std::move(prepared), {});
  const auto mirrored = [](index_t i, index_t n) {
    while (i < 0 || i >= n) i = i < 0 ? -i : 2 * (n - 1) - i;
    return i;
  };
  const Extent3 offset = network.shapes().offset();
  for (index_t z = 0; z < patch.z; ++z) {
    for (index_t y = 0; y < patch.y; ++y) {
      for (index_t x = 0; x < patch.x; ++x) {
        network.input().view()(0, 0, z, y, x) =
            volume.view()(0, 0, mirrored(z - offset.z, 2), mirrored(y - offset.y, 5), mirrored(x - offset.x, 6));
      }
    }
  }
  graph.run(on.scheduler);
  const auto found = on.predictor(patch).run(StoredVolume::view_of(volume));
  REQUIRE(network.logits().shape() == found.shape());
  for (index_t i = 0; i < found.elements(); ++i) {
    const double expected = 1 / (1 + std::exp(-static_cast<double>(network.logits().data()[i])));
    CHECK(static_cast<double>(found.data()[i]) == Approx(expected).margin(1e-6));
  }
}

TEST_CASE("every voxel is covered, however small the patches", "[predictor][serial]") {
  for (const auto* nodes : {&same_net, &same_pooled_net, &valid_pooled_net}) {
    Setup on(net(*nodes));
    const bool valid = nodes == &valid_pooled_net;
    const Extent3 extent{3, 11, 13};
    const auto volume = random_volume(extent, 4);
    for (const index_t patch : {2, 4, 6, 12}) {
      for (const index_t overlap : {-1, 0, 1, 3, 12}) {
        INFO("patch " << patch << ", overlap " << overlap);
        std::optional<Extent3> wish;
        if (overlap >= 0) wish = Extent3::all(overlap);
        const Extent3 size = valid ? Extent3{patch + 2, patch + 12, patch + 12} : Extent3::all(patch);
        CHECK(all_finite(on.predictor(size, wish).run(StoredVolume::view_of(volume))));
      }
    }
  }
}

TEST_CASE("a patch of one pooling cell covers the volume too", "[predictor][serial]") {
  Setup on(
      net("[[node]]\nname = 'a'\ntype = 'conv'\nout_channels = 2\nkernel = 3\npadding = 'same'\n"
          "[[node]]\nname = 'b'\ntype = 'max_pool'\nwindow = [1, 4, 4]\n"
          "[[node]]\nname = 'c'\ntype = 'conv'\nout_channels = 2\nkernel = 3\npadding = 'same'\n"
          "[[node]]\nname = 'd'\ntype = 'upsample'\nfactor = [1, 4, 4]\n"));
  const Extent3 extent{3, 14, 22};
  const auto volume = random_volume(extent, 4);
  for (index_t patch = 4; patch <= 16; patch += 4) {
    for (index_t overlap = -1; overlap <= patch; ++overlap) {
      INFO("patch " << patch << ", overlap " << overlap);
      std::optional<Extent3> wish;
      if (overlap >= 0) wish = Extent3::all(overlap);
      CHECK(all_finite(on.predictor(Extent3{2, patch, patch}, wish).run(StoredVolume::view_of(volume))));
    }
  }
}

TEST_CASE("a valid net with two poolings takes any region, with as few patches as a whole patch needs", "[predictor]") {
  const std::string conv = "type = 'conv'\nout_channels = 2\nkernel = [1, 3, 3]\n",
                    pool = "type = 'max_pool'\nwindow = [1, 2, 2]\n";
  const std::string nodes = "[[node]]\nname = 'a'\n" + conv + "[[node]]\nname = 'p'\n" + pool +
                            "[[node]]\nname = 'b'\n" + conv + "[[node]]\nname = 'q'\n" + pool +
                            "[[node]]\nname = 'c'\n" + conv +
                            "[[node]]\nname = 'u'\ntype = 'upsample'\nfactor = [1, 4, 4]\n" +
                            "[[node]]\nname = 'd'\ntype = 'conv'\nout_channels = 1\nkernel = [1, 3, 3]\n";
  const NetSpec spec = net(nodes);
  for (const index_t patch : {46, 47, 62}) {
    const Extent3 whole{2, patch, patch};
    const index_t output = infer_shapes(spec, whole).output().extent.y;
    for (index_t extent = 1; extent <= 2 * output; ++extent) {
      CAPTURE(patch, extent);
      const PatchGrid grid = make_patch_grid(spec, {4, extent, 60}, {.patch = whole});
      CHECK(grid.patch.y <= patch);
      if (extent <= output) CHECK(grid.axis(1).count() == 1);
    }
  }
}

TEST_CASE("a training patch off the pooling grid is rounded up", "[predictor]") {
  Setup on(parse_net("name = 'net'\n[input]\npatch = [6, 17, 15]\n" + same_pooled_net, "net.toml"));
  const Extent3 extent{6, 40, 41};
  const auto volume = random_volume(extent, 4);
  Predictor predictor = on.predictor();
  CHECK(predictor.network(predictor.grid(extent)).network().shapes().input.extent == Extent3{6, 18, 16});
  CHECK(all_finite(predictor.run(StoredVolume::view_of(volume))));
}

TEST_CASE("patches that cannot tile are refused", "[predictor]") {
  // A patch of one pooling window (4 voxels per axis) has two output voxels per axis, fewer than the pooling grid.
  Setup on(
      net("[[node]]\nname = 'a'\ntype = 'max_pool'\nwindow = 4\n"
          "[[node]]\nname = 'b'\ntype = 'upsample'\nfactor = 4\n"
          "[[node]]\nname = 'c'\ntype = 'conv'\nout_channels = 1\nkernel = 3\n"));
  CHECK_THROWS_AS(on.predictor(Extent3::all(4)).grid({20, 20, 20}), ConfigError);
  CHECK_NOTHROW(on.predictor(Extent3::all(8)).grid({20, 20, 20}));
  Setup padded(net(same_pooled_net));
  CHECK_THROWS_AS(padded.predictor(Extent3{4, 9, 8}).grid({20, 20, 20}), ConfigError);
  Setup valid(net(valid_net));
  CHECK_THROWS_AS(valid.predictor(Extent3{2, 9, 9}).grid({20, 20, 20}), ConfigError);
}

TEST_CASE("what comes out follows from the loss", "[predictor]") {
  const Extent3 extent{3, 9, 10};
  const auto volume = random_volume(extent, 6);
  SECTION("softmax over the classes") {
    const std::string three = "[[node]]\nname = 'd'\ntype = 'conv'\nout_channels = 3\nkernel = 1\n";
    Setup on(net(same_net + three, "[loss]\nkind = 'softmax_cross_entropy'\n"));
    const auto found = on.predictor(Extent3{3, 8, 8}).run(StoredVolume::view_of(volume));
    REQUIRE(found.shape() == Shape5{1, 3, extent});
    const index_t voxels = extent.volume();
    bool positive = true;
    double most = 0, spread = 0;
    for (index_t v = 0; v < voxels; ++v) {
      double sum = 0;
      for (index_t c = 0; c < 3; ++c) {
        sum += static_cast<double>(found.data()[c * voxels + v]);
        positive = positive && found.data()[c * voxels + v] > 0;
      }
      most = std::max(most, std::abs(sum - 1));
      spread = std::max(spread, std::abs(static_cast<double>(found.data()[v]) - 1.0 / 3));
    }
    CHECK(positive);
    CHECK(most < 1e-6);
    CHECK(spread > 0.1);
  }
  SECTION("the value itself for the square loss, else a sigmoid") {
    Setup plain(net(same_net, "[loss]\nkind = 'square'\n")), sigmoid(net(same_net, "[loss]\nkind = 'dice'\n"));
    const auto value = plain.predictor().run(StoredVolume::view_of(volume)),
               probability = sigmoid.predictor().run(StoredVolume::view_of(volume));
    double most = 0, below = 0;
    for (index_t i = 0; i < value.elements(); ++i) {
      const double x = static_cast<double>(value.data()[i]);
      most = std::max(most, std::abs(1 / (1 + std::exp(-x)) - static_cast<double>(probability.data()[i])));
      below = std::min(below, x);
    }
    CHECK(most < 1e-6);
    CHECK(below < 0);
  }
}

TEST_CASE("the weights of all patches at a voxel sum up to 1", "[predictor][serial]") {
  for (const auto* nodes : {&same_net, &same_pooled_net, &valid_net, &valid_pooled_net}) {
    const NetSpec spec = net(*nodes);
    for (const Blend blend : {Blend::ramp, Blend::gaussian, Blend::uniform}) {
      for (const index_t overlap : {0, 3, 7}) {
        const Extent3 region{9, 41, 37};
        const PatchGrid grid = make_patch_grid(
            spec, region, {.patch = Extent3{8, 24, 22}, .overlap = Extent3::all(overlap), .blend = blend});
        for (int a = 0; a < 3; ++a) {
          const AxisPatches& axis = grid.axis(a);
          for (const auto* weights : {&axis.weights, &axis.mirrored_weights}) {
            for (index_t v = 0; v < region[a]; ++v) {
              double sum = 0;
              const auto [first, end] = axis.touching(v, v + 1);
              for (index_t p = first; p < end; ++p) {
                const auto i = static_cast<std::size_t>(p);
                sum += static_cast<double>((*weights)[i][static_cast<std::size_t>(v - axis.starts[i])]);
              }
              REQUIRE(sum == Approx(1).margin(1e-6));
            }
          }
        }
      }
    }
  }
}

TEST_CASE("a Gaussian trusts the centre of a patch most", "[predictor]") {
  const PatchGrid grid =
      make_patch_grid(net(valid_net), {2, 40, 40}, {.overlap = Extent3{0, 8, 8}, .blend = Blend::gaussian});
  const auto& first = grid.axis(1).weights.front();
  CHECK(std::is_sorted(first.rbegin(), first.rend() - grid.axis(1).output + 4));
  CHECK(first.back() < 0.01f);
  CHECK(first.front() == 1);
}

TEST_CASE("touching patches are those with voxels in a range", "[predictor]") {
  const PatchGrid grid = make_patch_grid(net(same_net), {6, 60, 60}, {.overlap = Extent3{0, 4, 4}});
  const AxisPatches& axis = grid.axis(1);
  for (index_t begin = 0; begin < 60; begin += 7) {
    for (index_t end = begin + 1; end <= 60; end += 5) {
      const auto [first, behind] = axis.touching(begin, end);
      for (index_t p = 0; p < axis.count(); ++p) {
        const index_t start = axis.starts[static_cast<std::size_t>(p)];
        CHECK((p >= first && p < behind) == (start < end && start + axis.output > begin));
      }
    }
  }
}

namespace {

/// Collects predictions, column by column, and may miss a part only.
class CollectingSink final : public PredictionSink {
 public:
  CollectingSink(Tensor<float>& to, io::VoxelBox missing, index_t planes)
      : to_(to), missing_(missing), planes_(planes) {}
  bool needs(const io::VoxelBox& box) const override { return io::intersection(box, missing_).extent.volume() > 0; }
  void begin(const io::VoxelBox& column) override { column_ = column; }
  index_t layer_end(index_t z) const override { return std::min(to_.shape().extent.z, (z / planes_ + 1) * planes_); }
  void put(index_t z, const float* values, index_t stride) override {
    for (index_t c = 0; c < to_.shape().c; ++c) {
      for (index_t y = 0; y < column_.extent.y; ++y) {
        std::copy_n(values + c * stride + y * column_.extent.x, column_.extent.x,
                    &to_.view()(0, c, z, column_.begin.y + y, column_.begin.x));
      }
    }
  }
  void finished(index_t end, Scheduler&) override { ends.push_back(end); }
  std::vector<index_t> ends;

 private:
  Tensor<float>& to_;
  io::VoxelBox missing_, column_{};
  index_t planes_;
};

}  // namespace

TEST_CASE("columns and threads do not change the bits of a prediction", "[predictor]") {
  const Extent3 extent{9, 37, 41};
  const io::VoxelBox all{{0, 0, 0}, extent};
  const std::vector<io::VoxelBox> columns{
      {{0, 0, 0}, {9, 20, 30}}, {{0, 0, 30}, {9, 20, 11}}, {{0, 20, 0}, {9, 17, 41}}};
  for (const auto* nodes : {&same_pooled_net, &valid_pooled_net}) {
    Setup on(net(*nodes));
    const auto volume = random_volume(extent, 8);
    const StoredVolume stored = StoredVolume::view_of(volume);
    const PredictorOptions options{
        .patches = {.patch = Extent3{6, 18, 20}, .overlap = Extent3{2, 5, 6}}, .batch = 2, .engine = Engine::automatic};
    Predictor reference(on.spec, on.parameters, options, on.scheduler, std::pmr::get_default_resource());
    const auto expected = reference.run(stored);
    for (const auto& [threads, planes] : {std::pair<int, index_t>{1, 9}, {2, 4}, {8, 1}}) {
      Scheduler scheduler(threads);
      Predictor predictor(on.spec, on.parameters, options, scheduler, std::pmr::get_default_resource());
      Tensor<float> found({1, 1, extent});
      found.fill(std::numeric_limits<float>::quiet_NaN());
      CollectingSink sink(found, all, planes);
      VolumeWindow window(stored);
      double last = 0;
      REQUIRE(predictor.run(window, predictor.grid(extent), all, columns, sink, [&](double share) { last = share; }));
      CHECK(last == 1);
      CHECK(sink.ends.back() == extent.z);
      CHECK(std::memcmp(found.data(), expected.data(), static_cast<std::size_t>(found.elements()) * sizeof(float)) ==
            0);
    }
  }
}

TEST_CASE("only missing voxels are computed, with the same bits", "[predictor]") {
  const Extent3 extent{9, 37, 41};
  const io::VoxelBox all{{0, 0, 0}, extent}, missing{{4, 30, 3}, {3, 7, 9}};
  Setup on(net(same_pooled_net));
  const auto volume = random_volume(extent, 8);
  const StoredVolume stored = StoredVolume::view_of(volume);
  Predictor predictor = on.predictor(Extent3{6, 18, 20}, Extent3{2, 5, 6});
  const auto expected = predictor.run(stored);
  Tensor<float> found({1, 1, extent});
  found.fill(-1);
  CollectingSink sink(found, missing, 3);
  VolumeWindow window(stored);
  std::size_t reports = 0;
  REQUIRE(predictor.run(window, predictor.grid(extent), all, {&all, 1}, sink, [&](double) { ++reports; }));
  CHECK(reports < static_cast<std::size_t>(predictor.grid(extent).patches()));
  for (index_t z = missing.begin.z; z < missing.end().z; ++z) {
    for (index_t y = missing.begin.y; y < missing.end().y; ++y) {
      for (index_t x = missing.begin.x; x < missing.end().x; ++x) {
        REQUIRE(found.view()(0, 0, z, y, x) == expected.view()(0, 0, z, y, x));
      }
    }
  }
}

TEST_CASE("a region within a volume sees the voxels around it", "[predictor][serial]") {
  const Extent3 extent{6, 40, 42};
  Setup on(net(valid_net));
  const auto volume = random_volume(extent, 8);
  const StoredVolume stored = StoredVolume::view_of(volume);
  Predictor predictor = on.predictor(Extent3{5, 20, 20});
  const auto whole = predictor.run(stored);
  const io::VoxelBox region{{1, 9, 12}, {4, 19, 17}}, column{{0, 0, 0}, region.extent};
  Tensor<float> found({1, 1, region.extent});
  CollectingSink sink(found, column, 2);
  VolumeWindow window(stored);
  REQUIRE(predictor.run(window, predictor.grid(region.extent), region, {&column, 1}, sink));
  double most = 0;
  for (index_t z = 0; z < region.extent.z; ++z) {
    for (index_t y = 0; y < region.extent.y; ++y) {
      for (index_t x = 0; x < region.extent.x; ++x) {
        const float expected = whole.view()(0, 0, region.begin.z + z, region.begin.y + y, region.begin.x + x);
        most = std::max(most, static_cast<double>(std::abs(found.view()(0, 0, z, y, x) - expected)));
      }
    }
  }
  CHECK(most < 1e-6);
}

TEST_CASE("mirrored forms are averaged", "[predictor][serial]") {
  // Even kernels read further to one side, so the mirrored patch begins elsewhere.
  for (const auto* nodes : {&same_net, &valid_net, &same_pooled_net}) {
    Setup on(net(*nodes));
    const Extent3 extent{4, 20, 24};
    const auto volume = random_volume(extent, 11);
    const auto mirrored = [&](const Tensor<float>& from, unsigned axes) {
      Tensor<float> to({1, 1, extent});
      for (index_t z = 0; z < extent.z; ++z) {
        for (index_t y = 0; y < extent.y; ++y) {
          for (index_t x = 0; x < extent.x; ++x) {
            to.view()(0, 0, (axes & 1) != 0 ? extent.z - 1 - z : z, (axes & 2) != 0 ? extent.y - 1 - y : y,
                      (axes & 4) != 0 ? extent.x - 1 - x : x) = from.view()(0, 0, z, y, x);
          }
        }
      }
      return to;
    };
    const Extent3 margin = on.spec.patch - infer_shapes(on.spec, on.spec.patch).output().extent;
    const PatchOptions whole{.patch = extent + margin};
    Predictor plain = on.predictor({.patches = whole});
    REQUIRE(plain.grid(extent).patches() == 1);
    Tensor<float> expected({1, 1, extent});
    expected.fill(0);
    for (unsigned axes = 0; axes < 8; ++axes) {
      const auto turned = mirrored(volume, axes);
      const auto back = mirrored(plain.run(StoredVolume::view_of(turned)), axes);
      for (index_t i = 0; i < expected.elements(); ++i) expected.data()[i] += back.data()[i] / 8;
    }
    Predictor all = on.predictor({.patches = whole, .mirror = {true, true, true}});
    CHECK(all.forms() == 8);
    CHECK(largest_difference(all.run(StoredVolume::view_of(volume)), expected) < 1e-6);
    Predictor tiles = on.predictor({.patches = {.patch = Extent3{4, 14, 14} + margin, .overlap = Extent3{0, 7, 7}},
                                    .mirror = {false, true, true}});
    CHECK(all_finite(tiles.run(StoredVolume::view_of(volume))));
  }
}

TEST_CASE("a batch of patches gives what single patches give", "[predictor][serial]") {
  Setup on(net(same_pooled_net));
  const auto volume = random_volume({5, 30, 34}, 2);
  Predictor one = on.predictor({.patches = {.patch = Extent3{4, 16, 16}}});
  Predictor four = on.predictor({.patches = {.patch = Extent3{4, 16, 16}}, .batch = 4});
  CHECK(largest_difference(four.run(StoredVolume::view_of(volume)), one.run(StoredVolume::view_of(volume))) < 1e-6);
}

TEST_CASE("one predictor serves volumes of several extents", "[predictor]") {
  Setup on(net(same_pooled_net));
  Predictor predictor = on.predictor(Extent3{4, 16, 16});
  for (const Extent3 extent : {Extent3{4, 30, 30}, Extent3{9, 17, 40}, Extent3{2, 5, 6}, Extent3{4, 30, 30}}) {
    const auto volume = random_volume(extent, 3);
    Predictor fresh = on.predictor(Extent3{4, 16, 16});
    const auto expected = fresh.run(StoredVolume::view_of(volume)),
               found = predictor.run(StoredVolume::view_of(volume));
    CHECK(std::memcmp(found.data(), expected.data(), static_cast<std::size_t>(found.elements()) * sizeof(float)) == 0);
  }
  PatchNetwork* const large = &predictor.network(predictor.grid({4, 30, 30}));
  CHECK(large == &predictor.network(predictor.grid({9, 17, 40})));
}

TEST_CASE("a volume in a file gives the bits of the same volume in memory", "[predictor]") {
  const test::TemporaryFolder folder;
  const Extent3 extent{21, 50, 46};
  Tensor<float> numbers({1, 2, extent});
  const RandomKey key{.seed = 3};
  for (index_t i = 0; i < numbers.elements(); ++i) {
    numbers.data()[i] = std::floor(100 + 20 * static_cast<float>(normal(key, static_cast<std::uint64_t>(i))));
  }
  Setup on(parse_net("name = 'net'\n[input]\npatch = [6, 16, 16]\nchannels = 2\n" + same_pooled_net, "net.toml"));
  for (const Extent3 chunk : {Extent3{4, 16, 16}, Extent3{64, 64, 64}, Extent3{1, 50, 46}}) {
    const io::VolumePath file{folder.path() / "v.zarr", ""};
    const auto sink = io::create_volume(file, {.channels = 2, .extent = extent, .chunk = chunk});
    sink->write({0, 2}, {{0, 0, 0}, extent},
                std::as_bytes(std::span(numbers.data(), static_cast<std::size_t>(numbers.elements()))));
    sink->finish();
    const auto source = io::open_volume(file);
    StoredVolume stored = StoredVolume::read(*source, {{0, 0, 0}, extent}, std::pmr::get_default_resource());
    const IntensitySpec how{.normalise = chunk.z == 4 ? Normalise::slice : Normalise::volume, .clip = chunk.z == 64};
    normalise(stored, how);
    Predictor predictor(on.spec, on.parameters, {.patches = {.patch = Extent3{6, 16, 18}, .overlap = Extent3{2, 4, 4}}},
                        on.scheduler, std::pmr::get_default_resource());
    const auto expected = predictor.run(stored);
    const auto pieces = pieces_of(source->info(), {{0, 0, 0}, extent}, 1, [&](const io::VoxelBox& box) {
      return StoredVolume::read(*source, box, std::pmr::get_default_resource());
    });
    const auto scaling =
        std::make_shared<VolumeScaling>(scaling_of(*intensity_statistics(pieces, how, nullptr), how, "v"));
    REQUIRE(scaling->list.size() == (chunk.z == 4 ? 42 : 2));
    const std::vector<io::VoxelBox> columns{{{0, 0, 0}, {21, 20, 46}}, {{0, 20, 0}, {21, 30, 46}}};
    Tensor<float> found({1, 1, extent});
    CollectingSink sink_of_all(found, {{0, 0, 0}, extent}, 5);
    VolumeWindow window(*source, scaling, std::pmr::get_default_resource());
    REQUIRE(predictor.run(window, predictor.grid(extent), {{0, 0, 0}, extent}, columns, sink_of_all));
    CHECK(std::memcmp(found.data(), expected.data(), static_cast<std::size_t>(found.elements()) * sizeof(float)) == 0);
  }
}

TEST_CASE("a stop request gives an empty tensor, and the next run is whole", "[predictor]") {
  Setup on(net(same_pooled_net));
  const Extent3 extent{4, 30, 30};
  const auto volume = random_volume(extent, 6);
  Predictor predictor = on.predictor(Extent3{4, 16, 16});
  const auto patches = static_cast<std::size_t>(predictor.grid(extent).patches());
  REQUIRE(patches >= 4);
  std::vector<double> shares;
  const auto expected = predictor.run(StoredVolume::view_of(volume), [&](double share) { shares.push_back(share); });
  CHECK(shares.size() == patches);
  CHECK(std::is_sorted(shares.begin(), shares.end()));
  CHECK(shares.back() == 1);
  {
    std::stop_source stop;
    stop.request_stop();
    CHECK_FALSE(static_cast<bool>(predictor.run(StoredVolume::view_of(volume), {}, stop.get_token())));
  }
  {
    std::stop_source stop;
    std::size_t calls = 0;
    const auto cancelled = predictor.run(
        StoredVolume::view_of(volume),
        [&](double) {
          if (++calls == 2) stop.request_stop();
        },
        stop.get_token());
    CHECK_FALSE(static_cast<bool>(cancelled));
    CHECK(calls == 2);
  }
  const auto again = predictor.run(StoredVolume::view_of(volume));
  CHECK(std::memcmp(again.data(), expected.data(), static_cast<std::size_t>(again.elements()) * sizeof(float)) == 0);
}

TEST_CASE("a predictor reads the parameters anew and checks the volume", "[predictor]") {
  Setup on(net(same_net));
  const Extent3 extent{3, 9, 10};
  const auto volume = random_volume(extent, 6);
  Predictor predictor = on.predictor();
  const auto before = predictor.run(StoredVolume::view_of(volume));
  on.parameters.find("b.weight")->value.fill(0);
  on.parameters.find("b.bias")->value.fill(0);
  const auto after = predictor.run(StoredVolume::view_of(volume));
  CHECK(largest_difference(before, after) > 1e-3);
  CHECK(std::all_of(after.data(), after.data() + after.elements(), [](float p) { return p == 0.5f; }));
  CHECK_THROWS_AS(predictor.run(StoredVolume(Tensor<float>({1, 2, extent}))), ShapeMismatch);
}

}  // namespace convolume::nets
