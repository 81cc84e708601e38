#ifndef PLANISH_LAB_TASKS_ORDER_EMBEDDING_RANKING_H_
#define PLANISH_LAB_TASKS_ORDER_EMBEDDING_RANKING_H_

#include <ATen/core/Tensor.h>

// Ranks of images by captions, and of captions by images.
namespace planish::lab {

/// Summary of ranks, from 1.
struct RankSummary {
  double r1 = 0, r5 = 0, r10 = 0;  ///< fractions of ranks up to 1, 5 and 10
  double median = 0;               ///< of an even number: the mean of the middle two, rounded down
  double mean = 0;
};

/// Returns the rank of each caption's image among all images, int64 [5 N]. `errors` [5 N, N] are
/// those of each caption with each image, smaller is better. Captions 5 i to 5 i + 4 belong to
/// image i. Images with the right one's error, or with NaN, rank before it. So a model that
/// distinguishes nothing has the last rank everywhere.
at::Tensor ImageRanks(const at::Tensor& errors);

/// Returns the rank of the first of each image's captions among all captions, int64 [N]: 1 plus the
/// number of other images' captions before it, by the same rule.
at::Tensor CaptionRanks(const at::Tensor& errors);

/// Returns the summary of int64 [n], n > 0.
RankSummary Summarize(const at::Tensor& ranks);

}  // namespace planish::lab

#endif  // PLANISH_LAB_TASKS_ORDER_EMBEDDING_RANKING_H_
