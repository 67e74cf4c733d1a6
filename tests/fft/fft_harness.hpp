// Runs a transform on buffers of exactly the promised size, filled with NaN, and checks what it has written.
#pragma once

#include <array>
#include <cstring>
#include <functional>
#include <memory>
#include <new>
#include <numeric>
#include <sstream>
#include <string>
#include <thread>
#include <vector>

#include "convolume/cpu.hpp"
#include "tests/fft/fft_reference.hpp"

namespace convolume::test {

/// Selects one instruction set until the end of the scope, and keeps plans for other instruction sets out of the cache.
class SimdScope {
 public:
  explicit SimdScope(const std::string& name) : before_(simd_target()) {
    fft::set_plan_cache_capacity(0);
    set_simd_target(name);
  }
  ~SimdScope() {
    set_simd_target(before_);
    fft::set_plan_cache_capacity(256);
  }
  SimdScope(const SimdScope&) = delete;
  SimdScope& operator=(const SimdScope&) = delete;

 private:
  std::string before_;
};

/// A backend, and the instruction set of the native one.
struct Way {
  fft::Backend backend;
  std::string target;
  std::string name() const { return (backend == fft::Backend::native ? "native " : "fftw beside ") + target; }
};

/// Returns the native backend on every instruction set of the machine, best first, and FFTW.
inline std::vector<Way> all_ways() {
  std::vector<Way> ways;
  for (const auto& target : available_simd_targets()) ways.push_back({fft::Backend::native, target});
  ways.push_back({fft::Backend::fftw, simd_target()});
  return ways;
}

inline constexpr std::array all_kinds{fft::Kind::r2c, fft::Kind::c2r, fft::Kind::c2c_forward, fft::Kind::c2c_backward};
inline constexpr std::array all_prime_algorithms{fft::PrimeAlgorithm::automatic, fft::PrimeAlgorithm::generic,
                                                 fft::PrimeAlgorithm::rader, fft::PrimeAlgorithm::rader_padded,
                                                 fft::PrimeAlgorithm::bluestein};

inline fft::Kind opposite(fft::Kind kind) {
  switch (kind) {
    case fft::Kind::r2c:
      return fft::Kind::c2r;
    case fft::Kind::c2r:
      return fft::Kind::r2c;
    case fft::Kind::c2c_forward:
      return fft::Kind::c2c_backward;
    default:
      return fft::Kind::c2c_forward;
  }
}

inline const char* name_of(fft::Kind kind) {
  constexpr const char* names[] = {"r2c", "c2r", "c2c_forward", "c2c_backward"};
  return names[static_cast<int>(kind)];
}

inline std::string to_text(const fft::Problem& p) {
  std::ostringstream text;
  const auto three = [&](const char* name, const Extent3& e) {
    text << ' ' << name << " {" << e.z << ", " << e.y << ", " << e.x << '}';
  };
  text << (p.type == DataType::f32 ? "f32 " : "f64 ") << name_of(p.kind);
  three("extent", p.extent);
  text << (p.order == fft::Order::rotated ? " rotated" : " natural") << " batch " << p.batch << " space_distance "
       << p.space_distance << " spectrum_distance " << p.spectrum_distance;
  three("space_stride", p.space_stride);
  three("spectrum_stride", p.spectrum_stride);
  three("support", p.support);
  text << (p.in_place ? " in_place" : "") << (p.unaligned ? " unaligned" : "");
  return text.str();
}

/// A buffer of exactly `bytes` bytes, aligned to 64 bytes plus `offset` elements.
template <class T>
class Buffer {
 public:
  explicit Buffer(std::size_t bytes, index_t offset = 0)
      : memory_(static_cast<T*>(
            ::operator new (bytes + static_cast<std::size_t>(offset) * sizeof(T), std::align_val_t{64}))),
        data_(memory_.get() + offset),
        size_(static_cast<index_t>(bytes / sizeof(T))) {
    fill(std::numeric_limits<T>::quiet_NaN());
  }
  void fill(T value) const { std::fill_n(data_, size_, value); }
  T* data() const { return data_; }
  index_t size() const { return size_; }
  T& operator[](index_t i) const { return data_[i]; }

