// A folder of PNG slices, one section each.
#include <fmt/format.h>

#include "tests/fuzz/fuzz_support.hpp"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace convolume;
  const auto folder = fuzz::folder() / "slices";
  std::error_code ignored;
  std::filesystem::remove_all(folder, ignored);
  std::filesystem::create_directory(folder);
  int number = 0;
  for (const std::string_view part : fuzz::sections({reinterpret_cast<const char*>(data), size})) {
    if (number == 4) break;
    fuzz::write(folder / fmt::format("{}.png", number++), part);
  }
  fuzz::read_ends(folder / "*.png");
  return 0;
}
