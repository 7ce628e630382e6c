"""Logs of servers and of evaluation programs become scores of options, with nothing guessed in silence."""

import json
import math
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner

from glayers import BadFile, GlayersWarning, MatrixScaling, read_confidences, read_predictions
from glayers.cli import app
from glayers.errors import BadPredictions

FAILED = {"id": "b1", "custom_id": "q1", "response": None, "error": None}  # a line of the output of a batch
HALF, FIFTH, TENTH = math.log(0.5), math.log(0.2), math.log(0.1)


def write(path: Path, *records: object) -> Path:
    path.write_text("".join(json.dumps(record) + "\n" for record in records), encoding="utf-8")
    return path


def chat(*steps: dict[str, float], **more: Any) -> dict[str, Any]:
    """What a server answers in a chat: the first token of each step is the chosen one."""
    content = []
    text = "".join(next(iter(step)) for step in steps)
    for step in steps:
        tops = [{"token": token, "logprob": score, "bytes": list(token.encode())} for token, score in step.items()]
        content.append({**tops[0], "top_logprobs": tops})
    choice = {
        "index": 0,
        "message": {"role": "assistant", "content": text},
        "logprobs": {"content": content, "refusal": None},
        "finish_reason": "stop",
    }
    return {"id": "chatcmpl-1", "object": "chat.completion", "choices": [choice], "usage": {"total_tokens": 9}, **more}


def completion(*steps: dict[str, float], **more: Any) -> dict[str, Any]:
    """What a server answers to a prompt, as OpenAI's older interface and vLLM write it."""
    tokens = [next(iter(step)) for step in steps]
    logprobs = {
        "tokens": tokens,
        "token_logprobs": [step[token] for step, token in zip(steps, tokens, strict=True)],
        "top_logprobs": list(steps),
        "text_offset": list(range(len(tokens))),
    }
    choice = {"index": 0, "text": "".join(tokens), "logprobs": logprobs, "finish_reason": "length"}
    return {"id": "cmpl-1", "object": "text_completion", "choices": [choice], **more}


@pytest.mark.parametrize("server", [chat, completion])
def test_answers_of_a_server_become_scores_of_the_options(tmp_path: Path, server: Any) -> None:
    first = server({"B": HALF, " B": TENTH, "A": FIFTH, "C": TENTH}, answer="B", id="q1")
    second = server({" A": HALF, "C": FIFTH, "B": FIFTH}, answer="C", id="q2")
    read = read_predictions(write(tmp_path / "s.jsonl", first, second), options="ABC")
    assert np.exp(read.logits) == pytest.approx(np.array([[0.2, 0.6, 0.1], [0.5, 0.2, 0.2]]))  # "B" and " B" add up
    assert read.labels.tolist() == [1, 2]
    assert read.class_names == ("A", "B", "C")


def test_a_batch_stands_under_response(tmp_path: Path) -> None:
    body = chat({"no": HALF, "yes": FIFTH})
    line = {"custom_id": "q7", "response": {"status_code": 200, "body": body}, "error": None, "answer": "no"}
    read = read_predictions(write(tmp_path / "s.jsonl", line), options=["yes", "no"])
    assert read.logits.tolist() == [[FIFTH, HALF]]
    assert read.labels.tolist() == [1]


def test_questions_have_their_own_options(tmp_path: Path) -> None:
    four = chat({"D": HALF, "A": FIFTH, "B": TENTH, "C": TENTH}, options=list("ABCD"), answer="D")
    two = chat({"A": HALF, "B": FIFTH}, options=["A", "B"], answer="B")
    read = read_predictions(write(tmp_path / "s.jsonl", two, four))
    assert read.logits[0].tolist() == [HALF, FIFTH, -np.inf, -np.inf]
    assert read.labels.tolist() == [1, 3]
    assert read.class_names == ("A", "B", "C", "D")


