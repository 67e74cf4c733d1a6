# bench_conv and the smoke tests of its modes.
convolume_bench(bench_conv ROOMS conv allocator scheduler ops fft SMOKE --benchmark_filter=smoke)
target_sources(bench_conv PRIVATE conv_choices.cpp conv_contestant.cpp conv_floor.cpp conv_options.cpp conv_problems.cpp
  conv_report.cpp conv_side_by_side.cpp conv_speed_up.cpp conv_stages.cpp conv_tensor.cpp conv_verify.cpp thread_times.cpp
  torch_peer.cpp)
target_compile_definitions(bench_conv PRIVATE CONVOLUME_BENCH="${CMAKE_CURRENT_SOURCE_DIR}")

# A peer, not a dependency.
if(TARGET convolume_onednn)
  message(STATUS "bench_conv compares with oneDNN: ${DNNL_LIBRARY}")
  target_sources(bench_conv PRIVATE onednn_convolution.cpp)
  target_link_libraries(bench_conv PRIVATE convolume_onednn ${CMAKE_DL_LIBS})
else()
  message(STATUS "bench_conv leaves oneDNN out, which was not found. On Debian: apt-get install libdnnl-dev")
  target_sources(bench_conv PRIVATE onednn_absent.cpp)
endif()

if(CONVOLUME_BUILD_TESTS)
  set(reports ${CMAKE_CURRENT_BINARY_DIR})

  # bench_conv_smoke(NAME EXPECT regular expression  ARGS arguments)
  function(bench_conv_smoke name)
    cmake_parse_arguments(ARG "" "EXPECT" "ARGS" ${ARGN})
    add_test(NAME bench_conv_${name} COMMAND bench_conv ${ARG_ARGS})
    set_tests_properties(bench_conv_${name} PROPERTIES LABELS bench TIMEOUT 120 PASS_REGULAR_EXPRESSION "${ARG_EXPECT}")
  endfunction()

  file(GLOB lists CONFIGURE_DEPENDS ${CMAKE_CURRENT_SOURCE_DIR}/problems/*.txt)
  foreach(file IN LISTS lists)
    get_filename_component(list ${file} NAME_WE)
    add_test(NAME bench_conv_reads_${list} COMMAND bench_conv --problems ${file} --benchmark_list_tests)
    set_tests_properties(bench_conv_reads_${list} PROPERTIES LABELS bench TIMEOUT 60
      PASS_REGULAR_EXPRESSION "conv/training/" FAIL_REGULAR_EXPRESSION "bench_conv:")
  endforeach()

  set(tiny --problem ic8oc9id10kd3pd1 g8ic8oc8id9kd5pd2 ic4oc3ih17iw12kh3ph1)
  bench_conv_smoke(side_by_side EXPECT "geometric means of the ratios:\nfwd automatic plain: "
    ARGS --side-by-side ${tiny} --layout plain --rounds 1 --min-seconds 0 --threads 2 --json ${reports}/conv.json)
  set(fields threads rounds ours_s fft_volume_s fft_volume_ratio floor_fraction)
  if(TARGET convolume_onednn)
    list(APPEND fields onednn_s ratio ratio_low ratio_high)
  endif()
  add_test(NAME bench_conv_side_by_side_report COMMAND ${CMAKE_COMMAND} -DREPORT=${reports}/conv.json -DROWS=results
    -DCOUNT=12 "-DFIELDS=${fields}" -P ${CMAKE_CURRENT_SOURCE_DIR}/check_report.cmake)
  set_tests_properties(bench_conv_side_by_side PROPERTIES FIXTURES_SETUP bench_conv_report)
  set_tests_properties(bench_conv_side_by_side_report PROPERTIES LABELS bench TIMEOUT 60
    FIXTURES_REQUIRED bench_conv_report)
  bench_conv_smoke(side_by_side_double EXPECT "weights cached.*oneDNN left out: .*fwd +plain +reference .*onednn none, fft_volume [0-9]"
    ARGS --side-by-side --problem ic3oc2id7kd3 --dir fwd --engine reference --precision double --weights cached
         --rounds 1 --min-seconds 0)
  bench_conv_smoke(side_by_side_blocked EXPECT "bwd_w +plain +fft_tiled .*bwd_w +blocked +fft_tiled .*bwd_w fft_tiled blocked: "
    ARGS --side-by-side --problem ic16oc16id9kd3 --dir bwd_w --engine fft_tiled --rounds 1 --min-seconds 0)
  # Without PyTorch it has to say what to install.
  bench_conv_smoke(side_by_side_torch EXPECT "torch [0-9.]+ \\(1 problems\\)|apt-get install python3-torch"
    ARGS --side-by-side --problem ic3oc2id7kd3 --dir fwd --peers torch --rounds 1 --min-seconds 0)
  bench_conv_smoke(verify EXPECT "\n[1-9][0-9]* passed, 0 failed, [0-9]+ skipped\n$" ARGS --verify)
  bench_conv_smoke(verify_names_refusals EXPECT "skipped reference float blocked [^\n]*: needs plain layouts\n.*passed, 0 failed, 1 skipped\n$"
    ARGS --verify --problem ic8oc8id6kd3 --engine reference --precision float)
  bench_conv_smoke(choices EXPECT "fwd +blocked .*\ntraining: [01] of 1 within.*\n[012] of 2 within 15 % of the best fixed choice \\([0-9]+ %\\)\n$"
    ARGS --choices --problem ic16oc16id12kd3 --dir fwd,training --layout blocked --rounds 1 --min-seconds 0 --threads 2
         --json ${reports}/choices.json)
  add_test(NAME bench_conv_choices_report COMMAND ${CMAKE_COMMAND} -DREPORT=${reports}/choices.json -DROWS=choices
    -DCOUNT=2 "-DFIELDS=pick_s;best_s;ratio;candidates" -P ${CMAKE_CURRENT_SOURCE_DIR}/check_report.cmake)
  set_tests_properties(bench_conv_choices PROPERTIES FIXTURES_SETUP bench_conv_choices_report)
  set_tests_properties(bench_conv_choices_report PROPERTIES LABELS bench TIMEOUT 60
    FIXTURES_REQUIRED bench_conv_choices_report)
  bench_conv_smoke(speed_up EXPECT "bwd_w +blocked +[a-z_]+ .*\n[01] of 1 reach 0.9 of the speed-up that operations and bandwidth allow\n$"
    ARGS --speed-up --tune --problem ic16oc16id12kd3 --dir bwd_w --layout blocked --rounds 3 --min-seconds 0 --threads 2
         --json ${reports}/speed_up.json)
  add_test(NAME bench_conv_speed_up_report COMMAND ${CMAKE_COMMAND} -DREPORT=${reports}/speed_up.json -DROWS=speed_ups
    -DCOUNT=1 "-DFIELDS=one_s;all_s;speed_up;allowed;share" -P ${CMAKE_CURRENT_SOURCE_DIR}/check_report.cmake)
  set_tests_properties(bench_conv_speed_up PROPERTIES FIXTURES_SETUP bench_conv_speed_up_report)
  set_tests_properties(bench_conv_speed_up_report PROPERTIES LABELS bench TIMEOUT 60
    FIXTURES_REQUIRED bench_conv_speed_up_report)
  bench_conv_smoke(stages EXPECT "fwd .* of a pass, .*weights .*transforms .*products .*idle .*training .*fft_tiled: a kernel of one voxel"
    ARGS --stages --problem ic16oc16id12kd3 ic16oc16id12kd1 --dir fwd,training --layout blocked --rounds 1 --min-seconds 0
         --threads 2 --json ${reports}/stages.json)
  add_test(NAME bench_conv_stages_report COMMAND ${CMAKE_COMMAND} -DREPORT=${reports}/stages.json -DROWS=stages
    -DCOUNT=2 "-DFIELDS=seconds;floor_fraction;threads" -P ${CMAKE_CURRENT_SOURCE_DIR}/check_report.cmake)
  set_tests_properties(bench_conv_stages PROPERTIES FIXTURES_SETUP bench_conv_stages_report)
  set_tests_properties(bench_conv_stages_report PROPERTIES LABELS bench TIMEOUT 60
    FIXTURES_REQUIRED bench_conv_stages_report)
  find_package(Python3 COMPONENTS Interpreter)
  if(Python3_FOUND)
    file(WRITE ${reports}/bytes.txt "ic16oc16id24kd3pd1n\"some\"\n")
    add_test(NAME bench_conv_bytes COMMAND ${Python3_EXECUTABLE} ${CMAKE_CURRENT_SOURCE_DIR}/conv_bytes.py
      --bench $<TARGET_FILE:bench_conv> --problems ${reports}/bytes.txt)
    set_tests_properties(bench_conv_bytes PROPERTIES LABELS "bench;long" TIMEOUT 600
      PASS_REGULAR_EXPRESSION "some [|] fft_tiled [^|]*[|] [1-9][0-9]* [|] [1-9][0-9]* [|]"
      SKIP_REGULAR_EXPRESSION "apt-get install valgrind")
  endif()
  bench_conv_smoke(refuses_nonsense_problems EXPECT "--problem:1: problem 'ic2': 'oc' is missing"
    ARGS --side-by-side --problem ic2)
  bench_conv_smoke(refuses_flags_of_other_modes EXPECT "--json: --verify does not look at it; leave it out"
    ARGS --verify --json ${reports}/never.json)
  bench_conv_smoke(explains_its_terms EXPECT "--side-by-side.*--verify.*floor" ARGS --help)
endif()
