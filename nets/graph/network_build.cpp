// Builds a net: layouts, tensors and their places, convolution plans, and what the numerics record says of them.
#include <algorithm>

#include <fmt/format.h>

#include "nets/graph/network.hpp"

namespace convolume::nets {
namespace {

/// Suffix of the key of a node's tuned choice in the numerics record.
constexpr const char* tuned_key = ".tuned";
/// Suffixes of the keys of every node's choice and layout.
constexpr const char* choice_key = ".choice";
constexpr const char* layout_key = ".layout";

/// Returns the estimate for a pair of layouts, if an engine serves it.
std::optional<LayoutEstimate> find_layouts(const std::vector<LayoutEstimate>& served, Layout x, Layout y) {
  const auto found = std::find_if(served.begin(), served.end(),
                                  [&](const LayoutEstimate& one) { return one.x_layout == x && one.y_layout == y; });
  return found == served.end() ? std::nullopt : std::optional(*found);
}

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

bool Network::reads_output_backward(const NodeSpec& node) {
  const auto* conv = std::get_if<ConvNode>(&node.kind);
  return std::holds_alternative<ActivationNode>(node.kind) ||
         (conv != nullptr && conv->activation.kind != Activation::Kind::none);
}

bool Network::output_in_place(std::size_t index) const {
  const NodeSpec& node = spec_.nodes[index];
  const bool activation = std::holds_alternative<ActivationNode>(node.kind);
  const bool norm = std::holds_alternative<GroupNormNode>(node.kind);
  const std::size_t input = node.inputs[0];
  // The logits have memory of their own. In separate memory, every tensor can be looked at after a run.
  if (index + 1 == spec_.nodes.size() || !lifetimes_->planned() || input == 0 || !(activation || norm)) return false;
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
  if (options_.stop.stop_requested()) throw StopRequested();
  ConvOptions options = conv_options(i, weight_budget);
  for (const auto* choices : {&options_.recorded.choices, &options_.tuned}) {
    const auto found = choices->find(spec_.nodes[i].name);
    if (found != choices->end()) options.choice = found->second;
  }
  return ConvPlan::make(problem_of(i, x, y), options);
}

bool Network::uses_blocked(std::size_t i) const {
  // Neighbours of a plain layer have to convert the layout of what they read and write.
  constexpr double conversion_price = 1.5;
  // Only the cost model decides, because layouts are chosen before tuning and must be the same when a tuned run is
  // resumed.
  if (options_.stop.stop_requested()) throw StopRequested();
  const ConvProblem problem = problem_of(i, Layout::plain, Layout::plain);
  ConvOptions options = conv_options(i, 0);
  const auto served = ConvPlan::best_layouts(problem, options);
  const auto plain = find_layouts(served, Layout::plain, Layout::plain);
  const Layout x = usual_layout(problem.in_channels), y = usual_layout(problem.out_channels);
  const auto usual = find_layouts(served, x, y);
  if (!plain || !usual) return false;  // groups that do not fill channel blocks, or an engine for plain tensors only
  if (usual->engine == plain->engine) return true;
  if (options_.engine == Engine::automatic && usual->seconds <= conversion_price * plain->seconds) return true;
  // An engine that is best for plain tensors and reads blocked ones needs no conversion.
  options.engine = plain->engine;
  return find_layouts(ConvPlan::best_layouts(problem, options), x, y).has_value();
}

/// Chooses blocked layout for tensors of many channels, so that nothing is reordered between layers. Plain are: tensors
/// of few channels; the net's input and logits; the input and output of a convolution whose best engine serves only
/// plain tensors; and every tensor that an operation with equal layouts on both sides connects to a plain one.
void Network::choose_layouts() {
  const std::size_t count = spec_.nodes.size();
  std::vector<bool> plain(count + 1, false);
  plain.front() = plain.back() = true;
  for (std::size_t i = 0; i < count; ++i) {
    if (usual_layout(shapes_.nodes[i].channels) == Layout::plain) plain[i + 1] = true;
    if (!std::holds_alternative<ConvNode>(spec_.nodes[i].kind)) continue;
    if (!uses_blocked(i)) plain[i + 1] = plain[spec_.nodes[i].inputs[0]] = true;
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

void Network::add_numerics(NumericsRecord& record) const {
  for (std::size_t i = 0; i < nodes_.size(); ++i) {
    record.set("node." + spec_.nodes[i].name + layout_key, name_of(layout_of(i)));
    if (!nodes_[i].plan) continue;
    record.set("node." + spec_.nodes[i].name, nodes_[i].plan->numerics());
    record.set("node." + spec_.nodes[i].name + choice_key, nodes_[i].plan->choice());
    const auto tuned = options_.tuned.find(spec_.nodes[i].name);
    if (tuned != options_.tuned.end()) record.set("node." + tuned->first + tuned_key, tuned->second);
  }
}

}  // namespace convolume::nets
