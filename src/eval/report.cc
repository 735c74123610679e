#include "eval/report.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <optional>
#include <set>

namespace deltanet::eval {
namespace {

using Json = nlohmann::ordered_json;

Json number(double value) { return std::isfinite(value) ? Json(value) : Json(); }

Json cells_json(const Metric& metric, const Breakdown& by, const TaskResult& result) {
  Json cells = Json::array();
  for (const Cell& cell : break_down(metric, by, result.examples)) {
    Json one = Json::object();
    for (const std::string_view tag : by) {
      const double value = cell.tags.at(std::string(tag));
      if (value == std::floor(value)) {
        one[std::string(tag)] = static_cast<int64_t>(value);
      } else {
        one[std::string(tag)] = value;
      }
    }
    one["value"] = number(cell.estimate.value);
    one["stderr"] = number(cell.estimate.stderr_);
    one["examples"] = cell.estimate.examples;
    cells.push_back(std::move(one));
  }
  return cells;
}

Json task_json(const Task& task, const TaskResult& result) {
  Json json = {{"title", task.title},
               {"group", task.group},
               {"metric", task.metric},
               {"examples", result.examples.size()},
               {"cut", std::count_if(result.examples.begin(), result.examples.end(),
                                     [](const ExampleResult& example) { return example.cut; })},
               {"tokens", result.tokens},
               {"seconds", result.seconds}};
  for (const Metric& metric : metrics_of(task.kind)) {
    const Estimate value = estimate(metric, result.examples);
    json["metrics"][std::string(metric.name)] = {{"value", number(value.value)}, {"stderr", number(value.stderr_)}};
  }
  const Metric& metric = find_metric(task.kind, task.metric);
  for (const Breakdown& by : task.breakdowns) {
    json["breakdowns"].push_back({{"by", by}, {"cells", cells_json(metric, by, result)}});
  }
  for (const CurvePoint& point : curve(result.examples)) {
    json["curve"].push_back(
        {{"begin", point.begin}, {"end", point.end}, {"loss", number(point.loss)}, {"tokens", point.tokens}});
  }
  json["about"] = result.about;
  json["notes"] = result.notes;
  return json;
}

// ---- tables

const Metric* perplexity_of(const Task& task) {
  for (const Metric& metric : metrics_of(task.kind)) {
    if (!metric.is_share() && (metric.name == task.metric || find_metric(task.kind, task.metric).is_share())) {
      return &metric;
    }
  }
  return nullptr;
}

std::string unit_of(const Metric& metric) {
  if (metric.aggregate == Aggregate::kPerplexity) return "ppl";
  if (metric.aggregate == Aggregate::kBits) return "bits/byte";
  if (metric.name == "acc_norm") return "acc_n";
  if (metric.name == "score") return "score";
  return "acc";
}

// 1024 -> "1K"
std::string tag_text(double value) {
  const auto whole = static_cast<int64_t>(value);
  if (static_cast<double>(whole) != value) return fmt::format("{:g}", value);
  if (whole >= 1024 && whole % 1024 == 0) return fmt::format("{}K", whole / 1024);
  return std::to_string(whole);
}

class Builder {
 public:
  Builder(std::string_view group, std::span<const ModelReport> models) : group_(group), models_(models) {
    table_.title = group_;
    for (const ModelReport& model : models) {
      table_.models.push_back(model.name);
      table_.rows.emplace_back();
    }
  }

  ResultTable build() {
    const std::vector<const Task*> tasks = tasks_of_group();
    for (const Task* task : tasks) {
      if (!task->perplexity_title.empty())
        add_column(*task, *perplexity_of(*task), std::string(task->perplexity_title));
    }
    const std::size_t first_share = table_.columns.size();
    bool has_cells = false;
    for (const Task* task : tasks) {
      const Metric& metric = find_metric(task->kind, task->metric);
      if (!metric.is_share()) continue;
      if (!task->breakdowns.empty() && task->breakdowns.front().size() == 1) {
        has_cells = true;
        add_cells(*task, metric);
      } else {
        add_column(*task, metric, std::string(task->title));
      }
    }
    if (!has_cells && table_.columns.size() > first_share + 1) add_average(first_share);
    mark_best();
    return std::move(table_);
  }

 private:
  std::vector<const Task*> tasks_of_group() const {
    std::vector<const Task*> found;
    for (const Task& task : tasks()) {
      if (task.group != group_) continue;
      if (std::any_of(models_.begin(), models_.end(), [&](const ModelReport& model) { return model.find(task); })) {
        found.push_back(&task);
      }
    }
    return found;
  }

  void add(Column column, const std::vector<std::optional<Estimate>>& estimates, double scale) {
    table_.columns.push_back(std::move(column));
    for (std::size_t i = 0; i < models_.size(); ++i) {
      Entry entry{.value = std::numeric_limits<double>::quiet_NaN(),
                  .error = std::numeric_limits<double>::quiet_NaN(),
                  .best = false};
      if (estimates[i]) {
        entry.value = scale * estimates[i]->value;
        entry.error = scale * estimates[i]->stderr_;
      }
      table_.rows[i].push_back(entry);
    }
  }

