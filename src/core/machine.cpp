#include "convolume/machine.hpp"

#include <cstdlib>
#include <filesystem>
#include <optional>

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <xxhash.h>

#include "convolume/cpu.hpp"
#include "convolume/error.hpp"
#include "core/files.hpp"
#include "core/fork.hpp"
#include "core/instruction_set.hpp"
#include "core/lazy.hpp"
#include "core/machine_row.hpp"

namespace convolume {
namespace {

/// A machine that somebody selected. `row` points to a built-in row or to `from_file`.
struct Selected {
  std::optional<MachineRow> from_file{};
  const MachineRow* row = nullptr;
  std::string reason{};
  bool own_caches = false;
};

Selected named(const std::string& name_or_file) {
  for (const MachineRow& row : built_in_rows()) {
    if (row.name == name_or_file) return {.row = &row, .reason = "selected by name"};
  }
  const std::filesystem::path file(name_or_file);
  std::error_code error;
  if (!std::filesystem::is_regular_file(file, error)) {
    throw InvalidArgument(
        fmt::format("machine '{}': there is neither a file nor a built-in row of this name; the rows are {}",
                    name_or_file, fmt::join(machine_rows(), ", ")));
  }
  constexpr std::size_t most_bytes = 64 << 10;
  Selected selected{.from_file = parse_machine_row(read_file(file, most_bytes), name_or_file),
                    .reason = fmt::format("selected file {}", name_or_file),
                    .own_caches = true};
  if (!selected.from_file->describes(cpu_identity())) {
    throw FormatError(
        fmt::format("{}: [cpu]: the file describes another processor than this one ({}); measure this one with "
                    "'convolume machine --save FILE'",
                    name_or_file, to_string(cpu_identity())));
  }
  return selected;
}

/// The machine in use, and the models that follow from it, by SIMD target. ForkLock::machine guards all members.
class Machine {
 public:
  void select(const std::string& name_or_file) {
    Selected selected = name_or_file.empty() ? here() : named(name_or_file);
    const std::lock_guard lock(fork_lock(ForkLock::machine));
    selected_ = std::move(selected);
    ++selection_;
  }

  const MachineModel& model() {
    const std::string target = simd_target();
    const std::lock_guard lock(fork_lock(ForkLock::machine));
    const Selected& selected = current();
    const std::pair key(selection_, target);
    const auto found = models_.find(key);
    if (found != models_.end()) return found->second;
    return models_.emplace(key, model_of(row(selected), target, selected.own_caches ? &topology() : nullptr))
        .first->second;
  }

  RowValues values() {
    const std::lock_guard lock(fork_lock(ForkLock::machine));
    return values_of(row(current()), simd_target());
  }
  MachineRow row_in_use() {
    const std::lock_guard lock(fork_lock(ForkLock::machine));
    return row(current());
  }
  std::string reason() {
    const std::lock_guard lock(fork_lock(ForkLock::machine));
    return current().reason;
  }

 private:
  static const MachineRow& row(const Selected& selected) {
    return selected.from_file ? *selected.from_file : *selected.row;
  }
  static Selected here() {
    const RowChoice choice = choose_row(cpu_identity(), widest_simd_target());
    return {.row = choice.row, .reason = choice.reason, .own_caches = true};
  }
  /// Applies CONVOLUME_MACHINE at the first use. The caller holds the lock.
  const Selected& current() {
    if (!selected_) {
      constexpr const char* variable = "CONVOLUME_MACHINE: ";
      const char* name = std::getenv("CONVOLUME_MACHINE");
      try {
        selected_ = name == nullptr || *name == '\0' ? here() : named(name);
      } catch (const FormatError& error) {
        throw FormatError(std::string(variable) + error.what());
      } catch (const IoError& error) {
        throw IoError(std::string(variable) + error.what());
      } catch (const InvalidArgument& error) {
        throw InvalidArgument(std::string(variable) + error.what());
      }
    }
    return *selected_;
  }

  std::optional<Selected> selected_;
  int selection_ = 0;  // counts selections
  // Models are never removed, because callers keep references to them.
  std::map<std::pair<int, std::string>, MachineModel> models_;
};

Machine& machine() {
  static constinit Lazy<Machine> instance;
  return instance.get([] { return Machine(); });
}

}  // namespace

const MachineModel& machine_model() { return machine().model(); }

void select_machine(const std::string& name_or_file) { machine().select(name_or_file); }

std::vector<std::string> machine_rows() {
  std::vector<std::string> names;
  for (const MachineRow& row : built_in_rows()) names.push_back(row.name);
  return names;
}

std::vector<MachineValue> machine_values() {
  const RowValues values = machine().values();
  std::vector<MachineValue> listed;
  for (const RowField& field : row_fields()) {
    const auto found = values.find(field.name);
    if (found == values.end()) continue;
    listed.push_back({field.name, found->second.value, field.unit, found->second.origin, found->second.source});
  }
  return listed;
}

std::string machine_row_text() {
  MachineRow row = machine().row_in_use();
  const CpuIdentity& identity = cpu_identity();
  row.vendor = identity.vendor;
  row.family = identity.family;
  row.models = {{identity.model, identity.model}};
  row.implementer = identity.implementer;
  row.parts = {identity.part};
  const MachineRow complete = row;
  for (const std::string& target : available_simd_targets()) {
    RowValues values = values_of(complete, target);
    for (const RowField& field : row_fields()) {
      if (!field.of_target) values.erase(field.name);
    }
    row.targets[target] = std::move(values);
  }
  return to_text(row);
}

std::string machine_digest() {
  const MachineModel& model = machine_model();
  std::string text =
      fmt::format("{} {} {} {} {}", model.l1_bytes, model.l2_bytes, model.l3_bytes, model.cores, model.l3_cores);
  for (const MachineValue& value : machine_values()) text += fmt::format(" {} {}", value.name, value.value);
  return fmt::format("{:016x}", XXH3_64bits(text.data(), text.size()));
}

std::string machine_reason() { return machine().reason(); }

}  // namespace convolume
