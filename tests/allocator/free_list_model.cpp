// Checks the lock-free list with Relacy, a model checker that tries every interleaving and every value that a weak
// memory model may return.
//
//   free_list_model short|long   the list as it is must pass
//   free_list_model weakened     with one weaker memory order, or without the tag, it must fail
#include <array>
#include <atomic>
#include <cstdio>
#include <ostream>
#include <string>
#include <vector>

#include "allocator/free_list.hpp"

// Included last, because it defines macros with names of the standard library.
#include <relacy/relacy.hpp>

namespace {

using namespace convolume::allocator;

constexpr rl::memory_order relacy_order(std::memory_order order) {
  return order == std::memory_order::relaxed   ? rl::mo_relaxed
         : order == std::memory_order::acquire ? rl::mo_acquire
                                               : rl::mo_release;
}

/// Gives Relacy's atomics the interface of std::atomic.
template <class T>
class ModelAtomic {
 public:
  T load(std::memory_order order) const { return value_.load(relacy_order(order), $); }
  void store(T value, std::memory_order order) { value_.store(value, relacy_order(order), $); }
  // Uses the strong form. The model would let a weak one fail spuriously without end, and the caller retries either
  // way.
  bool compare_exchange_weak(T& expected, T desired, std::memory_order success, std::memory_order failure) {
    return value_.compare_exchange(rl::bool_t<false>(), expected, desired, relacy_order(success), relacy_order(failure),
                                   $);
  }

 private:
  rl::atomic<T> value_;
};

/// A plain variable in place of an atomic that no thread writes while others run. It saves the model interleavings.
template <class T>
class Constant {
 public:
  T load(std::memory_order) const { return value_; }
  void store(T value, std::memory_order) { value_ = value; }

 private:
  T value_{};
};

/// Numbers are atomics. Pointers, which point to the table's segments, are atomics only if the table grows while
/// threads run.
template <bool grows>
struct ModelAtomics {
  template <class T>
  using Atomic = std::conditional_t<std::is_pointer_v<T> && !grows, Constant<T>, ModelAtomic<T>>;
};

struct WeakPush : FreeListOrders {
  static constexpr std::memory_order push = std::memory_order::relaxed;
};
struct WeakReadHead : FreeListOrders {
  static constexpr std::memory_order read_head = std::memory_order::relaxed;
};
struct WeakPop : FreeListOrders {
  static constexpr std::memory_order pop = std::memory_order::relaxed;
};
struct NoTag : FreeListOrders {
  static constexpr std::uint64_t tag_step = 0;
};

/// Scripts of the threads and the number of blocks. Each thread owns one block at the start; `listed` others are in the
/// list.
struct Scenario {
  std::vector<const char*>
      scripts;  // per thread: 'p' pops; 'u' pushes the block held longest, or pops if the thread holds none
  std::uint32_t listed;
};
Scenario scenario;

constexpr std::uint32_t most_blocks = 6;

/// The blocks that a thread holds, oldest first. It is no std::vector, because Relacy tracks every allocation, which is
/// slow.
class Hand {
 public:
  void add(std::uint32_t index) { blocks_[size_++] = index; }
  std::uint32_t remove_oldest() {
    const std::uint32_t oldest = blocks_[0];
    for (std::size_t i = 1; i < size_; ++i) blocks_[i - 1] = blocks_[i];
    --size_;
    return oldest;
  }
  const std::uint32_t* begin() const { return blocks_.data(); }
  const std::uint32_t* end() const { return blocks_.data() + size_; }

 private:
  std::array<std::uint32_t, most_blocks> blocks_{};
  std::size_t size_ = 0;
};

template <class Orders, int threads, bool grows>
struct Model : rl::test_suite<Model<Orders, threads, grows>, threads> {
  // `owner` is a plain variable. If two threads own a block at once, or in turn without order between them, Relacy
  // reports a data race.
  struct Block {
    rl::var<unsigned> owner;
  };
  BlockTable<ModelAtomics<grows>, Block, 1> table;
  FreeList<ModelAtomics<grows>, Orders> list;
  std::array<Hand, threads> held;

