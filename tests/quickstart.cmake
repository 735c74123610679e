# `deltanet quickstart` comes to its end, and leaves a sweep of `deltanet mqar` in the same folder as it was.
# -DPROGRAM= -DTEXT= (to train on) -DWORK_DIR=

include(${CMAKE_CURRENT_LIST_DIR}/run_program.cmake)
file(REMOVE_RECURSE ${WORK_DIR})
file(WRITE ${WORK_DIR}/results.jsonl "of a sweep\n")
file(WRITE ${WORK_DIR}/recall.jsonl "of the time before\n")

run(0 "bits per byte at the end" quickstart --seconds 2 --text-seconds 1 --no-plot --text ${TEXT} --out ${WORK_DIR})
file(READ ${WORK_DIR}/results.jsonl sweep)
if(NOT sweep STREQUAL "of a sweep\n")
  message(FATAL_ERROR "quickstart changed results.jsonl")
endif()
file(STRINGS ${WORK_DIR}/recall.jsonl lines)
list(LENGTH lines count)
if(NOT count EQUAL 2)
  message(FATAL_ERROR "recall.jsonl has ${count} lines, expected one for GDN and one for PGDN:\n${lines}")
endif()
