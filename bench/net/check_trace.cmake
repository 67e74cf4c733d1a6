#cmake -DTRACE=FILE -P check_trace.cmake
# Fails unless FILE is JSON of trace events, and some of them are tasks of a layer.
file(READ ${TRACE} trace)
string(JSON length LENGTH "${trace}" traceEvents)
string(JSON last GET "${trace}" traceEvents 1)
foreach(field name cat ph pid tid ts dur args)
  string(JSON value GET "${last}" ${field})
endforeach()
if(length LESS 20 OR NOT trace MATCHES "\"layer\": \"down0_conv0\"")
  message(FATAL_ERROR "${TRACE}: ${length} events, or none of the layer down0_conv0")
endif()
message(STATUS "${TRACE}: ${length} events")
