#include "lab/tasks/mt/beam.h"

#include <ATen/Functions.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <optional>
#include <utility>

#include "lab/data/bpe.h"

namespace planish::lab {

namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();

// Search of one sentence.
struct Search {
  int64_t longest = 0;
  int64_t finished = 0;
  std::optional<Hypothesis> best;

  void Finish(const std::vector<int32_t>& pieces, double sum, double alpha) {
    ++finished;
    const double score = sum / std::pow(static_cast<double>(pieces.size() + 1), alpha);
    if (!best || score > best->score) best = Hypothesis{pieces, score};
  }
};

}  // namespace

std::vector<Hypothesis> BeamSearch(TranslationModel& model, const at::Tensor& source,
                                   const at::Tensor& lengths, const BeamOptions& options) {
  const int64_t sentences = source.size(0);
  std::vector<Search> searches(static_cast<size_t>(sentences));
  for (int64_t i = 0; i < sentences; ++i) {
    const auto n = static_cast<double>(lengths[i].item<int64_t>());
    searches[static_cast<size_t>(i)].longest =
        static_cast<int64_t>(options.longest_ratio * n) + options.longest_more;
  }

  // Rows are the unfinished hypotheses: `width` of them for each sentence of `active`, in order.
  std::vector<int64_t> active(searches.size());
  std::iota(active.begin(), active.end(), 0);
  int64_t width = 1;
  std::vector<std::vector<int32_t>> prefixes(searches.size());
  at::Tensor sums = at::zeros({sentences});
  at::Tensor pieces = at::full({sentences}, Bpe::kEnd, at::kLong);
  DecoderState state = model.Start(source, lengths);

  for (int64_t length = 1; !active.empty(); ++length) {
    at::Tensor chances = model.Step(pieces, length - 1, state).log_softmax(1);
    const int64_t vocabulary = chances.size(1);
    // Outputs of a diverged model get the lowest probability.
    chances.nan_to_num_(-kInfinity, std::nullopt, -kInfinity);
    chances.select(1, Bpe::kPad).fill_(-kInfinity);
    for (size_t a = 0; a < active.size(); ++a) {
      if (searches[static_cast<size_t>(active[a])].longest > length) continue;
      const auto row = static_cast<int64_t>(a) * width;
      at::Tensor ended = chances.slice(0, row, row + width);
      const at::Tensor end = ended.select(1, Bpe::kEnd).clone();
      ended.fill_(-kInfinity).select(1, Bpe::kEnd).copy_(end);
    }
    chances += sums.unsqueeze(1);
    // At most half of twice the beam's candidates end, one in each row.
    const auto [values, places] =
        chances.view({static_cast<int64_t>(active.size()), width * vocabulary})
            .topk(std::min(2 * options.beam, width * vocabulary), 1);
    const auto value = values.accessor<float, 2>();
    const auto place = places.accessor<int64_t, 2>();

    std::vector<int64_t> still, kept, rows, next;
    std::vector<float> next_sums;
    std::vector<std::vector<int32_t>> next_prefixes;
    for (size_t a = 0; a < active.size(); ++a) {
      Search& search = searches[static_cast<size_t>(active[a])];
      const auto line = static_cast<int64_t>(a);
      struct Candidate {
        int64_t row, piece;
        float sum;
      };
      std::vector<Candidate> grown;
      for (int64_t rank = 0; rank < values.size(1); ++rank) {
        const float sum = value[line][rank];
        if (sum == -kInfinity) break;
        const int64_t row = line * width + place[line][rank] / vocabulary;
        const int64_t piece = place[line][rank] % vocabulary;
        if (piece == Bpe::kEnd) {
          if (rank < options.beam) {
            search.Finish(prefixes[static_cast<size_t>(row)], sum, options.length_penalty);
          }
        } else if (std::ssize(grown) < options.beam) {
          grown.push_back({row, piece, sum});
        }
      }
      if (search.finished >= options.beam || length >= search.longest || grown.empty()) continue;
      // Hypotheses that cannot win fill missing rows.
      grown.resize(static_cast<size_t>(options.beam),
                   {line * width, Bpe::kEnd, -std::numeric_limits<float>::infinity()});
      still.push_back(active[a]);
      kept.push_back(line);
      for (const auto& [row, piece, sum] : grown) {
        rows.push_back(row);
        next.push_back(piece);
        next_sums.push_back(sum);
        next_prefixes.push_back(prefixes[static_cast<size_t>(row)]);
        next_prefixes.back().push_back(static_cast<int32_t>(piece));
      }
    }
    if (still.empty()) break;
    state.Reorder(at::tensor(rows));
    if (still.size() < active.size()) state.ReorderMemory(at::tensor(kept));
    pieces = at::tensor(next);
    sums = at::tensor(next_sums);
    active = std::move(still);
    prefixes = std::move(next_prefixes);
    width = options.beam;
  }

  std::vector<Hypothesis> result;
  for (Search& search : searches) {
    result.push_back(search.best ? *std::move(search.best) : Hypothesis{{}, -kInfinity});
  }
  return result;
}

}  // namespace planish::lab
