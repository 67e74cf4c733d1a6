// Loop nests and blocking strings: text that is read is written as text that is read as the same nest.
#include <cstdlib>

#include "convolume/nest.hpp"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace convolume;
  static const auto spaces = plan::spaces(parse_problem("mb2ic5id4ih5iw6oc3kd3ph1sh2"), plan::Direction::forward);
  const std::string text(reinterpret_cast<const char*>(data), size);
  try {
    const plan::LoopNest nest = plan::parse_nest(text);
    if (plan::parse_nest(plan::to_string(nest)) != nest) std::abort();
    plan::validate(nest, spaces);
    for (const plan::Operand operand : plan::operands) {
      static_cast<void>(plan::fetch(nest, spaces.front(), nest.microkernel, operand, Layout::blocked));
    }
    static_cast<void>(plan::buffers(nest, spaces.front()));
  } catch (const Error&) {
    // Refused.
  }
  try {
    const plan::LoopNest nest = plan::parse_blocking_string(text);
    if (plan::parse_blocking_string(plan::blocking_string(nest)) != nest) std::abort();
  } catch (const Error&) {
    // Refused.
  }
  return 0;
}
