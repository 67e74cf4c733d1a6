#include "nets/data/case_paths.hpp"

#include <algorithm>
#include <cstdlib>
#include <set>

#include <fmt/format.h>

#include "nets/io/array_source.hpp"
#include "nets/io/volume_source.hpp"

namespace convolume::nets {
namespace {

namespace fs = std::filesystem;

/// A path with a star that stands for cases.
struct Pattern {
  fs::path folder;            ///< that holds the names with the star
  std::string before, after;  ///< of the star, within the name
  std::string rest;           ///< what follows the name: folders, a file, ":/dataset"
  /// Returns the path of a case.
  std::string with(const std::string& text) const { return (folder / (before + text + after)).string() + rest; }
};

Pattern split(const std::string& path, std::size_t star) {
  const std::size_t slash = path.rfind('/', star);
  std::size_t end = path.find('/', star);
  const std::size_t colon = path.find(":/", star);
  end = std::min({end, colon, path.size()});
  Pattern pattern;
  pattern.folder = slash == std::string::npos ? fs::path(".") : fs::path(path.substr(0, slash + 1));
  const std::size_t name = slash == std::string::npos ? 0 : slash + 1;
  pattern.before = path.substr(name, star - name);
  pattern.after = path.substr(star + 1, end - star - 1);
  pattern.rest = path.substr(end);
  return pattern;
}

/// Returns whether a path names something. Of a path with a star, the folder counts.
bool exists(const std::string& path) {
  fs::path file = io::split_volume_path(path).file;
  if (file.filename().string().find('*') != std::string::npos) file = file.parent_path();
  std::error_code error;
  return fs::exists(file, error);
}

/// Returns what the star stands for in the names of a folder, in order.
std::vector<std::string> matches(TomlTable& t, const std::string& key, const Pattern& pattern) {
  std::vector<std::string> texts;
  std::error_code error;
  for (const auto& entry : fs::directory_iterator(pattern.folder, error)) {
    const std::string name = entry.path().filename().string();
    if (name.size() <= pattern.before.size() + pattern.after.size()) continue;
    if (name.starts_with(".") && !pattern.before.starts_with(".")) continue;
    if (!name.starts_with(pattern.before) || !name.ends_with(pattern.after)) continue;
    const std::string text =
        name.substr(pattern.before.size(), name.size() - pattern.before.size() - pattern.after.size());
    if (pattern.rest.empty() || exists(pattern.with(text))) texts.push_back(text);
  }
  if (error) t.fail(fmt::format("{}: {}", pattern.folder.string(), error.message()), key);
  std::sort(texts.begin(), texts.end());
  return texts;
}

/// Returns whether the only star of a path stands for the slices of one volume.
bool names_slices(TomlTable& t, const std::string& key, const std::string& path, std::size_t star) {
  const std::string extension = fs::path(path).extension().string();
  if (path.find('/', star) != std::string::npos) return false;
  if (extension == ".png") return true;
  if (extension != ".tif" && extension != ".tiff") return false;
  if (t.has("cases") || t.has("not_cases")) return false;
  const Pattern pattern = split(path, star);
  const auto texts = matches(t, key, pattern);
  return !texts.empty() && io::open_volume(pattern.with(texts.front()))->info().extent.z == 1;
}

/// A path of a table, and the star in it that stands for cases, if there is one.
struct Entry {
  std::string key, path;
  std::optional<Pattern> pattern{};
};

Entry make_entry(TomlTable& t, const std::string& key, const std::string& value, const fs::path& directory) {
  Entry entry{key, expand_path(t, key, value, directory)};
  const auto stars = std::count(entry.path.begin(), entry.path.end(), '*');
  if (stars == 0) return entry;
  const std::size_t star = entry.path.find('*');
  if (stars > 2 || (stars == 2 && entry.path.find('/', star) > entry.path.rfind('*'))) {
    t.fail(fmt::format("'{}' has {} stars; use one for the cases, and one more in the name of slices", value, stars),
           key);
  }
  if (stars == 1 && names_slices(t, key, entry.path, star)) return entry;
  entry.pattern = split(entry.path, star);
  return entry;
}

/// Returns the names of the cases, without those that `cases` and `not_cases` leave out.
std::set<std::string> case_names(TomlTable& t, const Entry& first) {
  const auto found = matches(t, first.key, *first.pattern);
  if (found.empty()) t.fail(fmt::format("'{}' matches no file; correct the path", first.path), first.key);
  return chosen_cases(t, found, [&](const std::string& name) { return first.pattern->with(name); });
}

std::vector<std::string> image_texts(TomlTable& t) {
  if (t.is_text("image") || !t.has("image")) return {t.text("image")};
  const std::vector<std::string> images = t.texts("image");
  if (images.empty()) t.fail("the list is empty; name a file per channel", "image");
  return images;
}

std::vector<Entry> read_entries(TomlTable& t, const fs::path& directory) {
  std::vector<Entry> entries;
  for (const std::string& image : image_texts(t)) entries.push_back(make_entry(t, "image", image, directory));
  entries.push_back(make_entry(t, "label", t.text("label"), directory));
  if (t.has("mask")) entries.push_back(make_entry(t, "mask", t.text("mask"), directory));
  return entries;
}

CaseSpec make_case(TomlTable& t, const std::vector<Entry>& entries, const std::string& name) {
  CaseSpec one{.name = name, .image = {}, .label = {}, .mask = {}};
  for (const Entry& entry : entries) {
    const std::string path = entry.pattern ? entry.pattern->with(name) : entry.path;
    if (entry.pattern) {
      if (!exists(path)) {
        t.fail(fmt::format("there is no {} for the case '{}'; add the file, or name the case in not_cases",
                           io::split_volume_path(path).file.string(), name),
               entry.key);
      }
    }
    if (entry.key == "image") {
      one.image.push_back(path);
    } else {
      (entry.key == "label" ? one.label : one.mask) = path;
    }
  }
  return one;
}

}  // namespace

std::string expand_path(TomlTable& t, const std::string& key, const std::string& value, const fs::path& directory) {
  if (io::is_array_path(value)) return value;
  std::string result;
  std::size_t at = 0;
  for (std::size_t begin = value.find("${"); begin != std::string::npos; begin = value.find("${", at)) {
    const std::size_t end = value.find('}', begin);
    if (end == std::string::npos) t.fail("'" + value + "': a '${' is not closed; add a '}'", key);
    const std::string name = value.substr(begin + 2, end - begin - 2);
    const char* variable = std::getenv(name.c_str());
    if (variable == nullptr) {
      t.fail(fmt::format("the environment variable {} is not set; set it to the folder that holds '{}'", name,
                         value.substr(end + 1)),
             key);
    }
    // The variable's value is inserted as it is: a "${" in the value is not expanded again.
    result += value.substr(at, begin - at) + variable;
    at = end + 1;
  }
  result += value.substr(at);
  const fs::path path(result);
  return path.is_absolute() ? result : (directory / path).string();
}

std::vector<std::string> read_image_paths(TomlTable& t, const fs::path& directory) {
  std::vector<std::string> paths;
  for (const std::string& image : image_texts(t)) paths.push_back(expand_path(t, "image", image, directory));
  return paths;
}

std::set<std::string> chosen_cases(TomlTable& t, const std::vector<std::string>& found,
                                   const std::function<std::string(const std::string&)>& path_of) {
  const auto known = [&](const char* key) {
    const auto list = t.texts(key);
    for (const std::string& name : list) {
      if (std::binary_search(found.begin(), found.end(), name)) continue;
      t.fail(fmt::format("'{}' is no case: there is no {}; the first one is '{}'", name, path_of(name), found.front()),
             key);
    }
    return std::set<std::string>(list.begin(), list.end());
  };
  const std::set<std::string> only = known("cases"), without = known("not_cases");
  std::set<std::string> names;
  for (const std::string& name : found) {
    if ((only.empty() || only.contains(name)) && !without.contains(name)) names.insert(name);
  }
  if (names.empty()) t.fail("no case is left; shorten the list", "not_cases");
  return names;
}

std::vector<CaseSpec> read_case_paths(TomlTable& t, const fs::path& directory) {
  const std::vector<Entry> entries = read_entries(t, directory);
  const Entry* star = nullptr;
  for (const Entry& entry : entries) {
    if (entry.pattern && star == nullptr) star = &entry;
  }
  if (star == nullptr) {
    for (const char* key : {"cases", "not_cases"}) {
      if (t.has(key)) t.fail("it is for paths with a '*'; leave it out", key);
    }
    return {make_case(t, entries, io::split_volume_path(entries.front().path).file.filename().string())};
  }
  for (const Entry& entry : entries) {
    if (entry.pattern) continue;
    t.fail(fmt::format("'{}' has no '*' for the case, but '{}' has one; use a star in both", entry.path, star->path),
           entry.key);
  }
  std::vector<CaseSpec> cases;
  for (const std::string& name : case_names(t, *star)) cases.push_back(make_case(t, entries, name));
  return cases;
}

}  // namespace convolume::nets
