#include "core/machine_row.hpp"

#include <cmath>
#include <fstream>

#include "testing/temporary_folder.hpp"
#include <catch2/catch.hpp>

#include "convolume/cpu.hpp"
#include "convolume/error.hpp"

using namespace convolume;

namespace {

const MachineRow& row(const std::string& name) {
  for (const MachineRow& candidate : built_in_rows()) {
    if (candidate.name == name) return candidate;
  }
  throw InvalidArgument(name);
}

std::string replaced(std::string text, const std::string& from, const std::string& to) {
  const std::size_t at = text.find(from);
  REQUIRE(at != std::string::npos);
  return text.replace(at, from.size(), to);
}

/// Returns a row that describes this processor.
MachineRow row_of_this_processor() {
  MachineRow mine = row("zen4");
  const CpuIdentity& identity = cpu_identity();
  mine.name = "mine";
  mine.vendor = identity.vendor;
  mine.family = identity.family;
  mine.models = {{identity.model, identity.model}};
  mine.implementer = identity.implementer;
  mine.parts = {identity.part};
  return mine;
}

}  // namespace

TEST_CASE("every built-in row has a model for every SIMD target, with positive values") {
  REQUIRE(built_in_rows().size() >= 15);
  for (const MachineRow& candidate : built_in_rows()) {
    for (const char* target : {"AVX3", "AVX2", "SSE4", "NEON", "EMU128", "SCALAR"}) {
      CAPTURE(candidate.name, target);
      const MachineModel model = model_of(candidate, target, nullptr);
      CHECK(model.row == candidate.name + "/" + target);
      for (const double value :
           {model.ghz, model.gflops_per_core, model.l1_gb_per_s, model.l2_gb_per_s, model.l3_gb_per_s,
            model.dram_gb_per_s, model.dram_gb_per_s_of_all, model.tile_transform_share, model.direct_share}) {
        CHECK(std::isfinite(value));
        CHECK(value > 0);
      }
      CHECK(model.l1_bytes < model.l2_bytes);
      CHECK(model.l1_gb_per_s >= model.l2_gb_per_s);
      CHECK(model.l2_gb_per_s >= model.l3_gb_per_s);
      CHECK(model.dram_gb_per_s_of_all >= model.dram_gb_per_s);
      CHECK(model.latency_ns[0] > 0);
      CHECK(std::is_sorted(model.latency_ns.begin(), model.latency_ns.end()));
    }
  }
}

TEST_CASE("a wider SIMD target than the processor has does not raise the peak") {
  for (const MachineRow& candidate : built_in_rows()) {
    const double own =
        std::max(model_of(candidate, "AVX2", nullptr).gflops_per_core,
                 candidate.targets.contains("AVX3") ? model_of(candidate, "AVX3", nullptr).gflops_per_core : 0);
    CAPTURE(candidate.name);
    CHECK(model_of(candidate, "AVX3", nullptr).gflops_per_core <= own * (1 + 1e-12));
    CHECK(model_of(candidate, "SSE4", nullptr).gflops_per_core <= own * (1 + 1e-12));
  }
  CHECK(model_of(row("haswell"), "AVX3", nullptr).gflops_per_core ==
        model_of(row("haswell"), "AVX2", nullptr).gflops_per_core);
}

TEST_CASE("no two built-in rows have a name or a model in common, and sources are whole") {
  for (const MachineRow& a : built_in_rows()) {
    for (const MachineRow& b : built_in_rows()) {
      if (&a == &b) continue;
      CAPTURE(a.name, b.name);
      CHECK(a.name != b.name);
      if (a.vendor != b.vendor || a.family != b.family || a.vendor.empty()) continue;
      for (const auto& x : a.models) {
        for (const auto& y : b.models) CHECK((x.second < y.first || y.second < x.first));
      }
    }
    for (const auto& [name, value] : a.common) CHECK(!value.source.ends_with("..."));
  }
}

