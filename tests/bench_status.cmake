# A benchmark comes to its end. Whether the floors are met is not asked here, since other tests run at the same time;
# but a crash or an error is not a missed floor.
# -DPROGRAM= -DARGUMENTS= (a list)

include(${CMAKE_CURRENT_LIST_DIR}/run_program.cmake)
run("0;1" "PASS|FAIL|of oneDNN" ${ARGUMENTS})
if(said MATCHES "deltanet: ")
  message(FATAL_ERROR "an error:\n${said}")
endif()
