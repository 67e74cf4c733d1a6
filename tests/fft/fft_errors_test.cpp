// Tests that invalid problems are rejected with the name of the field or buffer, its value and the remedy.
#include <catch2/catch.hpp>

#include "tests/fft/fft_harness.hpp"

using namespace convolume;
using namespace convolume::test;
using Catch::Contains;
using fft::Plan;

namespace {

constexpr index_t huge = index_t{1} << 62;

std::string lower(std::string text) {
  for (char& c : text) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  return text;
}

/// Checks that both backends reject the problem with a message that contains all words. Case does not matter.
template <class Exception = InvalidArgument>
void check_refused(const fft::Problem& problem, const std::vector<std::string>& words) {
  for (const auto backend : {fft::Backend::native, fft::Backend::fftw}) {
    INFO(to_text(problem));
    std::string message;
    try {
      static_cast<void>(Plan::make(problem, {.backend = backend}));
      FAIL("accepted");
    } catch (const Exception& error) {
      message = lower(error.what());
    }
    for (const auto& word : words) CHECK_THAT(message, Contains(word));
  }
}

}  // namespace

TEST_CASE("extents and batches of nothing are refused") {
  check_refused({.extent = {0, 1, 1}}, {"extent.z is 0", "at least 1"});
  check_refused({.extent = {1, -2, 1}}, {"extent.y is -2"});
  check_refused({.extent = {1, 1, -3}}, {"extent.x is -3"});
  check_refused({.extent = {2, 2, 2}, .batch = 0}, {"batch is 0", "at least 1"});
  check_refused({.extent = {2, 2, 2}, .batch = -1}, {"batch is -1"});
}

TEST_CASE("negative distances, strides and supports are refused") {
  check_refused({.extent = {2, 2, 2}, .space_distance = -1}, {"space_distance is -1"});
  check_refused({.extent = {2, 2, 2}, .spectrum_distance = -8}, {"spectrum_distance is -8"});
  check_refused({.extent = {2, 2, 2}, .space_stride = {-4, 0, 0}}, {"space_stride.z is -4"});
  check_refused({.extent = {2, 2, 2}, .space_stride = {0, -2, 0}}, {"space_stride.y is -2"});
  check_refused({.extent = {2, 2, 2}, .space_stride = {0, 0, -1}}, {"space_stride.x is -1"});
  check_refused({.extent = {2, 2, 2}, .spectrum_stride = {-4, 0, 0}}, {"spectrum_stride.z is -4"});
  check_refused({.extent = {2, 2, 2}, .spectrum_stride = {0, -2, 0}}, {"spectrum_stride.y is -2"});
  check_refused({.extent = {2, 2, 2}, .spectrum_stride = {0, 0, -1}}, {"spectrum_stride.x is -1"});
  check_refused({.extent = {2, 2, 2}, .support = {-1, 0, 0}}, {"support.z is -1"});
}

TEST_CASE("a support larger than the volume is refused") {
  check_refused({.extent = {2, 3, 8}, .support = {3, 0, 0}}, {"support.z is 3"});
  check_refused({.extent = {2, 3, 8}, .support = {0, 4, 0}}, {"support.y is 4"});
  check_refused({.extent = {2, 3, 8}, .support = {2, 3, 9}}, {"support.x is 9"});
}

