"""How large the code is and how folded: statements, modules, and per 100 statements what STYLE counts.

    python scripts/code_figures.py [FOLDER ...]

For each package below the folders (default `src/scalecal`): statements (`ast.stmt`), conditional
expressions and comprehensions per 100 statements, and comment lines per line of code. Comments for tools
(`noqa`, `type:`, `pragma`) do not count.
"""

from __future__ import annotations

import ast
import io
import sys
import tokenize
from collections import Counter
from pathlib import Path

DEFAULT = Path(__file__).parents[1] / "src" / "scalecal"
FOR_TOOLS = ("noqa", "type:", "pragma")
NO_CODE = {
    tokenize.COMMENT,
    tokenize.DEDENT,
    tokenize.ENCODING,
    tokenize.ENDMARKER,
    tokenize.INDENT,
    tokenize.NEWLINE,
    tokenize.NL,
}
COMPREHENSIONS = (ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)


def figures_of(source: str) -> Counter[str]:
    """Counts of one module."""
    counts: Counter[str] = Counter(modules=1)
    for node in ast.walk(ast.parse(source)):
        counts["statements"] += isinstance(node, ast.stmt)
        counts["conditionals"] += isinstance(node, ast.IfExp)
        counts["comprehensions"] += isinstance(node, COMPREHENSIONS)
    code_lines: set[int] = set()
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type == tokenize.COMMENT:
            counts["comments"] += not any(word in token.string for word in FOR_TOOLS)
        elif token.type not in NO_CODE and not _is_docstring(token):
            code_lines.update(range(token.start[0], token.end[0] + 1))
    counts["code"] = len(code_lines)
    return counts


def _is_docstring(token: tokenize.TokenInfo) -> bool:
    """Whether a token is a string that stands alone, as docstrings do."""
    return token.type == tokenize.STRING and token.line.lstrip().startswith(('"""', 'r"""'))


def row_of(name: str, counts: Counter[str]) -> str:
    """One line of the table."""
    hundreds = max(counts["statements"], 1) / 100
    return (
        f"{name:24}{counts['modules']:8}{counts['statements']:12,}"
        f"{counts['conditionals'] / hundreds:13.1f}{counts['comprehensions'] / hundreds:16.1f}"
        f"{counts['comments'] / max(counts['code'], 1):12.3f}"
    )


def main(folders: list[Path]) -> None:
    """Print the table."""
    print(
        f"{'':24}{'modules':>8}{'statements':>12}{'conditional':>13}{'comprehensions':>16}{'comments':>12}"
    )
    total: Counter[str] = Counter()
    for folder in folders:
        packages: dict[str, Counter[str]] = {}
        for file in sorted(folder.rglob("*.py")):
            name = file.relative_to(folder).parts[0]
            packages.setdefault(name, Counter()).update(figures_of(file.read_text("utf-8")))
        for name, counts in packages.items():
            print(row_of(name, counts))
            total.update(counts)
    print(row_of("all", total))


if __name__ == "__main__":
    main([Path(name) for name in sys.argv[1:]] or [DEFAULT])
