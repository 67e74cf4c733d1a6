# One target per room. A room links only rooms below it; tools/check_layers checks these edges.

# Warnings and code generation for all our targets. They are never exported.
add_library(convolume_private INTERFACE)
target_compile_options(convolume_private INTERFACE
  -Wall -Wextra -Wconversion -Wno-sign-conversion -Wundef
  # No contraction, because a rounding must not depend on whether a compiler fuses a*b+c.
  -ffp-contract=off -fno-math-errno
  # GCC takes a source file of a unit for a header, and warns of types in unnamed namespaces.
  $<$<AND:$<COMPILE_LANG_AND_ID:CXX,GNU>,$<BOOL:${CONVOLUME_UNITY}>>:-Wno-subobject-linkage>
  $<$<BOOL:${CONVOLUME_WERROR}>:-Werror>)
if(CONVOLUME_SANITIZE)
  target_compile_options(convolume_private INTERFACE -fsanitize=${CONVOLUME_SANITIZE} -fno-omit-frame-pointer)
  if(CONVOLUME_SANITIZE MATCHES undefined)
    # Checks for null and misaligned pointers before each access double the build time. A null pointer ends the program
    # anyway. Accesses beyond an object (object-size), and calls of objects that were freed or overwritten (vptr), are
    # found by AddressSanitizer too, and these checks take another sixth.
    target_compile_options(convolume_private INTERFACE -fno-sanitize-recover=undefined
      -fno-sanitize=null,alignment,object-size,vptr)
    if(CMAKE_CXX_COMPILER_ID MATCHES Clang)
      # Clang's check of the types of called functions needs a part of the runtime that C programs are not linked with.
      target_compile_options(convolume_private INTERFACE -fno-sanitize=function)
    endif()
  endif()
  target_link_options(convolume_private INTERFACE -fsanitize=${CONVOLUME_SANITIZE})
endif()

# Half of the time of a small file goes into these headers. All rooms are compiled with the same options, so they share
# one precompiled header. Kernels have options of their own. The dev preset goes without it and finds missing includes.
file(WRITE ${PROJECT_BINARY_DIR}/precompiled.cpp "")
function(convolume_precompiled name)
  add_library(convolume_${name} OBJECT ${PROJECT_BINARY_DIR}/precompiled.cpp)
  target_compile_definitions(convolume_${name} PRIVATE ${CONVOLUME_HWY_DEFINITIONS})
  target_link_libraries(convolume_${name} PRIVATE convolume_private fmt::fmt)
  target_precompile_headers(convolume_${name} PRIVATE <algorithm> <array> <functional> <map> <memory> <memory_resource>
    <optional> <span> <string> <vector> <fmt/format.h> ${ARGN})
endfunction()
convolume_precompiled(precompiled)

# convolume_unity(TARGET COUNT) compiles up to COUNT source files of a target as one. Headers are then read once, and
# templates of JSON, TOML, the option parser and Catch2 are instantiated once. The dev preset compiles each file alone
# and finds missing includes.
function(convolume_unity target count)
  set_target_properties(${target} PROPERTIES UNITY_BUILD ${CONVOLUME_UNITY} UNITY_BUILD_BATCH_SIZE ${count})
endfunction()

# convolume_room(NAME [UNITY count] [PRECOMPILED name] SOURCES ... ROOMS ... EXTERNAL ...)
# UNITY says how many files are compiled as one, where that is not 12. Kernels are always compiled alone. PRECOMPILED
# names a precompiled header of the room's own.
function(convolume_room name)
  cmake_parse_arguments(ARG "" "UNITY;PRECOMPILED" "SOURCES;ROOMS;EXTERNAL" ${ARGN})
  add_library(convolume_${name} STATIC ${ARG_SOURCES})
  target_include_directories(convolume_${name} PUBLIC
    ${PROJECT_SOURCE_DIR}/include ${PROJECT_SOURCE_DIR}/src ${PROJECT_SOURCE_DIR})
  target_compile_definitions(convolume_${name} PRIVATE ${CONVOLUME_HWY_DEFINITIONS})
  target_link_libraries(convolume_${name} PRIVATE convolume_private ${ARG_EXTERNAL})
  foreach(room IN LISTS ARG_ROOMS)
    target_link_libraries(convolume_${name} PUBLIC convolume_${room})
  endforeach()
  target_link_libraries(convolume_${name} PRIVATE fmt::fmt)
  if(NOT ARG_PRECOMPILED)
    set(ARG_PRECOMPILED precompiled)
  endif()
  target_precompile_headers(convolume_${name} REUSE_FROM convolume_${ARG_PRECOMPILED})
  if(NOT ARG_UNITY)
    set(ARG_UNITY 12)
  endif()
  convolume_unity(convolume_${name} ${ARG_UNITY})
  foreach(source IN LISTS ARG_SOURCES)
    get_source_file_property(generated ${source} GENERATED)
    if(NOT generated)
      file(STRINGS ${source} per_target REGEX "define HWY_TARGET_INCLUDE" LIMIT_COUNT 1)
    endif()
    if(NOT generated AND per_target)
      set_property(SOURCE ${source} PROPERTY SKIP_PRECOMPILE_HEADERS ON)
      set_property(SOURCE ${source} PROPERTY SKIP_UNITY_BUILD_INCLUSION ON)
    endif()
  endforeach()
  set_property(GLOBAL APPEND PROPERTY CONVOLUME_ROOMS ${name})
  set_property(GLOBAL APPEND PROPERTY CONVOLUME_EXTERNAL ${ARG_EXTERNAL})
endfunction()

# convolume_kernels(SOURCES...) marks files with vector code, in the room whose CMakeLists.txt calls it. Sanitizers
# check the memory accesses of kernels. To check each of the thousands of values in registers too would take minutes to
# compile.
function(convolume_kernels)
  if(CONVOLUME_SANITIZE MATCHES undefined)
    set_property(SOURCE ${ARGN} APPEND PROPERTY COMPILE_OPTIONS -fno-sanitize=undefined)
  endif()
  if(CONVOLUME_SANITIZE MATCHES address AND CMAKE_CXX_COMPILER_ID STREQUAL GNU)
    set_property(SOURCE ${ARGN} APPEND PROPERTY COMPILE_OPTIONS --param=asan-stack=0)
  endif()
endfunction()
