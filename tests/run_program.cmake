cmake_minimum_required(VERSION 3.25)

# run("0;1" "text" ARGUMENTS...): runs ${PROGRAM} and fails unless its status is one of those given (a crash has none of
# them) and what it said matches the text.
function(run statuses text)
  execute_process(COMMAND ${PROGRAM} ${ARGN} RESULT_VARIABLE status OUTPUT_VARIABLE out ERROR_VARIABLE err)
  if(NOT status IN_LIST statuses OR NOT "${out}${err}" MATCHES "${text}")
    message(FATAL_ERROR "${ARGN}\nstatus ${status}, expected ${statuses} and \"${text}\"\n${out}${err}")
  endif()
  set(said "${out}${err}" PARENT_SCOPE)
endfunction()
