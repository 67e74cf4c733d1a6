// Selects a row of the table of machines, for tests of choices, which differ between machines.
#pragma once

#include <string>

#include "convolume/machine.hpp"

namespace convolume::test {

/// Selects a built-in row as long as it lives, and this machine afterwards, whatever CONVOLUME_MACHINE says.
class SelectedRow {
 public:
  explicit SelectedRow(const std::string& name) { select_machine(name); }
  SelectedRow(const SelectedRow&) = delete;
  SelectedRow& operator=(const SelectedRow&) = delete;
  ~SelectedRow() { select_machine(""); }
};

}  // namespace convolume::test
