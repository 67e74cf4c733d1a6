#include "core/ownership.hpp"

#include <atomic>
#include <fstream>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "testing/temporary_folder.hpp"
#include <catch2/catch.hpp>

#include "convolume/error.hpp"

using namespace convolume;

TEST_CASE("what is owned is free again when its owner ends", "[ownership]") {
  const test::TemporaryFolder folder;
  const auto file = folder / "owner";
  for (int i = 0; i < 3; ++i) {
    const Ownership owner(file, "the folder", false);
    CHECK(owner.taken_over().empty());
    CHECK(std::filesystem::exists(file));
    CHECK_THROWS_WITH(Ownership(file, "the folder", true),
                      Catch::Contains("the folder belongs to process") && Catch::Contains(file.string()));
  }
  CHECK_FALSE(std::filesystem::exists(file));
}

TEST_CASE("of many that want the same at once, one at a time gets it", "[ownership][stress]") {
  const test::TemporaryFolder folder;
  const auto file = folder / "owner";
  std::atomic<int> inside{0}, most{0}, got{0};
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&] {
      for (int i = 0; i < 100;) {
        try {
          const Ownership owner(file, "the file", false);
          const int now = ++inside;
          int seen = most.load();
          while (now > seen && !most.compare_exchange_weak(seen, now)) {
          }
          std::this_thread::yield();
          --inside;
          ++got;
          ++i;
        } catch (const IoError&) {
          std::this_thread::yield();
        }
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  CHECK(most == 1);
  CHECK(got == 400);
  CHECK_FALSE(std::filesystem::exists(file));
}

TEST_CASE("a folder that is missing is named", "[ownership]") {
  const test::TemporaryFolder folder;
  CHECK_THROWS_WITH(Ownership(folder / "no" / "owner", "x", false),
                    Catch::Contains("no/owner") && Catch::Contains("No such file"));
}
