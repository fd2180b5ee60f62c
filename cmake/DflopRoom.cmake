# dflop_room(<folder> [DEPENDS room...] [PRIVATE target...])
# Makes the library dflop_<folder> of all sources in <folder>. DEPENDS are rooms below it, visible through its headers;
# PRIVATE are third-party targets that only its sources see.
function(dflop_room room)
  cmake_parse_arguments(arg "" "" "DEPENDS;PRIVATE" ${ARGN})
  file(GLOB sources CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/${room}/*.cpp)
  add_library(dflop_${room} STATIC ${sources})
  target_include_directories(dflop_${room} PUBLIC ${PROJECT_SOURCE_DIR})
  list(TRANSFORM arg_DEPENDS PREPEND dflop_)
  target_link_libraries(dflop_${room} PUBLIC dflop_options ${arg_DEPENDS} PRIVATE ${arg_PRIVATE})
endfunction()
