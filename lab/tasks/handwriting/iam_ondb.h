#ifndef PLANISH_LAB_TASKS_HANDWRITING_IAM_ONDB_H_
#define PLANISH_LAB_TASKS_HANDWRITING_IAM_ONDB_H_

#include <cstdint>
#include <filesystem>
#include <optional>
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

/// Returns the writer in XML of IAM-OnDB's folder original: the attribute writerID of the element
/// Form in General; nullopt if there is none. Throws DataError naming `name` if the XML is
/// malformed or the writer is not a number.
std::optional<int64_t> ParseWriter(std::string_view xml, const std::string& name);

/// Returns the lines of a transcription of IAM-OnDB: nonblank lines after "CSR:", without blanks at
/// their ends. Throws DataError if the file cannot be read, is not UTF-8, or has no line "CSR:".
std::vector<std::string> ReadTranscription(const std::filesystem::path& file);

/// Reads lines of IAM-OnDB in `folder`: FORM-NUMBER.xml anywhere below lineStrokes, whose text is
/// line NUMBER of FORM.txt in the same folder below ascii. docs/tasks/handwriting.md describes the
/// split, the writers and the lines that are left out. Throws DataError if there are no lines, a
/// part has none, only some of the lists of forms exist, or `request` has writers and no file names
/// one, and like ParseLineStrokes and ReadTranscription.
Handwriting ReadIamOnDb(const std::filesystem::path& folder, const LineRequest& request);

}  // namespace planish::lab

#endif  // PLANISH_LAB_TASKS_HANDWRITING_IAM_ONDB_H_
