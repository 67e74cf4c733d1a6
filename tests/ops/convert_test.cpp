#include "convolume/convert.hpp"

#include "tests/ops/ops_test.hpp"

namespace convolume::ops::test {
namespace {

/// Types of the source and of the target.
template <class S, class T>
struct Types {
  using Source = S;
  using Target = T;
};

void convert_on(int threads, const ConstTensorView& source, const TensorView& target) {
  Scheduler scheduler(threads);
  convolume::convert(Execution{scheduler, std::pmr::get_default_resource()}, source, target);
}

/// Returns whether each element of the target is that of the source, converted, with its sign.
template <class S, class T>
bool same_values(const View<S>& source, const View<T>& target) {
  bool all = source.shape == target.shape;
  const Extent3 extent = target.shape.extent;
  for (index_t n = 0; n < target.shape.n; ++n) {
    for (index_t c = 0; c < target.shape.c; ++c) {
      for (index_t v = 0; v < extent.volume(); ++v) {
        const index_t z = v / (extent.y * extent.x), y = v / extent.x % extent.y, x = v % extent.x;
        const auto wanted = static_cast<T>(source(n, c, z, y, x));
        all = all && std::memcmp(&target(n, c, z, y, x), &wanted, sizeof wanted) == 0;
      }
    }
  }
  return all;
}

/// A plain tensor whose channels lie side by side: N Z Y X C.
template <class T>
struct ChannelsLast {
  explicit ChannelsLast(const Shape5& shape)
      : memory(static_cast<std::size_t>(shape.elements()), nan<T>),
        view(memory.data(), shape,
             {shape.extent.volume() * shape.c, 1, shape.extent.y * shape.extent.x * shape.c, shape.extent.x * shape.c,
              shape.c}) {}
  std::vector<T> memory;
  View<T> view;
};

/// Returns the view with all axes except channel blocks and lanes reversed.
template <class T>
View<T> reversed(View<T> view) {
  const Shape5& shape = view.shape;
  const std::array<index_t, 5> counts{shape.n, view.layout == Layout::plain ? shape.c : 1, shape.extent.z,
                                      shape.extent.y, view.layout == Layout::plain ? shape.extent.x : 1};
  for (std::size_t axis = 0; axis < counts.size(); ++axis) {
    if (counts[axis] == 1) continue;
    view.data += (counts[axis] - 1) * view.stride[axis];
    view.stride[axis] = -view.stride[axis];
  }
  return view;
}

/// Converts to a gapped tensor of each layout and checks it.
template <class T, class S>
void check_to_each_layout(const View<S>& source) {
  for (const Layout to : both_layouts) {
    Gapped<T> target(source.shape, to);
    convert_on(2, source, target.view());
    REQUIRE(same_values(source, target.view()));
    REQUIRE(target.clean());
  }
}

}  // namespace

TEMPLATE_TEST_CASE("tensors convert between all layouts and types", "[ops]", (Types<float, float>),
                   (Types<float, double>), (Types<double, float>), (Types<double, double>)) {
  using S = typename TestType::Source;
  using T = typename TestType::Target;
  on_every_target([] {
    Random random(49);
    for (const index_t channels : {1, 7, 8, 16, 17}) {
      for (const Extent3 extent : {Extent3{1, 1, 1}, {3, 5, 7}, {1, 3, 2051}}) {
        for (const Layout from : both_layouts) {
          INFO(channels << " channels of " << to_string(extent) << ", " << name_of(from));
          Gapped<S> source({2, channels, extent}, from);
          source.set_random(random);
          source.set_pads(nan<S>);
          check_to_each_layout<T>(source.view());
        }
      }
    }
  });
}

TEMPLATE_TEST_CASE("plain tensors convert whatever their strides", "[ops]", (Types<float, float>),
                   (Types<float, double>), (Types<double, float>), (Types<double, double>)) {
  using S = typename TestType::Source;
  using T = typename TestType::Target;
  Random random(50);
  for (const index_t channels : {1, 7, 8, 16, 17}) {
    CAPTURE(channels);
    const Shape5 shape{2, channels, {3, 5, 7}};
    Gapped<S> plain(shape);
    plain.set_random(random);

    View<S> inner = plain.view();  // a crop, from voxel (1, 1, 2) on
    inner.data += inner.stride[2] + inner.stride[3] + 2 * inner.stride[4];
    inner.shape.extent = {2, 3, 5};
    check_to_each_layout<T>(inner);
    View<S> sparse = plain.view();  // every second voxel of a row
    sparse.stride[4] = 2;
    sparse.shape.extent.x = 4;
    check_to_each_layout<T>(sparse);
    View<S> repeated = plain.view();
    repeated.stride[3] = repeated.stride[4] = 0;
    check_to_each_layout<T>(repeated);
    check_to_each_layout<T>(reversed(plain.view()));

    for (const Layout from : both_layouts) {
      Gapped<S> source(shape, from);
      source.set_from(plain);
      ChannelsLast<T> target(shape);
      convert_on(2, source.view(), target.view);
      REQUIRE(same_values(plain.view(), target.view));
      check_to_each_layout<S>(target.view);
      Gapped<T> backwards(shape, from);
      convert_on(2, source.view(), reversed(backwards.view()));
      REQUIRE(same_values(source.view(), reversed(backwards.view())));
      REQUIRE(backwards.clean());
    }
  }
}

TEST_CASE("strides along an axis of one element are not read", "[ops]") {
  float from[3]{1, 2, 3};
  double to[8];
  const View<float> source(from, {1, 3, {1, 1, 1}}, {99, 1, 77, 0, 55});
  convert_on(1, source, View<double>(to, {1, 3, {1, 1, 1}}, {0, 0, 0, 0, 11}, Layout::blocked));
  for (index_t c = 0; c < 8; ++c) CHECK(to[c] == (c < 3 ? from[c] : 0));
}

TEST_CASE("doubles are rounded to the nearest float", "[ops]") {
  constexpr double half = 0x1p-24;  // half of the distance between floats from 1 on
  constexpr double infinity = std::numeric_limits<double>::infinity();
  const std::vector<std::pair<double, float>> known{{1 + half, 1.0F},
                                                    {1 + 3 * half, 1 + 0x1p-22F},
                                                    {1 + 1.01 * half, 1 + 0x1p-23F},
                                                    {-0.0, -0.0F},
                                                    {0x1p-149, 0x1p-149F},
                                                    {1e300, INFINITY},
                                                    {-1e300, -INFINITY},
                                                    {infinity, INFINITY},
                                                    {0x1p-150, 0.0F},
                                                    {16777217.0, 16777216.0F},
                                                    {-16777219.0, -16777220.0F}};
  const auto count = static_cast<index_t>(known.size());
  on_every_target([&] {
    Tensor<double> source({1, 1, {1, 1, count}});
    for (index_t i = 0; i < count; ++i) source.data()[i] = known[static_cast<std::size_t>(i)].first;
    Tensor<float> target(source.shape(), Layout::blocked);
    convert_on(1, source, target);
    for (index_t i = 0; i < count; ++i) {
      const float found = target.view()(0, 0, 0, 0, i), wanted = known[static_cast<std::size_t>(i)].second;
      CHECK((found == wanted && std::signbit(found) == std::signbit(wanted)));
    }
    source.fill(nan<double>);
    convert_on(1, source, target);
    CHECK(std::isnan(target.view()(0, 0, 0, 0, 0)));
  });
}

TEST_CASE("a conversion gives the same bits on any number of threads", "[ops]") {
  Random random(51);
  const Shape5 shape{2, 17, many_slabs};
  for (const Layout from : both_layouts) {
    Gapped<double> source(shape, from);
    source.set_random(random);
    for (const Layout to : both_layouts) {
      Gapped<float> one(shape, to);
      convert_on(1, source.view(), one.view());
      for (const int threads : {2, 8}) {
        Gapped<float> many(shape, to);
        convert_on(threads, source.view(), many.view());
        REQUIRE(many.same_bits(one));
      }
    }
  }
}

TEST_CASE("tasks of a conversion wait for the parts that they read", "[ops]") {
  const Shape5 shape{1, 33, many_slabs};
  Tensor<float> plain(shape), back(shape);
  Tensor<double> blocked(shape, Layout::blocked);
  Random random(52);
  for (index_t i = 0; i < plain.elements(); ++i) plain.data()[i] = static_cast<float>(random.uniform(-1, 1));
  blocked.fill(nan<double>);
  TaskGraph graph;
  const Producers producers(graph, shape, 1);
  const Ready converted = append_convert(graph, producers.ready, plain, blocked);
  append_convert(graph, converted, blocked, back);
  CHECK(waits(graph, converted, 0, 0, producers.of(0, 7, 0)));
  CHECK_FALSE(waits(graph, converted, 0, 0, producers.of(0, 8, 0)));
  CHECK_FALSE(waits(graph, converted, 0, 0, producers.of(0, 0, shape.extent.z - 1)));
  Scheduler scheduler(2);
  graph.run(scheduler);
  CHECK(std::memcmp(plain.data(), back.data(), static_cast<std::size_t>(plain.elements()) * sizeof(float)) == 0);
}

TEST_CASE("tasks of a conversion find memory that is provided later", "[ops]") {
  const Shape5 shape{1, 3, {2, 3, 5}};
  Tensor<float> source(shape);
  for (index_t i = 0; i < source.elements(); ++i) source.data()[i] = static_cast<float>(i);
  void* slot = nullptr;
  const auto later = Address<double>::in(&slot);
  const View<double> target(later, shape, Layout::blocked);
  auto behind = later;
  behind += stored_elements(shape, Layout::blocked, DataType::f64);
  TaskGraph graph;
  const Ready ready = append_convert(graph, {}, source, target);
  append_convert(graph, ready, target, View<double>(behind, shape));
  std::vector<double> memory(8 * 30 + 90, nan<double>);
  slot = memory.data();
  Scheduler scheduler(2);
  graph.run(scheduler);
  CHECK(same_values(source.view(), target));
  CHECK(same_values(source.view(), View<double>(behind, shape)));
  CHECK_THROWS_WITH(append_convert(graph, {}, target, View<double>(later, shape)), Catch::Contains("overlap"));
}

TEST_CASE("a conversion names what is wrong with its tensors", "[ops]") {
  const Shape5 shape{1, 3, {2, 3, 5}};
  Tensor<float> x(shape);
  Tensor<double> y(shape, Layout::blocked), other({1, 3, {2, 5, 3}});
  x.fill(0);
  const auto message = [](const ConstTensorView& source, const TensorView& target) -> std::string {
    try {
      convert_on(1, source, target);
    } catch (const Error& error) {
      return error.what();
    }
    return "no error";
  };
  CHECK(message(x, y) == "no error");
  CHECK_THROWS_AS(convert_on(1, x, other), ShapeMismatch);
  CHECK_THAT(message(x, other),
             Catch::Contains("target") && Catch::Contains("1 x 3 x 2 x 5 x 3") && Catch::Contains("1 x 3 x 2 x 3 x 5"));

  const View<float> nowhere(nullptr, shape), empty(x.data(), {1, 3, {0, 3, 5}});
  CHECK_THROWS_AS(convert_on(1, x, nowhere), InvalidArgument);
  CHECK_THROWS_AS(convert_on(1, nowhere, y), InvalidArgument);
  CHECK_THROWS_AS(convert_on(1, TensorView(), y), InvalidArgument);
  CHECK_THAT(message(x, nowhere), Catch::Contains("target has no data"));
  CHECK_THAT(message(nowhere, y), Catch::Contains("source has no data"));
  CHECK_THAT(message(empty, y), Catch::Contains("source has no elements") && Catch::Contains("0 x 3 x 5"));

  CHECK_THROWS_AS(convert_on(1, x, x), InvalidArgument);
  CHECK_THAT(message(x, x), Catch::Contains("source and target overlap") && Catch::Contains("0 bytes"));
  // The last float of the source is the first one of the target, and the other way round.
  std::vector<float> memory(180);
  const View<float> first(memory.data(), shape), shifted(memory.data() + 89, shape), next(memory.data() + 90, shape);
  CHECK_THAT(message(first, shifted) + message(shifted, first),
             Catch::Contains("356 bytes behind") && Catch::Contains("-356 bytes behind"));
  CHECK(message(first, next) + message(next, first) == "no errorno error");

  View<double> wide = y.view();
  wide.stride[4] = 16;
  CHECK_THROWS_AS(convert_on(1, x, wide), InvalidArgument);
  CHECK_THAT(message(x, wide), Catch::Contains("target is 16") && Catch::Contains("f64 tensor are 8 elements apart"));
  View<float> folded = next;
  folded.stride[2] = 0;
  CHECK_THAT(message(first, folded), Catch::Contains("stride 2 of target is 0"));
  View<float> far = next;
  far.stride[0] = far.stride[1] = index_t{1} << 62;
  CHECK_THROWS_AS(convert_on(1, far, y), OverflowError);
  CHECK_THROWS_AS(convert_on(1, View<float>(x.data(), {index_t{1} << 40, 1 << 20, {1 << 20, 1, 1}}), y), OverflowError);
}

}  // namespace convolume::ops::test
