#include "nets/layers/convolution.hpp"

#include <cmath>
#include <tuple>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "convolume/conv.hpp"
#include "nets/layers/activation.hpp"
#include "nets/layers/layer_step.hpp"
#include "nets/layers/shape_rules.hpp"

namespace convolume::nets {
namespace {

class ConvolutionTasks final : public LayerTasks {
 public:
  explicit ConvolutionTasks(const LayerSetup& setup)
      : plan_(*setup.plan),
        weight_(*setup.parameters[0]),
        bias_(setup.parameters.size() > 1 ? setup.parameters[1] : nullptr),
        lifetimes_(*setup.lifetimes),
        memory_(setup.memory),
        keeps_x_hat_(setup.keep_x_hat) {
    weights_ = plan_.prepared_weights(memory_);
    if (setup.training) {
      std::tie(forward_buffer_, weights_buffer_) = lifetimes_.add_for_training(weights_);
    } else {
      weights_buffer_ = lifetimes_.add(weights_, true);
    }
    if (!keeps_x_hat_) return;
    x_hat_ = plan_.input_spectra(memory_);
    x_hat_buffer_ = lifetimes_.add(x_hat_);
  }

  Ready append_prepare(TaskGraph& graph, const ParameterReady& ready) override {
    const Ready weight = ready_of(ready, &weight_);
    return lifetimes_.step(graph, weight, [&](Lifetimes::Step& step) {
      step.use(forward_buffer_);
      step.use(weights_buffer_);
      return plan_.append_prepare(graph, weight & step.gate(), weight_.value, weights_);
    });
  }
  Ready append_forward(ForwardStep& step) override {
    step.use(forward_buffer_);
    ForwardBindings bindings{.x = step.x(), .w = use_weights(step), .y = step.y()};
    if (bias_ != nullptr) bindings.bias = bias_->value;
    bindings.x_hat = use_x_hat(step);
    weights_ready_ = step.prepared();
    const ConvReady ready{.x = step.x_ready() & step.gate(), .w = weights_ready_ & step.parameter_ready(bias_)};
    return plan_.append_forward(step.graph(), ready, bindings, memory_, lifetimes_.workspace());
  }
  void append_backward(BackwardStep& step) override {
    const bool reads_x = !keeps_x_hat_ || !plan_.x_hat_replaces_x();
    const bool reads_y = plan_.problem().epilogue.activation.kind != Activation::Kind::none;
    BackwardBindings bindings{.x = reads_x ? step.x() : step.unread_x(),
                              .y = reads_y ? step.y() : step.unread_y(),
                              .dy = step.dy(),
                              .w = use_weights(step),
                              .x_hat = use_x_hat(step),
                              .dw = weight_.gradient};
    if (bias_ != nullptr) bindings.dbias = bias_->gradient;
    bindings.dx = step.dx();
    const bool wants_dx = step.wants_dx();
    bindings.add_dx = wants_dx && step.adds_dx();
    const ConvReady ready{.x = step.x_ready(),
                          .w = weights_ready_,
                          .dy = step.dy_ready() & step.y_ready(),
                          .dx = wants_dx ? step.dx_ready() : Ready()};
    const auto gradients = plan_.append_backward(step.graph(), ready, bindings, memory_, lifetimes_.workspace());
    step.wrote_gradient(weight_, gradients.dw);
    if (bias_ != nullptr) step.wrote_gradient(*bias_, gradients.dbias);
    if (wants_dx) step.wrote_dx(0, gradients.dx);
    if (bindings.x_hat == nullptr || lifetimes_.planned()) return;
    // The spectra of x live from this layer's forward pass to its weight gradient, within one run. A release task is
    // never skipped, so a cancelled run frees them too.
    step.graph().add(
        {.name = "free input spectra", .cost = 0, .task_class = TaskClass::release}, [this] { x_hat_.release(); },
        gradients.dw.tasks());
  }

 private:
  PreparedWeights& use_weights(LayerStep& step) {
    step.use(weights_buffer_);
    return weights_;
  }
  Spectra* use_x_hat(LayerStep& step) {
    if (!keeps_x_hat_) return nullptr;
    step.use(x_hat_buffer_);
    return &x_hat_;
  }

