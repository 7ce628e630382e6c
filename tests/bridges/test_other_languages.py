"""Files as R and Julia write them are read, and what R changes on the way is said."""

from pathlib import Path

import pytest

from glayers import BadFile, read_predictions

# write.csv(data.frame(id, p, label, check.names = FALSE), row.names = FALSE): text is quoted, numbers have 15 digits
FROM_R = """"id","probability_big cat","probability_dog","label"
"p1",0.123456789012345,0.876543210987655,"dog"
"p2",1e-05,0.99999,"big cat"
"p3",1,0,"big cat"
"""
FROM_JULIA = """id,probability_big cat,probability_dog,label
p1,0.123456789012345,0.876543210987655,dog
p2,1.0e-5,0.99999,big cat
p3,1.0,0.0,big cat
"""


@pytest.mark.parametrize("text", [FROM_R, FROM_JULIA], ids=["R", "Julia"])
def test_files_of_other_languages_are_read(text: str, tmp_path: Path) -> None:
    (tmp_path / "rows.csv").write_text(text)
    found = read_predictions(tmp_path / "rows.csv")
    assert found.class_names == ("big cat", "dog")
    assert found.labels.tolist() == [1, 0, 0]
    assert found.probabilities()[0] == pytest.approx([0.123456789012345, 0.876543210987655], rel=1e-12)


@pytest.mark.parametrize(
    ("change", "said"),
    [(("_big cat", "_big.cat"), r"one of big\.cat, dog"), (('"dog"', "NA"), "line 2, column 'label' has 'NA'")],
    ids=["check.names", "NA"],
)
def test_what_r_changes_is_said(change: tuple[str, str], said: str, tmp_path: Path) -> None:
    (tmp_path / "rows.csv").write_text(FROM_R.replace(*change))
    with pytest.raises(BadFile, match=said):
        read_predictions(tmp_path / "rows.csv")
