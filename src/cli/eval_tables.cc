#include "cli/eval_tables.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <nlohmann/json.hpp>
#include <set>
#include <vector>

#include "cli/json_file.h"
#include "cli/terminal.h"

namespace deltanet::cli {
namespace {

using eval::Column;
using eval::ModelReport;
using eval::ResultTable;

void print(const ResultTable& table) {
  std::vector<std::vector<std::string>> rows = {{bold(table.title)}, {""}};
  std::vector<std::size_t> numbers;
  for (std::size_t k = 0; k < table.columns.size(); ++k) {
    const Column& column = table.columns[k];
    rows[0].push_back(column.group.empty() ? column.title : column.group + " " + column.title);
    rows[1].push_back(column.unit + (column.higher_is_better ? "" : " ↓"));
    numbers.push_back(k + 1);
  }
  for (std::size_t i = 0; i < table.models.size(); ++i) {
    rows.push_back({table.models[i]});
    for (std::size_t k = 0; k < table.columns.size(); ++k) {
      const std::string text = eval::entry_text(table.columns[k], table.rows[i][k], true);
      // A star where there are no bold letters.
      rows.back().push_back(!table.rows[i][k].best ? text : use_color() ? bold(text) : "*" + text);
    }
  }
  fmt::print("\n");
  print_table(rows, numbers);
}

std::string difference_text(double value, double error) {
  std::string text = (value >= 0 ? "+" : "") + eval::value_text(value, 2);
  return std::isfinite(error) ? text + " ±" + eval::value_text(error, 2) : text;
}

void print_differences(std::span<const ModelReport> reports) {
  const auto all = eval::differences(reports);
  if (all.empty()) return;
  std::vector<std::vector<std::string>> rows = {{bold("differences"), "task", "metric", "difference", "p", "examples"}};
  for (const eval::NamedDifference& one : all) {
    const eval::Metric& metric = eval::find_metric(one.task->kind, one.metric);
    const double scale = metric.is_share() ? 100 : 1;
    rows.push_back({fmt::format("{} - {}", one.second, one.first), std::string(one.task->name), one.metric,
                    difference_text(scale * one.difference.value, scale * one.difference.stderr_),
                    std::isfinite(one.difference.stderr_) ? fmt::format("{:.3f}", one.difference.p) : "-",
                    std::to_string(one.difference.examples)});
  }
  fmt::print("\n");
  print_table(rows, {3, 4, 5});
}

// Perplexity by place, at octaves.
void print_curves(std::span<const ModelReport> reports) {
  for (const ModelReport& report : reports) {
    for (const auto& [task, result] : report.tasks) {
      if (task->name != "text") continue;
      for (const eval::Metric& metric : eval::metrics_of(task->kind)) {
        fmt::print("{}{}: {} {}", &metric == eval::metrics_of(task->kind).data() ? "\n" : "", report.name, metric.name,
                   estimate_text(metric, eval::estimate(metric, result.examples)) + "\n");
      }
      std::vector<std::vector<std::string>> rows = {{bold("tokens before"), "loss", "perplexity", "tokens"}};
      int64_t begin = 0, next = 1, tokens = 0;
      double loss = 0;
      const auto points = eval::curve(result.examples);
      for (std::size_t i = 0; i < points.size(); ++i) {
        if (tokens == 0) begin = points[i].begin;
        loss += points[i].loss * static_cast<double>(points[i].tokens);
        tokens += points[i].tokens;
        while (next < points[i].end) next *= 2;
        if (points[i].end < next && i + 1 < points.size()) continue;
        const double mean = loss / static_cast<double>(tokens);
        rows.push_back({fmt::format("{} to {}", begin, points[i].end - 1), fmt::format("{:.4f}", mean),
                        fmt::format("{:.2f}", std::exp(mean)), std::to_string(tokens)});
        loss = 0;
        tokens = 0;
      }
      print_table(rows, {1, 2, 3});
    }
  }
}

// By two tags: a line for each value of the first, a column for each of the second.
void print_breakdowns(std::span<const ModelReport> reports) {
  for (const ModelReport& report : reports) {
    for (const auto& [task, result] : report.tasks) {
      for (const eval::Breakdown& by : task->breakdowns) {
        if (by.size() != 2) continue;  // those of one tag are in the table
        const eval::Metric& metric = eval::find_metric(task->kind, task->metric);
        std::map<double, std::map<double, std::string>> lines;
        std::set<double> columns;
        for (const eval::Cell& cell : eval::break_down(metric, by, result.examples)) {
          const double line = cell.tags.at(std::string(by[0])), column = cell.tags.at(std::string(by[1]));
          lines[line][column] = eval::value_text((metric.is_share() ? 100 : 1) * cell.estimate.value, 1);
          columns.insert(column);
        }
        std::vector<std::vector<std::string>> rows = {
            {bold(fmt::format("{}, {}: {} by {}, {}", report.name, task->name, task->metric, by[0], by[1]))}};
        std::vector<std::size_t> numbers;
        for (const double column : columns) {
          numbers.push_back(rows[0].size());
          rows[0].push_back(fmt::format("{:g}", column));
        }
        for (const auto& [line, values] : lines) {
          rows.push_back({fmt::format("{:g}", line)});
          for (const double column : columns) {
            rows.back().push_back(values.contains(column) ? values.at(column) : "-");
          }
        }
        fmt::print("\n");
        print_table(rows, numbers);
      }
    }
  }
}

void print_notes(std::span<const ModelReport> reports) {
  std::set<std::string> said;
  const auto note = [&](const std::string& text) {
    if (said.insert(text).second) fmt::print("{}{}\n", said.size() == 1 ? "\n" : "", text);
  };
  for (const ModelReport& report : reports) {
    for (const auto& [task, result] : report.tasks) {
      for (const std::string& text : result.notes) note(text);
      const auto cut = std::count_if(result.examples.begin(), result.examples.end(),
                                     [](const eval::ExampleResult& example) { return example.cut; });
      if (cut > 0) {
        note(fmt::format("{}, {}: {} of {} {} too long and lost their beginning", report.name, task->name, cut,
                         result.examples.size(),
                         task->kind == eval::Kind::kQuestion ? "prompts were" : "examples had contexts that were"));
      }
    }
  }
}

}  // namespace

std::string estimate_text(const eval::Metric& metric, const eval::Estimate& estimate) {
  const double scale = metric.is_share() ? 100 : 1;
  const int digits = metric.aggregate == eval::Aggregate::kBits ? 4 : 2;
  std::string text = eval::value_text(scale * estimate.value, digits) + (metric.is_share() ? "%" : "");
  if (std::isfinite(estimate.stderr_)) text += " ±" + eval::value_text(scale * estimate.stderr_, digits);
  return text;
}

void print_report(std::span<const ModelReport> reports, const std::string& format) {
  if (format == "json") {
    write_json("-", eval::to_json(reports));
    return;
  }
  for (const ResultTable& table : eval::result_tables(reports)) {
    if (format == "markdown") {
      fmt::print("\n{}", eval::to_markdown(table));
    } else if (format == "latex") {
      fmt::print("\n{}", eval::to_latex(table));
    } else {
      print(table);
    }
  }
  if (format != "text") return;
  print_breakdowns(reports);
  print_curves(reports);
  print_differences(reports);
  print_notes(reports);
}

}  // namespace deltanet::cli
