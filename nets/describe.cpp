#include <fmt/format.h>

#include "convolume/fft.hpp"
#include "convolume/memory.hpp"
#include "convolume/nets.hpp"
#include "convolume/version.hpp"
#include "nets/io/volume.hpp"
#include "nets/network.hpp"

namespace convolume::nets {
namespace {

struct NodeType {
  std::string operator()(const ConvNode& n) const {
    std::string text = fmt::format("{} {}", n.transposed ? "transposed conv" : "conv", to_string(n.kernel));
    if (n.activation.kind != Activation::Kind::none) text += fmt::format(" + {}", name_of(n.activation.kind));
    return text;
  }
  std::string operator()(const ActivationNode& n) const { return name_of(n.activation.kind); }
  std::string operator()(const MaxPoolNode& n) const { return "max pool " + to_string(n.pool.window); }
  std::string operator()(const UpsampleNode& n) const { return "upsample " + to_string(n.factor); }
  std::string operator()(const ConcatNode&) const { return "concat"; }
  std::string operator()(const AddNode&) const { return "add"; }
  std::string operator()(const CropNode&) const { return "crop"; }
  std::string operator()(const DropoutNode& n) const { return fmt::format("dropout {}", n.rate); }
  std::string operator()(const GroupNormNode& n) const {
    return n.groups == 0 ? "instance norm" : fmt::format("group norm {}", n.groups);
  }
};

std::string mebibytes(double bytes) { return fmt::format("{:.1f} MiB", bytes / 1048576.0); }

/// As a trainer would: the loss lies between the passes, and has no buffers of the plan.
void plan_training_memory(Network& network) {
  TaskGraph draft;
  auto prepared = network.append_prepare(draft, {});
  const Ready logits = network.append_forward(draft, {}, std::move(prepared), {});
  network.append_backward(draft, logits);
  network.plan_memory();
}

}  // namespace

std::string describe_net(const std::filesystem::path& file, const std::vector<std::string>& overrides,
                         std::optional<Extent3> patch) {
  const NetSpec spec = load_net(file, overrides);
  SlabResource memory;
  const Extent3 input = patch.value_or(spec.patch);
  Parameters parameters(spec, true, 1, &memory);
  Network network(spec, input, parameters, {.batch = spec.training.batch, .training = true}, &memory);
  plan_training_memory(network);
  const NetShapes& shapes = network.shapes();
  std::string text = fmt::format("{}: input {} x {}, batch {}\n\n", spec.name, spec.in_channels, to_string(input),
                                 spec.training.batch);
  text += fmt::format("{:<20} {:<32} {:>8}  {:<16} {:>12} {:>10}  {}\n", "layer", "type", "channels", "extent",
                      "parameters", "GFLOP", "engine");
  double flops = 0, spectra = 0, transient = 0;
  for (std::size_t i = 0; i < spec.nodes.size(); ++i) {
    const NodeSpec& node = spec.nodes[i];
    index_t count = 0;
    for (const Parameter& p : parameters.all()) {
      if (p.name.starts_with(node.name + ".")) count += p.value.elements();
    }
    const ConvPlan* plan = network.plan_of(i);
    const double work = plan != nullptr ? plan->problem().flops() : 0;
    flops += work;
    if (plan != nullptr) {
      double layer = 0;
      for (const CacheCost& cache : plan->caches()) {
        const double bytes = cache.kept ? static_cast<double>(cache.bytes) : 0;
        (cache.name == "w_hat" ? spectra : layer) += bytes;
      }
      transient += layer;
    }
    const NodeShape& shape = shapes.nodes[i];
    text += fmt::format("{:<20} {:<32} {:>8}  {:<16} {:>12} {:>10.3f}  {}\n", node.name,
                        std::visit(NodeType{}, node.kind), shape.channels, to_string(shape.extent), count, work / 1e9,
                        plan != nullptr ? name_of(plan->engine()) : "");
  }
  const double state =
      4.0 * static_cast<double>(parameters.count()) * (spec.optimizer.kind == OptimizerKind::adam ? 4.0 : 3.0);
  text += fmt::format("\noutput          {} x {}\n", shapes.output().channels, to_string(shapes.output().extent));
  text += shapes.output().global ? "field of view   everything (a spatial norm lies in between)\n"
                                 : fmt::format("field of view   {}\n", to_string(shapes.field_of_view()));
  text += fmt::format("pooling grid    {}\n", to_string(shapes.alignment()));
  text +=
      fmt::format("parameters      {} ({} with gradients and optimiser state)\n", parameters.count(), mebibytes(state));
  text += fmt::format("arena           {} of activations, gradients and spectra, {} apart (training)\n",
                      mebibytes(static_cast<double>(network.lifetimes().arena_bytes())),
                      mebibytes(static_cast<double>(network.lifetimes().buffer_bytes())));
  text += fmt::format("spectra         {} of weights kept, at most {} of tensors within an iteration\n",
                      mebibytes(spectra), mebibytes(transient));
  text += fmt::format("operations      {:.3f} GFLOP forward, {:.3f} GFLOP per training iteration (direct way)\n",
                      flops / 1e9, 3 * flops / 1e9);
  return text;
}

std::string library_versions() {
  return fmt::format("convolume {}\n{}\n{}\n{}", version(), fft::backend_versions(), tasking_version(),
                     io::format_versions());
}

}  // namespace convolume::nets
