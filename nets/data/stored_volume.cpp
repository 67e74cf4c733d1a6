#include "nets/data/stored_volume.hpp"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <optional>
#include <unordered_map>

#include <fmt/format.h>

#include "convolume/error.hpp"

namespace convolume::nets {
namespace {

using io::VoxelType;

bool is_code(VoxelType type) {
  return type == VoxelType::uint8 || type == VoxelType::uint16 || type == VoxelType::uint32;
}

/// Returns the stored number that has these bits.
template <class T>
T stored_number(std::uint64_t bits) {
  T number;
  std::memcpy(&number, &bits, sizeof(T));  // the low bytes, as they were read
  return number;
}

double double_of(const ExactNumber& number) {
  return std::visit([](auto value) { return static_cast<double>(value); }, number);
}
double double_of(std::uint64_t bits, VoxelType type) {
  return io::with_type(type, [&]<class T>(T) { return static_cast<double>(stored_number<T>(bits)); });
}
float float_of(std::uint64_t bits, VoxelType type) {
  return io::with_type(type, [&]<class T>(T) { return static_cast<float>(stored_number<T>(bits)); });
}

/// Returns whether a stored number, given by its bits, is the number of a description. A float is compared in its own
/// type, so that a number can be listed as a message prints it.
bool is_number(std::uint64_t bits, VoxelType type, const ExactNumber& number) {
  const auto* const integer = std::get_if<std::int64_t>(&number);
  return io::with_type(type, [&]<class T>(T) {
    const T stored = stored_number<T>(bits);
    if constexpr (std::is_integral_v<T>) {
      if (integer == nullptr) {
        const double value = std::get<double>(number);
        const bool exact = value == std::floor(value) && std::abs(value) <= 9007199254740992;  // 2^53
        return exact && std::cmp_equal(stored, static_cast<std::int64_t>(value));
      }
      // CREMI marks background by the largest number of uint64, which TOML cannot write.
      if (std::is_unsigned_v<T> && *integer == -1) return stored == std::numeric_limits<T>::max();
      return std::cmp_equal(stored, *integer);
    } else {
      return stored == static_cast<T>(double_of(number));
    }
  });
}

/// Returns the code, of so many, that is a number of a description.
std::optional<std::size_t> code_of(const ExactNumber& number, std::size_t codes) {
  const auto* const integer = std::get_if<std::int64_t>(&number);
  if (integer != nullptr && *integer == -1) return codes - 1;
  const double value = double_of(number);
  if (!(value >= 0) || !(value < static_cast<double>(codes)) || value != std::floor(value)) return std::nullopt;
  return static_cast<std::size_t>(value);
}

/// Returns whether a stored float is nearly a whole number of a description.
bool is_nearly(std::uint64_t bits, VoxelType type, const ExactNumber& number) {
  const double value = double_of(number);
  return io::is_floating(type) && value == std::floor(value) &&
         std::abs(double_of(bits, type) - value) <= label_tolerance;
}

/// Finds which of these numbers a stored number counts as: those that it is, or else those that it nearly is.
void match(std::uint64_t bits, VoxelType type, const std::vector<ExactNumber>& numbers, std::vector<bool>& result) {
  result.resize(numbers.size());
  bool exact = false;
  for (std::size_t i = 0; i < numbers.size(); ++i) {
    result[i] = is_number(bits, type, numbers[i]);
    exact = exact || result[i];
  }
  for (std::size_t i = 0; !exact && io::is_floating(type) && i < numbers.size(); ++i) {
    result[i] = is_nearly(bits, type, numbers[i]);
  }
}

}  // namespace

std::vector<ExactNumber> LabelSpec::listed() const {
  std::vector<ExactNumber> all = positive;
  for (const auto* lists : {&classes, &regions}) {
    for (const auto& one : *lists) all.insert(all.end(), one.begin(), one.end());
  }
  all.insert(all.end(), ignore.begin(), ignore.end());
  return all;
}

StoredVolume::StoredVolume(Tensor<float> voxels)
    : storage_(std::move(voxels)),
      voxels_(reinterpret_cast<const std::byte*>(storage_.data())),
      channels_(storage_.shape().c),
      extent_(storage_.shape().extent) {}

StoredVolume::StoredVolume(index_t channels, const Extent3& extent, VoxelType type, std::pmr::memory_resource* memory)
    : channels_(channels), extent_(extent), type_(type) {
  const auto floats = static_cast<index_t>((bytes() + sizeof(float) - 1) / sizeof(float));
  storage_ = Tensor<float>({1, 1, {1, 1, floats}}, memory);
  voxels_ = bytes_of_storage();
}

StoredVolume StoredVolume::view_of(const Tensor<float>& voxels) {
  StoredVolume volume;
  volume.voxels_ = reinterpret_cast<const std::byte*>(voxels.data());
  volume.channels_ = voxels.shape().c;
  volume.extent_ = voxels.shape().extent;
  return volume;
}

StoredVolume StoredVolume::read(const io::VolumeSource& source, io::ChannelRange channels, const io::VoxelBox& box,
                                std::pmr::memory_resource* memory) {
  StoredVolume volume(channels.count, box.extent, source.info().type, memory);
  source.read(channels, box, {volume.bytes_of_storage(), volume.bytes()});
  volume.require_finite(source, box.begin);
  return volume;
}

StoredVolume StoredVolume::read_labels(const io::VolumeSource& source, const io::VoxelBox& box, const LabelSpec& spec,
                                       std::pmr::memory_resource* memory) {
  if (source.info().channels != 1) {
    throw FormatError(
        fmt::format("{}: has {} channels, but labels have one; copy one of them with convolume convert "
                    "--channel",
                    source.path().text(), source.info().channels));
  }
  StoredVolume volume = read(source, box, memory);
  volume.become_labels(spec, memory);
  return volume;
}

void StoredVolume::become_labels(const LabelSpec& spec, std::pmr::memory_resource* memory) {
  if (!io::is_floating(type_) && io::size_of(type_) >= 4) renumber(memory);
  map_labels(spec);
}

void StoredVolume::require_finite(const io::VolumeSource& source, const Extent3& origin) const {
  if (!io::is_floating(type_)) return;
  const index_t row = extent_.x;
  std::vector<float> values(static_cast<std::size_t>(row));
  for (index_t first = 0; first < elements(); first += row) {
    gather(first, row, values.data());
    for (index_t x = 0; x < row; ++x) {
      const float value = values[static_cast<std::size_t>(x)];
      if (std::isfinite(value)) continue;
      const index_t plane = first / extent_.x;
      throw FormatError(
          fmt::format("{}: voxel (z {}, y {}, x {}){} is {} as float; only finite values can be used{}",
                      source.path().text(), origin.z + plane / extent_.y % extent_.z, origin.y + plane % extent_.y,
                      origin.x + x, source.info().turned ? io::turned_text : "", value,
                      std::isnan(value)
                          ? ": replace it by the key [intensity] nan = 0 of a data set (images only), or in a copy of "
                            "the file: convolume convert --nan 0"
                          : ", so replace it"));
    }
  }
}

/// Gives each stored number a code, in the order in which they appear. Codes take 16 bits if they suffice.
void StoredVolume::renumber(std::pmr::memory_resource* memory) {
  const auto count = static_cast<std::size_t>(elements());
  const std::size_t stored = io::size_of(type_);
  std::unordered_map<std::uint64_t, std::uint32_t> codes;
  StoredVolume coded(1, extent_, VoxelType::uint32, memory);
  std::uint64_t last = 0;
  std::uint32_t code = 0;
  for (std::size_t i = 0; i < count; ++i) {
    std::uint64_t bits = 0;
    std::memcpy(&bits, voxels_ + i * stored, stored);
    if (bits != last || ids_.empty()) {  // neighbours are mostly equal
      const auto [at, added] = codes.try_emplace(bits, static_cast<std::uint32_t>(ids_.size()));
      if (added) ids_.push_back(bits);
      code = at->second;
      last = bits;
    }
    std::memcpy(coded.bytes_of_storage() + 4 * i, &code, 4);
  }
  const VoxelType narrow = ids_.size() <= 256     ? VoxelType::uint8
                           : ids_.size() <= 65536 ? VoxelType::uint16
                                                  : VoxelType::uint32;
  StoredVolume result(1, extent_, narrow, memory);
  io::convert_voxels(coded.voxels_, VoxelType::uint32, result.bytes_of_storage(), narrow, count);
  result.ids_ = std::move(ids_);
  result.id_type_ = type_;
  *this = std::move(result);
}

void StoredVolume::map_labels(const LabelSpec& spec) {
  may_be_ignored_ = !spec.ignore.empty();
  const bool keeps = spec.positive.empty() && spec.classes.empty() && spec.regions.empty();
  table_.clear();
  if (keeps && spec.ignore.empty() && ids_.empty()) return;
  const std::vector<ExactNumber> listed = spec.listed();
  std::vector<bool> found;
  const auto of_number = [&](std::uint64_t bits, VoxelType type) {
    match(bits, type, listed, found);
    auto at = found.begin();  // the entries stand in the order of listed()
    const auto any = [&](const std::vector<ExactNumber>& list) {
      const auto begin = at;
      at += static_cast<std::ptrdiff_t>(list.size());
      return std::find(begin, at, true) != at;
    };
    float target = keeps ? float_of(bits, type) : std::numeric_limits<float>::quiet_NaN();
    if (!spec.positive.empty()) target = any(spec.positive) ? 1.0f : 0.0f;
    bool listed_before = false;  // two large classes may be one float
    for (std::size_t c = 0; c < spec.classes.size(); ++c) {
      const bool is = any(spec.classes[c]);
      if (is && !listed_before) target = static_cast<float>(c);
      listed_before = listed_before || is;
    }
    std::uint32_t sum = 0;
    for (std::size_t r = 0; r < spec.regions.size(); ++r) {
      if (any(spec.regions[r])) sum |= std::uint32_t{1} << r;
    }
    if (!spec.regions.empty()) target = static_cast<float>(sum);
    return any(spec.ignore) ? ignored_label : target;
  };
  if (!ids_.empty()) {
    for (const std::uint64_t id : ids_) table_.push_back(of_number(id, id_type_));
    return;
  }
  if (is_code(type_)) {
    const std::size_t codes = std::size_t{1} << (8 * io::size_of(type_));
    table_.resize(codes, !spec.classes.empty() ? std::numeric_limits<float>::quiet_NaN() : 0.0f);
    for (std::size_t code = 0; keeps && code < codes; ++code) table_[code] = static_cast<float>(code);
    for (const ExactNumber& number : listed) {
      if (const auto code = code_of(number, codes)) table_[*code] = of_number(*code, type_);
    }
    return;
  }
  // Floats, and signed integers of few bits.
  renumber(std::pmr::get_default_resource());
  map_labels(spec);
}

void StoredVolume::find_listed(const LabelSpec& spec, std::vector<bool>& found) const {
  const std::vector<ExactNumber> listed = spec.listed();
  std::vector<bool> own;
  const auto mark = [&](std::uint64_t bits, VoxelType type) {
    match(bits, type, listed, own);
    for (std::size_t i = 0; i < own.size(); ++i) found[i] = found[i] || own[i];
  };
  for (const std::uint64_t id : ids_) mark(id, id_type_);
  if (!ids_.empty() || listed.empty() || !is_code(type_) || io::size_of(type_) > 2) return;
  std::vector<char> occurs(std::size_t{1} << (8 * io::size_of(type_)));
  io::with_type(type_, [&]<class T>(T) {
    const T* const voxels = reinterpret_cast<const T*>(voxels_);
    for (index_t i = 0; i < elements(); ++i) occurs[static_cast<std::size_t>(voxels[i])] = 1;
  });
  for (std::size_t i = 0; i < listed.size(); ++i) {
    const auto code = code_of(listed[i], occurs.size());
    found[i] = found[i] || (code && occurs[*code] != 0);
  }
}

void StoredVolume::gather(index_t first, index_t count, float* to) const {
  if (!scaling_ || scaling_->list.empty()) return gather_plane(first, count, nullptr, to);
  const index_t plane = extent_.y * extent_.x;
  while (count > 0) {
    const index_t z = first / plane, part = std::min(count, (z + 1) * plane - first);
    gather_plane(first, part, scaling_->at(z / extent_.z, first_plane_ + z % extent_.z), to);
    first += part;
    to += part;
    count -= part;
  }
}

void StoredVolume::gather_plane(index_t first, index_t count, const Scaling* scaling, float* to) const {
  io::with_type(type_, [&]<class T>(T) {
    const T* from = reinterpret_cast<const T*>(voxels_) + first;
    if constexpr (std::is_integral_v<T> && std::is_unsigned_v<T> && sizeof(T) <= 4) {
      if (!table_.empty()) {
        for (index_t i = 0; i < count; ++i) to[i] = table_[from[i]];
        return;
      }
    }
    if (scaling != nullptr) {
      const Scaling s = *scaling;
      for (index_t i = 0; i < count; ++i) {
        const double voxel = std::min(std::max(static_cast<double>(from[i]), s.low), s.high);
        to[i] = static_cast<float>((voxel - s.shift) * s.scale);
      }
      return;
    }
    for (index_t i = 0; i < count; ++i) to[i] = static_cast<float>(from[i]);
  });
}

float StoredVolume::value(index_t i) const {
  float result = 0;
  gather(i, 1, &result);
  return result;
}

std::string StoredVolume::stored_text(index_t i) const {
  const std::byte* const voxel = voxels_ + static_cast<std::size_t>(i) * io::size_of(type_);
  if (ids_.empty()) return io::text_of(voxel, type_);
  std::uint32_t code = 0;
  std::memcpy(&code, voxel, io::size_of(type_));
  return io::text_of(reinterpret_cast<const std::byte*>(&ids_[code]), id_type_);
}

Tensor<float> StoredVolume::planes(index_t begin, index_t end, std::pmr::memory_resource* memory) const {
  const index_t plane = extent_.y * extent_.x, count = (end - begin) * plane;
  Tensor<float> result({1, channels_, {end - begin, extent_.y, extent_.x}}, memory);
  for (index_t c = 0; c < channels_; ++c) {
    gather((c * extent_.z + begin) * plane, count, result.data() + c * count);
  }
  return result;
}

StoredVolume StoredVolume::cut(index_t begin, index_t end, std::pmr::memory_resource* memory) const {
  StoredVolume part(channels_, {end - begin, extent_.y, extent_.x}, type_, memory);
  const std::size_t plane = static_cast<std::size_t>(extent_.y * extent_.x) * io::size_of(type_);
  const std::size_t bytes = static_cast<std::size_t>(end - begin) * plane;
  for (index_t c = 0; c < channels_; ++c) {
    std::memcpy(part.bytes_of_storage() + static_cast<std::size_t>(c) * bytes,
                voxels_ + static_cast<std::size_t>(c * extent_.z + begin) * plane, bytes);
  }
  part.scale(scaling_, first_plane_ + begin);
  part.ids_ = ids_;
  part.id_type_ = id_type_;
  part.table_ = table_;
  part.may_be_ignored_ = may_be_ignored_;
  return part;
}

void StoredVolume::copy_overlap(const StoredVolume& from, const io::VoxelBox& from_box, const io::VoxelBox& own_box) {
  const std::size_t voxel = io::size_of(type_), of_channel = static_cast<std::size_t>(extent_.volume()) * voxel;
  const std::size_t of_other = static_cast<std::size_t>(from.extent_.volume()) * voxel;
  for (std::size_t c = 0; c < static_cast<std::size_t>(channels_); ++c) {
    io::copy_overlap(from.voxels_ + c * of_other, from_box, bytes_of_storage() + c * of_channel, own_box, voxel);
  }
}

void StoredVolume::move_planes(index_t from, index_t to, index_t count) {
  const std::size_t plane = static_cast<std::size_t>(extent_.y * extent_.x) * io::size_of(type_);
  const auto at = [&](index_t c, index_t z) {
    return bytes_of_storage() + static_cast<std::size_t>(c * extent_.z + z) * plane;
  };
  for (index_t c = 0; c < channels_; ++c) {
    std::memmove(at(c, to), at(c, from), static_cast<std::size_t>(count) * plane);
  }
}

}  // namespace convolume::nets
