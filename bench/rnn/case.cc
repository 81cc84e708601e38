#include "bench/rnn/case.h"

#include <algorithm>
#include <regex>
#include <stdexcept>

#include "src/rnn/cell.h"

namespace planish::bench::rnn {

namespace {

/// Returns the name of a cell on the command line: ln-lstm.
std::string NameOf(Cell cell) {
  std::string name = internal::NameOf(cell);
  std::ranges::replace(name, '_', '-');
  return name;
}

std::string Join(const std::vector<std::string>& names) {
  std::string text;
  for (const std::string& name : names) text += (text.empty() ? "" : ", ") + name;
  return text;
}

}  // namespace

const char* Name(Mode mode) {
  switch (mode) {
    case Mode::kForward:
      return "forward";
    case Mode::kTraining:
      return "training";
    default:
      return "step";
  }
}

Mode ParseMode(const std::string& name) {
  for (const Mode mode : {Mode::kForward, Mode::kTraining, Mode::kStep}) {
    if (name == Name(mode)) return mode;
  }
  throw std::invalid_argument("[ParseMode] mode must be forward, training or step, got \"" + name +
                              "\"");
}

std::string ShapeName(const RnnShape& shape) {
  std::string name = std::to_string(shape.time) + "x" + std::to_string(shape.batch) + "x" +
                     std::to_string(shape.inputs) + "x" + std::to_string(shape.hidden);
  if (shape.projected > 0) name += "+p" + std::to_string(shape.projected);
  if (shape.heads > 1) name += "+h" + std::to_string(shape.heads);
  return name;
}

RnnShape ParseShape(const std::string& shape) {
  static const std::regex form(
      "([1-9][0-9]{0,6})x([1-9][0-9]{0,6})x([1-9][0-9]{0,6})x([1-9][0-9]{0,6})"
      "(\\+p([1-9][0-9]{0,6}))?(\\+h([1-9][0-9]{0,6}))?");
  std::smatch match;
  if (!std::regex_match(shape, match, form)) {
    throw std::invalid_argument(
        "[ParseShape] shape must be TIMExBATCHxINPUTSxHIDDEN[+pPROJECTED][+hHEADS], each from 1 to "
        "9999999, got \"" +
        shape + "\"");
  }
  return {.time = std::stoll(match[1]),
          .batch = std::stoll(match[2]),
          .inputs = std::stoll(match[3]),
          .hidden = std::stoll(match[4]),
          .projected = match[6].matched ? std::stoll(match[6]) : 0,
          .heads = match[8].matched ? std::stoll(match[8]) : 1};
}

std::vector<std::string> CellNames() {
  std::vector<std::string> names;
  for (const Cell cell : internal::kCells) names.push_back(NameOf(cell));
  return names;
}

Cell ParseCell(const std::string& name) {
  const auto* const found = std::ranges::find(internal::kCells, name, NameOf);
  if (found != internal::kCells.end()) return *found;
  throw std::invalid_argument("[ParseCell] cell must be one of " + Join(CellNames()) + ", got \"" +
                              name + "\"");
}

double MultiplyAdds(Cell cell, const Case& c) {
  const RnnShape& s = c.shape;
  const double forward =
      static_cast<double>(s.time * s.batch) * static_cast<double>(s.hidden) *
      static_cast<double>(internal::RecipeOf(cell).gates() * (s.inputs + s.outputs() / s.heads) +
                          s.projected);
  return c.mode == Mode::kTraining ? 3 * forward : forward;
}

}  // namespace planish::bench::rnn
