# Debian packages: the command, the library, and what programs are compiled with. tools/package.sh builds them from the
# preset `package`, whose prefix is /usr: the library folder depends on it.
set(CPACK_GENERATOR DEB)
set(CONVOLUME_PACKAGE_CONTACT "Convolume's developers <convolume@example.invalid>" CACHE STRING
  "Name and address of who maintains the packages")
set(CPACK_PACKAGE_CONTACT ${CONVOLUME_PACKAGE_CONTACT})
set(CPACK_COMPONENTS_ALL command library development)
set(CPACK_DEB_COMPONENT_INSTALL ON)
set(CPACK_STRIP_FILES ON)
set(CPACK_INSTALL_DEFAULT_DIRECTORY_PERMISSIONS OWNER_READ OWNER_WRITE OWNER_EXECUTE GROUP_READ GROUP_EXECUTE WORLD_READ
    WORLD_EXECUTE)

set(CPACK_DEBIAN_FILE_NAME DEB-DEFAULT)
set(CPACK_DEBIAN_PACKAGE_SOURCE convolume)
set(CPACK_DEBIAN_PACKAGE_GENERATE_SHLIBS ON)
set(package_library libconvolume${PROJECT_VERSION_MAJOR})

set(CPACK_DEBIAN_COMMAND_PACKAGE_NAME convolume)
set(CPACK_DEBIAN_COMMAND_PACKAGE_SECTION science)
set(CPACK_DEBIAN_COMMAND_PACKAGE_SHLIBDEPS ON)
set(CPACK_COMPONENT_COMMAND_DESCRIPTION "The command convolume trains networks that segment
volumes, applies them to volumes larger than memory, and plans convolutions.")

set(CPACK_DEBIAN_LIBRARY_PACKAGE_NAME ${package_library})
set(CPACK_DEBIAN_LIBRARY_PACKAGE_SECTION libs)
set(CPACK_DEBIAN_LIBRARY_PACKAGE_SHLIBDEPS ON)
set(CPACK_DEBIAN_LIBRARY_PACKAGE_CONTROL_EXTRA ${PROJECT_SOURCE_DIR}/cmake/package/triggers)
set(CPACK_COMPONENT_LIBRARY_DESCRIPTION "The library convolves volumes in the frequency domain or
directly, whichever is faster, transforms them, and trains networks. It has
kernels for SSE4.2, AVX2 and AVX-512, and selects them when a program runs.
This build does not use FFTW.")

set(CPACK_DEBIAN_DEVELOPMENT_PACKAGE_NAME libconvolume-dev)
set(CPACK_DEBIAN_DEVELOPMENT_PACKAGE_SECTION libdevel)
set(CPACK_DEBIAN_DEVELOPMENT_PACKAGE_DEPENDS "${package_library} (= ${PROJECT_VERSION})")
set(CPACK_COMPONENT_DEVELOPMENT_DESCRIPTION "Headers for C++20 and C, and the files with which
CMake and pkg-config find the library.")

# Each package has the licence of what is compiled into it, and a changelog.
set(log ${PROJECT_BINARY_DIR}/package/changelog)
configure_file(cmake/package/changelog.in ${log} @ONLY)
file(ARCHIVE_CREATE OUTPUT ${log}.gz PATHS ${log} FORMAT raw COMPRESSION GZip COMPRESSION_LEVEL 9)
foreach(component IN LISTS CPACK_COMPONENTS_ALL)
  string(TOUPPER ${component} upper)
  set(folder ${CMAKE_INSTALL_DATADIR}/doc/${CPACK_DEBIAN_${upper}_PACKAGE_NAME})
  install(FILES cmake/package/copyright DESTINATION ${folder} COMPONENT ${component} EXCLUDE_FROM_ALL)
  install(FILES ${log}.gz DESTINATION ${folder} COMPONENT ${component} EXCLUDE_FROM_ALL RENAME changelog.gz)
endforeach()
include(CPack)