TEST_CASE("points that would share an address are refused") {
  for (const auto kind : all_kinds) {
    check_refused({.kind = kind, .extent = {2, 2, 8}, .space_stride = {0, 5, 0}}, {"space_stride.y is 5", "larger"});
    check_refused({.kind = kind, .extent = {2, 2, 8}, .space_stride = {9, 8, 1}}, {"space_stride.z is 9"});
    check_refused({.kind = kind, .extent = {2, 2, 8}, .space_stride = {16, 8, 2}}, {"space_stride.y is 8"});
    check_refused({.kind = kind, .extent = {3, 4, 8}, .space_stride = {1, 2, 8}}, {"space_stride"});
    check_refused({.kind = kind, .extent = {2, 3, 8}, .spectrum_stride = {0, 4, 0}}, {"spectrum_stride.y is 4"});
    check_refused({.kind = kind, .extent = {2, 3, 8}, .spectrum_stride = {7, 8, 1}}, {"spectrum_stride"});
    check_refused({.kind = kind, .extent = {2, 2, 8}, .batch = 2, .space_distance = 4}, {"space_distance"});
    check_refused({.kind = kind, .extent = {2, 2, 8}, .batch = 2, .spectrum_distance = 4}, {"spectrum_distance"});
    check_refused({.kind = kind, .extent = {2, 2, 8}, .batch = 5, .space_distance = 1, .space_stride = {64, 32, 4}},
                  {"space_stride.x is 4"});
    check_refused({.kind = kind, .extent = {3, 2, 8}, .order = fft::Order::rotated, .spectrum_stride = {1, 0, 2}},
                  {"spectrum_stride.x is 2"});
  }
  // Padding belongs to a spectrum.
  check_refused({.extent = {3, 2, 8}, .order = fft::Order::rotated, .batch = 2, .spectrum_distance = 79},
                {"spectrum_distance is 79"});
  static_cast<void>(
      Plan::make({.extent = {3, 2, 8}, .order = fft::Order::rotated, .batch = 2, .spectrum_distance = 80}));
  // A stride that is never used does no harm.
  static_cast<void>(Plan::make({.extent = {1, 2, 8}, .space_distance = 1, .space_stride = {1, 8, 1}}));
}

TEST_CASE("sizes that fit no address space are refused") {
  const index_t half = index_t{1} << 31;
  for (const auto kind : all_kinds) {
    check_refused<OverflowError>({.kind = kind, .extent = {half, half, 4}}, {"fft"});
    check_refused<OverflowError>({.kind = kind, .extent = {huge, huge, huge}}, {"fft"});
    check_refused<OverflowError>(
        {.kind = kind, .extent = {1, 1, std::numeric_limits<index_t>::max()}, .in_place = true}, {"fft"});
    check_refused<OverflowError>(
        {.kind = kind, .extent = {2, 1, 1}, .spectrum_stride = {std::numeric_limits<index_t>::max(), 0, 0}}, {"fft"});
    check_refused<OverflowError>({.kind = kind, .extent = {1, 2, 4}, .space_stride = {0, huge, 0}}, {"fft"});
    check_refused<OverflowError>({.kind = kind, .extent = {4, 2, 4}, .space_stride = {huge, 0, 0}}, {"fft"});
    check_refused<OverflowError>({.kind = kind, .extent = {2, 3, 4}, .spectrum_stride = {0, 0, huge}}, {"fft"});
    check_refused<OverflowError>({.kind = kind, .extent = {2, 2, 2}, .batch = huge}, {"fft"});
    check_refused<OverflowError>({.kind = kind, .extent = {2, 2, 2}, .batch = 3, .space_distance = huge}, {"fft"});
    check_refused<OverflowError>({.kind = kind, .extent = {2, 2, 2}, .batch = 3, .spectrum_distance = huge}, {"fft"});
  }
}

