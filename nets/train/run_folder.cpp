#include "nets/train/run_folder.hpp"

#include <algorithm>

#include <fmt/format.h>
#include <unistd.h>

#include "convolume/error.hpp"
#include "core/files.hpp"

namespace convolume::nets {
namespace {

namespace fs = std::filesystem;

constexpr std::size_t kept_checkpoints = 3;

}  // namespace

RunFolder::RunFolder(fs::path root, const Options& o) : root_(std::move(root)) {
  if (o.resume) require_run(true);  // before a folder is made
  std::error_code error;
  fs::create_directories(root_ / "checkpoints", error);
  if (!error) fs::create_directories(root_ / "report", error);
  if (error) throw IoError(fmt::format("{}: creating the folder failed: {}", root_.string(), error.message()));
  owner_ = std::make_unique<Ownership>(root_ / "owner", "the run in " + root_.string(), o.take_over);
  if (o.on_note && !owner_->taken_over().empty()) o.on_note(owner_->taken_over());
  require_run(o.resume);
}

void RunFolder::require_run(bool resume) const {
  const bool exists = fs::exists(last());
  if (resume && !exists) {
    throw IoError(
        fmt::format("{}: there is no checkpoint to resume from; train without --resume first", last().string()));
  }
  if (!resume && exists) {
    throw IoError(
        fmt::format("{}: already contains a run; continue it with --resume or choose another --out", root_.string()));
  }
}

void RunFolder::keep(const CheckpointHeader& header, const Parameters& parameters) const {
  const fs::path file = root_ / "checkpoints" / fmt::format("iteration-{:08}.safetensors", header.iteration);
  save_checkpoint(file, header, parameters);
  point_last_at(file);
  remove_old();
}

/// Gives the checkpoint a second name, last.safetensors: a hard link, moved into place by a rename.
void RunFolder::point_last_at(const fs::path& file) const {
  const fs::path temporary = last().string() + fmt::format(".tmp-{}", ::getpid());
  std::error_code error;
  fs::remove(temporary, error);
  fs::create_hard_link(file, temporary, error);
  if (error) return write_file_atomically(last(), read_file(file));  // a file system without hard links
  fs::rename(temporary, last(), error);
  if (!error) return sync_directory(last().parent_path());
  std::error_code ignored;
  fs::remove(temporary, ignored);
  throw IoError(fmt::format("{}: replacing it failed: {}", last().string(), error.message()));
}

/// Removes all but the newest checkpoints, including those of earlier runs, and temporary files of killed runs. A file
/// that cannot be removed does no harm.
void RunFolder::remove_old() const {
  std::vector<fs::path> kept;
  std::error_code ignored;
  for (const auto& entry : fs::directory_iterator(last().parent_path(), ignored)) {
    const std::string name = entry.path().filename().string();
    if (name.find(".safetensors.tmp-") != std::string::npos) {
      fs::remove(entry.path(), ignored);
    } else if (name.starts_with("iteration-") && name.ends_with(".safetensors")) {
      kept.push_back(entry.path());
    }
  }
  std::sort(kept.begin(), kept.end());
  for (std::size_t i = 0; i + kept_checkpoints < kept.size(); ++i) fs::remove(kept[i], ignored);
}

}  // namespace convolume::nets
