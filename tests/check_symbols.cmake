# Checks that the shared library LIBRARY exports no name of Planish outside the inline namespace NAMESPACE
# (PLANISH_API), and that it exports names in it. NM lists the symbols. Templates of other libraries with types of
# Planish are not names of Planish.
execute_process(COMMAND ${NM} -D --defined-only "${LIBRARY}"
  OUTPUT_VARIABLE symbols COMMAND_ERROR_IS_FATAL ANY)
string(REGEX MATCHALL "_Z[^\n]+" symbols "${symbols}")
# A mangled name is _Z, for example TV for a virtual table, N, and the parts of the name after their lengths.
list(FILTER symbols INCLUDE REGEX "^_Z(T[A-Z]|Th[n0-9]+_|Tv[n0-9_]+_|G[RV]|Z)*N[KOR]*(7planish|3hwy)")
string(LENGTH "${NAMESPACE}" length)
set(leaked ${symbols})
list(FILTER leaked EXCLUDE REGEX "N[KOR]*7planish(4cuda|2nn|8internal)?${length}${NAMESPACE}")
if(leaked)
  list(JOIN leaked "\n  " leaked)
  message(FATAL_ERROR "${LIBRARY} must export public names only, got\n  ${leaked}")
endif()
list(LENGTH symbols exported)
if(exported EQUAL 0)
  message(FATAL_ERROR "${LIBRARY} must export the names in ${NAMESPACE}, got none")
endif()
message("${exported} names of ${NAMESPACE}")