  const ConvPlan& plan_;
  Parameter& weight_;
  Parameter* bias_;
  Lifetimes& lifetimes_;
  std::pmr::memory_resource* memory_;
  bool keeps_x_hat_;
  PreparedWeights weights_;
  Spectra x_hat_;
  Lifetimes::Buffer forward_buffer_ = Lifetimes::no_buffer;  // the part of `weights_` that only the forward pass reads
  Lifetimes::Buffer weights_buffer_ = Lifetimes::no_buffer, x_hat_buffer_ = Lifetimes::no_buffer;
  Ready weights_ready_;  // in the graph that is being built
};

void read_padding(TomlTable& table, bool transposed, ConvolutionKeys& keys) {
  if (!table.is_text("padding")) {
    keys.padding = table.extent("padding", 0, Extent3::all(0));
    return;
  }
  const std::string padding = table.text("padding");
  keys.same = padding == "same" && !transposed && keys.stride == Extent3::all(1);
  if (!keys.same && padding != "valid") {
    table.fail("'" + padding + "' cannot be used here; use \"valid\", \"same\" (stride 1, not transposed) or [z, y, x]",
               "padding");
  }
}

/// Reads kernel = "all". Such a kernel meets its input at one place, without padding.
void check_whole_input(TomlTable& table, bool transposed, const ConvolutionKeys& keys) {
  if (const std::string kernel = table.text("kernel"); kernel != "all" || transposed) {
    table.fail("'" + kernel + "' cannot be used here; use [z, y, x], one number, or \"all\" (not transposed)",
               "kernel");
  }
  const auto only = [&](const char* key, bool usual) {
    if (!usual) table.fail("kernel = \"all\" meets its input at one place; leave '" + std::string(key) + "' out", key);
  };
  only("stride", keys.stride == Extent3::all(1));
  only("dilation", keys.dilation == Extent3::all(1));
  only("padding", !keys.same && keys.padding == Extent3::all(0));
}

}  // namespace

ConvolutionKeys read_convolution(TomlTable& table, bool transposed) {
  ConvolutionKeys keys;
  keys.out_channels = table.integer("out_channels", 1);
  keys.groups = table.integer("groups", 1, 1);
  keys.whole_input = table.is_text("kernel");
  if (!keys.whole_input) keys.kernel = table.extent("kernel", 1);
  keys.stride = table.extent("stride", 1, Extent3::all(1));
  keys.dilation = table.extent("dilation", 1, Extent3::all(1));
  keys.bias = table.boolean("bias", true);
  keys.activation = read_activation(table, "none");
  if (transposed) keys.output_padding = table.extent("output_padding", 0, Extent3::all(0));
  read_padding(table, transposed, keys);
  if (keys.whole_input) check_whole_input(table, transposed, keys);
  return keys;
}

std::shared_ptr<const Layer> ConvolutionLayer::read(TomlTable& table) {
  return std::make_shared<ConvolutionLayer>(read_convolution(table, false));
}

std::string ConvolutionLayer::text() const {
  const ConvolutionKeys& k = keys_;
  return fmt::format("conv {} groups {} kernel {} stride {} dilation {} padding {} {} {} bias {} {} {}", k.out_channels,
                     k.groups, to_string(k.kernel), to_string(k.stride), to_string(k.dilation), to_string(k.padding),
                     k.same ? "same" : to_string(k.output_padding), transposed() ? "transposed" : "plain", k.bias,
                     name_of(k.activation.kind), k.activation.slope);
}

std::string ConvolutionLayer::title() const {
  std::string text = fmt::format("{} {}", transposed() ? "transposed conv" : "conv", to_string(keys_.kernel));
  if (activation() != nullptr) text += fmt::format(" + {}", name_of(keys_.activation.kind));
  return text;
}

void ConvolutionLayer::add_keys(nlohmann::ordered_json& json, const NodeShape& x, const NodeShape&) const {
  const Shape5 w = problem(1, x).w_shape();
  json["type"] = transposed() ? "transposed_conv" : "conv";
  json["out_channels"] = keys_.out_channels;
  json["groups"] = keys_.groups;
  json["kernel"] = json_of(keys_.kernel);
  json["stride"] = json_of(keys_.stride);
  json["dilation"] = json_of(keys_.dilation);
  json["padding"] = keys_.same ? nlohmann::ordered_json("same") : json_of(keys_.padding);
  if (transposed()) json["output_padding"] = json_of(keys_.output_padding);
  json["bias"] = keys_.bias;
  add_activation(json, keys_.activation);
  json["weight_shape"] = {w.n, w.c, w.extent.z, w.extent.y, w.extent.x};
}

std::shared_ptr<const Layer> ConvolutionLayer::resolved(const Extent3& input) const {
  ConvolutionKeys keys = keys_;
  keys.kernel = input;
  keys.whole_input = false;
  return std::make_shared<ConvolutionLayer>(keys);
}

NodeShape ConvolutionLayer::shape(const InputShapes& inputs) const {
  const NodeShape& x = *inputs[0];
  const ConvProblem p = problem(1, x);
  NodeShape y = Layer::shape(inputs);
  y.channels = keys_.out_channels;
  y.extent = p.output();
  for (int axis = 0; axis < 3; ++axis) view_axis(p, x, axis, y);
  return y;
}

void ConvolutionLayer::view_axis(const ConvProblem& p, const NodeShape& x, int axis, NodeShape& y) const {
  AxisView& view = y.axes[static_cast<std::size_t>(axis)];
  view = windowed(view, p.span()[axis], p.stride[axis], p.pad_before[axis]);
  pad_window(y, x, axis, p.span()[axis], p.stride[axis], p.pad_before[axis]);
}

std::pair<double, double> ConvolutionLayer::fans(const Shape5& w) const {
  const auto taps = static_cast<double>(keys_.kernel.volume());
  return {static_cast<double>(w.c) * taps, static_cast<double>(w.n) * taps};
}

std::vector<ParameterSpec> ConvolutionLayer::parameters(const NodeShape& x, const Activation& behind) const {
  const Shape5 w = problem(1, x).w_shape();
  const auto [fan_in, fan_out] = fans(w);
  const bool rectifier = behind.kind == Activation::Kind::relu || behind.kind == Activation::Kind::leaky_relu;
  const double variance = rectifier ? 2.0 / fan_in : 2.0 / (fan_in + fan_out);
  std::vector<ParameterSpec> list{{.name = "weight", .shape = w, .deviation = std::sqrt(variance)}};
  if (keys_.bias) list.push_back({.name = "bias", .shape = {1, keys_.out_channels, {1, 1, 1}}});
  return list;
}

ConvProblem ConvolutionLayer::problem(index_t batch, const NodeShape& x) const {
  ConvProblem p;
  p.batch = batch;
  p.in_channels = x.channels;
  p.out_channels = keys_.out_channels;
  p.groups = keys_.groups;
  p.input = x.extent;
  p.kernel = keys_.kernel;
  p.stride = keys_.stride;
  p.dilation = keys_.dilation;
  p.pad_before = p.pad_after = keys_.padding;
  p.transposed = transposed();
  p.output_padding = keys_.output_padding;
  p.epilogue = {keys_.bias, keys_.activation};
  if (keys_.same) {
    const Extent3 margin = p.span() - Extent3::all(1);
    p.pad_before = {margin.z / 2, margin.y / 2, margin.x / 2};
    p.pad_after = margin - p.pad_before;
  }
  p.validate();
  return p;
}

std::optional<ConvProblem> ConvolutionLayer::convolution(index_t batch, const NodeShape& x) const {
  return problem(batch, x);
}

const Activation* ConvolutionLayer::activation() const {
  return keys_.activation.kind == Activation::Kind::none ? nullptr : &keys_.activation;
}

std::unique_ptr<LayerTasks> ConvolutionLayer::make_tasks(const LayerSetup& setup) const {
  return std::make_unique<ConvolutionTasks>(setup);
}

}  // namespace convolume::nets
