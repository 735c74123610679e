# `deltanet mqar` makes every run once, keeps what is done, and lists a plan without starting it.
# -DPROGRAM= -DWORK_DIR=

include(${CMAKE_CURRENT_LIST_DIR}/run_program.cmake)
file(REMOVE_RECURSE ${WORK_DIR})

set(sweep mqar --models dn,pgdn --lengths 8,16 --pairs 1,2 --d-model 16 --lrs 1e-2 --seeds 0 --examples 640 --vocab 16
          --no-plot --out ${WORK_DIR})
run(0 "8 runs, 0 of them in .*pgdn +16 .*\\(16,2\\)x640" ${sweep})
run(0 "8 runs, 8 of them in .*pgdn +16 .*\\(16,2\\)x640" ${sweep})
file(STRINGS ${WORK_DIR}/results.jsonl lines)
list(LENGTH lines count)
if(NOT count EQUAL 8)
  message(FATAL_ERROR "${WORK_DIR}/results.jsonl has ${count} lines, expected one for each of 8 runs")
endif()

# A run that is asked for twice is one run, and the order stays.
run(0 "^[^\n]*\npgdn [^\n]*\ndelta_net [^\n]*\ngdn [^\n]*\n3 runs, "
    mqar --models pgdn,dn,gdn,delta_net,pgdn --seeds 5,5 --lrs 1e-2,0.01 --d-model 16,16 --dry-run)

# The grid of the paper.
run(0 "48 runs, at most 37356M tokens" mqar --preset paper --dry-run --out ${WORK_DIR}/plan)
if(EXISTS ${WORK_DIR}/plan)
  message(FATAL_ERROR "--dry-run made ${WORK_DIR}/plan")
endif()
foreach(model delta_net pdn gdn pgdn)
  foreach(d_model 64 128 256)
    foreach(lr 0.001 0.00316 0.01 0.0316)
      # 707 batches in an epoch: none holds examples of two tasks.
      set(line "\n${model} +${d_model} +${lr} +0 +32 +22624 +778M  \\(64,4\\)x100k \\(128,8\\)x20.0k [^\n]*\n")
      if(NOT said MATCHES "${line}")
        message(FATAL_ERROR "the paper's grid has no ${model} of ${d_model} at ${lr}:\n${said}")
      endif()
    endforeach()
  endforeach()
endforeach()
