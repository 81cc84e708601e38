#ifndef PLANISH_LAB_TASKS_ATTENTIVE_READER_ATTENTION_PICTURE_H_
#define PLANISH_LAB_TASKS_ATTENTIVE_READER_ATTENTION_PICTURE_H_

#include <string>
#include <vector>

namespace planish::lab {

/// Draws words, each with its share of the attention, as an SVG: the larger the share, the darker
/// the background. `words` and `shares` have equal length.
std::string AttentionPicture(const std::vector<std::string>& words,
                             const std::vector<double>& shares);

/// Returns the words as text: "the lamp to @entity4 [62%] .", with shares of 5% or more.
std::string AttentionText(const std::vector<std::string>& words, const std::vector<double>& shares);

}  // namespace planish::lab

#endif  // PLANISH_LAB_TASKS_ATTENTIVE_READER_ATTENTION_PICTURE_H_
