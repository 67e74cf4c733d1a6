#include "nets/io/csv.hpp"

#include <algorithm>

#include <fmt/format.h>

#include "convolume/error.hpp"

namespace convolume::nets::io {
namespace {

class CsvParser {
 public:
  CsvParser(std::string_view text, const std::string& origin) : text_(text), origin_(origin) {
    constexpr std::string_view byte_order_mark = "\xEF\xBB\xBF";
    if (text_.starts_with(byte_order_mark)) text_.remove_prefix(byte_order_mark.size());
  }

  std::vector<CsvRow> run() {
    std::vector<CsvRow> rows;
    while (!text_.empty()) {
      if (end_of_line()) continue;
      CsvRow row{.fields = {}, .line = line_};
      do row.fields.push_back(text_.starts_with('"') ? quoted() : plain());
      while (taken(','));
      if (!text_.empty() && !end_of_line()) fail("a quoted field is followed by text; double the quotes inside of it");
      rows.push_back(std::move(row));
    }
    return rows;
  }

 private:
  [[noreturn]] void fail(const char* message) const {
    throw FormatError(fmt::format("{}:{}: {}", origin_, line_, message));
  }
  bool taken(char c) {
    if (!text_.starts_with(c)) return false;
    text_.remove_prefix(1);
    return true;
  }
  bool end_of_line() {
    if (!text_.starts_with('\n') && !text_.starts_with("\r\n")) return false;
    text_.remove_prefix(text_.front() == '\n' ? 1 : 2);
    ++line_;
    return true;
  }

  std::string plain() {
    std::size_t end = std::min(text_.find_first_of(",\n"), text_.size());
    if (end < text_.size() && text_[end] == '\n' && end > 0 && text_[end - 1] == '\r') --end;
    const std::string field(text_.substr(0, end));
    if (field.find('"') != field.npos) fail("a quote stands inside of a field; quote the whole field, and double it");
    text_.remove_prefix(end);
    return field;
  }

  /// Reads a field in quotes, in which two quotes stand for one.
  std::string quoted() {
    std::string field;
    text_.remove_prefix(1);
    while (true) {
      const std::size_t end = text_.find('"');
      if (end == text_.npos) fail("a quoted field does not end; add the closing quote");
      for (const char c : text_.substr(0, end)) line_ += c == '\n';
      field += text_.substr(0, end);
      text_.remove_prefix(end + 1);
      if (!taken('"')) return field;
      field += '"';
    }
  }

  std::string_view text_;
  const std::string& origin_;
  int line_ = 1;
};

}  // namespace

std::vector<CsvRow> parse_csv(std::string_view text, const std::string& origin) {
  return CsvParser(text, origin).run();
}

std::string csv_line(const std::vector<std::string>& fields) {
  std::string line;
  for (const std::string& field : fields) {
    if (&field != &fields.front()) line += ',';
    if (field.find_first_of(",\"\r\n") == field.npos) {
      line += field;
      continue;
    }
    line += '"';
    for (const char c : field) line += c == '"' ? std::string("\"\"") : std::string(1, c);
    line += '"';
  }
  return line + "\n";
}

}  // namespace convolume::nets::io
