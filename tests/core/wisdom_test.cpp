#include "convolume/wisdom.hpp"

#include <thread>
#include <vector>

#include "testing/temporary_folder.hpp"
#include <catch2/catch.hpp>

#include "convolume/error.hpp"
#include "core/files.hpp"

using namespace convolume;

TEST_CASE("wisdom is found again by another store, and stores of several writers are all kept") {
  const test::TemporaryFolder directory;
  const auto file = directory.path() / "deep" / "wisdom";
  std::vector<std::thread> writers;
  for (int writer = 0; writer < 4; ++writer) {
    writers.emplace_back([&, writer] {
      WisdomStore store(file);
      for (int i = 0; i < 5; ++i) store.store("key " + std::to_string(writer) + " " + std::to_string(i), "a\nvalue");
    });
  }
  for (auto& writer : writers) writer.join();
  const WisdomStore store(file);
  for (int writer = 0; writer < 4; ++writer) {
    for (int i = 0; i < 5; ++i) {
      CHECK(store.find("key " + std::to_string(writer) + " " + std::to_string(i)) == "a\nvalue");
    }
  }
  CHECK_FALSE(store.find("other").has_value());
}

TEST_CASE("a file that is no wisdom store is refused by name") {
  const test::TemporaryFolder directory;
  write_file_atomically(directory.path() / "wisdom", "something else\n");
  CHECK_THROWS_WITH(WisdomStore(directory.path() / "wisdom"), Catch::Contains("not a wisdom store"));
}

TEST_CASE("an atomic write that fails leaves the old file and no temporary one") {
  const test::TemporaryFolder directory;
  const auto file = directory.path() / "file";
  write_file_atomically(file, "old");
  CHECK(read_file(file) == "old");
  write_file_atomically(file, "new");
  CHECK(read_file(file) == "new");
  CHECK_THROWS_AS(read_file(file, 2), IoError);
  CHECK_THROWS_AS(read_file(directory.path() / "missing"), IoError);
  CHECK_THROWS_AS(read_file(directory.path()), IoError);
  CHECK_THROWS_AS(write_file_atomically(directory.path() / "no" / "file", "x"), IoError);
  CHECK(std::distance(std::filesystem::directory_iterator(directory.path()), {}) == 1);
}