TEST_CASE("the row of Zen 4 has the values that were measured") {
  const MachineModel wide = model_of(row("zen4"), "AVX3", nullptr), narrow = model_of(row("zen4"), "AVX2", nullptr);
  CHECK(wide.gflops_per_core == Approx(117));
  CHECK(wide.l2_gb_per_s == Approx(117));
  CHECK(wide.l3_gb_per_s == Approx(98));
  CHECK(narrow.gflops_per_core == Approx(117));
  CHECK(narrow.l2_gb_per_s == Approx(100));
  CHECK(narrow.l3_gb_per_s == Approx(90));
  CHECK(wide.l3_bytes == 32 << 20);
}

TEST_CASE("processors get their own row, or that of their nearest relative") {
  const auto name = [](const CpuIdentity& identity, const char* widest) {
    return choose_row(identity, widest).row->name;
  };
  CHECK(name({.vendor = "AuthenticAMD", .family = 0x19, .model = 0x11}, "AVX3") == "zen4");
  CHECK(name({.vendor = "AuthenticAMD", .family = 0x19, .model = 0x01}, "AVX2") == "zen3");
  CHECK(name({.vendor = "AuthenticAMD", .family = 0x1A, .model = 0x02}, "AVX3") == "zen5");
  CHECK(name({.vendor = "GenuineIntel", .family = 6, .model = 106}, "AVX3") == "ice_lake_sp");
  CHECK(name({.vendor = "GenuineIntel", .family = 6, .model = 85}, "AVX3") == "skylake_sp");
  CHECK(name({.vendor = "GenuineIntel", .family = 6, .model = 143}, "AVX3") == "sapphire_rapids");
  CHECK(name({.vendor = "GenuineIntel", .family = 6, .model = 207}, "AVX3") == "emerald_rapids");
  CHECK(name({.vendor = "", .implementer = 0x41, .part = 0xd40}, "NEON") == "neoverse_v1");
  // Relatives.
  CHECK(name({.vendor = "AuthenticAMD", .family = 0x1B, .model = 1}, "AVX3") == "zen5");
  CHECK(name({.vendor = "AuthenticAMD", .family = 0x19, .model = 0xF0}, "AVX3") == "zen4");
  CHECK(name({.vendor = "GenuineIntel", .family = 19, .model = 1}, "AVX3") == "sapphire_rapids");
  CHECK(name({.vendor = "GenuineIntel", .family = 6, .model = 0xFE}, "AVX2") == "alder_lake_p");
  CHECK(name({.vendor = "Unheard Of", .family = 1, .model = 1}, "SSE4") == "haswell");
  CHECK(name({.implementer = 0x61, .part = 0xFFF}, "NEON") == "apple_m3");
  CHECK_THAT(choose_row({.vendor = "GenuineIntel", .family = 19, .model = 1}, "AVX3").reason,
             Catch::Contains("relative") && Catch::Contains("0x13"));
}

TEST_CASE("a model has the caches of the machine, and those of the row where they are unknown") {
  const Topology machine = synthetic_topology("node:1 l3:1(size=8388608) l2:2(size=524288) core:1 pu:1");
  const MachineModel model = model_of(row("zen4"), "AVX3", &machine);
  CHECK(model.l3_bytes == 8 << 20);
  CHECK(model.l2_bytes == 512 << 10);
  CHECK(model.l1_bytes == 32 << 10);
}

TEST_CASE("cost models count on the caches that a row states as usable, but never on more than the machine has") {
  MachineRow stated = row("zen4");
  const MachineModel whole = model_of(stated, "AVX3", nullptr);
  CHECK(whole.usable_l2_bytes == whole.l2_bytes);
  CHECK(whole.usable_l3_bytes == whole.l3_bytes);
  stated.common["usable_l2_kib"] = {640, "estimated", "test"};
  stated.common["usable_l3_mib"] = {5, "estimated", "test"};
  const MachineModel part = model_of(stated, "AVX3", nullptr);
  CHECK(part.l2_bytes == 1 << 20);
  CHECK(part.l3_bytes == 32 << 20);
  CHECK(part.usable_l2_bytes == 640 << 10);
  CHECK(part.usable_l3_bytes == 2 * (5 << 20));  // of two cores
  const Topology small = synthetic_topology("node:1 l3:1(size=8388608) l2:2(size=524288) core:1 pu:1");
  const MachineModel capped = model_of(stated, "AVX3", &small);
  CHECK(capped.usable_l2_bytes == 512 << 10);
  CHECK(capped.usable_l3_bytes == 8 << 20);
}

