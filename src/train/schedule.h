#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace deltanet {

enum class ScheduleKind {
  kCosine,    // warm-up, then half a cosine from the peak down to the end
  kConstant,  // warm-up, then the peak
  kWsd,       // warm-up, stable, decay: the last part of the steps goes down in a line
};

std::string schedule_name(ScheduleKind kind);  // "cosine", "constant", "wsd"
ScheduleKind parse_schedule(std::string_view name);

struct Schedule {
  ScheduleKind kind = ScheduleKind::kCosine;
  double peak = 4e-4;
  double end_ratio = 0.1;  // of the peak, reached by the last step
  int64_t warmup = 1024;   // steps; the last of them has the peak
  int64_t steps = 30000;
  double decay_part = 0.2;  // of the steps: how long the decay of wsd is
};

// Half a cosine: 1 where nothing is done, 0 where all (1) is.
double half_cosine(double done);

// The learning rate of a step, counted from 0.
double learning_rate(const Schedule& schedule, int64_t step);

}  // namespace deltanet
