#include "convolume/ready.hpp"

#include <catch2/catch.hpp>

#include "convolume/error.hpp"
#include "convolume/scheduler.hpp"

using namespace convolume;

TEST_CASE("a consumer waits only for the channel blocks and slabs that it reads") {
  // 2 samples x 2 channel blocks of 16 x 3 Z ranges of 4 planes
  std::vector<TaskId> tasks(12);
  for (int i = 0; i < 12; ++i) tasks[static_cast<std::size_t>(i)] = i;
  const Ready ready(tasks, 2, 3, 16, 4);
  std::vector<TaskId> out;
  ready.collect(0, 3, 5, 4, 8, out);
  CHECK(out == std::vector<TaskId>{1});
  out.clear();
  ready.collect(1, 10, 20, 7, 9, out);
  CHECK(out == std::vector<TaskId>{7, 8, 10, 11});
  out.clear();
  ready.collect(1, 16, 32, out);
  CHECK(out == std::vector<TaskId>{9, 10, 11});
}

TEST_CASE("parts of channels are told apart, and joined again") {
  const Ready ready({0, 1, 2, 3}, 4, 1, 8, 1);  // 4 channel blocks of 8
  std::vector<TaskId> out;
  ready.shifted(-16).collect(0, 0, 16, out);  // the second half of the channels
  CHECK(out == std::vector<TaskId>{2, 3});
  out.clear();
  const Ready joint = Ready({5, 6}, 2, 1, 4, 1) & Ready({7, 8}, 2, 1, 4, 1).shifted(8) & Ready::all_of({9}).shifted(16);
  joint.collect(0, 0, 8, out);
  CHECK(out == std::vector<TaskId>{5, 6, 9});
  out.clear();
  joint.collect(0, 7, 9, out);
  CHECK(out == std::vector<TaskId>{6, 7, 9});
  out.clear();
  joint.collect(0, 12, 16, out);
  CHECK(out == std::vector<TaskId>{8, 9});
}

TEST_CASE("a default Ready waits for nothing and a joint one for both sides") {
  std::vector<TaskId> out;
  Ready().collect(0, 0, 4, out);
  CHECK(out.empty());
  const Ready both = Ready::per_channel({4, 5}, 2) & Ready::all_of({9});
  both.collect(0, 1, 2, out);
  CHECK(out == std::vector<TaskId>{5, 9});
  CHECK(both.tasks() == std::vector<TaskId>{4, 5, 9});
  CHECK_THROWS_AS(Ready({1, 2, 3}, 2, 1, 1, 1), InvalidArgument);
}