 private:
  struct Delete {
    void operator()(T* p) const { ::operator delete (p, std::align_val_t{64}); }
  };
  std::unique_ptr<T, Delete> memory_;
  T* data_;
  index_t size_;
};

/// Positions of the points on one side (space or spectrum), as the interface defines them.
struct Side {
  index_t batch;
  Extent3 extent, stride;
  index_t distance;
  index_t scalars;  // per element: 1 for real, 2 for complex

  index_t at(index_t b, index_t z, index_t y, index_t x) const {
    return scalars * (b * distance + z * stride.z + y * stride.y + x * stride.x);
  }
};

inline Side space_side(const fft::Problem& p) {
  Side side{p.batch, p.extent, p.space_stride, p.space_distance, is_real(p) ? 1 : 2};
  const index_t row = p.in_place && is_real(p) ? 2 * (p.extent.x / 2 + 1) : p.extent.x;
  if (side.stride.x == 0) side.stride.x = 1;
  if (side.stride.y == 0) side.stride.y = row * side.stride.x;
  if (side.stride.z == 0) side.stride.z = side.stride.y * p.extent.y;
  if (side.distance == 0) {
    const Extent3 last = p.extent - Extent3::all(1);
    const index_t span = 1 + side.stride.z * last.z + side.stride.y * last.y + side.stride.x * last.x;
    // Permuted strides may reach further than the number of planes times their distance.
    side.distance = p.in_place ? side.stride.z * p.extent.z : std::max(side.stride.z * p.extent.z, span);
  }
  return side;
}

inline Side spectrum_side(const fft::Plan& plan) {
  const fft::Problem& p = plan.problem();
  Side side{p.batch, spectrum_extent(p), plan.spectrum_stride(), p.spectrum_distance, 2};
  if (side.distance == 0) side.distance = plan.spectrum_elements();
  if (p.in_place) side.distance = space_side(p).distance / (is_real(p) ? 2 : 1);
  return side;
}

/// Returns how many times the promised error is tolerated. FFTW's accuracy is beyond our control.
inline double slack(const fft::Plan& plan) {
  const std::string text = plan.describe();
  const auto names = [&](const char* word) { return text.find(word) != std::string::npos; };
  if (names("fftw")) return 2;
  // Without fused multiply-adds every product is rounded once more.
  return names("SSE4") || names("SCALAR") || names("EMU128") ? 1.25 : 1;
}

/// Executes a plan on buffers, with its own scratch.
using Execute = std::function<void(const fft::Plan& plan, const void* in, void* out)>;

/// Calls execute() with scratch full of NaN.
inline void serially(const fft::Plan& plan, const void* in, void* out) {
  const Buffer<float> scratch(plan.scratch_bytes());
  plan.execute(in, out, scratch.data());
}

/// Returns a function that calls execute() with `workers` threads. They take chunks of 1, 2, 3, 1, ... items.
inline Execute with_workers(int workers) {
  return [workers](const fft::Plan& plan, const void* in, void* out) {
    const Buffer<float> scratch(plan.scratch_bytes(workers));
    plan.execute(in, out, scratch.data(), workers, [workers](index_t items, const fft::RangeBody& body) {
      std::vector<std::thread> threads;
      for (int w = 0; w < workers; ++w) {
        threads.emplace_back([&, w] {
          index_t begin = 0;
          for (int chunk = 0; begin < items; ++chunk) {
            const index_t end = std::min(items, begin + 1 + chunk % 3);
            if (chunk % workers == w) body(begin, end, w);
            begin = end;
          }
        });
      }
      for (auto& thread : threads) thread.join();
    });
  };
}

enum class Items { reversed, shuffled };

/// Returns a function that calls run() item by item, each time with temporaries full of NaN.
inline Execute item_by_item(Items items, std::uint64_t seed = 0) {
  return [items, seed](const fft::Plan& plan, const void* in, void* out) {
    const Buffer<float> shared(plan.shared_bytes());
    for (int pass = 0; pass < plan.passes(); ++pass) {
      std::vector<index_t> sequence(static_cast<std::size_t>(plan.pass_items(pass)));
      std::iota(sequence.rbegin(), sequence.rend(), 0);
      for (std::size_t i = sequence.size(); items == Items::shuffled && i > 1; --i) {
        const RandomKey key{.seed = seed, .a = static_cast<std::uint32_t>(pass)};
        std::swap(sequence[i - 1], sequence[static_cast<std::size_t>(uniform_below(key, i, i))]);
      }
      for (const index_t item : sequence) {
        const Buffer<float> worker(plan.worker_bytes());
        plan.run(pass, item, item + 1, in, out, shared.data(), worker.data());
      }
    }
  };
}

/// The output of a transform, and what it did wrong besides.
template <class T>
struct Outcome {
  std::vector<std::complex<T>> out;  // dense, as Sample::out
  std::string complaint;
};

namespace harness {

template <class T>
constexpr T sentinel = T(-77777);

/// Returns which scalars of the buffer belong to points.
template <class T>
std::vector<bool> covered(const Buffer<T>& buffer, const Side& side) {
  std::vector<bool> held(static_cast<std::size_t>(buffer.size()));
  for_points(side.batch, side.extent, [&](std::size_t, index_t b, index_t z, index_t y, index_t x) {
    for (index_t s = 0; s < side.scalars; ++s) held.at(static_cast<std::size_t>(side.at(b, z, y, x) + s)) = true;
  });
  return held;
}

/// Writes dense points to their positions; on the space side only points of the support.
template <class T>
void scatter(const std::vector<std::complex<T>>& points, const fft::Problem& p, const Side& side, bool space,
             const Buffer<T>& buffer) {
  for_points(side.batch, side.extent, [&](std::size_t i, index_t b, index_t z, index_t y, index_t x) {
    if (space && !in_support(p, z, y, x)) return;
    buffer[side.at(b, z, y, x)] = points[i].real();
    if (side.scalars == 2) buffer[side.at(b, z, y, x) + 1] = points[i].imag();
  });
}

template <class T>
std::vector<std::complex<T>> gather(const fft::Problem& p, const Side& side, bool space, const Buffer<T>& buffer) {
  std::vector<std::complex<T>> points;
  for_points(side.batch, side.extent, [&](std::size_t, index_t b, index_t z, index_t y, index_t x) {
    if (space && !in_support(p, z, y, x)) {
      points.emplace_back(0);
    } else {
      const index_t at = side.at(b, z, y, x);
      points.emplace_back(buffer[at], side.scalars == 2 ? buffer[at + 1] : T{0});
    }
  });
  return points;
}

/// Returns which scalars are padding behind the lines of a dense rotated spectrum.
template <class T>
std::vector<bool> padding(const fft::Plan& plan, const Buffer<T>& spectrum, const std::vector<bool>& held) {
  const fft::Problem& p = plan.problem();
  std::vector<bool> pads(held.size());
  if (p.order == fft::Order::natural || p.spectrum_stride != Extent3{0, 0, 0}) return pads;
  const index_t distance = spectrum_side(plan).distance;
  for (index_t i = 0; i < spectrum.size(); ++i) {
    const auto at = static_cast<std::size_t>(i);
    pads[at] = !held[at] && i / 2 % distance < plan.spectrum_elements();
  }
  return pads;
}

/// Reports the first scalar between points that was written, or the first padding that is not finite.
template <class T>
std::string look_at_gaps(const Buffer<T>& buffer, const std::vector<bool>& held, const std::vector<bool>& pads) {
  for (index_t i = 0; i < buffer.size(); ++i) {
    const auto at = static_cast<std::size_t>(i);
    if (pads[at] && !std::isfinite(buffer[i])) return "padding is not finite at scalar " + std::to_string(i);
    if (!pads[at] && !held[at] && buffer[i] != sentinel<T>) {
      return "scalar " + std::to_string(i) + " lies between points and was written";
    }
  }
  return {};
}

template <class T>
Outcome<T> run_in_place(const fft::Plan& plan, const std::vector<std::complex<T>>& in, const Execute& execute) {
  const fft::Problem& p = plan.problem();
  const Side space = space_side(p), spectrum = spectrum_side(plan);
  const bool forward = is_forward(p);
  const Buffer<T> memory(plan.space_bytes(), p.unaligned ? 1 : 0);
  if (plan.space_bytes() != plan.spectrum_bytes()) return {{}, "in place, both sides must have the same bytes"};
  std::vector<bool> held = covered(memory, space);
  const std::vector<bool> more = covered(memory, spectrum);
  for (std::size_t i = 0; i < held.size(); ++i) {
    if (more[i]) held[i] = true;
    if (!held[i]) memory[static_cast<index_t>(i)] = sentinel<T>;
  }
  scatter(in, p, forward ? space : spectrum, forward, memory);
  execute(plan, memory.data(), memory.data());
  return {gather(p, forward ? spectrum : space, !forward, memory),
          look_at_gaps(memory, held, std::vector<bool>(held.size()))};
}

}  // namespace harness

/// Executes a plan on input whose unused scalars are NaN. The points of the output are NaN first, and its gaps are
/// checked.
template <class T>
Outcome<T> run(const fft::Plan& plan, const std::vector<std::complex<T>>& in, const Execute& execute = serially) {
  using namespace harness;
  const fft::Problem& p = plan.problem();
  if (p.in_place) return run_in_place(plan, in, execute);
  const Side space = space_side(p), spectrum = spectrum_side(plan);
  const bool forward = is_forward(p);
  const Side& from = forward ? space : spectrum;
  const Side& to = forward ? spectrum : space;
  const index_t offset = p.unaligned ? 1 : 0;
  const Buffer<T> input(forward ? plan.space_bytes() : plan.spectrum_bytes(), offset);
  const Buffer<T> output(forward ? plan.spectrum_bytes() : plan.space_bytes(), offset);
  scatter(in, p, from, forward, input);
  std::vector<bool> held = covered(output, to);
  if (!forward) {
    // Points outside the support must not be written either.
    for_points(to.batch, to.extent, [&](std::size_t, index_t b, index_t z, index_t y, index_t x) {
      for (index_t s = 0; s < to.scalars && !in_support(p, z, y, x); ++s) {
        held[static_cast<std::size_t>(to.at(b, z, y, x) + s)] = false;
      }
    });
  }
  const std::vector<bool> pads = forward ? padding(plan, output, held) : std::vector<bool>(held.size());
  for (std::size_t i = 0; i < held.size(); ++i) {
    if (!held[i] && !pads[i]) output[static_cast<index_t>(i)] = sentinel<T>;
  }
  const Buffer<T> before(static_cast<std::size_t>(input.size()) * sizeof(T));
  const auto bytes = static_cast<std::size_t>(input.size()) * sizeof(T);
  std::memcpy(before.data(), input.data(), bytes);
  execute(plan, input.data(), output.data());
  Outcome<T> outcome{gather(p, to, !forward, output), look_at_gaps(output, held, pads)};
  if (std::memcmp(before.data(), input.data(), bytes) != 0) outcome.complaint += " the input was written";
  return outcome;
}

/// Returns whether two results have the same bits.
template <class T>
bool same_bits(const std::vector<std::complex<T>>& a, const std::vector<std::complex<T>>& b) {
  return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size() * sizeof(a[0])) == 0;
}

}  // namespace convolume::test
