#include "python/bindings/plan.hpp"

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "python/bindings/runtime.hpp"
#include <nanobind/stl/array.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include "convolume/error.hpp"

namespace convolume::python {
namespace {

using Triple = std::array<index_t, 3>;

Extent3 extent_of(const Triple& t) { return {t[0], t[1], t[2]}; }

/// Spectra of x, the array that filled them, and where it lay.
struct KeptSpectra {
  Spectra spectra;
  nb::object source{};
  std::array<std::uintptr_t, 2> bounds{};
  Shape5 shape{};
  std::array<index_t, 5> stride{};

  void keep(const Array& x) {
    const TensorView view = x.tensor();
    source = x.object();
    bounds = x.bounds();
    shape = view.shape;
    stride = view.stride;
  }
  void require(const Array& x) const {
    const TensorView view = x.tensor();
    if (x.bounds() == bounds && view.shape == shape && view.stride == stride) return;
    throw StaleCache("x_hat was filled by another x; pass the array that forward() got, or no x_hat");
  }
};

/// A plan with the form of its arrays.
class Plan {
 public:
  Plan(const ConvProblem& problem, const ConvOptions& options) : plan_(ConvPlan::make(problem, options)) {
    for (const CacheCost& cache : plan_.caches()) {
      const bool fits = options.memory_budget == 0 || cache.bytes <= options.memory_budget;
      if (cache.content == CacheCost::Content::input && cache.kept && fits) keeps_x_hat_ = true;
    }
    Runtime::get().counters().plans.fetch_add(1, std::memory_order_relaxed);
  }

  const ConvPlan& plan() const { return plan_; }
  const ConvProblem& problem() const { return plan_.problem(); }
  /// Returns whether the pass of a gradient can read spectra of x, and these are within the memory budget. The budget
  /// of a ConvPlan does not limit all of them.
  bool keeps_x_hat() const { return keeps_x_hat_; }

  Array input(const char* name, nb::handle array, int least_axes, int most_axes) const {
    Array result(name, array, Array::Use::input, least_axes, most_axes);
    require_type(result);
    return result;
  }
  /// Returns the array that a result is written to: `out`, or a new array of a shape without N if x has none.
  std::pair<nb::object, Array> output(const char* name, nb::handle out, const Shape5& shape, bool with_batch) const {
    if (!out.is_none()) {
      Array given(name, out, Array::Use::output, with_batch ? 5 : 4, with_batch ? 5 : 4);
      require_type(given);
      given.require_distinct_elements();
      return {nb::borrow(out), std::move(given)};
    }
    std::vector<std::size_t> extents;
    if (with_batch) extents.push_back(static_cast<std::size_t>(shape.n));
    for (const index_t extent : {shape.c, shape.extent.z, shape.extent.y, shape.extent.x}) {
      extents.push_back(static_cast<std::size_t>(extent));
    }
    nb::object made = new_array(problem().type, extents);
    Array result(name, made, Array::Use::output, 4, 5);
    return {std::move(made), std::move(result)};
  }

 private:
  void require_type(const Array& array) const {
    if (array.type() == problem().type) return;
    const std::string message = std::string(array.name()) + " has " + convolume::name_of(array.type()) +
                                " elements, the plan is for " + convolume::name_of(problem().type) +
                                "; convert one of them";
    throw nb::type_error(message.c_str());
  }

  ConvPlan plan_;
  bool keeps_x_hat_ = false;
};

/// Weights of a pass: a tensor, or prepared ones.
class Weights {
 public:
  Weights(const Plan& plan, nb::handle w) {
    if (nb::isinstance<PreparedWeights>(w)) {
      prepared_ = nb::cast<const PreparedWeights*>(w);
    } else {
      array_ = plan.input("w", w, 5, 5);
    }
  }
  PassWeights pass() const {
    return prepared_ != nullptr ? PassWeights(*prepared_) : PassWeights(ConstTensorView(array_.tensor()));
  }
  const Array& array() const { return array_; }

