// Extents, strided 5-D views and owning tensors. The axis order is (N, C, Z, Y, X), X fastest, as in PyTorch's NCDHW.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory_resource>
#include <string>
#include <type_traits>

#include "convolume/address.hpp"
#include "convolume/error.hpp"

namespace convolume {

using index_t = std::int64_t;  ///< sizes, strides and positions, in elements unless a name says otherwise

/// Element types: float (4 bytes) and double (8 bytes).
enum class DataType { f32, f64 };

/// Memory layouts. `plain` is N C Z Y X. `blocked` is N C/16 Z Y X 16c (8c for f64), with pad lanes zero.
enum class Layout { plain, blocked };

CONVOLUME_API const char* name_of(DataType type) noexcept;
CONVOLUME_API const char* name_of(Layout layout) noexcept;
constexpr std::size_t size_of(DataType type) noexcept { return type == DataType::f32 ? 4 : 8; }
/// Returns the number of channels in a block of the blocked layout: 64 bytes of one voxel.
constexpr index_t channel_block(DataType type) noexcept { return type == DataType::f32 ? 16 : 8; }
/// Returns the layout that nets and benchmarks give a tensor if no operation requires another one. Tensors with few
/// channels stay plain, because much of a block would be padding.
constexpr Layout usual_layout(index_t channels) noexcept { return channels < 8 ? Layout::plain : Layout::blocked; }

/// An element-wise function that can be fused into a convolution. Its gradient follows from its output alone.
struct Activation {
  enum class Kind { none, relu, leaky_relu, sigmoid, tanh, softsign };  ///< numbered as in the C API
  static constexpr Kind last_kind = Kind::softsign;
  Kind kind = Kind::none;
  double slope = 0.01;  ///< slope of leaky_relu for negative input; must be positive
  friend constexpr bool operator==(const Activation&, const Activation&) = default;
};

CONVOLUME_API const char* name_of(Activation::Kind kind) noexcept;

template <class T>
constexpr DataType data_type_of() noexcept {
  static_assert(std::is_same_v<T, float> || std::is_same_v<T, double>);
  return std::is_same_v<T, float> ? DataType::f32 : DataType::f64;
}

/// Three numbers along (Z, Y, X), for example an extent, a kernel, a stride or a padding.
struct Extent3 {
  index_t z = 1, y = 1, x = 1;

  static constexpr Extent3 all(index_t n) noexcept { return {n, n, n}; }
  constexpr index_t operator[](int axis) const noexcept { return axis == 0 ? z : axis == 1 ? y : x; }
  constexpr index_t& operator[](int axis) noexcept { return axis == 0 ? z : axis == 1 ? y : x; }
  /// Returns the product of the three numbers. Throws OverflowError if it does not fit.
  CONVOLUME_API index_t volume() const;
  friend constexpr bool operator==(const Extent3&, const Extent3&) = default;
  friend constexpr Extent3 operator+(Extent3 a, Extent3 b) noexcept { return {a.z + b.z, a.y + b.y, a.x + b.x}; }
  friend constexpr Extent3 operator-(Extent3 a, Extent3 b) noexcept { return {a.z - b.z, a.y - b.y, a.x - b.x}; }
  friend constexpr Extent3 operator*(Extent3 a, Extent3 b) noexcept { return {a.z * b.z, a.y * b.y, a.x * b.x}; }
};

CONVOLUME_API std::string to_string(const Extent3& extent);  ///< "8 x 128 x 128"

/// Extents of a tensor: batch, channels, voxels.
struct Shape5 {
  index_t n = 1, c = 1;
  Extent3 extent{};
  /// Returns the number of elements in the plain layout. Throws OverflowError if it does not fit.
  CONVOLUME_API index_t elements() const;
  friend constexpr bool operator==(const Shape5&, const Shape5&) = default;
};

CONVOLUME_API std::string to_string(const Shape5& shape);  ///< "1 x 16 x 8 x 128 x 128"

/// Returns the number of elements that a dense tensor of this layout stores, pad lanes included. Throws OverflowError
/// if it does not fit.
CONVOLUME_API index_t stored_elements(const Shape5& shape, Layout layout, DataType type);

/// A non-owning strided view of a 5-D tensor. A copy refers to the same memory. Access is as thread-safe as the memory.
template <class T>
struct View {
  /// Channels in a block of the blocked layout.
  static constexpr index_t lanes = 64 / sizeof(T);

