#include "core/machine_row.hpp"

#include <algorithm>
#include <array>
#include <cmath>

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <toml++/toml.h>

#include "convolume/error.hpp"
#include "core/lazy.hpp"

namespace convolume {
namespace {

constexpr int format_version = 1;
// The rows whose shares others inherit: Intel processors, others with two units for vectors of 512 bits, and all
// others. Two such units double the peak, but transforms and products then wait for the caches.
constexpr const char* intel_share_row = "ice_lake_sp";
constexpr const char* wide_share_row = "zen5";
constexpr const char* share_row = "zen4";

/// SIMD targets, widest first, with the bytes of a vector.
struct TargetWidth {
  const char* name;
  double bytes;
};
constexpr std::array widths{TargetWidth{"AVX3", 64}, TargetWidth{"AVX2", 32},   TargetWidth{"SSE4", 16},
                            TargetWidth{"NEON", 16}, TargetWidth{"EMU128", 16}, TargetWidth{"SCALAR", 4}};

double bytes_of(std::string_view target) {
  for (const TargetWidth& width : widths) {
    if (target == width.name) return width.bytes;
  }
  return 16;
}

[[noreturn]] void refuse(const std::string& where, const std::string& field, const std::string& problem) {
  throw FormatError(fmt::format("{}: {}: {}", where, field, problem));
}

/// Reads one value: { value = ..., origin = "...", source = "..." }.
RowValue read_value(const toml::node& node, const RowField& field, const std::string& where, const std::string& name) {
  const toml::table* table = node.as_table();
  const auto value = table == nullptr ? std::nullopt : (*table)["value"].value<double>();
  if (!value) refuse(where, name, "write { value = NUMBER, origin = \"...\", source = \"...\" }");
  if (!std::isfinite(*value) || *value < field.least || *value > field.most) {
    refuse(where, name, fmt::format("is {}; valid are {} to {} {}", *value, field.least, field.most, field.unit));
  }
  const std::string origin = (*table)["origin"].value_or<std::string>("");
  const std::array origins{"measured", "public", "estimated", "inherited"};
  if (std::find(origins.begin(), origins.end(), origin) == origins.end()) {
    refuse(where, name + ".origin", fmt::format("is '{}'; valid are {}", origin, fmt::join(origins, ", ")));
  }
  return {*value, origin, (*table)["source"].value_or<std::string>("")};
}

RowValues read_values(const toml::table& table, bool of_target, const std::string& where, const std::string& section) {
  RowValues values;
  for (const auto& [key, node] : table) {
    const std::string name(key.str());
    const auto& fields = row_fields();
    const auto field = std::find_if(fields.begin(), fields.end(), [&](const RowField& candidate) {
      return candidate.of_target == of_target && name == candidate.name;
    });
    if (field == fields.end()) refuse(where, fmt::format("[{}] {}", section, name), "is not a field of this table");
    values[name] = read_value(node, *field, where, fmt::format("[{}] {}", section, name));
  }
  return values;
}

void require_fields(const RowValues& values, bool of_target, const std::string& where, const std::string& section) {
  for (const RowField& field : row_fields()) {
    if (field.of_target != of_target || !field.required || values.contains(field.name)) continue;
    refuse(where, fmt::format("[{}] {}", section, field.name), "is missing");
  }
}

/// Refuses lines whose keys are nested deeply. Each dot is a table in a table, and the parser has no limit for them.
void refuse_deep_keys(std::string_view text, const std::string& where) {
  constexpr int most_dots = 16;
  int line = 1, dots = 0;
  bool quoted = false;
  for (const char c : text) {
    if (c == '"') quoted = !quoted;
    if (c == '\n') {
      ++line;
      dots = 0;
      quoted = false;
    }
    if (!quoted && c == '.' && ++dots > most_dots) refuse(where, fmt::format("line {}", line), "has too many dots");
  }
}

unsigned read_number(const toml::node_view<const toml::node>& node, const std::string& where, const std::string& name) {
  const auto value = node.value<std::int64_t>();
  if (!value || *value < 0 || *value > 0xFFFFF) refuse(where, name, "is missing or not a number from 0 to 0xfffff");
  return static_cast<unsigned>(*value);
}

void read_cpu(const toml::table& cpu, const std::string& where, MachineRow& row) {
  const toml::node& node = cpu;
  const toml::node_view<const toml::node> view(&node);
  row.vendor = view["vendor"].value_or<std::string>("");
  if (!row.vendor.empty()) {
    row.family = read_number(view["family"], where, "[cpu] family");
    const toml::array* models = view["models"].as_array();
    if (models == nullptr || models->empty()) refuse(where, "[cpu] models", "is missing; write [[first, last], ...]");
    for (const toml::node& range : *models) {
      const toml::node_view<const toml::node> ends(&range);
      row.models.emplace_back(read_number(ends[0], where, "[cpu] models"), read_number(ends[1], where, "[cpu] models"));
      if (row.models.back().first > row.models.back().second) {
        refuse(where, "[cpu] models", "has a range that ends before it begins");
      }
    }
    return;
  }
  row.implementer = read_number(view["implementer"], where, "[cpu] vendor or implementer");
  const toml::array* parts = view["parts"].as_array();
  if (parts == nullptr || parts->empty()) refuse(where, "[cpu] parts", "is missing; write [part, ...]");
  for (const toml::node& part : *parts) {
    row.parts.push_back(read_number(toml::node_view<const toml::node>(&part), where, "[cpu] parts"));
  }
}

const MachineRow& row_named(std::string_view name) {
  for (const MachineRow& row : built_in_rows()) {
    if (row.name == name) return row;
  }
  throw InvalidArgument(fmt::format("machine: there is no built-in row '{}'", name));
}

/// Relatives of processors without a row of their own. The first line that fits counts. An empty vendor and an
/// empty target fit all.
struct Relative {
  const char* vendor;
  unsigned first_family, last_family;
  const char* widest;
  const char* row;
};
constexpr unsigned any = ~0u;
constexpr std::array relatives{
    Relative{"GenuineIntel", 0, any, "AVX3", "sapphire_rapids"},
    Relative{"GenuineIntel", 0, any, "AVX2", "alder_lake_p"},
    Relative{"AuthenticAMD", 0x1A, any, "AVX3", "zen5"},
    Relative{"AuthenticAMD", 0, any, "AVX3", "zen4"},
    Relative{"AuthenticAMD", 0x19, any, "", "zen3"},
    Relative{"AuthenticAMD", 0, any, "", "zen2"},
    Relative{"HygonGenuine", 0, any, "", "zen2"},
    Relative{"", 0, any, "AVX3", "skylake_sp"},
    Relative{"", 0, any, "AVX2", "haswell"},
    Relative{"", 0, any, "NEON", "neoverse_n1"},
    Relative{"", 0, any, "", "haswell"},
};

constexpr unsigned apple = 0x61;

/// Cores of the machines on which the constants of the models were fitted.
constexpr int fitted_cores = 2;

/// Not all cores wait for memory at once. Each gets this many times its part of the bandwidth of all.
constexpr double loading_cores = 2;

/// Returns the values of a target that a row does not have, from its next wider target, or from its widest one.
/// Multiplications and additions of targets below AVX2 are separate instructions.
RowValues narrowed(const RowValues& wider, const std::string& from, const std::string& target) {
  const double bytes = bytes_of(target), wide = bytes_of(from);
  const bool fused = target == "AVX2" || target == "NEON";
  RowValues values = wider;
  for (auto& [name, value] : values) value = {value.value, "inherited", fmt::format("{} of this row", from)};
  double& multiply_adds = values["fma_per_cycle"].value;
  if (bytes < wide && !fused) multiply_adds = std::max(1.0, multiply_adds / 2);
  if (bytes > wide) multiply_adds *= wide / bytes;  // the processor itself has no such vectors
  values["l1_load"].value = std::min(values["l1_load"].value, 2 * bytes);
  values["l1_store"].value = std::min(values["l1_store"].value, bytes);
  for (const char* level : {"l2_load", "l3_load"}) {
    values[level].value = std::min(values[level].value, values["l1_load"].value);
  }
  return values;
}

/// Adds the transfer prices that a row does not have, from its latencies and bandwidths. A jump loads half a line
/// before and half a line behind the run in vain.
void add_transfer_prices(RowValues& values) {
  constexpr double line = 64, element = 4;
  const double ghz = values.at("ghz").value;
  const auto add = [&](const std::string& level, const std::string& cycles, double gb_per_s) {
    const auto latency = values.find(cycles);
    const auto put = [&](const char* name, double ns) {
      values.try_emplace(level + name, RowValue{ns, "estimated", "latency and bandwidth of this row"});
    };
    if (latency != values.end()) put("_start", latency->second.value / (level == "memory" ? 1 : ghz));
    put("_jump", line / gb_per_s);
    put("_element", element / gb_per_s);
  };
  add("l2", "l2_cycles", ghz * values.at("l2_load").value);
  add("l3", "l3_cycles", ghz * values.at("l3_load").value);
  add("memory", "memory_ns", values.at("memory_gb_per_s").value);
}

/// Adds the rates of windows that a row does not have, from its own rates of tiles, or from those that it inherits.
void add_window_shares(RowValues& values, const RowValues& inherited) {
  constexpr double share = 0.72;  // fitted on a Zen 1, see docs/performance/log/toom_cook.md
  for (const char* kernel : {"_transform", "_product"}) {
    const std::string name = std::string("tile") + kernel;
    const RowValue& tile = values.contains(name) ? values.at(name) : inherited.at(name);
    values.try_emplace(std::string("window") + kernel,
                       RowValue{share * tile.value, "estimated", fmt::format("{} of tile{}", share, kernel)});
  }
}

}  // namespace

const std::vector<RowField>& row_fields() {
  static constinit Lazy<const std::vector<RowField>> fields;
  return fields.get([] {
    return std::vector<RowField>{
        {"ghz", "GHz", false, true, 0.1, 20},
        {"l1_kib", "KiB", false, true, 4, 4096},
        {"l2_kib", "KiB", false, true, 64, 1 << 20},
        {"l3_mib", "MiB", false, true, 0, 1 << 20},
        {"l3_cores", "cores", false, false, 1, 4096},
        {"usable_l2_kib", "KiB", false, false, 64, 1 << 20},
        {"usable_l3_mib", "MiB/core", false, false, 0, 1 << 20},
        {"memory_gb_per_s", "GB/s", false, true, 0.1, 1e5},
        {"memory_gb_per_s_of_all", "GB/s", false, true, 0.1, 1e6},
        {"fma_cycles", "cycles", false, false, 1, 100},
        {"l1_cycles", "cycles", false, false, 1, 100},
        {"l2_cycles", "cycles", false, false, 1, 1000},
        {"l3_cycles", "cycles", false, false, 1, 1000},
        {"memory_ns", "ns", false, false, 1, 10000},
        {"l2_start", "ns", false, false, 0, 1e4},
        {"l2_jump", "ns", false, false, 0, 1e4},
        {"l2_element", "ns", false, false, 1e-4, 100},
        {"l3_start", "ns", false, false, 0, 1e4},
        {"l3_jump", "ns", false, false, 0, 1e4},
        {"l3_element", "ns", false, false, 1e-4, 100},
        {"memory_start", "ns", false, false, 0, 1e5},
        {"memory_jump", "ns", false, false, 0, 1e5},
        {"memory_element", "ns", false, false, 1e-4, 100},
        {"task_ns", "ns", false, false, 1, 1e6},
        {"fma_per_cycle", "vectors/cycle", true, true, 0.1, 16},
        {"l1_load", "bytes/cycle", true, true, 1, 4096},
        {"l1_store", "bytes/cycle", true, true, 1, 4096},
        {"l2_load", "bytes/cycle", true, true, 1, 4096},
        {"l3_load", "bytes/cycle", true, true, 0.5, 4096},
        {"tile_transform", "of the FMA peak", true, false, 0.005, 1},
        {"spilled_tile_transform", "of the FMA peak", true, false, 0.005, 1},
        {"tile_product", "of the FMA peak", true, false, 0.005, 1},
        {"window_transform", "of the FMA peak", true, false, 0.005, 1},
        {"window_product", "of the FMA peak", true, false, 0.005, 1},
        {"direct", "of the FMA peak", true, false, 0.005, 1},
        {"depthwise", "of the FMA peak", true, false, 0.005, 1},
        {"volume_transform", "of the FMA peak", true, false, 0.005, 1},
        {"tile_cycles", "cycles", true, false, 0, 1000},
        {"transpose_ns", "ns", true, false, 0.01, 1000},
    };
  });
}

bool MachineRow::describes(const CpuIdentity& identity) const noexcept {
  if (!vendor.empty()) {
    return vendor == identity.vendor && family == identity.family &&
           std::any_of(models.begin(), models.end(), [&](const auto& range) {
             return range.first <= identity.model && identity.model <= range.second;
           });
  }
  return identity.vendor.empty() && implementer == identity.implementer &&
         std::find(parts.begin(), parts.end(), identity.part) != parts.end();
}

MachineRow parse_machine_row(std::string_view text, const std::string& where) {
  refuse_deep_keys(text, where);
  toml::table root;
  try {
    root = toml::parse(text);
  } catch (const toml::parse_error& error) {
    throw FormatError(fmt::format("{}: line {}: {}", where, error.source().begin.line, error.description()));
  }
  const auto version = root["format"].value<std::int64_t>();
  if (!version || *version != format_version) {
    refuse(where, "format",
           version ? fmt::format("is {}; this version reads {}", *version, format_version)
                   : std::string("is missing; this is not a machine row"));
  }
  MachineRow row{.name = root["name"].value_or<std::string>(""), .part = root["part"].value_or<std::string>("")};
  if (row.name.empty()) refuse(where, "name", "is missing");
  const toml::table *cpu = root["cpu"].as_table(), *common = root["common"].as_table();
  if (cpu == nullptr) refuse(where, "[cpu]", "is missing");
  if (common == nullptr) refuse(where, "[common]", "is missing");
  read_cpu(*cpu, where, row);
  row.common = read_values(*common, false, where, "common");
  require_fields(row.common, false, where, "common");
  for (const auto& [key, node] : root) {
    const std::string name(key.str());
    if (name == "format" || name == "name" || name == "part" || name == "cpu" || name == "common") continue;
    const bool known = std::any_of(widths.begin(), widths.end(), [&](const auto& width) { return name == width.name; });
    if (!known || !node.is_table()) refuse(where, name, "is not a field or a SIMD target");
    row.targets[name] = read_values(*node.as_table(), true, where, name);
    require_fields(row.targets[name], true, where, name);
  }
  if (row.targets.empty()) refuse(where, "[AVX2]", "is missing; a row has a table for at least one SIMD target");
  return row;
}

std::string to_text(const MachineRow& row) {
  const auto quoted = [](std::string text) {
    std::replace_if(
        text.begin(), text.end(), [](char c) { return c == '"' || c == '\\' || c < ' '; }, '\'');
    return fmt::format("\"{}\"", text);
  };
  const auto values = [&](const RowValues& of, bool of_target) {
    std::string text;
    for (const RowField& field : row_fields()) {
      const auto found = of.find(field.name);
      if (field.of_target != of_target || found == of.end()) continue;
      text += fmt::format("{} = {{ value = {}, origin = {}, source = {} }}\n", field.name, found->second.value,
                          quoted(found->second.origin), quoted(found->second.source));
    }
    return text;
  };
  std::string text =
      fmt::format("format = {}\nname = {}\npart = {}\n\n[cpu]\n", format_version, quoted(row.name), quoted(row.part));
  if (!row.vendor.empty()) {
    std::vector<std::string> ranges;
    for (const auto& [first, last] : row.models) ranges.push_back(fmt::format("[{:#x}, {:#x}]", first, last));
    text += fmt::format("vendor = {}\nfamily = {:#x}\nmodels = [{}]\n", quoted(row.vendor), row.family,
                        fmt::join(ranges, ", "));
  } else {
    text += fmt::format("implementer = {:#x}\nparts = [{:#x}]\n", row.implementer, fmt::join(row.parts, ", "));
  }
  text += "\n[common]\n" + values(row.common, false);
  for (const auto& [name, of] : row.targets) text += fmt::format("\n[{}]\n", name) + values(of, true);
  return text;
}

RowChoice choose_row(const CpuIdentity& identity, std::string_view widest) {
  for (const MachineRow& row : built_in_rows()) {
    if (row.describes(identity)) return {&row, fmt::format("row of this processor ({})", to_string(identity))};
  }
  const std::string reason = fmt::format("nearest relative of {}, which has no row", to_string(identity));
  if (identity.implementer == apple) return {&row_named("apple_m3"), reason};
  for (const Relative& relative : relatives) {
    const bool vendor = *relative.vendor == '\0' || identity.vendor == relative.vendor;
    const bool family = relative.first_family <= identity.family && identity.family <= relative.last_family;
    const bool target = *relative.widest == '\0' || widest == relative.widest;
    if (vendor && family && target) return {&row_named(relative.row), reason};
  }
  return {&built_in_rows().front(), reason};  // the last relative fits everything
}

RowValues values_of(const MachineRow& row, const std::string& target) {
  RowValues values = row.common;
  const auto own = row.targets.find(target);
  if (own != row.targets.end()) {
    values.insert(own->second.begin(), own->second.end());
  } else {
    // The next wider target that the row has, or its widest one.
    const double bytes = bytes_of(target);
    const std::pair<const std::string, RowValues>* from = nullptr;
    for (const auto& candidate : row.targets) {
      const double width = bytes_of(candidate.first);
      const bool better = from == nullptr || (width >= bytes && width < bytes_of(from->first));
      if (better) from = &candidate;
    }
    const RowValues narrow = narrowed(from->second, from->first, target);
    values.insert(narrow.begin(), narrow.end());
  }
  const bool two_wide_units = target == "AVX3" && values.at("fma_per_cycle").value > 1.5;
  const MachineRow& from = row_named(row.vendor == "GenuineIntel" ? intel_share_row
                                     : two_wide_units             ? wide_share_row
                                                                  : share_row);
  const std::string of_target = from.targets.contains(target) ? target : target == "AVX3" ? "AVX3" : "AVX2";
  const RowValues& shares = from.targets.at(of_target);
  const auto inherit = [&](const RowValues& others, const std::string& source) {
    for (const RowField& field : row_fields()) {
      const auto found = others.find(field.name);
      if (field.required || found == others.end() || values.contains(field.name)) continue;
      if (std::string_view(field.name).starts_with("usable")) continue;  // says something about one row's caches
      values[field.name] = {found->second.value, "inherited", source};
    }
  };
  add_window_shares(values, shares);
  inherit(shares, fmt::format("{}, {}", from.name, of_target));
  add_transfer_prices(values);
  // Not every row was measured completely. This row was.
  const MachineRow& complete = row_named(wide_share_row);
  inherit(complete.targets.at(complete.targets.contains(target) ? target : "AVX2"), complete.name);
  inherit(complete.common, complete.name);
  return values;
}

MachineModel model_of(const MachineRow& row, const std::string& target, const Topology* machine) {
  const RowValues values = values_of(row, target);
  const auto value = [&](const std::string& name) { return values.at(name).value; };
  // An L2 that several cores share counts in equal parts. An L3 counts as a whole.
  const auto cache = [&](const Topology::Cache Topology::*level, double of_row) {
    const long long own = machine == nullptr ? 0 : (machine->*level).bytes;
    const int cores = machine != nullptr && level == &Topology::l2 ? machine->l2.cores : 1;
    return own > 0 ? own / cores : static_cast<long long>(of_row);
  };
  const auto price = [&](const std::string& level) -> TransferPrice {
    return {1e-9 * value(level + "_start"), 1e-9 * value(level + "_jump"), 1e-9 * value(level + "_element")};
  };
  const auto usable = [&](const char* name, double unit, long long size) {
    return values.contains(name) ? std::min(size, static_cast<long long>(unit * value(name))) : size;
  };
  const double ghz = value("ghz");
  const int cores = machine == nullptr ? fitted_cores : machine->fast_cores();
  const auto sharing =
      machine != nullptr && machine->l3.bytes > 0 ? machine->l3.cores : static_cast<int>(value("l3_cores"));
  const long long l2 = cache(&Topology::l2, 1024 * value("l2_kib"));
  const long long l3 = cache(&Topology::l3, 1024 * 1024 * value("l3_mib"));
  const int l3_cores = std::min(cores, sharing);
  const std::array latencies{value("l1_cycles") / ghz, value("l2_cycles") / ghz, value("l3_cycles") / ghz,
                             value("memory_ns")};
  return {.row = fmt::format("{}/{}", row.name, target),
          .l1_bytes = cache(&Topology::l1, 1024 * value("l1_kib")),
          .l2_bytes = l2,
          .l3_bytes = l3,
          .usable_l2_bytes = usable("usable_l2_kib", 1024, l2),
          .usable_l3_bytes = usable("usable_l3_mib", 1024.0 * 1024 * l3_cores, l3),
          .cores = cores,
          .l3_cores = l3_cores,
          .ghz = ghz,
          .gflops_per_core = ghz * value("fma_per_cycle") * 2 * bytes_of(target) / 4,
          .l1_gb_per_s = ghz * value("l1_load"),
          .l2_gb_per_s = ghz * value("l2_load"),
          .l3_gb_per_s = ghz * value("l3_load"),
          .dram_gb_per_s = std::min(value("memory_gb_per_s"), loading_cores * value("memory_gb_per_s_of_all") / cores),
          .dram_gb_per_s_of_all = value("memory_gb_per_s_of_all"),
          .latency_ns = latencies,
          .tile_transform_share = value("tile_transform"),
          .spilled_tile_transform_share = value("spilled_tile_transform"),
          .tile_product_share = value("tile_product"),
          .window_transform_share = value("window_transform"),
          .window_product_share = value("window_product"),
          .direct_share = value("direct"),
          .depthwise_share = value("depthwise"),
          .volume_transform_share = value("volume_transform"),
          .issue = {.multiply_adds = value("fma_per_cycle"),
                    .loads = value("l1_load") / bytes_of(target),
                    .latency = value("fma_cycles"),
                    .tile = value("tile_cycles")},
          .transfers = {price("l2"), price("l3"), price("memory")},
          .task_s = 1e-9 * value("task_ns"),
          .transpose_s = 1e-9 * value("transpose_ns")};
}

void TransferPrice::validate() const {
  const auto check = [](const char* name, double value) {
    if (!(value > 0) || !std::isfinite(value)) {
      throw InvalidArgument(fmt::format("transfer price {} = {}: prices are positive numbers", name, value));
    }
  };
  check("start (C)", start);
  check("jump (p)", jump);
  check("element (t)", element);
}

}  // namespace convolume
