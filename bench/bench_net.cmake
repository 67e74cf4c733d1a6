# bench_net and the smoke tests of its modes.
convolume_bench(bench_net ROOMS nets fft allocator scheduler SMOKE --net ${CMAKE_CURRENT_SOURCE_DIR}/smoke_net.toml)
target_sources(bench_net PRIVATE contest.cpp fft_contestants.cpp fft_options.cpp fft_report.cpp net_side_by_side.cpp
  net_training.cpp progress_bar.cpp report.cpp)
target_link_libraries(bench_net PRIVATE PkgConfig::FFTWF PkgConfig::FFTWD)
target_include_directories(bench_net SYSTEM PRIVATE ${NLOHMANN_JSON_INCLUDE_DIR})

if(CONVOLUME_BUILD_TESTS)
  set(reports ${CMAKE_CURRENT_BINARY_DIR})

  # bench_net_smoke(NAME EXPECT regular expression  ARGS arguments)
  function(bench_net_smoke name)
    cmake_parse_arguments(ARG "" "EXPECT" "ARGS" ${ARGN})
    add_test(NAME bench_net_${name} COMMAND bench_net ${ARG_ARGS})
    set_tests_properties(bench_net_${name} PROPERTIES LABELS bench TIMEOUT 120 PASS_REGULAR_EXPRESSION "${ARG_EXPECT}")
  endfunction()

  bench_net_smoke(side_by_side
    EXPECT "2 x 2 of 3 x 3 x 3, 8 x 8 x 8 voxels in, 4 x 4 x 4 out.*FFTW's time over native, cache off: .*with caching, fftw: "
    ARGS --engine fft_volume --backend native,fftw --cache on,off --width 2,3 --depth 2 --kernel 3 --extent 8 --rounds 2
         --min-seconds 0 --threads 2 --json ${reports}/net.json)
  set(results_fields seconds seconds_low seconds_high transforms_input transforms_weights transforms_gradient
    transforms_inverse transforms transform_share peak_bytes)
  set(ratios_fields ratio ratio_low ratio_high)
  foreach(table results ratios)
    add_test(NAME bench_net_${table} COMMAND ${CMAKE_COMMAND} -DREPORT=${reports}/net.json -DROWS=${table} -DCOUNT=8
      "-DFIELDS=threads;rounds;${${table}_fields}" -P ${CMAKE_CURRENT_SOURCE_DIR}/check_report.cmake)
  endforeach()
  set_tests_properties(bench_net_side_by_side PROPERTIES FIXTURES_SETUP bench_net_report)
  set_tests_properties(bench_net_results bench_net_ratios PROPERTIES LABELS bench TIMEOUT 60
    FIXTURES_REQUIRED bench_net_report)
  bench_net_smoke(compares_other_nets EXPECT "smoke, 4 x 16 x 16 voxels in.*time without over with caching, native: "
    ARGS --side-by-side --net ${CMAKE_CURRENT_SOURCE_DIR}/smoke_net.toml --backend native --rounds 1 --min-seconds 0)
  bench_net_smoke(shrinks_to_memory EXPECT "20 x 2 of 3 x 3 x 3, ([5-9]|[1-3][0-9]) x "
    ARGS --width 20 --depth 2 --kernel 3 --backend native --memory 0.02 --rounds 1 --min-seconds 0)
  bench_net_smoke(refuses_too_little_memory EXPECT "needs about .* GiB for 4 contestants, --memory allows 0.001"
    ARGS --width 100 --depth 2 --extent 32 --memory 0.001)
  bench_net_smoke(refuses_too_little_extent EXPECT "--extent 8: 2 layers of kernel 5 .* use at least 9"
    ARGS --width 2 --depth 2 --extent 8)
  bench_net_smoke(refuses_a_width_for_other_nets EXPECT "--width: nets of --net have their own"
    ARGS --width 2 --net ${CMAKE_CURRENT_SOURCE_DIR}/smoke_net.toml)
  bench_net_smoke(explains_its_terms EXPECT "--side-by-side.*--backend.*--cache.*--json" ARGS --help)
endif()
