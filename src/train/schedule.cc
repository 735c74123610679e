#include "train/schedule.h"

#include <algorithm>
#include <cmath>
#include <numbers>

#include "deltanet/error.h"

namespace deltanet {

std::string schedule_name(ScheduleKind kind) {
  switch (kind) {
    case ScheduleKind::kCosine:
      return "cosine";
    case ScheduleKind::kConstant:
      return "constant";
    case ScheduleKind::kWsd:
      return "wsd";
  }
  return "";
}

ScheduleKind parse_schedule(std::string_view name) {
  for (const ScheduleKind kind : {ScheduleKind::kCosine, ScheduleKind::kConstant, ScheduleKind::kWsd}) {
    if (schedule_name(kind) == name) return kind;
  }
  throw Error("[train] schedule: given \"" + std::string(name) + "\"; expected cosine, constant or wsd");
}

double half_cosine(double done) { return 0.5 * (1.0 + std::cos(std::numbers::pi * done)); }

double learning_rate(const Schedule& schedule, int64_t step) {
  const auto done = static_cast<double>(step + 1);  // the first step learns, the last one reaches the end
  const auto warmup = static_cast<double>(schedule.warmup), steps = static_cast<double>(schedule.steps);
  if (step < schedule.warmup) return schedule.peak * done / warmup;

  // How far the way from the peak to the end is gone, in [0, 1].
  const auto progress = [&](double begin) {
    return std::clamp((done - begin) / std::max(1.0, steps - begin), 0.0, 1.0);
  };
  double height = 1.0;
  switch (schedule.kind) {
    case ScheduleKind::kCosine:
      height = half_cosine(progress(warmup));
      break;
    case ScheduleKind::kConstant:
      break;
    case ScheduleKind::kWsd:
      height = 1.0 - progress(std::max(warmup, steps * (1.0 - schedule.decay_part)));
      break;
  }
  return schedule.peak * (schedule.end_ratio + (1.0 - schedule.end_ratio) * height);
}

}  // namespace deltanet
