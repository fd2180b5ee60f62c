# The host's operations a second time, for AVX2 with fused multiply-add; make_host_kernels() chooses at run time.
if(CMAKE_SYSTEM_PROCESSOR MATCHES "x86_64|AMD64")
  file(GLOB sources CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/kernels/host/*.cpp)
  list(FILTER sources EXCLUDE REGEX "/host_kernels\\.cpp$")  # this is not for one processor
  add_library(dflop_kernels_avx2 OBJECT ${sources})
  dflop_unity(dflop_kernels_avx2 ${sources})
  target_include_directories(dflop_kernels_avx2 PRIVATE ${PROJECT_SOURCE_DIR})
  target_compile_options(dflop_kernels_avx2 PRIVATE -mavx2 -mfma)
  target_compile_definitions(dflop_kernels_avx2 PRIVATE DFLOP_HOST_AVX2)
  target_link_libraries(dflop_kernels_avx2 PRIVATE dflop_options Eigen3::Eigen)
  target_sources(dflop_kernels PRIVATE $<TARGET_OBJECTS:dflop_kernels_avx2>)
  target_compile_definitions(dflop_kernels PRIVATE DFLOP_HAVE_HOST_AVX2)
endif()
