"""Executes a notebook in its folder, with the command PLANISH, and checks its outputs; with --write, keeps them."""

import argparse
import os
import pathlib
import sys
import tempfile

import nbclient
import nbformat


def outputs_of(notebook, kind):
    """Returns the outputs of that MIME type, or the printed texts for text/plain."""
    found = []
    for cell in notebook.cells:
        for output in cell.get("outputs", []):
            if output.output_type == "stream" and kind == "text/plain":
                found.append(output.text)
            elif kind in output.get("data", {}):
                found.append(output.data[kind])
    return found


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("notebook", type=pathlib.Path)
    parser.add_argument("--write", action="store_true", help="replace the notebook by the executed one")
    arguments = parser.parse_args()
    notebook = nbformat.read(arguments.notebook, as_version=4)
    with tempfile.TemporaryDirectory() as folder:
        os.environ["RUNS"] = f"{folder}/runs"
        client = nbclient.NotebookClient(
            notebook, timeout=1800, kernel_name="python3", resources={"metadata": {"path": arguments.notebook.parent}}
        )
        client.execute()
    texts, images = outputs_of(notebook, "text/plain"), outputs_of(notebook, "image/png")
    drawings = outputs_of(notebook, "image/svg+xml")
    assert sum("test error" in text for text in texts) >= 1, texts
    assert len(images) == 2 and len(drawings) == 2, (len(images), len(drawings))
    assert any(text.startswith("ROMEO:") for text in texts), texts
    if arguments.write:
        for cell in notebook.cells:
            cell.metadata.pop("execution", None)  # times
        nbformat.write(notebook, arguments.notebook)
    cells = sum(cell.cell_type == "code" for cell in notebook.cells)
    print(f"{arguments.notebook}: {cells} cells executed, {len(images)} plots, {len(drawings)} drawings")
    return 0


if __name__ == "__main__":
    sys.exit(main())
