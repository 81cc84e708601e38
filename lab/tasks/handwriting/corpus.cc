#include "lab/tasks/handwriting/corpus.h"

#include <ATen/Functions.h>
#include <ATen/TensorOperators.h>
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <stdexcept>
#include <utility>

#include "lab/base/format_integer.h"
#include "lab/error.h"

namespace planish::lab {

namespace {

// Returns mean and standard deviation of all pen offsets, accumulated in double.
OffsetScale ScaleOf(const std::vector<WrittenLine>& lines) {
  std::array<double, 2> sum = {0, 0}, squares = {0, 0};
  double count = 0;
  for (const WrittenLine& line : lines) {
    for (size_t i = 1; i < line.points.size(); ++i) {
      const PenPoint &p = line.points[i], &before = line.points[i - 1];
      const std::array<double, 2> offset = {p.x - before.x, p.y - before.y};
      for (size_t axis = 0; axis < 2; ++axis) {
        sum[axis] += offset[axis];
        squares[axis] += offset[axis] * offset[axis];
      }
      ++count;
    }
  }
  OffsetScale scale;
  for (size_t axis = 0; axis < 2; ++axis) {
    const double mean = sum[axis] / count, variance = squares[axis] / count - mean * mean;
    if (!(variance > 0)) {
      throw DataError(fmt::format("the pen offsets of the training lines have no variance in {}",
                                  axis == 0 ? "x" : "y"));
    }
    scale.mean[axis] = static_cast<float>(mean);
    scale.deviation[axis] = static_cast<float>(std::sqrt(variance));
  }
  return scale;
}

LineSet SetOf(const std::vector<WrittenLine>& lines, const Alphabet& alphabet,
              const OffsetScale& scale, int64_t length) {
  std::vector<float> points;
  std::vector<int64_t> begins, steps, counts;
  std::vector<std::vector<int64_t>> texts;
  LineSet set;
  size_t longest = 0;
  for (const WrittenLine& line : lines) {
    begins.push_back(std::ssize(points) / 3);
    counts.push_back(std::ssize(line.points));
    steps.push_back(std::min(length, std::ssize(line.points) - 1));
    for (size_t i = 0; i < line.points.size(); ++i) {
      const PenPoint& p = line.points[i];
      const PenPoint& before = line.points[i == 0 ? 0 : i - 1];
      points.push_back(i == 0 ? 0 : (p.x - before.x - scale.mean[0]) / scale.deviation[0]);
      points.push_back(i == 0 ? 0 : (p.y - before.y - scale.mean[1]) / scale.deviation[1]);
      points.push_back(p.lifts ? 1 : 0);
    }
    texts.push_back(alphabet.Encode(line.text));
    longest = std::max(longest, texts.back().size());
    set.texts.push_back(line.text);
  }
  set.points = at::tensor(points).view({-1, 3});
  set.begins = at::tensor(begins);
  set.steps = at::tensor(steps);
  set.counts = at::tensor(counts);
  set.symbols = at::full({std::ssize(texts), static_cast<int64_t>(longest)}, -1, at::kLong);
  for (size_t i = 0; i < texts.size(); ++i) {
    set.symbols[static_cast<int64_t>(i)]
        .slice(0, 0, std::ssize(texts[i]))
        .copy_(at::tensor(texts[i]));
  }
  return set;
}

}  // namespace

at::Tensor SymbolsOf(const std::vector<int64_t>& symbols) {
  return at::tensor(symbols).unsqueeze(0);
}

at::Tensor LineSet::Line(int64_t line) const {
  return points.narrow(0, begins[line].item<int64_t>(), counts[line].item<int64_t>());
}

Tensors LineSet::Batch(const at::Tensor& lines) const {
  const at::Tensor lengths = steps.index_select(0, lines), from = begins.index_select(0, lines);
  const auto longest = lengths.max().item<int64_t>();
  // After its end a line stays at its last point.
  const at::Tensor place =
      at::minimum(at::arange(longest + 1, at::kLong).unsqueeze(1), lengths) + from;
  const at::Tensor all = points.index_select(0, place.flatten()).view({longest + 1, -1, 3});
  const at::Tensor within = at::arange(longest, at::kLong).unsqueeze(1) < lengths;
  const at::Tensor positions = within.flatten().nonzero().squeeze(1);
  const at::Tensor text = symbols.index_select(0, lines);
  const auto characters = (text >= 0).sum(1).max().item<int64_t>();
  return {all.slice(0, 0, longest), lengths, text.slice(1, 0, characters).contiguous(), positions,
          all.slice(0, 1).reshape({-1, 3}).index_select(0, positions)};
}

HandwritingCorpus::HandwritingCorpus(const Alphabet& symbols, const OffsetScale& of_offsets,
                                     std::vector<bool> of_model)
    : alphabet(symbols), scale(of_offsets), known(std::move(of_model)) {
  if (std::ssize(known) != alphabet.size()) {
    throw std::invalid_argument(fmt::format("known must have the alphabet's {} symbols, got {}",
                                            alphabet.size(), known.size()));
  }
  for (LineSet* set : {&train, &valid, &test}) {
    set->begins = set->steps = set->counts = at::empty({0}, at::kLong);
  }
}

HandwritingCorpus::HandwritingCorpus(const Handwriting& data, const Alphabet& symbols,
                                     int64_t length)
    : alphabet(symbols),
      scale(ScaleOf(data.train)),
      train(SetOf(data.train, alphabet, scale, length)),
      valid(SetOf(data.valid, alphabet, scale, length)),
      test(SetOf(data.test, alphabet, scale, length)),
      known(static_cast<size_t>(alphabet.size()), false) {
  int64_t characters = 0, others = 0;
  for (const LineSet* set : {&train, &valid, &test}) {
    characters += (set->symbols >= 0).sum().item<int64_t>();
    others += (set->symbols == Alphabet::kOther).sum().item<int64_t>();
  }
  for (const WrittenLine& line : data.train) {
    for (const int64_t symbol : alphabet.Encode(line.text)) {
      known[static_cast<size_t>(symbol)] = true;
    }
  }
  about.name = data.name;
  about.source = data.source;
  about.sha256 = data.sha256;
  about.sizes = {{"train", train.size()}, {"valid", valid.size()}, {"test", test.size()}};
  about.description = fmt::format(
      "{}; {} points a training line on average, of which {} steps count; {} of {} characters are "
      "\"others\" among {} symbols",
      data.description, FormatInteger(train.points.size(0) / train.size()),
      FormatInteger(train.steps.sum().item<int64_t>() / train.size()), FormatInteger(others),
      FormatInteger(characters), alphabet.size());
}

std::vector<PenPoint> HandwritingCorpus::Trace(const at::Tensor& normalized) const {
  const at::Tensor rows = normalized.to(at::kFloat).contiguous();
  const auto row = rows.accessor<float, 2>();
  std::vector<PenPoint> points;
  double x = 0, y = 0;
  for (int64_t i = 0; i < rows.size(0); ++i) {
    x += row[i][0] * scale.deviation[0] + scale.mean[0];
    y += row[i][1] * scale.deviation[1] + scale.mean[1];
    points.push_back(
        {.x = static_cast<float>(x), .y = static_cast<float>(y), .lifts = row[i][2] > 0.5f});
  }
  return points;
}

}  // namespace planish::lab