def test_an_option_that_was_not_returned_is_as_likely_as_it_can_be_and_the_user_is_told(tmp_path: Path) -> None:
    by_last = chat({"A": HALF, "The": FIFTH}, answer="A")  # what is left, 0.3, is more than the last, 0.2
    by_rest = chat({"A": math.log(0.9)}, answer="A")  # 0.1 is left
    sampled = chat({"B": math.log(0.01), "A": HALF, "The": FIFTH}, answer="B")  # C may be likelier than a sampled B
    path = write(tmp_path / "s.jsonl", by_last, by_rest, sampled, chat({"A": HALF, "B": FIFTH, "C": TENTH}, answer="A"))
    with pytest.warns(GlayersWarning, match="in 3 questions of 4, an option is not among the returned tokens"):
        read = read_predictions(path, options="ABC")
    expected = [[0.5, 0.2, 0.2], [0.9, 0.1, 0.1], [0.5, 0.01, 0.2], [0.5, 0.2, 0.1]]
    assert np.exp(read.logits) == pytest.approx(np.array(expected))


def test_scores_by_name_follow_the_names(tmp_path: Path) -> None:
    lines = [{"logprobs": {"B": -1.0, "A": -2.0}, "answer": "B"}, {"logprobs": {"A": -1.0, "C": -3.0}, "answer": "A"}]
    read = read_predictions(write(tmp_path / "s.jsonl", *lines))
    assert read.logits.tolist() == [[-2.0, -1.0, -np.inf], [-1.0, -np.inf, -3.0]]
    assert read.labels.tolist() == [1, 0]
    assert read.class_names == ("A", "B", "C")


def test_scores_by_name_may_be_the_likeliest_tokens(tmp_path: Path) -> None:
    line = {"logprobs": {" B": HALF, "The": FIFTH, "A": TENTH}, "answer": "B"}
    with pytest.warns(GlayersWarning, match="in 1 question of 1,"):
        read = read_predictions(write(tmp_path / "s.jsonl", line), options="ABC")
    assert np.exp(read.logits) == pytest.approx(np.array([[0.1, 0.5, 0.1]]))


@pytest.mark.parametrize("before", [[" "], ["ANS", "WER", ": "], ["Answer:"]])
def test_the_first_word_names_the_option_perhaps_after_the_word_answer(tmp_path: Path, before: list[str]) -> None:
    steps = [*({token: -0.1} for token in before), {"B": HALF, " A": FIFTH}, {" is right, A not": -0.1}]
    read = read_predictions(write(tmp_path / "s.jsonl", chat(*steps, answer="B")), options="AB")
    assert read.logits[0] == pytest.approx([FIFTH, HALF])


@pytest.mark.parametrize(
    ("record", "message"),
    [
        (chat({"A": -0.1}, answer="A"), "says nowhere which options"),
        (chat({"The": -0.1}, {" A": -0.1}, options=["A", "B"]), "must begin with one of the options A, B, not 'The A'"),
        ({"logprobs": {"The": -0.1, "It": -3.0}, "options": ["A", "B"]}, "none of the options A, B is .* The, It"),
        (chat({"A": -0.1}, options=["A", "B"], answer="C"), "the answer 'C' is not one of the 2 choices"),
        (chat({"A": -0.1}, options=["A", "A"]), "at least two different words"),
        (completion(options=["A", "B"]), "has no top_logprobs; ask the server"),
        ({"choices": [{"text": "A", "logprobs": None}], "options": ["A", "B"]}, "has no top_logprobs"),
        ({"choices": [{"logprobs": {}}, {"logprobs": {}}], "options": ["A", "B"]}, r"2 answers to one .* \(n=1\)"),
        ({"logprobs": {"A": "x"}, "answer": "A"}, "must be real numbers"),
        ({"logprobs": {"A": -1.0, "B": -2.0}, "answer": "C"}, "the answer 'C' is not one of the 2 choices, .*: A, B"),
        ({"logprobs": {}, "answer": "C"}, "must be a list of numbers"),
    ],
)
def test_a_log_that_cannot_be_understood_is_refused(tmp_path: Path, record: object, message: str) -> None:
    with pytest.raises(BadFile, match=rf"line 1: .*{message}"):
        read_predictions(write(tmp_path / "s.jsonl", record))


def test_a_number_means_the_option_of_that_name(tmp_path: Path) -> None:
    line = chat({"1": HALF, "2": FIFTH}, options=["1", "2"], answer=1)
    assert read_predictions(write(tmp_path / "s.jsonl", line)).labels.tolist() == [0]


