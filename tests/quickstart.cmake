# `deltanet quickstart` comes to its end, shows what it should, leaves a sweep of `deltanet mqar` in the same folder as
# it was, and a checkpoint that `deltanet generate` goes on with. Given numbers of steps give the same results twice.
# -DPROGRAM= -DTEXT= (to train on) -DWORK_DIR=

include(${CMAKE_CURRENT_LIST_DIR}/run_program.cmake)
file(REMOVE_RECURSE ${WORK_DIR})
file(WRITE ${WORK_DIR}/results.jsonl "of a sweep\n")
file(WRITE ${WORK_DIR}/recall.jsonl "of the time before\n")

# Lines of a file without what a clock says.
function(results_of file result)
  file(STRINGS ${file} lines)
  string(REGEX REPLACE "\"(seconds|train_seconds)\":[-+.e0-9]+" "" lines "${lines}")
  list(SORT lines)  # in the order in which threads finished
  set(${result} "${lines}" PARENT_SCOPE)
endfunction()

set(quickstart quickstart --seeds 3 --steps 20 --text-steps 4 --no-plot --text ${TEXT} --out ${WORK_DIR})
foreach(part "keys along the axes.*exact least squares.*the same keys, rotated.*exact least squares"
             "PDN − DeltaNet.*95 % interval.*After 20 steps, 3 pairs of runs: PDN − DeltaNet = [+-][0-9.]+ ± [0-9.]+ points"
             "bits per byte at the end.*What next.*generate ${WORK_DIR}/text")
  run(0 "${part}" ${quickstart})
  results_of(${WORK_DIR}/recall.jsonl recall)
  results_of(${WORK_DIR}/regression.jsonl regression)
  if(DEFINED first AND NOT first STREQUAL "${recall}${regression}")
    message(FATAL_ERROR "the same steps gave other results:\n${first}\n${recall}${regression}")
  endif()
  set(first "${recall}${regression}")
endforeach()
list(LENGTH regression count)
if(NOT count EQUAL 10)
  message(FATAL_ERROR "regression.jsonl has ${count} lines, expected five solvers for each kind of keys")
endif()
list(LENGTH recall count)
if(NOT count EQUAL 6)
  message(FATAL_ERROR "recall.jsonl has ${count} lines, expected three for each of two models:\n${recall}")
endif()
file(READ ${WORK_DIR}/results.jsonl sweep)
if(NOT sweep STREQUAL "of a sweep\n")
  message(FATAL_ERROR "quickstart changed results.jsonl")
endif()
run(0 "generated 3 tokens" generate ${WORK_DIR}/text -p The -n 3)
