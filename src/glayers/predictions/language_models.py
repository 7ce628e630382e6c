"""Records of a language model's log -> a score for each option of a question, the right option, and the document.

A record is a JSON object per question, in one of these forms, told apart by its keys:

- plain: `logprobs`, `logits` or `probabilities` as a list or by name, or `confidence` and `correct`;
- an answer of an OpenAI or vLLM server with `top_logprobs`, from completions, chat or a batch;
- a sample of Inspect, a detail of lighteval, or a line of lm-evaluation-harness.

Questions may have different numbers of options: the missing ones are impossible. A record that may mean two things is
refused.
"""

import re
import warnings
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np

from glayers.arrays import Array
from glayers.checks import check_probabilities
from glayers.errors import BadFile, GlayersWarning, listed, shown
from glayers.files import check_size, errors_as_bad_file
from glayers.predictions.contents import (
    FIELD_WORDS,
    KEYS,
    SCORES,
    Contents,
    Reading,
    contents_of,
    keys_of_fields,
    real_numbers,
)
from glayers.predictions.predictions import warn_of_certainty
from glayers.text_tables import plural

_LINE_KEYS = {key: name for key, name in KEYS.items() if name != "class_names"} | {"answer": "labels"}
_LABEL_KEYS = ("answer", *FIELD_WORDS["labels"])
_LOG_KEYS = ("log_probabilities", "logprobs", "log_likelihoods")
_HARNESS = "filtered_resps"  # the key that only logs of the harness have
_LEAST_PROBABILITY = 1e-12  # of an option that a question has
_NO_OPTIONS = (
    "says nowhere which options the question has; give them as a list under `options`, or for all lines as options= "
    "(on the command line --options A,B,C,D)"
)
_NO_LOGPROBS = "has no top_logprobs; ask the server for logprobs and as many top_logprobs as it gives"
_GENERATED = "holds generated text, not log-probabilities of choices; write confidence and correct instead"
_ALONE = "ask the model for the option alone, or leave the line out"
_MARKS = " \t\r\n▁Ġ.,:;()[]*\"'`"  # tokenizers write a space in front of a word as ▁ or Ġ
_SEVERAL = re.compile(r"(\W*+)(?:(or|and)\b\W*+)?(\w+)")  # after an option: marks, a conjunction, the next word
_REFUTED = re.compile(r"[ \"'`)*]*+(?:\w++ +){0,2}(?:not|wrong|incorrect|false|cannot|\w*n't)\b")  # after an option
_DENIED = re.compile(r"(?:\bnot|n't)\W*$")  # before an option
_ROUNDING = 0.01  # of log-probabilities, which servers may compute with three digits
_NOT_RETURNED = -9999.0  # what OpenAI writes for the sampled token if it is not among the likeliest
_LEAST_LEFT = 1e-6  # what all returned tokens leave is not known better
_Tops: TypeAlias = Sequence[tuple[str, float]]  # the likeliest tokens, with log-probabilities


@dataclass(frozen=True)
class _Row:
    """One question: its fields by name, other columns, the names of its options, and how many scores were assumed."""

    fields: dict[str, Any]
    others: dict[str, Any]
    options: tuple[str, ...] = ()
    n_assumed: int = 0
    by_name: bool = False  # the names, not their order, say which options of different questions are the same

    @property
    def shape(self) -> tuple[bool, bool]:
        """What all lines have in common: whether scores go by name, and whether a label is a list."""
        return self.by_name, isinstance(self.fields.get("labels"), list)


def contents_of_records(records: Iterable[tuple[str, Any]], reading: Reading) -> Contents:
    """Return the contents of a log, given where each record stands."""
    rows: list[_Row] = []
    places: list[str] = []
    first: Any = None
    for where, record in records:
        with errors_as_bad_file(where):
            row = _row_of(record, reading)
            first_row = rows[0] if rows else row
            if first_row.fields.keys() != row.fields.keys():
                raise BadFile(
                    f"has {listed(sorted(row.fields))}, but earlier lines have {listed(sorted(first_row.fields))}"
                )
            if first_row.shape != row.shape:
                raise BadFile("has a list where other lines have a name, a number or scores by name; write all alike")
        first = first or record
        if _HARNESS in record and record.get("filter") != first.get("filter"):
            continue  # a harness writes every question once for each filter; the first filter is read
        rows.append(row)
        places.append(where)
    if not rows:
        raise BadFile("holds no line with logprobs and label, or with confidence and correct")
    _warn_of_assumed(rows)
    fields: dict[str, Any] = {name: [row.fields[name] for row in rows] for name in rows[0].fields}
    names = _common_names(rows)
    column_of = {option: column for column, option in enumerate(names)}
    for name in fields.keys() & set(SCORES):
        columns: list[Sequence[int]] = [range(len(scores)) for scores in fields[name]]
        if rows[0].by_name:
            columns = [[column_of[option] for option in row.options] for row in rows]
        fields |= _without_missing(name, padded(fields.pop(name), np.nan, columns))
        if "labels" in fields and not isinstance(fields["labels"][0], list):
            fields["labels"] = [own[label] for own, label in zip(columns, fields["labels"], strict=True)]
    if names:
        fields["class_names"] = list(names)
    keys = dict.fromkeys(key for row in rows for key in row.others if reading.others)
    others = {key: [row.others.get(key) for row in rows] for key in keys}
    return contents_of(fields, reading, others, lambda name, row: f"{places[row]}: {name}")


