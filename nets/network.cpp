#include "nets/network.hpp"

#include <algorithm>

#include <fmt/format.h>

#include "ops/activation.hpp"
#include "ops/copy.hpp"
#include "ops/dropout.hpp"
#include "ops/group_norm.hpp"
#include "ops/losses.hpp"
#include "ops/pooling.hpp"
#include "ops/reduce.hpp"
#include "ops/resample.hpp"

namespace convolume::nets {
namespace {

Ready ready_or_now(const ParameterReady& ready, const Parameter* parameter) {
  if (parameter == nullptr) return {};
  const auto found = ready.find(parameter->name);
  return found == ready.end() ? Ready() : found->second;
}

/// Returns the layout of a tensor for which no operation requires a layout.
Layout layout_for(index_t channels) {
  constexpr index_t least_channels = 8;
  return channels < least_channels ? Layout::plain : Layout::blocked;
}

/// Suffix of the key of a node's tuned choice in the numerics record.
constexpr const char* tuned_key = ".tuned";
/// Suffixes of the keys of every node's choice and layout.
constexpr const char* choice_key = ".choice";
constexpr const char* layout_key = ".layout";

/// Returns the values of the keys "node.NAME<suffix>", by name.
std::map<std::string, std::string> values_of_nodes(const NumericsRecord& record, std::string_view suffix) {
  std::map<std::string, std::string> values;
  constexpr std::string_view node = "node.";
  for (const auto& [key, value] : record.entries()) {
    if (!key.starts_with(node) || !key.ends_with(suffix)) continue;
    values[key.substr(node.size(), key.size() - node.size() - suffix.size())] = value;
  }
  return values;
}

/// Returns whether the backward pass of a node reads the node's output.
bool reads_output_backward(const NodeSpec& node) {
  const auto* conv = std::get_if<ConvNode>(&node.kind);
  return std::holds_alternative<ActivationNode>(node.kind) ||
         (conv != nullptr && conv->activation.kind != Activation::Kind::none);
}

}  // namespace

std::map<std::string, std::string> tuned_choices(const NumericsRecord& record) {
  return values_of_nodes(record, tuned_key);
}

RecordedPlans recorded_plans(const NumericsRecord& record) {
  return {.choices = values_of_nodes(record, choice_key), .layouts = values_of_nodes(record, layout_key)};
}

Network::Network(const NetSpec& spec, const Extent3& patch, Parameters& parameters, const NetworkOptions& options,
                 std::pmr::memory_resource* memory)
    : spec_(spec), shapes_(infer_shapes(spec, patch)), options_(options), memory_(memory) {
  lifetimes_ = std::make_unique<Lifetimes>(options.memory_mode, options.slack, memory, options.poison_freed);
  options_.recorded.layouts.empty() ? choose_layouts() : take_recorded_layouts();
  make_tensors(parameters);
  if (options_.tune_on != nullptr) tune();
  make_plans();
}

std::pair<View<float>, Lifetimes::Buffer> Network::make_tensor(const Shape5& shape, Layout layout) {
  const index_t elements = stored_elements(shape, layout, DataType::f32);
  const Buffer buffer = lifetimes_->add(static_cast<std::size_t>(elements) * sizeof(float));
  return {View<float>(Address<float>::in(lifetimes_->slot(buffer)), shape, layout), buffer};
}

void Network::make_tensors(Parameters& parameters) {
  input_ = Tensor<float>({options_.batch, spec_.in_channels, shapes_.input.extent}, memory_);
  input_slot_ = input_.data();
  for (std::size_t i = 0; i < spec_.nodes.size(); ++i) {
    const NodeSpec& node_spec = spec_.nodes[i];
    const NodeShape& shape = shapes_.nodes[i];
    Node& node = nodes_.emplace_back();
    const Shape5 full{options_.batch, shape.channels, shape.extent};
    if (i + 1 == spec_.nodes.size()) {
      logits_ = Tensor<float>(full, layouts_[i + 1], memory_);
      logits_slot_ = logits_.data();
      node.y = View<float>(Address<float>::in(&logits_slot_), full, layouts_[i + 1]);
    } else if (output_in_place(i)) {
      const Node& input = nodes_[node_spec.inputs[0] - 1];
      node.y = input.y;
      node.y_buffer = input.y_buffer;
    } else {
      std::tie(node.y, node.y_buffer) = make_tensor(full, layouts_[i + 1]);
    }
    if (std::holds_alternative<ConvNode>(node_spec.kind)) {
      node.weight = parameters.find(node_spec.name + ".weight");
      node.bias = parameters.find(node_spec.name + ".bias");
    } else if (std::holds_alternative<GroupNormNode>(node_spec.kind)) {
      node.weight = parameters.find(node_spec.name + ".gamma");
      node.bias = parameters.find(node_spec.name + ".beta");
      const auto statistics = static_cast<std::size_t>(options_.batch * norm_of(i).groups);
      node.mean.resize(statistics);
      node.rstd.resize(statistics);
    } else if (std::holds_alternative<MaxPoolNode>(node_spec.kind)) {
      node.taps_buffer =
          lifetimes_->add(static_cast<std::size_t>(stored_elements(full, layouts_[i + 1], DataType::f32)));
      node.taps = Address<std::uint8_t>::in(lifetimes_->slot(node.taps_buffer));
    }
  }
  if (options_.training) make_gradients();
}

/// Makes the gradients, the last node's first, because a gradient may lie in the memory of a later node's gradient.
void Network::make_gradients() {
  logits_gradient_ = Tensor<float>(logits_.shape(), layouts_.back(), memory_);
  nodes_.back().dy = logits_gradient_;
  for (std::size_t i = nodes_.size() - 1; i-- > 0;) {
    Node& node = nodes_[i];
    if (gradient_in_place(i)) {
      const Node& reader = nodes_[static_cast<std::size_t>(only_reader(i) - spec_.nodes.data())];
      node.dy = reader.dy;
      node.dy_buffer = reader.dy_buffer;
    } else {
      std::tie(node.dy, node.dy_buffer) = make_tensor(node.y.shape, layouts_[i + 1]);
    }
  }
}

const NodeSpec* Network::only_reader(std::size_t index) const {
  const NodeSpec* reader = nullptr;
  for (const NodeSpec& node : spec_.nodes) {
    for (const std::size_t input : node.inputs) {
      if (input != index + 1) continue;
      if (reader != nullptr) return nullptr;
      reader = &node;
    }
  }
  return reader;
}

bool Network::output_in_place(std::size_t index) const {
  const NodeSpec& node = spec_.nodes[index];
  const bool activation = std::holds_alternative<ActivationNode>(node.kind);
  const bool norm = std::holds_alternative<GroupNormNode>(node.kind);
  const std::size_t input = node.inputs[0];
  // In separate memory, every tensor can be looked at after a run.
  if (!lifetimes_->planned() || input == 0 || !(activation || norm)) return false;
  if (only_reader(input - 1) == nullptr || layouts_[input] != layouts_[index + 1]) return false;
  // The backward pass of a norm reads its input; the backward pass of an activation reads its output.
  return !options_.training || (activation && !reads_output_backward(spec_.nodes[input - 1]));
}

bool Network::fused_into_norm(std::size_t index) const {
  const std::size_t norm = spec_.nodes[index].inputs[0];
  if (!std::holds_alternative<ActivationNode>(spec_.nodes[index].kind) || !output_in_place(index)) return false;
  if (!std::holds_alternative<GroupNormNode>(spec_.nodes[norm - 1].kind)) return false;
  if (!options_.training) return true;
  // The norm then replaces the gradient of its output by that of its input.
  const std::size_t input = spec_.nodes[norm - 1].inputs[0];
  return input != 0 && gradient_in_place(norm - 1) && gradient_in_place(input - 1);
}

ops::GroupNorm Network::norm_of(std::size_t index) const {
  const auto& node = std::get<GroupNormNode>(spec_.nodes[index].kind);
  const index_t channels = shapes_.nodes[index].channels;
  ops::GroupNorm norm{.groups = node.groups == 0 ? channels : node.groups, .epsilon = node.epsilon};
  const NodeSpec* reader = only_reader(index);
  if (reader == nullptr || !fused_into_norm(static_cast<std::size_t>(reader - spec_.nodes.data()))) return norm;
  norm.activation = std::get<ActivationNode>(reader->kind).activation;
  return norm;
}

bool Network::gradient_in_place(std::size_t index) const {
  const NodeSpec* reader = only_reader(index);
  if (!lifetimes_->planned() || reader == nullptr || reader == &spec_.nodes.back()) return false;
  const auto position = static_cast<std::size_t>(reader - spec_.nodes.data());
  const bool elementwise = std::holds_alternative<ActivationNode>(reader->kind) ||
                           std::holds_alternative<GroupNormNode>(reader->kind) ||
                           std::holds_alternative<DropoutNode>(reader->kind);
  return elementwise && layouts_[index + 1] == layouts_[position + 1];
}

ConvProblem Network::problem_of(std::size_t i, const Layout x, const Layout y) const {
  const NodeSpec& node = spec_.nodes[i];
  ConvProblem problem =
      conv_problem(spec_, node, std::get<ConvNode>(node.kind), options_.batch, shapes_.of(node.inputs[0]));
  problem.x_layout = x;
  problem.y_layout = y;
  return problem;
}

ConvOptions Network::conv_options(std::size_t i, std::size_t weight_budget) const {
  return {.engine = engine_for(options_.engine, problem_of(i, Layout::plain, Layout::plain)),
          .want_dx = options_.training && spec_.nodes[i].inputs[0] > 0,  // the gradient of the net's input is never
                                                                         // used
          .want_dw = options_.training,
          .memory_budget = weight_budget,
          .fft = options_.fft,
          .cache_spectra = options_.cache_spectra};
}

ConvPlan Network::plan_of_node(std::size_t i, const Layout x, const Layout y, std::size_t weight_budget) const {
  ConvOptions options = conv_options(i, weight_budget);
  for (const auto* choices : {&options_.recorded.choices, &options_.tuned}) {
    const auto found = choices->find(spec_.nodes[i].name);
    if (found != choices->end()) options.choice = found->second;
  }
  return ConvPlan::make(problem_of(i, x, y), options);
}

bool Network::better_blocked(std::size_t i) const {
  // Neighbours of a plain layer have to convert the layout of what they read and write.
  constexpr double plain_advantage = 1.5;
  // Only the cost model decides, because layouts are chosen before tuning and must be the same when a tuned run is
  // resumed.
  const auto plan = [&](Layout x, Layout y) { return ConvPlan::make(problem_of(i, x, y), conv_options(i, 0)); };
  const ConvPlan plain = plan(Layout::plain, Layout::plain);
  try {
    const ConvPlan blocked = plan(layout_for(plain.problem().in_channels), layout_for(plain.problem().out_channels));
    const bool reads_blocked =
        plain.engine() == Engine::fft_tiled || plain.engine() == Engine::direct || plain.engine() == Engine::onednn;
    if (reads_blocked) return true;
    return options_.engine == Engine::automatic && blocked.seconds() <= plain_advantage * plain.seconds();
  } catch (const Unsupported&) {  // groups that do not fill channel blocks, or an engine for plain tensors only
    return false;
  }
}

/// Chooses blocked layout for tensors of many channels, so that nothing is reordered between layers. Plain are: tensors
/// of few channels; the net's input and logits; the input and output of a convolution whose best engine serves only
/// plain tensors; and every tensor that an operation with equal layouts on both sides connects to a plain one.
void Network::choose_layouts() {
  const std::size_t count = spec_.nodes.size();
  std::vector<bool> plain(count + 1, false);
  plain.front() = plain.back() = true;
  for (std::size_t i = 0; i < count; ++i) {
    if (layout_for(shapes_.nodes[i].channels) == Layout::plain) plain[i + 1] = true;
    if (!std::holds_alternative<ConvNode>(spec_.nodes[i].kind)) continue;
    if (!better_blocked(i)) plain[i + 1] = plain[spec_.nodes[i].inputs[0]] = true;
  }
  for (bool changed = true; changed;) {
    changed = false;
    for (std::size_t i = 0; i < count; ++i) {
      const NodeSpec& node = spec_.nodes[i];
      if (std::holds_alternative<ConvNode>(node.kind) || std::holds_alternative<ConcatNode>(node.kind)) continue;
      for (const std::size_t input : node.inputs) {
        if (plain[input] == plain[i + 1]) continue;
        plain[input] = plain[i + 1] = changed = true;
      }
    }
  }
  for (const bool one : plain) layouts_.push_back(one ? Layout::plain : Layout::blocked);
}

/// Takes the layouts of the run that is continued.
void Network::take_recorded_layouts() {
  layouts_.assign(1, Layout::plain);
  for (const NodeSpec& node : spec_.nodes) {
    const auto recorded = options_.recorded.layouts.find(node.name);
    const std::string text = recorded == options_.recorded.layouts.end() ? "" : recorded->second;
    if (text != name_of(Layout::plain) && text != name_of(Layout::blocked)) {
      throw FormatError(
          fmt::format("numerics record: node.{}{} is '{}'; it must be plain or blocked", node.name, layout_key, text));
    }
    layouts_.push_back(text == name_of(Layout::plain) ? Layout::plain : Layout::blocked);
  }
}

/// Measures once for all nodes that have the same problem and want the same gradients.
void Network::tune() {
  struct Tuned {
    ConvProblem problem;
    bool want_dx;
    std::string choice;
  };
  std::vector<Tuned> known;
  for (std::size_t i = 0; i < nodes_.size(); ++i) {
    const NodeSpec& node = spec_.nodes[i];
    if (!std::holds_alternative<ConvNode>(node.kind) || options_.tuned.contains(node.name)) continue;
    const ConvProblem problem = problem_of(i, layouts_[node.inputs[0]], layouts_[i + 1]);
    const ConvOptions conv = conv_options(i, 0);
    const auto same = [&](const Tuned& one) { return one.problem == problem && one.want_dx == conv.want_dx; };
    auto found = std::find_if(known.begin(), known.end(), same);
    if (found == known.end()) {
      if (options_.on_tune) options_.on_tune(node.name, ConvPlan::tuning_seconds(problem, conv));
      const Execution run{*options_.tune_on, memory_};
      found = known.insert(known.end(), {problem, conv.want_dx, ConvPlan::tune(problem, conv, run)});
    }
    options_.tuned[node.name] = found->choice;
  }
}

/// Plans every convolution, first without a memory limit. Nodes whose spectra exceed the budget are then planned again
/// with fewer kept spectra.
void Network::make_plans() {
  struct Candidate {
    std::size_t node;
    CacheCost cache;
  };
  std::vector<Candidate> candidates;
  const auto plan = [&](std::size_t i, std::size_t budget) {
    nodes_[i].plan = plan_of_node(i, layouts_[spec_.nodes[i].inputs[0]], layouts_[i + 1], budget);
  };
  for (std::size_t i = 0; i < nodes_.size(); ++i) {
    if (!std::holds_alternative<ConvNode>(spec_.nodes[i].kind)) continue;
    plan(i, 0);
    for (const CacheCost& cache : nodes_[i].plan->caches()) {
      const bool used = options_.training || cache.name == "w_hat";  // inference keeps no spectra of x
      if (used && cache.budgeted && cache.kept) candidates.push_back({i, cache});
    }
  }
  std::stable_sort(candidates.begin(), candidates.end(),
                   [](const Candidate& a, const Candidate& b) { return more_saved_per_byte(a.cache, b.cache); });
  const std::size_t budget = options_.memory_budget.value_or(usual_memory_budget);
  std::size_t held = 0;
  std::vector<std::size_t> share(nodes_.size(), 0);
  std::vector<bool> short_of(nodes_.size(), false);
  for (const Candidate& candidate : candidates) {
    const bool keep = budget == 0 || held + candidate.cache.bytes <= budget;
    if (keep) {
      held += candidate.cache.bytes;
      share[candidate.node] += candidate.cache.bytes;
    } else {
      short_of[candidate.node] = true;
    }
  }
  for (std::size_t i = 0; i < nodes_.size(); ++i) {
    if (short_of[i]) plan(i, std::max<std::size_t>(share[i], 1));
  }
  for (Node& node : nodes_) {
    if (!node.plan) continue;
    node.weights = node.plan->prepared_weights(memory_);
    if (options_.training) {
      std::tie(node.forward_weights_buffer, node.weights_buffer) = lifetimes_->add_for_training(node.weights);
    } else {
      node.weights_buffer = lifetimes_->add(node.weights, true);
    }
    if (!keeps_x_hat()) continue;
    node.x_hat = node.plan->input_spectra(memory_);
    node.x_hat_buffer = lifetimes_->add(node.x_hat);
  }
}

View<const float> Network::output_of(std::size_t reference) const {
  if (reference > 0) return nodes_[reference - 1].y;
  return View<const float>(Address<const float>::in(&input_slot_), input_.shape());
}

std::vector<Ready> Network::append_prepare(TaskGraph& graph, const ParameterReady& ready) {
  std::vector<Ready> prepared(nodes_.size());
  for (std::size_t i = 0; i < nodes_.size(); ++i) {
    Node& node = nodes_[i];
    if (!node.plan) continue;
    const LayerScope layer(graph, spec_.nodes[i].name);
    const Ready weight = ready_or_now(ready, node.weight);
    prepared[i] =
        lifetimes_->step(graph, {node.forward_weights_buffer, node.weights_buffer}, weight, [&](const Ready& gate) {
          return node.plan->append_prepare(graph, weight & gate, node.weight->value, node.weights);
        });
  }
  return prepared;
}

Ready Network::append_forward(TaskGraph& graph, const Ready& input, std::vector<Ready> prepared,
                              const ParameterReady& ready) {
  prepared.resize(nodes_.size());
  parameter_ready_ = ready;
  input_ready_ = input;
  forward_ready_.clear();
  for (std::size_t i = 0; i < nodes_.size(); ++i) {
    const LayerScope layer(graph, spec_.nodes[i].name);
    nodes_[i].weights_ready = std::move(prepared[i]);
    const Ready input = ready_of(spec_.nodes[i].inputs[0]);
    forward_ready_.push_back(lifetimes_->step(graph, forward_buffers(i), input,
                                              [&](const Ready& gate) { return forward_node(graph, i, gate); }));
  }
  return forward_ready_.back();
}

/// Returns all buffers that the tasks of a node's forward pass use.
std::vector<Lifetimes::Buffer> Network::forward_buffers(std::size_t index) const {
  const Node& node = nodes_[index];
  std::vector<Buffer> buffers{node.y_buffer};
  for (const std::size_t input : spec_.nodes[index].inputs) buffers.push_back(buffer_of(input));
  if (node.taps.bound()) buffers.push_back(node.taps_buffer);
  if (!node.plan) return buffers;
  buffers.push_back(node.forward_weights_buffer);
  buffers.push_back(node.weights_buffer);
  if (keeps_x_hat()) buffers.push_back(node.x_hat_buffer);
  return buffers;
}

Ready Network::forward_node(TaskGraph& graph, std::size_t index, const Ready& gate) {
  const NodeSpec& spec = spec_.nodes[index];
  Node& node = nodes_[index];
  const View<const float> x = output_of(spec.inputs[0]);
  const Ready ready = ready_of(spec.inputs[0]) & gate;
  if (node.plan) {
    ForwardBindings bindings{.x = x, .w = node.weights, .y = node.y};
    if (node.bias != nullptr) bindings.bias = node.bias->value;
    if (keeps_x_hat()) bindings.x_hat = &node.x_hat;
    const Ready weights = node.weights_ready & ready_or_now(parameter_ready_, node.bias);
    return node.plan->append_forward(graph, {.x = ready, .w = weights}, bindings, memory_, lifetimes_->workspace());
  }
  if (fused_into_norm(index)) return ready;
  if (const auto* n = std::get_if<ActivationNode>(&spec.kind)) {
    return ops::append_activation_forward<float>(graph, ready, x, node.y, n->activation);
  }
  if (const auto* n = std::get_if<MaxPoolNode>(&spec.kind)) {
    return ops::append_max_pool_forward<float>(graph, ready, x, node.y, node.taps, n->pool);
  }
  if (const auto* n = std::get_if<UpsampleNode>(&spec.kind)) {
    return ops::append_upsample_forward<float>(graph, ready, x, node.y, n->factor);
  }
  if (const auto* n = std::get_if<CropNode>(&spec.kind)) {
    return ops::append_copy<float>(graph, ready, ops::crop(x, n->before, node.y.shape.extent), node.y, false);
  }
  if (const auto* n = std::get_if<DropoutNode>(&spec.kind)) {
    if (!options_.training) return ops::append_copy<float>(graph, ready, x, node.y, false);
    return ops::append_dropout_forward<float>(graph, ready, x, node.y, n->rate, &node.dropout_key);
  }
  if (std::holds_alternative<GroupNormNode>(spec.kind)) {
    const Ready all = ready & ready_or_now(parameter_ready_, node.weight) & ready_or_now(parameter_ready_, node.bias);
    return ops::append_group_norm_forward<float>(graph, all, x, node.weight->value.data(), node.bias->value.data(),
                                                 node.y, {node.mean.data(), node.rstd.data()}, norm_of(index), memory_);
  }
  return forward_join(graph, index, gate);
}

Ready Network::forward_join(TaskGraph& graph, std::size_t index, const Ready& gate) {
  const NodeSpec& spec = spec_.nodes[index];
  const NodeShape& shape = shapes_.nodes[index];
  Node& node = nodes_[index];
  const auto part = [&](std::size_t k) { return ops::crop(output_of(spec.inputs[k]), shape.crop[k], shape.extent); };
  if (std::holds_alternative<AddNode>(spec.kind)) {
    Ready ready = ops::append_add<float>(graph, ready_of(spec.inputs[0]) & ready_of(spec.inputs[1]) & gate, part(0),
                                         part(1), node.y);
    for (std::size_t k = 2; k < spec.inputs.size(); ++k) {
      ready = ops::append_copy<float>(graph, ready & ready_of(spec.inputs[k]), part(k), node.y, true);
    }
    return ready;
  }
  std::vector<Ready> ready;
  std::vector<View<const float>> parts;
  for (std::size_t k = 0; k < spec.inputs.size(); ++k) {
    ready.push_back(ready_of(spec.inputs[k]) & gate);
    parts.push_back(part(k));
  }
  return ops::append_concat<float>(graph, ready, parts, node.y);
}

Network::Node* Network::gradient_target(std::size_t reference) {
  return reference == 0 ? nullptr : &nodes_[reference - 1];
}

void Network::written(Node& target, Ready ready) {
  target.dy_ready = std::move(ready);
  target.dy_written = true;
}

ParameterReady Network::append_backward(TaskGraph& graph, const Ready& logits_gradient) {
  for (Node& node : nodes_) {
    node.dy_ready = {};
    node.dy_written = false;
  }
  written(nodes_.back(), logits_gradient);
  ParameterReady done;
  for (std::size_t i = nodes_.size(); i-- > 0;) {
    const LayerScope layer(graph, spec_.nodes[i].name);
    // A node that no other node reads adds nothing to the loss.
    if (!nodes_[i].dy_written) continue;
    Ready& ready = nodes_[i].dy_ready;
    lifetimes_->step(graph, backward_buffers(i), ready, [&](const Ready& gate) {
      ready = ready & gate;
      backward_node(graph, i, gate, done);
      return 0;
    });
  }
  return done;
}

/// Returns all buffers that the tasks of a node's backward pass use.
std::vector<Lifetimes::Buffer> Network::backward_buffers(std::size_t index) {
  const NodeSpec& spec = spec_.nodes[index];
  const Node& node = nodes_[index];
  std::vector<Buffer> buffers{node.dy_buffer};
  for (const std::size_t input : spec.inputs) {
    if (input != 0) buffers.push_back(nodes_[input - 1].dy_buffer);
  }
  const auto* conv = std::get_if<ConvNode>(&spec.kind);
  if (reads_output_backward(spec) && !fused_into_norm(index)) buffers.push_back(node.y_buffer);
  const bool reads_x = conv != nullptr ? !keeps_x_hat() || !node.plan->x_hat_replaces_x()
                                       : std::holds_alternative<GroupNormNode>(spec.kind);
  if (reads_x) buffers.push_back(buffer_of(spec.inputs[0]));
  if (node.taps.bound()) buffers.push_back(node.taps_buffer);
  if (conv == nullptr) return buffers;
  buffers.push_back(node.weights_buffer);
  if (keeps_x_hat()) buffers.push_back(node.x_hat_buffer);
  return buffers;
}

/// Tasks that write to an input's gradient wait for dy, and dy_ready includes the dependency `gate`. Only tasks that
/// clear a gradient do not wait for dy, so they wait for `gate` directly.
void Network::backward_node(TaskGraph& graph, std::size_t index, const Ready& gate, ParameterReady& done) {
  const NodeSpec& spec = spec_.nodes[index];
  Node& node = nodes_[index];
  if (node.plan) return backward_conv(graph, index, done);
  Node* target = gradient_target(spec.inputs[0]);
  const bool add = target != nullptr && target->dy_written;
  if (std::holds_alternative<GroupNormNode>(spec.kind)) {
    const Ready after = node.dy_ready & ready_of(index + 1);
    const Ready ready = target != nullptr ? after & target->dy_ready : after;
    const auto gradients = ops::append_group_norm_backward<float>(
        graph, ready, output_of(spec.inputs[0]), node.weight->value.data(), node.bias->value.data(),
        {node.mean.data(), node.rstd.data()}, node.dy, target != nullptr ? target->dy : View<float>{}, add,
        node.weight->gradient.data(), node.bias->gradient.data(), false, norm_of(index), memory_);
    done[node.weight->name] = done[node.bias->name] = gradients.parameters;
    if (target != nullptr) written(*target, gradients.dx);
    return;
  }
  if (std::holds_alternative<ConcatNode>(spec.kind) || std::holds_alternative<AddNode>(spec.kind) ||
      std::holds_alternative<CropNode>(spec.kind)) {
    return backward_join(graph, index, gate);
  }
  if (target == nullptr) return;
  // The gradient also waits for the forward results that it reads. dy alone does not imply them: parts of dy whose
  // voxels no later node reads are cleared at once.
  const Ready ready = node.dy_ready & ready_of(index + 1) & target->dy_ready;
  if (fused_into_norm(index)) return written(*target, ready);
  if (const auto* n = std::get_if<ActivationNode>(&spec.kind)) {
    written(*target,
            ops::append_activation_backward<float>(graph, ready, node.y, node.dy, target->dy, n->activation, add));
  } else if (const auto* n = std::get_if<MaxPoolNode>(&spec.kind)) {
    written(*target, ops::append_max_pool_backward<float>(graph, ready, node.dy, node.taps, target->dy, n->pool, add));
  } else if (const auto* n = std::get_if<UpsampleNode>(&spec.kind)) {
    written(*target, ops::append_upsample_backward<float>(graph, ready, node.dy, target->dy, n->factor, add));
  } else if (const auto* n = std::get_if<DropoutNode>(&spec.kind)) {
    written(*target,
            ops::append_dropout_backward<float>(graph, ready, node.dy, target->dy, n->rate, &node.dropout_key, add));
  }
}

void Network::backward_conv(TaskGraph& graph, std::size_t index, ParameterReady& done) {
  const NodeSpec& spec = spec_.nodes[index];
  Node& node = nodes_[index];
  Node* target = gradient_target(spec.inputs[0]);
  BackwardBindings bindings{.x = output_of(spec.inputs[0]),
                            .y = node.y,
                            .dy = node.dy,
                            .w = node.weights,
                            .x_hat = keeps_x_hat() ? &node.x_hat : nullptr,
                            .dw = node.weight->gradient};
  if (node.bias != nullptr) bindings.dbias = node.bias->gradient;
  if (target != nullptr) {
    bindings.dx = target->dy;
    bindings.add_dx = target->dy_written;
  }
  const ConvReady ready{.x = ready_of(spec.inputs[0]),
                        .w = node.weights_ready,
                        .dy = node.dy_ready & ready_of(index + 1),
                        .dx = target != nullptr ? target->dy_ready : Ready()};
  const auto gradients = node.plan->append_backward(graph, ready, bindings, memory_, lifetimes_->workspace());
  done[node.weight->name] = gradients.dw;
  if (node.bias != nullptr) done[node.bias->name] = gradients.dbias;
  if (target != nullptr) written(*target, gradients.dx);
  if (bindings.x_hat == nullptr || lifetimes_->planned()) return;
  // The spectra of x live from this layer's forward pass to its weight gradient, within one run. A release task is
  // never skipped, so a cancelled run frees them too.
  graph.add(
      {.name = "free input spectra", .cost = 0, .task_class = TaskClass::release}, [&node] { node.x_hat.release(); },
      gradients.dw.tasks());
}

void Network::backward_join(TaskGraph& graph, std::size_t index, const Ready& gate) {
  const NodeSpec& spec = spec_.nodes[index];
  const NodeShape& shape = shapes_.nodes[index];
  Node& node = nodes_[index];
  const bool concat = std::holds_alternative<ConcatNode>(spec.kind);
  const auto* crop = std::get_if<CropNode>(&spec.kind);
  index_t channel = 0;
  for (std::size_t k = 0; k < spec.inputs.size(); ++k) {
    const index_t first = channel;
    if (concat) channel += shapes_.of(spec.inputs[k]).channels;
    Node* target = gradient_target(spec.inputs[k]);
    if (target == nullptr) continue;
    const Extent3 offset = crop != nullptr ? crop->before : shape.crop[k];
    if (!target->dy_written && target->dy.shape.extent != shape.extent) {
      written(*target, ops::append_clear<float>(graph, target->dy_ready & gate, target->dy));
    }
    const auto region = ops::crop(target->dy, offset, shape.extent);
    written(*target, ops::append_slice<float>(graph, node.dy_ready, node.dy, first, region, target->dy_written,
                                              target->dy_ready));
  }
}

ParameterReady Network::append_training(TaskGraph& graph, const ParameterReady& updated, const Ready& patches,
                                        const Labels& labels) {
  auto prepared = append_prepare(graph, updated);
  const Ready logits = append_forward(graph, patches, std::move(prepared), updated);
  const ops::LossBindings<float> loss{.logits = logits_,
                                      .target = labels.target,
                                      .mask = labels.mask,
                                      .dlogits = logits_gradient_,
                                      .loss = labels.loss};
  return append_backward(graph, ops::append_loss<float>(graph, logits, spec_.loss, loss, memory_, patches));
}

void Network::set_iteration(std::uint64_t seed, std::uint64_t iteration) {
  for (std::size_t i = 0; i < nodes_.size(); ++i) {
    nodes_[i].dropout_key = {
        .seed = seed, .a = static_cast<std::uint32_t>(iteration), .b = static_cast<std::uint32_t>(i)};
  }
}

std::optional<std::string> Network::first_non_finite() const {
  const auto finite = [](const View<const float>& tensor) {
    return ops::all_finite(tensor.data.get(), stored_elements(tensor.shape, tensor.layout, DataType::f32));
  };
  if (!finite(input_.view())) return "input";
  for (std::size_t i = 0; i < nodes_.size(); ++i) {
    if (!finite(nodes_[i].y)) return spec_.nodes[i].name;
  }
  return std::nullopt;
}

void Network::add_numerics(NumericsRecord& record) const {
  for (std::size_t i = 0; i < nodes_.size(); ++i) {
    record.set("node." + spec_.nodes[i].name + layout_key, name_of(layout_of(i)));
    if (!nodes_[i].plan) continue;
    record.set("node." + spec_.nodes[i].name, nodes_[i].plan->numerics());
    record.set("node." + spec_.nodes[i].name + choice_key, nodes_[i].plan->choice());
    const auto tuned = options_.tuned.find(spec_.nodes[i].name);
    if (tuned != options_.tuned.end()) record.set("node." + tuned->first + tuned_key, tuned->second);
    for (const CacheCost& cache : nodes_[i].plan->caches()) {
      if (cache.budgeted)
        record.inform("node." + spec_.nodes[i].name + "." + cache.name, cache.kept ? "kept" : "recomputed");
    }
  }
}

}  // namespace convolume::nets