LETTERS: dict[str, Any] = {"options": list("ABC"), "answer": "B"}


@pytest.mark.parametrize(
    ("record", "message"),
    [
        (chat({"A": -0.1}, {"pple": -0.1}, **LETTERS), "'A' may be the beginning of another word.* the option alone"),
        (chat({"A": -0.1}, {"nswer": -0.1}, {" B": -0.1}, **LETTERS), "'A' may be the beginning of another word"),
        (chat({"not": -0.1}, {" A": -0.1}, **LETTERS), "must begin with one of the options A, B, C, not 'not A'"),
        (
            chat({"So answer": -0.1}, {" B": -0.1}, **LETTERS),
            "must begin with .*, not 'So answer B'; ask the model for",
        ),
        (chat({"Answer": -0.1}, {": not": -0.1}, {" A": -0.1}, **LETTERS), "must begin with"),
        (chat({"A": -0.1}, label=0, **LETTERS), "both 'label' and 'answer' are labels; keep one"),
        (chat({"a": -0.1, "A": -3.0}, **LETTERS), "must begin with one of the options A, B, C, not 'a'"),
        (chat({"may": -0.1, "yes": -3.0}, options=["yes", "maybe"]), "must begin with .* yes, maybe, not 'may'"),
        (chat({"1": -0.1, "2": -3.0}, options=["1", "2", "10"]), "'1' may be the beginning of another word"),
        (chat({"A": 0.7, "B": 0.2}, **LETTERS), "sum to .*: these are no log-probabilities"),
        (chat({"A": -0.1, "B": -0.1}, **LETTERS), "the tokens A, B have probabilities that sum to 1.81"),
        ({"logprobs": {"A": 0.7, "B": 0.3}, "answer": "B"}, "logprobs must not be above 0"),
        ({"logprobs": [0.7, 0.3], "answer": "B"}, "logprobs must not be above 0"),
        (
            chat({"A": -0.1, "B": -3.0}, options=["2", "3"], answer=1),
            "must begin with one of the options 2, 3, not 'A'",
        ),
        (chat({"2": -0.1, "3": -3.0}, options=["2", "3"], answer=1), "the answer 1 is not one of the 2 choices"),
        (
            {"choices": ["3", "4", "5", "6"], "logprobs": [-1, -2, -3, -4], "answer": "3"},
            r"the answer '3' means the choices \[0, 3\]; give the letter of one",
        ),
        (
            FAILED | {"error": {"message": "Expired."}},
            "failed, with {'message': 'Expired.'}; ask again, or remove line 1",
        ),
        (
            FAILED | {"response": {"status_code": 429, "body": {"error": {"message": "Slow."}}}},
            "failed, .* 429, .*'Slow.'",
        ),
        ({"confidence": "high", "correct": True}, "confidence has 'high'; expected a number"),
        ({"confidence": 0.9, "correct": "perhaps"}, "correct has 'perhaps'; expected a number or one of true"),
    ],
)
def test_what_may_mean_two_things_is_refused(tmp_path: Path, record: object, message: str) -> None:
    with pytest.raises(BadFile, match=rf"line 1: .*{message}"):
        read_predictions(write(tmp_path / "s.jsonl", record))


