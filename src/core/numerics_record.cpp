#include "core/numerics_record.hpp"

#include <algorithm>
#include <vector>

#include <fmt/format.h>
#include <gnu/libc-version.h>

#include "convolume/cpu.hpp"
#include "convolume/error.hpp"
#include "convolume/machine.hpp"
#include "convolume/version.hpp"

namespace convolume {
namespace {

std::string escape(std::string_view text) {
  std::string out;
  for (const char c : text) {
    if (c == '\n') {
      out += "\\n";
    } else if (c == '\\') {
      out += "\\\\";
    } else {
      out += c;
    }
  }
  return out;
}

std::string unescape(std::string_view text) {
  std::string out;
  for (std::size_t i = 0; i < text.size(); ++i) {
    if (text[i] == '\\' && i + 1 < text.size()) {
      ++i;
      out += text[i] == 'n' ? '\n' : text[i];
    } else {
      out += text[i];
    }
  }
  return out;
}

/// Returns how to compute with the kernels of a SIMD target.
std::string how_to_use(const std::string& target) {
  const auto has = [&](const std::vector<std::string>& names) {
    return std::find(names.begin(), names.end(), target) != names.end();
  };
  if (has(available_simd_targets())) return fmt::format("set CONVOLUME_SIMD={}", target);
  if (has(compiled_simd_targets())) return fmt::format("use a processor with {}", target);
  return fmt::format("use a library built with -DCONVOLUME_SIMD_TARGETS={0} or =all, on a processor with {0}", target);
}

}  // namespace

NumericsRecord NumericsRecord::of_this_build() {
  NumericsRecord record;
  record.set("texts", "3");  // the version of the wording of these facts
  record.set("version", version());
#if defined(__clang__)
  record.set("compiler", fmt::format("clang {}.{}", __clang_major__, __clang_minor__));
#else
  record.set("compiler", fmt::format("gcc {}.{}", __GNUC__, __GNUC_MINOR__));
#endif
  record.set("fp_contract", "off");
  record.set("simd", simd_target());
  // Choices stand in the record, so the row that made them is only of interest.
  record.inform("machine_row", fmt::format("{} {}", machine_model().row, machine_digest()));
  // The optimisers use powers from the C library. Highway has its own exponentials.
  record.set("libc", gnu_get_libc_version());
  record.set("highway", CONVOLUME_HIGHWAY_VERSION);
  return record;
}

NumericsRecord NumericsRecord::from_text(std::string_view text) {
  NumericsRecord record;
  int line_number = 0;
  while (!text.empty()) {
    ++line_number;
    const auto end = text.find('\n');
    const auto line = text.substr(0, end);
    text.remove_prefix(end == std::string_view::npos ? text.size() : end + 1);
    if (line.empty()) continue;
    const auto sign = line.find(" = ");
    if (sign == std::string_view::npos) {
      throw FormatError(fmt::format("numerics record: line {} ('{}') is not 'key = value'", line_number, line));
    }
    record.set(std::string(line.substr(0, sign)), unescape(line.substr(sign + 3)));
  }
  return record;
}

void NumericsRecord::set(std::string key, std::string value) { entries_[std::move(key)] = std::move(value); }

std::string NumericsRecord::to_text() const {
  std::string text;
  for (const auto& [key, value] : entries_) text += fmt::format("{} = {}\n", key, escape(value));
  return text;
}

std::optional<std::string> NumericsRecord::first_difference(const NumericsRecord& theirs, Compare compare) const {
  const auto describe = [](const std::string& key, const std::string* ours, const std::string* other) {
    const auto shown = [](const std::string* value) {
      constexpr std::size_t most = 120;  // the text of a plan has many lines
      if (value == nullptr) return std::string("nothing");
      return value->size() <= most ? escape(*value) : escape(value->substr(0, most)) + "...";
    };
    const std::string remedy = key == "simd" && other != nullptr ? fmt::format(" ({})", how_to_use(*other)) : "";
    return fmt::format("{}: '{}' here, '{}' there{}", key, shown(ours), shown(other), remedy);
  };
  const auto informs = [](const std::string& key) { return key.starts_with("info."); };
  // The texts of plans name the SIMD target too. This entry alone says how to use another one.
  const auto simd = entries_.find("simd"), other_simd = theirs.entries_.find("simd");
  if (simd != entries_.end() && other_simd != theirs.entries_.end() && simd->second != other_simd->second) {
    return describe("simd", &simd->second, &other_simd->second);
  }
  for (const auto& [key, value] : entries_) {
    if (informs(key)) continue;
    const auto found = theirs.entries_.find(key);
    if (found == theirs.entries_.end()) return describe(key, &value, nullptr);
    if (found->second != value) return describe(key, &value, &found->second);
  }
  if (compare == Compare::own_keys) return std::nullopt;
  for (const auto& [key, value] : theirs.entries_) {
    if (!informs(key) && !entries_.contains(key)) return describe(key, nullptr, &value);
  }
  return std::nullopt;
}

}  // namespace convolume
