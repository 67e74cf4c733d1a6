// The extension module convolume._core. The package in python/convolume is what users import.
#include "python/bindings/errors.hpp"
#include "python/bindings/nets.hpp"
#include "python/bindings/plan.hpp"
#include "python/bindings/runtime.hpp"
#include "python/bindings/transforms.hpp"
#include <nanobind/nanobind.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include "convolume/cpu.hpp"
#include "convolume/machine.hpp"
#include "convolume/version.hpp"
#include "convolume/wisdom.hpp"

namespace nb = nanobind;
using convolume::WisdomStore;
using convolume::python::Computation;
using convolume::python::OpenMpTeam;
using convolume::python::Runtime;

NB_MODULE(_core, m) {
  // Globals of scripts may live until the process ends, for example a graph of autograd that keeps spectra.
  nb::set_leak_warnings(false);
  convolume::python::add_errors(m);
  convolume::python::add_plans(m);
  convolume::python::add_transforms(m);
  convolume::python::add_nets(m);
  Runtime::get();  // these are made here, because a child of fork() must not find them half made
  OpenMpTeam::instance();
  nb::module_::import_("atexit").attr("register")(nb::cpp_function(Computation::refuse_and_wait));
  m.def("available_cpus", convolume::available_cpus);
  m.def("version", [] { return std::string(convolume::version()); });
  m.def("simd_target", convolume::simd_target);
  m.def("available_simd_targets", convolume::available_simd_targets);
  m.def("machine_row", [] { return convolume::machine_model().row; });
  m.def("machine_rates", [] {
    const convolume::MachineModel& machine = convolume::machine_model();
    nb::dict rates;
    rates["cores"] = machine.cores;
    rates["gflops_per_core"] = machine.gflops_per_core;
    return rates;
  });
  m.def(
      "find_wisdom", [](const std::string& key) { return WisdomStore(WisdomStore::default_path()).find(key); },
      nb::arg("key"));
  m.def(
      "store_wisdom",
      [](const std::string& key, const std::string& value) {
        WisdomStore(WisdomStore::default_path()).store(key, value);
      },
      nb::arg("key"), nb::arg("value"));
  m.def("cpu_name", convolume::cpu_name);
  m.def("tasking_version", convolume::tasking_version);
  m.def("threads", [] { return Runtime::get().threads(); });
  m.def(
      "set_threads", [](int threads) { Runtime::get().set_threads(threads); }, nb::arg("threads"));
  m.def("exchange_thread_local", Runtime::exchange_thread_local, nb::arg("threads"));
  m.def(
      "use_openmp",
      [](std::uintptr_t parallel, std::uintptr_t thread_number) {
        OpenMpTeam::instance().set_functions(parallel, thread_number);
      },
      nb::arg("parallel"), nb::arg("thread_number"));
  m.def("forget_computations", Computation::forget);
  m.def("trim", [] {
    const Computation computation;
    return Runtime::get().memory().trim();
  });
  m.def("statistics", [] {
    const auto& counters = Runtime::get().counters();
    const convolume::SlabStatistics memory = Runtime::get().memory().statistics();
    nb::dict all;
    all["calls"] = counters.calls.load();
    all["team_calls"] = counters.team_calls.load();
    all["plans"] = counters.plans.load();
    all["copies"] = counters.copies.load();
    all["copied_bytes"] = counters.copied_bytes.load();
    all["live_bytes"] = memory.live_bytes;
    all["peak_bytes"] = memory.peak_bytes;
    all["held_bytes"] = memory.upstream_bytes;
    return all;
  });
}
