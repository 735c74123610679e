#pragma once

#include <string>
#include <vector>

#include "experiments/mqar_results.h"

// What `deltanet mqar` and `deltanet quickstart` both print about runs of MQAR.

namespace deltanet::cli {

// "(64,4)x100k (128,8)x20.0k": tasks as length, pairs and number of examples.
std::string parts_text(const std::vector<MqarPart>& parts);

// One line while a run goes on: step, loss, accuracy, speed, time left.
std::string progress_text(const MqarRun& run, const MqarProgress& progress);

// Every model and size at its best learning rate.
void print_best(const std::vector<MqarBest>& best);
// The accuracy of each test, for models that had several.
void print_tests(const std::vector<MqarBest>& best);
// The paper's cuts, as far as at least two of their tasks were tested.
void print_cuts(const std::vector<MqarBest>& best);

}  // namespace deltanet::cli