  static double scale_of(const Metric& metric) { return metric.is_share() ? 100 : 1; }

  void add_column(const Task& task, const Metric& metric, const std::string& title) {
    std::vector<std::optional<Estimate>> estimates;
    for (const ModelReport& model : models_) {
      const TaskResult* result = model.find(task);
      estimates.push_back(result ? std::optional(estimate(metric, result->examples)) : std::nullopt);
    }
    add({.group = "", .title = title, .unit = unit_of(metric), .higher_is_better = metric.is_share()}, estimates,
        scale_of(metric));
  }

  void add_cells(const Task& task, const Metric& metric) {
    const Breakdown& by = task.breakdowns.front();
    const std::string tag(by.front());
    std::map<double, std::vector<std::optional<Estimate>>> columns;
    for (std::size_t i = 0; i < models_.size(); ++i) {
      const TaskResult* result = models_[i].find(task);
      if (!result) continue;
      for (const Cell& cell : break_down(metric, by, result->examples)) {
        auto& column = columns[cell.tags.at(tag)];
        column.resize(models_.size());
        column[i] = cell.estimate;
      }
    }
    for (const auto& [value, estimates] : columns) {
      add({.group = std::string(task.title), .title = tag_text(value), .unit = unit_of(metric)}, estimates,
          scale_of(metric));
    }
  }

  void add_average(std::size_t first) {
    const auto count = static_cast<double>(table_.columns.size() - first);
    table_.columns.push_back({.group = "", .title = "Avg", .unit = "acc", .is_average = true});
    for (std::vector<Entry>& row : table_.rows) {
      double sum = 0, squares = 0;
      for (std::size_t i = first; i < row.size(); ++i) {
        sum += row[i].value;  // NaN where one is missing: no mean of fewer tasks
        squares += row[i].error * row[i].error;
      }
      row.push_back({.value = sum / count, .error = std::sqrt(squares) / count, .best = false});
    }
  }

  void mark_best() {
    std::vector<Spec> specs;
    for (const ModelReport& model : models_) specs.push_back(model.spec);
    std::vector<std::vector<std::size_t>> rivals;
    for (const auto& [a, b] : pairs_of(specs)) rivals.push_back({a, b});
    if (rivals.empty() && models_.size() > 1) {
      rivals.emplace_back();
      for (std::size_t i = 0; i < models_.size(); ++i) rivals.back().push_back(i);
    }
    for (const auto& group : rivals) {
      for (std::size_t column = 0; column < table_.columns.size(); ++column) {
        const double sign = table_.columns[column].higher_is_better ? 1 : -1;
        double best = -std::numeric_limits<double>::infinity();
        double worst = -best;
        for (const std::size_t i : group) {
          best = std::max(best, sign * table_.rows[i][column].value);
          worst = std::min(worst, sign * table_.rows[i][column].value);
        }
        for (const std::size_t i : group) {
          Entry& entry = table_.rows[i][column];
          entry.best = sign * entry.value == best && best > worst;  // where all are the same, none is better
        }
      }
    }
  }