@pytest.mark.parametrize(
    ("record", "expected", "label"),
    [
        (chat({"Yes": HALF, "yes": TENTH, "No": FIFTH}, options=["yes", "no"], answer="No"), [0.6, 0.2], 1),
        (chat({"A": HALF, "B": FIFTH}, {".": -0.1}, {" Because": -0.1}, **LETTERS), [0.5, 0.2, 0.2], 1),
        (chat({"B": FIFTH, "A": HALF}, {")": -0.1}, {" A red": -0.1}, **LETTERS), [0.5, 0.2, 0.3], 1),
        (chat({"B": FIFTH, "A": HALF}, {" is right, not A": -0.1}, **LETTERS), [0.5, 0.2, 0.3], 1),
        (chat({"B": -9999.0, "A": HALF, "C": FIFTH}, **LETTERS), [0.5, 0.2, 0.2], 1),  # B was drawn, but not scored
        (chat({"B": HALF, "A": FIFTH}, options=["B", "A"], answer="b"), [0.5, 0.2], 0),
        (chat({"True": HALF, "False": FIFTH}, options=["True", "False"], answer=False), [0.5, 0.2], 1),
        ({"choices": ["7", "8"], "logprobs": [HALF, FIFTH], "answer": 1}, [0.5, 0.2], 1),
        ({"choices": ["7", "8"], "logprobs": [HALF, FIFTH], "answer": "A"}, [0.5, 0.2], 0),
    ],
)
@pytest.mark.filterwarnings("ignore:in 1 question of 1")
def test_what_can_be_understood_is_read(tmp_path: Path, record: object, expected: list[float], label: int) -> None:
    read = read_predictions(write(tmp_path / "s.jsonl", record))
    assert np.exp(read.logits[0]) == pytest.approx(np.array(expected))
    assert read.labels.tolist() == [label]


def test_a_token_that_is_returned_twice_counts_once(tmp_path: Path) -> None:
    line = chat({"A": HALF, "B": FIFTH}, options=["A", "B"], answer="A")
    tops = line["choices"][0]["logprobs"]["content"][0]["top_logprobs"]
    tops.append(tops[0])
    assert np.exp(read_predictions(write(tmp_path / "s.jsonl", line)).logits[0]) == pytest.approx([0.5, 0.2])


def test_tokens_are_not_taken_for_names_of_options(tmp_path: Path) -> None:
    lines = [{"logprobs": {"A": -1.0, "B": -2.0}, "answer": "A"}, {"logprobs": {" A": -1.0, "B": -3.0}, "answer": "B"}]
    with pytest.raises(BadFile, match="one word in several forms, as tokens are: give the options"):
        read_predictions(write(tmp_path / "s.jsonl", *lines))
    with pytest.raises(
        BadFile, match="line 2: has labels, logits, but earlier lines have labels, logits, scores by name"
    ):
        read_predictions(write(tmp_path / "s.jsonl", lines[0], {"logprobs": [-1.0, -2.0], "answer": "A"}))


def test_the_line_without_an_answer_is_named(tmp_path: Path) -> None:
    without, answered = {"logprobs": [-1.0, -2.0]}, {"logprobs": [-1.0, -3.0], "answer": "A"}
    for place, lines in ((1, [without, answered, answered]), (3, [answered, answered, without])):
        said = rf"line {place}: has no answer \(or label\), as other lines have: add it, or remove line {place} to read"
        with pytest.raises(BadFile, match=said):
            read_predictions(write(tmp_path / "s.jsonl", *lines))


def inspect_log(*samples: dict[str, Any]) -> dict[str, Any]:
    return {"version": 2, "status": "success", "eval": {"task": "quiz"}, "samples": list(samples)}


def inspect_sample(number: int, target: object, *steps: dict[str, float], answer: str = "B") -> dict[str, Any]:
    output = {"model": "m", "choices": chat(*steps)["choices"], "completion": f"ANSWER: {answer}"}
    scores = {"choice": {"value": "C", "answer": answer, "explanation": "..."}}
    fixed = {"id": number, "epoch": 1, "input": "Which?", "choices": ["red", "green", "blue"], "target": target}
    return {**fixed, "messages": [], "output": output, "scores": scores, "metadata": {"site": "x"}}


ANSWER = [{"ANS": -0.1}, {"WER": -0.1}, {":": -0.1}]


def test_a_log_of_inspect(tmp_path: Path) -> None:
    step = {" B": HALF, " A": FIFTH, " C": TENTH}
    log = inspect_log(inspect_sample(1, "B", *ANSWER, step), inspect_sample(2, ["A"], *ANSWER, step))
    (tmp_path / "log.json").write_text(json.dumps(log))
    read = read_predictions(tmp_path / "log.json")
    assert read.logits[1] == pytest.approx([FIFTH, HALF, TENTH])
    assert read.labels.tolist() == [1, 0]
    assert read.groups is not None
    assert read.groups.tolist() == [1, 2]


