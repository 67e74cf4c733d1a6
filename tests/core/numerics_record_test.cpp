#include "core/numerics_record.hpp"

#include <catch2/catch.hpp>

#include "convolume/error.hpp"

using convolume::FormatError;
using convolume::NumericsRecord;

TEST_CASE("a numerics record survives text, newlines and backslashes included") {
  NumericsRecord record = NumericsRecord::of_this_build();
  record.set("conv1.plan", "line one\nline \\two");
  const auto again = NumericsRecord::from_text(record.to_text());
  CHECK(again.entries() == record.entries());
  CHECK_FALSE(again.first_difference(record).has_value());
}

TEST_CASE("the first difference names the entry and both values") {
  NumericsRecord ours, theirs;
  ours.set("simd", "AVX3");
  theirs.set("simd", "AVX2");
  CHECK(*ours.first_difference(theirs) == "simd: 'AVX3' here, 'AVX2' there");
  theirs.set("simd", "AVX3");
  theirs.set("extra", "1");
  CHECK(*ours.first_difference(theirs) == "extra: 'nothing' here, '1' there");
}

TEST_CASE("a broken record names its line") {
  CHECK_THROWS_WITH(NumericsRecord::from_text("a = b\nno sign\n"), Catch::Contains("line 2"));
}