  std::string group_;
  std::span<const ModelReport> models_;
  ResultTable table_;
};

bool has_groups(const ResultTable& table) {
  return std::any_of(table.columns.begin(), table.columns.end(), [](const Column& c) { return !c.group.empty(); });
}

std::string arrow(const Column& column, bool latex) {
  if (column.higher_is_better) return "";
  return latex ? "$\\downarrow$" : " ↓";
}

std::string escaped_latex(const std::string& text) {
  std::string escaped;
  for (const char c : text) {
    if (c == '\\') {
      escaped += "\\textbackslash{}";
    } else {
      if (std::string_view("_%&#${}").find(c) != std::string_view::npos) escaped += '\\';
      escaped += c;
    }
  }
  return escaped;
}

std::string escaped_markdown(const std::string& text) {
  std::string escaped;
  for (const char c : text) {
    if (c == '|' || c == '*' || c == '_' || c == '\\') escaped += '\\';
    escaped += c;
  }
  return escaped;
}

}  // namespace

const TaskResult* ModelReport::find(const Task& task) const {
  for (const auto& [one, result] : tasks) {
    if (one == &task) return &result;
  }
  return nullptr;
}

std::vector<NamedDifference> differences(std::span<const ModelReport> models) {
  std::vector<Spec> specs;
  for (const ModelReport& model : models) specs.push_back(model.spec);
  auto pairs = pairs_of(specs);
  if (pairs.empty()) {
    for (std::size_t i = 1; i < models.size(); ++i) pairs.emplace_back(0, i);
  }
  std::vector<NamedDifference> all;
  for (const auto& [first, second] : pairs) {
    for (const auto& [task, result] : models[first].tasks) {
      const TaskResult* other = models[second].find(*task);
      if (!other || other->examples.size() != result.examples.size()) continue;
      std::vector<const Metric*> metrics = {&find_metric(task->kind, task->metric)};
      if (!task->perplexity_title.empty() && perplexity_of(*task) != metrics.front()) {
        metrics.push_back(perplexity_of(*task));
      }
      for (const Metric* metric : metrics) {
        all.push_back({models[first].name, models[second].name, task, std::string(metric->name),
                       paired_difference(*metric, result.examples, other->examples)});
      }
    }
  }
  return all;
}

Json to_json(std::span<const ModelReport> models) {
  Json json = {{"format", "deltanet eval 1"}, {"models", Json::array()}};
  for (const ModelReport& model : models) {
    Json one = {{"name", model.name}};
    one.update(model.about);
    one["tasks"] = Json::object();
    for (const auto& [task, result] : model.tasks) one["tasks"][std::string(task->name)] = task_json(*task, result);
    json["models"].push_back(std::move(one));
  }
  json["differences"] = Json::array();
  for (const NamedDifference& named : differences(models)) {
    json["differences"].push_back({{"first", named.first},
                                   {"second", named.second},
                                   {"task", named.task->name},
                                   {"metric", named.metric},
                                   {"difference", number(named.difference.value)},
                                   {"stderr", number(named.difference.stderr_)},
                                   {"p", number(named.difference.p)},
                                   {"examples", named.difference.examples}});
  }
  return json;
}

std::vector<ResultTable> result_tables(std::span<const ModelReport> models) {
  std::vector<std::string_view> groups;  // in the order of the tasks
  for (const Task& task : tasks()) {
    const bool evaluated =
        std::any_of(models.begin(), models.end(), [&](const ModelReport& model) { return model.find(task); });
    if (evaluated && std::find(groups.begin(), groups.end(), task.group) == groups.end()) groups.push_back(task.group);
  }
  std::vector<ResultTable> tables;
  for (const std::string_view group : groups) tables.push_back(Builder(group, models).build());
  return tables;
}

std::string value_text(double value, int digits) {
  constexpr double kReadable = 1e6;  // perplexities of models without training have twenty digits
  return std::fabs(value) < kReadable ? fmt::format("{:.{}f}", value, digits) : fmt::format("{:.2e}", value);
}

std::string entry_text(const Column& column, const Entry& entry, bool with_error) {
  if (!std::isfinite(entry.value)) return "-";
  const int digits = column.unit == "bits/byte" ? 4 : 2;
  std::string text = value_text(entry.value, digits);
  if (with_error && std::isfinite(entry.error)) text += " ±" + value_text(entry.error, digits);
  return text;
}

std::string to_markdown(const ResultTable& table) {
  std::string head = "| " + escaped_markdown(table.title) + " |", rule = "|---|", text;
  for (const Column& column : table.columns) {
    head += fmt::format(" {}{}{}, {}{} |", escaped_markdown(column.group), column.group.empty() ? "" : " ",
                        escaped_markdown(column.title), escaped_markdown(column.unit), arrow(column, false));
    rule += "---:|";
  }
  text = head + "\n" + rule + "\n";
  for (std::size_t i = 0; i < table.models.size(); ++i) {
    text += "| " + escaped_markdown(table.models[i]) + " |";
    for (std::size_t k = 0; k < table.columns.size(); ++k) {
      const Entry& entry = table.rows[i][k];
      const std::string value = entry_text(table.columns[k], entry, true);
      text += entry.best ? " **" + value + "** |" : " " + value + " |";
    }
    text += "\n";
  }
  return text;
}

// Packages: booktabs. Standard errors are left out, as in the paper; they are in the other formats.
std::string to_latex(const ResultTable& table) {
  const std::size_t columns = table.columns.size();
  std::string text = "\\begin{tabular}{@{}l" + std::string(columns, 'c') + "@{}}\n\\toprule\n\\textbf{Model}";
  if (has_groups(table)) {
    std::string rules;
    for (std::size_t begin = 0, end = 0; begin < columns; begin = end) {
      while (end < columns && table.columns[end].group == table.columns[begin].group) ++end;
      text += fmt::format("\n& \\multicolumn{{{}}}{{c}}{{{}}}", end - begin, escaped_latex(table.columns[begin].group));
      rules += fmt::format("\\cmidrule(lr){{{}-{}}}", begin + 2, end + 1);
    }
    text += " \\\\\n" + rules;
  }
  text += "\n";
  for (const Column& column : table.columns) text += "& " + escaped_latex(column.title) + " ";
  text += "\\\\\n";
  for (const Column& column : table.columns) text += "& " + escaped_latex(column.unit) + arrow(column, true) + " ";
  text += "\\\\\n\\midrule\n";
  for (std::size_t i = 0; i < table.models.size(); ++i) {
    text += escaped_latex(table.models[i]);
    for (std::size_t k = 0; k < columns; ++k) {
      const Entry& entry = table.rows[i][k];
      const std::string value = entry_text(table.columns[k], entry, false);
      text += entry.best ? " & \\textbf{" + value + "}" : " & " + value;
    }
    text += " \\\\\n";
  }
  return text + "\\bottomrule\n\\end{tabular}\n";
}

}  // namespace deltanet::eval
