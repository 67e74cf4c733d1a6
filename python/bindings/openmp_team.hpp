// Helper threads from the OpenMP library that another package has loaded.
#pragma once

#include <atomic>
#include <cstdint>

#include "convolume/scheduler.hpp"

namespace convolume::python {

/// The threads of GNU OpenMP, or of a library with its interface, such as LLVM's. Nothing is linked: the functions are
/// found in the loaded file. OpenMP makes a team for each thread that opens a region, so one caller at a time uses this
/// object; see Use.
class OpenMpTeam final : public HelperPool {
 public:
  static OpenMpTeam& instance();

  /// Sets the addresses of GOMP_parallel and omp_get_thread_num. 0 means that there is no team.
  void set_functions(std::uintptr_t parallel, std::uintptr_t thread_number) noexcept;
  void together(int threads, const std::function<void(int)>& job) noexcept override;

  /// The use of the team by a caller, for the lifetime of this object.
  class Use {
   public:
    /// Calls on one thread need no team.
    explicit Use(int threads);
    ~Use();
    Use(const Use&) = delete;
    Use& operator=(const Use&) = delete;
    /// Returns whether this caller has the team: it needs one, there is one, and no other caller uses it.
    explicit operator bool() const noexcept { return held_; }

   private:
    bool held_ = false;
  };

 private:
  using Parallel = void (*)(void (*)(void*), void*, unsigned, unsigned);
  using ThreadNumber = int (*)();

  std::atomic<Parallel> parallel_{nullptr};
  std::atomic<ThreadNumber> thread_number_{nullptr};
  std::atomic<bool> used_{false};
};

}  // namespace convolume::python
