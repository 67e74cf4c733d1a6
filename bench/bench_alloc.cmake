# bench_alloc and the smoke tests of its modes.
convolume_bench(bench_alloc ROOMS nets allocator scheduler)
target_sources(bench_alloc PRIVATE alloc_replay.cpp alloc_side_by_side.cpp alloc_trace.cpp child_process.cpp contest.cpp
  progress_bar.cpp report.cpp)
target_include_directories(bench_alloc SYSTEM PRIVATE ${NLOHMANN_JSON_INCLUDE_DIR})
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
