// A tensor whose type and layout are known at run time, as engines are given them.
#pragma once

#include <memory_resource>

#include "convolume/tensor.hpp"

namespace convolume::bench {

/// Whether a tensor of so many channels is ever blocked: thin ones stay plain.
bool blockable(index_t channels);

/// Owns its memory, which starts undefined, and hands out the view that plans take. A blocked view has the logical
/// shape and the strides of a sample, a block of channels, a plane, a row and a voxel.
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

  /// Normal numbers that both types hold exactly. A stretch of them is drawn and repeated.
  void fill_normal(std::uint32_t stream);
  /// NaN in every lane, pad lanes too.
  void poison();
  /// From and to a plain tensor of the same type and shape; load() clears the pad lanes.
  void load(const ConvTensor& plain);
  void store(ConvTensor& plain) const;
  /// Whether the lanes behind the last channel are all zero.
  bool clean_padding() const;
  /// One element of a plain tensor, in memory order.
  double at(index_t i) const;
  void set(index_t i, double value);

 private:
  std::size_t bytes() const { return static_cast<std::size_t>(elements_) * size_of(type_); }

  DataType type_;
  Shape5 shape_;
  Layout layout_;
  index_t elements_;  // with pad lanes
  std::pmr::memory_resource* memory_;
  void* data_;
};

/// Of two plain tensors of one shape: the norm of the difference over the norm of what is wanted. A NaN stays one.
double relative_error(const ConvTensor& got, const ConvTensor& wanted);

}  // namespace convolume::bench
