# bench_net and the smoke tests of its modes.
convolume_bench(bench_net ROOMS nets fft allocator scheduler SMOKE --net ${CMAKE_CURRENT_SOURCE_DIR}/smoke_net.toml)
target_sources(bench_net PRIVATE fft_contestants.cpp fft_options.cpp fft_report.cpp
  measured_net.cpp net_choice.cpp net_entrant.cpp net_phases.cpp net_side_by_side.cpp resident_peak.cpp
  torch_net.cpp)
target_compile_definitions(bench_net PRIVATE CONVOLUME_BENCH="${CMAKE_CURRENT_SOURCE_DIR}")
target_link_libraries(bench_net PRIVATE PkgConfig::FFTWF PkgConfig::FFTWD)

if(CONVOLUME_BUILD_TESTS)
  set(reports ${CMAKE_CURRENT_BINARY_DIR})

  # bench_net_smoke(NAME EXPECT regular expression  ARGS arguments)
  function(bench_net_smoke name)
    cmake_parse_arguments(ARG "" "EXPECT" "ARGS" ${ARGN})
    add_test(NAME bench_net_${name} COMMAND bench_net ${ARG_ARGS})
    set_tests_properties(bench_net_${name} PROPERTIES LABELS bench TIMEOUT 120 PASS_REGULAR_EXPRESSION "${ARG_EXPECT}")
  endfunction()

  bench_net_smoke(side_by_side
    EXPECT "2 x 2 of 3 x 3 x 3, 8 x 8 x 8 voxels in, 4 x 4 x 4 out.*FFTW's time over native, cache off, training: .*with caching, fftw, training: "
    ARGS --engine fft_volume --backend native,fftw --cache on,off --width 2,3 --depth 2 --kernel 3 --extent 8 --rounds 2
         --min-seconds 0 --threads 2 --json ${reports}/net.json)
  set(results_fields seconds seconds_low seconds_high transforms_input transforms_weights transforms_gradient
    transforms_inverse transforms transform_share peak_bytes resident_bytes voxels_per_second gflops transform_seconds product_seconds
    inverse_seconds ops_seconds other_seconds tasks)
  set(ratios_fields ratio ratio_low ratio_high)
  foreach(table results ratios)
    add_test(NAME bench_net_${table} COMMAND ${CMAKE_COMMAND} -DREPORT=${reports}/net.json -DROWS=${table} -DCOUNT=8
      "-DFIELDS=threads;rounds;${${table}_fields}" -P ${CMAKE_CURRENT_SOURCE_DIR}/check_report.cmake)
  endforeach()
  set_tests_properties(bench_net_side_by_side PROPERTIES FIXTURES_SETUP bench_net_report)
  set_tests_properties(bench_net_results bench_net_ratios PROPERTIES LABELS bench TIMEOUT 60
    FIXTURES_REQUIRED bench_net_report)
  bench_net_smoke(compares_other_nets EXPECT "smoke, 4 x 16 x 16 voxels in.*time without over with caching, native, training: "
    ARGS --side-by-side --net ${CMAKE_CURRENT_SOURCE_DIR}/smoke_net.toml --backend native --rounds 1 --min-seconds 0)
  bench_net_smoke(shrinks_to_memory EXPECT "20 x 2 of 3 x 3 x 3, ([5-9]|[1-3][0-9]) x "
    ARGS --width 20 --depth 2 --kernel 3 --backend native --memory-budget 0.02 --rounds 1 --min-seconds 0)
  bench_net_smoke(refuses_too_little_memory EXPECT "needs about .* GiB for 4 contestants, --memory-budget allows 0.001"
    ARGS --width 100 --depth 2 --extent 32 --memory-budget 0.001)
  bench_net_smoke(refuses_too_little_extent EXPECT "--extent 8: 2 layers of kernel 5 .* use at least 9"
    ARGS --width 2 --depth 2 --extent 8)
  bench_net_smoke(refuses_a_width_for_other_nets EXPECT "--width: nets of --net have their own"
    ARGS --width 2 --net ${CMAKE_CURRENT_SOURCE_DIR}/smoke_net.toml)
  # Without PyTorch it has to say what to install, and go on.
  set(tiny --net ${CMAKE_CURRENT_SOURCE_DIR}/smoke_net.toml --rounds 2 --min-seconds 0 --threads 2)
  bench_net_smoke(peers EXPECT "(PyTorch's time .* over ours .native, cache on, arena., training: .* inference: |apt-get install python3-torch.*training  native, cache on, arena .*inference native, cache on, arena )"
    ARGS --peers torch ${tiny} --json ${reports}/net_peers.json --trace ${reports}/net_trace.json)
  add_test(NAME bench_net_peers_report COMMAND ${CMAKE_COMMAND} -DREPORT=${reports}/net_peers.json -DROWS=results
    -DCOUNT=2 "-DFIELDS=seconds;product_seconds;ops_seconds;other_seconds;peak_bytes;resident_bytes"
    -P ${CMAKE_CURRENT_SOURCE_DIR}/check_report.cmake)
  add_test(NAME bench_net_trace COMMAND ${CMAKE_COMMAND} -DTRACE=${reports}/net_trace.json -P
    ${CMAKE_CURRENT_SOURCE_DIR}/check_trace.cmake)
  set_tests_properties(bench_net_peers PROPERTIES FIXTURES_SETUP bench_net_peers)
  set_tests_properties(bench_net_peers_report bench_net_trace PROPERTIES LABELS bench TIMEOUT 60
    FIXTURES_REQUIRED bench_net_peers)
  bench_net_smoke(infers EXPECT "inference native, cache off, arena .*FFTW's time over native, cache on, inference: "
    ARGS --work inference --engine fft_volume ${tiny})
  bench_net_smoke(describes EXPECT "\"name\": \"down0_conv0\".*\"weight_shape\""
    ARGS --describe --net ${CMAKE_CURRENT_SOURCE_DIR}/smoke_net.toml)
  bench_net_smoke(refuses_to_describe_nothing EXPECT "--describe: name one net with --net" ARGS --describe)
  bench_net_smoke(refuses_unknown_peers EXPECT "--peers: onednn not in" ARGS --peers onednn)
  bench_net_smoke(explains_its_terms EXPECT "--side-by-side.*--backend.*--cache.*--work.*--peers.*--json.*--trace" ARGS --help)
endif()
