#include "bench/fft/fft_options.hpp"

#include <algorithm>
#include <charconv>
#include <set>
#include <string_view>

#include <fmt/format.h>

namespace convolume::bench {
namespace {

constexpr index_t largest_size = index_t{1} << 20;

template <class Value>
const std::string& name_in(const std::map<std::string, Value>& names, Value value) {
  for (const auto& [name, candidate] : names) {
    if (candidate == value) return name;
  }
  throw InvalidArgument("bench_fft: an option value has no name");
}

std::vector<std::string_view> split(std::string_view text, char separator) {
  std::vector<std::string_view> parts;
  for (;;) {
    const std::size_t end = text.find(separator);
    parts.push_back(text.substr(0, end));
    if (end == std::string_view::npos) return parts;
    text.remove_prefix(end + 1);
  }
}

std::optional<index_t> parse_number(std::string_view text) {
  index_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size() || value < 1 || value > largest_size) return {};
  return value;
}

void add_item(std::string_view item, std::set<index_t>& sizes) {
  const auto parts = split(item, ':');
  std::vector<index_t> numbers;
  for (const std::string_view part : parts) {
    if (const auto number = parse_number(part)) numbers.push_back(*number);
  }
  if (numbers.size() != parts.size() || parts.size() > 3 || (parts.size() > 1 && numbers[0] > numbers[1])) {
    throw InvalidArgument(
        fmt::format("'{}' is no size; write a length of 1 to {}, a range first:last or first:last:step, or several of "
                    "them separated by commas, e.g. 16,17,20:24,32:64:8",
                    item, largest_size));
  }
  const index_t last = numbers.size() > 1 ? numbers[1] : numbers[0], step = numbers.size() > 2 ? numbers[2] : 1;
  for (index_t n = numbers[0]; n <= last; n += step) sizes.insert(n);
}

}  // namespace

bool FftOptions::has(Implementation implementation) const {
  return std::find(implementations.begin(), implementations.end(), implementation) != implementations.end();
}

const std::map<std::string, fft::Kind>& kind_names() {
  static const std::map<std::string, fft::Kind> names{{"r2c", fft::Kind::r2c},
                                                      {"c2r", fft::Kind::c2r},
                                                      {"c2c", fft::Kind::c2c_forward},
                                                      {"c2c_backward", fft::Kind::c2c_backward}};
  return names;
}

const std::map<std::string, fft::Order>& order_names() {
  static const std::map<std::string, fft::Order> names{{"natural", fft::Order::natural},
                                                       {"rotated", fft::Order::rotated}};
  return names;
}

const std::map<std::string, Implementation>& implementation_names() {
  static const std::map<std::string, Implementation> names{{"native", Implementation::native},
                                                           {"fftw", Implementation::fftw},
                                                           {"fftw-patient", Implementation::fftw_patient},
                                                           {"algorithm2", Implementation::algorithm2},
                                                           {"ducc0", Implementation::ducc0},
                                                           {"mkl", Implementation::mkl}};
  return names;
}

const std::map<std::string, fft::PrimeAlgorithm>& algorithm_names() {
  static const std::map<std::string, fft::PrimeAlgorithm> names{{"automatic", fft::PrimeAlgorithm::automatic},
                                                                {"generic", fft::PrimeAlgorithm::generic},
                                                                {"rader", fft::PrimeAlgorithm::rader},
                                                                {"rader-padded", fft::PrimeAlgorithm::rader_padded},
                                                                {"bluestein", fft::PrimeAlgorithm::bluestein}};
  return names;
}

const std::map<std::string, DataType>& precision_names() {
  static const std::map<std::string, DataType> names{{"float", DataType::f32}, {"double", DataType::f64}};
  return names;
}

const std::string& name_of(fft::Kind kind) { return name_in(kind_names(), kind); }
const std::string& name_of(fft::Order order) { return name_in(order_names(), order); }
const std::string& name_of(Implementation implementation) { return name_in(implementation_names(), implementation); }
const std::string& name_of(fft::PrimeAlgorithm algorithm) { return name_in(algorithm_names(), algorithm); }
const std::string& precision_name(DataType type) { return name_in(precision_names(), type); }

std::vector<index_t> parse_sizes(const std::string& text) {
  std::set<index_t> sizes;
  for (const std::string_view item : split(text, ',')) add_item(item, sizes);
  return {sizes.begin(), sizes.end()};
}

}  // namespace convolume::bench
