#include "core/numerics_record.hpp"

#include <catch2/catch.hpp>
#include <fmt/format.h>

#include "convolume/cpu.hpp"
#include "convolume/error.hpp"

using convolume::FormatError;
using convolume::NumericsRecord;
using convolume::simd_target;

TEST_CASE("a numerics record survives text, newlines and backslashes included") {
  NumericsRecord record = NumericsRecord::of_this_build();
  record.set("conv1.plan", "line one\nline \\two");
  const auto again = NumericsRecord::from_text(record.to_text());
  CHECK(again.entries() == record.entries());
  CHECK_FALSE(again.first_difference(record).has_value());
}

TEST_CASE("the first difference names the entry and both values") {
  NumericsRecord ours, theirs;
  ours.set("compiler", "gcc 12.2");
  theirs.set("compiler", "clang 14.0");
  CHECK(*ours.first_difference(theirs) == "compiler: 'gcc 12.2' here, 'clang 14.0' there");
  theirs.set("compiler", "gcc 12.2");
  theirs.set("extra", "1");
  CHECK(*ours.first_difference(theirs) == "extra: 'nothing' here, '1' there");
}

TEST_CASE("a difference of the SIMD target says how to use theirs") {
  NumericsRecord ours, theirs;
  ours.set("simd", "other");
  theirs.set("simd", simd_target());
  CHECK(*ours.first_difference(theirs) ==
        fmt::format("simd: 'other' here, '{0}' there (set CONVOLUME_SIMD={0})", simd_target()));
  theirs.set("simd", "AVX9");  // no library has its kernels
  CHECK_THAT(*ours.first_difference(theirs), Catch::Contains("-DCONVOLUME_SIMD_TARGETS=AVX9 or =all"));
}

TEST_CASE("a broken record names its line") {
  CHECK_THROWS_WITH(NumericsRecord::from_text("a = b\nno sign\n"), Catch::Contains("line 2"));
}
