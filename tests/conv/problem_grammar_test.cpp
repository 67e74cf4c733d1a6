#include <catch2/catch.hpp>

#include "convolume/conv_problem.hpp"

using namespace convolume;

TEST_CASE("benchdnn descriptors are read with their repetitions and defaults") {
  const auto p = parse_problem("mb2g4_ic32id48oc64od44kd5_n\"layer 3\"");
  CHECK(p.batch == 2);
  CHECK(p.groups == 4);
  CHECK(p.in_channels == 32);
  CHECK(p.out_channels == 64);
  CHECK(p.input == Extent3::all(48));
  CHECK(p.kernel == Extent3::all(5));
  CHECK(p.output() == Extent3::all(44));
  const auto flat = parse_problem("ic3ih227iw200oc8kh11kw5sh4ph2");
  CHECK(flat.input == Extent3{1, 227, 200});
  CHECK(flat.kernel == Extent3{1, 11, 5});
  CHECK(flat.stride == Extent3{1, 4, 4});
  CHECK(flat.pad_before == Extent3{0, 2, 2});
  CHECK(parse_problem("ic1id9oc1kd3dd1").dilation == Extent3::all(2));
  const auto uneven = parse_problem("ic1id8oc1od8kd4pd1");
  CHECK(uneven.pad_before == Extent3::all(1));
  CHECK(uneven.pad_after == Extent3::all(2));
}

TEST_CASE("an axis without tokens repeats the output of the axis before, others compute theirs from the input") {
  const auto mixed = parse_problem("ic16id8ih1iw8oc6oh1kd3kh1kw3sh1pd0pw0ph0sd1sw1dd2dh0dw2");
  CHECK(mixed.output() == Extent3{2, 1, 2});
  CHECK(mixed.dilation == Extent3{3, 1, 3});
  const auto column = parse_problem("g1ic32oc1_id192kd192");
  CHECK(column.output() == Extent3::all(1));
  const auto repeated = parse_problem("ic1id8oc1od8kd4pd1");
  CHECK(repeated.output() == Extent3::all(8));
  const auto computed = parse_problem("ic1id9iw7oc1od7kd3kw3pw1");  // no token of the axis h
  CHECK(computed.input == Extent3{9, 9, 7});
  CHECK(computed.output() == Extent3{7, 7, 7});
  CHECK(computed.pad_after == Extent3{0, 0, 1});
  CHECK_THROWS_WITH(parse_problem("ic1id9iw2oc1od7kd3kw3"), Catch::Contains("spans 3 voxels"));
  CHECK_THROWS_WITH(parse_problem("ic1id9oc1od0kd3"), Catch::Contains("output 0 along axis d"));
}

TEST_CASE("a problem survives its own text") {
  for (const char* text : {"ic1id9oc2kd3", "mb3g2ic4id7ih9iw11oc6kd1kh3kw5sd1sh2sw3pd0ph1pw2dd0dh1dw0"}) {
    const auto p = parse_problem(text);
    // The text does not contain padding behind that no kernel reaches.
    const auto again = parse_problem(to_string(p));
    CHECK(to_string(again) == to_string(p));
    CHECK(again.output() == p.output());
    CHECK(again.dilation == p.dilation);
  }
}

TEST_CASE("a descriptor that makes no sense names its token") {
  CHECK_THROWS_WITH(parse_problem("ic1id9oc1"), Catch::Contains("'kd'"));
  CHECK_THROWS_WITH(parse_problem("id9oc1kd3"), Catch::Contains("'ic' is missing"));
  CHECK_THROWS_WITH(parse_problem("ic1id9oc1kd3zz4"), Catch::Contains("zz4"));
  CHECK_THROWS_WITH(parse_problem("ic1ic2id9oc1kd3"), Catch::Contains("given twice"));
  CHECK_THROWS_WITH(parse_problem("ic1id2oc1kd3"), Catch::Contains("spans 3 voxels"));
  CHECK_THROWS_WITH(parse_problem("g3ic4id9oc6kd3"), Catch::Contains("groups is 3"));
}
