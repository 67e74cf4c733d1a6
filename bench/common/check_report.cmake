#cmake -DREPORT=FILE -DROWS=KEY -DCOUNT=N "-DFIELDS=a;b" -P check_report.cmake
# Fails unless FILE is JSON with a machine and an array KEY of N objects, and each object has a positive number in every
# field.
file(READ ${REPORT} report)
string(JSON cpu GET "${report}" machine cpu)
string(JSON length LENGTH "${report}" ${ROWS})
if(NOT length EQUAL COUNT)
  message(FATAL_ERROR "${REPORT}: ${ROWS} has ${length} entries, expected ${COUNT}")
endif()
math(EXPR last "${COUNT} - 1")
foreach(row RANGE ${last})
  foreach(field IN LISTS FIELDS)
    string(JSON value GET "${report}" ${ROWS} ${row} ${field})
    if(NOT value GREATER 0)
      message(FATAL_ERROR "${REPORT}: ${ROWS}[${row}].${field} is '${value}'")
    endif()
  endforeach()
endforeach()
message(STATUS "${REPORT}: ${COUNT} rows")
