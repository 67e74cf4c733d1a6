// Checks that every engine must pass.
#pragma once

#include <algorithm>
#include <chrono>
#include <initializer_list>
#include <thread>
#include <utility>

#include "testing/blocked_tensor.hpp"
#include "testing/conv_case.hpp"
#include <catch2/catch.hpp>

namespace convolume::test {

template <class T>
void check_same_bits(const ConvCase<T>& a, const ConvCase<T>& b) {
  CHECK(same_bits(a.y, b.y));
  CHECK(same_bits(a.dx, b.dx));
  CHECK(same_bits(a.dw, b.dw));
  CHECK(same_bits(a.dbias, b.dbias));
}

/// Compares everything that an execution writes with the double reference on the same data.
template <class T>
void check_against_reference(const ConvProblem& p, const ConvOptions& options, double tolerance) {
  if (too_slow_here(p)) return;
  ConvCase<T> ours(p, options);
  ConvCase<double> reference(p, {.engine = Engine::reference});
  for (auto [to, from] : {std::pair{&reference.x, &ours.x}, std::pair{&reference.w, &ours.w},
                          std::pair{&reference.bias, &ours.bias}, std::pair{&reference.dy, &ours.dy}}) {
    for (index_t i = 0; i < to->elements(); ++i) to->data()[i] = static_cast<double>(from->data()[i]);
  }
  ours.run();
  reference.run();
  CAPTURE(to_string(p), p.batch, ours.plan.numerics());
  REQUIRE(relative_error(ours.y, reference.y) <= tolerance);
  REQUIRE(relative_error(ours.dx, reference.dx) <= tolerance);
  REQUIRE(relative_error(ours.dw, reference.dw) <= tolerance);
  REQUIRE(relative_error(ours.dbias, reference.dbias) <= tolerance);
}

/// Checks <Ax, dy> = <x, A'dy> = <w, dA/dw> for a problem without epilogue.
inline void check_adjoint(const ConvProblem& p, const ConvOptions& options) {
  ConvCase<double> c(p, options);
  c.run();
  const double forward = dot(c.y, c.dy);
  const double scale = std::sqrt(dot(c.y, c.y) * dot(c.dy, c.dy)) + 1e-300;
  REQUIRE(std::abs(forward - dot(c.x, c.dx)) <= 1e-12 * scale);
  REQUIRE(std::abs(forward - dot(c.w, c.dw)) <= 1e-12 * scale);
}

/// Checks that 1, 2 and 8 threads give the same bits, 2 threads with options `on_two`. Also checks that no memory is
/// left behind and that more than one worker took part.
inline void check_threads(std::initializer_list<const char*> problems, const ConvOptions& options,
                          const ConvOptions& on_two) {
  bool shared = false;
  for (const char* text : problems) {
    CAPTURE(text);
    ConvCase<float> first(parse_problem(text), options);
    first.run();
    for (const int threads : {1, 2, 8}) {
      ConvCase<float> other(first.problem, threads == 2 ? on_two : options, false, threads);
      for (int repeat = 0; repeat < 2; ++repeat) {
        other.run(repeat == 0);
        check_same_bits(first, other);
      }
      shared |= other.scheduler.distinct_workers() > 1;
      CHECK(other.memory.statistics().live_bytes == 0);
    }
  }
  if (shared) return;
  // On a busy machine, one worker may have finished all tasks before the next worker came.
  ConvCase<float> first(parse_problem(*problems.begin()), options), other(first.problem, options, false, 8);
  first.run();
  const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(60);
  while (other.scheduler.distinct_workers() < 2 && std::chrono::steady_clock::now() < end) {
    other.run(false);
    check_same_bits(first, other);
  }
  CHECK(other.scheduler.distinct_workers() > 1);
}

/// Checks that one choice gives the same bits with blocked tensors on one or both sides as with plain ones, and zeros
/// in lanes without a channel. Without a choice, the model may choose other tiles for another layout.
template <class T>
void check_layouts(ConvProblem p, const ConvOptions& options, bool blocked_x, bool blocked_y, Activation::Kind kind) {
  const std::string text = to_string(p);
  p.epilogue = {.bias = true, .activation = {kind}};
  ConvCase<T> plain(p, options);
  plain.run();
  p = plain.problem;
  if (blocked_x) p.x_layout = Layout::blocked;
  if (blocked_y) p.y_layout = Layout::blocked;
  ConvOptions chosen = options;
  chosen.choice = plain.plan.choice();
  const auto plan = ConvPlan::make(p, chosen);
  const Execution run{plain.scheduler, &plain.memory};
  Blocked<T> x(plain.x), dy(plain.dy), y(p.y_shape()), dx(p.x_shape());
  auto plain_y = poisoned<T>(p.y_shape()), plain_dx = poisoned<T>(p.x_shape());
  auto dw = poisoned<T>(p.w_shape()), dbias = poisoned<T>(plain.dbias.shape());
  const auto x_view = blocked_x ? x.view() : plain.x.view(), dx_view = blocked_x ? dx.view() : plain_dx.view();
  const auto y_view = blocked_y ? y.view() : plain_y.view(), dy_view = blocked_y ? dy.view() : plain.dy.view();
  const auto prepared = plan.prepare(run, plain.w);
  plan.forward(run, {.x = x_view, .w = prepared, .bias = plain.bias, .y = y_view});
  plan.backward(run, {.x = x_view, .y = y_view, .dy = dy_view, .w = prepared, .dx = dx_view, .dw = dw, .dbias = dbias});
  CAPTURE(text, p.transposed, blocked_x, blocked_y);
  CHECK((blocked_y ? y.equals(plain.y) && y.padding_is_zero() : same_bits(plain_y, plain.y)));
  CHECK((blocked_x ? dx.equals(plain.dx) && dx.padding_is_zero() : same_bits(plain_dx, plain.dx)));
  CHECK(same_bits(dw, plain.dw));
  CHECK(relative_error(dbias, plain.dbias) < 1e-6);  // channels are summed row by row, or side by side
}

template <class T>
void check_layouts(const char* text, const ConvOptions& options, bool blocked_x, bool blocked_y,
                   Activation::Kind kind) {
  check_layouts<T>(parse_problem(text), options, blocked_x, blocked_y, kind);
}

enum class PlaneOrder { forwards, backwards, from_both_ends };

/// Appends tasks that fill a poisoned tensor slowly, plane after plane. Returns when each plane is complete.
template <class T>
Ready append_planes(TaskGraph& graph, const Tensor<T>& from, Tensor<T>& to, PlaneOrder order) {
  const Shape5 s = from.shape();
  std::vector<TaskId> planes(static_cast<std::size_t>(s.extent.z)), before, all;
  for (index_t step = 0; step < s.extent.z; ++step) {
    const index_t back = s.extent.z - 1 - step;
    const index_t z = order == PlaneOrder::forwards    ? step
                      : order == PlaneOrder::backwards ? back
                      : step % 2 == 0                  ? step / 2
                                                       : s.extent.z - 1 - step / 2;
    const auto copy = [s, z, a = from.view(), b = to.view()] {
      std::this_thread::sleep_for(std::chrono::microseconds(300));
      for (index_t i = 0; i < s.n * s.c; ++i) {
        std::copy_n(&a(i / s.c, i % s.c, z, 0, 0), a.stride[2], &b(i / s.c, i % s.c, z, 0, 0));
      }
    };
    before = {planes[static_cast<std::size_t>(z)] = graph.add({.name = "plane"}, copy, before)};
  }
  for (index_t n = 0; n < s.n; ++n) all.insert(all.end(), planes.begin(), planes.end());
  return Ready(all, 1, s.extent.z, s.c, 1);
}

inline void check_ready(const ConvProblem& p, const ConvOptions& options, PlaneOrder order) {
  ConvCase<float> c(p, options, false, 4);
  const Execution run{c.scheduler, &c.memory};
  const auto prepared = c.plan.prepare(run, c.w);
  TaskGraph graph;
  // Values that readers see; they are compared with the final values.
  auto seen_y = poisoned<float>(c.y.shape()), seen_dx = poisoned<float>(c.dx.shape()),
       seen_dw = poisoned<float>(c.dw.shape());
  const auto watch = [&](const Ready& ready, const Tensor<float>& tensor, Tensor<float>& seen, bool weights) {
    const Shape5 s = tensor.shape();
    for (index_t i = 0; i < s.n * s.c * s.extent.z; ++i) {
      const index_t n = i / (s.c * s.extent.z), ch = i / s.extent.z % s.c, z = i % s.extent.z;
      std::vector<TaskId> after;
      weights ? ready.collect(0, n, n + 1, after) : ready.collect(n, ch, ch + 1, z, z + 1, after);
      const auto read = [n, ch, z, view = tensor.view(), copy = seen.view()] {
        std::copy_n(&view(n, ch, z, 0, 0), view.stride[2], &copy(n, ch, z, 0, 0));
      };
      graph.add({.name = "reader"}, read, after);
    }
  };
  auto x = poisoned<float>(c.x.shape()), dy = poisoned<float>(c.dy.shape());
  const ConvReady ready{.x = append_planes(graph, c.x, x, order), .dy = append_planes(graph, c.dy, dy, order)};
  const auto y = c.plan.append_forward(graph, ready, {.x = x, .w = prepared, .bias = c.bias, .y = c.y}, &c.memory);
  const auto done =
      c.plan.append_backward(graph, ready, {.x = x, .dy = dy, .w = prepared, .dx = c.dx, .dw = c.dw}, &c.memory);
  watch(y, c.y, seen_y, false);
  watch(done.dx, c.dx, seen_dx, false);
  watch(done.dw, c.dw, seen_dw, true);
  graph.run(c.scheduler);
  CAPTURE(to_string(p), p.transposed, static_cast<int>(order));
  CHECK(same_bits(seen_y, c.y));
  CHECK(same_bits(seen_dx, c.dx));
  CHECK(same_bits(seen_dw, c.dw));
}

/// Checks that tasks wait for everything they read, and that the planes of y, dx or dw that they declare ready are
/// complete. Planes of x and dy arrive one after the other in several orders. For every plane that a reader waits for,
/// some order delivers its inputs late.
inline void check_ready(const ConvProblem& p, const ConvOptions& options) {
  for (const auto order : {PlaneOrder::forwards, PlaneOrder::backwards, PlaneOrder::from_both_ends}) {
    check_ready(p, options, order);
  }
}

/// Checks that results are added to the contents of dx, dw and dbias if the caller requests it.
inline void check_add(const char* text, const ConvOptions& options) {
  CAPTURE(text);
  ConvCase<double> c(parse_problem(text), options);
  c.run();
  const Execution run{c.scheduler, &c.memory};
  const auto prepared = c.plan.prepare(run, c.w);
  auto dx = random_tensor<double>(c.dx.shape(), 7), dw = random_tensor<double>(c.dw.shape(), 8),
       dbias = random_tensor<double>(c.dbias.shape(), 9);
  const auto before_x = random_tensor<double>(c.dx.shape(), 7), before_w = random_tensor<double>(c.dw.shape(), 8),
             before_bias = random_tensor<double>(c.dbias.shape(), 9);
  c.plan.backward(run, {.x = c.x,
                        .y = c.y,
                        .dy = c.dy,
                        .w = prepared,
                        .dx = dx,
                        .dw = dw,
                        .dbias = dbias,
                        .add_dx = true,
                        .add_dw = true});
  for (index_t i = 0; i < dx.elements(); ++i) REQUIRE(dx.data()[i] == Approx(before_x.data()[i] + c.dx.data()[i]));
  for (index_t i = 0; i < dw.elements(); ++i) REQUIRE(dw.data()[i] == Approx(before_w.data()[i] + c.dw.data()[i]));
  for (index_t i = 0; i < dbias.elements(); ++i) {
    REQUIRE(dbias.data()[i] == Approx(before_bias.data()[i] + c.dbias.data()[i]));
  }
}

}  // namespace convolume::test
