// Version of the library and the export macro of its shared build.
#pragma once

#define CONVOLUME_VERSION_MAJOR 0
#define CONVOLUME_VERSION_MINOR 1
#define CONVOLUME_VERSION_PATCH 0

#define CONVOLUME_API __attribute__((visibility("default")))

namespace convolume {

/// "major.minor.patch" of the library that is loaded, which may differ from the headers' macros.
CONVOLUME_API const char* version() noexcept;

}  // namespace convolume