def test_shuffled_choices_of_inspect_are_noticed(tmp_path: Path) -> None:
    step = {" B": HALF, " A": FIFTH, " C": TENTH}
    (tmp_path / "log.json").write_text(json.dumps(inspect_log(inspect_sample(1, "B", *ANSWER, step, answer="C"))))
    with pytest.raises(BadFile, match="sample 0: the tokens say 'B', but the scorer read 'C'"):
        read_predictions(tmp_path / "log.json")


def lighteval_detail(number: int, gold: object, scores: list[float], **metric: float) -> dict[str, Any]:
    doc = {"query": "Which?", "choices": [" a", " b", " c"][: len(scores)], "gold_index": gold, "id": str(number)}
    response = {"input": "Which?", "text": [], "logprobs": scores, "argmax_logits_eq_gold": [False] * len(scores)}
    return {"doc": {**doc, "task_name": "quiz"}, "metric": metric, "model_response": response}


DETAILS = [
    lighteval_detail(0, [1], [-1.0, -0.5, -4.0], acc=1.0),
    lighteval_detail(1, [0], [-1.0, -0.5], acc=0.0),
]


@pytest.mark.parametrize("ending", [".json", ".jsonl", ".parquet"])
def test_details_of_lighteval(tmp_path: Path, ending: str) -> None:
    path = tmp_path / f"details_quiz{ending}"
    if ending == ".parquet":
        pyarrow = pytest.importorskip("pyarrow")
        parquet = pytest.importorskip("pyarrow.parquet")
        parquet.write_table(pyarrow.Table.from_pylist(DETAILS), path)
    elif ending == ".json":
        path.write_text(json.dumps(DETAILS))
    else:
        write(path, *DETAILS)
    read = read_predictions(path)
    assert read.logits.tolist() == [[-1.0, -0.5, -4.0], [-1.0, -0.5, -np.inf]]
    assert read.labels.tolist() == [1, 0]


def test_details_of_lighteval_that_score_in_another_way_are_refused(tmp_path: Path) -> None:
    path = write(tmp_path / "s.jsonl", lighteval_detail(0, 1, [-1.0, -0.5, -4.0], acc=0.0))
    with pytest.raises(BadFile, match="acc is 0, but choice 1 has the highest log-likelihood"):
        read_predictions(path)
    path = write(tmp_path / "s.jsonl", {**lighteval_detail(0, [0], [-1.0]), "metric": {"em": 1}})
    with pytest.raises(BadFile, match="holds generated text"):
        read_predictions(path)


@pytest.mark.parametrize(
    ("values", "stated", "expected"),
    [
        (["90%", "7.5 %", 0.5], None, [0.9, 0.075, 0.5]),
        ([90, 100, 0], "percent", [0.9, 1.0, 0.0]),
        (["90", "90%"], "percent", [0.9, 0.9]),
        (["Likely", "sure", "30%"], {"likely": 0.7, "Sure": 0.95}, [0.7, 0.95, 0.3]),
    ],
)
def test_stated_confidences(tmp_path: Path, values: list[Any], stated: Any, expected: list[float]) -> None:
    lines = [{"confidence": value, "correct": True} for value in values]
    assert read_confidences(write(tmp_path / "s.jsonl", *lines), stated=stated).confidence == pytest.approx(expected)
    table = tmp_path / "s.csv"
    table.write_text("confidence,correct\n" + "".join(f"{value},1\n" for value in values))
    assert read_confidences(table, stated=stated).confidence == pytest.approx(expected)


@pytest.mark.parametrize(
    ("values", "stated", "message"),
    [
        ([90, 80], None, "must be finite and lie between 0 and 1"),
        (["high", "90%"], None, "has 'high'; expected a number"),
        ([0.9, 0.8], "percent", "line 1: confidence has 0.9, which may be a fraction or a percentage"),
        ([90, 0.9, "80%"], "percent", "line 2: confidence has 0.9, which may be a fraction or a percentage"),
        ([1, 0, 1], "percent", "line 1: confidence has 1, which may be"),
        ([0.9, 90, "90%"], None, "must be finite and lie between 0 and 1; row 1 has 90"),
    ],
)
def test_confidences_whose_meaning_is_not_said_are_refused(
    tmp_path: Path, values: list[Any], stated: Any, message: str
) -> None:
    lines = [{"confidence": value, "correct": True} for value in values]
    with pytest.raises(BadFile, match=message):
        read_confidences(write(tmp_path / "s.jsonl", *lines), stated=stated)