TEST_CASE("in place needs natural order and strides that both sides share") {
  for (const auto kind : all_kinds) {
    check_refused({.kind = kind, .extent = {2, 2, 8}, .order = fft::Order::rotated, .in_place = true},
                  {"in_place", "rotated"});
    check_refused({.kind = kind, .extent = {2, 2, 8}, .spectrum_stride = {0, 0, 2}, .in_place = true},
                  {"spectrum_stride", "space_stride"});
  }
  for (const auto kind : {fft::Kind::r2c, fft::Kind::c2r}) {
    check_refused({.kind = kind, .extent = {2, 2, 7}, .space_stride = {0, 9, 0}, .in_place = true},
                  {"space_stride.y is 9", "even"});
    check_refused({.kind = kind, .extent = {2, 2, 7}, .space_stride = {21, 8, 0}, .in_place = true},
                  {"space_stride.z is 21", "even"});
    check_refused({.kind = kind, .extent = {2, 2, 7}, .space_stride = {0, 0, 2}, .in_place = true},
                  {"space_stride.x is 2", "contiguous"});
    check_refused({.kind = kind, .extent = {2, 2, 7}, .batch = 2, .space_distance = 33, .in_place = true},
                  {"space_distance is 33", "even"});
    // A row of 8 real numbers has a spectrum of 5 complex ones.
    check_refused({.kind = kind, .extent = {2, 2, 8}, .space_stride = {0, 8, 0}, .in_place = true}, {"stride.y"});
    check_refused({.kind = kind, .extent = {2, 2, 8}, .batch = 2, .spectrum_distance = 30, .in_place = true},
                  {"spectrum_distance is 30"});
  }
}

TEST_CASE("execute refuses pointers that are null or not aligned, by name and with a remedy") {
  for (const auto backend : {fft::Backend::native, fft::Backend::fftw}) {
    const auto plan = Plan::make({.extent = {4, 4, 17}, .order = fft::Order::rotated}, {.backend = backend});
    const Buffer<float> in(plan.space_bytes() + 64), out(plan.spectrum_bytes() + 64);
    const Buffer<float> scratch(plan.scratch_bytes() + 64);
    CHECK_THROWS_AS(plan.execute(nullptr, out.data(), scratch.data()), InvalidArgument);
    CHECK_THROWS_WITH(plan.execute(nullptr, out.data(), scratch.data()), Contains("in is null"));
    CHECK_THROWS_WITH(plan.execute(in.data(), nullptr, scratch.data()), Contains("out is null"));
    CHECK_THROWS_AS(plan.execute(in.data() + 1, out.data(), scratch.data()), InvalidArgument);
    CHECK_THROWS_WITH(plan.execute(in.data() + 1, out.data(), scratch.data()),
                      Contains("in is not aligned to 64") && Contains("Problem::unaligned"));
    CHECK_THROWS_WITH(plan.execute(in.data(), out.data() + 8, scratch.data()),
                      Contains("out is not aligned to 64") && Contains("Problem::unaligned"));
    if (plan.scratch_bytes() > 0) {
      CHECK_THROWS_WITH(plan.execute(in.data(), out.data(), nullptr), Contains("scratch is null"));
      CHECK_THROWS_WITH(plan.execute(in.data(), out.data(), scratch.data() + 4), Contains("scratch is not aligned"));
    }
    const auto unaligned = Plan::make({.extent = {4, 4, 17}, .unaligned = true}, {.backend = backend});
    const auto* odd = reinterpret_cast<const std::byte*>(in.data()) + 2;
    CHECK_THROWS_WITH(unaligned.execute(odd, out.data(), scratch.data()), Contains("in is not aligned to 4"));
    if (unaligned.scratch_bytes() > 0) {
      CHECK_THROWS_WITH(unaligned.execute(in.data(), out.data(), scratch.data() + 1),
                        Contains("scratch is not aligned to 64") && !Contains("Problem::unaligned;"));
    }
  }
}

