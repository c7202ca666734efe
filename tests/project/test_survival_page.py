"""The examples on the page about survival data print what the page says."""

import doctest
import re
from pathlib import Path

PAGE = Path(__file__).resolve().parents[2] / "docs" / "survival-data.md"


def test_the_examples_print_what_the_page_says():
    blocks = re.findall(r"```python\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)
    names: dict[str, object] = {}
    runner = doctest.DocTestRunner()
    for number, block in enumerate(blocks):
        test = doctest.DocTestParser().get_doctest(block, {}, f"{PAGE.name}, block {number}", PAGE.name, 0)
        test.globs = names
        runner.run(test, clear_globs=False)
    assert runner.tries > 8
    assert runner.failures == 0
