#include "nets/data/voxel_statistics.hpp"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <limits>
#include <map>
#include <mutex>
#include <tuple>

#include <fmt/format.h>
#include <xxhash.h>

#include "nets/base/parallel.hpp"

namespace convolume::nets {
namespace {

using io::VoxelBox;

Extent3 block_grid(const Extent3& volume) {
  const auto blocks = [](index_t n) { return (n + statistics_block - 1) / statistics_block; };
  return {blocks(volume.z), blocks(volume.y), blocks(volume.x)};
}

/// Calls body(row, count, z) for each row of voxels of a block. `row` points to stored voxels of type T.
template <class T, class Body>
void for_each_row(const StoredVolume& piece, const VoxelBox& piece_box, index_t channel, const VoxelBox& block,
                  const Body& body) {
  const Extent3 from = block.begin - piece_box.begin;
  const Extent3& e = piece_box.extent;
  for (index_t z = 0; z < block.extent.z; ++z) {
    for (index_t y = 0; y < block.extent.y; ++y) {
      const index_t first = ((channel * e.z + from.z + z) * e.y + from.y + y) * e.x + from.x;
      body(reinterpret_cast<const T*>(piece.stored(first)), block.extent.x, z);
    }
  }
}

/// Sums in eight accumulators, so that additions overlap. Their order depends on the length of the rows alone.
class Sum {
 public:
  template <class T, class F>
  void add(const T* row, index_t count, const F& f) {
    index_t i = 0;
    for (; i + 8 <= count; i += 8) {
      for (std::size_t k = 0; k < 8; ++k) parts_[k] += f(static_cast<double>(row[static_cast<std::size_t>(i) + k]));
    }
    for (; i < count; ++i) parts_[0] += f(static_cast<double>(row[i]));
  }
  double total() const {
    return ((parts_[0] + parts_[1]) + (parts_[2] + parts_[3])) + ((parts_[4] + parts_[5]) + (parts_[6] + parts_[7]));
  }

