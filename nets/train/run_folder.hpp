// The folder of a training run.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>

#include "convolume/training.hpp"
#include "core/ownership.hpp"

namespace convolume::nets {

/// Knows the paths in a run's folder, owns it, and makes sure that no file of a run is overwritten by accident.
struct RunFolder {
  /// Makes the folder, and takes it. Throws IoError if another process works on it, if it holds a run and `resume` is
  /// not set, or if it holds none and `resume` is set.
  explicit RunFolder(const TrainOptions& options);

  std::filesystem::path checkpoint(std::int64_t iteration) const;
  std::filesystem::path last() const { return root / "checkpoints" / "last.safetensors"; }
  std::filesystem::path best() const { return root / "checkpoints" / "best.safetensors"; }
  std::filesystem::path events() const { return root / "tensorboard"; }
  std::filesystem::path report() const { return root / "report" / "report.html"; }

  std::filesystem::path root;
  std::unique_ptr<Ownership> owner{};

 private:
  void require_run(bool resume) const;
};

}  // namespace convolume::nets
