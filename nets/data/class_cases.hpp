// Finds the images of a data set whose cases have classes, and the class of each.
#pragma once

#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "nets/data/dataset_spec.hpp"

namespace convolume::nets {

/// Says which class a case has: `[label] class_of`.
class ClassTable {
 public:
  /// Reads the key. "folder" means the folder that holds the first image. Any other text is the path of a CSV table
  /// with the header "case,class". Throws ConfigError, and FormatError or IoError for the table.
  ClassTable(TomlTable& label, const std::filesystem::path& directory);

  /// Returns the class of a case. Its name is the path of its first image relative to the data file. Throws ConfigError
  /// at the key `image` of `table` if it has none.
  std::string class_of(const TomlTable& table, const std::string& name, const std::string& image) const;

 private:
  void read_table(const std::filesystem::path& file);

  std::string file_;  // empty: the folder
  std::map<std::string, std::string> classes_;
};

/// Reads the keys image, cases and not_cases of a table, and returns its cases with their classes, in the order of
/// their names. Each `*` stands for any text, of one character at least, within the name of a file or folder. In
/// further images the stars stand for the same texts, one by one. Throws ConfigError with line, key and remedy.
std::vector<CaseSpec> read_class_cases(TomlTable& table, const std::filesystem::path& directory,
                                       const ClassTable& classes);

/// Numbers the classes of all cases: in the order of `class_names`, or in byte order if there are none, and sets
/// `class_names`. Throws ConfigError for fewer than two classes, a class that is not listed, and a class without a
/// training case.
void number_classes(DatasetSpec& spec);

}  // namespace convolume::nets
