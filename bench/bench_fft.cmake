# bench_fft and the smoke tests of its modes.
convolume_bench(bench_fft ROOMS fft allocator
  SMOKE --sizes 16,17 --kind r2c,c2r --order rotated,natural --impl native,fftw,algorithm2 --fftw-wisdom ${CMAKE_CURRENT_BINARY_DIR}/smoke-wisdom)
target_sources(bench_fft PRIVATE fft_checks.cpp fft_contestants.cpp fft_once.cpp fft_options.cpp
  fft_primes.cpp fft_report.cpp fft_side_by_side.cpp fft_tiles.cpp fft_verify.cpp reference_dft.cpp)
target_link_libraries(bench_fft PRIVATE PkgConfig::FFTWF PkgConfig::FFTWD)

if(CONVOLUME_BUILD_TESTS)
  set(reports ${CMAKE_CURRENT_BINARY_DIR})

  # bench_fft_smoke(NAME EXPECT regular expression  ARGS arguments)
  function(bench_fft_smoke name)
    cmake_parse_arguments(ARG "" "EXPECT" "ARGS" ${ARGN})
    add_test(NAME bench_fft_${name} COMMAND bench_fft ${ARG_ARGS})
    set_tests_properties(bench_fft_${name} PROPERTIES LABELS bench TIMEOUT 120 PASS_REGULAR_EXPRESSION "${ARG_EXPECT}")
  endfunction()

  # A report of one test that another one reads: bench_fft_report(NAME OF test ROWS key COUNT number FIELDS fields)
  function(bench_fft_report name)
    cmake_parse_arguments(ARG "" "OF;ROWS;COUNT" "FIELDS" ${ARGN})
    add_test(NAME bench_fft_${name} COMMAND ${CMAKE_COMMAND} -DREPORT=${reports}/${ARG_OF}.json -DROWS=${ARG_ROWS}
      -DCOUNT=${ARG_COUNT} "-DFIELDS=${ARG_FIELDS}" -P ${CMAKE_CURRENT_SOURCE_DIR}/check_report.cmake)
    set_tests_properties(bench_fft_${ARG_OF} PROPERTIES FIXTURES_SETUP bench_fft_${ARG_OF})
    set_tests_properties(bench_fft_${name} PROPERTIES LABELS bench TIMEOUT 60 FIXTURES_REQUIRED bench_fft_${ARG_OF})
  endfunction()

  bench_fft_smoke(side_by_side EXPECT "worst: N = "
    ARGS --side-by-side --sizes 8,17,20:24:4 --kind r2c,c2r --order rotated,natural --min-seconds 0 --rounds 3
         --fftw-wisdom ${reports}/smoke-wisdom --json ${reports}/side_by_side.json)
  bench_fft_report(side_by_side_report OF side_by_side ROWS results COUNT 16
    FIELDS n native_s fftw_s ratio ratio_low ratio_high gflops fftw_gflops floor_fraction)
  bench_fft_smoke(primes EXPECT "model within 5 % of the best at [0-3] of 3 primes \\([0-9]+ %\\)\n$"
    ARGS --primes --sizes 16:24 --min-seconds 0 --rounds 3 --json ${reports}/primes.json)
  bench_fft_report(primes_report OF primes ROWS primes COUNT 3 FIELDS prime batch pick_over_best)
  bench_fft_smoke(tiles EXPECT "8 +64  inverse, full tile .* %\n$"
    ARGS --tiles 5,8 --min-seconds 0 --rounds 2 --json ${reports}/tiles.json)
  bench_fft_report(tiles_report OF tiles ROWS tiles COUNT 12
    FIELDS tile valid kept channels tile_s tile_low_s tile_high_s gflops peak_fraction)
  bench_fft_smoke(tiles_double EXPECT "6 +3  forward " ARGS --tiles 6 --precision double --min-seconds 0 --rounds 2)
  bench_fft_smoke(refuses_sizes_of_tiles EXPECT "--sizes: --tiles does not look at it; leave it out"
    ARGS --tiles 8 --sizes 9)
  bench_fft_smoke(refuses_tiny_tiles EXPECT "--tiles holds 4; tiles have 5 to 64 voxels" ARGS --tiles 4,8)
  foreach(implementation native fftw algorithm2)
    bench_fft_smoke(once_${implementation} EXPECT "^${implementation} r2c [a-z]+ float 18: 3 executions\n$"
      ARGS --once --impl ${implementation} --sizes 18 --repeat 3)
  endforeach()
  bench_fft_smoke(once_refuses_many EXPECT "--once runs one transform" ARGS --once --sizes 16,17)
  bench_fft_smoke(verify EXPECT "\n[1-9][0-9]* passed, 0 failed\n$" ARGS --verify --sizes 1,3,17,64,83,107)
  bench_fft_smoke(refuses_nonsense_sizes EXPECT "--sizes: '8:x' is no size; write .*e\\.g\\. 16,17,20:24"
    ARGS --side-by-side --sizes 16,8:x)
  bench_fft_smoke(refuses_flags_of_other_modes EXPECT "--json: .*does not look at it; leave it out"
    ARGS --verify --sizes 2 --json ${reports}/never.json)
  bench_fft_smoke(explains_its_terms EXPECT "--side-by-side.*--verify.*floor" ARGS --help)

  find_package(Python3 COMPONENTS Interpreter)
  if(Python3_FOUND)
    # Without matplotlib the script has to say what to install.
    add_test(NAME bench_fft_plot COMMAND ${Python3_EXECUTABLE} ${CMAKE_CURRENT_SOURCE_DIR}/plot_fft.py
      ${reports}/side_by_side.json --out ${reports}/side_by_side)
    set_tests_properties(bench_fft_plot PROPERTIES LABELS bench TIMEOUT 60 FIXTURES_REQUIRED bench_fft_side_by_side
      PASS_REGULAR_EXPRESSION "wrote [^\n]*side_by_side.png|apt-get install python3-matplotlib")
    # Likewise without Valgrind.
    add_test(NAME bench_fft_cache_misses COMMAND ${Python3_EXECUTABLE} ${CMAKE_CURRENT_SOURCE_DIR}/cache_misses.py
      --bench $<TARGET_FILE:bench_fft> --out ${reports}/cache_misses --sizes 17)
    set_tests_properties(bench_fft_cache_misses PROPERTIES LABELS bench TIMEOUT 120
      PASS_REGULAR_EXPRESSION "wrote [^\n]*cache_misses.png|apt-get install (valgrind|python3-matplotlib)")
  endif()
endif()
