# bench_alloc and the smoke tests of its modes.
convolume_bench(bench_alloc ROOMS nets allocator scheduler)
target_sources(bench_alloc PRIVATE alloc_replay.cpp alloc_side_by_side.cpp alloc_trace.cpp)
target_link_libraries(bench_alloc PRIVATE ${CMAKE_DL_LIBS})

# Peers, not dependencies: they are preloaded into processes of their own.
foreach(peer jemalloc tbbmalloc_proxy mimalloc)
  string(REPLACE _proxy "" name CONVOLUME_BENCH_${peer})
  string(TOUPPER ${name} name)
  find_library(${name}_LIBRARY ${peer})
  if(${name}_LIBRARY)
    file(REAL_PATH ${${name}_LIBRARY} real)
    target_compile_definitions(bench_alloc PRIVATE ${name}="${real}")
  else()
    message(STATUS "bench_alloc leaves ${peer} out, which was not found. On Debian: apt-get install libjemalloc-dev libtbb-dev libmimalloc-dev")
  endif()
endforeach()

if(CONVOLUME_BUILD_TESTS)
  set(reports ${CMAKE_CURRENT_BINARY_DIR})
  add_test(NAME bench_alloc_side_by_side COMMAND bench_alloc --net ${CMAKE_CURRENT_SOURCE_DIR}/smoke_net.toml --peers glibc
    --threads 2 --rounds 1 --iterations 1 --operations 4000 --json ${reports}/alloc.json)
  set_tests_properties(bench_alloc_side_by_side PROPERTIES LABELS bench TIMEOUT 120 FIXTURES_SETUP bench_alloc_report
    PASS_REGULAR_EXPRESSION "smoke, slab, 2 threads: glibc takes .* times our time")
  add_test(NAME bench_alloc_results COMMAND ${CMAKE_COMMAND} -DREPORT=${reports}/alloc.json -DROWS=results -DCOUNT=8
    "-DFIELDS=threads;seconds;seconds_low;seconds_high;ratio;ratio_low;ratio_high;peak_bytes;rounds;faults_of_first_round"
    -P ${CMAKE_CURRENT_SOURCE_DIR}/check_report.cmake)
  set_tests_properties(bench_alloc_results PROPERTIES LABELS bench TIMEOUT 60 FIXTURES_REQUIRED bench_alloc_report)
endif()
