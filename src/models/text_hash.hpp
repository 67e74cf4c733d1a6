// A hash of texts that decides what is measured, so it depends on neither the library nor the machine.
#pragma once

#include <cstdint>
#include <string_view>

namespace convolume::plan {

/// FNV-1a of 64 bits.
constexpr std::uint64_t text_hash(std::string_view text) noexcept {
  std::uint64_t hash = 0xcbf29ce484222325;
  for (const char c : text) hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001b3;
  return hash;
}

}  // namespace convolume::plan
