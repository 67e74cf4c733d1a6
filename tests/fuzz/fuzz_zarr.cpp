// A Zarr: .zarray, .zattrs and the first chunk, one section each.
#include "tests/fuzz/fuzz_support.hpp"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace convolume;
  const auto folder = fuzz::folder() / "a.zarr";
  std::filesystem::create_directory(folder);
  const auto parts = fuzz::sections({reinterpret_cast<const char*>(data), size});
  constexpr const char* names[] = {".zarray", ".zattrs", "0.0.0"};
  for (std::size_t i = 0; i < 3; ++i) {
    std::error_code ignored;
    std::filesystem::remove(folder / names[i], ignored);
    if (i < parts.size()) fuzz::write(folder / names[i], parts[i]);
  }
  fuzz::read_ends(folder);
  return 0;
}
