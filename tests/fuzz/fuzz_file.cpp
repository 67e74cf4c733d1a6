// Volumes that are one file. FUZZ_NAME is the file's name.
#include "tests/fuzz/fuzz_support.hpp"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace convolume;
  const auto file = fuzz::folder() / FUZZ_NAME;
  fuzz::write(file, {reinterpret_cast<const char*>(data), size});
  fuzz::read_ends(file);
  return 0;
}
