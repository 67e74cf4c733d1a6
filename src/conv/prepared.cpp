#include "conv/prepared.hpp"

#include <fmt/format.h>
#include <xxhash.h>

namespace convolume {
namespace conv {

void BufferStore::init(std::pmr::memory_resource* memory, std::size_t buffers, std::size_t bytes_each) {
  release();
  memory_ = memory;
  slot_ = nullptr;
  bytes_each_ = bytes_each;
  buffers_.assign(buffers, nullptr);
}

void* BufferStore::acquire(std::size_t index) {
  if (slot_ != nullptr) return at_slot(index);
  void*& buffer = buffers_[index];
  if (buffer == nullptr) buffer = memory_->allocate(bytes_each_, 64);
  return buffer;
}

void BufferStore::throw_never_filled() {
  throw StaleCache(
      "convolution: a cache is read that holds nothing (never filled, released, or left by a failed run); "
      "run forward with these spectra, or prepare these weights, first");
}

void BufferStore::place(std::byte* memory) noexcept {
  release();
  memory_ = nullptr;
  slot_ = nullptr;
  for (void*& buffer : buffers_) {
    buffer = memory;
    memory += stride();
  }
}

void BufferStore::place_in(void* const* slot) noexcept {
  release();
  memory_ = nullptr;
  slot_ = slot;
}

void BufferStore::release() noexcept {
  if (memory_ == nullptr) return;
  for (void*& buffer : buffers_) {
    if (buffer != nullptr) memory_->deallocate(buffer, bytes_each_, 64);
    buffer = nullptr;
  }
}

std::size_t BufferStore::bytes() const noexcept {
  std::size_t held = 0;
  for (const void* buffer : buffers_) held += buffer != nullptr ? bytes_each_ : 0;
  return held;
}

RunBuffers::RunBuffers(TaskGraph& graph, Workspace* workspace, std::shared_ptr<BufferStore> store)
    : workspace_(workspace), store_(std::move(store)) {
  if (workspace_ == nullptr || store_->capacity() == 0) return;
  place_ = workspace_->take(graph, store_->capacity());
  if (place_.slot != nullptr) store_->place_in(place_.slot);
}

void RunBuffers::end(TaskGraph& graph, const char* name, std::span<const TaskId> last) const {
  if (place_.slot != nullptr) return workspace_->free(graph, place_, last);
  if (store_->capacity() == 0) return;
  graph.add(
      {.name = name, .task_class = TaskClass::release}, [store = store_] { store->release(); }, last);
}

namespace {

/// Memory for a cache of so many bytes.
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

}  // namespace

std::uint64_t hash_map(const ConstTensorView& tensor, index_t n, index_t c) {
  const auto size = size_of(tensor.type);
  const auto voxel = tensor.layout == Layout::blocked ? static_cast<std::size_t>(channel_block(tensor.type)) : 1;
  const auto* base = tensor.data.template as<const std::byte>().get() +
                     static_cast<std::size_t>(n * tensor.stride[0] + c * tensor.stride[1]) * size;
  std::uint64_t hash = 0;
  const Extent3& e = tensor.shape.extent;
  for (index_t z = 0; z < e.z; ++z) {
    for (index_t y = 0; y < e.y; ++y) {
      const auto offset = static_cast<std::size_t>(z * tensor.stride[2] + y * tensor.stride[3]) * size;
      hash = XXH3_64bits_withSeed(base + offset, static_cast<std::size_t>(e.x) * voxel * size, hash);
    }
  }
  return hash;
}

std::uint64_t hash_tensor(const ConstTensorView& tensor) {
  const index_t block = tensor.layout == Layout::blocked ? channel_block(tensor.type) : 1;
  std::uint64_t hash = 0;
  for (index_t n = 0; n < tensor.shape.n; ++n) {
    for (index_t c = 0; c * block < tensor.shape.c; ++c) hash = hash * 0x9e3779b97f4a7c15u + hash_map(tensor, n, c);
  }
  return hash;
}

}  // namespace conv

Spectra::Spectra() : impl_(std::make_unique<Impl>()) {}
Spectra::~Spectra() = default;
Spectra::Spectra(Spectra&&) noexcept = default;
Spectra& Spectra::operator=(Spectra&&) noexcept = default;
std::uint64_t Spectra::version() const noexcept { return impl_ ? impl_->version.load(std::memory_order_relaxed) : 0; }
std::size_t Spectra::bytes() const noexcept { return impl_ ? conv::bytes_of_cache(*impl_) : 0; }
std::size_t Spectra::capacity() const noexcept { return impl_ ? conv::capacity_of(*impl_) : 0; }
void Spectra::place(void* memory) {
  if (impl_) conv::place_cache(*impl_, conv::checked_place(memory, capacity()));
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
  if (impl_) conv::place_cache(*impl_, conv::checked_place(memory, capacity()));
}
void PreparedWeights::release() noexcept {
  if (impl_) conv::release_cache(*impl_);
}

}  // namespace convolume
