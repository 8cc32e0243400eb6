"""The pages as pasted."""

import pathlib
import re

import nbclient
import nbformat
import pytest

DOCS = pathlib.Path(__file__).resolve().parents[3] / "docs"


@pytest.mark.parametrize("page", ["python.md", "sweeps.md"])
def test_the_code_of_a_page_runs(page, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "recordings").symlink_to(DOCS.parent / "recordings")
    blocks = re.findall(r"^```python\n(.*?)^```", (DOCS / "study" / page).read_text(), re.M | re.S)
    assert blocks
    names = {}
    for block in blocks:
        exec(compile(block, page, "exec"), names)
    if page == "python.md":
        assert "light_p99_ms" in capsys.readouterr().out


def test_the_notebook_runs():
    examples = DOCS.parent / "python/examples"
    notebook = nbformat.read(examples / "two-questions.ipynb", 4)
    assert not any(cell.get("outputs") for cell in notebook.cells), "it is kept without outputs"
    nbclient.NotebookClient(notebook, timeout=300, resources={"metadata": {"path": examples}}).execute()
    shown = notebook.cells[-1].outputs[0].data
    assert "<svg" in shown["text/html"] and "tidegate" in shown["text/plain"]
