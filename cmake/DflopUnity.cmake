# DFLOP_UNITY: compiles the sources of a folder as one source. Shared headers are then parsed once, so a build from scratch is
# much faster. If off, each source is compiled by itself: less is rebuilt after a change, and a source that lacks an include
# fails.
option(DFLOP_UNITY "Compile the sources of each folder as one" OFF)

# dflop_unity(<target> <source>...): groups sources by folder. At most DFLOP_UNITY_SOURCES of them make a group.
set(DFLOP_UNITY_SOURCES 16)
function(dflop_unity target)
  if(NOT DFLOP_UNITY)
    return()
  endif()
  set_target_properties(${target} PROPERTIES UNITY_BUILD ON UNITY_BUILD_MODE GROUP)
  if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
    # GCC takes an included source for a header, hence the first flag. In such long sources it also collects garbage all the
    # time. Without, it needs an eighth less time and a fifth more memory, 1.2 GB at most.
    target_compile_options(${target} PRIVATE
      $<$<COMPILE_LANGUAGE:CXX>:-Wno-subobject-linkage;--param=ggc-min-heapsize=4194304>)
  endif()
  foreach(source IN LISTS ARGN)
    get_filename_component(source ${source} ABSOLUTE)
    get_filename_component(folder ${source} DIRECTORY)
    file(RELATIVE_PATH folder ${PROJECT_SOURCE_DIR} ${folder})
    string(MAKE_C_IDENTIFIER "${folder}" group)
    if(source MATCHES "\\.cu$")
      list(APPEND cuda_groups ${group})
      string(APPEND cuda_${group} "#include \"${source}\"\n")
      set_source_files_properties(${source} PROPERTIES HEADER_FILE_ONLY ON)
      continue()
    endif()
    math(EXPR count_${group} "0${count_${group}} + 1")
    math(EXPR part "(${count_${group}} - 1) / ${DFLOP_UNITY_SOURCES}")
    set_source_files_properties(${source} PROPERTIES UNITY_GROUP ${group}_${part})
  endforeach()
  if(cuda_groups)
    list(REMOVE_DUPLICATES cuda_groups)
  endif()
  foreach(group IN LISTS cuda_groups)  # CMake 3.25 does not group CUDA sources
    set(unity ${CMAKE_CURRENT_BINARY_DIR}/${target}_${group}.cu)
    file(CONFIGURE OUTPUT ${unity} CONTENT "${cuda_${group}}" @ONLY)
    target_sources(${target} PRIVATE ${unity})
  endforeach()
endfunction()

# dflop_precompile(<target> <header>... | FROM <other>): precompiles headers that most of the target's folders include, or
# reuses those of a target with the same flags. Builds of single sources do not use them, so that they find missing includes.
function(dflop_precompile target)
  if(DFLOP_CCACHE OR NOT DFLOP_UNITY)  # ccache does not cache sources compiled with them
    return()
  endif()
  if("${ARGV1}" STREQUAL "FROM")
    target_precompile_headers(${target} REUSE_FROM ${ARGV2})
  else()
    target_precompile_headers(${target} PRIVATE ${ARGN})
  endif()
endfunction()
set(DFLOP_COMMON_HEADERS <algorithm> <array> <chrono> <cmath> <functional> <limits> <map> <memory> <mutex> <numeric> <optional>
  <set> <span> <string> <string_view> <thread> <tuple> <unordered_map> <utility> <vector> <fmt/format.h>)