 private:
  std::array<double, 8> parts_{};
};

struct Limits {
  bool nonzero = false;
  double low = -std::numeric_limits<double>::infinity(), high = std::numeric_limits<double>::infinity();
  bool counts(double v) const { return !nonzero || v != 0; }
  double clip(double v) const { return std::min(std::max(v, low), high); }
};

/// What one block contributes.
struct BlockStatistics {
  std::vector<Moments> planes;
  double least = std::numeric_limits<double>::infinity(), largest = -std::numeric_limits<double>::infinity();
  std::uint64_t digest = 0;
};

template <class T>
BlockStatistics block_statistics(const StoredVolume& piece, const VoxelBox& piece_box, index_t channel,
                                 const VoxelBox& block, const Limits& limits) {
  const auto planes = static_cast<std::size_t>(block.extent.z);
  BlockStatistics result;
  result.planes.resize(planes);
  std::vector<Sum> counts(planes), sums(planes), squares(planes);
  for_each_row<T>(piece, piece_box, channel, block, [&](const T* row, index_t count, index_t z) {
    const auto at = static_cast<std::size_t>(z);
    result.digest = XXH3_64bits_withSeed(row, static_cast<std::size_t>(count) * sizeof(T), result.digest);
    if (limits.nonzero) counts[at].add(row, count, [&](double v) { return v != 0 ? 1.0 : 0.0; });
    sums[at].add(row, count, [&](double v) { return limits.counts(v) ? limits.clip(v) : 0.0; });
    T least = std::numeric_limits<T>::max(), largest = std::numeric_limits<T>::lowest();
    for (index_t i = 0; i < count; ++i) {
      const bool counts = !limits.nonzero || row[i] != T{0};
      least = counts ? std::min(least, row[i]) : least;
      largest = counts ? std::max(largest, row[i]) : largest;
    }
    if (least > largest) return;  // no voxel of the row counts
    result.least = std::min(result.least, limits.clip(static_cast<double>(least)));
    result.largest = std::max(result.largest, limits.clip(static_cast<double>(largest)));
  });
  for (std::size_t z = 0; z < planes; ++z) {
    const auto plane = static_cast<double>(block.extent.y * block.extent.x);
    result.planes[z].count = limits.nonzero ? counts[z].total() : plane;
    if (result.planes[z].count > 0) result.planes[z].mean = sums[z].total() / result.planes[z].count;
  }
  for_each_row<T>(piece, piece_box, channel, block, [&](const T* row, index_t count, index_t z) {
    const auto at = static_cast<std::size_t>(z);
    const double mean = result.planes[at].mean;
    squares[at].add(row, count, [&](double v) {
      const double d = limits.counts(v) ? limits.clip(v) - mean : 0.0;
      return d * d;
    });
  });
  for (std::size_t z = 0; z < planes; ++z) result.planes[z].squares = squares[z].total();
  return result;
}

/// Joins neighbours, then pairs of neighbours, and so on.
Moments join_all(std::vector<Moments> list) {
  if (list.empty()) return {};
  for (std::size_t step = 1; step < list.size(); step *= 2) {
    for (std::size_t i = 0; i + step < list.size(); i += 2 * step) list[i] = list[i].joined(list[i + step]);
  }
  return list[0];
}

/// Returns the moments of each slice: those of all blocks that have voxels of it.
std::vector<Moments> join_slices(const std::vector<BlockStatistics>& blocks, const Extent3& extent) {
  const auto layer = static_cast<std::size_t>(block_grid(extent).y * block_grid(extent).x);
  std::vector<Moments> slices;
  for (index_t z = 0; z < extent.z; ++z) {
    const auto first = static_cast<std::size_t>(z / statistics_block) * layer;
    std::vector<Moments> parts;
    for (std::size_t b = first; b < first + layer; ++b) {
      parts.push_back(blocks[b].planes[static_cast<std::size_t>(z % statistics_block)]);
    }
    slices.push_back(join_all(std::move(parts)));
  }
  return slices;
}

// Percentiles ---------------------------------------------------------------------------------------------------------

/// Maps a number to a key, so that keys have the order of the numbers. 0.0 and -0.0 have one key.
template <class T>
std::uint64_t key_of(T value) {
  if constexpr (std::is_floating_point_v<T>) {
    using Bits = std::conditional_t<sizeof(T) == 4, std::uint32_t, std::uint64_t>;
    constexpr Bits sign = Bits{1} << (8 * sizeof(T) - 1);
    const auto bits = std::bit_cast<Bits>(value + T{0});
    return (bits & sign) != 0 ? static_cast<Bits>(~bits) : static_cast<Bits>(bits | sign);
  } else if constexpr (std::is_signed_v<T>) {
    using Bits = std::make_unsigned_t<T>;
    return static_cast<Bits>(static_cast<Bits>(value) ^ (Bits{1} << (8 * sizeof(T) - 1)));
  } else {
    return value;
  }
}

template <class T>
double number_of(std::uint64_t key) {
  if constexpr (std::is_floating_point_v<T>) {
    using Bits = std::conditional_t<sizeof(T) == 4, std::uint32_t, std::uint64_t>;
    constexpr Bits sign = Bits{1} << (8 * sizeof(T) - 1);
    const auto bits = static_cast<Bits>(key);
    return static_cast<double>(
        std::bit_cast<T>((bits & sign) != 0 ? static_cast<Bits>(bits ^ sign) : static_cast<Bits>(~bits)));
  } else if constexpr (std::is_signed_v<T>) {
    using Bits = std::make_unsigned_t<T>;
    return static_cast<double>(static_cast<T>(static_cast<Bits>(key) ^ (Bits{1} << (8 * sizeof(T) - 1))));
  } else {
    return static_cast<double>(static_cast<T>(key));
  }
}

using Histogram = std::vector<std::uint64_t>;
constexpr unsigned digit_bits = 16;

/// Counts, for each prefix, the next 16 bits of the keys that begin with it. Keys have the order of numbers of type K.
template <class K>
bool count_digits(const VoxelPieces& voxels, index_t channel, bool nonzero, unsigned shift,
                  std::map<std::uint64_t, Histogram>& histograms, Scheduler* scheduler, const std::stop_token& stop) {
  constexpr unsigned key_bits = 8 * sizeof(K);
  const unsigned above = shift + digit_bits;
  const std::uint64_t digits = std::uint64_t{1} << std::min(digit_bits, key_bits);
  const auto prefix_of = [above](std::uint64_t key) { return above >= 64 ? 0 : key >> above; };
  std::mutex mutex;
  return voxels.for_each([&](const StoredVolume& piece, const VoxelBox& box) {
    return for_each_block(voxels.extent, box, scheduler, stop, [&](std::size_t, const VoxelBox& part) {
      std::map<std::uint64_t, std::vector<std::uint32_t>> own;
      for (const auto& [prefix, unused] : histograms) own[prefix].assign(digits, 0);
      io::with_type(voxels.type, [&]<class T>(T) {
        for_each_row<T>(piece, box, channel, part, [&](const T* row, index_t count, index_t) {
          for (index_t i = 0; i < count; ++i) {
            if (nonzero && row[i] == T{0}) continue;
            const std::uint64_t key = key_of<K>(static_cast<K>(row[i]));
            const auto at = own.size() == 1 ? (prefix_of(key) == own.begin()->first ? own.begin() : own.end())
                                            : own.find(prefix_of(key));
            if (at != own.end()) ++at->second[key >> shift & (digits - 1)];
          }
        });
      });
      // Sums of integers do not depend on their order.
      const std::lock_guard lock(mutex);
      for (const auto& [prefix, counts] : own) {
        Histogram& to = histograms.at(prefix);
        for (std::size_t d = 0; d < digits; ++d) to[d] += counts[d];
      }
    });
  });
}

/// Finds the numbers of given ranks, 16 bits at a time.
template <class K>
std::optional<std::vector<double>> select(std::span<const VoxelPieces> volumes, index_t channel, bool nonzero,
                                          const std::function<std::vector<std::uint64_t>(std::uint64_t)>& ranks_for,
                                          Scheduler* scheduler, const std::stop_token& stop) {
  constexpr unsigned key_bits = 8 * sizeof(K);
  constexpr std::size_t digits = std::size_t{1} << std::min(digit_bits, key_bits);
  std::vector<std::uint64_t> ranks, prefixes;  // per number that is looked for
  for (unsigned left = key_bits; left > 0;) {
    const unsigned shift = left > digit_bits ? left - digit_bits : 0;
    std::map<std::uint64_t, Histogram> histograms;
    if (left == key_bits) histograms[0].resize(digits);
    for (const std::uint64_t prefix : prefixes) histograms[prefix].resize(digits);
    for (const VoxelPieces& voxels : volumes) {
      if (!count_digits<K>(voxels, channel, nonzero, shift, histograms, scheduler, stop)) return std::nullopt;
    }
    if (left == key_bits) {
      std::uint64_t total = 0;
      for (const std::uint64_t n : histograms[0]) total += n;
      if (total == 0) return std::vector<double>{};
      ranks = ranks_for(total);
      prefixes.assign(ranks.size(), 0);
    }
    for (std::size_t i = 0; i < ranks.size(); ++i) {
      const Histogram& counts = histograms.at(prefixes[i]);
      std::size_t d = 0;
      while (ranks[i] >= counts[d]) ranks[i] -= counts[d++];
      prefixes[i] = prefixes[i] << std::min(digit_bits, key_bits) | d;
    }
    left = shift;
  }
  std::vector<double> numbers;
  for (const std::uint64_t key : prefixes) numbers.push_back(number_of<K>(key));
  return numbers;
}

}  // namespace

Moments Moments::joined(const Moments& other) const noexcept {
  if (other.count == 0) return *this;
  if (count == 0) return other;
  const double n = count + other.count, difference = other.mean - mean;
  return {n, mean + difference * (other.count / n),
          squares + other.squares + difference * difference * (count * (other.count / n))};
}

double Moments::deviation() const noexcept { return count > 0 ? std::sqrt(squares / count) : 0; }

VoxelPieces pieces_of(const StoredVolume& volume) {
  return {.channels = volume.shape().c,
          .extent = volume.shape().extent,
          .type = volume.type(),
          .for_each = [&volume](const VoxelPieces::Visit& visit) {
            return visit(volume, {{0, 0, 0}, volume.shape().extent});
          }};
}

VoxelPieces pieces_of(const io::VolumeInfo& info, const VoxelBox& box, std::size_t bytes,
                      std::function<StoredVolume(const VoxelBox&)> read) {
  // Whole blocks that cover a chunk, then more blocks along X, Y and Z.
  const auto in_blocks = [](index_t n) { return (n + statistics_block - 1) / statistics_block * statistics_block; };
  const auto most = static_cast<index_t>(bytes / (static_cast<std::size_t>(info.channels) * info.bytes_per_voxel()));
  Extent3 piece = Extent3::all(statistics_block);
  for (const int axis : {2, 1, 0}) {
    const index_t others = piece.volume() / piece[axis];
    const index_t affordable = most / others / statistics_block * statistics_block;
    const index_t chunk = in_blocks(std::min(info.chunk[axis], box.extent[axis]));
    piece[axis] = std::clamp(affordable / chunk * chunk, std::min(chunk, std::max(affordable, statistics_block)),
                             std::max(in_blocks(box.extent[axis]), statistics_block));
  }
  return {.channels = info.channels,
          .extent = box.extent,
          .type = info.type,
          .for_each = [box, piece, read = std::move(read)](const VoxelPieces::Visit& visit) {
            for (index_t z = 0; z < box.extent.z; z += piece.z) {
              for (index_t y = 0; y < box.extent.y; y += piece.y) {
                for (index_t x = 0; x < box.extent.x; x += piece.x) {
                  const Extent3 begin{z, y, x};
                  Extent3 extent = box.extent - begin;
                  for (int axis = 0; axis < 3; ++axis) extent[axis] = std::min(extent[axis], piece[axis]);
                  if (!visit(read({box.begin + begin, extent}), {begin, extent})) return false;
                }
              }
            }
            return true;
          }};
}

std::size_t blocks_of(const Extent3& volume) { return static_cast<std::size_t>(block_grid(volume).volume()); }

bool for_each_block(const Extent3& volume, const VoxelBox& piece, Scheduler* scheduler, const std::stop_token& stop,
                    const std::function<void(std::size_t, const VoxelBox&)>& body) {
  const Extent3 grid = block_grid(volume), own = block_grid(piece.extent);
  const auto one = [&](index_t i) {
    const Extent3 at{i / (own.y * own.x), i / own.x % own.y, i % own.x};
    VoxelBox box{piece.begin, piece.extent};
    index_t number = 0;
    for (int axis = 0; axis < 3; ++axis) {
      box.begin[axis] += at[axis] * statistics_block;
      box.extent[axis] = std::min(statistics_block, piece.end()[axis] - box.begin[axis]);
      number = number * grid[axis] + box.begin[axis] / statistics_block;
    }
    body(static_cast<std::size_t>(number), box);
  };
  if (scheduler != nullptr) return run_parallel(*scheduler, "voxel_statistics", own.volume(), one, stop);
  for (index_t i = 0; i < own.volume(); ++i) {
    if (stop.stop_requested()) return false;
    one(i);
  }
  return true;
}

std::optional<VoxelStatistics> statistics_of(const VoxelPieces& voxels, const StatisticsOptions& options,
                                             Scheduler* scheduler, const std::stop_token& stop) {
  const auto channels = static_cast<std::size_t>(voxels.channels);
  std::vector<std::vector<BlockStatistics>> blocks(channels, std::vector<BlockStatistics>(blocks_of(voxels.extent)));
  const bool complete = voxels.for_each([&](const StoredVolume& piece, const VoxelBox& box) {
    return for_each_block(voxels.extent, box, scheduler, stop, [&](std::size_t block, const VoxelBox& part) {
      for (std::size_t c = 0; c < channels; ++c) {
        Limits limits{.nonzero = options.nonzero};
        if (!options.clip.empty()) std::tie(limits.low, limits.high) = options.clip[c];
        blocks[c][block] = io::with_type(voxels.type, [&]<class T>(T) {
          return block_statistics<T>(piece, box, static_cast<index_t>(c), part, limits);
        });
      }
    });
  });
  if (!complete) return std::nullopt;
  VoxelStatistics result;
  const std::string kind = fmt::format("{} {} {}", voxels.channels, to_string(voxels.extent), io::name_of(voxels.type));
  result.digest = XXH3_64bits(kind.data(), kind.size());
  for (const auto& list : blocks) {
    VoxelStatistics::Channel channel{.moments = {}, .least = list[0].least, .largest = list[0].largest};
    std::vector<Moments> moments;
    for (const BlockStatistics& block : list) {
      moments.push_back(join_all(block.planes));
      channel.least = std::min(channel.least, block.least);
      channel.largest = std::max(channel.largest, block.largest);
      result.digest = XXH3_64bits_withSeed(&block.digest, sizeof block.digest, result.digest);
    }
    if (channel.least > channel.largest) channel.least = channel.largest = 0;  // no voxel counts
    channel.moments = join_all(std::move(moments));
    result.channels.push_back(channel);
    if (!options.slices) continue;
    for (const Moments& slice : join_slices(list, voxels.extent)) result.slices.push_back(slice);
  }
  return result;
}

std::optional<std::vector<double>> percentiles_of(std::span<const VoxelPieces> volumes, index_t channel,
                                                  std::span<const double> percents, bool nonzero, Scheduler* scheduler,
                                                  const std::stop_token& stop) {
  // numpy: the voxel of rank q * (n - 1), and between two voxels the line from the lower to the upper one.
  std::vector<double> shares;
  const auto ranks_for = [&](std::uint64_t count) {
    std::vector<std::uint64_t> ranks;
    for (const double percent : percents) {
      const double rank = percent / 100 * static_cast<double>(count - 1);
      const auto lower = static_cast<std::uint64_t>(rank);
      shares.push_back(rank - static_cast<double>(lower));
      ranks.push_back(lower);
      ranks.push_back(std::min(lower + 1, count - 1));
    }
    return ranks;
  };
  const bool alike = std::all_of(volumes.begin(), volumes.end(),
                                 [&](const VoxelPieces& one) { return one.type == volumes.front().type; });
  const auto found = io::with_type(alike ? volumes.front().type : io::VoxelType::float64, [&]<class T>(T) {
    return select<T>(volumes, channel, nonzero, ranks_for, scheduler, stop);
  });
  if (!found) return std::nullopt;
  std::vector<double> result;
  for (std::size_t i = 0; i < percents.size(); ++i) {
    if (found->empty()) {
      result.push_back(std::nan(""));
      continue;
    }
    const double low = (*found)[2 * i], high = (*found)[2 * i + 1], share = shares[i];
    result.push_back(share < 0.5 ? low + (high - low) * share : high - (high - low) * (1 - share));
  }
  return result;
}

}  // namespace convolume::nets
