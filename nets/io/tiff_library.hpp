// How reading and writing of TIFF use libtiff.
#pragma once

#include <cstdarg>
#include <cstdio>
#include <memory>
#include <new>
#include <string>

#include <fmt/format.h>
#include <tiffio.h>

namespace convolume::nets::io::detail {

/// Keeps the first error message of libtiff. Each handle has its own, so nothing global changes and nothing is printed.
struct Complaint {
  std::string text;

  static int record(TIFF*, void* self, const char*, const char* format, va_list arguments) noexcept {
    auto& text = static_cast<Complaint*>(self)->text;
    if (text.empty()) {
      char buffer[512];
      std::vsnprintf(buffer, sizeof buffer, format, arguments);
      try {
        text = buffer;
      } catch (const std::bad_alloc&) {  // the message is lost, the failure itself is still reported
      }
    }
    return 1;  // handled: libtiff then skips the global handlers
  }
  static int ignore(TIFF*, void*, const char*, const char*, va_list) noexcept { return 1; }
  std::string suffix() const { return text.empty() ? "" : fmt::format(" (libtiff: {})", text); }
};

struct TiffCloser {
  void operator()(TIFF* tiff) const noexcept { TIFFClose(tiff); }
  void operator()(TIFFOpenOptions* options) const noexcept { TIFFOpenOptionsFree(options); }
};
using TiffHandle = std::unique_ptr<TIFF, TiffCloser>;
using TiffOptions = std::unique_ptr<TIFFOpenOptions, TiffCloser>;

inline TiffOptions make_tiff_options(Complaint& complaint) {
  TiffOptions options(TIFFOpenOptionsAlloc());
  if (!options) throw std::bad_alloc();
  TIFFOpenOptionsSetErrorHandlerExtR(options.get(), Complaint::record, &complaint);
  TIFFOpenOptionsSetWarningHandlerExtR(options.get(), Complaint::ignore, nullptr);
  return options;
}

}  // namespace convolume::nets::io::detail