TEST_CASE("a model has the cores of the machine, which share the L3 and the memory; efficiency cores do not count") {
  const MachineModel pair = model_of(row("zen5"), "AVX3", nullptr);
  CHECK(pair.cores == 2);
  CHECK(pair.l3_cores == 2);
  const Topology large = synthetic_topology("node:2 l3:4(size=33554432) l2:8(size=1048576) core:1 pu:2");
  const MachineModel many = model_of(row("zen5"), "AVX3", &large);
  CHECK(many.cores == 64);
  CHECK(many.l3_cores == 8);
  CHECK(many.dram_gb_per_s == Approx(2 * 480.0 / 64));
  CHECK(pair.dram_gb_per_s == Approx(42.04));
  Topology hybrid = synthetic_topology("node:1 l3:1(size=33554432) l2:6(size=1048576) core:1 pu:1");
  for (std::size_t i = 2; i < 6; ++i) hybrid.cores[i].efficiency = true;
  CHECK(model_of(row("zen5"), "AVX3", &hybrid).cores == 2);
  CHECK(model_of(row("zen5"), "AVX3", &hybrid).l3_cores == 2);
}

TEST_CASE("a row that was measured on an unidentified processor describes unidentified processors only") {
  MachineRow unknown = row("neoverse_n1");
  unknown.implementer = 0;
  unknown.parts = {0};
  const MachineRow again = parse_machine_row(to_text(unknown), "unknown.toml");
  CHECK(again.describes(CpuIdentity{}));
  CHECK_FALSE(again.describes({.implementer = 0x41, .part = 0xd0c}));
  CHECK_FALSE(again.describes({.vendor = "AuthenticAMD"}));
  CHECK_FALSE(row("neoverse_n1").describes(CpuIdentity{}));
}

TEST_CASE("a row survives writing and reading") {
  for (const MachineRow& candidate : built_in_rows()) {
    const MachineRow again = parse_machine_row(to_text(candidate), "again");
    CHECK(again.name == candidate.name);
    CHECK(again.models == candidate.models);
    CHECK(again.parts == candidate.parts);
    for (const char* target : {"AVX3", "AVX2", "SSE4"}) {
      CHECK(model_of(again, target, nullptr).gflops_per_core == model_of(candidate, target, nullptr).gflops_per_core);
      CHECK(model_of(again, target, nullptr).l3_gb_per_s == model_of(candidate, target, nullptr).l3_gb_per_s);
    }
  }
}

TEST_CASE("a file that was saved before rows had rates of windows gets them from its rates of tiles") {
  std::ifstream file(CONVOLUME_SOURCE_DIR "/tests/core/older/machine_row.toml");
  const std::string text((std::istreambuf_iterator<char>(file)), {});
  REQUIRE_THAT(text, !Catch::Contains("window_"));
  const MachineRow older = parse_machine_row(text, "machine_row.toml");
  const MachineModel model = model_of(older, "AVX2", nullptr);
  CHECK(model.window_transform_share == Approx(0.72 * model.tile_transform_share));
  CHECK(model.window_product_share == Approx(0.72 * model.tile_product_share));
  CHECK(values_of(older, "AVX2").at("window_product").origin == "estimated");
}

TEST_CASE("a row that states rates of windows keeps them, and its narrower SIMD targets inherit them") {
  MachineRow stated = row("zen4");
  for (auto& [target, values] : stated.targets) values["window_product"] = {0.5, "measured", "test"};
  const MachineRow again = parse_machine_row(to_text(stated), "stated.toml");
  for (const char* target : {"AVX3", "AVX2", "SSE4"}) {
    CAPTURE(target);
    CHECK(model_of(again, target, nullptr).window_product_share == 0.5);
  }
}

