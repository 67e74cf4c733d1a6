#include <cstring>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "convolume/cpu.hpp"
#include "convolume/fft.hpp"
#include "convolume/memory.hpp"
#include "convolume/training.hpp"
#include "convolume/version.hpp"
#include "nets/data/intensity.hpp"
#include "nets/graph/memory_plan.hpp"
#include "nets/graph/training_memory.hpp"
#include "nets/io/safetensors.hpp"
#include "nets/io/volume.hpp"
#include "nets/spec/checkpoint.hpp"

namespace convolume::nets {
namespace {

std::string mebibytes(double bytes) { return fmt::format("{:.1f} MiB", bytes / 1048576.0); }

std::string mebibytes(std::size_t bytes) { return mebibytes(static_cast<double>(bytes)); }

/// Returns the memory section of the report, one line per item.
std::string memory_text(const TrainingMemory& memory, std::int64_t parameters, double spectra, int threads) {
  std::string text = fmt::format("memory          {} at the peak of a training iteration on {} thread{}:\n",
                                 mebibytes(memory.peak()), threads, threads == 1 ? "" : "s");
  text += fmt::format("  parameters    {} ({} with gradients and optimiser state)\n", parameters,
                      mebibytes(memory.parameters));
  text += fmt::format("  lasting       {} of patches, labels, logits and sums\n", mebibytes(memory.lasting));
  text += fmt::format(
      "  arena         {}, shared by {} of activations and gradients, {} of spectra of tensors, {} of prepared "
      "weights ({} spectra that are kept), {} of engines between tasks\n",
      mebibytes(memory.arena), mebibytes(memory.tensors), mebibytes(memory.spectra), mebibytes(memory.weights),
      mebibytes(spectra), mebibytes(memory.working));
  text += fmt::format("  scratch       {} of running tasks\n", mebibytes(memory.scratch));
  text += fmt::format("added order     {:+.1f} % of the critical path's cost, for the sake of the arena\n",
                      100 * (memory.critical_cost / memory.critical_cost_apart - 1));
  return text;
}

}  // namespace

std::string describe_net(const std::filesystem::path& file, const std::vector<std::string>& overrides,
                         std::optional<Extent3> patch, int threads) {
  NetSpec spec = load_net(file, overrides);
  if (patch) refuse_patch_of_classifier(spec, "--patch");
  const Extent3 input = spec.patch = patch.value_or(spec.patch);
  SlabResource slabs;
  CountedMemory memory(&slabs);
  Parameters parameters(spec, true, 1, &memory);
  Network network(spec, input, parameters, with_memory_plan(spec, {.batch = spec.training.batch, .training = true}),
                  &memory);
  const int workers = threads > 0 ? threads : default_threads();
  const TrainingMemory peak = plan_training_memory(network, parameters, memory, workers);
  const NetShapes& shapes = network.shapes();
  std::string text = fmt::format("{}: input {} x {}, batch {}\n\n", spec.name, spec.in_channels, to_string(input),
                                 spec.training.batch);
  text += fmt::format("{:<20} {:<32} {:>8}  {:<16} {:>12} {:>10}  {}\n", "layer", "type", "channels", "extent",
                      "parameters", "GFLOP", "engine");
  double flops = 0, spectra = 0;
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
      for (const CacheCost& cache : plan->caches()) {
        if (cache.content == CacheCost::Content::weights && cache.kept) spectra += static_cast<double>(cache.bytes);
      }
    }
    const NodeShape& shape = shapes.nodes[i];
    text += fmt::format("{:<20} {:<32} {:>8}  {:<16} {:>12} {:>10.3f}  {}\n", node.name, node.layer->title(),
                        shape.channels, to_string(shape.extent), count, work / 1e9,
                        plan != nullptr ? name_of(plan->engine()) : "");
  }
  text += fmt::format("\noutput          {} x {}\n", shapes.output().channels, to_string(shapes.output().extent));
  text += shapes.output().global ? "field of view   everything (a spatial norm lies in between)\n"
                                 : fmt::format("field of view   {}\n", to_string(shapes.field_of_view()));
  text += fmt::format("pooling grid    {}\n", to_string(shapes.alignment()));
  text += memory_text(peak, parameters.count(), spectra, workers);
  text += fmt::format("operations      {:.3f} GFLOP forward, {:.3f} GFLOP per training iteration (direct way)\n",
                      flops / 1e9, 3 * flops / 1e9);
  return text;
}

std::string describe_checkpoint(const std::filesystem::path& file) {
  const CheckpointHeader header = read_checkpoint_header(file);
  const NetSpec& net = header.net;
  std::string text = fmt::format("{:<16}{}\n{:<16}{}\n{:<16}{}\n{:<16}{}\n", "checkpoint", file.string(), "net",
                                 net.name, "iteration", header.iteration, "seed", header.seed);
  text += fmt::format("{:<16}{} channel{}, patch {}\n", "input", net.in_channels, net.in_channels == 1 ? "" : "s",
                      to_string(net.patch));
  text += fmt::format("{:<16}{}, intensities normalised per {}\n", "data digest", header.data_digest,
                      name_of(parse_intensity(header.normalisation, file.string()).first.normalise));
  if (!header.class_names.empty()) {
    text += fmt::format("{:<16}{}\n", "classes", fmt::join(header.class_names, ", "));
  }
  return text + fmt::format("\nnumerics record\n{}\n", header.numerics);
}

StoredNet read_checkpoint(const std::filesystem::path& path) {
  const io::SafetensorsFile file = io::read_safetensors(path);
  const NetSpec spec = checkpoint_header(file, path).net;
  StoredNet net{.name = spec.name, .architecture = spec.architecture(), .digest = file.digest(), .parameters = {}};
  for (const io::NamedTensor& tensor : file.tensors()) {
    if (tensor.name.find('/') != tensor.name.npos) continue;  // a moment of the optimiser
    if (tensor.type != io::StoredType::f32) {
      throw FormatError(fmt::format("{}: tensor '{}' is not of type F32", path.string(), tensor.name));
    }
    StoredParameter& one = net.parameters.emplace_back(StoredParameter{tensor.name, tensor.shape, {}});
    one.values.resize(tensor.bytes.size() / sizeof(float));
    std::memcpy(one.values.data(), tensor.bytes.data(), tensor.bytes.size());
  }
  return net;
}

std::string library_versions() {
  return fmt::format("convolume {}\n{}\n{}\n{}", version(), fft::backend_versions(), tasking_version(),
                     io::format_versions());
}

}  // namespace convolume::nets
