# dflop_commit(<target>): defines commit() in the target, which returns the commit that the tree is built from. Every build
# queries git, but rewrites the source only if the commit changed, so that a new commit recompiles only one small file.
set(DFLOP_COMMIT_SCRIPT ${CMAKE_CURRENT_LIST_FILE})

function(dflop_commit target)
  set(source ${CMAKE_CURRENT_BINARY_DIR}/commit.cpp)
  find_package(Git QUIET)
  add_custom_target(dflop_commit_source BYPRODUCTS ${source} COMMENT ""
    COMMAND ${CMAKE_COMMAND} -D GIT=${GIT_EXECUTABLE} -D TREE=${PROJECT_SOURCE_DIR} -D OUT=${source} -P ${DFLOP_COMMIT_SCRIPT})
  add_dependencies(${target} dflop_commit_source)
  target_sources(${target} PRIVATE ${source})
  set_source_files_properties(${source} PROPERTIES SKIP_PRECOMPILE_HEADERS ON SKIP_UNITY_BUILD_INCLUSION ON)
endfunction()

if(CMAKE_SCRIPT_MODE_FILE STREQUAL CMAKE_CURRENT_LIST_FILE)
  set(commit "")
  if(GIT)
    execute_process(COMMAND ${GIT} describe --always --dirty --abbrev=10 --exclude=* WORKING_DIRECTORY ${TREE}
      OUTPUT_VARIABLE commit ERROR_QUIET OUTPUT_STRIP_TRAILING_WHITESPACE)
  endif()
  set(text "#include \"experiments/cli/commit.hpp\"\n\nnamespace dflop {\nconst char* commit() {\n  return \"${commit}\";\n}\n}  // namespace dflop\n")
  if(EXISTS ${OUT})
    file(READ ${OUT} before)
  endif()
  if(NOT before STREQUAL text)
    file(WRITE ${OUT} "${text}")
  endif()
endif()
