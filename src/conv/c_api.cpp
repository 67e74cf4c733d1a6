// The C interface: a plan with its own threads and memory. Every exception is caught here and becomes a status.
#include <cstddef>
#include <limits>
#include <new>
#include <string>
#include <utility>

#include <fmt/format.h>

#include "convolume/conv.hpp"
#include "convolume/convert.hpp"
#include "convolume/convolume.h"
#include "convolume/memory.hpp"

// The C interface passes this struct as an opaque pointer. `memory` is destroyed last, because the plan and the worker
// threads hold parts of it.
struct convolume_conv {
  mutable convolume::SlabResource memory;
  mutable convolume::Scheduler scheduler;
  convolume::ConvPlan plan;

  convolume_conv(const convolume::ConvProblem& problem, int threads)
      : scheduler(threads), plan(convolume::ConvPlan::make(problem)) {}
  convolume::Execution run() const { return {scheduler, &memory}; }
};

namespace convolume {
namespace {

struct LastError {
  std::string text;
  const char* fixed = nullptr;  // replaces `text` if there was no memory for a text

  void set(const char* what) noexcept {
    try {
      text = what;
      fixed = nullptr;
    } catch (...) {
      fixed = "out of memory";
    }
  }
};

LastError& last_error() noexcept {
  thread_local LastError error;
  return error;
}

int fail(int status, const char* what) noexcept {
  last_error().set(what);
  return status;
}

template <class Body>
int guarded(Body&& body) noexcept {
  try {
    std::forward<Body>(body)();
    return CONVOLUME_OK;
  } catch (const InvalidArgument& error) {
    return fail(CONVOLUME_INVALID_ARGUMENT, error.what());
  } catch (const ShapeMismatch& error) {
    return fail(CONVOLUME_INVALID_ARGUMENT, error.what());
  } catch (const Unsupported& error) {
    return fail(CONVOLUME_UNSUPPORTED, error.what());
  } catch (const OverflowError& error) {
    return fail(CONVOLUME_OVERFLOW, error.what());
  } catch (const MemoryBudgetExceeded& error) {
    return fail(CONVOLUME_OUT_OF_MEMORY, error.what());
  } catch (const std::bad_alloc&) {
    return fail(CONVOLUME_OUT_OF_MEMORY, "out of memory");
  } catch (const std::exception& error) {
    return fail(CONVOLUME_INTERNAL_ERROR, error.what());
  } catch (...) {
    return fail(CONVOLUME_INTERNAL_ERROR, "an exception of unknown type");
  }
}

void need(const void* pointer, const char* function, const char* argument) {
  if (pointer == nullptr) throw InvalidArgument(fmt::format("{}: {} is NULL", function, argument));
}

/// Returns `value` if it is one of the allowed values 0 to `last`. Throws InvalidArgument otherwise. `where` is the
/// struct or the function to which it belongs.
std::int64_t choice(std::int64_t value, std::int64_t last, const char* field,
                    const char* where = "convolume_conv_problem") {
  if (value < 0 || value > last) {
    throw InvalidArgument(fmt::format("{}: {} is {}; use 0 to {}", where, field, value, last));
  }
  return value;
}

Extent3 extent_of(const std::int64_t (&values)[3]) { return {values[0], values[1], values[2]}; }

void store(const Extent3& extent, std::int64_t (&values)[3]) {
  for (int axis = 0; axis < 3; ++axis) values[axis] = extent[axis];
}

constexpr DataType types[] = {DataType::f32, DataType::f64};
constexpr Layout layouts[] = {Layout::plain, Layout::blocked};
ConvProblem problem_of(const convolume_conv_problem& c) {
  ConvProblem problem{.type = types[choice(c.data_type, 1, "data_type")],
                      .batch = c.batch,
                      .in_channels = c.in_channels,
                      .out_channels = c.out_channels,
                      .groups = c.groups,
                      .input = extent_of(c.input),
                      .kernel = extent_of(c.kernel),
                      .stride = extent_of(c.stride),
                      .dilation = extent_of(c.dilation),
                      .pad_before = extent_of(c.pad_before),
                      .pad_after = extent_of(c.pad_after),
                      .transposed = choice(c.transposed, 1, "transposed") != 0,
                      .output_padding = extent_of(c.output_padding),
                      .x_layout = layouts[choice(c.x_layout, 1, "x_layout")],
                      .y_layout = layouts[choice(c.y_layout, 1, "y_layout")]};
  problem.epilogue = {.bias = choice(c.bias, 1, "bias") != 0,
                      .activation = {static_cast<Activation::Kind>(
                                         choice(c.activation, static_cast<int>(Activation::last_kind), "activation")),
                                     c.activation_slope}};
  return problem;
}

void set_defaults(convolume_conv_problem& c) {
  const ConvProblem problem{};
  c = {};
  c.batch = problem.batch;
  c.in_channels = problem.in_channels;
  c.out_channels = problem.out_channels;
  c.groups = problem.groups;
  store(problem.input, c.input);
  store(problem.kernel, c.kernel);
  store(problem.stride, c.stride);
  store(problem.dilation, c.dilation);
  c.activation_slope = problem.epilogue.activation.slope;
}

/// Return a dense view of the caller's array, or an absent tensor for NULL.
ConstTensorView input(const void* data, const Shape5& shape, DataType type, Layout layout = Layout::plain) {
  return data != nullptr ? ConstTensorView(data, type, shape, layout) : ConstTensorView();
}

TensorView output(void* data, const Shape5& shape, DataType type, Layout layout = Layout::plain) {
  return data != nullptr ? TensorView(data, type, shape, layout) : TensorView();
}

/// A dense tensor of a C function, before anybody allocates its memory.
struct Dense {
  Shape5 shape;
  DataType type;
  Layout layout;
  std::int64_t elements;  // that it stores
};

/// An argument of a C function and its name.
struct Argument {
  const char* name;
  std::int64_t value;
};

/// Checks the description of a tensor. Throws if it does not fit the address space, so that nobody computes strides of
/// such a tensor.
Dense dense_of(const char* function, const std::int64_t* shape, const Argument& type, const Argument& layout) {
  need(shape, function, "shape");
  Dense dense{.shape = {shape[0], shape[1], {shape[2], shape[3], shape[4]}},
              .type = types[choice(type.value, 1, type.name, function)],
              .layout = layouts[choice(layout.value, 1, layout.name, function)],
              .elements = 0};
  dense.elements = stored_elements(dense.shape, dense.layout, dense.type);
  return dense;
}

void forward(const convolume_conv& c, const void* x, const void* w, const void* bias, void* y) {
  const ConvProblem& p = c.plan.problem();
  if (p.epilogue.bias != (bias != nullptr)) {
    throw InvalidArgument(p.epilogue.bias ? "convolume_conv_forward: bias is NULL, but the problem has one"
                                          : "convolume_conv_forward: bias is given, but the problem has none; set "
                                            "convolume_conv_problem.bias");
  }
  const Execution run = c.run();
  c.plan.forward(run, {.x = input(x, p.x_shape(), p.type, p.x_layout),
                       .w = input(w, p.w_shape(), p.type),
                       .bias = input(bias, {1, p.out_channels, {1, 1, 1}}, p.type),
                       .y = output(y, p.y_shape(), p.type, p.y_layout)});
}

void backward(const convolume_conv& c, const void* x, const void* y, const void* dy, const void* w, void* dx, void* dw,
              void* dbias) {
  const ConvProblem& p = c.plan.problem();
  if (p.epilogue.activation.kind != Activation::Kind::none) need(y, "convolume_conv_backward", "y");
  const Execution run = c.run();
  c.plan.backward(run, {.x = input(x, p.x_shape(), p.type, p.x_layout),
                        .y = input(y, p.y_shape(), p.type, p.y_layout),
                        .dy = input(dy, p.y_shape(), p.type, p.y_layout),
                        .w = input(w, p.w_shape(), p.type),
                        .dx = output(dx, p.x_shape(), p.type, p.x_layout),
                        .dw = output(dw, p.w_shape(), p.type),
                        .dbias = output(dbias, {1, p.out_channels, {1, 1, 1}}, p.type)});
}

}  // namespace
}  // namespace convolume

