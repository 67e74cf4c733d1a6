#include "convolume/error.hpp"

#include <fmt/format.h>

#include "core/checked.hpp"

namespace convolume {

MemoryBudgetExceeded::MemoryBudgetExceeded(std::size_t asked, std::size_t held, std::size_t allowed)
    : Error(
          fmt::format("memory budget exceeded: {} bytes requested, {} in use, {} allowed; raise the budget or make the "
                      "patch, batch or net smaller",
                      asked, held, allowed)),
      asked_(asked),
      held_(held),
      allowed_(allowed) {}

void throw_overflow(std::string_view what) {
  throw OverflowError(fmt::format("{} does not fit its type; make the tensor smaller", what));
}

}  // namespace convolume
