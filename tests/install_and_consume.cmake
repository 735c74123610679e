# Installs the build tree into an empty prefix, then configures, builds and runs the example against it, as a project
# elsewhere would. Called by ctest with BUILD_DIR, EXAMPLE_DIR, WORK_DIR, GENERATOR and CXX_COMPILER.

set(prefix ${WORK_DIR}/prefix)
set(build ${WORK_DIR}/build)
file(REMOVE_RECURSE ${WORK_DIR})

function(run)
  execute_process(COMMAND ${ARGN} COMMAND_ERROR_IS_FATAL ANY)
endfunction()

run(${CMAKE_COMMAND} --install ${BUILD_DIR} --prefix ${prefix})
run(${CMAKE_COMMAND} -S ${EXAMPLE_DIR} -B ${build} -G ${GENERATOR} -DCMAKE_BUILD_TYPE=Release
    -DCMAKE_CXX_COMPILER=${CXX_COMPILER} -DCMAKE_PREFIX_PATH=${prefix} -DCMAKE_FIND_USE_PACKAGE_REGISTRY=OFF)
run(${CMAKE_COMMAND} --build ${build})

# The headers must not need anything but themselves and the standard library, whichever one comes first.
file(GLOB headers RELATIVE ${prefix}/include ${prefix}/include/deltanet/*.h)
if(NOT headers)
  message(FATAL_ERROR "no headers were installed below ${prefix}/include/deltanet")
endif()
foreach(header IN LISTS headers)
  file(WRITE ${WORK_DIR}/alone.cc "#include \"${header}\"\n")
  run(${CXX_COMPILER} -std=c++20 -fsyntax-only -I${prefix}/include ${WORK_DIR}/alone.cc)
endforeach()

execute_process(COMMAND ${build}/consumer OUTPUT_VARIABLE output COMMAND_ERROR_IS_FATAL ANY)
message(STATUS "${output}")
if(NOT output MATCHES "chunk and recurrent agree")
  message(FATAL_ERROR "the example did not report the agreement of its two results")
endif()
