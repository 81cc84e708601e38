#ifndef PLANISH_LAB_TASKS_ATTENTIVE_READER_ATTENTION_PICTURE_H_
#define PLANISH_LAB_TASKS_ATTENTIVE_READER_ATTENTION_PICTURE_H_

#include <string>
#include <vector>

namespace planish::lab {

/// Words, each with its share of the attention, as an SVG: the darker its ground, the larger the
/// share, and the largest share has the darkest. `words` and `shares` have one length.
std::string AttentionPicture(const std::vector<std::string>& words,
                             const std::vector<double>& shares);

/// The same as text: "the lamp to @entity4 [62%] .", shares from 5% on.
std::string AttentionText(const std::vector<std::string>& words, const std::vector<double>& shares);

}  // namespace planish::lab

#endif  // PLANISH_LAB_TASKS_ATTENTIVE_READER_ATTENTION_PICTURE_H_
