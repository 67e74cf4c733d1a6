# Defines the target convolume_onednn if oneDNN is found. oneDNN is a peer in the benchmarks and, with CONVOLUME_ONEDNN,
# an engine that is chosen only by name. Its own CMake package is not used, because it needs OpenCL headers.
find_path(DNNL_INCLUDE_DIR oneapi/dnnl/dnnl.hpp)
find_library(DNNL_LIBRARY dnnl)
if(DNNL_INCLUDE_DIR AND DNNL_LIBRARY)
  add_library(convolume_onednn UNKNOWN IMPORTED GLOBAL)
  set_target_properties(convolume_onednn PROPERTIES IMPORTED_LOCATION ${DNNL_LIBRARY}
    INTERFACE_INCLUDE_DIRECTORIES ${DNNL_INCLUDE_DIR} INTERFACE_LINK_LIBRARIES "${CMAKE_DL_LIBS}")
elseif(CONVOLUME_ONEDNN)
  message(FATAL_ERROR "CONVOLUME_ONEDNN needs oneDNN, which was not found. On Debian: apt-get install libdnnl-dev")
endif()
