# DFLOP_PRECOMPILE: each target compiles the headers of others that it uses most once. Off in release, where a source that
# lacks an include must fail.
option(DFLOP_PRECOMPILE "Precompile headers of the standard library and of packages" OFF)

if(DFLOP_PRECOMPILE AND DFLOP_CCACHE)  # which otherwise keeps nothing that was compiled so
  set(CMAKE_CXX_COMPILER_LAUNCHER
    ${CMAKE_COMMAND} -E env CCACHE_SLOPPINESS=pch_defines,time_macros ${DFLOP_CCACHE})
  if(CMAKE_CXX_COMPILER_ID STREQUAL "Clang")
    target_compile_options(dflop_options INTERFACE "$<$<COMPILE_LANGUAGE:CXX>:SHELL:-Xclang -fno-pch-timestamp>")
  endif()
endif()

# dflop_precompile(<target> [header...]): the headers given, beside the standard library's.
function(dflop_precompile target)
  if(DFLOP_PRECOMPILE)
    target_precompile_headers(${target} PRIVATE
      <algorithm> <array> <cmath> <functional> <map> <memory> <optional> <set> <string> <thread> <vector> ${ARGN})
  endif()
endfunction()
