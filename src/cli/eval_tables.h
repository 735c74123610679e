#pragma once

#include <span>
#include <string>

#include "eval/report.h"

// What `deltanet eval` prints.

namespace deltanet::cli {

// "48.21% ±1.02", "29.15 ±0.31".
std::string estimate_text(const eval::Metric& metric, const eval::Estimate& estimate);

// Tables, differences, curves and notes; as text, or the tables alone as markdown, latex or json.
void print_report(std::span<const eval::ModelReport> reports, const std::string& format);

}  // namespace deltanet::cli
