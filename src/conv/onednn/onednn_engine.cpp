// oneDNN's convolutions behind our interface, for comparisons. Used only if requested by name. Every primitive runs
// inside one task, on threads that oneDNN starts itself.
#include "conv/onednn/onednn_engine.hpp"

#include <algorithm>
#include <deque>
#include <unordered_map>

#include <dlfcn.h>
#include <fmt/format.h>
#include <oneapi/dnnl/dnnl.hpp>

#include "conv/caches/caches.hpp"
#include "conv/caches/scratch.hpp"
#include "conv/choice.hpp"
#include "conv/tensor_io/bias_gradient.hpp"
#include "ops/layout.hpp"
#include "plan/cost_constants.hpp"
#include "plan/cost_model.hpp"

namespace convolume::conv {
namespace {

using dnnl::algorithm;
using dnnl::memory;
using Arguments = std::unordered_map<int, memory>;

template <class Body>
auto translated(const Body& body) {
  try {
    return body();
  } catch (const dnnl::error& error) {
    throw Unsupported(fmt::format("oneDNN: {}", error.what()));
  }
}

/// Returns the number of threads that oneDNN's OpenMP starts. It is part of the numerics, because oneDNN divides sums
/// among these threads.
int openmp_threads() {
  using Get = int (*)();
  const auto get = reinterpret_cast<Get>(dlsym(RTLD_DEFAULT, "omp_get_max_threads"));
  return get != nullptr ? get() : 1;
}

/// An activation, and its gradient at the output, in oneDNN's terms.
struct Eltwise {
  algorithm kind, from_output;
  float alpha = 0;
};
Eltwise eltwise_of(const Activation& activation) {
  switch (activation.kind) {
    case Activation::Kind::sigmoid:
      return {algorithm::eltwise_logistic, algorithm::eltwise_logistic_use_dst_for_bwd};
    case Activation::Kind::tanh:
      return {algorithm::eltwise_tanh, algorithm::eltwise_tanh_use_dst_for_bwd};
    case Activation::Kind::leaky_relu:
      return {algorithm::eltwise_relu, algorithm::eltwise_relu_use_dst_for_bwd, static_cast<float>(activation.slope)};
    case Activation::Kind::relu:
    case Activation::Kind::none:
    case Activation::Kind::softsign:  // unsupported_reason() names it
      break;
  }
  return {algorithm::eltwise_relu, algorithm::eltwise_relu_use_dst_for_bwd};
}

memory::dims dims_of(const Shape5& s) { return {s.n, s.c, s.extent.z, s.extent.y, s.extent.x}; }
memory::dims dims_of(const Extent3& e) { return {e.z, e.y, e.x}; }

/// A problem in oneDNN's terms.
struct Description {
  explicit Description(const ConvProblem& p)
      : x(dims_of(p.x_shape())), y(dims_of(p.y_shape())), w(dims_of(p.w_shape())), bias{p.out_channels} {
    if (p.groups > 1) {
      w[0] /= p.groups;
      w.insert(w.begin(), p.groups);
    }
    strides = dims_of(p.stride);
    dilates = dims_of(p.dilation - Extent3::all(1));
    before = dims_of(p.pad_before);
    // oneDNN requires that the padding at the end matches the output exactly.
    after = dims_of((p.output() - Extent3::all(1)) * p.stride + p.span() - p.input - p.pad_before);
  }
  memory::dims x, y, w, bias, strides, dilates, before, after;
};

memory::desc any(const memory::dims& dims) { return {dims, memory::data_type::f32, memory::format_tag::any}; }

dnnl::primitive_attr own_scratch(const Activation& fused = {}) {
  dnnl::primitive_attr attributes;
  attributes.set_scratchpad_mode(dnnl::scratchpad_mode::user);
  if (fused.kind != Activation::Kind::none) {
    dnnl::post_ops after;
    const Eltwise eltwise = eltwise_of(fused);
    after.append_eltwise(1, eltwise.kind, eltwise.alpha, 0);
    attributes.set_post_ops(after);
  }
  return attributes;
}

/// One execution: a stream, and memory that lives as long as the execution.
class Run {
 public:
  Run(const dnnl::engine& engine, std::pmr::memory_resource* resource)
      : engine_(engine), stream_(engine), resource_(resource) {}

