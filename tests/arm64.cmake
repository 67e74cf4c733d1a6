# The tests that ./tools/test.sh --arm64 runs under QEMU, with the label `arm64`. There a test takes ten to a hundred
# times as long, so each line may leave out cases of a program. What is left out, and why, is in docs/testing.md. The
# longest test comes first, so that two cores end at about the same time.
#
# convolume_arm64_test(NAME COMMAND FILTER...)
function(convolume_arm64_test name command)
  add_test(NAME arm64_${name} COMMAND ${command} ${ARGN})
  set_tests_properties(arm64_${name} PROPERTIES LABELS arm64 TIMEOUT 2400)
endfunction()

convolume_arm64_test(conv conv_test "~[streamed]~[.]")
convolume_arm64_test(core core_test)
convolume_arm64_test(fft fft_test)
convolume_arm64_test(ops ops_test)
convolume_arm64_test(scheduler scheduler_test)
convolume_arm64_test(c_api c_api_test)
convolume_arm64_test(resume nets_test "N iterations equal k and N - k iterations*")

set(demo ${CMAKE_CURRENT_BINARY_DIR}/arm64_demo)
convolume_arm64_test(demo convolume_cli train ${PROJECT_SOURCE_DIR}/nets/zoo/demo.toml
  --data ${PROJECT_SOURCE_DIR}/nets/zoo/data/synthetic.toml --out ${demo} --iterations 10)
add_test(NAME arm64_demo_cleared COMMAND ${CMAKE_COMMAND} -E rm -rf ${demo})
set_tests_properties(arm64_demo_cleared PROPERTIES LABELS arm64 FIXTURES_SETUP arm64_demo)
set_tests_properties(arm64_demo PROPERTIES FIXTURES_REQUIRED arm64_demo)