extern "C" {

const char* convolume_version(void) { return convolume::version(); }

const char* convolume_last_error(void) {
  const auto& error = convolume::last_error();
  return error.fixed != nullptr ? error.fixed : error.text.c_str();
}

int convolume_conv_problem_init(convolume_conv_problem* problem) {
  return convolume::guarded([&] {
    convolume::need(problem, "convolume_conv_problem_init", "problem");
    convolume::set_defaults(*problem);
  });
}

int convolume_conv_create(const convolume_conv_problem* problem, int threads, convolume_conv** out) {
  return convolume::guarded([&] {
    convolume::need(out, "convolume_conv_create", "out");
    *out = nullptr;
    convolume::need(problem, "convolume_conv_create", "problem");
    *out = new convolume_conv(convolume::problem_of(*problem), threads);
  });
}

void convolume_conv_destroy(convolume_conv* plan) { delete plan; }

int convolume_conv_output_shape(const convolume_conv* plan, int64_t shape[5]) {
  return convolume::guarded([&] {
    convolume::need(plan, "convolume_conv_output_shape", "plan");
    convolume::need(shape, "convolume_conv_output_shape", "shape");
    const convolume::Shape5 y = plan->plan.problem().y_shape();
    shape[0] = y.n;
    shape[1] = y.c;
    for (int axis = 0; axis < 3; ++axis) shape[2 + axis] = y.extent[axis];
  });
}

int convolume_conv_forward(const convolume_conv* plan, const void* x, const void* w, const void* bias, void* y) {
  return convolume::guarded([&] {
    const char* here = "convolume_conv_forward";
    convolume::need(plan, here, "plan");
    convolume::need(x, here, "x");
    convolume::need(w, here, "w");
    convolume::need(y, here, "y");
    convolume::forward(*plan, x, w, bias, y);
  });
}

int convolume_conv_backward(const convolume_conv* plan, const void* x, const void* y, const void* dy, const void* w,
                            void* dx, void* dw, void* dbias) {
  return convolume::guarded([&] {
    const char* here = "convolume_conv_backward";
    convolume::need(plan, here, "plan");
    convolume::need(x, here, "x");
    convolume::need(dy, here, "dy");
    convolume::need(w, here, "w");
    convolume::backward(*plan, x, y, dy, w, dx, dw, dbias);
  });
}

int convolume_tensor_elements(const int64_t shape[5], int64_t data_type, int64_t layout, int64_t* elements) {
  return convolume::guarded([&] {
    const char* here = "convolume_tensor_elements";
    convolume::need(elements, here, "elements");
    *elements = convolume::dense_of(here, shape, {"data_type", data_type}, {"layout", layout}).elements;
  });
}

int convolume_tensor_bytes(const int64_t shape[5], int64_t data_type, int64_t layout, int64_t* bytes) {
  return convolume::guarded([&] {
    const char* here = "convolume_tensor_bytes";
    convolume::need(bytes, here, "bytes");
    const convolume::Dense dense = convolume::dense_of(here, shape, {"data_type", data_type}, {"layout", layout});
    *bytes = dense.elements * static_cast<int64_t>(size_of(dense.type));
  });
}

int convolume_convert(const int64_t shape[5], const void* source, int64_t source_type, int64_t source_layout,
                      void* target, int64_t target_type, int64_t target_layout, int threads) {
  return convolume::guarded([&] {
    const char* here = "convolume_convert";
    convolume::need(source, here, "source");
    convolume::need(target, here, "target");
    const convolume::Dense from =
        convolume::dense_of(here, shape, {"source_type", source_type}, {"source_layout", source_layout});
    const convolume::Dense to =
        convolume::dense_of(here, shape, {"target_type", target_type}, {"target_layout", target_layout});
    convolume::Scheduler scheduler(threads);
    convolume::convert({scheduler, std::pmr::get_default_resource()},
                       convolume::input(source, from.shape, from.type, from.layout),
                       convolume::output(target, to.shape, to.type, to.layout));
  });
}

}  // extern "C"
