#include "bench/net/net_competitor.hpp"

#include <algorithm>
#include <chrono>
#include <thread>

#include <fmt/format.h>

#include "bench/common/contest.hpp"
#include "bench/common/support.hpp"
#include "bench/net/resident_peak.hpp"
#include "nets/graph/memory_plan.hpp"

namespace convolume::bench {
namespace {

constexpr auto idle = std::chrono::milliseconds(50);  // equal to the rest in bench/peers/service.py

/// Returns the options of training within so many MiB.
nets::NetworkOptions within(const nets::NetSpec& spec, const nets::NetworkOptions& options, const std::string& limit,
                            int threads) {
  const double bytes = std::stod(limit) * (1 << 20);
  const auto plans = nets::memory_plans(spec, options, threads);
  const nets::MemoryPlan* plan = nets::fastest_within(plans, static_cast<std::size_t>(bytes));
  if (plan != nullptr) return plan->apply(options);
  throw InvalidArgument(fmt::format("--limit {}: training {} takes at least {:.1f} MiB", limit, spec.name,
                                    static_cast<double>(plans.back().memory.peak()) / (1 << 20)));
}

}  // namespace

double NetCompetitor::median() const { return quantile(seconds, 0.5); }
double NetCompetitor::low() const { return quantile(seconds, 0.25); }
double NetCompetitor::high() const { return quantile(seconds, 0.75); }

std::string to_string(const Variant& variant) {
  return fmt::format("{}, cache {}, {}{}{}", name_of(variant.backend), name_of_cache(variant.cache),
                     name_of(variant.memory), checks_of(variant),
                     variant.limit == "usual" ? "" : fmt::format(", limit {}", variant.limit));
}

void OurNet::prepare() {
  nets::NetworkOptions options{
      .engine = variant_.engine,
      .low_error = o_.low_error,
      .fft = {.backend = variant_.backend,
              .rigor = variant_.backend == fft::Backend::native ? fft::Rigor::estimate : o_.rigor},
      .cache_spectra = variant_.cache,
      .memory_mode = variant_.memory};
  if (variant_.limit == "all") {
    options.memory_budget = 0;
  } else if (work() == Work::training && variant_.limit != "usual") {
    options = within(spec_, options, variant_.limit, o_.threads);
  }
  const ResidentPeak resident;
  net_ = MeasuredNet::make(work(), spec_, options, o_.threads, o_.scheduling, {.hardened = variant_.hardened});
  net_->call();
  net_->forget_peak();
  net_->call();
  resident_bytes_ = resident.beyond();
}

double OurNet::sample() {
  if (rest_) {
    std::this_thread::sleep_for(idle);
    net_->call();
  }
  const TransformCounts before = net_->transforms();
  trace_->clear();
  net_->record(trace_.get());
  const Stopwatch watch;
  losses_.push_back(net_->call());
  const double taken = watch.seconds();
  net_->record(nullptr);
  transforms_ = net_->transforms() - before;
  phases_.push_back(phases_of(trace_->events(), net_->convolutions(), transforms_, taken, o_.threads));
  return taken;
}

std::string OurNet::label() const {
  const std::string variant = to_string(variant_);
  return o_.engines.size() > 1 ? fmt::format("{}, {}", name_of(variant_.engine), variant) : variant;
}

std::string OurNet::name() const { return fmt::format("{}, {}", name_of(work()), label()); }

double PeerCompetitor::sample() {
  const PeerNet::Call call = net_->call(work());
  // A process has one peak. The peak of an inference is measured before any training.
  if (work() == Work::training || !resident_bytes_) resident_bytes_ = call.peak_bytes;
  return call.seconds;
}

const char* checks_of(const Variant& variant) {
  return !variant.hardened ? "" : *variant.hardened ? ", hardened" : ", plain";
}

const char* name_of_cache(bool cache) { return cache ? "on" : "off"; }

const std::string& name_of(fft::Backend backend) {
  const auto& names = backend_names();
  return std::find_if(names.begin(), names.end(), [&](const auto& name) { return name.second == backend; })->first;
}

}  // namespace convolume::bench
