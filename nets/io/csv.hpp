// Reads and writes tables of texts: comma-separated values with the quotes of RFC 4180, in UTF-8.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace convolume::nets::io {

struct CsvRow {
  std::vector<std::string> fields;
  int line = 0;  ///< on which the row begins, from 1; a quoted field may hold line breaks
};

/// Reads all rows, the header included. Lines end with LF or CR LF. Empty lines and a byte order mark at the begin are
/// left out. Throws FormatError naming `origin` and line for quotes that do not match.
std::vector<CsvRow> parse_csv(std::string_view text, const std::string& origin);

/// Returns a row with its line end. Fields are quoted where they have to be.
std::string csv_line(const std::vector<std::string>& fields);

}  // namespace convolume::nets::io
