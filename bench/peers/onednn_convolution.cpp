#include "bench/peers/onednn_convolution.hpp"

#include <array>
#include <optional>
#include <unordered_map>

#include <dlfcn.h>
#include <fmt/format.h>
#include <oneapi/dnnl/dnnl.hpp>

namespace convolume::bench {
namespace {

using dnnl::memory;

/// Sets the number of threads. oneDNN gets it from OpenMP. The function is looked up at run time, so that it belongs to
/// the OpenMP runtime that oneDNN uses, not to that of our compiler.
void set_openmp_threads(int threads) {
  using Set = void (*)(int);
  const auto set = reinterpret_cast<Set>(dlsym(RTLD_DEFAULT, "omp_set_num_threads"));
  if (set == nullptr)
    throw Unsupported("this oneDNN does not use OpenMP, so its threads cannot be set; use a build with OpenMP");
  set(threads);
}

/// Calls `body`, and converts an exception of oneDNN to Unsupported, with the problem in its message.
template <class Body>
auto translated(const ConvProblem& problem, const Body& body) {
  try {
    return body();
  } catch (const dnnl::error& error) {
    throw Unsupported(fmt::format("oneDNN does not serve {}: {}", to_string(problem), error.what()));
  }
}

/// A problem in oneDNN's terms. A problem that is flat along Z becomes 2-D, which oneDNN computes faster.
class Description {
 public:
  explicit Description(const ConvProblem& p)
      : first_(p.input.z == 1 && p.kernel.z == 1 && p.output().z == 1 && p.pad_before.z == 0 ? 1 : 0) {
    src = with_axes({p.batch, p.in_channels}, p.input);
    dst = with_axes({p.batch, p.out_channels}, p.output());
    weights = with_axes({p.out_channels / p.groups, p.in_channels / p.groups}, p.kernel);
    if (p.groups > 1) weights.insert(weights.begin(), p.groups);
    strides = with_axes({}, p.stride);
    dilates = with_axes({}, p.dilation - Extent3::all(1));
    before = with_axes({}, p.pad_before);
    // oneDNN requires exactly the padding behind that the output needs.
    const Extent3 needed = (p.output() - Extent3::all(1)) * p.stride + p.span() - p.input - p.pad_before;
    after = with_axes({}, needed);
  }

  memory::dims src, dst, weights, strides, dilates, before, after;

  static memory::desc any(const memory::dims& dims) { return {dims, memory::data_type::f32, memory::format_tag::any}; }
  static memory::desc plain(const memory::dims& dims) {
    memory::dims strides(dims.size(), 1);
    for (std::size_t i = dims.size() - 1; i > 0; --i) strides[i - 1] = strides[i] * dims[i];
    return {dims, memory::data_type::f32, strides};
  }

 private:
  memory::dims with_axes(memory::dims front, const Extent3& extent) const {
    for (int axis = first_; axis < 3; ++axis) front.push_back(extent[axis]);
    return front;
  }

  int first_;
};

/// A primitive, its three tensors in its own layouts, and the tensor that it writes.
struct Pass {
  dnnl::primitive primitive{};
  std::unordered_map<int, memory> arguments{};
  memory written{};
  std::string implementation{};
};

class Convolution final : public OneDnnConvolution {
 public:
  Convolution(const ConvProblem& problem, const ConvData& data, int threads)
      : problem_(problem),
        data_(data),
        description_(problem),
        engine_((set_openmp_threads(threads), dnnl::engine::kind::cpu), 0),
        stream_(engine_),
        hint_(translated(problem, [&] { return forward_hint(); })) {}

  void execute(Direction direction) override {
    if (direction != Direction::training) return execute(pass(direction));
    for (const Direction part : parts) execute(pass(part));
  }

  void read(Output output, ConvTensor& plain) override {
    const Direction direction = output == Output::y    ? Direction::forward
                                : output == Output::dx ? Direction::backward_data
                                                       : Direction::backward_weights;
    const memory::dims& dims = output == Output::y    ? description_.dst
                               : output == Output::dx ? description_.src
                                                      : description_.weights;
    memory target(Description::plain(dims), engine_, plain.view().data);
    memory source = pass(direction).written;
    reorder(source, target);
  }

  std::string implementation(Direction direction) override {
    if (direction != Direction::training) return pass(direction).implementation;
    std::string all;
    for (const Direction part : parts) all += (all.empty() ? "" : ", ") + pass(part).implementation;
    return all;
  }

