"""Manual pages become rows: the words before, the next word, and the page it stands on."""

import gzip
from pathlib import Path

import numpy as np
from experiments.accuracy import next_token


def test_rows_hold_the_words_before_each_word_and_its_page(tmp_path: Path) -> None:
    (tmp_path / "man1").mkdir()
    for name, word in (("a", "read"), ("b", "write")):
        text = f".TH {name}\n" + f"The \\fB{word}\\fR command\n" * 40
        (tmp_path / "man1" / f"{name}.1.gz").write_bytes(gzip.compress(text.encode()))
    pages = next_token.read_pages(tmp_path, most=10, seed=0)
    assert sorted(page[:3] for page in pages) == [["the", "read", "command"], ["the", "write", "command"]]
    number_of = next_token.vocabulary(pages, 4)
    assert set(number_of) == {"the", "command", pages[0][1]}  # the most frequent ones; of equal ones the first
    before, after, groups = next_token.examples(pages, np.array([1, 0]), number_of)
    words = [number_of.get(word, 0) for word in pages[0]]
    first = int(np.flatnonzero(groups == 0)[0])
    assert before[first].tolist() == words[: next_token.CONTEXT]
    assert after[first] == words[next_token.CONTEXT]
    assert (groups == 1).sum() == len(pages[1]) - next_token.CONTEXT
