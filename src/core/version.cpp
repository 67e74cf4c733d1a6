#include "convolume/version.hpp"

#define CONVOLUME_TEXT_OF(x) #x
#define CONVOLUME_TEXT(x) CONVOLUME_TEXT_OF(x)

namespace convolume {

const char* version() noexcept {
  return CONVOLUME_TEXT(CONVOLUME_VERSION_MAJOR) "." CONVOLUME_TEXT(CONVOLUME_VERSION_MINOR) "." CONVOLUME_TEXT(
      CONVOLUME_VERSION_PATCH);
}

}  // namespace convolume
