// The page of a report, before and after its data. cmake/report_page.cmake makes it from page.html and Chart.js.
#pragma once

namespace convolume::nets {

extern const char* const page_begin;
extern const char* const page_end;

}  // namespace convolume::nets
