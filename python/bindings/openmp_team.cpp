#include "python/bindings/openmp_team.hpp"

namespace convolume::python {

OpenMpTeam& OpenMpTeam::instance() {
  static OpenMpTeam& team = *new OpenMpTeam;  // never destroyed: schedulers use it until the process ends
  return team;
}

void OpenMpTeam::set_functions(std::uintptr_t parallel, std::uintptr_t thread_number) noexcept {
  if (parallel == 0 || thread_number == 0) {
    parallel_ = nullptr;  // thread_number_ stays: another thread may be about to call it
    return;
  }
  thread_number_ = reinterpret_cast<ThreadNumber>(thread_number);
  parallel_ = reinterpret_cast<Parallel>(parallel);
}

void OpenMpTeam::together(int threads, const std::function<void(int)>& job) noexcept {
  const Parallel parallel = parallel_;
  if (parallel == nullptr) return job(0);
  struct Region {
    const std::function<void(int)>& job;
    ThreadNumber number;
  } region{job, thread_number_};
  const auto body = [](void* data) {
    const auto& [work, number] = *static_cast<Region*>(data);
    work(number());
  };
  parallel(body, &region, static_cast<unsigned>(threads), 0);
}

OpenMpTeam::Use::Use(int threads) {
  OpenMpTeam& team = instance();
  // acquire: the schedulers of the team see what the caller before did.
  held_ = threads > 1 && team.parallel_.load() != nullptr && !team.used_.exchange(true, std::memory_order_acquire);
}

OpenMpTeam::Use::~Use() {
  if (held_) instance().used_.store(false, std::memory_order_release);
}

}  // namespace convolume::python
