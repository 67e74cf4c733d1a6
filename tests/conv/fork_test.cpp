// Tests a child of fork(): it convolves, transforms and allocates on its own thread, whatever the threads of its parent
// were doing. Not for builds with sanitizers: those do not allow a child of a process with several threads to go on.
#include <atomic>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <thread>

#include "testing/conv_case.hpp"
#include <catch2/catch.hpp>
#include <fmt/format.h>
#include <sys/wait.h>
#include <unistd.h>

#include "convolume/error.hpp"
#include "convolume/fft.hpp"

using namespace convolume;

namespace {

/// The name of the environment variable that makes this program the child of the last test.
constexpr const char* first_call = "CONVOLUME_TEST_FIRST_CALL";

/// Convolutions by several engines, and a transform, with the results that they have in the parent.
class Work {
 public:
  explicit Work(int threads) : scheduler_(threads) {
    for (const auto& [problem, engine] :
         {std::pair("ic16id12oc16kd3pd1", Engine::toom_cook), std::pair("ic8id17oc8kd5", Engine::fft_tiled),
          std::pair("ic3id9oc5kd3pd1", Engine::direct)}) {
      layers_.emplace_back(parse_problem(problem), engine);
    }
    for (Layer& layer : layers_) layer.wanted = compute(layer);
    wanted_spectrum_ = transform(x_);
  }

  /// Computes everything again, with plans from before, with a new plan, and with a new scheduler. Returns whether all
  /// bits are the same.
  bool same_again() {
    for (const Layer& layer : layers_) {
      if (!test::same_bits(compute(layer), layer.wanted)) return false;
    }
    const Layer fresh(layers_[1].plan.problem(), Engine::fft_tiled);
    Scheduler another(3);
    return test::same_bits(compute(fresh, &another), layers_[1].wanted) && transform(x_) == wanted_spectrum_;
  }

 private:
  struct Layer {
    Layer(const ConvProblem& problem, Engine engine)
        : plan(ConvPlan::make(problem, {.engine = engine})),
          x(test::random_tensor<float>(problem.x_shape(), 1)),
          w(test::random_tensor<float>(problem.w_shape(), 2)) {}
    ConvPlan plan;
    Tensor<float> x, w, wanted{};
  };

  Tensor<float> compute(const Layer& layer, Scheduler* scheduler = nullptr) {
    auto y = test::poisoned<float>(layer.plan.problem().y_shape());
    layer.plan.forward({scheduler != nullptr ? *scheduler : scheduler_, &memory_},
                       {.x = layer.x, .w = layer.w, .y = y});
    return y;
  }

  /// Makes a plan, so that it uses the cache of plans. The length changes, so that plans are also made.
  std::vector<float> transform(const std::vector<float>& x) {
    static std::atomic<int> calls{0};
    const index_t length = 16 + calls++ % 40;
    fft::Plan::make({.extent = {1, 8, length}});
    const fft::Plan plan = fft::Plan::make({.extent = {1, 8, 8}, .unaligned = true});
    std::vector<float> spectrum(plan.spectrum_bytes() / sizeof(float));
    const std::size_t bytes = plan.scratch_bytes();
    void* scratch = memory_.allocate(bytes, 64);
    plan.execute(x.data(), spectrum.data(), scratch);
    memory_.deallocate(scratch, bytes, 64);
    return spectrum;
  }

  SlabResource memory_;
  Scheduler scheduler_;
  std::vector<Layer> layers_;
  std::vector<float> x_ = std::vector<float>(64, 0.5f), wanted_spectrum_;
};

/// Forks, and runs `body` in the child, which has ten seconds. Returns what waitpid() reports: 0 if body() was true.
int status_of_child(bool ends_at_once, const std::function<bool()>& body) {
  std::fflush(nullptr);
  const pid_t child = ::fork();
  REQUIRE(child >= 0);
  if (child == 0) {
    ::alarm(10);
    const int status = body() ? 0 : 1;
    if (ends_at_once) ::_exit(status);
    std::exit(status);
  }
  int status = -1;
  REQUIRE(::waitpid(child, &status, 0) == child);
  return status;
}

}  // namespace

TEST_CASE("a child of a process whose threads convolve, transform and allocate does the same with the same bits") {
  std::atomic<bool> end{false}, wrong{false};
  std::vector<std::thread> threads;
  for (int i = 0; i < 4; ++i) {
    threads.emplace_back([&, i] {
      Work work(1 + i % 3);
      while (!end) {
        if (!work.same_again()) wrong = true;
      }
    });
  }
  Work work(2);
  for (int i = 0; i < 300 && !wrong; ++i) {
    CAPTURE(i);
    const int status = status_of_child(i % 2 == 0, [&] { return work.same_again(); });
    if (status != 0) wrong = true;
    CHECK(status == 0);
  }
  CHECK(work.same_again());
  end = true;
  for (auto& thread : threads) thread.join();
  CHECK(!wrong);
}

TEST_CASE("a process forks after the constructor of a resource has failed, and while resources come and go") {
  CHECK_THROWS_AS(SlabResource({.upstream = nullptr}), InvalidArgument);
  std::atomic<bool> end{false};
  std::thread other([&] {
    while (!end) SlabResource memory;
  });
  for (int i = 0; i < 50; ++i) {
    CHECK(status_of_child(true, [] {
            SlabResource memory;
            memory.deallocate(memory.allocate(64, 64), 64, 64);
            return true;
          }) == 0);
  }
  end = true;
  other.join();
}

TEST_CASE("a child that ends by exit runs its handlers, flushes its output, and keeps its status") {
  Work work(2);  // it uses helper threads
  int ends[2];
  REQUIRE(::pipe(ends) == 0);
  std::fflush(nullptr);
  const pid_t child = ::fork();
  REQUIRE(child >= 0);
  if (child == 0) {
    ::alarm(10);
    ::dup2(ends[1], STDOUT_FILENO);
    std::atexit([] { std::printf("handler"); });
    std::printf("output ");
    std::exit(7);
  }
  ::close(ends[1]);
  std::string text(64, ' ');
  std::size_t size = 0;
  for (ssize_t got; (got = ::read(ends[0], text.data() + size, text.size() - size)) > 0;)
    size += static_cast<std::size_t>(got);
  ::close(ends[0]);
  int status = -1;
  REQUIRE(::waitpid(child, &status, 0) == child);
  CHECK(text.substr(0, size) == "output handler");
  CHECK((WIFEXITED(status) && WEXITSTATUS(status) == 7));
}

TEST_CASE("a child of a child computes as well") {
  Work work(2);
  CHECK(status_of_child(true, [&] {
          return work.same_again() && status_of_child(true, [&] { return work.same_again(); }) == 0;
        }) == 0);
}

TEST_CASE("a child that is forked in the middle of the first call of its process computes as well", "[first]") {
  if (std::getenv(first_call) == nullptr) {
    // Each try is a new process, and forks a little later than the one before.
    for (int i = 0; i < 24; ++i) {
      CAPTURE(i);
      CHECK(
          std::system(fmt::format("{}={} timeout 60 /proc/{}/exe '[first]' >/dev/null", first_call, i * 150, ::getpid())
                          .c_str()) == 0);
    }
    return;
  }
  std::thread first([] { Work(2).same_again(); });
  ::usleep(static_cast<useconds_t>(std::atoi(std::getenv(first_call))));
  const int status = status_of_child(true, [] { return Work(2).same_again(); });
  first.join();
  CHECK(status == 0);
}
