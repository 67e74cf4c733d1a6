#include "nets/data/class_cases.hpp"

#include <algorithm>
#include <set>

#include <fmt/format.h>

#include "convolume/error.hpp"
#include "core/files.hpp"
#include "core/json.hpp"
#include "nets/data/case_paths.hpp"
#include "nets/io/array_source.hpp"
#include "nets/io/csv.hpp"

namespace convolume::nets {
namespace {

namespace fs = std::filesystem;

constexpr const char* by_folder = "folder";
constexpr std::ptrdiff_t most_stars = 8;

/// Returns the path relative to the folder of the data file, without "." and "..".
std::string relative_name(const std::string& path, const fs::path& directory) {
  return fs::absolute(path).lexically_normal().lexically_relative(fs::absolute(directory).lexically_normal()).string();
}

/// Returns whether a name matches a pattern, and adds what its stars stand for: from the left, as little as possible.
bool matches(std::string_view name, std::string_view pattern, std::vector<std::string>& texts) {
  const std::size_t first = pattern.find('*'), last = pattern.rfind('*');
  if (first == pattern.npos) return name == pattern;
  const std::string_view end = pattern.substr(last + 1);
  if (!name.starts_with(pattern.substr(0, first)) || (first == 0 && name.starts_with("."))) return false;
  std::size_t at = first;  // where the text of the current star begins
  for (std::size_t star = first; star < last;) {
    const std::size_t next = pattern.find('*', star + 1);
    const std::string_view between = pattern.substr(star + 1, next - star - 1);
    const std::size_t found = name.find(between, at + 1);
    if (found == name.npos) return false;
    texts.emplace_back(name.substr(at, found - at));
    at = found + between.size();
    star = next;
  }
  if (name.size() < at + 1 + end.size() || !name.ends_with(end)) return false;
  texts.emplace_back(name.substr(at, name.size() - end.size() - at));
  return true;
}

/// A file that a pattern matches, and what its stars stand for.
struct Match {
  std::string path;
  std::vector<std::string> texts;
};

/// Adds the matches of the components [begin, end) of a pattern in a folder.
void find(const fs::path& folder, fs::path::iterator begin, const fs::path::iterator& end,
          std::vector<std::string>& texts, std::vector<Match>& found) {
  if (begin == end) {
    std::error_code error;
    if (fs::exists(folder, error)) found.push_back({folder.string(), texts});
    return;
  }
  const std::string pattern = begin->string();
  const auto next = std::next(begin);
  if (pattern.find('*') == pattern.npos) return find(folder / pattern, next, end, texts, found);
  std::error_code error;
  const bool is_folder = fs::is_directory(folder, error);
  const bool absent = error == std::errc::no_such_file_or_directory || error == std::errc::not_a_directory;
  if (!is_folder && (!error || absent)) return;  // the name of a file matches that of a folder
  for (fs::directory_iterator at(folder, error), last; !error && at != last; at.increment(error)) {
    const std::size_t before = texts.size();
    if (matches(at->path().filename().string(), pattern, texts)) find(at->path(), next, end, texts, found);
    texts.resize(before);
  }
  // A folder that is left out would be a class that is lost.
  if (error) {
    throw IoError(fmt::format("{}: cannot be listed ({}); allow reading it", folder.string(), error.message()));
  }
}

std::vector<Match> find_images(const TomlTable& t, const std::string& path) {
  if (io::is_array_path(path)) return {{path, {}}};
  if (std::count(path.begin(), path.end(), '*') > most_stars) {
    t.fail(fmt::format("'{}' has more than {} stars; use fewer", path, most_stars), "image");
  }
  const io::VolumePath whole = io::split_volume_path(path);
  std::vector<Match> found;
  std::vector<std::string> texts;
  find("", whole.file.begin(), whole.file.end(), texts, found);
  for (Match& match : found) match.path = io::VolumePath{match.path, whole.inside}.text();
  std::sort(found.begin(), found.end(), [](const Match& a, const Match& b) { return a.path < b.path; });
  if (found.empty()) t.fail(fmt::format("'{}' matches no file; correct the path", path), "image");
  return found;
}

/// Returns a path whose stars are replaced by the texts of a match.
std::string with_texts(const TomlTable& t, const std::string& path, const Match& match) {
  std::string result;
  std::size_t used = 0;
  for (const char c : path) {
    if (c != '*') {
      result += c;
      continue;
    }
    if (used < match.texts.size()) result += match.texts[used];
    ++used;
  }
  if (used != match.texts.size()) {
    t.fail(fmt::format("'{}': the number of stars is {}, but that of the first image is {}; use as many", path, used,
                       match.texts.size()),
           "image");
  }
  return result;
}

}  // namespace

ClassTable::ClassTable(TomlTable& label, const fs::path& directory) {
  const std::string of = label.text("class_of");
  if (of == by_folder) return;
  if (!of.ends_with(".csv")) {
    label.fail(
        fmt::format("'{}' is no table; use \"{}\", or a file \"NAME.csv\" with the header case,class", of, by_folder),
        "class_of");
  }
  file_ = expand_path(label, "class_of", of, directory);
  read_table(file_);
}

void ClassTable::read_table(const fs::path& file) {
  const auto rows = io::parse_csv(read_file(file, std::size_t{1} << 28), file_);
  if (rows.empty() || rows.front().fields != std::vector<std::string>{"case", "class"}) {
    fail_at(file_, 1, "the first line must be case,class");
  }
  if (rows.size() == 1) fail_at(file_, rows.front().line, "there is a header only; add a line for each case");
  for (std::size_t i = 1; i < rows.size(); ++i) {
    const io::CsvRow& row = rows[i];
    if (row.fields.size() != 2 || row.fields[0].empty() || row.fields[1].empty()) {
      fail_at(file_, row.line, "must be a case and its class; quote texts that hold commas");
    }
    const std::string name = fs::path(row.fields[0]).lexically_normal().string();
    if (!classes_.emplace(name, row.fields[1]).second) {
      fail_at(file_, row.line, fmt::format("the case '{}' has a class already; keep one line", name));
    }
  }
}

std::string ClassTable::class_of(const TomlTable& table, const std::string& name, const std::string& image) const {
  if (!file_.empty()) {
    if (const auto found = classes_.find(name); found != classes_.end()) return found->second;
    table.fail(fmt::format("the case '{}' has no class in {}; add it, or name it in not_cases", name, file_), "image");
  }
  const fs::path file = fs::absolute(io::split_volume_path(image).file).lexically_normal();
  const std::string folder = file.parent_path().filename().string();
  if (!io::is_array_path(image) && !folder.empty()) return folder;
  table.fail(
      fmt::format("'{}' lies in no folder that could name its class; use a table with class_of = \"NAME.csv\"", image),
      "image");
}

std::vector<CaseSpec> read_class_cases(TomlTable& t, const fs::path& directory, const ClassTable& classes) {
  for (const char* key : {"label", "mask"}) {
    if (t.has(key)) t.fail("the case has a class, by [label] class_of; leave this key, or class_of, out", key);
  }
  const std::vector<std::string> paths = read_image_paths(t, directory);
  std::vector<CaseSpec> all;
  std::vector<std::string> names;
  for (const Match& match : find_images(t, paths.front())) {
    CaseSpec one{.name = relative_name(match.path, directory), .image = {match.path}, .label = {}, .mask = {}};
    for (std::size_t i = 1; i < paths.size(); ++i) one.image.push_back(with_texts(t, paths[i], match));
    names.push_back(one.name);
    all.push_back(std::move(one));
  }
  std::sort(names.begin(), names.end());
  const std::set<std::string> kept = chosen_cases(t, names, [](const std::string& name) { return name; });
  std::erase_if(all, [&](const CaseSpec& one) { return !kept.contains(one.name); });
  for (CaseSpec& one : all) one.class_name = classes.class_of(t, one.name, one.image.front());
  return all;
}

void number_classes(DatasetSpec& spec) {
  std::set<std::string> trained, all;
  for (const CaseSpec& one : spec.train) trained.insert(one.class_name);
  for (const CaseSpec& one : spec.validation) all.insert(one.class_name);
  all.insert(trained.begin(), trained.end());
  const bool listed = !spec.class_names.empty();
  if (!listed) spec.class_names.assign(all.begin(), all.end());
  const auto fail = [&](const std::string& message) {
    throw ConfigError(fmt::format("data set '{}' ({}): {}", spec.name, spec.file, message));
  };
  if (spec.class_names.size() < 2) {
    fail(fmt::format("{} the class '{}'; a classifier needs two classes at least",
                     listed ? "[label] classes lists only" : "all cases have", spec.class_names.front()));
  }
  for (const std::string& name : spec.class_names) {
    if (is_utf8(name)) continue;
    fail(fmt::format("the class '{}' is not UTF-8; save the table as UTF-8, or rename the folder", name));
  }
  for (const std::string& name : spec.class_names) {
    if (!trained.contains(name)) {
      fail(fmt::format("the class '{}' has no training case, so it cannot be learned; add one, or leave the class out",
                       name));
    }
  }
  for (auto* list : {&spec.train, &spec.validation}) {
    for (CaseSpec& one : *list) {
      const auto found = std::find(spec.class_names.begin(), spec.class_names.end(), one.class_name);
      if (found == spec.class_names.end()) {
        fail_at(spec.file, one.line,
                fmt::format("the case '{}' has the class '{}', which [label] classes does not list; add it, or name "
                            "the case in not_cases",
                            one.name, one.class_name));
      }
      one.class_number = found - spec.class_names.begin();
    }
  }
}

}  // namespace convolume::nets
