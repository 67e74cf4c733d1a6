// Net descriptions, and the shapes that follow from them.
#include "nets/spec/net_shapes.hpp"
#include "tests/fuzz/fuzz_support.hpp"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace convolume;
  try {
    const auto spec = nets::parse_net(std::string(reinterpret_cast<const char*>(data), size), "net.toml");
    const auto shapes = nets::infer_shapes(spec, spec.patch);
    static_cast<void>(shapes.field_of_view());
    static_cast<void>(shapes.alignment());
    static_cast<void>(spec.architecture());
  } catch (const Error&) {
    // Refused.
  }
  return 0;
}