TEST_CASE("a damaged row is refused with the name of the field") {
  const std::string good = to_text(row("zen4"));
  const auto message = [](const std::string& text) -> std::string {
    try {
      static_cast<void>(parse_machine_row(text, "a.toml"));
    } catch (const FormatError& error) {
      return error.what();
    }
    return "accepted";
  };
  CHECK_THAT(message(replaced(good, "format = 1", "format = 2")), Catch::Contains("a.toml: format: is 2"));
  CHECK_THAT(message(replaced(good, "format = 1\n", "")), Catch::Contains("format: is missing"));
  CHECK_THAT(message(replaced(good, "ghz", "gigahertz")), Catch::Contains("[common] gigahertz"));
  CHECK_THAT(message(replaced(good, "ghz = { value = ", "ghz = { value = -")), Catch::Contains("[common] ghz: is -"));
  CHECK_THAT(message(replaced(good, "[AVX3]", "[AVX9]")), Catch::Contains("AVX9"));
  CHECK_THAT(message(replaced(good, "vendor", "seller")), Catch::Contains("[cpu]"));
  CHECK_THAT(message(replaced(good, "origin = \"measured\"", "origin = \"felt\"")), Catch::Contains("felt"));
  CHECK_THAT(message(good.substr(0, good.size() / 2)), Catch::Contains("a.toml"));
  CHECK_THAT(message(replaced(good, "models = [[0x10, 0x1f]", "models = [[0x1f, 0x10]")), Catch::Contains("models"));
  CHECK_THAT(message(good + "\na.a.a.a.a.a.a.a.a.a.a.a.a.a.a.a.a.a.a.a = 1\n"), Catch::Contains("dots"));
  CHECK_THAT(message(""), Catch::Contains("format: is missing"));
}

TEST_CASE("a machine is selected by the name of a row, or by a file for this processor") {
  const std::string before = machine_model().row;
  select_machine("zen5");
  CHECK(machine_model().row == "zen5/" + simd_target());
  CHECK(machine_model().l3_bytes == 32 << 20);  // a named row brings its caches
  CHECK_THROWS_WITH(select_machine("zen17"), Catch::Contains("zen17") && Catch::Contains("neoverse_v1"));
  CHECK(machine_model().row == "zen5/" + simd_target());  // the selection stays

  const test::TemporaryFolder folder;
  const std::string file = folder.path() / "row.toml";
  // An emulator may hide the processor. No file describes an unknown one.
  if (cpu_identity() != CpuIdentity{}) {
    std::ofstream(file) << to_text(row_of_this_processor());
    select_machine(file);
    CHECK(machine_model().row == "mine/" + simd_target());
    CHECK_THAT(machine_reason(), Catch::Contains(file));
  }

  const std::string name = cpu_identity().vendor == "AuthenticAMD" ? "skylake_sp" : "zen4";
  std::ofstream(file) << to_text(row(name));
  CHECK_THROWS_WITH(select_machine(file), Catch::Contains("[cpu]") && Catch::Contains("another processor"));
  select_machine("");
  CHECK(machine_model().row == before);
}

TEST_CASE("every value of the row in use names its unit and its origin") {
  const auto values = machine_values();
  std::size_t missing = 0;
  for (const RowField& field : row_fields()) {
    CAPTURE(field.name);
    const bool found =
        std::any_of(values.begin(), values.end(), [&](const MachineValue& v) { return v.name == field.name; });
    missing += found ? 0 : 1;
    // A row states what it can use of a cache only if that is less than its size.
    CHECK((found || std::string_view(field.name).starts_with("usable")));
  }
  CHECK(values.size() + missing == row_fields().size());
  for (const MachineValue& value : values) {
    CAPTURE(value.name);
    CHECK(!value.unit.empty());
    CHECK(!value.origin.empty());
    CHECK(!value.source.empty());
  }
}