def _warn_of_assumed(rows: list[_Row]) -> None:
    n_rows = sum(row.n_assumed > 0 for row in rows)
    if n_rows:
        warnings.warn(
            f"in {plural(n_rows, 'question')} of {len(rows):,}, an option is not among the returned tokens. It is "
            f"taken to be as likely as it can be: as the last token returned, or as what all returned ones leave. Ask "
            f"for more top_logprobs to know it",
            GlayersWarning,
            stacklevel=2,
        )


def _common_names(rows: list[_Row]) -> tuple[str, ...]:
    """Return all names of options that go by name, or else the longest list that begins with every other one."""
    if rows[0].by_name:
        names = sorted({option for row in rows for option in row.options})
        words = {_word(name).casefold() for name in names}
        if len(words) < len(names):
            raise BadFile(
                f"the names {listed(names)} are the same word in several forms, as tokens are: say which options the "
                f"questions have as options= (on the command line --options A,B,C,D)"
            )
        return tuple(names)
    longest = max((row.options for row in rows), key=len)
    if all(row.options and row.options == longest[: len(row.options)] for row in rows):
        return longest
    return ()


def padded(rows: Sequence[Array], padding: float, columns: Sequence[Sequence[int]] = ()) -> Array:
    """Return rows of different lengths as an array: from its first column on, or in the given columns of each row."""
    columns = columns or [range(len(row)) for row in rows]
    widest = 1 + max(map(max, columns))
    check_size(8 * widest * len(rows))
    scores = np.full((len(rows), widest), padding)
    for number, row in enumerate(rows):
        scores[number, columns[number]] = row
    return scores


def _without_missing(name: str, scores: Array) -> dict[str, Array]:
    """Return logits of -inf where a question lacks an option: by calibration, a probability of 0 could become more."""
    missing = np.isnan(scores)
    if name == "logits" or not missing.any():
        return {name: np.where(missing, -np.inf, scores)}
    checked = check_probabilities(np.where(missing, 0.0, scores))
    warn_of_certainty(np.where(missing, 1.0, checked), _LEAST_PROBABILITY)
    return {"logits": np.where(missing, -np.inf, np.log(np.clip(checked, _LEAST_PROBABILITY, 1.0)))}


def _row_of(record: Any, reading: Reading) -> _Row:
    """Return one question of any form."""
    if not isinstance(record, dict):
        raise BadFile(f"must be a JSON object; got {shown(record)}")
    if _HARNESS in record:
        return _harness_row(record)
    if isinstance(record.get("model_response"), dict):
        return _lighteval_row(record)
    if isinstance(record.get("output"), dict):
        return _inspect_row(record, reading)
    if record.get("error") and record.get("custom_id"):
        raise BadFile(f"is a request that failed, with {shown(record['error'])}; leave the line out or ask again")
    response = record.get("response", record)
    if isinstance(response, dict):
        response = response.get("body", response)  # as in a batch
    if isinstance(response, dict) and isinstance((_values(response.get("choices")) or [None])[0], dict):
        return _server_row(record, response, reading)
    return _plain_row(record, reading)


