#ifndef PLANISH_LAB_TASKS_SKIP_THOUGHTS_WORDS_H_
#define PLANISH_LAB_TASKS_SKIP_THOUGHTS_WORDS_H_

#include <string>
#include <string_view>
#include <vector>

// English text as sentences of words, by rules of characters alone, so that every machine gives the
// same.
namespace planish::lab {

/// `text`, which is UTF-8, with one way of writing for what typesetters write in several: straight
/// quotes (also for `` and ''), "--" for dashes, "..." for the ellipsis, spaces for tabs and
/// no-break spaces; without underscores, which mark italics in plain text.
std::string PlainPunctuation(std::string_view text);

/// The sentences of a paragraph, whose characters are those of PlainPunctuation. One ends behind
/// ".", "!" or "?", with the quotes and brackets that close there, where a blank follows and then
/// no lower-case letter: not behind a single capital, nor behind common abbreviations such as
/// "Mr.".
std::vector<std::string> SplitIntoSentences(std::string_view paragraph);

/// The words of a sentence in lower case (A to Z and Latin-1's capitals). A word is a run of
/// letters, digits and what is not ASCII, with apostrophes and hyphens within it, and points and
/// commas within numbers. As in the Penn Treebank "n't", "'s", "'m", "'d", "'re", "'ve" and "'ll"
/// are words of their own. Every other character is a word, but "--" and "..." are one.
std::vector<std::string> SplitIntoWords(std::string_view sentence);

}  // namespace planish::lab

#endif  // PLANISH_LAB_TASKS_SKIP_THOUGHTS_WORDS_H_