  memory take(const memory::desc& desc) {
    Scratch& scratch = scratch_.emplace_back(resource_, std::max<std::size_t>(desc.get_size(), 1));
    return {desc, engine_, scratch.take<std::byte>(0)};
  }
  memory wrap(const memory::desc& desc, const void* data) const { return {desc, engine_, const_cast<void*>(data)}; }

  /// Returns oneDNN's description of a view's layout. A blocked view must be dense.
  static memory::desc desc_of(const View<const float>& view) {
    if (view.layout == Layout::blocked) {
      return {dims_of(view.shape), memory::data_type::f32, memory::format_tag::nCdhw16c};
    }
    return {dims_of(view.shape), memory::data_type::f32, memory::dims(view.stride.begin(), view.stride.end())};
  }
  static bool dense(const View<const float>& view) {
    return view.layout == Layout::plain || view.stride == View<const float>(view.data, view.shape, view.layout).stride;
  }

  /// Returns a tensor in the layout that a primitive needs. Copies it if its layout is different.
  memory read(const View<const float>& view, const memory::desc& wanted) {
    memory from = wrap(desc_of(view), view.data);
    if (!dense(view)) {
      from = take(desc_of(view));
      ops::convert<float>(view, {static_cast<float*>(from.get_data_handle()), view.shape, view.layout});
    }
    return in_layout(from, wanted);
  }
  memory in_layout(const memory& from, const memory::desc& wanted) {
    if (from.get_desc() == wanted) return from;
    memory to = take(wanted);
    reorder(from, to, false);
    return to;
  }
  /// Returns memory into which a primitive writes a result with the description `written`. finish() then copies the
  /// result into the view, if it is not there already.
  memory begin(const View<float>& view, const memory::desc& written, bool add) {
    const bool direct = !add && dense(view) && desc_of(view) == written;
    return direct ? wrap(written, view.data) : take(written);
  }
  void finish(const memory& from, const View<float>& view, bool add) {
    if (from.get_data_handle() == view.data) return;
    if (dense(view)) return reorder(from, wrap(desc_of(view), view.data), add);
    const memory staged = take(desc_of(view));
    const View<float> staging(static_cast<float*>(staged.get_data_handle()), view.shape, view.layout);
    if (add) ops::convert<float>(view, staging);
    reorder(from, staged, add);
    ops::convert<float>(staging, view);
  }
  void reorder(const memory& from, const memory& to, bool add) {
    dnnl::primitive_attr attributes = own_scratch();
    dnnl::post_ops sum;
    if (add) sum.append_sum(1);
    attributes.set_post_ops(sum);
    const dnnl::reorder::primitive_desc chosen(from, to, attributes);
    execute(dnnl::reorder(chosen), chosen, {{DNNL_ARG_FROM, from}, {DNNL_ARG_TO, to}});
  }
  template <class Chosen>
  void execute(const dnnl::primitive& primitive, const Chosen& chosen, Arguments arguments) {
    arguments.emplace(DNNL_ARG_SCRATCHPAD, take(chosen.scratchpad_desc()));
    primitive.execute(stream_, arguments);
    stream_.wait();
  }

 private:
  dnnl::engine engine_;
  dnnl::stream stream_;
  std::pmr::memory_resource* resource_;
  std::deque<Scratch> scratch_;
};

class OneDnnEngine final : public ConvEngine {
 public:
  explicit OneDnnEngine(const ConvProblem& p)
      : p_(p),
        d_(p),
        engine_(dnnl::engine::kind::cpu, 0),
        forward_(
            {dnnl::prop_kind::forward_training, algorithm::convolution_direct, any(d_.x), any(d_.w),
             p.epilogue.bias ? any(d_.bias) : memory::desc(), any(d_.y), d_.strides, d_.dilates, d_.before, d_.after},
            own_scratch(p.epilogue.activation), engine_),
        data_({algorithm::convolution_direct, any(d_.x), any(d_.w), any(d_.y), d_.strides, d_.dilates, d_.before,
               d_.after},
              own_scratch(), engine_, forward_),
        weights_({algorithm::convolution_direct, any(d_.x), any(d_.w), any(d_.y), d_.strides, d_.dilates, d_.before,
                  d_.after},
                 own_scratch(), engine_, forward_),
        run_forward_(forward_),
        run_data_(data_),
        run_weights_(weights_) {}

