# Compiles through ccache where it is installed, so that a second build of the same sources takes seconds, in whatever
# folder it is. A launcher that the user names wins.
function(convolume_use_ccache)
  find_program(CCACHE ccache)
  mark_as_advanced(CCACHE)
  if(NOT CCACHE OR CMAKE_CXX_COMPILER_LAUNCHER OR CMAKE_C_COMPILER_LAUNCHER)
    return()
  endif()
  # Precompiled headers need the first setting. The clone is the base directory, and the folder of the compiler's
  # process is not hashed: paths below the clone are then relative, and two clones share results.
  set(launcher ${CMAKE_COMMAND} -E env CCACHE_SLOPPINESS=pch_defines,time_macros CCACHE_BASEDIR=${PROJECT_SOURCE_DIR}
               CCACHE_NOHASHDIR=1 ${CCACHE})
  # ccache ends with an error, and compiles nothing, if it cannot write its folder.
  file(WRITE ${PROJECT_BINARY_DIR}/ccache.cpp "")
  execute_process(COMMAND ${launcher} ${CMAKE_CXX_COMPILER} -c ccache.cpp -o ccache.o
    WORKING_DIRECTORY ${PROJECT_BINARY_DIR} RESULT_VARIABLE status ERROR_VARIABLE error OUTPUT_QUIET)
  if(NOT status EQUAL 0)
    string(STRIP "${error}" error)
    message(STATUS "ccache is not used: ${error}")
    return()
  endif()
  set(CMAKE_C_COMPILER_LAUNCHER ${launcher} PARENT_SCOPE)
  set(CMAKE_CXX_COMPILER_LAUNCHER ${launcher} PARENT_SCOPE)
endfunction()
convolume_use_ccache()
