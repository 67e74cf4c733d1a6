#include "bench/conv/conv_tensor.hpp"

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

#include "bench/common/support.hpp"
#include "ops/layout.hpp"

namespace convolume::bench {
namespace {

/// Calls `body` with a pointer to the element type.
template <class Body>
auto with_type(DataType type, void* data, const Body& body) {
  return type == DataType::f32 ? body(static_cast<float*>(data)) : body(static_cast<double*>(data));
}

index_t blocks_of(const Shape5& shape, DataType type) {
  const index_t lanes = channel_block(type);
  return (shape.c + lanes - 1) / lanes;
}

}  // namespace

ConvTensor::ConvTensor(DataType type, const Shape5& shape, Layout layout, std::pmr::memory_resource* memory)
    : type_(type),
      shape_(shape),
      layout_(layout),
      elements_(stored_elements(shape, layout, type)),
      memory_(memory),
      data_(memory_->allocate(bytes(), 64)) {}
ConvTensor::ConvTensor(ConvTensor&& other) noexcept
    : type_(other.type_),
      shape_(other.shape_),
      layout_(other.layout_),
      elements_(other.elements_),
      memory_(other.memory_),
      data_(std::exchange(other.data_, nullptr)) {}
ConvTensor::~ConvTensor() {
  if (data_ != nullptr) memory_->deallocate(data_, bytes(), 64);
}

TensorView ConvTensor::view() {
  return with_type(type_, data_, [&](auto* data) { return TensorView(View(data, shape_, layout_)); });
}
ConstTensorView ConvTensor::view() const { return const_cast<ConvTensor*>(this)->view(); }  // NOLINT: constant again

void ConvTensor::fill_normal(std::uint32_t stream) {
  with_type(type_, data_, [&](auto* data) {
    using T = std::remove_pointer_t<decltype(data)>;
    // Random numbers take longer than the convolution, so they are repeated. The period is a prime, so rows and planes
    // differ.
    constexpr index_t period = 65521;
    const index_t drawn = std::min(elements_, period);
    bench::fill_normal(data, drawn, stream);
    for (index_t i = 0; i < drawn; ++i) data[i] = static_cast<T>(static_cast<float>(data[i]));
    for (index_t i = drawn; i < elements_; ++i) data[i] = data[i - drawn];
  });
}

void ConvTensor::poison() {
  with_type(type_, data_, [&](auto* data) {
    using T = std::remove_pointer_t<decltype(data)>;
    std::fill_n(data, elements_, std::numeric_limits<T>::quiet_NaN());
  });
}

void ConvTensor::load(const ConvTensor& plain) {
  with_type(type_, data_, [&](auto* data) {
    using T = std::remove_pointer_t<decltype(data)>;
    ops::convert<T>(plain.view().as<T>(), view().as<T>());
  });
}

void ConvTensor::store(ConvTensor& plain) const {
  with_type(type_, data_, [&](auto* data) {
    using T = std::remove_pointer_t<decltype(data)>;
    ops::convert<T>(view().as<T>(), plain.view().as<T>());
  });
}

bool ConvTensor::clean_padding() const {
  if (layout_ == Layout::plain) return true;
  const index_t lanes = channel_block(type_), used = shape_.c - (blocks_of(shape_, type_) - 1) * lanes;
  const index_t voxels = shape_.extent.volume();
  return with_type(type_, data_, [&](const auto* data) {
    for (index_t n = 0; n < shape_.n; ++n) {
      const auto* block = data + ((n + 1) * blocks_of(shape_, type_) - 1) * voxels * lanes;
      for (index_t v = 0; v < voxels; ++v) {
        const auto zero = [](auto value) { return value == 0; };
        if (!std::all_of(block + v * lanes + used, block + (v + 1) * lanes, zero)) return false;
      }
    }
    return true;
  });
}

double ConvTensor::at(index_t i) const {
  return with_type(type_, data_, [&](const auto* data) { return static_cast<double>(data[i]); });
}
void ConvTensor::set(index_t i, double value) {
  with_type(type_, data_, [&](auto* data) { data[i] = static_cast<std::remove_pointer_t<decltype(data)>>(value); });
}

double relative_error(const ConvTensor& got, const ConvTensor& wanted) {
  double error = 0, norm = 0;
  for (index_t i = 0; i < wanted.shape().elements(); ++i) {
    const double want = wanted.at(i), difference = got.at(i) - want;
    error += difference * difference;
    norm += want * want;
  }
  return std::sqrt(error) / (norm > 0 ? std::sqrt(norm) : 1.0);
}

}  // namespace convolume::bench
