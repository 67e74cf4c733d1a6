// Appends sums over channels. Several tasks can share one sum.
#pragma once

#include <algorithm>
#include <functional>
#include <memory>
#include <utility>
#include <vector>

#include "conv/caches/buffer_store.hpp"
#include "conv/caches/run_buffers.hpp"
#include "conv/caches/scratch.hpp"
#include "conv/spectra/frequency_product.hpp"
#include "convolume/scheduler.hpp"
#include "scheduler/sum_tree.hpp"

namespace convolume::conv {

/// A range of a sum's terms.
struct Terms {
  index_t begin, end;
};

/// Size of one of `sums` sums of `terms` terms. `bytes` is a multiple of sizeof(T).
struct SumSize {
  index_t terms, sums;
  std::size_t bytes;
};

/// Appends tasks that compute a sum with part(terms, sum) and pass the result to finish(sum). Returns the task after
/// which both are done.
///
/// If there are few sums of many terms, several tasks share each sum. The parts are added along a tree (ZNN's sums,
/// scheduler/sum_tree.hpp), and the task that completes the sum calls finish(). The number of parts depends only on
/// `size`, and so do the bits. A part begins at a multiple of terms_per_pass. So its sum has the same bits if it is
/// computed in one call or pass by pass. `options` do not count the scratch of the sum itself.
template <class T>
TaskId append_sum(TaskGraph& graph, const TaskOptions& options, const SumSize& size, std::pmr::memory_resource* memory,
                  Workspace* workspace, const std::function<void(Terms, T*)>& part,
                  const std::function<void(T*)>& finish, const std::vector<TaskId>& after) {
  constexpr index_t few = 8, most_parts = 8, least_terms = 2 * terms_per_pass;
  const index_t parts = size.sums < few ? std::min(most_parts, size.terms / least_terms) : 1;
  if (parts <= 1) {
    TaskOptions of_sum = options;
    of_sum.scratch_bytes += size.bytes;
    return graph.add(
        std::move(of_sum),
        [size, memory, part, finish] {
          Scratch scratch(memory, size.bytes);
          T* sum = scratch.take<T>(size.bytes);
          part({0, size.terms}, sum);
          finish(sum);
        },
        after);
  }
  const auto sums = make_store(memory, static_cast<std::size_t>(parts), size.bytes);
  const RunBuffers buffers(graph, workspace, sums);
  std::vector<TaskId> before = buffers.ready();
  before.insert(before.end(), after.begin(), after.end());
  const auto tree = std::make_shared<scheduler::SumTree<T>>(static_cast<std::size_t>(parts));
  // The previous run may have been cancelled while sums were left in the tree.
  const TaskId start = graph.add(
      {.name = "begin sum"}, [tree] { tree->reset(); }, before);
  const index_t passes = (size.terms + terms_per_pass - 1) / terms_per_pass;
  const auto bound = [&](index_t p) { return std::min(size.terms, passes * p / parts * terms_per_pass); };
  TaskOptions of_part = options;
  of_part.cost /= static_cast<double>(parts);
  std::vector<TaskId> tasks;
  for (index_t i = 0; i < parts; ++i) {
    tasks.push_back(graph.add(
        of_part,
        [i, terms = Terms{bound(i), bound(i + 1)}, size, part, finish, sums, tree] {
          T* sum = static_cast<T*>(sums->acquire(static_cast<std::size_t>(i)));
          part(terms, sum);
          const auto add = [&](T* left, const T* right) {
            for (std::size_t k = 0; k < size.bytes / sizeof(T); ++k) left[k] += right[k];
          };
          if (T* whole = tree->add(static_cast<std::size_t>(i), sum, add)) finish(whole);
        },
        std::vector{start}));
  }
  const TaskId done = graph.add(
      {.name = "end sum"}, [] {}, tasks);
  buffers.end(graph, "free sums", std::vector{done});
  return done;
}

}  // namespace convolume::conv
