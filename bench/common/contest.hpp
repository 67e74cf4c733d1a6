// Contestants that do the same work on the same memory, timed in turn.
#pragma once

#include <cstddef>
#include <functional>
#include <limits>
#include <memory>
#include <memory_resource>
#include <vector>

#include "convolume/memory.hpp"
#include "convolume/tensor.hpp"

namespace convolume::bench {

/// Whole huge pages, so that no contestant is lucky with where its data lies.
class Buffer {
 public:
  explicit Buffer(std::size_t bytes);
  ~Buffer();
  Buffer(const Buffer&) = delete;
  Buffer& operator=(const Buffer&) = delete;
  void* get() const { return data_; }
  std::size_t bytes() const { return bytes_; }

 private:
  std::size_t bytes_;
  void* data_;
};

/// One way to transform a problem.
class Contestant {
 public:
  virtual ~Contestant() = default;
  virtual std::size_t in_bytes() const = 0;
  virtual std::size_t out_bytes() const = 0;
  /// Plans for these buffers, and may write both while it does.
  virtual void bind(void* in, void* out) = 0;
  virtual void execute() = 0;
};

/// Contestants and the one pair of buffers that all of them use.
class Arena {
 public:
  /// With `restore` the input is written anew before every call: some contestant destroys it.
  Arena(std::vector<std::unique_ptr<Contestant>> contestants, DataType type, bool restore);

  std::size_t size() const { return contestants_.size(); }
  bool restores() const { return pristine_ != nullptr; }
  /// Seconds of a call, over `repetitions`; what restores the input is not counted.
  double time(std::size_t contestant, int repetitions);

 private:
  std::vector<std::unique_ptr<Contestant>> contestants_;
  std::unique_ptr<Buffer> in_, out_, pristine_;
};

struct Protocol {
  int rounds = 9;             ///< at least
  double min_seconds = 0.15;  ///< at least, for all rounds together
  /// After it no round begins, but the first three always do.
  double max_seconds = std::numeric_limits<double>::infinity();
};

/// Seconds, [contestant][round]: in every round one `sample` of each contestant. Ends early, after a whole round, when
/// `go_on`, which is told the share of the work that is done, returns false.
std::vector<std::vector<double>> take_turns(std::size_t contestants, const Protocol& protocol,
                                            const std::function<double(std::size_t)>& sample,
                                            const std::function<bool(double)>& go_on = {});

/// Seconds of a call, [contestant][round]. In every round each contestant makes one call that is not timed, which
/// brings its data into the caches, and then one sample of as many calls as last a millisecond.
std::vector<std::vector<double>> contest(Arena& arena, const Protocol& protocol);

/// The value below which the share q of the values lies, interpolated; q = 0.5 is the median.
double quantile(std::vector<double> values, double q);

}  // namespace convolume::bench
