# Writes ${output} with the commit of ${source}, only when it changed: one file recompiles then.
execute_process(COMMAND git -C "${source}" describe --always --dirty --abbrev=12
  OUTPUT_VARIABLE commit OUTPUT_STRIP_TRAILING_WHITESPACE RESULT_VARIABLE failed ERROR_QUIET)
if(failed)
  set(commit "unknown commit")
endif()
file(CONFIGURE OUTPUT "${output}" CONTENT
"#ifndef PLANISH_LAB_ENGINE_COMMIT_H_
#define PLANISH_LAB_ENGINE_COMMIT_H_

namespace planish::lab {
inline constexpr char kCommit[] = \"@commit@\";
}  // namespace planish::lab

#endif  // PLANISH_LAB_ENGINE_COMMIT_H_
" @ONLY)
