# kiln_flags: what every object of Kiln is compiled with.
add_library(kiln_flags INTERFACE)
target_include_directories(kiln_flags INTERFACE ${PROJECT_SOURCE_DIR}/include ${PROJECT_SOURCE_DIR} ${PROJECT_BINARY_DIR})
target_compile_features(kiln_flags INTERFACE c_std_11)
# No contraction: the host references and the simulator must round where the source says.
target_compile_options(kiln_flags INTERFACE
  -Wall -Wextra -Wconversion -Wshadow -Wstrict-prototypes -Wvla
  -fvisibility=hidden -fPIC -ffp-contract=off -fno-strict-aliasing
  $<$<BOOL:${KILN_WERROR}>:-Werror>)
find_package(Threads REQUIRED)
target_link_libraries(kiln_flags INTERFACE Threads::Threads m ${CMAKE_DL_LIBS})
if(KILN_FAULT_INJECTION)
  target_compile_definitions(kiln_flags INTERFACE KN_FAULT_INJECTION)
endif()
if(KILN_SANITIZE STREQUAL "address")
  target_compile_options(kiln_flags INTERFACE -fsanitize=address,undefined -fno-sanitize-recover=undefined -fno-omit-frame-pointer)
  target_link_options(kiln_flags INTERFACE -fsanitize=address,undefined)
elseif(KILN_SANITIZE STREQUAL "thread")
  target_compile_options(kiln_flags INTERFACE -fsanitize=thread -fno-omit-frame-pointer)
  target_link_options(kiln_flags INTERFACE -fsanitize=thread)
endif()
if(KILN_FUZZERS) # libFuzzer steers by the branches of all code
  target_compile_options(kiln_flags INTERFACE -fsanitize=fuzzer-no-link)
endif()
if(KILN_COVERAGE)
  target_compile_options(kiln_flags INTERFACE --coverage)
  target_link_options(kiln_flags INTERFACE --coverage)
endif()

# kn_module(NAME sources...): one object library of one folder.
function(kn_module name)
  if(NOT ARGN)
    return() # a folder without sources yet
  endif()
  add_library(kn_${name} OBJECT ${ARGN})
  target_link_libraries(kn_${name} PUBLIC kiln_flags)
  set_property(GLOBAL APPEND PROPERTY KN_MODULES kn_${name})
endfunction()
