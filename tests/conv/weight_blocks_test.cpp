// Tests the packed weights of direct convolutions: each weight has its place, all other places are zero, and nothing is
// written behind them.
#include "conv/weights/weight_blocks.hpp"

#include <algorithm>
#include <cstdint>
#include <string>
#include <vector>

#include <catch2/catch.hpp>

#include "convolume/cpu.hpp"

using namespace convolume;
using conv::WeightBlocks;

namespace {

constexpr float canary = 1234.5F;

/// A buffer of floats, aligned to 64 bytes, with canaries behind it.
struct Guarded {
  explicit Guarded(index_t count) : size(count), all(static_cast<std::size_t>(count) + 64, canary) {}
  float* data() {
    const auto address = reinterpret_cast<std::uintptr_t>(all.data());
    return all.data() + (64 - address % 64) % 64 / sizeof(float);
  }
  bool is_whole() {
    return std::all_of(data() + size, data() + size + 16, [](float v) { return v == canary; });
  }

  index_t size;
  std::vector<float> all;
};

/// Returns the weight of a lane, a term and a tap, or 0 if there is no such channel.
float weight_of(const WeightBlocks<float>& layout, index_t lane, index_t term, index_t tap) {
  if (lane >= layout.lanes || term >= layout.terms) return 0;
  return static_cast<float>(1 + (lane * layout.terms + term) * layout.taps + tap);
}

/// Returns whether packed weights hold weight_of() each lane and term, or each term and lane if `swapped`.
bool holds(const WeightBlocks<float>& layout, const float* packed, bool swapped) {
  const WeightBlocks<float> other{.terms = layout.lanes, .lanes = layout.terms, .taps = layout.taps};
  bool all = true;
  for (index_t o = 0; o < layout.lane_blocks() * layout.block; ++o) {
    for (index_t c = 0; c < layout.term_blocks() * layout.square_terms(); ++c) {
      for (index_t tap = 0; tap < layout.taps; ++tap) {
        const index_t place =
            layout.offset(o / layout.block, c / layout.block, tap) + c % layout.block * layout.block + o % layout.block;
        all = all && packed[place] == (swapped ? weight_of(other, c, o, tap) : weight_of(layout, o, c, tap));
      }
    }
  }
  return all;
}

void check(index_t terms, index_t lanes, const Extent3& kernel, bool non_temporal) {
  const auto kernels = conv::weight_kernels<float>();
  const WeightBlocks<float> layout{.terms = terms, .lanes = lanes, .taps = kernel.volume()};
  const WeightBlocks<float> result{.terms = lanes, .lanes = terms, .taps = kernel.volume()};
  std::vector<float> w(static_cast<std::size_t>(lanes * terms * layout.taps)), back(w.size(), canary);
  for (std::size_t i = 0; i < w.size(); ++i) w[i] = static_cast<float>(1 + i);
  const Shape5 shape{lanes, terms, kernel};
  const View<const float> from(w.data(), shape);
  const View<float> to(back.data(), shape);
  Guarded packed(layout.elements()), transposed(result.elements());
  Guarded scratch(static_cast<index_t>(conv::pack_scratch_bytes(layout) / sizeof(float)));
  for (index_t o = 0; o < layout.lane_blocks(); ++o) {
    for (index_t c = 0; c < layout.term_blocks(); ++c) {
      float* squares = packed.data() + layout.offset(o, c, 0);
      kernels.pack(from, layout, o, c, non_temporal, squares, scratch.data());
      kernels.transpose(squares, layout.square_terms(), result.square_terms(), layout.taps, non_temporal,
                        transposed.data() + result.offset(c, o, 0));
      kernels.unpack(squares, layout, o, c, false, non_temporal, to, scratch.data());
    }
  }
  CHECK(holds(layout, packed.data(), false));
  CHECK(holds(result, transposed.data(), true));
  CHECK(back == w);
  for (index_t o = 0; o < layout.lane_blocks(); ++o) {
    for (index_t c = 0; c < layout.term_blocks(); ++c) {
      kernels.unpack(packed.data() + layout.offset(o, c, 0), layout, o, c, true, non_temporal, to, scratch.data());
    }
  }
  CHECK(std::equal(back.begin(), back.end(), w.begin(), [](float sum, float one) { return sum == 2 * one; }));
  CHECK((packed.is_whole() && transposed.is_whole() && scratch.is_whole()));
}

}  // namespace

TEST_CASE("weights are packed, transposed and unpacked in squares of as many terms as there are") {
  const std::string before = simd_target();
  for (const auto& target : available_simd_targets()) {
    set_simd_target(target);
    for (const index_t terms : {1, 3, 5, 15, 16, 17}) {
      for (const index_t lanes : {1, 3, 16, 17}) {
        for (const bool non_temporal : {false, true}) {
          for (const Extent3 kernel : {Extent3{1, 1, 1}, Extent3{1, 2, 3}, Extent3{3, 3, 3}}) {
            CAPTURE(target, terms, lanes, to_string(kernel), non_temporal);
            check(terms, lanes, kernel, non_temporal);
          }
        }
      }
    }
  }
  set_simd_target(before);
}