  Address<T> data{};
  Shape5 shape{.n = 0, .c = 0, .extent = {0, 0, 0}};
  /// Strides in elements, in axis order. In a blocked view, stride[1] lies between channel blocks and stride[4] is
  /// `lanes`.
  std::array<index_t, 5> stride{};
  Layout layout = Layout::plain;

  View() = default;
  View(Address<T> address, Shape5 s, std::array<index_t, 5> strides, Layout l = Layout::plain)
      : data(address), shape(s), stride(strides), layout(l) {}
  /// Makes a dense view, whose strides follow from the shape.
  View(Address<T> address, Shape5 s, Layout l = Layout::plain) : data(address), shape(s), layout(l) {
    const index_t voxel = l == Layout::plain ? 1 : lanes, row = s.extent.x * voxel, plane = s.extent.y * row,
                  block = s.extent.z * plane;
    stride = {blocks() * block, block, plane, row, voxel};
  }
  template <class U>
  requires(std::is_const_v<T>&& std::is_same_v<std::remove_const_t<T>, U>) View(const View<U>& other)
      : data(other.data), shape(other.shape), stride(other.stride), layout(other.layout) {}  // NOLINT: T* to const T*

  explicit operator bool() const noexcept { return data.bound(); }
  T& operator()(index_t n, index_t c, index_t z, index_t y, index_t x) const noexcept {
    return channel(n, c)[z * stride[2] + y * stride[3] + x * stride[4]];
  }
  /// Returns the address of the first voxel of a feature map.
  T* channel(index_t n, index_t c) const noexcept {
    return data + n * stride[0] + (layout == Layout::plain ? c * stride[1] : c / lanes * stride[1] + c % lanes);
  }
  /// Returns the number of channels that lie side by side at a voxel; 1 in the plain layout.
  index_t block_channels() const noexcept { return layout == Layout::plain ? 1 : lanes; }
  /// Returns the number of channel blocks of a sample.
  index_t blocks() const noexcept { return (shape.c + block_channels() - 1) / block_channels(); }
  /// Returns the address of voxel 0 of a channel block; in the plain layout, of a feature map.
  T* block(index_t n, index_t b) const noexcept { return data + n * stride[0] + b * stride[1]; }
  /// Returns whether the voxels of a channel block lie side by side without gaps.
  bool dense_blocks() const noexcept {
    return stride[4] == block_channels() && stride[3] == shape.extent.x * stride[4] &&
           stride[2] == shape.extent.y * stride[3];
  }
};

template <class T>
View(T*, Shape5) -> View<T>;
template <class T>
View(T*, Shape5, Layout) -> View<T>;
template <class T>
View(T*, Shape5, std::array<index_t, 5>) -> View<T>;
template <class T>
View(T*, Shape5, std::array<index_t, 5>, Layout) -> View<T>;

/// A view whose element type is known at run time, as plans take it. It converts from View<float> and View<double>. Its
/// addresses are untyped; its strides count elements, as those of View.
template <bool Const>
struct BasicTensorView {
  template <class T>
  using Element = std::conditional_t<Const, const T, T>;
  using Pointer = Element<void>*;

  Address<Element<void>> data{};
  DataType type = DataType::f32;
  Shape5 shape{.n = 0, .c = 0, .extent = {0, 0, 0}};
  std::array<index_t, 5> stride{};
  Layout layout = Layout::plain;

  BasicTensorView() = default;
  BasicTensorView(Address<Element<void>> address, DataType t, Shape5 s, std::array<index_t, 5> strides,
                  Layout l = Layout::plain)
      : data(address), type(t), shape(s), stride(strides), layout(l) {}
  /// Makes a dense view, whose strides follow from the shape.
  BasicTensorView(Address<Element<void>> address, DataType t, Shape5 s, Layout l = Layout::plain)
      : BasicTensorView(t == DataType::f32 ? dense<float>(address, s, l) : dense<double>(address, s, l)) {}
  template <class T>
  requires(Const || !std::is_const_v<T>)
      BasicTensorView(const View<T>& view)  // NOLINT(google-explicit-constructor): every view is a tensor view
      : data(view.data),
        type(data_type_of<std::remove_const_t<T>>()),
        shape(view.shape),
        stride(view.stride),
        layout(view.layout) {}
  template <bool OtherConst>
  requires(Const && !OtherConst) BasicTensorView(const BasicTensorView<OtherConst>& other)  // NOLINT
      : data(other.data), type(other.type), shape(other.shape), stride(other.stride), layout(other.layout) {}

