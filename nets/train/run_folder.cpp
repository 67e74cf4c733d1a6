#include "nets/train/run_folder.hpp"

#include <fmt/format.h>

#include "convolume/error.hpp"

namespace convolume::nets {

RunFolder::RunFolder(const TrainOptions& o) : root(o.out) {
  if (o.resume) require_run(true);  // before a folder is made
  std::error_code error;
  std::filesystem::create_directories(root / "checkpoints", error);
  if (!error) std::filesystem::create_directories(root / "report", error);
  if (error) throw IoError(fmt::format("{}: creating the folder failed: {}", root.string(), error.message()));
  owner = std::make_unique<Ownership>(root / "owner", "the run in " + root.string(), o.take_over);
  if (o.on_note && !owner->taken_over().empty()) o.on_note(owner->taken_over());
  require_run(o.resume);
}

std::filesystem::path RunFolder::checkpoint(std::int64_t iteration) const {
  return root / "checkpoints" / fmt::format("iteration-{:08}.safetensors", iteration);
}

void RunFolder::require_run(bool resume) const {
  const bool exists = std::filesystem::exists(last());
  if (resume && !exists) {
    throw IoError(
        fmt::format("{}: there is no checkpoint to resume from; train without --resume first", last().string()));
  }
  if (!resume && exists) {
    throw IoError(
        fmt::format("{}: already contains a run; continue it with --resume or choose another --out", root.string()));
  }
}

}  // namespace convolume::nets
