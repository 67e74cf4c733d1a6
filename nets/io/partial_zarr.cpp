#include "nets/io/partial_zarr.hpp"

#include <cerrno>
#include <cstring>
#include <mutex>

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <unistd.h>

#include "core/files.hpp"
#include "nets/io/zarr_folder.hpp"

namespace convolume::nets::io {
namespace fs = std::filesystem;

namespace {

constexpr const char* manifest_name = ".manifest.json";
constexpr const char* staging_name = ".staged";

[[noreturn]] void fail(const fs::path& path, const char* action, const std::error_code& error) {
  throw IoError(fmt::format("{}: {} failed: {}", path.string(), action, error.message()));
}

}  // namespace

struct PartialZarr::State {
  fs::path folder;
  std::string manifest;
  detail::ZarrArray array;
  ChunkGrid grid;
  std::vector<bool> complete;
  index_t finished = 0;
  int lock = -1;  // descriptor of the folder
  std::mutex mutex{};
  std::vector<std::pair<index_t, std::string>> staged{};  // number and key of chunks that have no name yet

  ~State() {
    if (lock >= 0) ::close(lock);
  }

  /// Keeps other processes out as long as this one lives.
  void take_lock() {
    lock = ::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (lock < 0) fail(folder, "opening", {errno, std::system_category()});
    if (::flock(lock, LOCK_EX | LOCK_NB) == 0 || errno != EWOULDBLOCK) return;  // or a file system without locks
    throw IoError(fmt::format("{}: another process is writing it; wait for its end", folder.string()));
  }

  void set_array(detail::ZarrArray now) {
    array = std::move(now);
    grid = ChunkGrid(array.channels, array.extent, array.chunk_channels, array.chunk);
    complete.assign(static_cast<std::size_t>(grid.count()), false);
  }
};

PartialZarr::PartialZarr(std::unique_ptr<State> state) : state_(std::move(state)) {}
PartialZarr::~PartialZarr() = default;

std::unique_ptr<PartialZarr> PartialZarr::create(const fs::path& folder, const SinkOptions& options,
                                                 const std::string& manifest) {
  auto state = std::make_unique<State>();
  state->folder = folder;
  state->manifest = manifest;
  state->set_array(detail::zarr_array(options));
  std::error_code error;
  if (!fs::create_directory(folder, error)) {
    if (!error) error = std::make_error_code(std::errc::file_exists);
    fail(folder, "making the folder", error);
  }
  std::unique_ptr<PartialZarr> zarr(new PartialZarr(std::move(state)));
  try {
    zarr->state_->take_lock();
    detail::write_metadata(zarr->state_->array, folder);
    if (!fs::create_directory(folder / staging_name, error)) fail(folder / staging_name, "making the folder", error);
    // The manifest comes last: a folder without one is not resumed.
    write_file_atomically(folder / manifest_name, manifest);
  } catch (...) {
    zarr->remove();
    throw;
  }
  return zarr;
}

std::unique_ptr<PartialZarr> PartialZarr::open(const fs::path& folder) {
  std::error_code error;
  if (!fs::is_directory(folder, error)) {
    throw IoError(
        fmt::format("{}: does not exist, so there is nothing to resume; run without --resume", folder.string()));
  }
  if (!fs::exists(folder / manifest_name, error)) {
    throw IoError(fmt::format("{}: has no {}, so it cannot be resumed; remove the folder and run without --resume",
                              folder.string(), manifest_name));
  }
  auto state = std::make_unique<State>();
  state->folder = folder;
  state->take_lock();
  constexpr std::size_t most_manifest = std::size_t{64} << 20;
  state->manifest = read_file(folder / manifest_name, most_manifest);
  fs::path array_folder;
  state->set_array(detail::read_zarr({folder, ""}, array_folder));
  const Extent3 last = state->array.extent - Extent3::all(1);
  state->grid.for_each({0, state->array.channels}, {{0, 0, 0}, last + Extent3::all(1)}, [&](const ChunkPlace& place) {
    if (!fs::exists(folder / state->array.key(place.c, place.index), error)) return;
    state->complete[static_cast<std::size_t>(place.number)] = true;
    ++state->finished;
  });
  fs::remove_all(folder / staging_name, error);  // chunks that were not published
  if (!fs::create_directory(folder / staging_name, error)) fail(folder / staging_name, "making the folder", error);
  return std::unique_ptr<PartialZarr>(new PartialZarr(std::move(state)));
}

const fs::path& PartialZarr::folder() const noexcept { return state_->folder; }
const std::string& PartialZarr::manifest() const noexcept { return state_->manifest; }
const ChunkGrid& PartialZarr::grid() const noexcept { return state_->grid; }
const Extent3& PartialZarr::chunk() const noexcept { return state_->array.chunk; }
const Extent3& PartialZarr::extent() const noexcept { return state_->array.extent; }
index_t PartialZarr::finished() const noexcept { return state_->finished; }

bool PartialZarr::has(const ChunkPlace& place) const {
  return state_->complete[static_cast<std::size_t>(place.number)];
}

bool PartialZarr::has(const VoxelBox& box) const {
  bool all = true;
  state_->grid.for_each({0, state_->array.channels}, box, [&](const ChunkPlace& place) { all = all && has(place); });
  return all;
}

void PartialZarr::stage(const ChunkPlace& place, std::span<const std::byte> voxels) {
  const std::string key = state_->array.key(place.c, place.index);
  detail::write_chunk(state_->array, state_->folder / staging_name / key, place, voxels);
  const std::lock_guard held(state_->mutex);
  state_->staged.emplace_back(place.number, key);
}

void PartialZarr::publish() {
  if (state_->staged.empty()) return;
  detail::sync_folder(state_->folder);
  for (const auto& [number, key] : state_->staged) {
    std::error_code error;
    fs::rename(state_->folder / staging_name / key, state_->folder / key, error);
    if (error) fail(state_->folder / key, "renaming onto it", error);
    state_->complete[static_cast<std::size_t>(number)] = true;
    ++state_->finished;
  }
  state_->staged.clear();
}

void PartialZarr::move_to(const VolumePath& target) {
  const fs::path inside = detail::inside_zarr(target);
  const fs::path place = inside.empty() ? target.file : target.file / inside;
  if (!inside.empty()) detail::make_groups(target.file, place);
  std::error_code error;
  fs::remove_all(state_->folder / staging_name, error);
  detail::sync_folder(state_->folder);
  detail::replace_folder(state_->folder, place);
  fs::remove(place / manifest_name, error);
}

void PartialZarr::remove() {
  std::error_code error;
  fs::remove_all(state_->folder, error);
  if (error) fail(state_->folder, "removing the folder", error);
}

std::pair<std::size_t, Extent3> partial_chunk(const SinkOptions& options) {
  const detail::ZarrArray array = detail::zarr_array(options);
  return {array.chunk_bytes(), array.chunk};
}

}  // namespace convolume::nets::io
