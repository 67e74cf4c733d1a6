# Installs the build into an empty prefix and moves that prefix. Then builds and runs a program that knows nothing else of
# this source tree, first with find_package, then with pkg-config.
#   cmake -DBUILD= -DCONFIG= -DLIBDIR= -DCONSUMER= -DCXX= -DPKG_CONFIG= -DVERSION= -P package_consumer.cmake
cmake_minimum_required(VERSION 3.25)

execute_process(COMMAND mktemp -d OUTPUT_VARIABLE room OUTPUT_STRIP_TRAILING_WHITESPACE COMMAND_ERROR_IS_FATAL ANY)
set(prefix ${room}/moved)

function(run what)
  execute_process(COMMAND ${ARGN} WORKING_DIRECTORY ${room} RESULT_VARIABLE status OUTPUT_VARIABLE out ERROR_VARIABLE out)
  if(NOT status EQUAL 0)
    file(REMOVE_RECURSE ${room})
    message(FATAL_ERROR "${what} failed (${status}):\n${out}")
  endif()
  message(STATUS "${what}: done")
  set(output "${out}" PARENT_SCOPE)
endfunction()

run("install" ${CMAKE_COMMAND} --install ${BUILD} --config "${CONFIG}" --prefix ${room}/installed)
file(RENAME ${room}/installed ${prefix})
file(COPY ${CONSUMER}/ DESTINATION ${room}/consumer)

run("find_package: configure" ${CMAKE_COMMAND} -S consumer -B build -DCMAKE_PREFIX_PATH=${prefix} -DCMAKE_CXX_COMPILER=${CXX}
  -DCMAKE_BUILD_TYPE=Release)
run("find_package: build" ${CMAKE_COMMAND} --build build)
run("find_package: run" build/consumer)
message(STATUS "${output}")

set(ENV{PKG_CONFIG_PATH} ${prefix}/${LIBDIR}/pkgconfig)
run("pkg-config: version" ${PKG_CONFIG} --modversion convolume)
string(STRIP "${output}" found)
if(NOT found STREQUAL VERSION)
  file(REMOVE_RECURSE ${room})
  message(FATAL_ERROR "pkg-config finds convolume ${found}, expected ${VERSION}")
endif()
run("pkg-config: flags" ${PKG_CONFIG} --cflags --libs convolume)
separate_arguments(flags UNIX_COMMAND "${output}")
run("pkg-config: build" ${CXX} -std=c++20 consumer/main.cpp -o with_pkg_config ${flags} -Wl,-rpath,${prefix}/${LIBDIR})
run("pkg-config: run" ./with_pkg_config)
message(STATUS "${output}")
file(REMOVE_RECURSE ${room})
