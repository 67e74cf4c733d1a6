#include "bench/fft/fft_tiles.hpp"

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdio>

#include <fmt/format.h>

#include "bench/common/contest.hpp"
#include "bench/common/progress_bar.hpp"
#include "bench/common/support.hpp"
#include "bench/fft/fft_report.hpp"
#include "convolume/error.hpp"
#include "fft/tile_plan.hpp"

namespace convolume::bench {
namespace {

using Clock = std::chrono::steady_clock;
using Json = nlohmann::ordered_json;

constexpr index_t overlap = 4;  // voxels that neighbours share, as for a kernel of 5
constexpr index_t largest = 64;
constexpr index_t grid = 4, tile_count = grid * grid * grid;
constexpr index_t group = 3;

/// The parts of a tile's transforms that are timed.
enum Part { forward, inverse_valid, inverse_full, parts };
constexpr std::array<const char*, parts> part_names{"forward", "inverse, valid part", "inverse, full tile"};
constexpr std::array<const char*, parts> part_keys{"forward", "inverse_valid", "inverse_full"};

/// Seconds per tile of one part, one sample per round.
using Samples = std::array<std::vector<double>, parts>;

struct TileRow {
  index_t extent = 0, kept = 0;
  Part part = forward;
  double median = 0, low = 0, high = 0;
  double flops = 0, peak_fraction = 0;
};

/// A blocked volume of one channel block, with its tiles and the buffers of their transforms.
template <class T>
class Tiles {
 public:
  explicit Tiles(index_t extent)
      : valid_(extent - overlap),
        edge_(grid * valid_ + overlap),
        whole_(Extent3::all(extent), Extent3::all(extent)),
        cropped_(Extent3::all(extent), Extent3::all(valid_)),
        source_(volume_bytes()),
        target_(volume_bytes()),
        spectra_(static_cast<std::size_t>(tile_count * whole_.frequencies() * 2 * lanes) * sizeof(T)),
        scratch_(std::max(whole_.scratch_bytes(), cropped_.scratch_bytes())) {
    // Every voxel of every tile differs, and no two tiles share memory.
    fill_normal(static_cast<T*>(source_.get()), edge_ * edge_ * edge_ * lanes, 1);
    std::fill_n(static_cast<T*>(target_.get()), edge_ * edge_ * edge_ * lanes, T{0});
    std::fill_n(static_cast<T*>(spectra_.get()), tile_count * whole_.frequencies() * 2 * lanes, T{0});
  }

  /// Transforms all tiles forward and back, `kept` tiles at a time. Adds one sample of seconds per tile to each list.
  void run(index_t kept, Part inverse, std::vector<double>& forward_samples, std::vector<double>& inverse_samples) {
    double there = 0, back = 0;
    for (index_t first = 0; first < tile_count; first += kept) {
      const index_t count = std::min(kept, tile_count - first);
      const auto begin = Clock::now();
      for (index_t i = 0; i < count; ++i) transform(first + i, i, kept);
      const auto middle = Clock::now();
      for (index_t i = 0; i < count; ++i) invert(first + i, i, kept, inverse);
      const auto end = Clock::now();
      there += std::chrono::duration<double>(middle - begin).count();
      back += std::chrono::duration<double>(end - middle).count();
    }
    forward_samples.push_back(there / tile_count);
    inverse_samples.push_back(back / tile_count);
  }

  double flops() const { return whole_.flops(); }

 private:
  static constexpr index_t lanes = fft::tile_lanes<T>;

  std::size_t volume_bytes() const { return static_cast<std::size_t>(edge_ * edge_ * edge_ * lanes) * sizeof(T); }

  /// Returns the strides of {frequency block, tile, kz, re/im, channel}: the order that a matrix product per frequency
  /// reads.
  fft::TileStrides strides(index_t kept) const {
    const index_t tile = whole_.extent().z * 2 * lanes;
    return {.block = kept * tile, .frequency = 2 * lanes, .tile = tile, .channel_block = 0, .re_im = lanes};
  }
  index_t first_voxel(index_t tile) const {
    const index_t z = tile / (grid * grid), y = tile / grid % grid, x = tile % grid;
    return ((z * edge_ + y) * edge_ + x) * valid_ * lanes;
  }
  template <class Element>
  fft::BlockedTile<Element> voxels(Element* volume, index_t tile, index_t edge) const {
    return {volume + first_voxel(tile), edge_ * edge_ * lanes, edge_ * lanes, lanes, {{0, 0, 0}, Extent3::all(edge)}};
  }

  void transform(index_t tile, index_t place, index_t kept) const {
    const fft::TileStrides s = strides(kept);
    whole_.forward(voxels(static_cast<const T*>(source_.get()), tile, whole_.extent().x),
                   static_cast<T*>(spectra_.get()) + place * s.tile, s, static_cast<T*>(scratch_.get()));
  }
  void invert(index_t tile, index_t place, index_t kept, Part part) const {
    const fft::TilePlan<T>& plan = part == inverse_full ? whole_ : cropped_;
    const fft::TileStrides s = strides(kept);
    plan.inverse(static_cast<T*>(spectra_.get()) + place * s.tile, s,
                 voxels(static_cast<T*>(target_.get()), tile, plan.support().x),
                 {.scale = T{1} / static_cast<T>(whole_.extent().volume())}, static_cast<T*>(scratch_.get()));
  }

