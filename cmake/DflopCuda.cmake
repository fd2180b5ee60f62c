# DFLOP_CUDA: AUTO uses the CUDA Toolkit if it is found, ON requires it, OFF builds without it.
# DFLOP_NCCL: the same for NCCL. Only its header is needed, as the library is loaded at first use.
# DFLOP_CUDNN: the same for cuDNN and the headers of its frontend (cudnn_frontend.h, a separate package).
#
# Wings named cuda/ need the toolkit, wings named nccl/ also need NCCL, and sources named cudnn_* need cuDNN. dflop_sources()
# leaves out sources that cannot be built.
set(DFLOP_CUDA AUTO CACHE STRING "Build the CUDA backend: AUTO, ON or OFF")
set(DFLOP_NCCL AUTO CACHE STRING "Build the NCCL backend: AUTO, ON or OFF")
set(DFLOP_CUDNN AUTO CACHE STRING "Build attention by cuDNN: AUTO, ON or OFF")
set_property(CACHE DFLOP_CUDA DFLOP_NCCL DFLOP_CUDNN PROPERTY STRINGS AUTO ON OFF)
set(DFLOP_CUDA_ARCHITECTURES "80-real;90-real;90-virtual" CACHE STRING "As CMAKE_CUDA_ARCHITECTURES")

set(DFLOP_HAVE_CUDA FALSE)
if(NOT DFLOP_CUDA STREQUAL "OFF")
  find_program(DFLOP_NVCC nvcc HINTS /usr/local/cuda/bin)  # often installed without being on PATH
  if(DFLOP_NVCC AND NOT CUDAToolkit_ROOT)
    get_filename_component(bin ${DFLOP_NVCC} DIRECTORY)
    get_filename_component(CUDAToolkit_ROOT ${bin} DIRECTORY)
  endif()
  find_package(CUDAToolkit 12.4 QUIET MODULE)
  if(CUDAToolkit_FOUND AND DFLOP_NVCC)
    set(DFLOP_HAVE_CUDA TRUE)
    message(STATUS "CUDA Toolkit ${CUDAToolkit_VERSION}: building with CUDA for ${DFLOP_CUDA_ARCHITECTURES}")
  elseif(DFLOP_CUDA STREQUAL "ON")
    message(FATAL_ERROR "DFLOP_CUDA=ON needs the CUDA Toolkit 12.4 or newer with nvcc; none was found")
  else()
    message(STATUS "CUDA Toolkit not found: building without CUDA")
  endif()
endif()

# dflop_header_version(<variable> <header> <prefix>): sets the variable to a version such as "9.19.0", from the macros
# <prefix>MAJOR, MINOR and PATCH of a header.
function(dflop_header_version variable header prefix)
  file(STRINGS ${header} version REGEX "^#define ${prefix}(MAJOR|MINOR|PATCH)(LEVEL|_VERSION)? +[0-9]+")
  list(TRANSFORM version REPLACE "[^0-9]+" "")
  list(JOIN version "." version)
  set(${variable} ${version} PARENT_SCOPE)
endfunction()

if(DFLOP_HAVE_CUDA)
  set(CMAKE_CUDA_COMPILER ${DFLOP_NVCC})
  set(CMAKE_CUDA_ARCHITECTURES ${DFLOP_CUDA_ARCHITECTURES})
  set(CMAKE_CUDA_RUNTIME_LIBRARY Static)  # so that programs start without CUDA and report what is missing
  enable_language(CUDA)
  # Binaries have sources of both compilers. The C++ compiler links them, as it knows the sanitizers' runtimes.
  set(CMAKE_CUDA_HOST_LINK_LAUNCHER ${CMAKE_CXX_COMPILER})
endif()

set(DFLOP_HAVE_NCCL FALSE)
if(DFLOP_HAVE_CUDA AND NOT DFLOP_NCCL STREQUAL "OFF")
  find_path(NCCL_INCLUDE_DIR nccl.h HINTS ${CUDAToolkit_INCLUDE_DIRS})
  if(NCCL_INCLUDE_DIR)
    set(DFLOP_HAVE_NCCL TRUE)
    dflop_header_version(version ${NCCL_INCLUDE_DIR}/nccl.h NCCL_)
    message(STATUS "NCCL ${version}: building with NCCL")
  endif()
endif()
if(DFLOP_NCCL STREQUAL "ON" AND NOT DFLOP_HAVE_NCCL)
  message(FATAL_ERROR "DFLOP_NCCL=ON needs CUDA and nccl.h, which was not found; NCCL_INCLUDE_DIR says where it is")
endif()

set(DFLOP_HAVE_CUDNN FALSE)
if(DFLOP_HAVE_CUDA AND NOT DFLOP_CUDNN STREQUAL "OFF")
  find_path(CUDNN_INCLUDE_DIR cudnn_graph.h HINTS ${CUDAToolkit_INCLUDE_DIRS})
  find_path(CUDNN_FRONTEND_INCLUDE_DIR cudnn_frontend.h HINTS ${CUDAToolkit_INCLUDE_DIRS})
  if(CUDNN_INCLUDE_DIR AND CUDNN_FRONTEND_INCLUDE_DIR)
    set(DFLOP_HAVE_CUDNN TRUE)
    dflop_header_version(version ${CUDNN_INCLUDE_DIR}/cudnn_version.h CUDNN_)
    dflop_header_version(frontend ${CUDNN_FRONTEND_INCLUDE_DIR}/cudnn_frontend_version.h CUDNN_FRONTEND_)
    message(STATUS "Attention on a GPU: cuDNN ${version} with frontend ${frontend} for long sequences, own kernels for others")
    # Compiling the headers alone takes most of a minute, and nothing in the file gains from more than -O1.
    set(cudnn_source ${PROJECT_SOURCE_DIR}/kernels/cuda/cudnn_attention.cpp)
    set_source_files_properties(${cudnn_source} PROPERTIES COMPILE_OPTIONS -O1 SKIP_UNITY_BUILD_INCLUSION ON
      SKIP_PRECOMPILE_HEADERS ON)
  endif()
endif()
if(DFLOP_HAVE_CUDA AND NOT DFLOP_HAVE_CUDNN)
  if(DFLOP_CUDNN STREQUAL "OFF")
    set(missing "DFLOP_CUDNN is OFF")
  elseif(NOT CUDNN_INCLUDE_DIR)
    set(missing "cudnn_graph.h of cuDNN 9 was not found: install cuDNN, or say where it is with CUDNN_INCLUDE_DIR")
  else()
    set(missing "cudnn_frontend.h was not found: './dev build cuda' fetches it, or say where it is with CUDNN_FRONTEND_INCLUDE_DIR")
  endif()
  message(STATUS "Attention on a GPU: own kernels, slower in long sequences than cuDNN's; ${missing}")
endif()
if(DFLOP_CUDNN STREQUAL "ON" AND NOT DFLOP_HAVE_CUDNN)
  message(FATAL_ERROR "DFLOP_CUDNN=ON needs CUDA, cudnn_graph.h and cudnn_frontend.h, of which one was not found; "
    "CUDNN_INCLUDE_DIR and CUDNN_FRONTEND_INCLUDE_DIR say where they are")
endif()
