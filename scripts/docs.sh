#!/usr/bin/env bash
# Builds the documentation site in build-docs/site: MkDocs for the documents, mkdocstrings for the Python package,
# Doxygen for the C++ headers. Broken links fail.
#   PIP_ARGS   more arguments for pip: an index, a mirror
set -euo pipefail
cd "$(dirname "$0")/.."

fail() { printf 'docs: %s\n' "$*" >&2; exit 1; }

scripts/setup.sh docs

# The pages keep their places, so that links between them hold in the repository and on the site.
source=build-docs/source
rm -rf "$source" build-docs/site
mkdir -p "$source"
git ls-files -z --cached --others --exclude-standard README.md CONTRIBUTING.md CHANGELOG.md CITATION.cff LICENSE docs examples tests/install 'results/*.html' |
  xargs -0 cp --parents -t "$source"
mkdir -p "$source/docs/reference"
cp scripts/site/*.md "$source/docs/reference/"

commands=$source/docs/reference/command.md
planish=build/release/planish
{
  printf '# Help texts of the command\n\n[Commands](../commands.md) explains them.\n'
  if [[ -x $planish ]]; then
    for command in '' list train show report reproduce thin sample translate search write make downstream bench; do
      # shellcheck disable=SC2086  # none for the command itself
      printf '\n## planish %s\n\n```text\n%s\n```\n' "$command" "$($planish $command --help)"
    done
  else
    printf '\nThey are here if `%s` was built before the site.\n' "$planish"
  fi
} >"$commands"

log=build-docs/mkdocs.log
NO_MKDOCS_2_WARNING=1 .venv-docs/bin/python -m mkdocs build --strict 2>"$log" || {
  grep -v '^INFO' "$log" >&2
  fail "the site has broken links or pages: see above"
}
(cat scripts/site/Doxyfile; printf 'PROJECT_NUMBER = "%s"\n' "$(git describe --always)") | doxygen - >/dev/null
printf 'docs: build-docs/site/index.html\n'
