# What layers and tokenizers stand on. These are taken from the system: building oneDNN here would take longer than
# building everything else together. Also read by the installed package, whose users link against the same libraries.

function(deltanet_need found library package)
  if(NOT ${found})
    message(FATAL_ERROR "${library} was not found. Install it (on Debian and Ubuntu: ${package}; `make setup` installs "
                        "everything), or build the recurrences alone with -DDELTANET_MODELS=OFF.")
  endif()
endfunction()

# name: target deltanet::<name>; header and library to look for; Debian package
function(deltanet_system_library name header library package)
  if(TARGET deltanet::${name})
    return()
  endif()
  find_path(DELTANET_${name}_INCLUDE ${header})
  find_library(DELTANET_${name}_LIBRARY ${library})
  mark_as_advanced(DELTANET_${name}_INCLUDE DELTANET_${name}_LIBRARY)
  if(DELTANET_${name}_INCLUDE AND DELTANET_${name}_LIBRARY)
    set(found TRUE)
  endif()
  deltanet_need(found ${name} ${package})
  add_library(deltanet::${name} UNKNOWN IMPORTED)
  set_target_properties(deltanet::${name} PROPERTIES
    IMPORTED_LOCATION "${DELTANET_${name}_LIBRARY}"
    INTERFACE_INCLUDE_DIRECTORIES "${DELTANET_${name}_INCLUDE}")
endfunction()

# Not by oneDNN's own CMake package: where it was built for GPUs too, as Debian's is, that one asks for OpenCL's headers.
deltanet_system_library(dnnl oneapi/dnnl/dnnl.hpp dnnl libdnnl-dev)
deltanet_system_library(sentencepiece sentencepiece_processor.h sentencepiece libsentencepiece-dev)
deltanet_system_library(pcre2 pcre2.h pcre2-8 libpcre2-dev)
deltanet_system_library(utf8proc utf8proc.h utf8proc libutf8proc-dev)
deltanet_system_library(zlib zlib.h z zlib1g-dev)
deltanet_system_library(zstd zstd.h zstd libzstd-dev)
