// A volume in memory, in the type in which it is stored on disk.
#pragma once

#include <cstdint>
#include <limits>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "convolume/tensor.hpp"
#include "nets/base/toml_reader.hpp"
#include "nets/io/volume_source.hpp"

namespace convolume::nets {

/// What a label becomes that does not count.
inline constexpr float ignored_label = -std::numeric_limits<float>::infinity();

/// Largest number of regions. A float holds each sum of 2^r over so many regions exactly.
inline constexpr std::size_t most_regions = 24;

/// How far a stored float may be from a listed whole number to count as it.
inline constexpr double label_tolerance = 0.01;

/// Says how stored label values become targets. At most one of `positive`, `classes` and `regions` is set. A stored
/// float that is none of the listed numbers counts as a listed whole number that is at most label_tolerance away:
/// labels that a program scaled or interpolated are hardly ever exact.
struct LabelSpec {
  std::vector<ExactNumber> positive;              ///< values that become 1; all others become 0
  std::vector<std::vector<ExactNumber>> classes;  ///< values that become class 0, 1, ...; all others become NaN
  /// The values of each region. A value becomes the sum of 2^r over all regions r that list it, counted from 0. So one
  /// volume holds regions that overlap, and a value that no region lists becomes 0.
  std::vector<std::vector<ExactNumber>> regions;
  std::vector<ExactNumber> ignore;  ///< values that become `ignored_label`

  /// Returns all values that have to occur: of `positive`, of the classes, of the regions, and then those of `ignore`.
  std::vector<ExactNumber> listed() const;
};

/// Returns whether a label of a data set with regions lies in a region, counted from 0. The label must not be
/// `ignored_label`.
inline bool in_region(float label, index_t region) {
  return (static_cast<std::uint32_t>(label) >> static_cast<std::uint32_t>(region) & 1U) != 0;
}

/// How voxels become numbers: (voxel - shift) * scale, in double, after clipping to [low, high].
struct Scaling {
  double shift = 0, scale = 1;
  double low = -std::numeric_limits<double>::infinity(), high = std::numeric_limits<double>::infinity();
  friend bool operator==(const Scaling&, const Scaling&) = default;
};

/// The scalings of a whole volume: one per channel, or [c][z] with one per channel and plane. An empty list leaves the
/// voxels as they are.
struct VolumeScaling {
  std::vector<Scaling> list{};
  index_t planes = 0;  ///< of the volume, if each plane has its own; otherwise 0
  /// Returns the scaling of a plane, or null.
  const Scaling* at(index_t channel, index_t z) const {
    if (list.empty()) return nullptr;
    return &list[static_cast<std::size_t>(planes == 0 ? channel : channel * planes + z)];
  }
};

/// The voxels of a volume, [c][z][y][x], and how they become numbers: as they are, shifted and scaled per channel, or
/// by a table of codes.
class StoredVolume {
 public:
  StoredVolume() = default;
  /// Takes floats {1, C, Z, Y, X} over.
  StoredVolume(Tensor<float> voxels);  // NOLINT(google-explicit-constructor)
  /// Makes a volume whose voxels copy_overlap() has to set.
  StoredVolume(index_t channels, const Extent3& extent, io::VoxelType type, std::pmr::memory_resource* memory);
  /// Uses floats that live elsewhere, and at least as long as the result.
  static StoredVolume view_of(const Tensor<float>& voxels);

  /// Reads a box of some channels, or of all. Throws what VolumeSource::read() throws, and FormatError if a float is
  /// not finite.
  static StoredVolume read(const io::VolumeSource& source, io::ChannelRange channels, const io::VoxelBox& box,
                           std::pmr::memory_resource* memory);
  static StoredVolume read(const io::VolumeSource& source, const io::VoxelBox& box, std::pmr::memory_resource* memory) {
    return read(source, {0, source.info().channels}, box, memory);
  }
  /// Reads a box of labels. Integers of 32 and 64 bits are renumbered, so that no two of them become one. In `spec`, -1
  /// stands for the largest number of an unsigned type too. Values that it does not mention are kept if it has none of
  /// `positive`, `classes` and `regions`. Throws FormatError if the labels have several channels.
  static StoredVolume read_labels(const io::VolumeSource& source, const io::VoxelBox& box, const LabelSpec& spec,
                                  std::pmr::memory_resource* memory);