TEST_CASE("execute refuses buffers that overlap") {
  for (const auto backend : {fft::Backend::native, fft::Backend::fftw}) {
    for (const auto kind : all_kinds) {
      const auto plan =
          Plan::make({.kind = kind, .extent = {4, 17, 6}, .order = fft::Order::rotated}, {.backend = backend});
      const bool forward = is_forward(plan.problem());
      const std::size_t in_bytes = forward ? plan.space_bytes() : plan.spectrum_bytes();
      const std::size_t out_bytes = forward ? plan.spectrum_bytes() : plan.space_bytes();
      const Buffer<float> memory(in_bytes + out_bytes + plan.scratch_bytes() + 256);
      const auto* in = reinterpret_cast<const std::byte*>(memory.data());
      auto* out = reinterpret_cast<std::byte*>(memory.data()) + (in_bytes + 63) / 64 * 64;
      auto* scratch = out + (out_bytes + 63) / 64 * 64;
      CHECK_THROWS_WITH(plan.execute(in, memory.data(), scratch), Contains("in and out overlap"));
      CHECK_THROWS_WITH(plan.execute(in, out - 64, scratch), Contains("in and out overlap"));
      if (plan.scratch_bytes() > 0) {
        CHECK_THROWS_WITH(plan.execute(in, out, memory.data()), Contains("in and scratch overlap"));
        CHECK_THROWS_WITH(plan.execute(in, out, out), Contains("out and scratch overlap"));
        CHECK_THROWS_WITH(plan.execute(in, out, scratch - 64), Contains("out and scratch overlap"));
      }
      CHECK_THROWS_AS(plan.execute(in, memory.data(), scratch), InvalidArgument);
    }
    const auto in_place = Plan::make({.extent = {4, 4, 4}, .in_place = true}, {.backend = backend});
    const Buffer<float> a(in_place.space_bytes()), b(in_place.space_bytes()), scratch(in_place.scratch_bytes() + 64);
    CHECK_THROWS_WITH(in_place.execute(a.data(), b.data(), scratch.data()), Contains("in place"));
  }
}

TEST_CASE("execute refuses to have no worker and nothing to run them") {
  const auto plan = Plan::make({.extent = {4, 4, 4}});
  const Buffer<float> in(plan.space_bytes()), out(plan.spectrum_bytes()), scratch(plan.scratch_bytes() + 64);
  const fft::ParallelFor serial = [](index_t items, const fft::RangeBody& body) { body(0, items, 0); };
  CHECK_THROWS_WITH(plan.execute(in.data(), out.data(), scratch.data(), 0, serial), Contains("0 workers"));
  CHECK_THROWS_WITH(plan.execute(in.data(), out.data(), scratch.data(), -1, serial), Contains("-1 workers"));
  CHECK_THROWS_AS(plan.execute(in.data(), out.data(), scratch.data(), 1, nullptr), InvalidArgument);
  CHECK_THROWS_WITH(plan.execute(in.data(), out.data(), scratch.data(), 1, nullptr), Contains("parallel_for is empty"));
}

TEST_CASE("run refuses passes and items that the plan does not have") {
  for (const auto backend : {fft::Backend::native, fft::Backend::fftw}) {
    const auto plan = Plan::make({.extent = {4, 6, 4}, .batch = 3}, {.backend = backend});
    const Buffer<float> in(plan.space_bytes()), out(plan.spectrum_bytes());
    const Buffer<float> shared(plan.shared_bytes() + 64), worker(plan.worker_bytes() + 64);
    const auto run_items = [&](int pass, index_t begin, index_t end) {
      plan.run(pass, begin, end, in.data(), out.data(), shared.data(), worker.data());
    };
    const index_t items = plan.pass_items(0);
    CHECK_THROWS_AS(run_items(-1, 0, 1), InvalidArgument);
    CHECK_THROWS_WITH(run_items(-1, 0, 1), Contains("pass -1"));
    CHECK_THROWS_WITH(run_items(plan.passes(), 0, 1), Contains("pass " + std::to_string(plan.passes())));
    CHECK_THROWS_WITH(run_items(0, -1, 1), Contains("items -1"));
    CHECK_THROWS_WITH(run_items(0, 0, items + 1), Contains("items 0 to " + std::to_string(items + 1)));
    CHECK_THROWS_AS(run_items(0, 0, items + 1), InvalidArgument);
    CHECK_THROWS_WITH(run_items(0, 1, 0), Contains("items 1 to 0"));
    run_items(0, items, items);  // an empty range is allowed
  }
}
