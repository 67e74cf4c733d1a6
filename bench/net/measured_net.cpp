#include "bench/net/measured_net.hpp"

#include "bench/common/support.hpp"
#include "bench/net/random_images.hpp"
#include "nets/io/synthetic.hpp"

namespace convolume::bench {
namespace {

/// Makes a volume a little larger than a patch, so that patches differ. A classifier gets two batches of images.
nets::Dataset synthetic_data(const nets::NetSpec& spec, std::pmr::memory_resource* memory) {
  const Extent3& patch = spec.patch;
  const nets::NetShapes shapes = nets::infer_shapes(spec, patch);
  if (!shapes.keeps_resolution()) {
    return random_images({.channels = spec.in_channels,
                          .classes = shapes.output().channels,
                          .count = 2 * spec.training.batch,
                          .extent = patch},
                         memory);
  }
  nets::Dataset data;
  data.name = "synthetic";
  auto made = nets::make_synthetic_volume({.extent = patch + Extent3::all(8)}, memory);
  data.train.push_back({.image = std::move(made.image), .label = std::move(made.label), .mask = {}, .name = data.name});
  nets::normalise(data.train[0].image);
  return data;
}

class NetTraining : public MeasuredNet {
 public:
  NetTraining(const nets::NetSpec& spec, const nets::NetworkOptions& options, int threads,
              const SchedulerOptions& scheduling, const SlabOptions& memory)
      : MeasuredNet(threads, scheduling, memory),
        data_(synthetic_data(spec, &slabs_)),
        trainer_(spec, data_, 1, options, scheduler_, &memory_) {
    trainer_.prepare();  // competitors run the graph themselves
  }

  double call() override { return trainer_.step().value(); }
  const TaskGraph& graph() const override { return trainer_.graph(); }

 private:
  const nets::Network& network() const override { return trainer_.network(); }
  double passes() const override { return 3; }

  nets::Dataset data_;
  nets::Trainer trainer_;
};

nets::NetworkOptions for_inference(nets::NetworkOptions options, const nets::NetSpec& spec) {
  options.batch = spec.training.batch;
  options.training = false;
  return options;
}

/// Computes one patch after another, as a predictor does. The weights are prepared once, before the first patch.
class NetInference : public MeasuredNet {
 public:
  NetInference(const nets::NetSpec& spec, const nets::NetworkOptions& options, int threads,
               const SchedulerOptions& scheduling, const SlabOptions& memory)
      : MeasuredNet(threads, scheduling, memory),
        parameters_(spec, false, 1, &memory_),
        network_(spec, spec.patch, parameters_, for_inference(options, spec), &memory_) {
    TaskGraph prepare;
    network_.append_planned([this](TaskGraph& first, TaskGraph& then) { append(first, then); }, prepare, forward_);
    network_.place_memory();
    fill_normal(network_.input().data(), network_.input().elements(), 1);
    prepare.run(scheduler_);
  }

  double call() override {
    forward_.run(scheduler_);
    return 0;
  }
  const TaskGraph& graph() const override { return forward_; }

 private:
  const nets::Network& network() const override { return network_; }
  double passes() const override { return 1; }
  void append(TaskGraph& prepare, TaskGraph& forward) {
    network_.append_prepare(prepare, {});
    network_.append_forward(forward, {}, {}, {});
  }

  nets::Parameters parameters_;
  nets::Network network_;
  TaskGraph forward_;
};

template <class Visit>
void for_each_plan(const nets::Network& network, const Visit& visit) {
  for (std::size_t i = 0; i < network.spec().nodes.size(); ++i) {
    if (const ConvPlan* plan = network.plan_of(i)) visit(*plan, network.spec().nodes[i].name);
  }
}

}  // namespace

const char* name_of(Work work) { return work == Work::training ? "training" : "inference"; }

std::unique_ptr<MeasuredNet> MeasuredNet::make(Work work, const nets::NetSpec& spec,
                                               const nets::NetworkOptions& options, int threads,
                                               const SchedulerOptions& scheduling, const SlabOptions& memory) {
  if (work == Work::training) return std::make_unique<NetTraining>(spec, options, threads, scheduling, memory);
  return std::make_unique<NetInference>(spec, options, threads, scheduling, memory);
}

double MeasuredNet::output_voxels() const {
  const nets::Network& net = network();
  return static_cast<double>(net.spec().training.batch * net.shapes().output().extent.volume());
}

double MeasuredNet::flops() const {
  double sum = 0;
  for_each_plan(network(), [&](const ConvPlan& plan, const std::string&) { sum += plan.problem().flops(); });
  return passes() * sum;
}

TransformCounts MeasuredNet::transforms() const {
  TransformCounts sum;
  for_each_plan(network(), [&](const ConvPlan& plan, const std::string&) { sum += plan.transforms(); });
  return sum;
}

std::set<std::string> MeasuredNet::convolutions() const {
  std::set<std::string> names;
  for_each_plan(network(), [&](const ConvPlan&, const std::string& name) { names.insert(name); });
  return names;
}

}  // namespace convolume::bench