def _plain_row(record: dict[str, Any], reading: Reading) -> _Row:
    """Return a line with the keys of an `.npz`, in the singular or not, and scores as a list or by name."""
    keys = keys_of_fields(record, _LINE_KEYS)
    fields = {name: record[key] for name, key in keys.items()}
    names = tuple(map(str, _values(record.get("class_names"))))
    by_name = False
    for name in fields.keys() & set(SCORES):
        scores = fields[name]
        choices = names or _values(record.get("choices"))
        if isinstance(scores, dict):
            options = _options(record, reading)
            if options and name == "logits":
                scored, n_assumed = _option_scores(_tops_of(scores.items()), "", options)
                return _Row(fields | _answered(record, scored, options), _others(record), options, n_assumed)
            choices = names = tuple(scores)
            scores = _values(scores)
            by_name = True
        fields[name] = _scores(keys[name], scores)
        if keys[name] in _LOG_KEYS and fields[name].max() > _ROUNDING:
            raise BadFile(f"{keys[name]} must not be above 0; got {shown(scores)}: name other scores logits")
        if isinstance(fields.get("labels"), list) and by_name:
            raise BadFile("has a list of labels for scores by name; give the scores as a list too")
        if "labels" in fields and not isinstance(fields["labels"], list):  # 0 or 1, or a probability, of each class
            label = fields["labels"]
            is_name = by_name or (isinstance(label, str) and label in names)  # a class may be named 0 or 000
            fields["labels"] = _place(label, len(scores), choices, is_name)
    return _Row(fields, _others(record), names, by_name=by_name)


def _others(record: Mapping[str, Any]) -> dict[str, Any]:
    """Return what means nothing here, and is written again."""
    return {key: value for key, value in record.items() if key not in {*_LINE_KEYS, "class_names", _HARNESS}}


def _server_row(record: dict[str, Any], response: dict[str, Any], reading: Reading) -> _Row:
    """Return the answer of a server, with the options and the label that the user has added."""
    options = _options(record, reading)
    _, scores, n_assumed = _read_answer(response, options)
    fields = _answered(record, scores, options)
    for key, name in _LINE_KEYS.items():
        if key in record and name in ("weights", "groups", "counts"):
            fields[name] = record[key]
    return _Row(fields, _simple(record, _LINE_KEYS), options, n_assumed)


def _inspect_row(record: dict[str, Any], reading: Reading) -> _Row:
    """Return a sample of Inspect, whose options are letters unless others are given."""
    letters = [chr(ord("A") + number) for number in range(len(_values(record.get("choices"))))]
    options = _options({"options": letters} if letters and reading.options is None else {}, reading)
    chosen, scores, n_assumed = _read_answer(record["output"], options)
    for score in _values(record.get("scores")):
        answer = _option_of(str(score.get("answer")), options) if isinstance(score, dict) else None
        if answer not in (None, chosen):
            raise BadFile(
                f"the tokens say {chosen!r}, but the scorer read {answer!r}. If the choices were shuffled, the tokens "
                f"name shuffled letters: run the task without shuffling"
            )
    fields = _answered({"answer": _only(record.get("target"))}, scores, options)
    if record.get("id") is not None:
        fields["groups"] = record["id"]  # epochs ask the same question again
    return _Row(fields, _simple(record, {"target"}), options, n_assumed)


def _lighteval_row(record: dict[str, Any]) -> _Row:
    """Return a detail of lighteval, which has a log-probability of each choice."""
    document = record.get("doc")
    if not isinstance(document, dict):
        raise BadFile("has a model_response without doc; give the details that lighteval wrote")
    scores = _scores("logprobs of model_response", record["model_response"].get("logprobs"))
    if len(scores) != len(_values(document.get("choices"))) or len(scores) < 2:
        raise BadFile(_GENERATED)
    label = _place(_only(document.get("gold_index")), len(scores))
    metric = record.get("metric")
    _refuse_other_accuracy(scores, label, metric.get("acc") if isinstance(metric, dict) else None)
    return _Row({"logits": scores, "labels": label}, _simple(document, ()) | _simple(record, ()))


def _harness_row(record: dict[str, Any]) -> _Row:
    """Return log-likelihoods of the choices, the correct one, and the document as group."""
    answers = _values(record[_HARNESS])
    if len(answers) < 2 or not all(isinstance(answer, list) and len(answer) == 2 for answer in answers):
        raise BadFile(_GENERATED)
    scores = _scores(_HARNESS, [score for score, _ in answers])
    requested = [[*_values(request), None, None][1] for request in _values(record.get("arguments"))]
    label = _place(record.get("target"), len(scores), requested)
    _refuse_other_accuracy(scores, label, record.get("acc"))
    fields = {"logits": scores, "labels": label}
    for key in ("doc_id", "doc_hash"):
        if record.get(key) is not None:
            fields["groups"] = record[key]
    return _Row(fields, _others(record))


def _refuse_other_accuracy(scores: Array, label: int, accuracy: Any) -> None:
    """Refuse a task that scores its answers in another way, such as by log-likelihood per character."""
    best = np.flatnonzero(scores == scores.max())
    is_known = isinstance(accuracy, int | float)
    if len(best) == 1 and is_known and (best[0] == label) != (accuracy == 1):
        raise BadFile(
            f"acc is {accuracy:g}, but choice {best[0]} has the highest log-likelihood and the target is {label}: this "
            f"task scores in another way; write lines with logprobs and label instead"
        )


