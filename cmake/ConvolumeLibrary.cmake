# The installed library that users link: one shared library with the objects of all rooms. Our own executables and tests
# link the rooms themselves.
get_property(rooms GLOBAL PROPERTY CONVOLUME_ROOMS)
get_property(external GLOBAL PROPERTY CONVOLUME_EXTERNAL)
list(REMOVE_DUPLICATES external)
set(objects "")
foreach(room IN LISTS rooms)
  list(APPEND objects $<TARGET_OBJECTS:convolume_${room}>)
endforeach()

add_library(convolume SHARED ${objects})
add_library(convolume::convolume ALIAS convolume)
set_target_properties(convolume PROPERTIES VERSION ${PROJECT_VERSION} SOVERSION ${PROJECT_VERSION_MAJOR})
target_include_directories(convolume PUBLIC
  $<BUILD_INTERFACE:${PROJECT_SOURCE_DIR}/include> $<INSTALL_INTERFACE:${CMAKE_INSTALL_INCLUDEDIR}>)
target_compile_features(convolume PUBLIC cxx_std_20)
# It is never unloaded, because its handlers of fork() and its helper threads stay.
target_link_options(convolume PRIVATE LINKER:-z,nodelete)
target_link_libraries(convolume PRIVATE $<BUILD_INTERFACE:convolume_private> ${external} Threads::Threads)

install(TARGETS convolume EXPORT convolume-targets LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR}
  COMPONENT library NAMELINK_COMPONENT development)
install(DIRECTORY include/convolume DESTINATION ${CMAKE_INSTALL_INCLUDEDIR} COMPONENT development)
install(EXPORT convolume-targets NAMESPACE convolume:: DESTINATION ${CMAKE_INSTALL_LIBDIR}/cmake/convolume
  COMPONENT development)
include(CMakePackageConfigHelpers)
configure_package_config_file(cmake/convolume-config.cmake.in ${CMAKE_CURRENT_BINARY_DIR}/convolume-config.cmake
  INSTALL_DESTINATION ${CMAKE_INSTALL_LIBDIR}/cmake/convolume)
write_basic_package_version_file(${CMAKE_CURRENT_BINARY_DIR}/convolume-config-version.cmake
  COMPATIBILITY SameMinorVersion)
install(FILES ${CMAKE_CURRENT_BINARY_DIR}/convolume-config.cmake
  ${CMAKE_CURRENT_BINARY_DIR}/convolume-config-version.cmake DESTINATION ${CMAKE_INSTALL_LIBDIR}/cmake/convolume
  COMPONENT development)
file(RELATIVE_PATH CONVOLUME_PKGCONFIG_TO_PREFIX "/${CMAKE_INSTALL_LIBDIR}/pkgconfig" "/")
configure_file(cmake/convolume.pc.in ${CMAKE_CURRENT_BINARY_DIR}/convolume.pc @ONLY)
install(FILES ${CMAKE_CURRENT_BINARY_DIR}/convolume.pc DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig
  COMPONENT development)
install(DIRECTORY nets/zoo DESTINATION ${CMAKE_INSTALL_DATADIR}/convolume COMPONENT command)