def test_words_need_numbers_between_0_and_1(tmp_path: Path) -> None:
    path = write(tmp_path / "s.jsonl", {"confidence": "sure", "correct": True})
    with pytest.raises(BadPredictions, match="between 0 and 1"):
        read_confidences(path, stated={"sure": 95})


def test_the_shell_reads_them_and_keeps_ids(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    lines = []
    for number in range(200):
        scores = np.log(rng.dirichlet(np.ones(3)))
        step = dict(zip("ABC", scores.tolist(), strict=True))
        lines.append(chat(step, id=f"q{number}", answer="ABC"[rng.integers(3)]))
    log = write(tmp_path / "s.jsonl", *lines)
    model, out = tmp_path / "m.safetensors", tmp_path / "out.jsonl"
    run = CliRunner().invoke
    assert run(app, ["fit", str(log), "-o", str(model), "-m", "temperature", "--options", "A,B,C"]).exit_code == 0
    assert run(app, ["apply", str(model), str(log), "-o", str(out), "--options", "A,B,C"]).exit_code == 0
    written = [json.loads(line) for line in out.read_text().splitlines()]
    assert [row["id"] for row in written] == [f"q{number}" for number in range(200)]
    assert set(written[0]) == {"id", "object", "probabilities", "label", "predicted", "confidence", "class_names"}
    assert [row["label"] for row in written] == [line["answer"] for line in lines]  # labels as they came
    again = read_predictions(out)
    assert again.class_names == ("A", "B", "C")
    assert [again.class_names[label] for label in again.labels] == [line["answer"] for line in lines]
    stated = write(tmp_path / "c.jsonl", *({"confidence": "90%", "correct": bool(i % 2)} for i in range(100)))
    assert "confidence" in run(app, ["score", str(stated)]).stdout
    words = write(tmp_path / "w.jsonl", *({"confidence": "sure", "correct": bool(i % 2)} for i in range(100)))
    assert run(app, ["score", str(words), "--stated", "sure=90%"]).exit_code == 0
    assert run(app, ["score", str(words), "--stated", "sure"]).exit_code == 2


def test_probabilities_of_an_option_that_is_not_there_stay_0(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    p = rng.dirichlet(np.ones(3), 50)
    records: list[dict[str, Any]] = [{"probabilities": row.tolist(), "label": int(row.argmax())} for row in p]
    records.append({"probabilities": [0.7, 0.3], "label": 1})
    read = read_predictions(write(tmp_path / "s.jsonl", *records))
    assert read.logits[-1].tolist() == pytest.approx([np.log(0.7), np.log(0.3), -np.inf])
    fitted = MatrixScaling().fit_predictions(read)
    assert fitted.apply(read).probabilities()[-1, 2] == 0.0
    with pytest.raises(BadFile, match="sum to 1"):
        read_predictions(write(tmp_path / "s.jsonl", records[0], {"probabilities": [0.7, 0.2], "label": 1}))
    with pytest.raises(BadFile, match="between 0 and 1"):
        read_predictions(write(tmp_path / "s.jsonl", records[0], {"probabilities": [1.0, -np.inf], "label": 1}))
    with pytest.warns(GlayersWarning, match="1 of 6 probabilities are exactly 0"):
        read = read_predictions(write(tmp_path / "s.jsonl", records[0], {"probabilities": [1.0, 0.0], "label": 1}))
    assert read.logits[1].tolist() == pytest.approx([0.0, np.log(1e-12), -np.inf])


def test_a_long_run_of_marks_takes_no_time(tmp_path: Path) -> None:
    line = chat({"A": -0.6, "B": -1.5, "C": -2.0}, {"," * 20_000: -0.1}, **LETTERS)
    started = time.process_time()
    read_predictions(write(tmp_path / "s.jsonl", line))
    assert time.process_time() - started < 2  # 15 seconds where the time grows with the square
