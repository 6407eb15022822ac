"""Names of the points of a front in its picture: all of them, apart, and numbers where crowded."""

from __future__ import annotations

from itertools import combinations

from matplotlib.figure import Figure
from matplotlib.text import Annotation
from test_sweeps import SIZE, study

from archgen.plots import pareto_figure


def names_of(figure: Figure) -> list[Annotation]:
    notes = [text for text in figure.axes[0].texts if isinstance(text, Annotation)]
    return [note for note in notes if note.get_text() and "result" not in note.get_text()]


def test_every_point_of_the_front_has_a_name_and_names_do_not_overlap() -> None:
    frame, archs = study([64, 96, 128, 192, 256], [3.9, 4.0, 4.1, 4.2], [16, 17])
    figure = pareto_figure(frame, archs=archs)
    figure.draw_without_rendering()
    notes = names_of(figure)
    names = {note.get_text() for note in notes}
    assert names == {"64, 4.2, 16", "96, 4.2, 16", "128, 4.2, 16", "192, 4.2, 16", "256, 4.2, 16"}
    boxes = [note.get_window_extent() for note in notes]
    assert not any(one.overlaps(other) for one, other in combinations(boxes, 2))


def test_names_of_a_crowded_front_are_numbers_with_a_key() -> None:
    """Twenty machines, the quickest first, in their panel and apart."""
    sizes = [32 * n for n in range(1, 21)]
    frame, archs = study(sizes, [4.0, 4.001], [16])
    figure = pareto_figure(frame.assign(latency_ms=8 - frame[SIZE] / 1e9), archs=archs)
    figure.draw_without_rendering()
    inner = figure.axes[0].get_window_extent().padded(5)
    notes = names_of(figure)
    assert [note.get_text() for note in notes] == [str(n) for n in range(1, 21)]
    boxes = [note.get_window_extent() for note in notes]
    assert not any(one.overlaps(other) for one, other in combinations(boxes, 2))
    assert all(inner.contains(box.x0, box.y0) and inner.contains(box.x1, box.y1) for box in boxes)
    key = [text.get_text() for text in figure.legends[0].get_texts()]
    assert key[:3] == ["Pareto front", "dominated", "1  640, 4 and 1 equal"]
