# DFLOP_UNITY: the sources of a folder are compiled as one, which reads the headers they share once: a build from scratch
# takes a quarter of the time. Off, each source is compiled alone: less is built again after a change, and a source that
# lacks an include fails.
option(DFLOP_UNITY "Compile the sources of each folder as one" OFF)

# dflop_unity(<target> <source>...): groups sources by folder. At most DFLOP_UNITY_SOURCES of them make a group.
set(DFLOP_UNITY_SOURCES 16)
function(dflop_unity target)
  if(NOT DFLOP_UNITY)
    return()
  endif()
  set_target_properties(${target} PROPERTIES UNITY_BUILD ON UNITY_BUILD_MODE GROUP)
  if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU")  # it takes a source that is included for a header
    target_compile_options(${target} PRIVATE $<$<COMPILE_LANGUAGE:CXX>:-Wno-subobject-linkage>)
  endif()
  foreach(source IN LISTS ARGN)
    get_filename_component(folder ${source} DIRECTORY)
    get_filename_component(folder ${folder} ABSOLUTE)
    file(RELATIVE_PATH folder ${PROJECT_SOURCE_DIR} ${folder})
    string(MAKE_C_IDENTIFIER "${folder}" group)
    math(EXPR count_${group} "0${count_${group}} + 1")
    math(EXPR part "(${count_${group}} - 1) / ${DFLOP_UNITY_SOURCES}")
    set_source_files_properties(${source} PROPERTIES UNITY_GROUP ${group}_${part})
  endforeach()
endfunction()
