#ifndef PLANISH_LAB_TASKS_HANDWRITING_IAM_ONDB_H_
#define PLANISH_LAB_TASKS_HANDWRITING_IAM_ONDB_H_

#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "lab/tasks/handwriting/strokes.h"

namespace planish::lab {

/// Whether `folder` has a folder lineStrokes.
bool IsIamOnDb(const std::filesystem::path& folder);

/// The points of a line of IAM-OnDB (Liwicki & Bunke 2005): the XML of lineStrokes, a StrokeSet of
/// Strokes of Points with attributes x and y. Throws DataError that names `name`, the byte where
/// there is one, and what is wrong: no XML, no StrokeSet, one without a Stroke, a Stroke without a
/// Point, a coordinate that is missing, no number, or beyond 100,000 in size.
std::vector<PenPoint> ParseLineStrokes(std::string_view xml, const std::string& name);

/// The lines of a transcription of IAM-OnDB: those after "CSR:" that are not blank, without blanks
/// at their ends. Throws DataError when the file cannot be read, is not UTF-8, or has no line
/// "CSR:".
std::vector<std::string> ReadTranscription(const std::filesystem::path& file);

/// Lines of IAM-OnDB in `folder`: FORM-NUMBER.xml anywhere below lineStrokes, whose text is line
/// NUMBER of FORM.txt in the same folder below ascii. Left out, and counted in the description:
/// lines without a transcription, and those of a single point.
///
/// Parts are by form. Where `folder` has trainset.txt, testset_v.txt and testset_f.txt, lists of
/// forms, these are training, validation and test, and other forms are left out. Without any of the
/// three every tenth form by name, from the ninth on, is for validation and the one after it for
/// test. Of a part that has more lines than wanted a random choice is taken, the same each time.
///
/// Throws DataError when there are no lines, a part has none, some of the three lists are there
/// and others not, and what ParseLineStrokes and ReadTranscription throw.
Handwriting ReadIamOnDb(const std::filesystem::path& folder, const LineCounts& counts);

}  // namespace planish::lab

#endif  // PLANISH_LAB_TASKS_HANDWRITING_IAM_ONDB_H_
