# Warnings and sanitizers, for this project's own targets only. Never -march=native (dispatch is at run time) and never
# -ffast-math (results must not depend on the optimizer).

add_library(deltanet_compiler INTERFACE)
target_compile_options(deltanet_compiler INTERFACE
  -Wall -Wextra -Wpedantic -Wshadow -Wcast-qual -Wextra-semi -Wformat=2 -Wnon-virtual-dtor -Woverloaded-virtual -Wundef
  -Wunused
  $<$<CXX_COMPILER_ID:GNU>:-Wduplicated-cond -Wlogical-op -Wno-psabi>
  # GCC 12 reports false positives of these in std::string.
  $<$<AND:$<CXX_COMPILER_ID:GNU>,$<VERSION_LESS:$<CXX_COMPILER_VERSION>,13>>:-Wno-restrict -Wno-stringop-overflow>
  $<$<BOOL:${DELTANET_WERROR}>:-Werror>)

if(DELTANET_SANITIZE)
  target_compile_options(deltanet_compiler INTERFACE
    -fsanitize=${DELTANET_SANITIZE} -fno-sanitize-recover=all -fno-omit-frame-pointer
    # GCC reports false positives of this one in instrumented code.
    $<$<CXX_COMPILER_ID:GNU>:-Wno-maybe-uninitialized>)
  target_link_options(deltanet_compiler INTERFACE -fsanitize=${DELTANET_SANITIZE})
endif()
