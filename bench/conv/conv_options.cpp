#include "bench/conv/conv_options.hpp"

#include <algorithm>
#include <string_view>

namespace convolume::bench {
namespace {

template <class Value>
const std::string& name_in(const std::map<std::string, Value>& names, Value value) {
  for (const auto& [name, candidate] : names) {
    if (candidate == value) return name;
  }
  throw InvalidArgument("bench_conv: an option value has no name");
}

}  // namespace

bool ConvBenchOptions::has(Peer peer) const { return std::find(peers.begin(), peers.end(), peer) != peers.end(); }

ConvOptions ConvBenchOptions::conv(Engine engine) const {
  return {.engine = engine,
          .choice = choice,
          .low_error = low_error,
          .memory_budget = static_cast<std::size_t>(memory_gib * (1u << 30))};
}

const std::map<std::string, Direction>& direction_names() {
  static const std::map<std::string, Direction> names{{"fwd", Direction::forward},
                                                      {"bwd_d", Direction::backward_data},
                                                      {"bwd_w", Direction::backward_weights},
                                                      {"training", Direction::training}};
  return names;
}

std::vector<Engine> all_engines() {
  // Take the names from the library, so that no list has to be maintained here.
  const auto all = engines();
  return {all.begin() + 1, all.end()};
}

const std::map<std::string, Peer>& peer_names() {
  static const std::map<std::string, Peer> names{{"onednn", Peer::onednn},
                                                 {"fft_volume", Peer::fft_volume},
                                                 {"torch", Peer::torch},
                                                 {"im2col:openblas", Peer::im2col_openblas},
                                                 {"im2col:atlas", Peer::im2col_atlas},
                                                 {"c_loops", Peer::c_loops}};
  return names;
}

const std::map<std::string, DataType>& type_names() {
  static const std::map<std::string, DataType> names{
      {"float", DataType::f32}, {"double", DataType::f64}, {"f32", DataType::f32}, {"f64", DataType::f64}};
  return names;
}

const std::map<std::string, std::vector<Layout>>& layout_names() {
  static const std::map<std::string, std::vector<Layout>> names{
      {"plain", {Layout::plain}}, {"blocked", {Layout::blocked}}, {"both", {Layout::plain, Layout::blocked}}};
  return names;
}

const std::string& name_of(Direction direction) { return name_in(direction_names(), direction); }
const std::string& name_of(Peer peer) { return name_in(peer_names(), peer); }

}  // namespace convolume::bench
