#pragma once

#include <vector>

#include "eval/task.h"

// The parts of the table of tasks, one for each file of tasks; all_tasks() in task.cc joins them.

namespace deltanet::eval {

std::vector<Task> language_tasks();   // wikitext, lambada, text
std::vector<Task> choice_tasks();     // arc_easy ...
std::vector<Task> retrieval_tasks();  // fda ...
std::vector<Task> needle_tasks();     // s_niah_1 ...
std::vector<Task> synthetic_tasks();  // mqar, parity ...

}  // namespace deltanet::eval
