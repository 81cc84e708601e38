#ifndef PLANISH_LAB_TASKS_ORDER_EMBEDDING_RANKING_H_
#define PLANISH_LAB_TASKS_ORDER_EMBEDDING_RANKING_H_

#include <ATen/core/Tensor.h>

// How well captions find their images, and images their captions.
namespace planish::lab {

/// What is made of ranks, from 1.
struct RankSummary {
  double r1 = 0, r5 = 0, r10 = 0;  ///< shares of ranks up to 1, 5 and 10
  double median = 0;               ///< of an even number: of the middle two the mean, rounded down
  double mean = 0;
};

/// Of errors [5 N, N] of each caption with each image, less being better, where captions 5 i to 5 i
/// + 4 are of image i: the rank of each caption's image among all images, int64 [5 N]. Images with
/// the same error as the right one, or one that is no number, come before it, so that a model that
/// tells nothing apart has the last rank everywhere.
at::Tensor ImageRanks(const at::Tensor& errors);

/// The rank of the first of each image's captions among all captions, int64 [N]: 1 and the number
/// of captions of other images that come before it, by the same rule.
at::Tensor CaptionRanks(const at::Tensor& errors);

/// Of int64 [n], n > 0.
RankSummary Summarise(const at::Tensor& ranks);

}  // namespace planish::lab

#endif  // PLANISH_LAB_TASKS_ORDER_EMBEDDING_RANKING_H_
