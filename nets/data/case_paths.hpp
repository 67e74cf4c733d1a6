// Finds the files that the paths of a data set name.
#pragma once

#include <filesystem>
#include <vector>

#include "nets/data/dataset_spec.hpp"

namespace convolume::nets {

/// Reads the keys image, label, mask, cases and not_cases of a table, and returns one case, or one per text that a `*`
/// stands for, in the order of these texts. In "dir/*.png" the star stands for the slices of one volume, as it does in
/// "dir/*.tif" if these files have one page; in all other paths it stands for cases. Throws ConfigError with line, key
/// and remedy.
std::vector<CaseSpec> read_case_paths(TomlTable& table, const std::filesystem::path& directory);

}  // namespace convolume::nets
