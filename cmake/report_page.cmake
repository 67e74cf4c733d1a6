# Writes OUTPUT, a source file with the text of PAGE before and after the place of its data. The script in CHART goes
# into the page.
file(READ ${PAGE} page)
file(READ ${CHART} chart)
string(REGEX REPLACE "\n?//# sourceMappingURL=[^\n]*" "" chart "${chart}")
string(REPLACE "@CHART_JS@" "${chart}" page "${page}")
string(FIND "${page}" "@REPORT@" at)
string(SUBSTRING "${page}" 0 ${at} begin)
math(EXPR after "${at} + 8")
string(SUBSTRING "${page}" ${after} -1 end)
file(WRITE ${OUTPUT} "// Made from nets/report/page.html and Chart.js.
#include \"nets/report/page.hpp\"

namespace convolume::nets {

const char* const page_begin = R\"html_page(${begin})html_page\";
const char* const page_end = R\"html_page(${end})html_page\";

}  // namespace convolume::nets
")
