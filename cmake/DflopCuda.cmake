# DFLOP_CUDA: AUTO uses the CUDA Toolkit where it is found, ON requires it, OFF does without.
set(DFLOP_CUDA AUTO CACHE STRING "Build the CUDA backend: AUTO, ON or OFF")
set_property(CACHE DFLOP_CUDA PROPERTY STRINGS AUTO ON OFF)

set(DFLOP_HAVE_CUDA FALSE)
if(NOT DFLOP_CUDA STREQUAL "OFF")
  # nvcc is often installed without being on PATH.
  find_package(CUDAToolkit 12.4 QUIET HINTS /usr/local/cuda)
  set(DFLOP_HAVE_CUDA ${CUDAToolkit_FOUND})
  if(DFLOP_HAVE_CUDA)
    message(STATUS "CUDA Toolkit ${CUDAToolkit_VERSION}: building with CUDA")
  elseif(DFLOP_CUDA STREQUAL "ON")
    message(FATAL_ERROR "DFLOP_CUDA=ON needs the CUDA Toolkit 12.4 or newer; none was found")
  else()
    message(STATUS "CUDA Toolkit not found: building without CUDA")
  endif()
endif()