 private:
  static constexpr std::array parts{Direction::forward, Direction::backward_data, Direction::backward_weights};

  void execute(Pass& pass) {
    pass.primitive.execute(stream_, pass.arguments);
    stream_.wait();
  }

  Pass& pass(Direction direction) {
    auto& pass = passes_[static_cast<std::size_t>(direction)];
    if (!pass) pass = translated(problem_, [&] { return make(direction); });
    return *pass;
  }

  dnnl::convolution_forward::primitive_desc forward_hint() const {
    const Description& d = description_;
    return {{dnnl::prop_kind::forward_training, dnnl::algorithm::convolution_auto, Description::any(d.src),
             Description::any(d.weights), Description::any(d.dst), d.strides, d.dilates, d.before, d.after},
            engine_};
  }

  Pass make(Direction direction) {
    const Description& d = description_;
    // The algorithms of the passes may differ, because oneDNN selects each one.
    const auto algorithm = dnnl::algorithm::convolution_auto;
    if (direction == Direction::forward) {
      return bind<dnnl::convolution_forward>(
          hint_, {{DNNL_ARG_SRC, hint_.src_desc()}, {DNNL_ARG_WEIGHTS, hint_.weights_desc()}},
          {DNNL_ARG_DST, hint_.dst_desc()});
    }
    if (direction == Direction::backward_data) {
      const dnnl::convolution_backward_data::primitive_desc chosen(
          {algorithm, Description::any(d.src), Description::any(d.weights), Description::any(d.dst), d.strides,
           d.dilates, d.before, d.after},
          engine_, hint_);
      return bind<dnnl::convolution_backward_data>(
          chosen, {{DNNL_ARG_DIFF_DST, chosen.diff_dst_desc()}, {DNNL_ARG_WEIGHTS, chosen.weights_desc()}},
          {DNNL_ARG_DIFF_SRC, chosen.diff_src_desc()});
    }
    const dnnl::convolution_backward_weights::primitive_desc chosen(
        {algorithm, Description::any(d.src), Description::any(d.weights), Description::any(d.dst), d.strides, d.dilates,
         d.before, d.after},
        engine_, hint_);
    return bind<dnnl::convolution_backward_weights>(
        chosen, {{DNNL_ARG_SRC, chosen.src_desc()}, {DNNL_ARG_DIFF_DST, chosen.diff_dst_desc()}},
        {DNNL_ARG_DIFF_WEIGHTS, chosen.diff_weights_desc()});
  }

  using Argument = std::pair<int, memory::desc>;

  template <class Primitive>
  Pass bind(const typename Primitive::primitive_desc& chosen, const std::vector<Argument>& read,
            const Argument& written) {
    Pass pass{.primitive = Primitive(chosen)};
    pass.implementation = chosen.impl_info_str();
    for (const auto& [role, layout] : read) pass.arguments.emplace(role, input(role, layout));
    pass.written = memory(written.second, engine_);
    pass.arguments.emplace(written.first, pass.written);
    return pass;
  }

  memory input(int role, const memory::desc& layout) {
    const bool src = role == DNNL_ARG_SRC, weights = role == DNNL_ARG_WEIGHTS;
    const ConvTensor& tensor = src ? data_.x : weights ? data_.w : data_.dy;
    const memory::dims& dims = src ? description_.src : weights ? description_.weights : description_.dst;
    // The tensor is only read; oneDNN's interface has no constant memory.
    memory plain(Description::plain(dims), engine_, const_cast<void*>(tensor.view().data.get()));
    memory own(layout, engine_);
    reorder(plain, own);
    return own;
  }

  void reorder(memory& from, memory& to) {
    dnnl::reorder(from, to).execute(stream_, from, to);
    stream_.wait();
  }

  ConvProblem problem_;
  const ConvData& data_;
  Description description_;
  dnnl::engine engine_;
  dnnl::stream stream_;
  dnnl::convolution_forward::primitive_desc hint_;
  std::array<std::optional<Pass>, direction_count> passes_;
};

}  // namespace

std::string onednn_version() {
  const dnnl_version_t* version = dnnl_version();
  return fmt::format("oneDNN {}.{}.{}", version->major, version->minor, version->patch);
}

std::unique_ptr<OneDnnConvolution> onednn_convolution(const ConvProblem& problem, const ConvData& data, int threads) {
  if (problem.type != DataType::f32)
    throw Unsupported("oneDNN computes convolutions in float only; use --precision float");
  return std::make_unique<Convolution>(problem, data, threads);
}

}  // namespace convolume::bench