def _options(record: dict[str, Any], reading: Reading) -> tuple[str, ...]:
    """Return the options of a question: those of its line, or else those given for all lines."""
    given = record.get("options", reading.options)
    if given is None:
        return ()
    options = tuple(_word(str(option)) for option in _values(given) or given)
    if len(options) < 2 or len(set(options)) != len(options) or "" in options:
        raise BadFile(f"options must be at least two different words; got {shown(given)}")
    return options


def _answered(record: dict[str, Any], scores: Array, options: tuple[str, ...]) -> dict[str, Any]:
    """Return the scores of a question and, if its answer is known, its label."""
    fields: dict[str, Any] = {"logits": scores}
    known = {key: record[key] for key in _LABEL_KEYS if record.get(key) is not None}
    if len(known) > 1:
        raise BadFile(f"has {listed(known)}, which all mean the right option; keep one of them")
    for answer in known.values():
        are_numbers = all(option.isdecimal() for option in options)  # 2 means the option named 2
        fields["labels"] = _place(answer, len(options), options, is_name=are_numbers)
    return fields


def _read_answer(response: dict[str, Any], options: tuple[str, ...]) -> tuple[str | None, Array, int]:
    """Return the option that an answer names, log-probabilities of all options, and how many were not returned."""
    if not options:
        raise BadFile(_NO_OPTIONS)
    choices = response.get("choices") or [{}]
    if len(choices) > 1:
        raise BadFile(f"has {len(choices)} answers to one question; ask for one (n=1)")
    logprobs = choices[0].get("logprobs") or {}
    tokens = logprobs.get("tokens") or []
    tops = [_tops_of((top or {}).items()) for top in logprobs.get("top_logprobs") or [None] * len(tokens)]
    steps = logprobs.get("content")  # of a chat
    if steps:
        tokens = [step["token"] for step in steps]
        tops = [_tops_of((top["token"], top["logprob"]) for top in step.get("top_logprobs") or ()) for step in steps]
    if not tokens or not all(tops):
        raise BadFile(_NO_LOGPROBS)
    place = _place_of_answer(tokens, options)
    scores, n_assumed = _option_scores(tops[place], tokens[place], options)
    if place == len(tokens) - 1:  # what would have followed is unknown
        _refuse_beginning(tokens[place], {_option_of(token, options) for token, _ in tops[place]}, options)
    return _option_of(tokens[place], options), scores, n_assumed


def _refuse_beginning(token: str, returned: Collection[str | None], options: tuple[str, ...]) -> None:
    """Refuse a token that is the beginning of an option, unless both are options that were returned as one token."""
    word = _word(token)
    longer = [option for option in options if option != word and option.casefold().startswith(word.casefold())]
    if _option_of(token, options):
        longer = [option for option in longer if option not in returned]
    if word and longer:
        raise BadFile(
            f"the answer {shown(token)} may be the beginning of the option {longer[0]!r}, or another case of it: an "
            f"option must be one token, written as under options; {_ALONE}"
        )


def _place_of_answer(tokens: list[str], options: tuple[str, ...]) -> int:
    """Return which token names the option: the first word, or else the first option after the last word "answer"."""
    text = ""
    starts = []
    for token in tokens:
        starts.append(len(text))
        text += re.sub("[▁Ġ]", " ", token)
    place = next((place for place, token in enumerate(tokens) if _word(token)), 0)
    first = tokens[place]
    if _option_of(first, options) is None and len(tokens) > 1:
        said = text.casefold().rfind("answer")
        after = [
            place for place, start in enumerate(starts) if start > said >= 0 and _option_of(tokens[place], options)
        ]
        if not after:
            raise BadFile(
                f"the answer begins with {shown(first)} and names none of the options {listed(options)} after the word "
                f"answer; {_ALONE}"
            )
        place = after[0]
    word = _word(tokens[place])
    rest = text[starts[place] + len(tokens[place]) :]
    several = _SEVERAL.match(rest)
    denied = _DENIED.search(text[: starts[place]])
    is_listed = several and (several[2] or re.search("[,/&]", several[1])) and several[3] in options
    goes_on = tokens[place][-1:].isalnum() and rest[:1].isalnum()  # as in "A" and "pple"
    is_article = word in ("A", "I") and re.match(r" +[a-z]", rest)
    if goes_on or is_article or denied or is_listed or _REFUTED.match(rest):
        raise BadFile(
            f"the answer {shown(text[starts[place] :][:40])} may mean another word or several options; {_ALONE}"
        )
    return place


