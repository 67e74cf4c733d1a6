// Competitors that do the same work on the same memory, timed in turn.
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

/// Memory in whole huge pages, so that no competitor gains from the place of its data.
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

/// One way to compute a transform.
class Competitor {
 public:
  virtual ~Competitor() = default;
  virtual std::size_t in_bytes() const = 0;
  virtual std::size_t out_bytes() const = 0;
  /// Plans for these buffers. Planning may write both.
  virtual void bind(void* in, void* out) = 0;
  virtual void execute() = 0;
};

/// Competitors, and the pair of buffers that all of them use.
class Arena {
 public:
  /// If `restore` is set, the input is written anew before every call, because some competitor destroys it.
  Arena(std::vector<std::unique_ptr<Competitor>> competitors, DataType type, bool restore);

  std::size_t size() const { return competitors_.size(); }
  bool restores() const { return pristine_ != nullptr; }
  /// Returns the seconds of a call, as a mean over `repetitions`. The time to restore the input is not counted.
  double time(std::size_t competitor, int repetitions);

 private:
  std::vector<std::unique_ptr<Competitor>> competitors_;
  std::unique_ptr<Buffer> in_, out_, pristine_;
};

/// How long a contest lasts.
struct Protocol {
  int rounds = 9;             ///< least number
  double min_seconds = 0.15;  ///< least time of all rounds together
  /// No round begins after this time, except the first three.
  double max_seconds = std::numeric_limits<double>::infinity();
};

/// Runs rounds, each with one `sample` of every competitor. Returns the seconds as [competitor][round]. Calls `go_on`
/// before each round with the share of the work that is done. If it returns false, the rounds end.
std::vector<std::vector<double>> take_turns(std::size_t competitors, const Protocol& protocol,
                                            const std::function<double(std::size_t)>& sample,
                                            const std::function<bool(double)>& go_on = {});

/// Returns the seconds of a call as [competitor][round]. In every round each competitor first makes one call that is
/// not timed, which brings its data into the caches. Then it makes as many timed calls as take a millisecond.
/// `others` take part after those of the arena, e.g. competitors in other processes: each makes one untimed call, then
/// so many timed calls, and returns the mean of their seconds.
using OtherCompetitor = std::function<double(int repetitions)>;
std::vector<std::vector<double>> contest(Arena& arena, const Protocol& protocol,
                                         const std::vector<OtherCompetitor>& others = {});

/// Returns the q-quantile of the values, interpolated; q = 0.5 is the median.
double quantile(std::vector<double> values, double q);

}  // namespace convolume::bench
