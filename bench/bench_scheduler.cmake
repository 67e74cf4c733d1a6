# bench_scheduler and the smoke tests of its modes.
convolume_bench(bench_scheduler ROOMS nets allocator scheduler SMOKE --net ${CMAKE_CURRENT_SOURCE_DIR}/smoke_net.toml)
target_sources(bench_scheduler PRIVATE measured_net.cpp
  order_contest.cpp scheduler_side_by_side.cpp task_orders.cpp task_runners.cpp task_shapes.cpp)
target_link_libraries(bench_scheduler PRIVATE TBB::tbb)

if(CONVOLUME_BUILD_TESTS)
  set(report ${CMAKE_CURRENT_BINARY_DIR}/scheduler.json)
  add_test(NAME bench_scheduler_side_by_side COMMAND bench_scheduler --net ${CMAKE_CURRENT_SOURCE_DIR}/smoke_net.toml
    --rounds 3 --min-seconds 0 --json ${report})
  set_tests_properties(bench_scheduler_side_by_side PROPERTIES LABELS bench TIMEOUT 60 FIXTURES_SETUP bench_scheduler
    PASS_REGULAR_EXPRESSION "iteration of smoke, .* 2 threads, 3 rounds\n.*task_group .* times convolume")
  add_test(NAME bench_scheduler_orders COMMAND bench_scheduler --net ${CMAKE_CURRENT_SOURCE_DIR}/smoke_net.toml
    --orders --scratch-budget 1 --rounds 2 --min-seconds 0 --json ${CMAKE_CURRENT_BINARY_DIR}/orders.json)
  set_tests_properties(bench_scheduler_orders PROPERTIES LABELS bench TIMEOUT 60 FIXTURES_SETUP bench_scheduler_orders
    PASS_REGULAR_EXPRESSION "iteration of smoke, .* 2 threads.*TaskGraph .*FIFO .*barrier after each layer .*1 MiB of scratch")
  add_test(NAME bench_scheduler_orders_report COMMAND ${CMAKE_COMMAND} -DREPORT=${CMAKE_CURRENT_BINARY_DIR}/orders.json
    -DROWS=results -DCOUNT=9 "-DFIELDS=tasks;threads;seconds;ratio;peak_bytes" -P
    ${CMAKE_CURRENT_SOURCE_DIR}/check_report.cmake)
  set_tests_properties(bench_scheduler_orders_report PROPERTIES LABELS bench TIMEOUT 60
    FIXTURES_REQUIRED bench_scheduler_orders)
  add_test(NAME bench_scheduler_report COMMAND ${CMAKE_COMMAND} -DREPORT=${report} -DROWS=results -DCOUNT=36
    "-DFIELDS=tasks;threads;ns_per_task;ns_per_task_low;ns_per_task_high;ratio" -P
    ${CMAKE_CURRENT_SOURCE_DIR}/check_report.cmake)
  set_tests_properties(bench_scheduler_report PROPERTIES LABELS bench TIMEOUT 60 FIXTURES_REQUIRED bench_scheduler)
endif()
