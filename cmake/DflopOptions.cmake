# Flags that every target shares.
option(DFLOP_WERROR "Warnings are errors" OFF)
set(DFLOP_SANITIZE "" CACHE STRING "Sanitizers, as 'address,undefined' or 'thread'; empty for none")
option(DFLOP_FUZZ "Build the fuzz targets with libFuzzer (Clang)" OFF)
option(DFLOP_TIDY "Run clang-tidy on every source that is compiled" OFF)

set(CMAKE_EXPORT_COMPILE_COMMANDS ON)
set(CMAKE_CXX_EXTENSIONS OFF)
if(NOT CMAKE_BUILD_TYPE)
  set(CMAKE_BUILD_TYPE Release CACHE STRING "" FORCE)
endif()

find_program(DFLOP_CCACHE ccache)
if(DFLOP_CCACHE)
  set(CMAKE_CXX_COMPILER_LAUNCHER ${DFLOP_CCACHE})
endif()

add_library(dflop_options INTERFACE)
target_compile_features(dflop_options INTERFACE cxx_std_20)
# nvcc gets its language level here: CMake 3.25 silently drops levels above 17 for it.
target_compile_options(dflop_options INTERFACE
  $<$<COMPILE_LANGUAGE:CXX>:-Wall;-Wextra;-Werror=switch;-Wshadow;-Wnon-virtual-dtor;-Woverloaded-virtual>
  $<$<COMPILE_LANGUAGE:CUDA>:-std=c++20;--expt-relaxed-constexpr;-Xcompiler=-Wall,-Wextra>)
if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU" AND CMAKE_CXX_COMPILER_VERSION VERSION_LESS 13)
  # GCC 12 sees overlaps in `"text" + std::string` (bug 105329; as -Wrestrict, -Wstringop-overflow or -Warray-bounds) and
  # uninitialized members of std::variant and std::regex (bug 105562) that do not exist. Clang checks the same code with its own
  # analysis.
  target_compile_options(dflop_options INTERFACE $<$<COMPILE_LANGUAGE:CXX>:-Wno-restrict;-Wno-stringop-overflow;-Wno-array-bounds;-Wno-maybe-uninitialized>)
endif()
if(DFLOP_WERROR)
  target_compile_options(dflop_options INTERFACE $<$<COMPILE_LANGUAGE:CXX>:-Werror>)
endif()
if(DFLOP_SANITIZE)
  set(flags -fsanitize=${DFLOP_SANITIZE} -fno-sanitize-recover=all -fno-omit-frame-pointer)
  if(DFLOP_SANITIZE MATCHES "address" AND DFLOP_SANITIZE MATCHES "undefined")  # ASan finds accesses beyond objects
    list(APPEND flags -fno-sanitize=object-size)
  endif()
  target_compile_options(dflop_options INTERFACE "$<$<COMPILE_LANGUAGE:CXX>:${flags}>")
  target_link_options(dflop_options INTERFACE ${flags})
endif()
if(DFLOP_FUZZ)
  target_compile_options(dflop_options INTERFACE $<$<COMPILE_LANGUAGE:CXX>:-fsanitize=fuzzer-no-link>)
endif()
if(DFLOP_TIDY)
  find_program(DFLOP_CLANG_TIDY clang-tidy REQUIRED)
  set(CMAKE_CXX_CLANG_TIDY ${DFLOP_CLANG_TIDY} --quiet)
endif()
