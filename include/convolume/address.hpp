// Where the data of a view begins: now, or once a task has provided the memory.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <type_traits>

namespace convolume {

/// The begin of a view's data: a pointer, or an offset into memory that a task provides later, before all tasks that
/// use the view. T may be void. Offsets count elements; for void they count bytes.
template <class T>
class Address {
 public:
  Address(T* pointer = nullptr) noexcept
      : pointer_(pointer) {}  // NOLINT(google-explicit-constructor): a pointer is one
  /// Returns an address in the memory that `*slot` points to at the time of each use. The slot must outlive the
  /// address.
  static Address in(void* const* slot) noexcept {
    Address address;
    address.slot_ = slot;
    return address;
  }
  template <class U>
  requires(!std::is_same_v<T, U> && std::is_convertible_v<U*, T*>) Address(const Address<U>& other)
  noexcept  // NOLINT
      : pointer_(other.pointer_), slot_(other.slot_), bytes_(other.bytes_) {}

  /// Returns the pointer. An address made by in() reads its slot.
  T* get() const noexcept {
    return slot_ == nullptr ? pointer_ : static_cast<T*>(static_cast<void*>(static_cast<std::byte*>(*slot_) + bytes_));
  }
  operator T*() const noexcept { return get(); }  // NOLINT(google-explicit-constructor)
  /// Returns bound(). A condition never reads the slot.
  explicit operator bool() const noexcept { return bound(); }
  template <class B>
  requires std::is_same_v<B, bool>
  operator B() const = delete;  // NOLINT: by way of T*, `bool b = address` would read the slot
  /// Moves the address by `elements` elements, which may be negative.
  Address& operator+=(std::int64_t elements) noexcept {
    const std::int64_t bytes = elements * element_bytes();
    if (slot_ != nullptr) {
      bytes_ += bytes;
    } else {
      using Byte = std::conditional_t<std::is_const_v<T>, const std::byte, std::byte>;
      pointer_ = reinterpret_cast<T*>(reinterpret_cast<Byte*>(pointer_) + bytes);
    }
    return *this;
  }
  /// Returns whether there is memory, or will be when the tasks run.
  bool bound() const noexcept { return slot_ != nullptr || pointer_ != nullptr; }
  /// Returns whether both refer to the same place: the same pointer, or the same offset behind the same slot. Never
  /// reads a slot.
  template <class U>
  bool same_place(const Address<U>& other) const noexcept {
    return pointer_ == other.pointer_ && slot_ == other.slot_ && bytes_ == other.bytes_;
  }
  /// Returns the bytes from `other` to this address if they are known: if both are pointers, or lie behind the same
  /// slot. Never reads a slot.
  template <class U>
  std::optional<std::int64_t> bytes_from(const Address<U>& other) const noexcept {
    if (slot_ != other.slot_) return std::nullopt;
    if (slot_ != nullptr) return bytes_ - other.bytes_;
    return static_cast<std::int64_t>(reinterpret_cast<std::uintptr_t>(pointer_) -
                                     reinterpret_cast<std::uintptr_t>(other.pointer_));
  }
  /// Returns the same place as an address of elements of type U.
  template <class U>
  Address<U> as() const noexcept {
    Address<U> address(static_cast<U*>(pointer_));
    address.slot_ = slot_;
    address.bytes_ = bytes_;
    return address;
  }

 private:
  template <class>
  friend class Address;
  static constexpr std::int64_t element_bytes() noexcept {
    if constexpr (std::is_void_v<T>) {
      return 1;
    } else {
      return static_cast<std::int64_t>(sizeof(T));
    }
  }

  T* pointer_ = nullptr;
  void* const* slot_ = nullptr;
  std::int64_t bytes_ = 0;  // offset from *slot_
};

}  // namespace convolume
