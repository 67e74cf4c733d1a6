#include "bench/fft/fft_peers.hpp"

#include <cmath>

#include <fmt/format.h>

#include "bench/common/support.hpp"
#include "bench/fft/fft_competitors.hpp"
#include "convolume/error.hpp"

namespace convolume::bench {
namespace {

/// Returns the relative distance of the results of two competitors for random input.
template <class T>
double distance(Competitor& one, Competitor& other) {
  const std::size_t count = one.out_bytes() / sizeof(T);
  Buffer in(one.in_bytes()), a(one.out_bytes()), b(one.out_bytes());
  one.bind(in.get(), a.get());
  other.bind(in.get(), b.get());
  fill_normal(static_cast<T*>(in.get()), static_cast<index_t>(one.in_bytes() / sizeof(T)), 1);
  one.execute();
  other.execute();
  double error = 0, norm = 0;
  for (std::size_t i = 0; i < count; ++i) {
    const double x = static_cast<T*>(a.get())[i], y = static_cast<T*>(b.get())[i];
    error += (x - y) * (x - y);
    norm += x * x;
  }
  return std::sqrt(error / norm);
}

/// Compares MKL's transforms with ours. c2r is left out, because random numbers are no spectrum of a real volume.
void check(const MklFft& mkl, DataType type) {
  constexpr index_t n = 12;
  for (const fft::Kind kind : {fft::Kind::r2c, fft::Kind::c2c_forward, fft::Kind::c2c_backward}) {
    const auto ours =
        native_contestant({.type = type, .kind = kind, .extent = Extent3::all(n), .order = fft::Order::natural},
                          fft::PrimeAlgorithm::automatic);
    const auto theirs = mkl.competitor(type, kind, n);
    const bool single = type == DataType::f32;
    const double error = single ? distance<float>(*ours, *theirs) : distance<double>(*ours, *theirs);
    if (error <= (single ? 1e-5 : 1e-13)) continue;
    throw NumericalError(
        fmt::format("MKL's {} of a cube of edge {} differs from ours by {:.3g}", name_of(kind), n, error));
  }
}

}  // namespace

FftPeers::FftPeers(const FftOptions& options) {
  const auto start = [&](Implementation which, const auto& make) {
    if (!options.has(which)) return;
    try {
      make();
    } catch (const Unsupported& error) {
      left_out_.emplace_back(name_of(which), error.what());
    }
  };
  start(Implementation::ducc0, [&] { ducc0_ = std::make_unique<PeerProcess>("ducc_fft.py"); });
  start(Implementation::mkl, [&] {
    mkl_ = std::make_unique<MklFft>();
    check(*mkl_, options.types.front());
  });
}

OtherCompetitor FftPeers::ducc0(fft::Kind kind, DataType type, index_t n) {
  ducc0_call_ = ducc0_->ask(fmt::format("{} {} {}", name_of(kind), precision_name(type), n)).at("call_s");
  return [this](int repetitions) -> double { return ducc0_->ask(fmt::to_string(repetitions)).at("seconds"); };
}

void FftPeers::add_to(nlohmann::ordered_json& report) const {
  if (has_ducc0()) report["machine"]["ducc0"] = ducc0_->facts().version;
  if (has_mkl()) report["machine"]["mkl"] = mkl_->version();
  report["left_out"] = nlohmann::ordered_json::array();
  for (const auto& [name, reason] : left_out_) report["left_out"].push_back({{"peer", name}, {"reason", reason}});
}

}  // namespace convolume::bench
