// The table of machine rows: how they are written, which one a processor gets, and the model that follows from it. See
// docs/machines.md for the format.
#pragma once

#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "convolume/machine.hpp"
#include "core/cpu_identity.hpp"
#include "core/topology.hpp"

namespace convolume {

/// A number of a row, and where it comes from.
struct RowValue {
  double value = 0;
  std::string origin, source;
};
using RowValues = std::map<std::string, RowValue>;

struct MachineRow {
  std::string name, part;
  std::string vendor{};  ///< x86: with family and models
  unsigned family = 0;
  std::vector<std::pair<unsigned, unsigned>> models{};  ///< ranges, both ends included
  unsigned implementer = 0;                             ///< ARM: with parts
  std::vector<unsigned> parts{};
  RowValues common{};                          ///< values for every SIMD target
  std::map<std::string, RowValues> targets{};  ///< by name of the SIMD target

  bool describes(const CpuIdentity& identity) const noexcept;
};

/// Reads a row. `where` names the text in messages. Throws FormatError that names `where`, the field, the value and
/// what is valid.
MachineRow parse_machine_row(std::string_view text, const std::string& where);
/// Writes the text that parse_machine_row() reads.
std::string to_text(const MachineRow& row);

/// Returns all built-in rows, sorted by name.
const std::vector<MachineRow>& built_in_rows();

/// Holds a row and the reason for which it was chosen.
struct RowChoice {
  const MachineRow* row;
  std::string reason;
};
/// Returns the row of a processor. A processor without a row gets its nearest relative, from a table of vendors,
/// families and the widest SIMD target. `widest` is the best target that the processor supports.
RowChoice choose_row(const CpuIdentity& identity, std::string_view widest);

/// Returns the values of a row for a SIMD target. A value that the row does not have is inherited: shares from the row
/// zen4, zen5 or ice_lake_sp, rates of narrower targets from the next wider one.
RowValues values_of(const MachineRow& row, const std::string& target);

/// Returns the model of a row for a SIMD target. The cache sizes come from `machine`. If it is null, or
/// does not know a size, they come from the row.
MachineModel model_of(const MachineRow& row, const std::string& target, const Topology* machine);

/// The fields of rows in their order, with units.
struct RowField {
  const char* name;
  const char* unit;
  bool of_target;      ///< belongs to a SIMD target, not to the whole row
  bool required;       ///< of a row (or of its widest target)
  double least, most;  ///< valid range
};
const std::vector<RowField>& row_fields();

}  // namespace convolume
