# Decides for which SIMD targets kernels are compiled: CONVOLUME_SIMD_TARGETS. Sets CONVOLUME_HWY_DEFINITIONS, which
# tells Highway, CONVOLUME_LINE_KERNEL_OPTIONS, and CONVOLUME_COMPILED_SIMD_TARGETS, the names as text.
set(targets_help "SIMD targets of the kernels: all, native (the best of this machine), or a list of SSE4, AVX2, AVX3")
set(CONVOLUME_SIMD_TARGETS all CACHE STRING "${targets_help}")
option(CONVOLUME_AVX2_ONLY "The same as CONVOLUME_SIMD_TARGETS=AVX2" OFF)

if(CMAKE_SYSTEM_PROCESSOR MATCHES "x86_64|AMD64")
  set(known_targets SSE4 AVX2 AVX3)  # from the narrowest to the widest
elseif(CMAKE_SYSTEM_PROCESSOR MATCHES "aarch64|arm64")
  set(known_targets NEON)
else()
  set(known_targets portable)  # Highway's plain loops
endif()

# Sets `result` to the targets of this machine, the best first.
function(convolume_machine_targets result)
  if(CMAKE_CROSSCOMPILING)
    message(FATAL_ERROR "CONVOLUME_SIMD_TARGETS=native does not say which machine a cross build is for; "
                        "use all or a list of ${known_targets}")
  endif()
  foreach(variable convolume_probe_ran convolume_probe_compiled)
    unset(${variable} CACHE)  # try_run() would not run again
  endforeach()
  try_run(convolume_probe_ran convolume_probe_compiled ${PROJECT_BINARY_DIR}/simd_targets
    ${PROJECT_SOURCE_DIR}/cmake/simd_targets.cpp LINK_LIBRARIES PkgConfig::HWY
    COMPILE_OUTPUT_VARIABLE output RUN_OUTPUT_VARIABLE found)
  if(NOT convolume_probe_compiled OR NOT convolume_probe_ran EQUAL 0)
    message(FATAL_ERROR "Highway could not be asked for the SIMD targets of this machine; name one instead: "
                        "-DCONVOLUME_SIMD_TARGETS=<list of ${known_targets}>\n${output}")
  endif()
  string(STRIP "${found}" found)
  set(${result} ${found} PARENT_SCOPE)
endfunction()

set(requested "${CONVOLUME_SIMD_TARGETS}")
if(CONVOLUME_AVX2_ONLY)
  if(NOT requested MATCHES "^(all|AVX2)$")
    message(FATAL_ERROR "CONVOLUME_AVX2_ONLY=ON contradicts CONVOLUME_SIMD_TARGETS=${requested}; set only one")
  endif()
  set(requested AVX2)
endif()
# The name of a target stands in the cache, not the word `native`. A build folder that moves to another machine keeps
# its targets, and equal sources on equal machines give equal commands of the compiler.
if(requested STREQUAL native)
  set(found ${known_targets})
  list(LENGTH known_targets count)
  if(count GREATER 1)
    convolume_machine_targets(found)
  endif()
  if(NOT found)
    message(FATAL_ERROR "this machine has none of the SIMD targets that kernels can be compiled for: ${known_targets}")
  endif()
  list(GET found 0 requested)
  set(CONVOLUME_SIMD_TARGETS ${requested} CACHE STRING "${targets_help}" FORCE)
endif()

string(REPLACE "," ";" requested "${requested}")
if("${requested}" STREQUAL "")
  message(FATAL_ERROR "CONVOLUME_SIMD_TARGETS is empty; use all, native, or a list of ${known_targets}")
endif()
if(requested STREQUAL all)
  set(requested ${known_targets})
endif()
foreach(target IN LISTS requested)
  if(NOT target IN_LIST known_targets)
    message(FATAL_ERROR "CONVOLUME_SIMD_TARGETS: there is no target '${target}' for ${CMAKE_SYSTEM_PROCESSOR}; "
                        "use all, native, or a list of ${known_targets}")
  endif()
endforeach()
if("SSE4" IN_LIST requested AND "AVX3" IN_LIST requested)
  list(APPEND requested AVX2)  # kernels for AVX3 use some for AVX2, which must not run on processors that use SSE4
endif()
string(REPLACE ";" "|" any_requested "${requested}")
set(compiled_targets ${known_targets})
list(FILTER compiled_targets INCLUDE REGEX "^(${any_requested})$")
list(JOIN compiled_targets ", " CONVOLUME_COMPILED_SIMD_TARGETS)
message(STATUS "Kernels are compiled for ${CONVOLUME_COMPILED_SIMD_TARGETS}")

# Sets `result` to the definitions that make Highway compile kernels for these targets of x86-64, in any order. Highway
# takes its baseline as one more target. Without HWY_BASELINE_TARGETS, Highway 1.0.3 would compile each kernel with
# plain loops too. The options of the compiler stay those of plain x86-64: each kernel names its instruction set.
function(convolume_hwy_definitions result)
  set(left_out HWY_SSSE3 HWY_AVX3_DL)
  set(baseline "")  # the narrowest
  foreach(target IN LISTS known_targets)
    if(NOT target IN_LIST ARGN)
      list(APPEND left_out HWY_${target})
    elseif(NOT baseline)
      set(baseline ${target})
    endif()
  endforeach()
  list(JOIN left_out "|" left_out)
  set(${result} HWY_BASELINE_TARGETS=HWY_${baseline} "HWY_DISABLED_TARGETS=(${left_out})" PARENT_SCOPE)
endfunction()

# Options of the line kernels of the FFT, where their targets differ from those of other kernels.
set(CONVOLUME_LINE_KERNEL_OPTIONS "")
if(known_targets MATCHES AVX2)
  convolume_hwy_definitions(CONVOLUME_HWY_DEFINITIONS ${compiled_targets})
  if("AVX3" IN_LIST compiled_targets AND NOT "AVX2" IN_LIST compiled_targets)
    # With AVX3, short transforms use AVX2's vectors, which have half the width. Without line kernels for AVX2, another
    # plan would transform them in another order of axes, with other bits.
    convolume_hwy_definitions(definitions AVX2 AVX3)
    list(TRANSFORM definitions PREPEND -D)
    set(CONVOLUME_LINE_KERNEL_OPTIONS -UHWY_BASELINE_TARGETS -UHWY_DISABLED_TARGETS ${definitions})
  endif()
elseif(known_targets MATCHES NEON)
  # All ARM64 processors have NEON. Kernels keep vectors in arrays, which the types of SVE do not allow. The second
  # definition switches run-time dispatch off. With dispatch, Highway 1.0.3 compiles the operations of NEON for
  # `+crypto`, and GCC cannot inline them into constructors of other types, which are compiled without.
  set(CONVOLUME_HWY_DEFINITIONS "HWY_DISABLED_TARGETS=(HWY_SVE|HWY_SVE2|HWY_SVE_256|HWY_SVE2_128)"
      TOOLCHAIN_MISS_SYS_AUXV_H)
else()
  set(CONVOLUME_HWY_DEFINITIONS "HWY_DISABLED_TARGETS=(HWY_SSSE3|HWY_AVX3_DL)")
endif()

if(NOT compiled_targets STREQUAL known_targets)
  install(CODE "message(\"Convolume: this build has kernels for ${CONVOLUME_COMPILED_SIMD_TARGETS} only. \"
                        \"Other processors need a build with -DCONVOLUME_SIMD_TARGETS=all.\")")
endif()
