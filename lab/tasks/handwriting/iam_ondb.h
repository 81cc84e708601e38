#ifndef PLANISH_LAB_TASKS_HANDWRITING_IAM_ONDB_H_
#define PLANISH_LAB_TASKS_HANDWRITING_IAM_ONDB_H_

#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "lab/tasks/handwriting/strokes.h"

namespace planish::lab {

/// Returns true if `folder` has a folder lineStrokes.
bool IsIamOnDb(const std::filesystem::path& folder);

/// Returns the points of a line of IAM-OnDB (Liwicki & Bunke 2005) from the XML of lineStrokes. A
/// StrokeSet has Strokes of Points with attributes x and y. Throws DataError naming `name`, the
/// byte if known, and the error if the XML is malformed or an element is missing or empty. Throws
/// it also for a coordinate that is missing, not a number, or beyond 100,000 in magnitude.
std::vector<PenPoint> ParseLineStrokes(std::string_view xml, const std::string& name);

/// Returns the lines of a transcription of IAM-OnDB: nonblank lines after "CSR:", without blanks at
/// their ends. Throws DataError if the file cannot be read, is not UTF-8, or has no line "CSR:".
std::vector<std::string> ReadTranscription(const std::filesystem::path& file);

/// Reads lines of IAM-OnDB in `folder`: FORM-NUMBER.xml anywhere below lineStrokes, whose text is
/// line NUMBER of FORM.txt in the same folder below ascii. Leaves out, and counts in the
/// description, lines without a transcription and those of a single point.
///
/// Parts are by form. The lists of forms trainset.txt, testset_v.txt and testset_f.txt in `folder`
/// define training, validation and test; other forms are left out. Without lists, every tenth form
/// by name, from the ninth on, is for validation and the next one for test. A part with more lines
/// than wanted is a fixed random choice.
///
/// Throws DataError if there are no lines, a part has none, or only some of the lists exist, and
/// like ParseLineStrokes and ReadTranscription.
Handwriting ReadIamOnDb(const std::filesystem::path& folder, const LineCounts& counts);

}  // namespace planish::lab

#endif  // PLANISH_LAB_TASKS_HANDWRITING_IAM_ONDB_H_
