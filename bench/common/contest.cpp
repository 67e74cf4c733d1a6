#include "bench/common/contest.hpp"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstring>

#include "bench/common/support.hpp"

namespace convolume::bench {
namespace {

using Clock = std::chrono::steady_clock;

constexpr std::size_t huge_page = std::size_t{2} << 20;
constexpr double sample_seconds = 1e-3, warm_up_seconds = 5e-3;

double between(Clock::time_point begin, Clock::time_point end) {
  return std::chrono::duration<double>(end - begin).count();
}

/// Returns the time of two clock readings. It matters if every call is timed separately.
double clock_seconds() {
  static const double seconds = [] {
    std::vector<double> samples(1001);
    for (double& sample : samples) {
      const auto begin = Clock::now();
      sample = between(begin, Clock::now());
    }
    return quantile(std::move(samples), 0.5);
  }();
  return seconds;
}

void fill(const Buffer& buffer, DataType type) {
  const auto elements = static_cast<index_t>(buffer.bytes() / size_of(type));
  // Random numbers take longer than the contest, so a sequence of them is repeated.
  const index_t drawn = std::min<index_t>(elements, index_t{1} << 16);
  if (type == DataType::f32) {
    fill_normal(static_cast<float*>(buffer.get()), drawn, 1);
  } else {
    fill_normal(static_cast<double*>(buffer.get()), drawn, 1);
  }
  auto* bytes = static_cast<std::byte*>(buffer.get());
  const std::size_t period = static_cast<std::size_t>(drawn) * size_of(type);
  for (std::size_t at = period; at < buffer.bytes(); at += period) {
    std::memcpy(bytes + at, bytes, std::min(period, buffer.bytes() - at));
  }
}

/// Takes samples of one call until caches, branch predictors and the CPU frequency have settled. Returns the calls per
/// sample.
int warm_up(const OtherCompetitor& competitor) {
  double total = 0, last = 0;
  do {
    last = competitor(1);
    total += std::max(last, 1e-8);
  } while (total < warm_up_seconds);
  const double calls = std::ceil(sample_seconds / std::max(last, 1e-8));
  return static_cast<int>(std::clamp(calls, 1.0, 1e5));
}

}  // namespace

Buffer::Buffer(std::size_t bytes)
    : bytes_((std::max<std::size_t>(bytes, 1) + huge_page - 1) / huge_page * huge_page),
      data_(mmap_resource()->allocate(bytes_, huge_page)) {}
Buffer::~Buffer() { mmap_resource()->deallocate(data_, bytes_, huge_page); }

Arena::Arena(std::vector<std::unique_ptr<Competitor>> competitors, DataType type, bool restore)
    : competitors_(std::move(competitors)) {
  std::size_t in_bytes = 0, out_bytes = 0;
  for (const auto& competitor : competitors_) {
    in_bytes = std::max(in_bytes, competitor->in_bytes());
    out_bytes = std::max(out_bytes, competitor->out_bytes());
  }
  in_ = std::make_unique<Buffer>(in_bytes);
  out_ = std::make_unique<Buffer>(out_bytes);
  for (const auto& competitor : competitors_) competitor->bind(in_->get(), out_->get());
  // Fill the buffers after planning, because planners overwrite them. This also touches all pages for the first time.
  fill(*in_, type);
  std::memset(out_->get(), 0, out_->bytes());
  if (!restore) return;
  pristine_ = std::make_unique<Buffer>(in_bytes);
  std::memcpy(pristine_->get(), in_->get(), pristine_->bytes());
}

double Arena::time(std::size_t competitor, int repetitions) {
  Competitor& runs = *competitors_[competitor];
  if (!restores()) {
    const auto begin = Clock::now();
    for (int i = 0; i < repetitions; ++i) runs.execute();
    return between(begin, Clock::now()) / repetitions;
  }
  double seconds = 0;
  for (int i = 0; i < repetitions; ++i) {
    std::memcpy(in_->get(), pristine_->get(), runs.in_bytes());
    const auto begin = Clock::now();
    runs.execute();
    seconds += between(begin, Clock::now()) - clock_seconds();
  }
  return std::max(seconds, 1e-9) / repetitions;
}

std::vector<std::vector<double>> take_turns(std::size_t competitors, const Protocol& protocol,
                                            const std::function<double(std::size_t)>& sample,
                                            const std::function<bool(double)>& go_on) {
  constexpr std::size_t always = 3;
  const auto rounds = static_cast<std::size_t>(protocol.rounds);
  std::vector<std::vector<double>> seconds(competitors);
  const auto begin = Clock::now();
  for (std::size_t round = 0;; ++round) {
    const double elapsed = between(begin, Clock::now());
    if (round >= rounds && elapsed >= protocol.min_seconds) break;
    if (round >= always && elapsed >= protocol.max_seconds) break;
    const double share = std::max(
        elapsed / protocol.max_seconds,
        std::min(static_cast<double>(round) / protocol.rounds, elapsed / std::max(protocol.min_seconds, 1e-9)));
    if (go_on && !go_on(std::min(share, 1.0)) && round > 0) break;
    for (std::size_t turn = 0; turn < competitors; ++turn) {
      // Each round begins with another competitor, so that a slow drift of the machine affects all equally.
      const std::size_t i = (turn + round) % competitors;
      seconds[i].push_back(sample(i));
    }
  }
  return seconds;
}

std::vector<std::vector<double>> contest(Arena& arena, const Protocol& protocol,
                                         const std::vector<OtherCompetitor>& others) {
  std::vector<OtherCompetitor> all;
  for (std::size_t i = 0; i < arena.size(); ++i) {
    all.push_back([&arena, i](int repetitions) {
      arena.time(i, 1);
      return arena.time(i, repetitions);
    });
  }
  all.insert(all.end(), others.begin(), others.end());
  std::vector<int> repetitions;
  for (const OtherCompetitor& one : all) repetitions.push_back(warm_up(one));
  return take_turns(all.size(), protocol, [&](std::size_t i) { return all[i](repetitions[i]); });
}

double quantile(std::vector<double> values, double q) {
  std::sort(values.begin(), values.end());
  const double position = q * static_cast<double>(values.size() - 1);
  const auto below = static_cast<std::size_t>(position);
  const std::size_t above = std::min(below + 1, values.size() - 1);
  return values[below] + (position - static_cast<double>(below)) * (values[above] - values[below]);
}

}  // namespace convolume::bench
