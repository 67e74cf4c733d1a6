// Data set descriptions. Volumes that they name do not exist, and the built-in volume is left out, because it takes
// long.
#include "nets/data/dataset.hpp"
#include "tests/fuzz/fuzz_support.hpp"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace convolume;
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  if (text.find("synthetic") != std::string_view::npos) return -1;
  const auto file = fuzz::folder() / "data.toml";
  fuzz::write(file, text);
  try {
    static_cast<void>(nets::load_dataset(file));
  } catch (const Error&) {
    // Refused.
  }
  return 0;
}