  void init_weights(PreparedWeights::Impl& w) const override {
    w.geometry = fmt::format("onednn {} of {}", forward_.impl_info_str(), to_string(p_.w_shape()));
    w.packed.init(w.memory, 1, forward_.weights_desc().get_size());
  }
  void init_input_spectra(Spectra::Impl& s) const override { s.geometry = "onednn"; }
  void init_gradient_spectra(Spectra::Impl& s) const override { s.geometry = "onednn"; }
  std::string numerics() const override {
    const dnnl_version_t* version = dnnl_version();
    return fmt::format("oneDNN {}.{}.{} on {} threads of its own: {}, {}, {}", version->major, version->minor,
                       version->patch, openmp_threads(), forward_.impl_info_str(), data_.impl_info_str(),
                       weights_.impl_info_str());
  }

  Ready append_prepare(TaskGraph& graph, const Ready& ready, std::shared_ptr<const PrepareArguments> a) const override {
    return append(graph, "pack weights", ready.tasks(), a->prepared->memory, [this, a](Run& run) {
      const View<const float> w = a->w.as<float>();
      run.reorder(run.wrap(plain_weights(w), w.data), run.wrap(forward_.weights_desc(), a->prepared->packed.acquire(0)),
                  false);
    });
  }

  Ready append_forward(TaskGraph& graph, const ConvReady& ready,
                       std::shared_ptr<const ForwardArguments> a) const override {
    std::vector<TaskId> after = ready.x.tasks();
    add(after, ready.w);
    return append(graph, "oneDNN forward", after, a->memory, [this, a](Run& run) {
      const View<float> y = a->y.as<float>();
      const memory to = run.begin(y, forward_.dst_desc(), false);
      Arguments arguments{{DNNL_ARG_SRC, run.read(a->x.as<float>(), forward_.src_desc())},
                          {DNNL_ARG_WEIGHTS, packed(run, *a->w)},
                          {DNNL_ARG_DST, to}};
      if (p_.epilogue.bias) {
        arguments.emplace(DNNL_ARG_BIAS, run.wrap(forward_.bias_desc(), a->bias.as<float>().data));
      }
      run.execute(run_forward_, forward_, std::move(arguments));
      run.finish(to, y, false);
    });
  }

  ConvGradientReady append_backward(TaskGraph& graph, const ConvReady& ready,
                                    std::shared_ptr<const BackwardArguments> a) const override {
    ConvGradientReady result;
    std::vector<TaskId> after = ready.dy.tasks();
    add(after, ready.w);
    add(after, ready.dx);
    if (a->dx) {
      result.dx = append(graph, "oneDNN backward data", after, a->memory, [this, a](Run& run) {
        const View<float> dx = a->dx.as<float>();
        const memory to = run.begin(dx, data_.diff_src_desc(), a->add_dx);
        run.execute(run_data_, data_,
                    {{DNNL_ARG_DIFF_DST, gradient(run, *a, data_.diff_dst_desc())},
                     {DNNL_ARG_WEIGHTS, run.in_layout(packed(run, *a->w), data_.weights_desc())},
                     {DNNL_ARG_DIFF_SRC, to}});
        run.finish(to, dx, a->add_dx);
      });
    }
    after = ready.dy.tasks();
    add(after, ready.x);
    if (a->dw) {
      result.dw = append(graph, "oneDNN backward weights", after, a->memory, [this, a](Run& run) {
        const View<float> dw = a->dw.as<float>();
        const memory to = run.take(weights_.diff_weights_desc());
        run.execute(run_weights_, weights_,
                    {{DNNL_ARG_SRC, run.read(a->x.as<float>(), weights_.src_desc())},
                     {DNNL_ARG_DIFF_DST, gradient(run, *a, weights_.diff_dst_desc())},
                     {DNNL_ARG_DIFF_WEIGHTS, to}});
        run.reorder(to, run.wrap(plain_weights(dw), dw.data), a->add_dw);
      });
    }
    if (a->dbias) result.dbias = bias_.append(graph, ready.dy, a);
    return result;
  }

