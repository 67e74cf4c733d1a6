// An upstream memory resource that fails on demand.
#pragma once

#include <cstddef>
#include <functional>
#include <limits>
#include <map>
#include <memory_resource>
#include <new>
#include <utility>

#include <catch2/catch.hpp>

#include "convolume/memory.hpp"

/// An mmap_resource() that tracks its blocks; all of them must be freed before its end. One caller at a time, as from a
/// SlabResource.
class Upstream final : public std::pmr::memory_resource {
 public:
  Upstream() = default;
  ~Upstream() override { CHECK(held_.empty()); }
  Upstream(const Upstream&) = delete;
  Upstream& operator=(const Upstream&) = delete;

  /// Serves this many more requests and rejects the rest. If negative, it serves all.
  void refuse_after(long served) { left_ = served; }
  /// Rejects the next requests, whatever the other limits allow.
  void refuse_next(int requests) { refusals_ = requests; }
  void refuse_above(std::size_t bytes) { largest_ = bytes; }
  /// Sets an action that runs once, at the next request, before the request is answered.
  void meanwhile(std::function<void()> action) { meanwhile_ = std::move(action); }

  long served() const { return served_; }

 private:
  void* do_allocate(std::size_t bytes, std::size_t alignment) override {
    if (meanwhile_) std::exchange(meanwhile_, nullptr)();
    if (refusals_ > 0) {
      --refusals_;
      throw std::bad_alloc();
    }
    if (bytes > largest_ || left_ == 0) throw std::bad_alloc();
    if (left_ > 0) --left_;
    ++served_;
    void* memory = convolume::mmap_resource()->allocate(bytes, alignment);
    held_[memory] = bytes;
    return memory;
  }
  void do_deallocate(void* memory, std::size_t bytes, std::size_t alignment) override {
    CHECK(held_.at(memory) == bytes);
    held_.erase(memory);
    convolume::mmap_resource()->deallocate(memory, bytes, alignment);
  }
  bool do_is_equal(const memory_resource& other) const noexcept override { return this == &other; }

  long left_ = -1, served_ = 0;
  int refusals_ = 0;
  std::size_t largest_ = std::numeric_limits<std::size_t>::max();
  std::function<void()> meanwhile_;
  std::map<void*, std::size_t> held_;
};
