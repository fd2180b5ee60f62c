# cmake -DFROM=<file of kernels/cuda> -DTO=<copy> -DMUTATIONS=<mutations.cmake> -P copy_kernels.cmake Copies a source and
# inserts its mutations, each active if its number is selected, and replaces shared memory by the emulation's. Line numbers stay
# the same.
file(READ ${FROM} text)
get_filename_component(name ${FROM} NAME)

# mutation(<name> <file> <n> <text> <other> <tests>): replaces the n-th <text> of the file by <other>.
set(number 0)
function(mutation what file n old new tests)
  math(EXPR number "${number} + 1")
  set(number ${number} PARENT_SCOPE)
  if(NOT file STREQUAL name)
    return()
  endif()
  set(before "")
  set(rest "${text}")
  foreach(i RANGE 1 ${n})
    string(FIND "${rest}" "${old}" place)
    if(place EQUAL -1)
      message(FATAL_ERROR "mutation '${what}': ${file} does not have ${n} times '${old}'; "
        "the kernel is another than tests/cuda_on_host/mutations.cmake knows")
    endif()
    string(LENGTH "${old}" length)
    if(i EQUAL n)
      set(length 0)
    endif()
    math(EXPR end "${place} + ${length}")
    string(SUBSTRING "${rest}" 0 ${end} skipped)
    string(SUBSTRING "${rest}" ${end} -1 rest)
    string(APPEND before "${skipped}")
  endforeach()
  string(LENGTH "${old}" length)
  string(SUBSTRING "${rest}" ${length} -1 rest)
  if(old MATCHES ";$")
    set(either "if (emulation::mutation == ${number}) { ${new} } else { ${old} }")
  else()
    set(either "(emulation::mutation == ${number} ? (${new}) : (${old}))")
  endif()
  set(text "${before}${either}${rest}" PARENT_SCOPE)
endfunction()
include(${MUTATIONS})

string(REGEX REPLACE "extern __shared__ (__align__\\([^)]*\\) )?([A-Za-z0-9_]+) ([a-z_]+)\\[\\];"
  "auto* \\3 = reinterpret_cast<\\2*>(emulation::block().shared());" text "${text}")
string(REGEX REPLACE "__shared__ ([A-Za-z0-9_]+) ([a-z_]+)((\\[[^]]*\\])+);"
  "static emulation::SharedArray<\\1\\3> \\2_memory; auto& \\2 = \\2_memory.of_block();" text "${text}")
# nvcc includes this header automatically.
file(WRITE ${TO} "#include <cuda_runtime.h>\n#line 1 \"${FROM}\"\n${text}")
