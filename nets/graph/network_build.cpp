// Builds a net: layouts, tensors and their places, convolution plans, and what the numerics record says of them.
#include <algorithm>

#include <fmt/format.h>

#include "nets/graph/network.hpp"
#include "plan/cost_constants.hpp"

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
  for (std::size_t i = 0; i < nodes_.size(); ++i) {
    if (nodes_[i].plan) make_tasks(i, parameters);
  }
}

std::pair<View<float>, Lifetimes::Buffer> Network::make_tensor(const Shape5& shape, Layout layout) {
  const index_t elements = stored_elements(shape, layout, DataType::f32);
  const Buffer buffer = lifetimes_->add(static_cast<std::size_t>(elements) * sizeof(float));
  return {View<float>(Address<float>::in(lifetimes_->slot(buffer)), shape, layout), buffer};
}

/// Makes the outputs, and the tasks of all layers that need no plan.
void Network::make_tensors(Parameters& parameters) {
  input_ = Tensor<float>({options_.batch, spec_.in_channels, shapes_.input.extent}, memory_);
  input_slot_ = input_.data();
  source_.y = View<float>(Address<float>::in(&input_slot_), input_.shape());
  for (std::size_t i = 0; i < spec_.nodes.size(); ++i) {
    const NodeShape& shape = shapes_.nodes[i];
    Node& node = nodes_.emplace_back();
    for (const std::size_t input : spec_.nodes[i].inputs) {
      node.inputs.push_back(input == 0 ? &source_ : &nodes_[input - 1].tensors);
    }
    NodeTensors& tensors = node.tensors;
    const Shape5 full{options_.batch, shape.channels, shape.extent};
    if (i + 1 == spec_.nodes.size()) {
      logits_ = Tensor<float>(full, layouts_[i + 1], memory_);
      logits_slot_ = logits_.data();
      tensors.y = View<float>(Address<float>::in(&logits_slot_), full, layouts_[i + 1]);
    } else if (output_in_place(i)) {
      tensors.y = node.inputs[0]->y;
      tensors.y_buffer = node.inputs[0]->y_buffer;
    } else {
      std::tie(tensors.y, tensors.y_buffer) = make_tensor(full, layouts_[i + 1]);
    }
    if (!problem_of(i)) make_tasks(i, parameters);
  }
  if (options_.training) make_gradients();
}

void Network::make_tasks(std::size_t i, Parameters& parameters) {
  Node& node = nodes_[i];
  if (fused_into_input(i)) {
    node.tasks = no_tasks();
    return;
  }
  LayerSetup setup{.batch = options_.batch,
                   .training = options_.training,
                   .keep_x_hat = keeps_x_hat(),
                   .inputs = shapes_.inputs_of(spec_.nodes[i]),
                   .output = &shapes_.nodes[i],
                   .layout = layouts_[i + 1],
                   .parameters = {},
                   .plan = node.plan ? &*node.plan : nullptr,
                   .lifetimes = lifetimes_.get(),
                   .memory = memory_};
  for (const ParameterSpec& one : layer(i).parameters(*setup.inputs[0], {})) {
    setup.parameters.push_back(parameters.find(spec_.nodes[i].name + "." + one.name));
  }
  const auto reader = only_reader(i);
  if (reader && fused_into_input(*reader)) setup.fused = *layer(*reader).activation();
  node.tasks = layer(i).make_tasks(setup);
}

/// Makes the gradients, the last node's first, because a gradient may lie in the memory of a later node's gradient.
void Network::make_gradients() {
  logits_gradient_ = Tensor<float>(logits_.shape(), layouts_.back(), memory_);
  nodes_.back().tensors.dy = logits_gradient_;
  for (std::size_t i = nodes_.size() - 1; i-- > 0;) {
    NodeTensors& tensors = nodes_[i].tensors;
    if (gradient_in_place(i)) {
      const NodeTensors& reader = nodes_[*only_reader(i)].tensors;
      tensors.dy = reader.dy;
      tensors.dy_buffer = reader.dy_buffer;
    } else {
      std::tie(tensors.dy, tensors.dy_buffer) = make_tensor(tensors.y.shape, layouts_[i + 1]);
    }
  }
}

std::optional<std::size_t> Network::only_reader(std::size_t index) const {
  std::optional<std::size_t> reader;
  for (std::size_t i = 0; i < spec_.nodes.size(); ++i) {
    for (const std::size_t input : spec_.nodes[i].inputs) {
      if (input != index + 1) continue;
      if (reader) return std::nullopt;
      reader = i;
    }
  }
  return reader;
}

