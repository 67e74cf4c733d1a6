// Measures transfers of tiles: between tensors and the halves of a small memory, and from files.
#include <algorithm>
#include <atomic>
#include <chrono>
#include <exception>
#include <functional>
#include <random>
#include <thread>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "convolume/error.hpp"
#include "convolume/transfer.hpp"
#include "core/files.hpp"
#include "core/probes.hpp"

namespace convolume::plan {
namespace {

using Clock = std::chrono::steady_clock;

double seconds_since(Clock::time_point start) { return std::chrono::duration<double>(Clock::now() - start).count(); }

double median(std::vector<double> values) {
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

/// A thread that moves data while its owner does something else: the DMA controller of the paper. One owner; start()
/// and wait() alternate.
class MovingThread {
 public:
  MovingThread() : thread_([this] { run(); }) {}
  ~MovingThread() {
    job_ = nullptr;
    set(State::started);
    thread_.join();
  }
  MovingThread(const MovingThread&) = delete;
  MovingThread& operator=(const MovingThread&) = delete;

  /// `job` must live until wait() returns.
  void start(const std::function<void()>& job) {
    job_ = &job;
    set(State::started);
  }
  /// Waits for the job. Throws what it threw.
  void wait() {
    state_.wait(State::started, std::memory_order_acquire);
    if (error_) std::rethrow_exception(std::exchange(error_, nullptr));
  }
  void run_and_wait(const std::function<void()>& job) {
    start(job);
    wait();
  }
  /// Returns the seconds that jobs took. Call it while none runs.
  double busy_seconds() const { return busy_seconds_; }

 private:
  enum class State { done, started };

  // Whoever sets the state has written job_, error_ and busy_seconds_ before; the other thread reads them after. The
  // store is sequentially consistent, because notify_one() of libstdc++ 12 looks for waiting threads before it wakes
  // one: that load must not pass the store.
  void set(State state) {
    state_.store(state, std::memory_order_seq_cst);
    state_.notify_one();
  }

  void run() {
    for (;;) {
      state_.wait(State::done, std::memory_order_acquire);
      if (job_ == nullptr) return;
      const auto start = Clock::now();
      try {
        (*job_)();
      } catch (...) {
        error_ = std::current_exception();
      }
      busy_seconds_ += seconds_since(start);
      set(State::done);
    }
  }

  std::atomic<State> state_{State::done};
  const std::function<void()>* job_ = nullptr;
  std::exception_ptr error_;
  double busy_seconds_ = 0;
  std::thread thread_;  // the last member: it uses the others
};

/// Some voxels of a tensor in the plain layout.
struct Box {
  index_t n = 0, c = 0, channels = 0;
  Extent3 begin{}, extent{};
};

/// A tensor in memory, and the two halves that its tiles go to. Sizes are in bytes.
class MovedTensor {
 public:
  MovedTensor(const Shape5& shape, index_t element, index_t tile_elements)
      : shape_(shape),
        element_(element),
        memory_(bytes(shape.elements())),
        halves_{probe::Buffer(bytes(tile_elements)), probe::Buffer(bytes(tile_elements))} {}

  /// Fills the other half with a box.
  void load(const Box& box) {
    half_ ^= 1;
    for_each_row(box, [](char* row, char* in_half, std::size_t size) { std::memcpy(in_half, row, size); });
  }
  /// Writes the half that was filled last back to its box.
  void store(const Box& box) {
    for_each_row(box, [](char* row, char* in_half, std::size_t size) { std::memcpy(row, in_half, size); });
  }
  /// Returns the words that have been moved so far.
  double words() const { return words_; }

 private:
  std::size_t bytes(index_t elements) const { return static_cast<std::size_t>(elements * element_); }

  template <class Copy>
  void for_each_row(const Box& box, const Copy& copy) {
    words_ += static_cast<double>(box.channels * box.extent.volume());
    char* in_half = halves_[half_].as<char>();
    const std::size_t row = bytes(box.extent.x);
    for (index_t c = box.c; c < box.c + box.channels; ++c) {
      for (index_t z = box.begin.z; z < box.begin.z + box.extent.z; ++z) {
        const index_t plane = ((box.n * shape_.c + c) * shape_.extent.z + z) * shape_.extent.y;
        for (index_t y = box.begin.y; y < box.begin.y + box.extent.y; ++y, in_half += row) {
          copy(memory_.as<char>() + bytes((plane + y) * shape_.extent.x + box.begin.x), in_half, row);
        }
      }
    }
  }

  Shape5 shape_;
  index_t element_;
  probe::Buffer memory_;
  std::array<probe::Buffer, 2> halves_;
  std::size_t half_ = 0;
  double words_ = 0;
};

/// One pass over the tiles of a convolution: Listing 1.1 of paper 001, for any order.
class TransferPass {
 public:
  TransferPass(const TransferProblem& p, const TransferTile& tile)
      : problem_(p.problem),
        tile_(tile),
        output_(p.problem.output()),
        x_(problem_.x_shape(), p.element_bytes, tile.c * window(Extent3{tile.z, tile.y, tile.x}).volume()),
        // A line of weights is a kernel, so the stretch of a tile is a run of lines.
        w_({1, problem_.out_channels, {1, problem_.in_channels / problem_.groups, problem_.kernel.volume()}},
           p.element_bytes, tile.k * tile.c * problem_.kernel.volume()),
        bias_({1, 1, {1, 1, problem_.out_channels}}, p.element_bytes, tile.k),
        y_(problem_.y_shape(), p.element_bytes, tile.k * tile.z * tile.y * tile.x) {
    const auto add = [&](char letter, index_t trips) {
      letters_ += letter;
      trips_.push_back(trips);
    };
    add('n', problem_.batch);
    add('g', problem_.groups);
    for (const char letter : p.order) add(letter, trips_of(letter));
    at_.assign(trips_.size(), 0);
  }

  void run(MovingThread& helper) {
    std::optional<Box> finished;
    const std::function<void()> job = [&] { move(finished); };
    std::fill(at_.begin(), at_.end(), 0);
    do {
      helper.run_and_wait(job);
    } while (advance());
    const std::function<void()> last = [&] { y_.store(*finished); };
    helper.run_and_wait(last);
  }

  /// Returns the words that all passes have moved.
  double words() const { return x_.words() + w_.words() + bias_.words() + y_.words(); }

 private:
  index_t trips_of(char letter) const {
    switch (letter) {
      case 'z':
        return output_.z / tile_.z;
      case 'y':
        return output_.y / tile_.y;
      case 'x':
        return output_.x / tile_.x;
      case 'c':
        return problem_.in_channels / problem_.groups / tile_.c;
      default:
        return problem_.out_channels / problem_.groups / tile_.k;
    }
  }

  Extent3 window(const Extent3& results) const {
    return (results - Extent3::all(1)) * problem_.stride + problem_.span();
  }

  index_t at(char letter) const {
    const std::size_t i = letters_.find(letter);
    return i == std::string::npos ? 0 : at_[i];
  }

  /// Goes on to the next iteration. Returns false behind the last one.
  bool advance() {
    for (std::size_t i = at_.size(); i-- > 0;) {
      if (++at_[i] < trips_[i]) return true;
      at_[i] = 0;
    }
    return false;
  }

  /// Returns whether the loops behind the innermost one of `moving` begin.
  bool begins(const char* moving) const {
    const std::size_t innermost = letters_.find_last_of(moving);
    return std::all_of(at_.begin() + static_cast<std::ptrdiff_t>(innermost) + 1, at_.end(),
                       [](index_t at) { return at == 0; });
  }

  /// Writes the finished tile of y back and loads what the iteration needs.
  void move(std::optional<Box>& finished) {
    const index_t c = problem_.in_channels / problem_.groups, k = problem_.out_channels / problem_.groups;
    const index_t first_c = at('c') * tile_.c, first_k = at('g') * k + at('k') * tile_.k;
    if (begins("ngzyxc")) x_.load(source_box(at('g') * c + first_c));
    if (begins("gck")) {
      w_.load({.c = first_k, .channels = tile_.k, .begin = {0, first_c, 0}, .extent = {1, tile_.c, w_line()}});
      bias_.load({.channels = 1, .begin = {0, 0, first_k}, .extent = {1, 1, tile_.k}});
    }
    if (begins("ngzyxk")) {
      if (finished) y_.store(*finished);
      finished = {.n = at('n'), .c = first_k, .channels = tile_.k, .begin = result(), .extent = extent()};
      y_.load(*finished);
    }
  }

  index_t w_line() const { return problem_.kernel.volume(); }
  Extent3 extent() const { return {tile_.z, tile_.y, tile_.x}; }
  Extent3 result() const { return Extent3{at('z'), at('y'), at('x')} * extent(); }

  /// Returns the window of the tile without padding.
  Box source_box(index_t first_channel) const {
    const Extent3 begin = result() * problem_.stride - problem_.pad_before, end = begin + window(extent());
    Box box{.n = at('n'), .c = first_channel, .channels = tile_.c};
    for (int axis = 0; axis < 3; ++axis) {
      box.begin[axis] = std::clamp<index_t>(begin[axis], 0, problem_.input[axis]);
      box.extent[axis] = std::clamp<index_t>(end[axis], 0, problem_.input[axis]) - box.begin[axis];
    }
    return box;
  }

  const ConvProblem& problem_;
  TransferTile tile_;
  Extent3 output_;
  MovedTensor x_, w_, bias_, y_;
  std::string letters_;
  std::vector<index_t> trips_, at_;
};

constexpr double most_bytes = 8.0 * (1 << 30);

void check_size(const TransferProblem& p) {
  const ConvProblem& problem = p.problem;
  const double elements = static_cast<double>(problem.x_shape().elements()) +
                          static_cast<double>(problem.w_shape().elements()) +
                          static_cast<double>(problem.y_shape().elements());
  const double bytes = elements * static_cast<double>(p.element_bytes) + static_cast<double>(p.capacity_bytes);
  if (bytes > most_bytes) {
    throw InvalidArgument(
        fmt::format("the tensors of {} have {:.3g} bytes; to measure transfers, use a problem of at "
                    "most {:.3g}",
                    to_string(problem), bytes, most_bytes));
  }
}

}  // namespace

TransferRun run_transfers(const TransferProblem& problem, const TransferTile& tile, double budget) {
  static_cast<void>(tile_cost(problem, tile));  // checks both
  check_size(problem);
  TransferPass pass(problem, tile);
  MovingThread helper;
  std::vector<double> all, busy;
  const auto begin = Clock::now();
  while (all.size() < 3 || seconds_since(begin) < budget) {
    const auto start = Clock::now();
    const double before = helper.busy_seconds();
    pass.run(helper);
    all.push_back(seconds_since(start));
    busy.push_back(helper.busy_seconds() - before);
  }
  return {.seconds = median(all),
          .transfer_seconds = median(busy),
          .words = pass.words() / static_cast<double>(all.size()),
          .passes = static_cast<int>(all.size())};
}

FilePrice measure_file_price(const std::string& folder, double budget) {
  constexpr std::size_t block = 4096, file_blocks = 65536, most_runs = 16, most_run = 16 * block;
  constexpr double least_price = 1e-12;  // a fit to noise may be 0, which is no price
  ReadableFile file = ReadableFile::temporary(folder);
  const probe::Buffer buffer(most_runs * most_run);
  const std::span<std::byte> bytes(buffer.as<std::byte>(), most_runs * most_run);
  std::mt19937 random(1);
  for (std::byte& value : bytes) value = static_cast<std::byte>(random());  // blocks of zeros may not be stored
  for (std::size_t at = 0; at < file_blocks * block; at += bytes.size()) file.write_at(at, bytes);
  FilePrice price{.price = {}, .direct = file.bypass_cache()};
  MovingThread helper;
  probe::PriceFit fit;
  for (const std::size_t runs : {1, 4, 16}) {
    for (const std::size_t run : {block, 4 * block, 16 * block}) {
      const std::function<void()> transfer = [&] {
        for (std::size_t i = 0; i < runs; ++i) {
          const std::size_t place = random() % (file_blocks - run / block);
          static_cast<void>(file.read_at(place * block, bytes.subspan(i * run, run)));
        }
      };
      std::vector<double> seconds;
      const auto begin = Clock::now();
      while (seconds.size() < 5 || seconds_since(begin) < budget / 9) {
        const auto start = Clock::now();
        helper.run_and_wait(transfer);
        seconds.push_back(seconds_since(start));
      }
      fit.add(static_cast<double>(runs), static_cast<double>(runs * run) / sizeof(float), median(seconds));
    }
  }
  const auto [start, jump, element] = fit.price();
  price.price = {.start = std::max(start, least_price),
                 .jump = std::max(jump, least_price),
                 .element = std::max(element, least_price)};
  return price;
}

}  // namespace convolume::plan