  index_t valid_, edge_;
  fft::TilePlan<T> whole_, cropped_;
  Buffer source_, target_, spectra_, scratch_;
};

TileRow row_of(index_t extent, index_t kept, Part part, const std::vector<double>& seconds, double flops, double peak) {
  TileRow row{.extent = extent, .kept = kept, .part = part};
  row.median = quantile(seconds, 0.5);
  row.low = quantile(seconds, 0.25);
  row.high = quantile(seconds, 0.75);
  row.flops = flops / row.median;
  row.peak_fraction = row.flops / peak;
  return row;
}

template <class T>
std::vector<TileRow> measure(const FftOptions& options, index_t extent) {
  constexpr std::array kept{group, tile_count};
  std::array<Samples, kept.size()> samples;
  Tiles<T> tiles(extent);
  const auto round = [&](std::array<Samples, kept.size()>& to) {
    for (std::size_t k = 0; k < kept.size(); ++k) {
      // The forward transforms of both runs are equal, so one sample is enough.
      std::vector<double> unused;
      tiles.run(kept[k], inverse_valid, to[k][forward], to[k][inverse_valid]);
      tiles.run(kept[k], inverse_full, unused, to[k][inverse_full]);
    }
  };
  std::array<Samples, kept.size()> warm_up;
  round(warm_up);
  const auto begin = Clock::now();
  for (int i = 0;
       i < options.rounds || std::chrono::duration<double>(Clock::now() - begin).count() < options.min_seconds; ++i) {
    round(samples);
  }
  std::vector<TileRow> rows;
  const double peak = peak_flops(options.types.front());
  for (std::size_t k = 0; k < kept.size(); ++k) {
    for (const Part part : {forward, inverse_valid, inverse_full}) {
      rows.push_back(row_of(extent, kept[k], part, samples[k][part], tiles.flops(), peak));
    }
  }
  return rows;
}

void print_header(DataType type) {
  fmt::print(
      "{} tiles of {} channels, {}, that share {} voxels with their neighbours in a blocked volume; one thread\n",
      tile_count, 64 / size_of(type), precision_name(type), overlap);
  fmt::print("{:>4}  {:>7}  {:20} {:>9}  {:20} {:>8} {:>6}\n", "T", "spectra", "transform", "us/tile", "quartiles",
             "GFLOP/s", "peak");
}

void print(const TileRow& row) {
  fmt::print("{:4}  {:7}  {:20} {:9.2f}  {:20} {:8.2f} {:4.0f} %\n", row.extent, row.kept, part_names[row.part],
             1e6 * row.median, fmt::format("{:.2f} .. {:.2f}", 1e6 * row.low, 1e6 * row.high), 1e-9 * row.flops,
             100 * row.peak_fraction);
  std::fflush(stdout);
}

Json to_json(const FftOptions& options, const std::vector<TileRow>& rows) {
  const DataType type = options.types.front();
  Json report{{"machine", describe_fft_machine(type)}, {"tiles", Json::array()}};
  for (const TileRow& row : rows) {
    report["tiles"].push_back({{"tile", row.extent},
                               {"valid", row.extent - overlap},
                               {"count", tile_count},
                               {"kept", row.kept},
                               {"channels", 64 / size_of(type)},
                               {"precision", precision_name(type)},
                               {"transform", part_keys[row.part]},
                               {"tile_s", row.median},
                               {"tile_low_s", row.low},
                               {"tile_high_s", row.high},
                               {"gflops", 1e-9 * row.flops},
                               {"peak_fraction", row.peak_fraction}});
  }
  return report;
}

}  // namespace

int tiles(const FftOptions& options) {
  if (options.sizes.front() <= overlap || options.sizes.back() > largest) {
    throw InvalidArgument(fmt::format("--tiles holds {}; tiles have {} to {} voxels per axis",
                                      options.sizes.front() <= overlap ? options.sizes.front() : options.sizes.back(),
                                      overlap + 1, largest));
  }
  std::vector<TileRow> rows;
  const StopRequest stop;
  ReportFile file(options.json, to_json(options, rows));
  ProgressBar bar;
  const DataType type = options.types.front();
  print_header(type);
  for (std::size_t i = 0; i < options.sizes.size() && !stop.pending(); ++i) {
    const index_t extent = options.sizes[i];
    bar.show(static_cast<double>(i) / static_cast<double>(options.sizes.size()), fmt::format("tiles of {}", extent));
    const auto measured = type == DataType::f32 ? measure<float>(options, extent) : measure<double>(options, extent);
    bar.clear();
    for (const TileRow& row : measured) print(row);
    rows.insert(rows.end(), measured.begin(), measured.end());
    if (file.due()) file.write(to_json(options, rows));
  }
  bar.clear();
  file.write(to_json(options, rows));
  return stop.pending() ? interrupted_status : 0;
}

}  // namespace convolume::bench
