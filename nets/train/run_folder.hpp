// The folder of a training run.
#pragma once

#include <filesystem>
#include <functional>
#include <memory>
#include <string>

#include "core/ownership.hpp"
#include "nets/spec/checkpoint.hpp"

namespace convolume::nets {

/// Knows the paths in a run's folder, owns it, keeps its checkpoints, and makes sure that no file of a run is
/// overwritten by accident.
class RunFolder {
 public:
  struct Options {
    bool resume = false, take_over = false;
    std::function<void(const std::string& note)> on_note{};
  };
  /// Makes the folder, and takes it. Throws IoError if another process works on it, if it holds a run and `resume` is
  /// not set, or if it holds none and `resume` is set.
  RunFolder(std::filesystem::path root, const Options& options);

  const std::filesystem::path& root() const { return root_; }
  std::filesystem::path last() const { return root_ / "checkpoints" / "last.safetensors"; }
  std::filesystem::path best() const { return root_ / "checkpoints" / "best.safetensors"; }
  std::filesystem::path events() const { return root_ / "tensorboard"; }
  std::filesystem::path metrics() const { return root_ / "metrics.jsonl"; }
  std::filesystem::path summaries() const { return root_ / "data.json"; }
  std::filesystem::path report() const { return root_ / "report" / "report.html"; }
  std::filesystem::path slice() const { return root_ / "report" / "slice.png"; }

  /// Writes the checkpoint of an iteration, makes it the last one, and removes old ones. Throws IoError.
  void keep(const CheckpointHeader& header, const Parameters& parameters) const;

 private:
  void require_run(bool resume) const;
  void point_last_at(const std::filesystem::path& file) const;
  void remove_old() const;

  std::filesystem::path root_;
  std::unique_ptr<Ownership> owner_{};
};

}  // namespace convolume::nets