 private:
  static void add(std::vector<TaskId>& tasks, const Ready& ready) {
    for (const TaskId task : ready.tasks()) tasks.push_back(task);
  }

  template <class Body>
  Ready append(TaskGraph& graph, const char* name, const std::vector<TaskId>& after, std::pmr::memory_resource* memory,
               Body body) const {
    const TaskId task = graph.add(
        {.name = name, .cost = p_.flops()},
        [this, memory, body] {
          translated([&] {
            Run run(engine_, memory);
            body(run);
          });
        },
        after);
    return Ready::all_of({task});
  }

  /// Returns the description of a tensor with the strides of `w`. oneDNN has a separate axis for groups.
  memory::desc plain_weights(const View<const float>& w) const {
    memory::dims strides(w.stride.begin(), w.stride.end());
    if (p_.groups > 1) strides.insert(strides.begin(), w.stride[0] * (w.shape.n / p_.groups));
    return {d_.w, memory::data_type::f32, strides};
  }
  memory packed(const Run& run, const PreparedWeights::Impl& w) const {
    return run.wrap(forward_.weights_desc(), w.packed.get(0));
  }

  /// Returns dy times the gradient of the fused activation.
  memory gradient(Run& run, const BackwardArguments& a, const memory::desc& wanted) const {
    const Activation& activation = p_.epilogue.activation;
    const memory dy = run.read(a.dy.as<float>(), wanted);
    if (activation.kind == Activation::Kind::none) return dy;
    const Eltwise eltwise = eltwise_of(activation);
    const dnnl::eltwise_forward::primitive_desc hint(
        {dnnl::prop_kind::forward_training, eltwise.from_output, wanted, eltwise.alpha}, engine_);
    const dnnl::eltwise_backward::primitive_desc chosen({eltwise.from_output, wanted, wanted, eltwise.alpha},
                                                        own_scratch(), engine_, hint);
    const memory to = run.take(wanted);
    run.execute(dnnl::eltwise_backward(chosen), chosen,
                {{DNNL_ARG_DST, run.read(a.y.as<float>(), wanted)}, {DNNL_ARG_DIFF_DST, dy}, {DNNL_ARG_DIFF_SRC, to}});
    return to;
  }

  ConvProblem p_;
  BiasGradient<float> bias_{p_};
  Description d_;
  dnnl::engine engine_;
  dnnl::convolution_forward::primitive_desc forward_;
  dnnl::convolution_backward_data::primitive_desc data_;
  dnnl::convolution_backward_weights::primitive_desc weights_;
  dnnl::convolution_forward run_forward_;
  dnnl::convolution_backward_data run_data_;
  dnnl::convolution_backward_weights run_weights_;
};

std::string unsupported_reason(const ConvProblem& problem, const ConvOptions&, const ChoiceParts*) {
  if (problem.type != DataType::f32) return "serves float only";
  if (problem.transposed) return "serves no transposed convolutions";
  if (leaves_out_voxels(problem)) return no_cropped_volumes;
  if (problem.epilogue.activation.kind == Activation::Kind::softsign) return "serves no softsign";
  // Only oneDNN knows what it supports, so this creates an engine.
  try {
    const OneDnnEngine trial(problem);
    return {};
  } catch (const dnnl::error& error) {
    return fmt::format("oneDNN: {}", error.what());
  }
}

Estimate estimate(const ConvProblem& problem, const ConvOptions& options, const MachineModel& machine,
                  const ChoiceParts*) {
  const plan::Work work{.flops = wanted_of(options).count() * problem.flops(), .efficiency = plan::onednn_share};
  return {plan::seconds(work, machine), 2 * plan::packed_weight_bytes(problem)};
}

std::unique_ptr<ConvEngine> create(const ConvProblem& problem, const ConvOptions&, const ChoiceParts*) {
  return std::make_unique<OneDnnEngine>(problem);
}

}  // namespace

Implementation onednn_implementation() {
  return {Engine::onednn, "onednn", false, unsupported_reason, estimate, create};
}

}  // namespace convolume::conv
