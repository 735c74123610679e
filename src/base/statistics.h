#pragma once

#include <span>

namespace deltanet {

// A mean and half the width of its 95 % interval by Student's t; infinite for fewer than two values.
struct MeanInterval {
  double mean = 0, half_width = 0;
};

MeanInterval mean_interval(std::span<const double> values);

// What a variable with Student's t distribution exceeds with a probability of 2.5 %.
double student_t_quantile(int degrees_of_freedom);

}  // namespace deltanet