 private:
  const PreparedWeights* prepared_ = nullptr;
  Array array_;
};

/// Runs a computation without the GIL.
template <class Body>
void compute(const Body& body) {
  Runtime::get().counters().calls.fetch_add(1, std::memory_order_relaxed);
  const Computation computation;
  body();
}

nb::object forward(const Plan& plan, nb::handle x, nb::handle w, nb::handle bias, nb::handle out, KeptSpectra* x_hat,
                   int threads) {
  const Array source = plan.input("x", x, 4, 5);
  const Weights weights(plan, w);
  Array values;
  if (!bias.is_none()) values = plan.input("bias", bias, 1, 1);
  if (bias.is_none() == plan.problem().epilogue.bias) {
    throw InvalidArgument(bias.is_none() ? "bias is missing: the plan has one"
                                         : "the plan has no bias; make it with one");
  }
  auto [object, target] = plan.output("out", out, plan.problem().y_shape(), source.axes() == 5);
  require_disjoint(target, {&source, &weights.array(), &values});
  const ForwardBindings bindings{.x = source.tensor(),
                                 .w = weights.pass(),
                                 .bias = values ? ConstTensorView(values.channels()) : ConstTensorView(),
                                 .y = target.tensor(),
                                 .x_hat = x_hat != nullptr ? &x_hat->spectra : nullptr};
  const CallThreads run(threads);
  compute([&] { plan.plan().forward(run.execution(), bindings); });
  if (x_hat != nullptr) x_hat->keep(source);
  return object;
}

/// Returns dx, dw and dbias; None for those that are not wanted.
nb::tuple backward(const Plan& plan, nb::handle x, nb::handle dy, nb::handle w, nb::handle y, const KeptSpectra* x_hat,
                   bool want_dx, bool want_dw, bool want_dbias, int threads) {
  const Array gradient = plan.input("dy", dy, 4, 5);
  const Weights weights(plan, w);
  Array source, result;
  if (!x.is_none()) source = plan.input("x", x, 4, 5);
  if (!y.is_none()) result = plan.input("y", y, 4, 5);
  if (want_dw && !source) throw InvalidArgument("x is missing: dw needs it");
  if (plan.problem().epilogue.activation.kind != Activation::Kind::none && !result) {
    throw InvalidArgument("y is missing: the gradient of the activation needs it");
  }
  if (x_hat != nullptr && source) x_hat->require(source);
  nb::object dx = nb::none(), dw = nb::none(), dbias = nb::none();
  Array dx_array, dw_array, dbias_array;
  if (want_dx) std::tie(dx, dx_array) = plan.output("dx", nb::none(), plan.problem().x_shape(), gradient.axes() == 5);
  if (want_dw) std::tie(dw, dw_array) = plan.output("dw", nb::none(), plan.problem().w_shape(), true);
  if (want_dbias) {
    dbias = new_array(plan.problem().type, {static_cast<std::size_t>(plan.problem().out_channels)});
    dbias_array = Array("dbias", dbias, Array::Use::output, 1, 1);
  }
  const BackwardBindings bindings{
      .x = source ? ConstTensorView(source.tensor()) : ConstTensorView(),
      .y = result ? ConstTensorView(result.tensor()) : ConstTensorView(),
      .dy = gradient.tensor(),
      .w = weights.pass(),
      .x_hat = x_hat != nullptr ? &x_hat->spectra : nullptr,
      .dx = want_dx ? dx_array.tensor() : TensorView(),
      .dw = want_dw ? dw_array.tensor() : TensorView(),
      .dbias = want_dbias ? dbias_array.channels() : TensorView(),
  };
  const CallThreads run(threads);
  compute([&] { plan.plan().backward(run.execution(), bindings); });
  return nb::make_tuple(dx, dw, dbias);
}

/// A tensor of another library: its address, and its strides in elements, as tensor_at() takes them. The caller
/// guarantees its shape, its type, and rows that are contiguous along X. A blocked tensor and a result are dense, and
/// only their address counts; 0 means that a result is not wanted.
using Located = std::pair<std::uintptr_t, std::vector<index_t>>;

TensorView located(const Plan& plan, const Located& tensor, const Shape5& shape) {
  return tensor_at(reinterpret_cast<void*>(tensor.first), plan.problem().type, shape, tensor.second);
}

TensorView dense(const Plan& plan, std::uintptr_t address, const Shape5& shape, Layout layout = Layout::plain) {
  if (address == 0) return {};
  return {Address<void>(reinterpret_cast<void*>(address)), plan.problem().type, shape, layout};
}

/// Returns x, dx, y or dy.
TensorView volume_at(const Plan& plan, const Located& tensor, const Shape5& shape, Layout layout) {
  return layout == Layout::plain ? located(plan, tensor, shape) : dense(plan, tensor.first, shape, layout);
}

PassWeights weights_at(const Plan& plan, nb::handle w) {
  if (nb::isinstance<PreparedWeights>(w)) return *nb::cast<const PreparedWeights*>(w);
  return ConstTensorView(located(plan, nb::cast<Located>(w), plan.problem().w_shape()));
}

Shape5 channels_of(const Plan& plan) { return {1, plan.problem().out_channels, {1, 1, 1}}; }

void forward_at(const Plan& plan, const Located& x, nb::handle w, std::uintptr_t bias, std::uintptr_t y,
                KeptSpectra* x_hat, int threads) {
  const ConvProblem& p = plan.problem();
  const ForwardBindings bindings{.x = volume_at(plan, x, p.x_shape(), p.x_layout),
                                 .w = weights_at(plan, w),
                                 .bias = dense(plan, bias, channels_of(plan)),
                                 .y = dense(plan, y, p.y_shape(), p.y_layout),
                                 .x_hat = x_hat != nullptr ? &x_hat->spectra : nullptr};
  const CallThreads run(threads);
  compute([&] { plan.plan().forward(run.execution(), bindings); });
}

void backward_at(const Plan& plan, const Located& x, const Located& dy, const Located& w, const KeptSpectra* x_hat,
                 std::uintptr_t dx, std::uintptr_t dw, std::uintptr_t dbias, int threads) {
  const ConvProblem& p = plan.problem();
  const BackwardBindings bindings{.x = volume_at(plan, x, p.x_shape(), p.x_layout),
                                  .dy = volume_at(plan, dy, p.y_shape(), p.y_layout),
                                  .w = ConstTensorView(located(plan, w, p.w_shape())),
                                  .x_hat = x_hat != nullptr ? &x_hat->spectra : nullptr,
                                  .dx = dense(plan, dx, p.x_shape(), p.x_layout),
                                  .dw = dense(plan, dw, p.w_shape()),
                                  .dbias = dense(plan, dbias, channels_of(plan))};
  const CallThreads run(threads);
  compute([&] { plan.plan().backward(run.execution(), bindings); });
}

PreparedWeights prepare(const Plan& plan, nb::handle w, int threads) {
  const Array weights = plan.input("w", w, 5, 5);
  const CallThreads run(threads);
  PreparedWeights prepared;
  compute([&] { prepared = plan.plan().prepare(run.execution(), weights.tensor()); });
  return prepared;
}

ConvProblem problem_of(const std::vector<index_t>& x, const std::vector<index_t>& w, const std::string& type,
                       const Triple& stride, const std::array<index_t, 6>& padding, const Triple& dilation,
                       index_t groups, bool transposed, const Triple& output_padding, bool bias,
                       const std::string& activation, double slope, bool x_blocked, bool y_blocked) {
  ConvProblem p;
  p.type = type == "float64" ? DataType::f64 : DataType::f32;
  p.batch = x[0];
  p.in_channels = x[1];
  p.input = {x[2], x[3], x[4]};
  p.groups = groups;
  p.out_channels = transposed ? w[1] * groups : w[0];
  p.kernel = {w[2], w[3], w[4]};
  p.stride = extent_of(stride);
  p.dilation = extent_of(dilation);
  p.pad_before = {padding[0], padding[2], padding[4]};
  p.pad_after = {padding[1], padding[3], padding[5]};
  p.transposed = transposed;
  p.output_padding = extent_of(output_padding);
  p.x_layout = x_blocked ? Layout::blocked : Layout::plain;
  p.y_layout = y_blocked ? Layout::blocked : Layout::plain;
  p.epilogue.bias = bias;
  using Kind = Activation::Kind;
  p.epilogue.activation.slope = slope;
  for (const auto& [name, kind] :
       {std::pair{"", Kind::none}, std::pair{"relu", Kind::relu}, std::pair{"leaky_relu", Kind::leaky_relu},
        std::pair{"sigmoid", Kind::sigmoid}, std::pair{"tanh", Kind::tanh}, std::pair{"softsign", Kind::softsign}}) {
    if (activation == name) p.epilogue.activation.kind = kind;
  }
  p.validate();
  const Shape5 wanted = p.w_shape();
  if (wanted.n != w[0] || wanted.c != w[1]) {
    throw ShapeMismatch("w has shape " + to_string(Shape5{w[0], w[1], p.kernel}) + "; x and groups need " +
                        to_string(wanted));
  }
  return p;
}

}  // namespace

void add_plans(nb::module_& m) {
  nb::class_<PreparedWeights>(m, "PreparedWeights").def_prop_ro("nbytes", [](const PreparedWeights& w) {
    return w.bytes();
  });
  nb::class_<KeptSpectra>(m, "Spectra").def_prop_ro("nbytes", [](const KeptSpectra& s) { return s.spectra.bytes(); });
  nb::class_<Plan>(m, "Plan")
      .def("__init__",
           [](Plan* self, const std::vector<index_t>& x, const std::vector<index_t>& w, const std::string& type,
              const Triple& stride, const std::array<index_t, 6>& padding, const Triple& dilation, index_t groups,
              bool transposed, const Triple& output_padding, bool bias, const std::string& activation, double slope,
              const std::string& engine, const std::string& choice, bool want_dx, bool want_dw, bool low_error,
              std::size_t memory_budget, bool x_blocked, bool y_blocked) {
             const ConvProblem problem = problem_of(x, w, type, stride, padding, dilation, groups, transposed,
                                                    output_padding, bias, activation, slope, x_blocked, y_blocked);
             const ConvOptions options{.engine = engine_of(engine),
                                       .want_dx = want_dx,
                                       .want_dw = want_dw,
                                       .choice = choice,
                                       .low_error = low_error,
                                       .memory_budget = memory_budget};
             const Computation computation;
             new (self) Plan(problem, options);
           })
      .def("forward", forward, nb::arg("x"), nb::arg("w"), nb::arg("bias").none(), nb::arg("out").none(),
           nb::arg("x_hat").none(), nb::arg("threads"))
      .def("backward", backward, nb::arg("x").none(), nb::arg("dy"), nb::arg("w"), nb::arg("y").none(),
           nb::arg("x_hat").none(), nb::arg("want_dx"), nb::arg("want_dw"), nb::arg("want_dbias"), nb::arg("threads"))
      .def("forward_at", forward_at, nb::arg("x"), nb::arg("w"), nb::arg("bias"), nb::arg("y"), nb::arg("x_hat").none(),
           nb::arg("threads"))
      .def("backward_at", backward_at, nb::arg("x"), nb::arg("dy"), nb::arg("w"), nb::arg("x_hat").none(),
           nb::arg("dx"), nb::arg("dw"), nb::arg("dbias"), nb::arg("threads"))
      .def("prepare", prepare, nb::arg("w"), nb::arg("threads"))
      .def("spectra",
           [](const Plan& plan) { return KeptSpectra{.spectra = plan.plan().input_spectra(&Runtime::get().memory())}; })
      .def("explain", [](const Plan& plan) { return plan.plan().explain(); })
      .def_prop_ro("choice", [](const Plan& plan) { return plan.plan().choice(); })
      .def_prop_ro("numerics", [](const Plan& plan) { return plan.plan().numerics(); })
      .def_prop_ro("engine", [](const Plan& plan) { return std::string(name_of(plan.plan().engine())); })
      .def_prop_ro("seconds", [](const Plan& plan) { return plan.plan().seconds(); })
      .def_prop_ro("keeps_x_hat", &Plan::keeps_x_hat)
      .def_prop_ro("x_blocked", [](const Plan& plan) { return plan.problem().x_layout == Layout::blocked; })
      .def_prop_ro("y_blocked", [](const Plan& plan) { return plan.problem().y_layout == Layout::blocked; })
      .def_prop_ro("y_shape", [](const Plan& plan) {
        const Shape5 s = plan.problem().y_shape();
        return std::vector<index_t>{s.n, s.c, s.extent.z, s.extent.y, s.extent.x};
      });
}

}  // namespace convolume::python