  explicit operator bool() const noexcept { return data.bound(); }
  /// Returns the typed view. Throws ShapeMismatch if T is not the element type.
  template <class T>
  View<Element<T>> as() const {
    if (type != data_type_of<T>()) {
      throw ShapeMismatch(std::string("tensor view: holds ") + name_of(type) + ", asked for as " +
                          name_of(data_type_of<T>()));
    }
    return {data.template as<Element<T>>(), shape, stride, layout};
  }
  /// Calls f with the typed view and returns its result, which has the same type for both element types.
  template <class F>
  decltype(auto) visit(const F& f) const {
    return type == DataType::f32 ? f(as<float>()) : f(as<double>());
  }

  /// Returns the number of lanes of a blocked voxel.
  index_t lanes() const noexcept { return channel_block(type); }
  /// The same functions as in View. Those that return an address read `data`, so the memory must exist.
  Pointer at(index_t n, index_t c, index_t z, index_t y, index_t x) const noexcept {
    return visit([&](const auto& view) -> Pointer { return &view(n, c, z, y, x); });
  }
  Pointer channel(index_t n, index_t c) const noexcept {
    return visit([&](const auto& view) -> Pointer { return view.channel(n, c); });
  }
  index_t block_channels() const noexcept {
    return visit([](const auto& view) { return view.block_channels(); });
  }
  index_t blocks() const noexcept {
    return visit([](const auto& view) { return view.blocks(); });
  }
  Pointer block(index_t n, index_t b) const noexcept {
    return visit([&](const auto& view) -> Pointer { return view.block(n, b); });
  }
  bool dense_blocks() const noexcept {
    return visit([](const auto& view) { return view.dense_blocks(); });
  }

 private:
  template <class T>
  static BasicTensorView dense(const Address<Element<void>>& address, const Shape5& s, Layout l) noexcept {
    return View<Element<T>>(address.template as<Element<T>>(), s, l);
  }
};
using TensorView = BasicTensorView<false>;
using ConstTensorView = BasicTensorView<true>;

/// An owning dense tensor, aligned to 64 bytes. Movable, not copyable. The initial values are undefined, also in pad
/// lanes, until convert() (convert.hpp) or another operation writes them.
template <class T>
class Tensor {
 public:
  Tensor() = default;
  explicit Tensor(Shape5 shape, std::pmr::memory_resource* memory = std::pmr::get_default_resource())
      : Tensor(shape, Layout::plain, memory) {}
  Tensor(Shape5 shape, Layout layout, std::pmr::memory_resource* memory = std::pmr::get_default_resource())
      : memory_(memory), shape_(shape), layout_(layout), elements_(stored_elements(shape, layout, data_type_of<T>())) {
    data_ = static_cast<T*>(memory_->allocate(bytes(), 64));
  }
  Tensor(Tensor&& other) noexcept { swap(other); }
  Tensor& operator=(Tensor&& other) noexcept {
    Tensor(std::move(other)).swap(*this);
    return *this;
  }
  Tensor(const Tensor&) = delete;
  Tensor& operator=(const Tensor&) = delete;
  ~Tensor() {
    if (data_ != nullptr) memory_->deallocate(data_, bytes(), 64);
  }

  T* data() noexcept { return data_; }
  const T* data() const noexcept { return data_; }
  index_t elements() const noexcept { return elements_; }  ///< as stored, pad lanes included
  const Shape5& shape() const noexcept { return shape_; }
  Layout layout() const noexcept { return layout_; }
  View<T> view() noexcept { return {data_, shape_, layout_}; }
  View<const T> view() const noexcept { return {data_, shape_, layout_}; }
  explicit operator bool() const noexcept { return data_ != nullptr; }
  operator View<T>() noexcept { return view(); }                // NOLINT
  operator View<const T>() const noexcept { return view(); }    // NOLINT
  operator TensorView() noexcept { return view(); }             // NOLINT
  operator ConstTensorView() const noexcept { return view(); }  // NOLINT
  void fill(T value) noexcept {
    for (index_t i = 0; i < elements_; ++i) data_[i] = value;
  }

 private:
  std::size_t bytes() const noexcept { return static_cast<std::size_t>(elements_) * sizeof(T); }
  void swap(Tensor& other) noexcept {
    std::swap(memory_, other.memory_);
    std::swap(data_, other.data_);
    std::swap(shape_, other.shape_);
    std::swap(layout_, other.layout_);
    std::swap(elements_, other.elements_);
  }

  std::pmr::memory_resource* memory_ = nullptr;
  T* data_ = nullptr;
  Shape5 shape_{.n = 0, .c = 0, .extent = {0, 0, 0}};
  Layout layout_ = Layout::plain;
  index_t elements_ = 0;
};

}  // namespace convolume