bool Network::output_in_place(std::size_t index) const {
  const std::size_t input = spec_.nodes[index].inputs[0];
  // The logits have memory of their own. In separate memory, every tensor can be looked at after a run.
  if (index + 1 == spec_.nodes.size() || !lifetimes_->planned() || input == 0) return false;
  if (!layer(index).computes_in_place() || !only_reader(input - 1) || layouts_[input] != layouts_[index + 1]) {
    return false;
  }
  return !options_.training || (!layer(index).reads_x_backward() && !layer(input - 1).reads_y_backward());
}

bool Network::fused_into_input(std::size_t index) const {
  if (!layer(index).only_activates() || !output_in_place(index)) return false;
  const std::size_t input = spec_.nodes[index].inputs[0] - 1;
  if (!layer(input).fuses_activation()) return false;
  if (!options_.training) return true;
  // The layer then replaces the gradient of its output by that of its input.
  const std::size_t before = spec_.nodes[input].inputs[0];
  return before != 0 && gradient_in_place(input) && gradient_in_place(before - 1);
}

bool Network::gradient_in_place(std::size_t index) const {
  const auto reader = only_reader(index);
  if (!lifetimes_->planned() || !reader || *reader + 1 == spec_.nodes.size()) return false;
  return layer(*reader).backpropagates_in_place() && layouts_[index + 1] == layouts_[*reader + 1];
}

std::optional<ConvProblem> Network::problem_of(std::size_t i) const {
  return conv_problem(spec_, spec_.nodes[i], options_.batch, shapes_.of(spec_.nodes[i].inputs[0]));
}

std::optional<ConvProblem> Network::laid_out_problem_of(std::size_t i) const {
  auto problem = problem_of(i);
  if (!problem) return problem;
  problem->x_layout = layouts_[spec_.nodes[i].inputs[0]];
  problem->y_layout = layouts_[i + 1];
  return problem;
}

ConvOptions Network::conv_options(std::size_t i, std::size_t weight_budget) const {
  return {.engine = engine_for(options_.engine, *problem_of(i)),
          .want_dx = options_.training && spec_.nodes[i].inputs[0] > 0,  // the gradient of the net's input is never
                                                                         // used
          .want_dw = options_.training,
          .low_error = options_.low_error,
          .memory_budget = weight_budget,
          .fft = options_.fft,
          .cache_spectra = options_.cache_spectra};
}

ConvPlan Network::plan_of_node(std::size_t i, std::size_t weight_budget) const {
  if (options_.stop.stop_requested()) throw StopRequested();
  ConvOptions options = conv_options(i, weight_budget);
  for (const auto* choices : {&options_.recorded.choices, &options_.tuned}) {
    const auto found = choices->find(spec_.nodes[i].name);
    if (found != choices->end()) options.choice = found->second;
  }
  return ConvPlan::make(*laid_out_problem_of(i), options);
}

bool Network::uses_blocked(std::size_t i) const {
  // Only the cost model decides, because layouts are chosen before tuning and must be the same when a tuned run is
  // resumed.
  if (options_.stop.stop_requested()) throw StopRequested();
  const ConvProblem problem = *problem_of(i);
  ConvOptions options = conv_options(i, 0);
  const auto served = ConvPlan::best_layouts(problem, options);
  const auto plain = find_layouts(served, Layout::plain, Layout::plain);
  const Layout x = usual_layout(problem.in_channels), y = usual_layout(problem.out_channels);
  const auto usual = find_layouts(served, x, y);
  if (!plain || !usual) return false;  // groups that do not fill channel blocks, or an engine for plain tensors only
  if (usual->engine == plain->engine) return true;
  if (options_.engine == Engine::automatic && usual->seconds <= plan::conversion_factor * plain->seconds) return true;
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
    if (problem_of(i) && !uses_blocked(i)) plain[i + 1] = plain[spec_.nodes[i].inputs[0]] = true;
  }
  for (bool changed = true; changed;) {
    changed = false;
    for (std::size_t i = 0; i < count; ++i) {
      const NodeSpec& node = spec_.nodes[i];
      if (!node.layer->keeps_layout()) continue;
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
    const auto laid_out = laid_out_problem_of(i);
    if (!laid_out || options_.tuned.contains(node.name)) continue;
    const ConvProblem& problem = *laid_out;
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
  for (std::size_t i = 0; i < nodes_.size(); ++i) {
    if (!problem_of(i)) continue;
    nodes_[i].plan = plan_of_node(i, 0);
    for (const CacheCost& cache : nodes_[i].plan->caches()) {
      const bool used =
          options_.training || cache.content == CacheCost::Content::weights;  // inference keeps no spectra of x
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
    if (short_of[i]) nodes_[i].plan = plan_of_node(i, std::max<std::size_t>(share[i], 1));
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
