// Version of the library and the export macro of its shared build.
#pragma once

#define CONVOLUME_VERSION_MAJOR 0
#define CONVOLUME_VERSION_MINOR 1
#define CONVOLUME_VERSION_PATCH 0

#define CONVOLUME_API __attribute__((visibility("default")))

namespace convolume {

/// Returns "major.minor.patch" of the loaded library, which may differ from the macros of the headers.
CONVOLUME_API const char* version() noexcept;

}  // namespace convolume
