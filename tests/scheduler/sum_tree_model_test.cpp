// Checks SumTree with Relacy. It runs the threads in all orders, or in all orders with few context switches, and lets
// every atomic operation return every value that its memory order allows.
#include <memory>
#include <optional>
#include <sstream>
#include <vector>

#include <catch2/catch.hpp>

#include "scheduler/sum_tree.hpp"

// Included last, because it defines its own macro assert.
#include <relacy/relacy.hpp>

using namespace convolume;

namespace {

constexpr auto none = std::memory_order::relaxed;

rl::memory_order of_model(std::memory_order order) {
  switch (order) {
    case std::memory_order::relaxed:
      return rl::mo_relaxed;
    case std::memory_order::acquire:
      return rl::mo_acquire;
    case std::memory_order::release:
      return rl::mo_release;
    case std::memory_order::acq_rel:
      return rl::mo_acq_rel;
    default:
      return rl::mo_seq_cst;
  }
}

/// Replaces the memory order of every exchange by `exchange_order`. If `stores` is false, places are not emptied.
template <std::memory_order exchange_order, bool stores>
struct ModelAtomics {
  template <class T>
  using Pointer = rl::atomic<T*>;

  template <class T>
  static T* exchange(Pointer<T>& pointer, T* value, std::memory_order) {
    return pointer.exchange(value, of_model(exchange_order), $);
  }
  template <class T>
  static void store(Pointer<T>& pointer, T* value, std::memory_order order) {
    if (stores || pointer.debug_value() == nullptr) pointer.store(value, of_model(order), $);
  }
};
using AsWritten = ModelAtomics<std::memory_order::acq_rel, true>;

/// Combines two sums. It is neither commutative nor associative, so every other order and every other tree is detected.
unsigned combined(unsigned left, unsigned right) { return 3 * left + 5 * right + 1; }

unsigned expected_sum(std::size_t producers) {
  std::vector<unsigned> sums(producers);
  for (std::size_t i = 0; i < producers; ++i) sums[i] = static_cast<unsigned>(7 * i + 1);
  for (; sums.size() > 1; sums.resize((sums.size() + 1) / 2)) {
    for (std::size_t i = 0; i < sums.size(); i += 2) {
      sums[i / 2] = i + 1 < sums.size() ? combined(sums[i], sums[i + 1]) : sums[i];
    }
  }
  return sums[0];
}

/// `threads` threads add `operations` buffers each, in `rounds` uses of one tree.
template <int threads, int operations, int rounds, class Atomics>
struct Producers : rl::test_suite<Producers<threads, operations, rounds, Atomics>, threads> {
  using Buffer = rl::var<unsigned>;
  static constexpr std::size_t count = threads * operations;

  std::unique_ptr<scheduler::SumTree<Buffer, Atomics>> tree;
  Buffer buffers[count];
  rl::atomic<int> complete;  // complete rounds

  void before() {
    tree = std::make_unique<scheduler::SumTree<Buffer, Atomics>>(count);
    complete.store(0, rl::mo_relaxed, $);
  }

  void thread(unsigned index) {
    for (int round = 0; round < rounds; ++round) {
      // Neighbours in the tree belong to different threads.
      for (std::size_t i = index; i < count; i += threads) {
        buffers[i]($) = static_cast<unsigned>(7 * i + 1);
        Buffer* total = tree->add(i, &buffers[i],
                                  [](Buffer* left, Buffer* right) { (*left)($) = combined((*left)($), (*right)($)); });
        if (total == nullptr) continue;
        RL_ASSERT(static_cast<unsigned>((*total)($)) == expected_sum(count));
        complete.store(round + 1, rl::mo_release, $);
      }
      rl::linear_backoff backoff;
      while (rounds > 1 && complete.load(rl::mo_acquire, $) <= round) backoff.yield($);
    }
  }

  void after() { RL_ASSERT(complete.load(rl::mo_relaxed, $) == rounds); }
};

struct Verdict {
  rl::test_result_e result;
  rl::iteration_t executions;
};

/// Runs a test under Relacy. A context bound of 0 means all orders.
template <class Test>
Verdict check(unsigned context_bound) {
  std::ostringstream output;
  rl::test_params params;
  params.search_type = context_bound == 0 ? rl::sched_full : rl::sched_bound;
  params.context_bound = context_bound;
  params.output_history = true;  // otherwise a failure is run again to record it, and Relacy crashes then
  params.output_stream = params.progress_stream = &output;
  const bool passed = rl::simulate<Test>(params);
  INFO(output.str());
  CHECK(passed == (params.test_result == rl::test_result_success));
  return {params.test_result, params.stop_iteration};
}

template <class Test>
void check_passes(unsigned context_bound, rl::iteration_t least_executions) {
  const Verdict verdict = check<Test>(context_bound);
  CHECK(rl::test_result_str(verdict.result) == std::string("SUCCESS"));
  CHECK(verdict.executions >= least_executions);
}

}  // namespace

TEST_CASE("all orders of two threads with two buffers each give the same sum, without a data race") {
  check_passes<Producers<2, 2, 1, AsWritten>>(0, 10);
}

// Waiting for a round to end multiplies the orders, so not all orders are tried here.
TEST_CASE("two uses of a tree, and three threads, with up to three switches that nothing forces") {
  check_passes<Producers<2, 1, 2, AsWritten>>(3, 10);
  check_passes<Producers<3, 1, 1, AsWritten>>(3, 10);
  check_passes<Producers<3, 2, 1, AsWritten>>(3, 10);
}

TEST_CASE("all orders of two threads with three buffers each", "[.long]") {
  check_passes<Producers<2, 3, 1, AsWritten>>(0, 100);
}

TEST_CASE("three threads with three buffers each, and more uses of a tree", "[.long]") {
  check_passes<Producers<3, 3, 1, AsWritten>>(3, 100);
  check_passes<Producers<2, 1, 3, AsWritten>>(3, 100);
  check_passes<Producers<3, 2, 1, AsWritten>>(4, 100);
}

// Weakens every memory order of SumTree that can be weakened. Two orders are relaxed already: the first store of a
// place, which no other thread can know yet, and the store that empties it. The latter precedes the next exchange of
// its thread and so the end of the round.
TEST_CASE("the model finds what weaker orders break") {
  const auto race = rl::test_result_data_race;
  CHECK(check<Producers<2, 2, 1, ModelAtomics<std::memory_order::release, true>>>(0).result == race);
  CHECK(check<Producers<2, 2, 1, ModelAtomics<std::memory_order::acquire, true>>>(0).result == race);
  CHECK(check<Producers<2, 2, 1, ModelAtomics<none, true>>>(0).result == race);
  // A place that is not emptied gives the next round a sum of the previous one.
  CHECK(check<Producers<2, 1, 2, ModelAtomics<std::memory_order::acq_rel, false>>>(3).result !=
        rl::test_result_success);
}
