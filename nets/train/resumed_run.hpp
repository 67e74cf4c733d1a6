// What a run that is continued must agree on with its checkpoint.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>

#include "nets/data/dataset.hpp"
#include "nets/graph/network.hpp"
#include "nets/spec/checkpoint.hpp"
#include "nets/train/best_validation.hpp"

namespace convolume::nets {

/// The checkpoint that is continued. Each function throws FormatError that names the file, what differs, and a remedy.
class ResumedRun {
 public:
  explicit ResumedRun(const std::filesystem::path& file);

  const CheckpointHeader& header() const { return header_; }
  /// Sets the choices and layouts of the run. `tune` says whether measured choices were requested.
  void add_recorded(NetworkOptions& options, bool tune) const;

  /// Compares net, recipe, seed and data. `data_file` is the name of the data set in messages.
  void require_same_run(const NetSpec& spec, const std::optional<std::uint64_t>& seed, const Dataset& data,
                        const std::string& data_file) const;
  /// Compares what the build alone decides, before plans are made from the recorded choices.
  void require_same_build() const;
  void require_same_numerics(const NumericsRecord& numerics) const;
  [[noreturn]] void refuse(const std::string& reason) const;
  /// Returns the best validation so far. The default is that of a new run.
  BestValidation best(const NetSpec& spec, const BestValidation& of_new_run) const;

 private:
  std::string file_;
  CheckpointHeader header_;
};

}  // namespace convolume::nets
