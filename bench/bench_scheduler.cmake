# bench_scheduler and the smoke tests of its modes.
convolume_bench(bench_scheduler ROOMS nets allocator scheduler SMOKE --net ${CMAKE_CURRENT_SOURCE_DIR}/smoke_net.toml)
target_sources(bench_scheduler PRIVATE measured_net.cpp
  scheduler_side_by_side.cpp task_runners.cpp task_shapes.cpp)
target_link_libraries(bench_scheduler PRIVATE TBB::tbb)

if(CONVOLUME_BUILD_TESTS)
  set(report ${CMAKE_CURRENT_BINARY_DIR}/scheduler.json)
  add_test(NAME bench_scheduler_side_by_side COMMAND bench_scheduler --net ${CMAKE_CURRENT_SOURCE_DIR}/smoke_net.toml
    --rounds 3 --min-seconds 0 --json ${report})
  set_tests_properties(bench_scheduler_side_by_side PROPERTIES LABELS bench TIMEOUT 60 FIXTURES_SETUP bench_scheduler
    PASS_REGULAR_EXPRESSION "iteration of smoke, .* 2 threads, 3 rounds\n.*task_group .* times convolume")
  add_test(NAME bench_scheduler_report COMMAND ${CMAKE_COMMAND} -DREPORT=${report} -DROWS=results -DCOUNT=36
    "-DFIELDS=tasks;threads;ns_per_task;ns_per_task_low;ns_per_task_high;ratio" -P
    ${CMAKE_CURRENT_SOURCE_DIR}/check_report.cmake)
  set_tests_properties(bench_scheduler_report PROPERTIES LABELS bench TIMEOUT 60 FIXTURES_REQUIRED bench_scheduler)
endif()
