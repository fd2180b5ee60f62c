# Builds the host's operations again for wider vectors: AVX2 and AVX-512, both with fused multiply-add. make_host_kernels()
# chooses at run time.
#
# DFLOP_DNNL: AUTO uses oneDNN's products if its header is found, ON requires it, OFF builds without it. The library is loaded
# at first use.
set(DFLOP_DNNL AUTO CACHE STRING "Build with oneDNN's matrix products: AUTO, ON or OFF")
set_property(CACHE DFLOP_DNNL PROPERTY STRINGS AUTO ON OFF)

# DFLOP_HOST_TARGETS: the targets that are built, all from the same sources.
set(DFLOP_HOST_TARGETS avx2 avx512 CACHE STRING "Vectors that the host's operations are compiled for, too: avx2, avx512")

# dflop_host_target(<name> <flag>...): compiles kernels/host for processors with the flags.
function(dflop_host_target name)
  if(NOT name IN_LIST DFLOP_HOST_TARGETS)
    return()
  endif()
  file(GLOB sources CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/kernels/host/*.cpp)
  list(FILTER sources EXCLUDE REGEX "/(host_kernels|onednn|scratch|team|team_kernels)\\.cpp$")  # these run on any processor
  string(TOUPPER ${name} upper)
  add_library(dflop_kernels_${name} OBJECT ${sources})
  dflop_unity(dflop_kernels_${name} ${sources})
  target_include_directories(dflop_kernels_${name} PRIVATE ${PROJECT_SOURCE_DIR})
  target_compile_options(dflop_kernels_${name} PRIVATE ${ARGN})
  target_compile_definitions(dflop_kernels_${name} PRIVATE DFLOP_HOST_${upper})
  target_link_libraries(dflop_kernels_${name} PRIVATE dflop_options Eigen3::Eigen)
  target_sources(dflop_kernels PRIVATE $<TARGET_OBJECTS:dflop_kernels_${name}>)
  target_compile_definitions(dflop_kernels PRIVATE DFLOP_HAVE_HOST_${upper})
endfunction()

if(CMAKE_SYSTEM_PROCESSOR MATCHES "x86_64|AMD64")
  dflop_host_target(avx2 -mavx2 -mfma)
  dflop_host_target(avx512 -mavx2 -mfma -mavx512f -mavx512bw -mavx512dq -mavx512vl)
endif()

if(NOT DFLOP_DNNL STREQUAL "OFF")
  find_path(DNNL_INCLUDE_DIR oneapi/dnnl/dnnl.h)
  if(DNNL_INCLUDE_DIR)
    target_include_directories(dflop_kernels SYSTEM PRIVATE ${DNNL_INCLUDE_DIR})
    target_compile_definitions(dflop_kernels PRIVATE DFLOP_HAVE_DNNL)
    message(STATUS "oneDNN: building with its matrix products")
  elseif(DFLOP_DNNL STREQUAL "ON")
    message(FATAL_ERROR "DFLOP_DNNL=ON needs oneDNN's header oneapi/dnnl/dnnl.h, which was not found; DNNL_INCLUDE_DIR says where it is")
  endif()
endif()
