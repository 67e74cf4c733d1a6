# Writes OUTPUT, a source file with the texts of the machine rows in FILES.
set(texts "")
foreach(file IN LISTS FILES)
  file(READ ${file} text)
  string(APPEND texts "    R\"toml(${text})toml\",\n")
endforeach()
file(WRITE ${OUTPUT} "// Made from src/core/machines/*.toml.
#include \"core/machine_row.hpp\"

#include <algorithm>

#include \"core/lazy.hpp\"

namespace convolume {
namespace {

const char* const texts[] = {
${texts}};

}  // namespace

const std::vector<MachineRow>& built_in_rows() {
  static constinit Lazy<const std::vector<MachineRow>> rows;
  return rows.get([] {
    std::vector<MachineRow> all;
    for (const char* text : texts) all.push_back(parse_machine_row(text, \"built-in machine row\"));
    std::sort(all.begin(), all.end(), [](const MachineRow& a, const MachineRow& b) { return a.name < b.name; });
    return all;
  });
}

}  // namespace convolume
")
