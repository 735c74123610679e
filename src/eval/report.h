#pragma once

#include <nlohmann/json.hpp>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "deltanet/rows.h"
#include "eval/compare.h"
#include "eval/result.h"
#include "eval/task.h"

// The results of one or more models, for programs and as the tables of the paper.

namespace deltanet::eval {

struct ModelReport {
  std::string name;              // in tables
  Spec spec;                     // of its row
  nlohmann::ordered_json about;  // directory, row, parameters, ...
  std::vector<std::pair<const Task*, TaskResult>> tasks = {};

  const TaskResult* find(const Task& task) const;  // null: not evaluated
};

// {"format": "deltanet eval 1",
//  "models": [{"name", "directory", "row", "parameters", ...,
//    "tasks": {"arc_easy": {"title", "group", "metric", "examples", "cut", "tokens", "seconds",
//      "metrics": {"acc": {"value", "stderr"}, ...},              value of a share: 0 to 1
//      "breakdowns": [{"by": ["length"], "cells": [{"length": 512, "value", "stderr", "examples"}, ...]}, ...],
//      "curve": [{"begin", "end", "loss", "tokens"}, ...],        of documents: loss by tokens before the predicted one
//      "about": {...}, "notes": [...]}}}],
//  "differences": [{"first", "second", "task", "metric", "difference", "stderr", "p", "examples"}, ...]}
// Numbers that are not known, such as the error of a single example, are null.
nlohmann::ordered_json to_json(std::span<const ModelReport> models);

// ---- tables

struct Column {
  std::string group;  // over columns that belong together: "S-NIAH-1"; empty: none
  std::string title, unit;
  bool higher_is_better = true;
  bool is_average = false;
};

struct Entry {
  double value = 0, error = 0;  // NaN: unknown
  bool best = false;            // of its pair, or of all where there are no pairs
};

struct ResultTable {
  std::string title;
  std::vector<Column> columns;
  std::vector<std::string> models;
  std::vector<std::vector<Entry>> rows;  // [models][columns]
};

// One for each group of tasks, in the layout of the paper's: perplexities, then accuracies in percent, then their mean.
std::vector<ResultTable> result_tables(std::span<const ModelReport> models);

std::string value_text(double value, int digits);
// "48.21 ±1.02"; "-" where nothing is known.
std::string entry_text(const Column& column, const Entry& entry, bool with_error);
std::string to_markdown(const ResultTable& table);
std::string to_latex(const ResultTable& table);

struct NamedDifference {
  std::string first, second;
  const Task* task = nullptr;
  std::string metric;
  Difference difference;
};
// Of the models of each pair, or where there are none, of each model and the first one.
std::vector<NamedDifference> differences(std::span<const ModelReport> models);

}  // namespace deltanet::eval
