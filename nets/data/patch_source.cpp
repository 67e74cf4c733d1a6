#include "nets/data/patch_source.hpp"

#include <algorithm>
#include <chrono>

#include "nets/data/mirror.hpp"

namespace convolume::nets {
namespace {

/// Returns the extent of what the cache reads at once: whole chunks of the file, at least 128 KiB, or some planes of
/// chunks, at least 64 KiB, if they can be read alone.
Extent3 unit_of(const io::VolumeInfo& info) {
  constexpr std::uint64_t least = 128 << 10, least_planes = 64 << 10;
  Extent3 unit;
  for (int axis = 0; axis < 3; ++axis) unit[axis] = std::clamp<index_t>(info.chunk[axis], 1, info.extent[axis]);
  const auto bytes = [&] { return static_cast<std::uint64_t>(unit.volume() * info.channels) * info.bytes_per_voxel(); };
  for (const int axis : {2, 1, 0}) {
    while (bytes() < least && unit[axis] < info.extent[axis]) unit[axis] = std::min(2 * unit[axis], info.extent[axis]);
  }
  while (info.planes_of_chunks && unit.z % 2 == 0 && bytes() >= 2 * least_planes) unit.z /= 2;
  return unit;
}

}  // namespace

const StoredVolume& ChunkCache::chunk(const io::VolumeSource& source, index_t number, const io::VoxelBox& box) {
  const Key key{&source, number};
  if (const auto found = entries_.find(key); found != entries_.end()) {
    order_.splice(order_.begin(), order_, found->second.used);
    return found->second.voxels;
  }
  StoredVolume voxels = StoredVolume::read(source, box, memory_);
  bytes_ += voxels.bytes();
  while (bytes_ > limit_ && !order_.empty()) {
    const auto oldest = entries_.find(order_.back());
    bytes_ -= oldest->second.voxels.bytes();
    entries_.erase(oldest);
    order_.pop_back();
  }
  order_.push_front(key);
  return entries_.emplace(key, Entry{std::move(voxels), order_.begin()}).first->second.voxels;
}

StoredVolume ChunkCache::read(const io::VolumeSource& source, const io::VoxelBox& box) {
  const io::VolumeInfo& info = source.info();
  const Extent3 unit = unit_of(info);
  Extent3 grid;
  for (int axis = 0; axis < 3; ++axis) grid[axis] = (info.extent[axis] + unit[axis] - 1) / unit[axis];
  StoredVolume result(info.channels, box.extent, info.type, memory_);
  const auto last = [&](int axis) { return (box.end()[axis] - 1) / unit[axis]; };
  for (index_t z = box.begin.z / unit.z; z <= last(0); ++z) {
    for (index_t y = box.begin.y / unit.y; y <= last(1); ++y) {
      for (index_t x = box.begin.x / unit.x; x <= last(2); ++x) {
        io::VoxelBox own{{z * unit.z, y * unit.y, x * unit.x}, unit};
        for (int axis = 0; axis < 3; ++axis) {
          own.extent[axis] = std::min(own.extent[axis], info.extent[axis] - own.begin[axis]);
        }
        result.copy_overlap(chunk(source, (z * grid.y + y) * grid.x + x, own), own, box);
      }
    }
  }
  return result;
}

PatchSource::PatchSource(const Dataset& data, const Extent3& patch, const SourceOptions& options,
                         std::pmr::memory_resource* memory)
    : data_(data),
      patch_(patch),
      options_(options),
      memory_(memory),
      streams_(std::any_of(data.train.begin(), data.train.end(),
                           [](const LabelledVolume& volume) { return volume.files != nullptr; })),
      cache_(options.cache_bytes, memory),
      slots_(streams_ ? ahead : 1) {
  for (Slot& slot : slots_) slot.samples.resize(static_cast<std::size_t>(options.batch));
}

PatchSource::~PatchSource() { stop(); }

void PatchSource::stop() {
  if (!reader_.joinable()) return;
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  changed_.notify_all();
  reader_.join();
  stopping_ = false;
}

void PatchSource::fill(Slot& slot, std::uint64_t iteration) {
  for (std::size_t n = 0; n < slot.samples.size(); ++n) {
    Sample& sample = slot.samples[n];
    sample.draw = PatchDraw::draw(data_, patch_, options_.seed, iteration, static_cast<index_t>(n));
    const LabelledVolume& volume = data_.train[sample.draw.volume];
    sample.map = PatchMap(sample.draw, data_.augment, patch_, volume.spacing, volume.resampling, data_.cubic);
    if (volume.files) {
      read(sample, *volume.files);
      continue;
    }
    sample.voxels = {.image = &volume.image,
                     .label = volume.label ? &volume.label : nullptr,
                     .mask = volume.mask ? &volume.mask : nullptr,
                     .box = {{0, 0, 0}, volume.extent()}};
  }
}

void PatchSource::read(Sample& sample, const VolumeFiles& files) {
  const io::VoxelBox part = voxels_read(sample.map.box(), files.box.extent);
  const io::VoxelBox in_file{files.box.begin + part.begin, part.extent};
  sample.image = cache_.read(*files.image, in_file);
  sample.image.scale(files.scaling, part.begin.z);
  sample.voxels = {.image = &sample.image, .label = nullptr, .mask = nullptr, .box = part};
  if (!files.label) return;
  sample.label = cache_.read(*files.label, in_file);
  sample.label.become_labels(files.label_spec, memory_);
  sample.voxels.label = &sample.label;
  if (!files.mask) return;
  sample.mask = cache_.read(*files.mask, in_file);
  sample.mask.become_labels({}, memory_);
  sample.voxels.mask = &sample.mask;
}

void PatchSource::run() {
  std::unique_lock lock(mutex_);
  while (true) {
    changed_.wait(lock, [&] { return stopping_ || (!failure_ && next_ < wanted_ + ahead); });
    if (stopping_) return;
    Slot& slot = slots_[next_ % slots_.size()];
    slot.full = false;
    lock.unlock();
    std::exception_ptr failure;
    try {
      fill(slot, next_);  // only this thread changes next_ while it runs
    } catch (...) {
      failure = std::current_exception();
    }
    lock.lock();
    slot.iteration = next_;
    slot.full = !failure;
    if (failure) {
      failure_ = failure;
    } else {
      ++next_;
    }
    changed_.notify_all();
  }
}

bool PatchSource::reads_towards(std::uint64_t iteration) {
  const std::lock_guard lock(mutex_);
  const Slot& slot = slots_[iteration % slots_.size()];
  if (iteration < wanted_ || iteration > wanted_ + 1) return false;
  return !failure_ || (slot.full && slot.iteration == iteration);
}

std::span<const PatchSource::Sample> PatchSource::take(std::uint64_t iteration) {
  Slot& slot = slots_[iteration % slots_.size()];
  if (!streams_) {
    fill(slot, iteration);
    return slot.samples;
  }
  if (reader_.joinable() && !reads_towards(iteration)) stop();
  if (!reader_.joinable()) {
    failure_ = nullptr;
    for (Slot& one : slots_) one.full = false;
    wanted_ = next_ = iteration;
    reader_ = std::thread([this] { run(); });
  }
  const auto start = std::chrono::steady_clock::now();
  std::unique_lock lock(mutex_);
  wanted_ = iteration;
  changed_.notify_all();
  changed_.wait(lock, [&] { return failure_ || (slot.full && slot.iteration == iteration); });
  waited_ += std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  if (!(slot.full && slot.iteration == iteration)) std::rethrow_exception(failure_);
  return slot.samples;
}

}  // namespace convolume::nets