  /// Makes labels of stored voxels of one channel, as read_labels() does.
  void become_labels(const LabelSpec& spec, std::pmr::memory_resource* memory);

  explicit operator bool() const noexcept { return extent_.z > 0; }
  Shape5 shape() const noexcept { return {1, channels_, extent_}; }
  index_t elements() const { return channels_ * extent_.volume(); }
  io::VoxelType type() const noexcept { return type_; }
  std::size_t bytes() const { return static_cast<std::size_t>(elements()) * io::size_of(type_); }

  /// Writes `count` voxels as floats: voxel `first` in the order [c][z][y][x], and the ones after it.
  void gather(index_t first, index_t count, float* to) const;
  /// Returns one voxel as a float.
  float value(index_t i) const;
  /// Returns a voxel as it is stored, for messages.
  std::string stored_text(index_t i) const;
  /// Returns the planes [begin, end) of all channels as floats.
  Tensor<float> planes(index_t begin, index_t end, std::pmr::memory_resource* memory) const;
  Tensor<float> floats(std::pmr::memory_resource* memory) const { return planes(0, extent_.z, memory); }
  /// Returns a copy of planes, in the same type. Shifts and tables are kept.
  StoredVolume cut(index_t begin, index_t end, std::pmr::memory_resource* memory) const;

  /// Voxels of a volume of type float32, for tests that change them.
  float* data() noexcept { return storage_.data(); }
  const float* data() const noexcept { return reinterpret_cast<const float*>(voxels_); }
  void fill(float value) noexcept { storage_.fill(value); }

  /// Copies the voxels that both boxes have. `from_box` and `own_box` say where in a common volume the voxels of `from`
  /// and of this one lie. Both have the same channels and the same type.
  void copy_overlap(const StoredVolume& from, const io::VoxelBox& from_box, const io::VoxelBox& own_box);
  /// Moves `count` planes of all channels from one place to another one.
  void move_planes(index_t from, index_t to, index_t count);

  /// Scales voxels as is given. Plane 0 is plane `first_plane` of the volume that the scalings are for.
  void scale(std::shared_ptr<const VolumeScaling> scaling, index_t first_plane = 0) {
    scaling_ = std::move(scaling);
    first_plane_ = first_plane;
  }
  /// Says which plane of the volume plane 0 has become.
  void set_first_plane(index_t z) noexcept { first_plane_ = z; }
  /// Maps the voxels of a label volume as read_labels() does.
  void map_labels(const LabelSpec& spec);
  /// Marks the numbers of spec.listed() that occur among the voxels. `found` has one entry for each. The volume was
  /// mapped by the same `spec`.
  void find_listed(const LabelSpec& spec, std::vector<bool>& found) const;
  /// Returns whether a voxel may be `ignored_label`.
  bool may_be_ignored() const noexcept { return may_be_ignored_; }
  /// Returns the address of a voxel as it is stored.
  const std::byte* stored(index_t i) const noexcept {
    return voxels_ + static_cast<std::size_t>(i) * io::size_of(type_);
  }

 private:
  void gather_plane(index_t first, index_t count, const Scaling* scaling, float* to) const;
  std::byte* bytes_of_storage() noexcept { return reinterpret_cast<std::byte*>(storage_.data()); }
  void require_finite(const io::VolumeSource& source, const Extent3& origin) const;
  void renumber(std::pmr::memory_resource* memory);

  Tensor<float> storage_;              // memory for the voxels, whatever their type
  const std::byte* voxels_ = nullptr;  // in storage_, or elsewhere
  index_t channels_ = 0;
  Extent3 extent_{0, 0, 0};
  io::VoxelType type_ = io::VoxelType::float32;
  std::shared_ptr<const VolumeScaling> scaling_;
  index_t first_plane_ = 0;
  std::vector<std::uint64_t> ids_;  // of renumbered labels: the stored bits of each code
  io::VoxelType id_type_ = io::VoxelType::uint8;
  std::vector<float> table_;  // value of each code, or empty
  bool may_be_ignored_ = false;
};

}  // namespace convolume::nets
