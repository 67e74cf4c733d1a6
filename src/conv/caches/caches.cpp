#include "conv/caches/caches.hpp"

#include <fmt/format.h>

namespace convolume {
namespace conv {

namespace {

/// Returns `memory` if it is suitable for a cache of `bytes` bytes. Throws InvalidArgument otherwise.
std::byte* checked_place(void* memory, std::size_t bytes) {
  constexpr std::uintptr_t alignment = 64;
  if (bytes == 0) return static_cast<std::byte*>(memory);
  if (memory == nullptr) {
    throw InvalidArgument(fmt::format("place: no memory for {} bytes; hand in capacity() bytes", bytes));
  }
  if (reinterpret_cast<std::uintptr_t>(memory) % alignment != 0) {
    throw InvalidArgument(fmt::format("place: memory at {} is not aligned to {} bytes", memory, alignment));
  }
  return static_cast<std::byte*>(memory);
}

/// Returns the bytes of the stores that backward passes do not read.
std::size_t forward_bytes(const PreparedWeights::Impl& weights) noexcept {
  std::size_t bytes = weights.forward_only_spectra ? weights.spectra.capacity() : 0;
  for (const auto& group : weights.groups) bytes += forward_bytes(*group);
  return bytes;
}

}  // namespace

}  // namespace conv

Spectra::Spectra() : impl_(std::make_unique<Impl>()) {}
Spectra::~Spectra() = default;
Spectra::Spectra(Spectra&&) noexcept = default;
Spectra& Spectra::operator=(Spectra&&) noexcept = default;
std::uint64_t Spectra::version() const noexcept { return impl_ ? impl_->version.load(std::memory_order_relaxed) : 0; }
std::size_t Spectra::bytes() const noexcept { return impl_ ? conv::bytes_of_cache(*impl_) : 0; }
std::size_t Spectra::capacity() const noexcept { return impl_ ? conv::capacity_of(*impl_) : 0; }
void Spectra::place(void* memory) {
  if (!impl_) return;
  std::byte* next = conv::checked_place(memory, capacity());
  conv::place_cache(*impl_, [&](const Impl&, const conv::BufferStore&) -> std::byte*& { return next; });
}
void Spectra::release() noexcept {
  if (impl_) conv::release_cache(*impl_);
}

PreparedWeights::PreparedWeights() : impl_(std::make_unique<Impl>()) {}
PreparedWeights::~PreparedWeights() = default;
PreparedWeights::PreparedWeights(PreparedWeights&&) noexcept = default;
PreparedWeights& PreparedWeights::operator=(PreparedWeights&&) noexcept = default;
std::uint64_t PreparedWeights::version() const noexcept {
  return impl_ ? impl_->version.load(std::memory_order_relaxed) : 0;
}
std::size_t PreparedWeights::bytes() const noexcept { return impl_ ? conv::bytes_of_cache(*impl_) : 0; }
std::size_t PreparedWeights::capacity() const noexcept { return impl_ ? conv::capacity_of(*impl_) : 0; }
void PreparedWeights::place(void* memory) {
  if (!impl_) return;
  std::byte* next = conv::checked_place(memory, capacity());
  conv::place_cache(*impl_, [&](const Impl&, const conv::BufferStore&) -> std::byte*& { return next; });
}
std::size_t PreparedWeights::forward_capacity() const noexcept { return impl_ ? conv::forward_bytes(*impl_) : 0; }
void PreparedWeights::place(void* forward, void* rest) {
  if (!impl_) return;
  std::byte* next_forward = conv::checked_place(forward, forward_capacity());
  std::byte* next_rest = conv::checked_place(rest, capacity() - forward_capacity());
  conv::place_cache(*impl_, [&](const Impl& weights, const conv::BufferStore& store) -> std::byte*& {
    return weights.forward_only_spectra && &store == &weights.spectra ? next_forward : next_rest;
  });
}
void PreparedWeights::release() noexcept {
  if (impl_) conv::release_cache(*impl_);
}

}  // namespace convolume
