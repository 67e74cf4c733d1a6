#include "convolume/tensor.hpp"

#include <cmath>
#include <limits>

#include <catch2/catch.hpp>

#include "convolume/cpu.hpp"
#include "convolume/machine.hpp"
#include "core/checked.hpp"
#include "core/random.hpp"

using namespace convolume;

TEST_CASE("a volume that overflows is an error, not a small number") {
  CHECK(Extent3{2, 3, 5}.volume() == 30);
  CHECK_THROWS_AS((Extent3{index_t{1} << 32, index_t{1} << 32, 1}.volume()), OverflowError);
  CHECK_THROWS_AS((Shape5{.n = 1 << 20, .c = 1 << 20, .extent = {1 << 20, 8, 1}}.elements()), OverflowError);
  CHECK_THROWS_AS((Shape5{.n = -1, .c = 1, .extent = {1, 1, 1}}.elements()), InvalidArgument);
  CHECK_THROWS_AS(checked_cast<std::int32_t>(index_t{1} << 40, "slices"), OverflowError);
  CHECK(checked_cast<std::int32_t>(index_t{7}) == 7);
}

TEST_CASE("a dense view addresses NCZYX with x fastest") {
  Tensor<float> tensor({.n = 2, .c = 3, .extent = {2, 3, 4}});
  for (index_t i = 0; i < tensor.elements(); ++i) tensor.data()[i] = static_cast<float>(i);
  const View<const float> view = tensor;
  CHECK(view(0, 0, 0, 0, 1) == 1);
  CHECK(view(0, 0, 0, 1, 0) == 4);
  CHECK(view(0, 0, 1, 0, 0) == 12);
  CHECK(view(0, 1, 0, 0, 0) == 24);
  CHECK(view(1, 0, 0, 0, 0) == 72);
  CHECK(view.dense_blocks());
  CHECK(reinterpret_cast<std::uintptr_t>(tensor.data()) % 64 == 0);
}

TEST_CASE("a blocked view addresses channels side by side in blocks of 64 bytes") {
  Tensor<float> tensor({.n = 2, .c = 19, .extent = {2, 3, 4}}, Layout::blocked);
  CHECK(tensor.elements() == 2 * 32 * 24);
  for (index_t i = 0; i < tensor.elements(); ++i) tensor.data()[i] = static_cast<float>(i);
  const View<const float> view = tensor;
  CHECK(view(0, 1, 0, 0, 0) == 1);
  CHECK(view(0, 0, 0, 0, 1) == 16);
  CHECK(view(0, 0, 0, 1, 0) == 4 * 16);
  CHECK(view(0, 0, 1, 0, 0) == 12 * 16);
  CHECK(view(0, 18, 0, 0, 0) == 24 * 16 + 2);
  CHECK(view(1, 0, 0, 0, 0) == 2 * 24 * 16);
  CHECK(view.blocks() == 2);
  CHECK(view.dense_blocks());
  CHECK(ConstTensorView(view).as<float>().layout == Layout::blocked);
  CHECK(Tensor<double>({1, 9, {1, 1, 1}}, Layout::blocked).elements() == 16);
  CHECK_THROWS_AS(stored_elements({index_t{1} << 40, 1, {1 << 20, 1, 1}}, Layout::blocked, DataType::f32),
                  OverflowError);
}

TEST_CASE("an address is bound where there is memory, or will be") {
  static_assert(!std::is_convertible_v<Address<float>, bool>);
  static_assert(std::is_constructible_v<bool, Address<float>>);
  static_assert(std::is_convertible_v<Address<float>, const float*>);
  float value = 3;
  void* slot = nullptr;
  const Address<float> nowhere, here(&value), later = Address<float>::in(&slot);
  CHECK(!nowhere);
  CHECK(static_cast<bool>(here));
  CHECK(static_cast<bool>(later));  // although the slot is empty
  CHECK(later == nullptr);
  slot = &value;
  CHECK(*later == 3);
}

TEST_CASE("the element type of a view follows from its pointer") {
  float values[24]{};
  const Shape5 shape{.n = 1, .c = 2, .extent = {1, 3, 4}};
  const View dense(values, shape), blocked(values, {1, 1, {1, 1, 1}}, Layout::blocked);
  const View strided(static_cast<const float*>(values), shape, std::array<index_t, 5>{24, 12, 12, 4, 1});
  static_assert(std::is_same_v<decltype(dense), const View<float>>);
  static_assert(std::is_same_v<decltype(strided), const View<const float>>);
  CHECK(dense.stride == strided.stride);
  CHECK(blocked.layout == Layout::blocked);
}

