// Finds the files that the paths of a data set name.
#pragma once

#include <filesystem>
#include <functional>
#include <set>
#include <string>
#include <vector>

#include "nets/data/dataset_spec.hpp"

namespace convolume::nets {

/// Reads the keys image, label, mask, cases and not_cases of a table, and returns one case, or one per text that a `*`
/// stands for, in the order of these texts. In "dir/*.png" the star stands for the slices of one volume, as it does in
/// "dir/*.tif" if these files have one page; in all other paths it stands for cases. Throws ConfigError with line, key
/// and remedy.
std::vector<CaseSpec> read_case_paths(TomlTable& table, const std::filesystem::path& directory);

/// Replaces "${NAME}" by the environment variable in a path, the value of a key. Relative paths are relative to the
/// folder of the description. Throws ConfigError.
std::string expand_path(TomlTable& table, const std::string& key, const std::string& value,
                        const std::filesystem::path& directory);
/// Reads the key `image`: a path, or one path per channel. Throws ConfigError.
std::vector<std::string> read_image_paths(TomlTable& table, const std::filesystem::path& directory);
/// Reads the keys cases and not_cases, and returns which of the found cases remain. `found` is sorted and not empty.
/// `path_of` returns the path of a case for messages. Throws ConfigError.
std::set<std::string> chosen_cases(TomlTable& table, const std::vector<std::string>& found,
                                   const std::function<std::string(const std::string&)>& path_of);

}  // namespace convolume::nets
