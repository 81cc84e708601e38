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

// Piece that extends a hypothesis, and the sum of log-probabilities with it.
struct Candidate {
  int64_t row, piece;
  float sum;
};

// Beam search of a batch. Rows are the unfinished hypotheses: `width_` of them for each sentence of
// `active_`, in order.
class BeamSearcher {
 public:
  BeamSearcher(TranslationModel& model, const at::Tensor& source, const at::Tensor& lengths,
               const BeamOptions& options)
      : model_(model),
        options_(options),
        searches_(static_cast<size_t>(source.size(0))),
        active_(searches_.size()),
        prefixes_(searches_.size()),
        device_(source.device()),
        sums_(at::zeros({source.size(0)}, device_)),
        pieces_(at::full({source.size(0)}, Bpe::kEnd, source.options().dtype(at::kLong))),
        state_(model.Start(source, lengths)) {
    std::iota(active_.begin(), active_.end(), 0);
    const at::Tensor cpu_lengths = lengths.cpu();
    for (size_t i = 0; i < searches_.size(); ++i) {
      const auto n = static_cast<double>(cpu_lengths[static_cast<int64_t>(i)].item<int64_t>());
      searches_[i].longest = static_cast<int64_t>(options.longest_ratio * n) + options.longest_more;
    }
  }

  std::vector<Hypothesis> Run() {
    for (int64_t length = 1; !active_.empty(); ++length) Grow(length);
    std::vector<Hypothesis> result;
    for (Search& search : searches_) {
      result.push_back(search.best ? *std::move(search.best) : Hypothesis{{}, -kInfinity});
    }
    return result;
  }

 private:
  // Returns the log-probabilities of each row with each next piece, [rows, vocabulary]. Sentences
  // at their maximum length can only end.
  at::Tensor NextSums(int64_t length) {
    at::Tensor chances = model_.Step(pieces_, length - 1, state_).log_softmax(1);
    // Outputs of a diverged model get the lowest probability.
    chances.nan_to_num_(-kInfinity, std::nullopt, -kInfinity);
    chances.select(1, Bpe::kPad).fill_(-kInfinity);
    for (size_t a = 0; a < active_.size(); ++a) {
      if (searches_[static_cast<size_t>(active_[a])].longest > length) continue;
      const auto row = static_cast<int64_t>(a) * width_;
      at::Tensor ended = chances.slice(0, row, row + width_);
      const at::Tensor end = ended.select(1, Bpe::kEnd).clone();
      ended.fill_(-kInfinity).select(1, Bpe::kEnd).copy_(end);
    }
    return chances.add_(sums_.unsqueeze(1));
  }

  // Finishes the hypotheses of a sentence that end among the `beam` likeliest candidates. Returns
  // the `beam` likeliest of the others. `candidates` are likeliest first.
  std::vector<Candidate> Continue(Search& search, const std::vector<Candidate>& candidates) {
    std::vector<Candidate> grown;
    for (int64_t rank = 0; rank < std::ssize(candidates); ++rank) {
      const auto& [row, piece, sum] = candidates[static_cast<size_t>(rank)];
      if (piece != Bpe::kEnd) {
        if (std::ssize(grown) < options_.beam) grown.push_back({row, piece, sum});
      } else if (rank < options_.beam) {
        search.Finish(prefixes_[static_cast<size_t>(row)], sum, options_.length_penalty);
      }
    }
    return grown;
  }

  // Extends all hypotheses to `length` pieces. Drops sentences that are done from `active_`.
  void Grow(int64_t length) {
    const at::Tensor next_sums = NextSums(length);
    const int64_t vocabulary = next_sums.size(1);
    // At most half of twice the beam's candidates end, one in each row.
    const auto [top_values, top_places] =
        next_sums.view({static_cast<int64_t>(active_.size()), width_ * vocabulary})
            .topk(std::min(2 * options_.beam, width_ * vocabulary), 1);
    const at::Tensor values = top_values.cpu(), places = top_places.cpu();
    const auto value = values.accessor<float, 2>();
    const auto place = places.accessor<int64_t, 2>();

    std::vector<int64_t> active, kept, rows, pieces;
    std::vector<float> sums;
    std::vector<std::vector<int32_t>> prefixes;
    for (int64_t line = 0; line < std::ssize(active_); ++line) {
      const int64_t sentence = active_[static_cast<size_t>(line)];
      Search& search = searches_[static_cast<size_t>(sentence)];
      std::vector<Candidate> candidates;
      for (int64_t rank = 0; rank < values.size(1) && value[line][rank] != -kInfinity; ++rank) {
        candidates.push_back({line * width_ + place[line][rank] / vocabulary,
                              place[line][rank] % vocabulary, value[line][rank]});
      }
      std::vector<Candidate> grown = Continue(search, candidates);
      if (search.finished >= options_.beam || length >= search.longest || grown.empty()) continue;
      // Hypotheses that cannot win fill missing rows.
      grown.resize(static_cast<size_t>(options_.beam),
                   {line * width_, Bpe::kEnd, -std::numeric_limits<float>::infinity()});
      active.push_back(sentence);
      kept.push_back(line);
      for (const auto& [row, piece, sum] : grown) {
        rows.push_back(row);
        pieces.push_back(piece);
        sums.push_back(sum);
        prefixes.push_back(prefixes_[static_cast<size_t>(row)]);
        prefixes.back().push_back(static_cast<int32_t>(piece));
      }
    }
    const bool some_are_done = active.size() < active_.size();
    active_ = std::move(active);
    if (active_.empty()) return;
    state_.Reorder(at::tensor(rows).to(device_));
    if (some_are_done) state_.ReorderMemory(at::tensor(kept).to(device_));
    pieces_ = at::tensor(pieces).to(device_);
    sums_ = at::tensor(sums).to(device_);
    prefixes_ = std::move(prefixes);
    width_ = options_.beam;
  }

  TranslationModel& model_;
  const BeamOptions& options_;
  std::vector<Search> searches_;
  std::vector<int64_t> active_;  // sentences that are not done
  int64_t width_ = 1;
  std::vector<std::vector<int32_t>> prefixes_;  // of each row
  c10::Device device_;                          // of the model
  at::Tensor sums_;                             // of each row
  at::Tensor pieces_;                           // the last piece of each row
  DecoderState state_;
};

}  // namespace

std::vector<Hypothesis> BeamSearch(TranslationModel& model, const at::Tensor& source,
                                   const at::Tensor& lengths, const BeamOptions& options) {
  return BeamSearcher(model, source, lengths, options).Run();
}

}  // namespace planish::lab
