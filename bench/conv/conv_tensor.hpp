// A tensor whose type and layout are known at run time.
#pragma once

#include <memory_resource>

#include "convolume/tensor.hpp"

namespace convolume::bench {

/// A tensor that owns its memory; the initial values are undefined. view() returns the view that plans take. A blocked
/// view has the logical shape, and strides between samples, channel blocks, planes, rows and voxels.
class ConvTensor {
 public:
  ConvTensor(DataType type, const Shape5& shape, Layout layout = Layout::plain,
             std::pmr::memory_resource* memory = std::pmr::get_default_resource());
  ConvTensor(ConvTensor&& other) noexcept;
  ConvTensor& operator=(ConvTensor&&) = delete;
  ~ConvTensor();

  DataType type() const { return type_; }
  Layout layout() const { return layout_; }
  const Shape5& shape() const { return shape_; }
  TensorView view();
  ConstTensorView view() const;

  /// Fills the tensor with normal random numbers that float holds exactly. A sequence of numbers is drawn once and
  /// repeated.
  void fill_normal(std::uint32_t stream);
  /// Fills every element with NaN, pad lanes included.
  void poison();
  /// Copy from or to a plain tensor of the same type and shape. load() clears the pad lanes.
  void load(const ConvTensor& plain);
  void store(ConvTensor& plain) const;
  /// Returns whether the lanes behind the last channel are all zero.
  bool clean_padding() const;
  /// Read or write one element of a plain tensor, in memory order.
  double at(index_t i) const;
  void set(index_t i, double value);

 private:
  std::size_t bytes() const { return static_cast<std::size_t>(elements_) * size_of(type_); }

  DataType type_;
  Shape5 shape_;
  Layout layout_;
  index_t elements_;  // pad lanes included
  std::pmr::memory_resource* memory_;
  void* data_;
};

/// Returns the relative error of a plain tensor: norm(got - wanted) / norm(wanted). A NaN gives NaN.
double relative_error(const ConvTensor& got, const ConvTensor& wanted);

}  // namespace convolume::bench
