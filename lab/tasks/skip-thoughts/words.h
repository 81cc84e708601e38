#ifndef PLANISH_LAB_TASKS_SKIP_THOUGHTS_WORDS_H_
#define PLANISH_LAB_TASKS_SKIP_THOUGHTS_WORDS_H_

#include <string>
#include <string_view>
#include <vector>

// English text as sentences of words, by rules on characters only, so that every machine gives the
// same.
namespace planish::lab {

/// Returns `text`, which is UTF-8, with unified punctuation:
/// - straight quotes, also for `` and ''
/// - "--" for dashes, "..." for the ellipsis
/// - spaces for tabs and no-break spaces
/// - no underscores, which are italics in plain text
std::string PlainPunctuation(std::string_view text);

/// Returns the sentences of a paragraph, whose characters are those of PlainPunctuation. A sentence
/// ends after ".", "!" or "?" and closing quotes and brackets, if a blank and no lower-case letter
/// follow. It does not end after a single capital or a common abbreviation such as "Mr.".
std::vector<std::string> SplitIntoSentences(std::string_view paragraph);

/// Returns the words of a sentence in lower case (A to Z and Latin-1's capitals). A word is a run
/// of letters, digits and non-ASCII characters, with inner apostrophes and hyphens, and points and
/// commas within numbers.
/// As in the Penn Treebank, "n't", "'s", "'m", "'d", "'re", "'ve" and "'ll" are separate words.
/// Every other character is a word; "--" and "..." are one word each.
std::vector<std::string> SplitIntoWords(std::string_view sentence);

}  // namespace planish::lab

#endif  // PLANISH_LAB_TASKS_SKIP_THOUGHTS_WORDS_H_