  /// Index of the block that a thread adds. Segments hold one, two, four, ... indices, so a table of three grows by a
  /// segment.
  static constexpr std::uint32_t added = 3;

  std::uint32_t own_block(std::uint32_t t) const { return grows && t + 1 == threads ? added : scenario.listed + t; }

  void before() {
    const std::uint32_t total = scenario.listed + threads - (grows ? 1 : 0);
    table.grow(total);
    for (std::uint32_t i = 0; i < total; ++i) table[i].owner($) = 99;
    for (std::uint32_t i = 0; i < scenario.listed; ++i) list.push(table, i);
    for (std::uint32_t t = 0; t < threads; ++t) held[t].add(own_block(t));
  }

  void thread(unsigned t) {
    if (own_block(t) == added) table.grow(added + 1);
    for (const char* step = scenario.scripts[t]; *step != '\0'; ++step) {
      Hand& mine = held[t];
      if (*step == 'u' && mine.begin() != mine.end()) {
        const std::uint32_t index = mine.remove_oldest();
        table[index].owner($) = t;
        list.push(table, index);
      } else if (const std::uint32_t index = list.pop(table); index != none) {
        table[index].owner($) = t;
        mine.add(index);
      }
    }
  }

  void after() {
    std::array<int, most_blocks> seen{}, expected{};
    for (std::uint32_t i = 0; i < scenario.listed; ++i) ++expected[i];
    for (std::uint32_t t = 0; t < threads; ++t) ++expected[own_block(t)];
    for (const Hand& mine : held) {
      for (const std::uint32_t index : mine) ++seen[index];
    }
    for (std::uint32_t i = 0; i <= most_blocks; ++i) {
      const std::uint32_t index = list.pop(table);
      if (index == none) break;
      ++seen[index];
    }
    RL_ASSERT(seen == expected);
  }
};

struct Search {
  bool exhaustive;
  unsigned context_bound;
};

/// Returns whether no interleaving breaks the list. Adds the number of interleavings to `tried`.
template <class Orders, int threads, bool grows = false>
bool holds(const Search& search, std::uint64_t& tried, std::string& fault) {
  std::ostream silent(nullptr);
  rl::test_params params;
  params.search_type = search.exhaustive ? rl::fair_full_search_scheduler_type : rl::fair_context_bound_scheduler_type;
  params.context_bound = search.context_bound;
  params.iteration_count = 1u << 30;
  params.output_stream = params.progress_stream = &silent;
  const bool passed = rl::simulate<Model<Orders, threads, grows>>(params);
  tried += params.stop_iteration;
  fault = rl::test_result_str(params.test_result);
  return passed;
}

/// Visits every choice of a script per thread, in ascending order only, because threads are interchangeable.
template <class Visit>
void for_each_choice(const std::vector<const char*>& scripts, std::size_t threads, const Visit& visit) {
  std::vector<std::size_t> chosen(threads, 0);
  while (true) {
    std::vector<const char*> result;
    for (const std::size_t c : chosen) result.push_back(scripts[c]);
    visit(result);
    std::size_t last = threads;
    while (last > 0 && chosen[last - 1] + 1 == scripts.size()) --last;
    if (last == 0) return;
    const std::size_t next = chosen[last - 1] + 1;
    for (std::size_t i = last - 1; i < threads; ++i) chosen[i] = next;
  }
}

// Each thread owns one block at first, so at most one push may precede a pop.
const std::vector<const char*> two_steps{"pp", "pu", "up"};
const std::vector<const char*> three_steps{"ppp", "ppu", "pup", "puu", "upp", "upu"};

struct Proof {
  const char* what;
  const std::vector<const char*>& scripts;
  std::vector<std::uint32_t> listed;
  Search search;
};

void print_choice(std::uint32_t listed, const std::vector<const char*>& choice) {
  std::printf(" %u in the list,", listed);
  for (const char* script : choice) std::printf(" %s", script);
  std::printf("\n");
}

/// Tries every choice of scripts. If `grows` is set, the last thread adds its block to the table first.
template <int threads, bool grows = false>
bool prove(const Proof& proof) {
  std::uint64_t tried = 0;
  int scenarios = 0;
  bool passed = true;
  for_each_choice(proof.scripts, threads, [&](const std::vector<const char*>& choice) {
    for (const std::uint32_t listed : proof.listed) {
      scenario = {choice, listed};
      ++scenarios;
      std::string fault;
      if (holds<FreeListOrders, threads, grows>(proof.search, tried, fault)) continue;
      passed = false;
      std::printf("FAILED: %s,", fault.c_str());
      print_choice(listed, choice);
    }
  });
  std::printf("%s: %d scenarios, %llu executions: %s\n", proof.what, scenarios, static_cast<unsigned long long>(tried),
              passed ? "no fault" : "FAULT");
  std::fflush(stdout);
  return passed;
}

/// Returns whether the model checker refutes a weaker list in some scenario of at most three threads.
template <class Orders>
bool refute(const char* what) {
  std::uint64_t tried = 0;
  bool found = false;
  const auto attempt = [&](const auto& run, const std::vector<const char*>& choice) {
    for (const std::uint32_t listed : {1u, 2u}) {
      if (found) return;
      scenario = {choice, listed};
      std::string fault;
      if (run(fault)) continue;
      found = true;
      std::printf("%s: %s after %llu executions,", what, fault.c_str(), static_cast<unsigned long long>(tried));
      print_choice(listed, choice);
    }
  };
  for_each_choice(three_steps, 2, [&](const std::vector<const char*>& choice) {
    attempt([&](std::string& fault) { return holds<Orders, 2>({false, 3}, tried, fault); }, choice);
  });
  for_each_choice(two_steps, 3, [&](const std::vector<const char*>& choice) {
    attempt([&](std::string& fault) { return holds<Orders, 3>({false, 3}, tried, fault); }, choice);
  });
  if (!found) std::printf("%s: NO FAULT FOUND in %llu executions\n", what, static_cast<unsigned long long>(tried));
  std::fflush(stdout);
  return found;
}

bool refute_all() {
  bool all = true;
  all = refute<WeakPush>("push relaxed") && all;
  all = refute<WeakReadHead>("reading the head relaxed") && all;
  all = refute<WeakPop>("pop relaxed") && all;
  all = refute<NoTag>("no tag") && all;
  return all;
}

bool prove_short() {
  return prove<2>({"2 threads x 2 operations, exhaustive", two_steps, {0, 1, 2}, {true, 0}}) &&
         prove<3>({"3 threads x 2 operations, context bound 3", two_steps, {1}, {false, 3}}) &&
         prove<2, true>({"2 threads x 2 operations, a growing table, context bound 3", two_steps, {1}, {false, 3}});
}

bool prove_long() {
  return prove<2>({"2 threads x 3 operations, exhaustive", three_steps, {1}, {true, 0}}) &&
         prove<3>({"3 threads x 3 operations, context bound 3", three_steps, {1}, {false, 3}}) &&
         prove<2, true>({"2 threads x 3 operations, a growing table, context bound 3", three_steps, {1}, {false, 3}});
}

}  // namespace

int main(int argc, char** argv) {
  const std::string mode = argc == 2 ? argv[1] : "";
  if (mode == "short") return prove_short() ? 0 : 1;
  if (mode == "long") return prove_long() ? 0 : 1;
  if (mode == "weakened") return refute_all() ? 0 : 1;
  std::fprintf(stderr, "free_list_model: name one of short, long, weakened\n");
  return 2;
}
