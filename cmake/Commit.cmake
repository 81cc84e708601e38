# Writes ${output} with the commit of ${source}, only when it changed: one file recompiles then.
cmake_minimum_required(VERSION 3.25)
execute_process(COMMAND git -C "${source}" describe --always --dirty --abbrev=12
  OUTPUT_VARIABLE commit OUTPUT_STRIP_TRAILING_WHITESPACE RESULT_VARIABLE failed ERROR_QUIET)
if(failed)
  set(commit "unknown commit")
endif()
set(text "#ifndef PLANISH_LAB_ENGINE_COMMIT_H_
#define PLANISH_LAB_ENGINE_COMMIT_H_

namespace planish::lab {
inline constexpr char kCommit[] = \"${commit}\";
}  // namespace planish::lab

#endif  // PLANISH_LAB_ENGINE_COMMIT_H_
")
set(before "")
if(EXISTS "${output}")
  file(READ "${output}" before)
endif()
if(NOT text STREQUAL before)
  file(WRITE "${output}" "${text}")
endif()
