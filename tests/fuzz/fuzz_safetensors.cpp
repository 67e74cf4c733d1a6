// Checkpoints.
#include "nets/io/safetensors.hpp"
#include "nets/spec/checkpoint.hpp"
#include "tests/fuzz/fuzz_support.hpp"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace convolume;
  const auto file = fuzz::folder() / "a.safetensors";
  fuzz::write(file, {reinterpret_cast<const char*>(data), size});
  try {
    static_cast<void>(nets::io::read_safetensors(file));
    static_cast<void>(nets::read_checkpoint_header(file));
  } catch (const Error&) {
    // Refused.
  }
  return 0;
}
