# test_cuda_on_host: runs the kernels and their tests on a CPU, from copies that copy_kernels.cmake makes.
set(cuda_on_host ${CMAKE_CURRENT_LIST_DIR})
set(cuda_on_host_copies ${CMAKE_CURRENT_BINARY_DIR}/cuda_on_host)

# The mutations, for the test that runs them all.
set(mutation_rows "")
function(mutation what file n old new tests)
  set(mutation_rows "${mutation_rows}{\"${what}\", \"${tests}\"},\n" PARENT_SCOPE)
endfunction()
include(${cuda_on_host}/mutations.cmake)
file(CONFIGURE OUTPUT ${cuda_on_host_copies}/mutations.inc CONTENT "${mutation_rows}" @ONLY)

file(GLOB originals CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/kernels/cuda/*)
list(FILTER originals EXCLUDE REGEX "/(linear\\.cpp|ptx\\.cuh|cudnn[a-z_]*\\..*)$")
set(cuda_on_host_sources "")
foreach(original IN LISTS originals)
  get_filename_component(name ${original} NAME)
  string(REGEX REPLACE "\\.cu$" ".cu.cpp" copy ${cuda_on_host_copies}/kernels/cuda/${name})
  add_custom_command(OUTPUT ${copy}
    COMMAND ${CMAKE_COMMAND} -DFROM=${original} -DTO=${copy} -DMUTATIONS=${cuda_on_host}/mutations.cmake
      -P ${cuda_on_host}/copy_kernels.cmake
    DEPENDS ${original} ${cuda_on_host}/mutations.cmake ${cuda_on_host}/copy_kernels.cmake
    COMMENT "" VERBATIM)
  list(APPEND cuda_on_host_sources ${copy})
endforeach()
# nvcc's warnings check the original kernels. They access values as vectors of 16 bytes, which nvcc allows.
set_source_files_properties(${cuda_on_host_sources} PROPERTIES COMPILE_OPTIONS "-O2;-w;-fno-strict-aliasing")
file(GLOB emulation CONFIGURE_DEPENDS ${cuda_on_host}/emulation/*.cpp)
set_source_files_properties(${emulation} PROPERTIES COMPILE_OPTIONS -O2)
# This test needs the real dflop::cuda, not the copies.
set_source_files_properties(${cuda_on_host}/cudnn_attention_test.cpp PROPERTIES COMPILE_OPTIONS -Ucuda)

# The tests of the kernels, of the emulation, and of the errors that it detects.
dflop_test(cuda_on_host OWN_MAIN
  SOURCES ${cuda_on_host_sources} cuda/kernels_attention_test.cpp cuda/kernels_linear_test.cpp
    cuda/kernels_lookup_test.cpp cuda/kernels_rows_test.cpp
  LIBRARIES dflop_kernels Boost::context
  SLOW Precision/* Kernels/Mutations* SHARDS 4 UNSANITIZED Kernels/Mutations* *WithFewMulti*)
target_include_directories(test_cuda_on_host BEFORE PRIVATE ${cuda_on_host}/instead ${cuda_on_host_copies})
# With the CUDA Toolkit, the same program also contains the real kernels.
target_compile_definitions(test_cuda_on_host PRIVATE cuda=cuda_on_host
  make_cuda_kernels=make_cuda_kernels_on_host attention_library=attention_library_on_host)
# The tests compare many numbers, so they are optimized. Precompiled headers without optimization cannot be used then.
target_compile_options(test_cuda_on_host PRIVATE -O1)
set_target_properties(test_cuda_on_host PROPERTIES DISABLE_PRECOMPILE_HEADERS ON)
