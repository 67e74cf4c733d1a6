#include "bench/net_training.hpp"

#include "nets/io/synthetic.hpp"

namespace convolume::bench {
namespace {

/// A volume a little larger than a patch, so that draws differ.
nets::Dataset synthetic_data(const Extent3& patch, std::pmr::memory_resource* memory) {
  nets::Dataset data;
  data.name = "synthetic";
  auto made = nets::make_synthetic_volume({.extent = patch + Extent3::all(8)}, memory);
  nets::normalise(made.image, data.normalisation);
  data.train.push_back({.image = std::move(made.image), .label = std::move(made.label), .mask = {}, .name = data.name});
  return data;
}

}  // namespace

NetTraining::NetTraining(const nets::NetSpec& spec, const nets::NetworkOptions& options, int threads)
    : scheduler_(threads),
      data_(synthetic_data(spec.patch, &memory_)),
      trainer_(spec, data_, 1, options, scheduler_, &memory_),
      nodes_(spec.nodes.size()),
      batch_(spec.training.batch) {}

double NetTraining::output_voxels() const {
  return static_cast<double>(batch_ * trainer_.network().shapes().output().extent.volume());
}

double NetTraining::convolution_flops() const {
  double sum = 0;
  for (std::size_t i = 0; i < nodes_; ++i) {
    if (const ConvPlan* plan = trainer_.network().plan_of(i)) sum += plan->problem().flops();
  }
  return sum;
}

TransformCounts NetTraining::transforms() const {
  TransformCounts sum;
  for (std::size_t i = 0; i < nodes_; ++i) {
    const ConvPlan* plan = trainer_.network().plan_of(i);
    if (plan == nullptr) continue;
    const TransformCounts one = plan->transforms();
    sum.input += one.input;
    sum.weights += one.weights;
    sum.gradient += one.gradient;
    sum.inverse += one.inverse;
    sum.seconds += one.seconds;
  }
  return sum;
}

}  // namespace convolume::bench