def _option_scores(top: _Tops, chosen: str, options: tuple[str, ...]) -> tuple[Array, int]:
    """Return a log-probability of each option from those of the likeliest tokens, and how many were not among them.

    An option that was not returned is at most as likely as the last token returned, and as all tokens that were not
    returned; it gets the lower of the two. A sampled token may be returned although it is less likely, so it does not
    count as the last.
    """
    total = np.logaddexp.reduce([score for _, score in top])
    if total > _ROUNDING:
        raise BadFile(
            f"the probabilities of the tokens {listed([token for token, _ in top])} sum to {np.exp(total):.3g}: these "
            f"are no log-probabilities, or tokens are given twice"
        )
    chances: dict[str, float] = {}
    for token, score in top:
        option = _option_of(token, options)
        if option is not None:
            chances[option] = float(np.logaddexp(chances.get(option, -np.inf), score))
    if not chances:
        raise BadFile(
            f"none of the options {listed(options)} is among the tokens {listed([token for token, _ in top])}"
        )
    left = float(np.log(max(1 - np.exp(total), _LEAST_LEFT)))
    lowest = min([left, *(score for token, score in top if token != chosen)])
    return np.array([chances.get(option, lowest) for option in options]), len(options) - len(chances)


def _tops_of(pairs: Iterable[tuple[str, Any]]) -> _Tops:
    """Return tokens with their log-probabilities, each once, but not those that the server did not score."""
    tops = dict.fromkeys(pairs)
    if not tops:
        return []
    scores = _scores("log-probabilities", [score for _, score in tops]).tolist()
    tokens = [token for token, _ in tops]
    return [(token, score) for token, score in zip(tokens, scores, strict=True) if score > _NOT_RETURNED]


def _option_of(token: str, options: tuple[str, ...]) -> str | None:
    """Return the option that a token names; case counts for single letters, since "a" is a word.

    >>> _option_of(" (A)", ("A", "B")), _option_of("a", ("A", "B")), _option_of("▁Yes.", ("yes", "no"))
    ('A', None, 'yes')
    """
    word = _word(token)
    if word in options:
        return word
    same = [option for option in options if len(word) > 1 and option.casefold() == word.casefold()]
    return same[0] if len(same) == 1 else None


def _word(token: str) -> str:
    """Return a token without the blanks and marks around it."""
    return token.strip(_MARKS)


def _simple(record: Mapping[str, Any], known: Iterable[str]) -> dict[str, Any]:
    """Return what is text or a number, such as an id, but not the long parts of a log."""
    words = {*known, "options"}
    return {key: value for key, value in record.items() if key not in words and not isinstance(value, dict | list)}


def _scores(name: str, values: Any) -> Array:
    """Return a number for each choice; a harness writes them as text."""
    given = values if isinstance(values, list) and bool not in map(type, values) else []
    scores = real_numbers(given, name)
    if scores.ndim != 1 or not scores.size or np.isnan(scores).any():
        raise BadFile(f"{name} must be a list of numbers, one for each choice; got {shown(values)}")
    return scores


def _values(arguments: object) -> list[Any]:
    """Return a list of arguments, which newer logs write as an object."""
    if isinstance(arguments, dict):
        return list(arguments.values())
    return arguments if isinstance(arguments, list) else []


def _only(target: Any) -> Any:
    """Return the one item of a list, and anything else as it is."""
    return target[0] if isinstance(target, list) and len(target) == 1 else target


def _place(target: Any, n_choices: int, texts: Sequence[Any] = (), is_name: bool = False) -> int:
    """Return the number of the right choice, given by its text, its number or its letter; a name is a text."""
    word = str(target).strip()
    choices = [str(text).strip() for text in texts]
    same = [place for place, choice in enumerate(choices) if choice == word]
    same = same or [place for place, choice in enumerate(choices) if choice.casefold() == word.casefold()]
    letter = word.strip("().:").upper()
    number = -1
    if not is_name and word.isdecimal():
        number = int(word)
    elif (
        not is_name and not same and len(letter) == 1 and not any(len(text) == 1 and text.isalpha() for text in choices)
    ):
        number = ord(letter) - ord("A")
    is_number = 0 <= number < n_choices
    if isinstance(target, str | int) and len(same) == 1 and (number == same[0] or not is_number):
        return same[0]
    if is_number and not same:
        return number
    if is_number:
        raise BadFile(
            f"the answer {shown(target)} is the text of choice {same} and the number of another; give its letter"
        )
    of = f": {listed(choices)}" if choices else ""
    raise BadFile(f"the answer {shown(target)} is not one of the {n_choices} choices, by number, letter or text{of}")
