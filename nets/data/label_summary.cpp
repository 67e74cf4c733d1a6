#include "nets/data/label_summary.hpp"

#include <algorithm>
#include <cmath>
#include <mutex>

#include <xxhash.h>

namespace convolume::nets {
namespace {

using io::VoxelBox;

/// Mixes the bits of a number (the finaliser of SplitMix64).
std::uint64_t hash_of(std::uint64_t index) noexcept {
  index += 0x9E3779B97F4A7C15u;
  index = (index ^ (index >> 30)) * 0xBF58476D1CE4E5B9u;
  index = (index ^ (index >> 27)) * 0x94D049BB133111EBu;
  return index ^ (index >> 31);
}

/// Keeps the numbers with the smallest hashes. What is kept does not depend on the order in which they come.
class Positions {
 public:
  void add(std::uint64_t index) {
    const std::uint64_t hash = hash_of(index);
    if (hash > limit_) return;
    kept_.emplace_back(hash, index);
    if (kept_.size() >= 2 * most_positions) shorten();
  }
  void add(const Positions& other) {
    for (const auto& [hash, index] : other.kept_) add(index);
  }
  std::vector<std::uint64_t> in_order() {
    if (kept_.size() > most_positions) shorten();
    std::vector<std::uint64_t> result;
    for (const auto& [hash, index] : kept_) result.push_back(index);
    std::sort(result.begin(), result.end());
    return result;
  }

 private:
  void shorten() {
    std::nth_element(kept_.begin(), kept_.begin() + most_positions - 1, kept_.end());
    kept_.resize(most_positions);
    limit_ = kept_.back().first;
  }
  std::vector<std::pair<std::uint64_t, std::uint64_t>> kept_;  // hash and number
  std::uint64_t limit_ = ~std::uint64_t{0};
};

void keep_first(std::optional<FoundVoxel>& found, std::uint64_t index, float value) {
  if (!found || index < found->index) found = FoundVoxel{index, value};
}

void keep_largest(std::optional<FoundVoxel>& found, std::uint64_t index, float value) {
  if (!found || value > found->value || (value == found->value && index < found->index)) {
    found = FoundVoxel{index, value};
  }
}

/// What one block contributes, and what many do.
struct Found {
  LabelSummary summary;
  std::vector<Positions> positions;

  void add(float value, std::uint64_t index) {
    if (value == ignored_label) {
      ++summary.ignored;
      return;
    }
    if (std::isnan(value)) return keep_first(summary.not_listed, index, value);
    if (!summary.largest || value > summary.largest->value) keep_largest(summary.largest, index, value);
    if (!(value >= 0) || !(value <= 1)) keep_first(summary.not_unit, index, value);
    if (value < 0) keep_first(summary.negative, index, value);
    if (value != std::floor(value)) keep_first(summary.not_whole, index, value);
    const float rounded = std::floor(value + 0.5f);
    if (!(rounded >= 0) || !(rounded < static_cast<float>(most_classes))) return;
    count(static_cast<std::size_t>(rounded), index);
  }

  void add_regions(float value, index_t regions, std::uint64_t index) {
    if (value == ignored_label) {
      ++summary.ignored;
      return;
    }
    if (value == 0) count(0, index);
    for (index_t r = 0; r < regions; ++r) {
      if (in_region(value, r)) count(static_cast<std::size_t>(r) + 1, index);
    }
  }

  void count(std::size_t of_class, std::uint64_t index) {
    grow(of_class + 1);
    ++summary.classes[of_class].count;
    if (of_class > 0) positions[of_class].add(index);
  }

  void add(const Found& other) {
    grow(other.positions.size());
    for (std::size_t c = 0; c < other.positions.size(); ++c) {
      summary.classes[c].count += other.summary.classes[c].count;
      positions[c].add(other.positions[c]);
    }
    summary.ignored += other.summary.ignored;
    const LabelSummary& o = other.summary;
    if (o.not_listed) keep_first(summary.not_listed, o.not_listed->index, o.not_listed->value);
    if (o.not_whole) keep_first(summary.not_whole, o.not_whole->index, o.not_whole->value);
    if (o.not_unit) keep_first(summary.not_unit, o.not_unit->index, o.not_unit->value);
    if (o.negative) keep_first(summary.negative, o.negative->index, o.negative->value);
    if (o.largest) keep_largest(summary.largest, o.largest->index, o.largest->value);
  }

  void grow(std::size_t classes) {
    if (positions.size() >= classes) return;
    positions.resize(classes);
    summary.classes.resize(classes);
  }
};

Found of_block(const StoredVolume& piece, const VoxelBox& piece_box, const VoxelBox& block, const Extent3& volume,
               index_t regions) {
  Found found;
  float row[statistics_block];
  const Extent3 from = block.begin - piece_box.begin;
  for (index_t z = 0; z < block.extent.z; ++z) {
    for (index_t y = 0; y < block.extent.y; ++y) {
      const Extent3& e = piece_box.extent;
      piece.gather(((from.z + z) * e.y + from.y + y) * e.x + from.x, block.extent.x, row);
      std::uint64_t& digest = found.summary.digest;
      digest = XXH3_64bits_withSeed(row, static_cast<std::size_t>(block.extent.x) * sizeof(float), digest);
      const auto first =
          static_cast<std::uint64_t>(((block.begin.z + z) * volume.y + block.begin.y + y) * volume.x + block.begin.x);
      for (index_t x = 0; x < block.extent.x; ++x) {
        const std::uint64_t index = first + static_cast<std::uint64_t>(x);
        regions > 0 ? found.add_regions(row[x], regions, index) : found.add(row[x], index);
      }
    }
  }
  return found;
}

}  // namespace

std::optional<LabelSummary> summarise_labels(const VoxelPieces& labels, const LabelSpec& spec, Scheduler* scheduler,
                                             const std::stop_token& stop) {
  const auto regions = static_cast<index_t>(spec.regions.size());
  std::vector<bool> listed(spec.listed().size());
  Found total;
  std::vector<std::uint64_t> digests(blocks_of(labels.extent));
  const bool complete = labels.for_each([&](const StoredVolume& piece, const VoxelBox& box) {
    piece.find_listed(spec, listed);
    std::mutex mutex;
    return for_each_block(labels.extent, box, scheduler, stop, [&](std::size_t block, const VoxelBox& part) {
      const Found found = of_block(piece, box, part, labels.extent, regions);
      digests[block] = found.summary.digest;
      const std::lock_guard lock(mutex);
      total.add(found);
    });
  });
  if (!complete) return std::nullopt;
  for (std::size_t c = 1; c < total.positions.size(); ++c) {
    total.summary.classes[c].positions = total.positions[c].in_order();
  }
  total.summary.listed = std::move(listed);
  total.summary.digest = XXH3_64bits(digests.data(), digests.size() * sizeof digests[0]);
  return total.summary;
}

}  // namespace convolume::nets
