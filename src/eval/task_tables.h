#pragma once

#include <vector>

#include "eval/task.h"

// The parts of the table of tasks, one for each file of tasks; all_tasks() in task.cc joins them.

namespace deltanet::eval {

Task lambada_task();
std::vector<Task> language_tasks();   // wikitext, text
std::vector<Task> choice_tasks();     // arc_easy ... and, in the order of the paper, lambada
std::vector<Task> retrieval_tasks();  // fda ...
std::vector<Task> needle_tasks();     // s_niah_1 ...
std::vector<Task> synthetic_tasks();  // mqar, parity ...

}  // namespace deltanet::eval