TEST_CASE("an untyped view refuses the wrong element type") {
  Tensor<float> tensor({.n = 1, .c = 1, .extent = {1, 1, 1}});
  const TensorView view = tensor;
  CHECK(view.type == DataType::f32);
  CHECK_THROWS_AS(view.as<double>(), ShapeMismatch);
  CHECK(view.as<float>().data == tensor.data());
}

TEMPLATE_TEST_CASE("an untyped view addresses what the typed view addresses", "", float, double) {
  using T = TestType;
  for (const Layout layout : {Layout::plain, Layout::blocked}) {
    CAPTURE(name_of(layout));
    Tensor<T> tensor({.n = 2, .c = 19, .extent = {2, 3, 5}}, layout);
    const View<T> typed = tensor;
    const TensorView view(tensor.data(), data_type_of<T>(), tensor.shape(), layout);
    const ConstTensorView read_only(tensor.data(), data_type_of<T>(), tensor.shape(), typed.stride, layout);
    CHECK(view.stride == typed.stride);
    CHECK(view.lanes() == View<T>::lanes);
    CHECK(view.blocks() == typed.blocks());
    CHECK(view.block_channels() == typed.block_channels());
    CHECK(view.at(1, 18, 1, 2, 3) == &typed(1, 18, 1, 2, 3));
    CHECK(read_only.channel(1, 17) == typed.channel(1, 17));
    CHECK(read_only.block(1, 1) == typed.block(1, 1));
    CHECK(read_only.dense_blocks());
    CHECK(view.visit([](const auto& one) { return sizeof *one.channel(0, 0); }) == sizeof(T));
    TensorView gaps = view;
    gaps.stride[3] += gaps.stride[4];
    CHECK_FALSE(gaps.dense_blocks());
  }
}

TEST_CASE("distances between addresses are known within the same memory") {
  float values[8]{};
  void *slot = nullptr, *other = nullptr;
  const Address<float> first(values);
  const Address<const double> second(reinterpret_cast<const double*>(values + 2));
  CHECK(second.bytes_from(first) == 8);
  CHECK(first.bytes_from(second) == -8);
  auto later = Address<float>::in(&slot);
  later += 3;
  CHECK(later.bytes_from(Address<void>::in(&slot)) == 12);
  CHECK_FALSE(later.bytes_from(Address<void>::in(&other)));
  CHECK_FALSE(later.bytes_from(first));
}

TEST_CASE("random numbers are a function of their key alone") {
  // Known answer of Philox4x32-10 from Random123's kat_vectors, where counter and key are all ones.
  const auto words = philox({.seed = 0xFFFFFFFFFFFFFFFFull, .a = 0xFFFFFFFFu, .b = 0xFFFFFFFFu}, 0xFFFFFFFFFFFFFFFFull);
  CHECK(words[0] == 0x408F276Du);
  CHECK(words[1] == 0x41C83B0Eu);
  CHECK(words[2] == 0xA20BC7C6u);
  CHECK(words[3] == 0x6D5451FDu);
  double sum = 0, squares = 0;
  constexpr int count = 20000;
  for (int i = 0; i < count; ++i) {
    const double x = normal({.seed = 3}, static_cast<std::uint64_t>(i));
    sum += x;
    squares += x * x;
    REQUIRE(uniform_below({.seed = 4}, static_cast<std::uint64_t>(i), 7) < 7);
  }
  CHECK(std::abs(sum / count) < 0.03);
  CHECK(std::abs(squares / count - 1) < 0.05);
}

TEST_CASE("every available SIMD target can be forced and an unknown one is refused by name") {
  const std::string before = simd_target();
  for (const auto& name : available_simd_targets()) {
    set_simd_target(name);
    CHECK(simd_target() == name);
  }
  CHECK_THROWS_WITH(set_simd_target("AVX9"), Catch::Contains("AVX9") && Catch::Contains("available"));
  set_simd_target(before);
  CHECK(machine_model().l2_bytes > 0);
  CHECK(available_cpus() >= 1);
}
